"""Metrics: pure functions of a schedule, each with a name, a unit and a direction.

See docs/contract/metrics.md.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal, cast

import numpy as np
import polars as pl

from gpuyard.cluster.model import Cluster
from gpuyard.config import SimulationConfig
from gpuyard.metrics.classes import classify
from gpuyard.metrics.energy import Energy
from gpuyard.metrics.outcomes import Floats, JobOutcomes, System, join
from gpuyard.metrics.tariff import Tariff, parse_tariff
from gpuyard.native.schedule import Schedule
from gpuyard.registry import register, registered
from gpuyard.workload import Workload
from gpuyard.workload.schema import microseconds

Value = float | int | None
Price = float | str | Tariff
Direction = Literal["lower", "higher", "neutral"]

STARVED_AFTER_S = 24 * 3600.0
"""A job that waits longer than this is starved."""


@dataclass(frozen=True)
class Outcome:
    """What a metric is computed from: the jobs (all or one class), the whole system, energy and its price."""

    jobs: JobOutcomes
    system: System
    energy: Energy
    tariff: Tariff | None = None


@dataclass(frozen=True)
class Metric:
    """A named number about a schedule.

    Attributes:
        name: What it is called in every output.
        unit: Unit of the value; ``1`` for ratios.
        direction: Which way is better.
        description: One line for people.
        compute: The value, or None where the inputs do not tell.
        per_class: Whether it also means something for a class of jobs rather than for the whole schedule.
    """

    name: str
    unit: str
    direction: Direction
    description: str
    compute: Callable[[Outcome], Value]
    per_class: bool = True


def metric(
    name: str, unit: str, direction: Direction, description: str, *, per_class: bool = True
) -> Callable[[Callable[[Outcome], Value]], Callable[[Outcome], Value]]:
    """Decorator: register the function as a metric."""

    def enter(compute: Callable[[Outcome], Value]) -> Callable[[Outcome], Value]:
        register("metric", name)(Metric(name, unit, direction, description, compute, per_class))
        return compute

    return enter


def metrics() -> Mapping[str, Metric]:
    """All metrics by name, in the order in which they are reported."""
    return cast(Mapping[str, Metric], registered("metric"))


def compute_metrics(
    workload: Workload,
    cluster: Cluster,
    schedule: Schedule,
    *,
    price_per_kwh: Price | None = None,
    config: SimulationConfig | None = None,
    measured: range | None = None,
) -> dict[str, Value]:
    """Every metric of a schedule.

    Args:
        workload: The jobs. Those that the schedule lacks count as not completed.
        cluster: The cluster that they ran on.
        schedule: Where and when they ran.
        price_per_kwh: Price of energy, in any currency, or prices by hour of the day, as ``parse_tariff``
            takes them; without it ``energy_cost`` is None.
        config: Settings of the simulation; without them nodes do not sleep.
        measured: Rows of the workload that count; the others only keep the cluster busy. Use of the cluster
            is then that between the first and the last submit of these rows, by all jobs; makespan,
            throughput and energy, which no stretch of time has alone, are None.

    Returns:
        Values by name; None where the inputs do not tell, such as energy without watts.

    Raises:
        InputError: for a price that cannot be read.
    """
    if measured is not None and measured != range(len(workload)):
        return _measured_metrics(workload, cluster, schedule, measured)
    tariff = None if price_per_kwh is None else parse_tariff(price_per_kwh)
    jobs, system = join(workload, cluster, schedule)
    energy = Energy(system, config.sleep_after_s if config else None, workload.metadata.epoch_s)
    outcome = Outcome(jobs, system, energy, tariff)
    return {name: entry.compute(outcome) for name, entry in metrics().items()}


_OF_THE_STRETCH = (
    "gpu_utilization",
    "flops_utilization",
    "cpu_utilization",
    "memory_utilization",
    "load_imbalance",
    "fragmentation",
    "mean_queue_length",
)
"""Metrics that are of all jobs while those that count are submitted."""
_OF_WHOLE_RUNS = (
    "makespan_s",
    "throughput_jobs_per_h",
    "energy_kwh",
    "energy_cost",
    "energy_per_job_kwh",
    "asleep_node_h",
)
"""Metrics that a stretch of a run does not have."""


def _measured_metrics(
    workload: Workload, cluster: Cluster, schedule: Schedule, measured: range
) -> dict[str, Value]:
    """Metrics of some of the jobs, with the cluster as all of them use it."""
    jobs, system = join(workload, cluster, schedule)
    entries = np.flatnonzero((schedule.job >= measured.start) & (schedule.job < measured.stop))
    frame = workload.frame[measured.start : measured.stop]
    due = len(frame) - frame["deadline_s"].null_count()
    own = Outcome(jobs.subset(entries, submitted=len(frame), deadlines=due), system, Energy(system))
    submit_us = microseconds(frame["submit_s"])
    stretch = join(workload, cluster, schedule, (int(submit_us[0]), int(submit_us[-1])))
    everyone = Outcome(*stretch, Energy(stretch[1]))
    values: dict[str, Value] = {}
    for name, entry in metrics().items():
        if name in _OF_WHOLE_RUNS:
            values[name] = None
        else:
            values[name] = entry.compute(everyone if name in _OF_THE_STRETCH else own)
    return values


def compute_breakdown(workload: Workload, cluster: Cluster, schedule: Schedule, by: str) -> pl.DataFrame:
    """The metrics of each class of jobs, one row a class.

    Metrics of the whole system (``per_class`` is false) are left out. Utilisations, throughput and queue
    length refer to the whole cluster and the whole makespan, so those of the classes add up to those of the
    schedule.

    Args:
        workload: The jobs.
        cluster: The cluster that they ran on.
        schedule: Where and when they ran.
        by: ``user``, ``group``, ``partition``, ``gpus`` (classes of gang size), ``runtime`` (classes of run
            time) or ``priority``.

    Returns:
        Columns ``class`` (text), ``jobs`` (in the workload), and one for each metric that is per class.

    Raises:
        InputError: for another ``by``.
    """
    labels, code = classify(workload.frame, by)
    jobs, system = join(workload, cluster, schedule)
    energy = Energy(system)  # no class has any of its own
    submitted = np.bincount(code, minlength=len(labels))
    has_deadline = workload.frame["deadline_s"].is_not_null().to_numpy()
    deadlines = np.bincount(code[has_deadline], minlength=len(labels))
    ran = code[schedule.job]
    ends = np.cumsum(np.bincount(ran, minlength=len(labels)))
    entries = np.split(np.argsort(ran, kind="stable"), ends[:-1])
    rows: list[dict[str, str | Value]] = []
    for label, members, total, due in zip(labels, entries, submitted, deadlines, strict=True):
        outcome = Outcome(jobs.subset(members, submitted=int(total), deadlines=int(due)), system, energy)
        values = {entry.name: entry.compute(outcome) for entry in metrics().values() if entry.per_class}
        rows.append({"class": label, "jobs": int(total), **values})
    return pl.DataFrame(rows, infer_schema_length=None).with_columns(
        pl.selectors.by_dtype(pl.Null).cast(pl.Float64)
    )


_STATISTICS = {
    "mean": "mean",
    "p50": "median",
    "p95": "95th percentile",
    "p99": "99th percentile",
    "max": "largest",
}
_COLUMNS = {
    "wait_s": ("s", "time from submit to first begin"),
    "jct_s": ("s", "job completion time, from submit to finish"),
    "slowdown": ("1", "completion time / run time at speed 1"),
    "bounded_slowdown": ("1", "max(1, completion time / max(run time at speed 1, 10 s))"),
}


def _register_statistic(column: str, statistic: str) -> None:
    unit, meaning = _COLUMNS[column]

    @metric(f"{statistic}_{column}", unit, "lower", f"{_STATISTICS[statistic]} over jobs of: {meaning}")
    def compute(outcome: Outcome) -> Value:
        return outcome.jobs.summary(column).get(statistic)


for _column in _COLUMNS:
    for _statistic in _STATISTICS:
        _register_statistic(_column, _statistic)


def _ratio(part: float, whole: float) -> float | None:
    return part / whole if whole > 0 else None


def _utilization(held: Floats, capacity: float, outcome: Outcome) -> float | None:
    total = float(held.sum())
    return None if np.isnan(total) else _ratio(total, capacity * outcome.system.makespan_s)


def _tells_nodes(outcome: Outcome) -> bool:
    """Whether GPUs of nodes were in use, and it is known of which."""
    return bool(outcome.system.gpus and len(outcome.jobs) and outcome.system.nodes_known)


@metric("makespan_s", "s", "lower", "from the first submit to the last finish", per_class=False)
def _makespan(outcome: Outcome) -> Value:
    return outcome.system.makespan_s if len(outcome.jobs) else None


@metric(
    "gpu_utilization", "1", "higher", "GPU time held / GPU time there was; a shared GPU counts by fraction"
)
def _gpu_utilization(outcome: Outcome) -> Value:
    return _utilization(outcome.jobs.gpu_s, outcome.system.gpus, outcome)


@metric("flops_utilization", "1", "higher", "the same, each GPU weighted by the speed of its type")
def _flops_utilization(outcome: Outcome) -> Value:
    return _utilization(outcome.jobs.flops_s, outcome.system.flops, outcome)


@metric("cpu_utilization", "1", "higher", "CPU time held / CPU time there was, on nodes whose CPUs are given")
def _cpu_utilization(outcome: Outcome) -> Value:
    return _utilization(outcome.jobs.cpu_s, outcome.system.cpus, outcome)


@metric("memory_utilization", "1", "higher", "the same of memory, on nodes whose memory is given")
def _memory_utilization(outcome: Outcome) -> Value:
    return _utilization(outcome.jobs.memory_mib_s, outcome.system.memory_mib, outcome)


@metric(
    "load_imbalance",
    "1",
    "lower",
    "time mean of the variance over GPU nodes of busy GPUs / size",
    per_class=False,
)
def _load_imbalance(outcome: Outcome) -> Value:
    return outcome.system.time_means[0] if _tells_nodes(outcome) else None


@metric(
    "fragmentation", "1", "lower", "time mean of free GPUs on partly used nodes / free GPUs", per_class=False
)
def _fragmentation(outcome: Outcome) -> Value:
    return outcome.system.time_means[1] if _tells_nodes(outcome) else None


@metric("throughput_jobs_per_h", "jobs/h", "higher", "completed jobs / makespan")
def _throughput(outcome: Outcome) -> Value:
    return _ratio(int(outcome.jobs.completed.sum()), outcome.system.makespan_s / 3600)


@metric("completed_jobs", "jobs", "higher", "jobs that ran to their end, not cut off at their estimate")
def _completed(outcome: Outcome) -> Value:
    return int(outcome.jobs.completed.sum())


@metric(
    "completion_rate", "1", "higher", "completed jobs / jobs of the workload, those that never ran included"
)
def _completion_rate(outcome: Outcome) -> Value:
    return _ratio(int(outcome.jobs.completed.sum()), outcome.jobs.submitted)


@metric("mean_queue_length", "jobs", "lower", "time mean of the number of waiting jobs")
def _mean_queue_length(outcome: Outcome) -> Value:
    return _ratio(float(outcome.jobs.queued_s.sum()), outcome.system.makespan_s)


@metric(
    "energy_kwh",
    "kWh",
    "lower",
    "nodes' idle draw and each GPU's peak draw in use, else idle; less asleep, none when down",
    per_class=False,
)
def _energy(outcome: Outcome) -> Value:
    return outcome.energy.kwh


@metric("energy_cost", "currency", "lower", "energy x price per kWh, by time of day", per_class=False)
def _energy_cost(outcome: Outcome) -> Value:
    return None if outcome.tariff is None else outcome.energy.cost(outcome.tariff)


@metric("energy_per_job_kwh", "kWh", "lower", "energy / completed jobs", per_class=False)
def _energy_per_job(outcome: Outcome) -> Value:
    energy_kwh = outcome.energy.kwh
    return None if energy_kwh is None else _ratio(energy_kwh, int(outcome.jobs.completed.sum()))


@metric("asleep_node_h", "node-h", "neutral", "time that nodes were asleep", per_class=False)
def _asleep(outcome: Outcome) -> Value:
    known = len(outcome.jobs) and outcome.system.nodes_known
    return outcome.energy.asleep_s / 3600 if known else None


@metric("jain_fairness", "1", "higher", "Jain's index of users' mean bounded slowdowns; 1 if all are equal")
def _jain_fairness(outcome: Outcome) -> Value:
    jobs = np.bincount(outcome.jobs.user)
    total = np.bincount(outcome.jobs.user, outcome.jobs.bounded_slowdown)
    means = total[jobs > 0] / jobs[jobs > 0]
    return _ratio(float(means.sum()) ** 2, len(means) * float((means * means).sum()))


@metric(
    "finish_time_fairness_p95",
    "1",
    "lower",
    "95th percentile of completion time / (run time at speed 1 x users active during the stay)",
)
def _finish_time_fairness(outcome: Outcome) -> Value:
    return outcome.jobs.summary("finish_time_fairness").get("p95")


@metric("deadline_miss_rate", "1", "lower", "jobs not completed by their deadline / jobs with one")
def _deadline_miss_rate(outcome: Outcome) -> Value:
    missed = outcome.jobs.deadlines - int(outcome.jobs.met_deadline.sum())
    return _ratio(missed, outcome.jobs.deadlines)


@metric("preemptions", "stops", "lower", "times that a running job was stopped to run on later")
def _preemptions(outcome: Outcome) -> Value:
    return int(outcome.jobs.preemptions.sum())


@metric("failed_runs", "runs", "lower", "times that a node failed under a running job")
def _failed_runs(outcome: Outcome) -> Value:
    return int(outcome.jobs.failed_runs.sum())


@metric("lost_gpu_h", "GPU-h", "lower", "GPU time, at speed 1, of work that had to be done again")
def _lost_gpu_h(outcome: Outcome) -> Value:
    return float(outcome.jobs.lost_gpu_s.sum()) / 3600


@metric("overhead_gpu_h", "GPU-h", "lower", "GPU time held without progress: waking, restore, checkpoint")
def _overhead_gpu_h(outcome: Outcome) -> Value:
    return float(outcome.jobs.overhead_gpu_s.sum()) / 3600


@metric("starved_jobs", "jobs", "lower", "jobs that waited more than 24 h")
def _starved(outcome: Outcome) -> Value:
    return int((outcome.jobs.wait_s > STARVED_AFTER_S).sum())


@metric("backfilled_jobs", "jobs", "neutral", "jobs started past one that ranked before them and did not fit")
def _backfilled(outcome: Outcome) -> Value:
    return int(outcome.jobs.backfilled.sum())
