"""A calibration for people: the verdict, figures of both policies, and waits over time."""

from collections.abc import Iterator, Sequence
from pathlib import Path

from rich.console import Console
from rich.table import Table
from rich.text import Text

from gpuyard.calibrate.result import CLUSTER, POLICY, Calibration
from gpuyard.calibrate.search import Trial
from gpuyard.calibrate.wording import figure_rows, sentences
from gpuyard.terminal.curves import draw_curve
from gpuyard.units import duration

MOST_TRIALS = 8
HEIGHT = 4
WIDEST = 100
MARGIN = 12


def show_calibration(console: Console, found: Calibration, out: Path | None, written: Sequence[str]) -> None:
    """Print everything.

    Args:
        console: Where to.
        found: What was found.
        out: The directory that was written; None if there is none.
        written: Names of its files.
    """
    console.print(*sentences(found), "", sep="\n")
    console.print(_figures(found), "", _trials(found), "", sep="\n")
    for line in _curves(found, min(console.width, WIDEST) - MARGIN, ascii_only=console.encoding != "utf-8"):
        console.print(line, soft_wrap=True)
    if out is not None:
        cluster = str(out / CLUSTER) if found.is_scaled else "CLUSTER"
        console.print(f"Written to {out}: {', '.join(written)}")
        console.print(
            f"Use it: gpuyard simulate JOBS --cluster {cluster} --current {out / POLICY} --policy sjf+easy"
        )


def _figures(found: Calibration) -> Table:
    table = Table(box=None, pad_edge=False, title="On the second half", title_justify="left")
    table.add_column("")
    table.add_column("calibrated", justify="right")
    for name in found.others:
        table.add_column(name, justify="right")
    table.add_column("recorded", justify="right")
    others = [figure_rows(one) for one in found.others.values()]
    for name, (title, value) in figure_rows(found.closeness).items():
        recorded = duration(found.closeness.mean_recorded_s) if name == "mean_simulated_s" else ""
        table.add_row(title, value, *(other.get(name, ("", "-"))[1] for other in others), recorded)
    return table


def _trials(found: Calibration) -> Table:
    """The best trials of each kind on the first half."""
    table = Table(box=None, pad_edge=False, title="Tried on the first half", title_justify="left")
    table.add_column("policy")
    table.add_column("nodes", justify="right")
    table.add_column("misfit", justify="right")
    best: dict[tuple[str, int], Trial] = {}
    for trial in sorted(found.trials, key=lambda one: one.misfit):
        best.setdefault((trial.candidate.label, trial.cluster.node_count), trial)
    for trial in list(best.values())[:MOST_TRIALS]:
        table.add_row(trial.candidate.label, f"{trial.cluster.node_count:,}", f"{trial.misfit:.3f}")
    return table


def _curves(found: Calibration, width: int, *, ascii_only: bool) -> Iterator[Text]:
    """Recorded and simulated mean waits over time, at the same scale."""
    curves = found.curves
    if len(curves.begin_s) < 2 or width < 1:
        return
    most = max(*curves.recorded_s, *curves.simulated_s)
    step = "hour" if curves.step_s == 3600 else duration(curves.step_s)
    for name, values, style in (
        ("recorded", curves.recorded_s, "yellow"),
        ("calibrated", curves.simulated_s, "cyan"),
    ):
        drawn = draw_curve(
            curves.begin_s, values, width, HEIGHT, level=most, style=style, ascii_only=ascii_only
        )
        yield Text(f"Mean wait by {step}, {name}", style=style)
        for row, line in enumerate(drawn.lines):
            edge = drawn.high if row == 0 else drawn.low if row == HEIGHT - 1 else None
            label = "" if edge is None else duration(max(edge, 0.0), short=True)
            yield Text(label.rjust(MARGIN - 1) + " ").append_text(line)
    yield Text("")
