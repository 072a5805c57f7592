"""Policies on a whole log, each once: what they did, as JSON and as a comparison of one window."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import polars as pl

import gpuyard
from gpuyard.cluster.model import Cluster
from gpuyard.config import AUTO, SimulationConfig
from gpuyard.evaluate.comparison import Comparison
from gpuyard.evaluate.contenders import Contender, contender_of, with_labels
from gpuyard.evaluate.setting import PolicyEntry, Setting, fingerprint_of
from gpuyard.evaluate.tables import class_frame, window_frame, window_row
from gpuyard.metrics.catalogue import Price, Value, compute_metrics
from gpuyard.metrics.classes import class_labels, common_users, several_classes
from gpuyard.metrics.tariff import parse_tariff
from gpuyard.policies.base import RECORDED
from gpuyard.policies.grammar import DEFAULT_PLACEMENT, PolicySpec
from gpuyard.simulation.find import find_policy
from gpuyard.simulation.recorded_waits import RecordedWaits, recorded_waits, usual_policy
from gpuyard.simulation.run import SimulationResult, simulate
from gpuyard.workload import Workload
from gpuyard.workload.importing import ImportReport
from gpuyard.workload.recorded import has_recorded
from gpuyard.workload.shaping.derive import has_dates

METRIC = "mean_bounded_slowdown"
"""What decides which policy is best: users feel how long they wait in terms of how long they run."""
NONE = "none"
"""``current``: nothing runs today that is compared with."""
WINDOW = 0
"""The name of the one window: the first row."""
StartRun = Callable[[str], Callable[[int], None]]
"""Called with a policy's name before it runs; what it returns is told how many jobs have finished."""


@dataclass(frozen=True)
class PolicyRun:
    """A policy's replay of a log.

    Attributes:
        result: What it did.
        metrics: By name.
        entry: Who it is.
        price_per_kwh: Price of energy as JSON documents show it.
        waits: Of what was recorded: whether the modelled cluster explains its waits; None of others.
    """

    result: SimulationResult
    metrics: Mapping[str, Value]
    entry: PolicyEntry
    price_per_kwh: float | str | None = None
    waits: RecordedWaits | None = None

    @property
    def policy(self) -> str:
        """Full name of the policy."""
        return self.result.policy

    def account(self) -> dict[str, Any]:
        """What metrics do not show, as JSON: rows left out, counters, the hash of the schedule."""
        result = self.result
        return {
            "dropped_rows": result.workload.frame["row"].gather(result.dropped).to_list(),
            "counters": dict(result.counters),
            "schedule_hash": result.schedule.hash(),
        }


def find_contenders(policies: Sequence[str]) -> list[Contender]:
    """Policies by name, each once; ``with_current`` adds what they are compared with.

    Raises:
        InputError: for a name that is unknown.
    """
    found: dict[str, Contender] = {}
    for name in policies:
        one = contender_of(find_policy(name))
        found.setdefault(one.name, one)
    return with_labels(list(found.values()))


def with_current(
    contenders: Sequence[Contender],
    workload: Workload,
    cluster: Cluster,
    config: SimulationConfig,
    current: str = AUTO,
) -> list[Contender]:
    """The same policies behind what the log recorded, if it did, and what runs today, their reference.

    Args:
        contenders: The policies.
        workload: The jobs.
        cluster: What they run on.
        config: Settings, which a reference that nobody named must allow.
        current: What runs today: a policy; ``auto``: what the log recorded, if it has starts for half of its
            jobs, else ``fifo+easy``, or nothing beside one policy alone; ``none``: the policies as they are,
            the first being the reference.

    Raises:
        InputError: for a name that is unknown.
    """
    is_recorded = has_recorded(workload)
    if current == NONE or (current == AUTO and not is_recorded and len(contenders) == 1):
        return list(contenders)
    if current != AUTO:
        reference = contender_of(find_policy(current), "reference")
    elif is_recorded:
        reference = contender_of(find_policy(RECORDED), "reference")
    else:
        reference = _assumed(contenders, workload, cluster, config)
    first = [contender_of(find_policy(RECORDED), "recorded")] if is_recorded else []
    own = {reference.name, *(one.name for one in first)}
    others = [one.beside() for one in contenders if one.name not in own]
    return with_labels([*(one for one in first if one.name != reference.name), reference, *others])


