"""``gpuyard workload``: making, importing, looking over and shaping workloads."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from cyclopts import App, Parameter

from gpuyard.cli.generators import fit, synth
from gpuyard.cli.imports.logs import import_files
from gpuyard.cli.inputs import (
    check_jobs_output,
    check_output,
    first_lines,
    flag,
    is_preset,
    open_cluster,
    open_console,
    open_trace,
    open_workload,
    print_json,
    print_note,
    write_text,
)
from gpuyard.cli.parameters import ClusterText, Flag, Json, OutFile, WorkloadText, settings
from gpuyard.errors import InputError, spelt
from gpuyard.terminal.console import errors
from gpuyard.terminal.tables import named_table
from gpuyard.units import plural
from gpuyard.workload.shaping.config import ShapeConfig

if TYPE_CHECKING:
    from gpuyard.workload.importing import ImportReport

workload_app = App(name="workload")

Steps = Annotated[
    ShapeConfig,
    settings(
        ShapeConfig,
        "Steps, in the order in which they are taken",
        names={"groups": "group", "users": "user"},
    ),
]
NO_STEPS = ShapeConfig()


workload_app.command(import_files, name="import", sort_key=1)


@workload_app.command(sort_key=2)
def audit(
    workload: WorkloadText,
    /,
    *,
    cluster: ClusterText = None,
    out: Annotated[Path | None, Parameter(help="Also write the card: .html or .json.")] = None,
    report: Annotated[
        Path | None, Parameter(help="The import report. (default: the one next to the file, if any)")
    ] = None,
    json: Json = False,
) -> None:
    """Say what is wrong with a workload, what it does to a simulation, and what to do about it.

    Example: gpuyard workload audit jobs.parquet --cluster 64x8 --out card.html
    """
    from gpuyard.workload.auditing.audit import audit as look_over

    check_output("--out", out, (".html", ".json"))
    jobs, machines, opened = open_trace(workload, cluster)
    account = _audited_report(workload, opened, report)
    card = look_over(jobs, machines, account)
    if out is not None:
        from gpuyard.report.pages.workload import card_page

        text = card.model_dump_json(indent=2) + "\n" if out.suffix == ".json" else card_page(card)
        write_text(out, text)
    if json:
        shown = None if account is None else account.model_dump(mode="json")
        print_json({**card.model_dump(mode="json"), "import": shown})
        return
    from gpuyard.terminal.workload import card_table

    console = open_console()
    console.print(card_table(card))
    if out is not None:
        console.print(f"Written: {out}")


def _audited_report(workload: str, opened: "ImportReport | None", path: Path | None) -> "ImportReport | None":
    """The report that was named, else that of the import; one that is of another file is not believed."""
    from gpuyard.workload.intake.import_reports import is_about, read_report, report_beside

    file = Path(workload)
    if path is not None:
        report = read_report(path)
        if not (file.is_file() and is_about(report, file)):
            print_note(f"{path} is not the report of the import that wrote {workload}; used as you named it")
        return report
    beside = report_beside(file)
    if opened is None and not is_preset(workload) and beside.is_file():
        print_note(f"{beside} is not the report of the import that wrote {workload}; not used")
    return opened


@workload_app.command(sort_key=3)
def describe(
    workload: WorkloadText,
    /,
    *,
    cluster: ClusterText = None,
    out: Annotated[Path | None, Parameter(help="Also write a page with charts: .html.")] = None,
    json: Json = False,
) -> None:
    """Say what is in a workload: jobs, users, durations, gang sizes, arrivals, load.

    Example: gpuyard workload describe jobs.parquet --cluster 64x8
    """
    from gpuyard.workload import describe as summarise
    from gpuyard.workload.distributions import distributions

    check_output("--out", out, (".html",))
    jobs, machines, report = open_trace(workload, cluster)
    summary = summarise(jobs, machines)
    spread = distributions(jobs, machines.total_gpus if machines else None)
    if out is not None:
        from gpuyard.report.pages.workload import description_page

        write_text(out, description_page(summary, spread))
    if json:
        account = None if report is None else report.model_dump(mode="json")
        print_json({**summary, "distributions": spread, "import": account})
        return
    from gpuyard.terminal.workload import description_tables, distribution_tables

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
    steps: Steps = NO_STEPS,
) -> None:
    """Cut, filter, thin, compress or complete a workload. Steps are taken in the order of the help.

    Example: gpuyard workload shape jobs.parquet --from 14d --load 0.9 --cluster 64x8 --out dense.parquet
    """
    from gpuyard.workload import write_workload
    from gpuyard.workload.shaping.shape import shape as take_steps
    from gpuyard.workload.shaping.shape import shrink_to_load

    check_jobs_output(out)
    check_output("--cluster-out", cluster_out, (".toml",))
    machines = open_cluster(cluster)
    if cluster_out is not None and (steps.load is None or machines is None):
        raise InputError("--cluster-out needs --load and --cluster: the cluster to shrink, and to which load")
    if cluster_out is not None and steps.level_days is not None:
        raise InputError("--level-days changes when jobs come, --cluster-out the cluster instead; use one")
    jobs = open_workload(workload)
    before = len(jobs)
    if cluster_out is None:
        jobs = take_steps(jobs, steps, machines)
    else:
        jobs = take_steps(jobs, steps.model_copy(update={"load": None}), machines)
        machines = shrink_to_load(jobs, machines, steps.load)  # type: ignore[arg-type]
        write_text(cluster_out, machines.to_toml())
    write_workload(jobs, out)
    _say_shaped(out, before, jobs, machines, cluster_out, json)


def _say_shaped(
    out: Path, before: int, jobs: Any, machines: Any, cluster_out: Path | None, json: bool
) -> None:
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
    """Put several workloads on one clock.

    Example: gpuyard workload merge march.parquet april.parquet --out spring.parquet
    """
    from gpuyard.workload import write_workload
    from gpuyard.workload.shaping.merge import merge as put_together

    check_jobs_output(out)
    jobs = put_together([open_workload(source) for source in workloads], clock=clock, keep_apart=keep_apart)
    write_workload(jobs, out)
    _say_shaped(out, len(jobs), jobs, None, None, json)


@workload_app.command(sort_key=6)
def convert(workload: WorkloadText, /, *, out: OutFile, json: Json = False) -> None:
    """Write a workload as another kind of file.

    Example: gpuyard workload convert jobs.csv --out jobs.parquet
    """
    from gpuyard.workload import write_workload

    check_jobs_output(out)
    jobs = open_workload(workload)
    write_workload(jobs, out)
    if json:
        print_json({"file": str(out), "jobs": len(jobs)})
    else:
        open_console().print(f"{out}: {len(jobs):,} jobs")


workload_app.command(synth, sort_key=7)
workload_app.command(fit, sort_key=8)


@workload_app.command(sort_key=9)
def survey(
    paths: Annotated[list[Path], Parameter(negative=(), help="Folders, or files.")],
    /,
    *,
    markdown: Annotated[bool, Flag, Parameter(help="Print a Markdown table.")] = False,
    json: Json = False,
) -> None:
    """Import every workload below some folders and print a table of what they hold.

    Nothing is written. Files that are refused strictly are tried with their companions in the same folder,
    then leniently, and the table says so. What starts with a dot is left out.

    Example: gpuyard workload survey traces --markdown
    """
    from gpuyard.workload.survey import survey as look_through

    if markdown and json:
        raise InputError("--markdown and --json contradict each other; give one of them")
    console = errors()
    if console.is_terminal:
        with console.status("looking") as status:
            entries = look_through(paths, lambda path: status.update(f"reading {path.name}"))
    else:
        entries = look_through(paths)
    entries = [
        entry.model_copy(update={"reason": entry.reason and spelt(entry.reason, flag)}) for entry in entries
    ]
    if json:
        print_json({"files": [entry.model_dump(mode="json") for entry in entries]})
        return
    from gpuyard.terminal.workload import survey_markdown, survey_table

    if markdown:
        print(survey_markdown(entries))
    else:
        open_console().print(survey_table(entries))


@workload_app.command(name="list", sort_key=10)
def list_workloads(*, json: Json = False) -> None:
    """List file formats, built-in workloads and built-in clusters.

    Example: gpuyard workload list
    """
    from gpuyard.cluster.model import preset_clusters
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
    from gpuyard.terminal.workload import preset_table

    console = open_console()
    for kind, named in kinds.items():
        table = preset_table(named, clusters) if kind == "workload" else named_table(kind, named)
        console.print(table, "", sep="\n")
