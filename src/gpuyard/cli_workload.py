"""``gpuyard workload``: making, importing, looking over and shaping workloads."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from cyclopts import App, Parameter

from gpuyard.cli_generators import fit, synth
from gpuyard.cli_parts import (
    ClusterText,
    Flag,
    Json,
    OutFile,
    WorkloadText,
    check_suffix_among,
    first_lines,
    open_cluster,
    open_console,
    open_trace,
    open_workload,
    parse_settings,
    print_json,
    write_text,
)
from gpuyard.cli_survey import survey
from gpuyard.errors import InputError
from gpuyard.shape_options import ShapeOptions

if TYPE_CHECKING:
    from gpuyard.workload.formats import ImportedTrace
    from gpuyard.workload.importing import ImportReport

workload_app = App(name="workload", help="Import, make, look over and shape workloads.")

LARGE_BYTES = 50_000_000
"""Away from a terminal, reading more than this is announced."""


@workload_app.command(name="import", sort_key=1)
def import_files(
    files: Annotated[list[Path], Parameter(negative=(), help="The files of a trace that belong together.")],
    /,
    *,
    out: OutFile,
    format: Annotated[str | None, Parameter(help="Name of the format. (default: recognised)")] = None,
    lenient: Annotated[bool, Flag, Parameter(help="Assume something where files are ambiguous.")] = False,
    option: Annotated[
        list[str] | None,
        Parameter(negative=(), help="NAME=VALUE: an option of the format; repeat it for more."),
    ] = None,
    cluster_out: Annotated[
        Path | None, Parameter(help="Also write the cluster that the files tell, as TOML.")
    ] = None,
    report: Annotated[
        Path | None, Parameter(help="The report. (default: beside --out, .import.json)")
    ] = None,
    json: Json = False,
) -> None:
    """Read a trace or accounting log and say what became of every row.

    Example: gpuyard workload import sacct.txt --out jobs.parquet
    """
    from gpuyard.workload.native import check_suffix

    check_suffix(out)
    trace = _imported(files, format, lenient, parse_settings("--option", option or []))
    if cluster_out is not None and trace.cluster is None:
        raise InputError(
            f"--cluster-out {cluster_out}: these files of format {trace.report.format} tell no cluster"
        )
    written = _written(trace, out, report or report_beside(out), cluster_out)
    if json:
        print_json({"files": written, "report": trace.report.model_dump(mode="json")})
        return
    from gpuyard.workload_tables import import_table

    open_console().print(import_table(trace.report), "", f"Written: {', '.join(written)}", sep="\n")


def _written(trace: "ImportedTrace", out: Path, report: Path, cluster_out: Path | None) -> list[str]:
    """Write everything, and say which files."""
    from gpuyard.workload import write_workload

    write_workload(trace.workload, out)
    write_text(report, trace.report.model_dump_json(indent=2) + "\n")
    if cluster_out is None or trace.cluster is None:
        return [str(out), str(report)]
    write_text(cluster_out, trace.cluster.to_toml())
    return [str(out), str(report), str(cluster_out)]


def _imported(
    files: list[Path], format: str | None, lenient: bool, options: dict[str, Any]
) -> "ImportedTrace":
    from gpuyard.workload import import_trace

    with _reading(files):
        return import_trace(files, format, strict=not lenient, **options)


@contextmanager
def _reading(files: list[Path]) -> Iterator[None]:
    """Something that moves on a terminal while files are read; elsewhere a line if they are large."""
    from gpuyard.terminal import errors

    size = sum(path.stat().st_size for path in files if path.is_file())
    said = f"reading {', '.join(path.name for path in files[:3])} ({size / 1e6:,.1f} MB)"
    console = errors()
    if console.is_terminal:
        with console.status(said):
            yield
        return
    if size > LARGE_BYTES:
        console.print(said)
    yield


def report_beside(path: Path) -> Path:
    """Where the import report of a workload file lies."""
    name = path.name
    for suffix in (".csv.gz", ".csv", ".parquet"):
        name = name.removesuffix(suffix)
    return path.with_name(f"{name}.import.json")


@workload_app.command(sort_key=2)
def audit(
    workload: WorkloadText,
    /,
    *,
    cluster: ClusterText = None,
    out: Annotated[Path | None, Parameter(help="Also write the card: .html or .json.")] = None,
    report: Annotated[
        Path | None, Parameter(help="The import report. (default: the one beside the file, if any)")
    ] = None,
    json: Json = False,
) -> None:
    """Say what is wrong with a workload, what it does to a simulation, and what to do about it.

    Example: gpuyard workload audit jobs.parquet --cluster 64x8 --out card.html
    """
    from gpuyard.workload.auditing.audit import audit as look_over

    check_suffix_among(out, (".html", ".json"))
    jobs, machines = open_trace(workload, cluster)
    card = look_over(jobs, machines, _import_report(workload, report))
    if out is not None:
        from gpuyard.workload_pages import card_page

        text = card.model_dump_json(indent=2) + "\n" if out.suffix == ".json" else card_page(card)
        write_text(out, text)
    if json:
        print_json(card.model_dump(mode="json"))
        return
    from gpuyard.workload_tables import card_table

    console = open_console()
    console.print(card_table(card))
    if out is not None:
        console.print(f"Written: {out}")


def _import_report(workload: str, path: Path | None) -> "ImportReport | None":
    from pydantic import ValidationError

    from gpuyard.workload.importing import ImportReport

    path = path or (report_beside(Path(workload)) if report_beside(Path(workload)).is_file() else None)
    if path is None:
        return None
    try:
        return ImportReport.model_validate_json(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{path}: cannot be read ({error})") from None
    except ValidationError as error:
        raise InputError(f"{path}: is no import report ({error.errors()[0]['msg']}); import again") from None


@workload_app.command(sort_key=3)
def describe(
    workload: WorkloadText,
    /,
    *,
    cluster: ClusterText = None,
    out: Annotated[Path | None, Parameter(help="Also write a page with charts: .html.")] = None,
    json: Json = False,
) -> None:
    """Say what is in a workload: jobs, users, durations, gang sizes, arrivals, load."""
    from gpuyard.workload import describe as summarise
    from gpuyard.workload.distributions import distributions

    check_suffix_among(out, (".html",))
    jobs, machines = open_trace(workload, cluster)
    summary = summarise(jobs, machines)
    spread = distributions(jobs, machines.total_gpus if machines else None)
    if out is not None:
        from gpuyard.workload_pages import description_page

        write_text(out, description_page(summary, spread))
    if json:
        print_json({**summary, "distributions": spread})
        return
    from gpuyard.tables import description_tables
    from gpuyard.workload_tables import distribution_tables

    console = open_console()
    console.print(description_tables(summary), "", distribution_tables(spread), sep="\n")
    if out is not None:
        console.print(f"Written: {out}")


@workload_app.command(sort_key=4)
def shape(
    workload: WorkloadText,
    /,
    *,
    out: OutFile,
    cluster: ClusterText = None,
    cluster_out: Annotated[
        Path | None,
        Parameter(help="Reach --load by a smaller cluster of --cluster's shape, written here as TOML."),
    ] = None,
    json: Json = False,
    options: ShapeOptions = ShapeOptions(),  # noqa: B008  (frozen)
) -> None:
    """Cut, filter, thin, compress or complete a workload. Steps are taken in the order of their options.

    Example: gpuyard workload shape jobs.parquet --from 14d --load 0.9 --cluster 64x8 --out dense.parquet
    """
    from gpuyard.workload import write_workload
    from gpuyard.workload.native import check_suffix
    from gpuyard.workload.shaping.shape import shape as take_steps
    from gpuyard.workload.shaping.shape import shrink_to_load

    check_suffix(out)
    config, machines = options.config(), open_cluster(cluster)
    if cluster_out is not None and (config.load is None or machines is None):
        raise InputError("--cluster-out needs --load and --cluster: the cluster to shrink, and to which load")
    jobs = open_workload(workload)
    before = len(jobs)
    if cluster_out is None:
        jobs = take_steps(jobs, config, machines)
    else:
        jobs = take_steps(jobs, config.model_copy(update={"load": None}), machines)
        machines = shrink_to_load(jobs, machines, config.load)  # type: ignore[arg-type]
        write_text(cluster_out, machines.to_toml())
    write_workload(jobs, out)
    _say_shaped(out, before, jobs, machines, cluster_out, json)


def _say_shaped(
    out: Path, before: int, jobs: Any, machines: Any, cluster_out: Path | None, json: bool
) -> None:
    from gpuyard.quantities import plural
    from gpuyard.workload.shaping.rescale import area_load
    from gpuyard.workload.shaping.slices import span_text

    load = area_load(jobs, machines) if machines is not None else None
    if json:
        document = {"file": str(out), "jobs": len(jobs), "metadata": jobs.metadata.model_dump(mode="json")}
        print_json(
            {**document, "load": load, "cluster_file": None if cluster_out is None else str(cluster_out)}
        )
        return
    console = open_console()
    console.print(f"{out}: {len(jobs):,} of {plural(before, 'job')}, {span_text(jobs)}")
    if load is not None:
        console.print(f"load {load:.3f} on {machines.name} ({plural(machines.total_gpus, 'GPU')})")
    for step in jobs.metadata.history:
        stated = ", ".join(f"{name} = {value}" for name, value in step.settings.items())
        console.print(
            f"  {step.name}: {stated}"[: console.width] if stated else f"  {step.name}", style="dim"
        )


@workload_app.command(sort_key=5)
def merge(
    workloads: Annotated[list[str], Parameter(negative=(), help="Two files of jobs or more.")],
    /,
    *,
    out: OutFile,
    clock: Annotated[
        Literal["epoch", "zero"], Parameter(help="By date, or all from their first submit on.")
    ] = "epoch",
    keep_apart: Annotated[
        bool, Flag, Parameter(help="Put the workload's name before users, groups and ids.")
    ] = False,
    json: Json = False,
) -> None:
    """Put several workloads on one clock."""
    from gpuyard.workload import write_workload
    from gpuyard.workload.native import check_suffix
    from gpuyard.workload.shaping.merge import merge as put_together

    check_suffix(out)
    jobs = put_together([open_workload(source) for source in workloads], clock=clock, keep_apart=keep_apart)
    write_workload(jobs, out)
    _say_shaped(out, len(jobs), jobs, None, None, json)


@workload_app.command(sort_key=6)
def convert(workload: WorkloadText, /, *, out: OutFile, json: Json = False) -> None:
    """Write a workload as another kind of file."""
    from gpuyard.workload import write_workload
    from gpuyard.workload.native import check_suffix

    check_suffix(out)
    jobs = open_workload(workload)
    write_workload(jobs, out)
    if json:
        print_json({"file": str(out), "jobs": len(jobs)})
    else:
        open_console().print(f"{out}: {len(jobs):,} jobs")


workload_app.command(synth, sort_key=7)
workload_app.command(fit, sort_key=8)
workload_app.command(survey, sort_key=9)


@workload_app.command(name="list", sort_key=10)
def list_workloads(*, json: Json = False) -> None:
    """List file formats, built-in workloads and built-in clusters."""
    from gpuyard.cluster import preset_clusters
    from gpuyard.tables import named_table
    from gpuyard.workload import workload_formats
    from gpuyard.workload.generators import preset_workloads

    makers = preset_workloads()
    clusters = {name: make().cluster for name, make in makers.items()}
    kinds = {
        "format": first_lines(workload_formats().items()),
        "workload": first_lines(makers.items()),
        "cluster": first_lines(preset_clusters().items()),
    }
    if json:
        listed = {f"{kind}s": [{"name": n, "summary": s} for n, s in named] for kind, named in kinds.items()}
        for entry in listed["workloads"]:
            entry["cluster"] = clusters[entry["name"]] or "drawn"
        print_json(listed)
        return
    from gpuyard.workload_tables import preset_table

    console = open_console()
    for kind, named in kinds.items():
        table = preset_table(named, clusters) if kind == "workload" else named_table(kind, named)
        console.print(table, "", sep="\n")