def _assumed(
    contenders: Sequence[Contender], workload: Workload, cluster: Cluster, config: SimulationConfig
) -> Contender:
    """What is taken to run today; it places jobs as the first policy does, so that rules alone differ."""
    placement = contenders[0].entry.placement
    return contender_of(usual_policy(workload, cluster, config, placement)).assumed()


def reference_run(runs: Sequence[PolicyRun]) -> PolicyRun:
    """What the others are compared with: what runs today, or the first if nothing is said to."""
    return next((run for run in runs if run.entry.role == "reference"), runs[0])


def run_policies(
    workload: Workload,
    cluster: Cluster,
    policies: Sequence[str] | Sequence[Contender],
    config: SimulationConfig,
    *,
    price_per_kwh: Price | None = None,
    history: Workload | None = None,
    start_run: StartRun | None = None,
    current: str = AUTO,
) -> list[PolicyRun]:
    """Simulate each policy on the same jobs. A policy named twice runs once.

    Args:
        workload: The jobs.
        cluster: What they run on.
        policies: Names, or what ``find_contenders`` found.
        config: Settings, the same for all.
        price_per_kwh: Price of energy, or a tariff.
        history: Jobs that had finished before, for predictions.
        start_run: Told which policy runs next.
        current: What runs today (``with_current``).

    Raises:
        InputError: before anything is simulated if a policy's name, the price or a combination is wrong.
    """
    tariff = None if price_per_kwh is None else parse_tariff(price_per_kwh)
    price = None if tariff is None else tariff.document
    names = [one for one in policies if isinstance(one, str)]
    contenders = [*find_contenders(names), *(one for one in policies if isinstance(one, Contender))]
    contenders = with_current(contenders, workload, cluster, config, current)
    for one in contenders:
        one.policy.check_supported(workload, cluster, config)
    runs = []
    for one in contenders:
        progress = start_run(one.name) if start_run else None
        result = simulate(workload, cluster, one.policy, config, history=history, progress=progress)
        metrics = compute_metrics(workload, cluster, result.schedule, price_per_kwh=tariff, config=config)
        runs.append(PolicyRun(result, metrics, one.entry.marked(result.marks), price))

    def again(spec: PolicySpec) -> SimulationResult:
        return simulate(workload, cluster, spec, config, history=history)

    return _with_waits(runs, again)


def _with_waits(
    runs: Sequence[PolicyRun], again: Callable[[PolicySpec], SimulationResult]
) -> list[PolicyRun]:
    """The same; what was recorded with whether the modelled cluster explains it."""
    if all(run.policy != RECORDED for run in runs):
        return list(runs)
    first, done = runs[0].result, [run.result for run in runs]
    placement = next((run.entry.placement for run in runs if run.policy != RECORDED), DEFAULT_PLACEMENT)
    usual = usual_policy(first.workload, first.cluster, first.config, placement)
    waits = recorded_waits(usual, done, again)
    return [replace(run, waits=waits) if run.policy == RECORDED else run for run in runs]


def waits_of(runs: Sequence[PolicyRun]) -> RecordedWaits | None:
    """Whether the modelled cluster explains the waits of the log; None if what was recorded has no row."""
    return next((run.waits for run in runs if run.waits is not None), None)


def replay_document(
    source: str, runs: Sequence[PolicyRun], metrics: Sequence[str], report: ImportReport | None = None
) -> dict[str, Any]:
    """What ``simulate --json`` prints.

    Args:
        source: The workload as the user named it.
        runs: One for each policy.
        metrics: Names of the metrics to give; all if empty.
        report: The account of the import that the jobs come from, if there is one.
    """
    first = runs[0].result
    return {
        "workload": source,
        "cluster": first.cluster.name,
        "gpuyard_version": gpuyard.__version__,
        "jobs": len(first.workload),
        "import": None if report is None else report.model_dump(mode="json"),
        "settings": first.config.model_dump(mode="json"),
        "price_per_kwh": runs[0].price_per_kwh,
        "reference": reference_run(runs).policy,
        "reference_assumed": reference_run(runs).entry.is_assumed,
        "recorded_waits": _document_of(waits_of(runs)),
        "results": [
            {
                "policy": run.policy,
                "role": run.entry.role,
                "metrics": {name: run.metrics[name] for name in metrics or run.metrics},
                "dropped_jobs": len(run.result.dropped),
                "counters": dict(run.result.counters),
                "notes": list(run.result.notes),
                "impossible": run.result.impossible,
                "marks": list(run.result.marks),
                "calibration": dict(run.entry.calibration) or None,
                "schedule_hash": run.result.schedule.hash(),
            }
            for run in runs
        ],
    }


