"""``gpuyard simulate``: replay a workload under policies and compare them."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from cyclopts import Parameter

from gpuyard.cli.inputs import (
    need_cluster,
    note_searches_without_result,
    open_console,
    open_trace,
    print_json,
    print_note,
)
from gpuyard.cli.parameters import (
    SIMULATION,
    ClusterText,
    Flag,
    Json,
    Simulation,
    WorkloadText,
)
from gpuyard.config import AUTO, SimulationConfig
from gpuyard.errors import InputError
from gpuyard.registry import lookup
from gpuyard.terminal.console import show_progress
from gpuyard.terminal.losers import PolicyWaits, loser_note
from gpuyard.terminal.tables import (
    COMPARED,
    OF_CLASSES,
    OF_ONE_POLICY,
    WITHOUT_GPUS,
    assumption_note,
    class_table,
    comparison_notes,
    comparison_table,
    single_table,
)
from gpuyard.units import relative_change

if TYPE_CHECKING:
    from rich.console import Console

    from gpuyard.cluster.model import Cluster
    from gpuyard.evaluate.replay import PolicyRun
    from gpuyard.workload import Workload

Classes = Literal["user", "group", "partition", "gpus", "runtime", "priority"]
"""``gpuyard.metrics.classes.KINDS``, which help must not load."""


def simulate(
    workload: WorkloadText,
    /,
    *,
    cluster: ClusterText = None,
    policy: Annotated[
        list[str] | None,
        Parameter(
            negative=(),
            help="ORDER[+BACKFILL][+ADMISSION][/PLACEMENT], such as sjf+easy, a policy file (.toml), or a "
            "learned policy: model:NAME (gpuyard policies), a run directory or model file; repeat it to "
            "compare. (default: fifo)",
        ),
    ] = None,
    current: Annotated[
        str,
        Parameter(
            help="What runs today, which the others are compared with: a policy; auto: what your scheduler "
            "did, if the log has recorded starts, else fifo+easy if there are several policies; none: the "
            "first policy, and what was recorded is left out."
        ),
    ] = AUTO,
    metric: Annotated[
        list[str] | None,
        Parameter(negative=(), help="Show this metric (docs/contract/metrics.md); repeat it for more."),
    ] = None,
    by: Annotated[
        Classes | None, Parameter(help="Also show metrics by class of jobs: who gains, who loses.")
    ] = None,
    out: Annotated[Path | None, Parameter(help="Write schedules and metrics into this directory.")] = None,
    csv: Annotated[bool, Flag, Parameter(help="With --out: schedules as CSV too.")] = False,
    energy_price: Annotated[
        str | None,
        Parameter(
            help="Price of a kWh, in any currency, or prices by hour of the day, such as "
            "0-7:0.12,7-20:0.31,20-24:0.18: gives the metric energy_cost."
        ),
    ] = None,
    history: Annotated[
        Path | None,
        Parameter(help="Jobs that had finished before, for predictions from history: a file in any format."),
    ] = None,
    json: Json = False,
    simulation: Simulation = SIMULATION,
) -> None:
    """Replay a workload under one or more policies and compare them.

    Example: gpuyard simulate jobs.csv --cluster 64x8 --policy fifo --policy sjf+easy
    """
    from gpuyard.evaluate.replay import replay_comparison, replay_document
    from gpuyard.metrics.tariff import parse_tariff
    from gpuyard.native.information import why_chosen

    chosen = _check_metrics(metric or ())
    if csv and out is None:
        raise InputError("--csv needs --out DIR, the directory to write to")
    price = None if energy_price is None else parse_tariff(energy_price, "--energy-price")
    if out is not None:
        _check_out(out)
    need_cluster(cluster, workload)
    note_searches_without_result(policy or ())
    jobs, machines, report = open_trace(workload, cluster)
    if by is not None:
        _check_classes(jobs, by)
    past = None if history is None else open_trace(str(history), None)[0]
    options: dict[str, Any] = {"price_per_kwh": price, "history": past, "current": current}
    runs = replayed(jobs, machines, policy or ["fifo"], simulation, **options)  # type: ignore[arg-type]
    if why := why_chosen(simulation, jobs):
        print_note(why)
    for note in (note for run in runs for note in run.result.notes):
        print_note(note)
    if out is not None:
        replay_comparison(workload, runs, report).write(out, csv=csv)
    if json:
        document = replay_document(workload, runs, chosen, report)
        if by is not None:
            for result, rows in zip(document["results"], _with_changes(by, runs), strict=True):
                result["breakdown"] = {"by": by, "classes": rows}
        print_json(document)
        return
    console = open_console()
    usual = tuple(COMPARED if len(runs) > 1 else OF_ONE_POLICY)
    if not runs[0].result.cluster.total_gpus:
        usual = tuple(WITHOUT_GPUS.get(name, name) for name in usual)
    cost = () if price is None or "energy_cost" in usual else ("energy_cost",)
    show_comparison(console, workload, runs, chosen or usual + cost)
    _show_calibration(console, runs)
    if by is not None:
        _show_classes(console, by, runs, chosen)
    if out is not None:
        console.print(
            f"Written to {out}: results.json, parquet tables, and a schedule per policy in schedules/"
        )


def _show_calibration(console: "Console", runs: "Sequence[PolicyRun]") -> None:
    """How closely what the others are compared with reproduces a log, if its file says so."""
    from gpuyard.policies.calibrated import CalibrationFigures

    entry = next((run.entry for run in runs if run.entry.role == "reference"), runs[0].entry)
    if entry.calibration:
        figures = CalibrationFigures.model_validate(dict(entry.calibration))
        console.print(figures.sentence(entry.label), "", sep="\n")


def replayed(
    workload: "Workload",
    cluster: "Cluster",
    policies: Sequence[str],
    config: SimulationConfig,
    *,
    current: str = AUTO,
    **options: Any,
) -> "list[PolicyRun]":
    """Simulate each policy on the same jobs, with progress; ``options`` are those of ``run_policies``.

    Raises:
        InputError: before anything is simulated if a policy's name or a combination is wrong.
    """
    from gpuyard.evaluate.replay import NONE, find_contenders, run_policies, with_current

    contenders = with_current(find_contenders(policies), workload, cluster, config, current)
    with show_progress(len(workload), len(contenders)) as progress:
        options = {**options, "start_run": progress.start_run, "current": NONE}
        return run_policies(workload, cluster, contenders, config, **options)


def _check_out(directory: Path) -> None:
    from gpuyard.evaluate.results.files import holds_results
    from gpuyard.evaluate.storage import check_free

    try:
        check_free(directory)
    except InputError as error:
        raise InputError(f"--out {error}") from None
    if holds_results(directory):
        print_note(f"--out {directory}: the results that are there are replaced")


def _check_classes(workload: "Workload", by: str) -> None:
    """Before long work: refuse classes by a column that the jobs lack."""
    from gpuyard.metrics.classes import classify

    classify(workload.frame, by)


def _check_metrics(names: Sequence[str]) -> tuple[str, ...]:
    from gpuyard.metrics.catalogue import metrics

    for name in names:
        lookup("metric", name, known=metrics())
    return tuple(dict.fromkeys(names))


def show_comparison(console: "Console", source: str, runs: "list[PolicyRun]", chosen: Sequence[str]) -> None:
    """Metrics of one policy, or of several beside each other and their classes with the longest waits."""
    from gpuyard.evaluate.replay import reference_run, waits_of
    from gpuyard.metrics.catalogue import metrics

    shown = {name: metrics()[name] for name in chosen}
    is_usual = tuple(chosen[: len(COMPARED) - 1]) == COMPARED[:-1]
    waits = _class_waits(runs) if len(runs) > 1 and is_usual else []
    alarms = [one for one in waits if one.losers]
    reference = reference_run(runs)
    far_from = reference.entry.label if alarms else ""
    heading, notes = comparison_notes(source, [run.result for run in runs], far_from=far_from)
    console.print(heading, "", sep="\n")
    if len(runs) == 1:
        console.print(single_table(runs[0].metrics, shown))
    else:
        names, values = [run.entry.label for run in runs], [run.metrics for run in runs]
        marked = [index for index, run in enumerate(runs) if run.result.marks]
        worst = [one.worst for one in waits]
        compared_with = runs.index(reference)
        console.print(comparison_table(console, names, values, shown, worst, marked, reference=compared_with))
    if alarms:
        console.print("", *(loser_note(one) for one in alarms), sep="\n")
    if (explained := waits_of(runs)) is not None and explained.is_unexplained:
        console.print("", explained.in_words(), sep="\n")
    if reference.entry.is_assumed:
        console.print("", assumption_note(reference.entry.label), sep="\n")
    console.print("", *notes, "", sep="\n", style="dim")


def _class_waits(runs: "list[PolicyRun]") -> list[PolicyWaits]:
    """Of each policy the waits of classes of jobs, beside those under what runs today."""
    from gpuyard.evaluate.replay import reference_run
    from gpuyard.evaluate.tables import class_frame
    from gpuyard.metrics.classes import class_labels, class_waits, common_users

    frame = runs[0].result.workload.frame
    labels = class_labels(frame, common_users([frame]))
    tables = [class_frame(run.policy, 0, run.result, labels) for run in runs]
    reference = reference_run(runs)
    found = [class_waits(table, tables[runs.index(reference)]) for table in tables]
    return [
        PolicyWaits(run.entry.label, reference.entry.label, waits)
        for run, waits in zip(runs, found, strict=True)
    ]


def _breakdowns(by: str, runs: "list[PolicyRun]") -> dict[str, list[dict[str, Any]]]:
    """Of each policy the metrics of classes, the one that loses most first."""
    from gpuyard.evaluate.replay import reference_run
    from gpuyard.metrics.classes import losers_first

    found = {run.entry.label: run.result.breakdown(by).to_dicts() for run in runs}
    waits = {label: {row["class"]: row["mean_wait_s"] for row in rows} for label, rows in found.items()}
    judged = [run.entry.label for run in runs if run.entry.role != "recorded"]
    names = list(waits[runs[0].entry.label])
    ordered = losers_first(names, waits, reference_run(runs).entry.label, judged)
    place = {name: index for index, name in enumerate(ordered)}
    return {
        label: sorted(rows, key=lambda row: place.get(row["class"], len(place)))
        for label, rows in found.items()
    }


def _with_changes(by: str, runs: "list[PolicyRun]") -> list[list[dict[str, Any]]]:
    """Rows of classes by policy, each with the changes of its metrics against what runs today."""
    from gpuyard.evaluate.replay import reference_run

    breakdowns = _breakdowns(by, runs)
    today = breakdowns[reference_run(runs).entry.label]
    return [
        [
            {**row, "changes": {name: relative_change(row[name], other[name]) for name in list(row)[2:]}}
            for row, other in zip(rows, today, strict=True)
        ]
        for rows in breakdowns.values()
    ]


def _show_classes(console: "Console", by: str, runs: "list[PolicyRun]", chosen: Sequence[str]) -> None:
    from gpuyard.evaluate.replay import reference_run
    from gpuyard.metrics.catalogue import metrics

    shown = {name: metrics()[name] for name in chosen or OF_CLASSES if metrics()[name].per_class}
    reference = runs.index(reference_run(runs))
    console.print(class_table(console, by, _breakdowns(by, runs), shown, reference=reference))
