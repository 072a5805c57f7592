"""``gpuyard report``: results as one HTML page."""

import webbrowser
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from gpuyard.cli.inputs import check_output, open_console, print_json
from gpuyard.cli.parameters import Flag, Json


def report(
    directories: Annotated[
        list[Path],
        Parameter(
            negative=(),
            help="What gpuyard evaluate or simulate --out wrote; training runs given too add curves.",
        ),
    ],
    /,
    *,
    out: Annotated[Path, Parameter(help="The page to write; with --figure: .pdf, .svg or .png.")] = Path(
        "report.html"
    ),
    figure: Annotated[
        str | None,
        Parameter(
            help="Write one chart for a paper instead: change, windows, cdf-wait, cdf-jct, utilisation, "
            "queue-length, by-gpus:mean-wait, pareto:p99-wait ... (gpuyard\\[figures])."
        ),
    ] = None,
    width: Annotated[float, Parameter(help="With --figure: how wide it is, cm.")] = 8.6,
    metric: Annotated[
        str | None,
        Parameter(
            help="Decide by another metric than the evaluation was made with (docs/contract/metrics.md)."
        ),
    ] = None,
    current: Annotated[
        str | None,
        Parameter(help="What runs today, which the others are compared with: one of the policies."),
    ] = None,
    open: Annotated[bool, Flag, Parameter(help="Open it in the browser.")] = False,
    perfetto: Annotated[
        Path | None,
        Parameter(
            help="Also write a schedule as a trace for ui.perfetto.dev: a name ending in .json or .json.gz."
        ),
    ] = None,
    policy: Annotated[
        str | None, Parameter(help="With --perfetto: whose schedule. (default: the best one's)")
    ] = None,
    json: Json = False,
) -> None:
    """Show which policy is best, by how much and how sure, on one HTML page.

    The page needs nothing else.

    Example: gpuyard simulate heavy-tail --policy fifo --policy sjf+easy --out results, then
    gpuyard report results --open
    """
    if figure is not None:
        _write_figure(directories, figure, out, metric, current, width, json=json)
        return
    check_output("--out", out, (".html",))
    if perfetto is not None:
        check_output("--perfetto", perfetto, (".json", ".gz"))
    from gpuyard.report.writing import make_report

    made = make_report(out, directories, metric=metric, current=current, perfetto=perfetto, policy=policy)
    if json:
        print_json(made.document())
    else:
        console = open_console()
        console.print(made.sentence, made.sure, "", sep="\n")
        console.print(f"Written to {out}" + ("" if open else ": open it in a browser"))
        if perfetto is not None:
            console.print(f"Schedule of {made.traced} written to {perfetto}: open it at ui.perfetto.dev")
    if open:
        webbrowser.open(out.resolve().as_uri())


def _write_figure(
    directories: list[Path],
    name: str,
    out: Path,
    metric: str | None,
    current: str | None,
    width_cm: float,
    *,
    json: bool,
) -> None:
    """One chart as a file."""
    from gpuyard.report.paper.choice import ENDINGS, write_figure
    from gpuyard.report.sources import as_paths, read_sources

    check_output("--out", out, ENDINGS)
    report, _ = read_sources(as_paths(directories), metric=metric, current=current)
    title = write_figure(out, report, name, width_cm=width_cm)
    if json:
        print_json({"out": str(out), "figure": name, "title": title})
    else:
        open_console().print(f"{title}, written to {out}")