def replay_comparison(
    source: str, runs: Sequence[PolicyRun], report: ImportReport | None = None
) -> Comparison:
    """Replays of the same log as a comparison, whose one window is the whole log.

    Args:
        source: The workload as the user named it.
        runs: One for each policy.
        report: The account of the import that the jobs come from, if there is one.
    """
    reference, frame = reference_run(runs), runs[0].result.workload.frame
    labels = class_labels(frame, common_users([frame]))
    classes = [class_frame(run.policy, WINDOW, run.result, labels) for run in runs]
    by_name = {run.policy: run.result for run in runs}
    in_pieces = {name: one for name, one in by_name.items() if one.schedule.runs is not None}
    return Comparison(
        setting=_setting(source, runs, report),
        policies=tuple(_entry(run, run is reference) for run in runs),
        reference=reference.policy,
        chosen_on="given" if reference.entry.role == "reference" else "first",
        hindsight=None,
        windows=window_frame([window_row(run.policy, WINDOW, run.metrics) for run in runs]),
        classes=several_classes(pl.concat(classes)),
        schedules=_Tables(by_name, SimulationResult.table),
        executions=_Tables(in_pieces, execution_table),
        accounts={run.policy: run.account() for run in runs},
    )


def _document_of(waits: RecordedWaits | None) -> dict[str, Any] | None:
    return None if waits is None else {**asdict(waits), "is_unexplained": waits.is_unexplained}


def _setting(source: str, runs: Sequence[PolicyRun], report: ImportReport | None) -> Setting:
    first, waits = runs[0].result, waits_of(runs)
    return Setting(
        workload=source,
        jobs=len(first.workload),
        fingerprint=fingerprint_of(first.workload),
        cluster=first.cluster.model_dump(mode="json", exclude_none=True),
        information=first.config.model_dump(mode="json"),
        part="all",
        kind="whole",
        windows=(WINDOW,),
        jobs_per_window=len(first.workload),
        block=1,
        disjoint=1.0,
        metric=METRIC,
        lower_is_better=True,
        left_out=max(len(run.result.dropped) for run in runs),
        price_per_kwh=runs[0].price_per_kwh,
        imported=None if report is None else report.model_dump(mode="json"),
        epoch_s=first.workload.metadata.epoch_s if has_dates(first.workload) else None,
        recorded_waits=None if waits is None else asdict(waits),
    )


def _entry(run: PolicyRun, is_reference: bool) -> PolicyEntry:
    entry = replace(run.entry, role="reference") if is_reference else run.entry
    return entry.noted(" ".join(run.result.notes))


def execution_table(result: SimulationResult) -> pl.DataFrame:
    """The stays of jobs on GPUs, each with the row of the trace that its job is, as in the schedule."""
    runs = result.schedule.run_frame()
    row = result.workload.frame["row"].gather(runs["job"])
    return runs.drop("job").insert_column(1, row)


class _Tables(Mapping[str, pl.DataFrame]):
    """Tables by policy that are made when they are read: all at once would fill the memory."""

    def __init__(
        self, results: Mapping[str, SimulationResult], make: Callable[[SimulationResult], pl.DataFrame]
    ) -> None:
        self._results, self._make = results, make

    def __getitem__(self, policy: str) -> pl.DataFrame:
        return self._make(self._results[policy])

    def __iter__(self) -> Iterator[str]:
        return iter(self._results)

    def __len__(self) -> int:
        return len(self._results)
