"""A schedule joined with its workload and cluster: the columns and totals that metrics are computed from."""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from functools import cached_property

import numpy as np
import polars as pl
from numpy.typing import NDArray

from gpuyard import _core
from gpuyard.cluster import UNLIMITED, Cluster
from gpuyard.schedule import STATUS_NAMES, Schedule
from gpuyard.workload import Workload

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Flags = NDArray[np.bool_]

BOUND_US = 10_000_000
"""Run times below 10 s count as 10 s in the bounded slowdown, so that tiny jobs do not rule its mean."""
QUANTILES = {"p50": 0.50, "p95": 0.95, "p99": 0.99}


@dataclass(frozen=True)
class JobOutcomes:
    """One entry a job that ran, in schedule order; the first two fields also count jobs that never ran.

    Attributes:
        submitted: Jobs in the workload (or in a class of it).
        deadlines: How many of them have a deadline.
        wait_s: First start minus submit.
        jct_s: Finish minus submit.
        slowdown: jct / run time at speed 1.
        bounded_slowdown: max(1, jct / max(run time at speed 1, 10 s)).
        finish_time_fairness: jct / (run time at speed 1 x users active during the stay).
        gpu_s: GPU-seconds held, by fraction for a shared GPU.
        flops_s: The same, weighted by the speed of the GPUs' types.
        cpu_s: CPU-seconds held on nodes whose CPUs are given.
        memory_mib_s: MiB-seconds held on nodes whose memory is given.
        user: Number of the job's user.
        completed: Whether it ended as completed.
        met_deadline: Whether it has a deadline and completed by it.
        backfilled: Whether it started past a job that ranked before it.
    """

    submitted: int
    deadlines: int
    wait_s: Floats
    jct_s: Floats
    slowdown: Floats
    bounded_slowdown: Floats
    finish_time_fairness: Floats
    gpu_s: Floats
    flops_s: Floats
    cpu_s: Floats
    memory_mib_s: Floats
    user: NDArray[np.int32]
    completed: Flags
    met_deadline: Flags
    backfilled: Flags
    _summaries: dict[str, dict[str, float]] = field(default_factory=dict, init=False, repr=False)

    def __len__(self) -> int:
        return len(self.wait_s)

    def subset(self, entries: Ints, *, submitted: int, deadlines: int) -> "JobOutcomes":
        """The outcomes of some of the jobs; the two counts are those of their class in the workload."""
        columns = {f.name: getattr(self, f.name) for f in fields(self)}
        taken = {name: value[entries] for name, value in columns.items() if isinstance(value, np.ndarray)}
        return JobOutcomes(submitted=submitted, deadlines=deadlines, **taken)

    def summary(self, column: str) -> Mapping[str, float]:
        """Mean, p50, p95, p99 (linear interpolation) and max of a column; empty if no job ran."""
        if column not in self._summaries:
            self._summaries[column] = _summarise(getattr(self, column))
        return self._summaries[column]


def _summarise(column: Floats) -> dict[str, float]:
    if not len(column):
        return {}
    quantiles = np.quantile(column, list(QUANTILES.values()))
    named = {name: float(value) for name, value in zip(QUANTILES, quantiles, strict=True)}
    return {"mean": float(column.mean()), **named, "max": float(column.max())}


@dataclass(frozen=True)
class Nodes:
    """Columns over the cluster's nodes. Watts are NaN where they are not given."""

    gpus: NDArray[np.int32]
    speed: Floats
    cpus: Ints
    memory_mib: Ints
    gpu_idle_w: Floats
    gpu_peak_w: Floats
    idle_w: Floats


@dataclass(frozen=True)
class System:
    """The cluster from the first submit to the last finish of the jobs that ran."""

    nodes: Nodes
    schedule: Schedule
    gpu_milli: NDArray[np.int32]
    from_us: int
    to_us: int

    @property
    def makespan_s(self) -> float:
        """Length of that time; 0 if no job ran."""
        return (self.to_us - self.from_us) / 1e6

    @property
    def gpus(self) -> int:
        """GPUs of the cluster."""
        return int(self.nodes.gpus.sum())

    @property
    def flops(self) -> float:
        """GPUs of the cluster, each counted as the speed of its type."""
        return float((self.nodes.gpus * self.nodes.speed).sum())

    @property
    def cpus(self) -> int:
        """CPUs of the nodes whose CPUs are given."""
        return int(self.nodes.cpus[self.nodes.cpus < UNLIMITED].sum())

    @property
    def memory_mib(self) -> int:
        """Memory of the nodes whose memory is given, MiB."""
        return int(self.nodes.memory_mib[self.nodes.memory_mib < UNLIMITED].sum())

    @cached_property
    def time_means(self) -> tuple[float, float, Floats]:
        """Load imbalance, fragmentation, and of each node the µs in which its shared GPUs were in use."""
        plan = self.schedule
        return _core.time_means(
            plan.start_us,
            plan.end_us,
            plan.node_offset,
            plan.node,
            plan.node_gpus,
            plan.gpu_index,
            self.gpu_milli,
            self.nodes.gpus,
            self.from_us,
            self.to_us,
        )

    @cached_property
    def energy_kwh(self) -> float | None:
        """Nodes' idle draw and GPUs' peak or idle draw; None if a GPU's watts, or all watts, are unknown."""
        nodes, plan = self.nodes, self.schedule
        has_gpus = nodes.gpus > 0
        gpu_idle_w = np.where(has_gpus, nodes.gpu_idle_w, 0.0)
        gpu_extra_w = np.where(has_gpus, nodes.gpu_peak_w - nodes.gpu_idle_w, 0.0)
        whole = np.where(plan.gpu_index < 0, plan.end_us - plan.start_us, 0)
        held_us = plan.node_gpus * np.repeat(whole, np.diff(plan.node_offset))
        busy_s = (np.bincount(plan.node, held_us, len(nodes.gpus)) + self.time_means[2]) / 1e6
        idle_j = (nodes.idle_w + nodes.gpus * gpu_idle_w).sum() * self.makespan_s
        joules = float(idle_j + (gpu_extra_w * busy_s).sum())
        watts_given = gpu_idle_w.any() or gpu_extra_w.any() or nodes.idle_w.any()
        return joules / 3.6e6 if watts_given and not np.isnan(joules) else None


def join(workload: Workload, cluster: Cluster, schedule: Schedule) -> tuple[JobOutcomes, System]:
    """Join a schedule with the jobs and the cluster that it is a schedule of."""
    frame = workload.frame
    ran = frame if np.array_equal(schedule.job, np.arange(len(frame))) else frame[schedule.job]
    nodes = _nodes(cluster)
    submit_us = _microseconds(ran["submit_s"])
    duration_us = np.maximum(_microseconds(ran["duration_s"]), 1)
    gpu_milli = ran["gpu_milli"].to_numpy().astype(np.int32, copy=False)
    user = _codes(ran["user"])
    jct_us = schedule.end_us - submit_us
    active = _core.users_active(user, submit_us, schedule.end_us)
    deadline_us = np.rint(ran["deadline_s"].fill_null(-np.inf).to_numpy() * 1e6)
    completed = schedule.status == STATUS_NAMES.index("completed")
    jobs = JobOutcomes(
        submitted=len(frame),
        deadlines=len(frame) - frame["deadline_s"].null_count(),
        wait_s=(schedule.start_us - submit_us) / 1e6,
        jct_s=jct_us / 1e6,
        slowdown=jct_us / duration_us,
        bounded_slowdown=np.maximum(jct_us / np.maximum(duration_us, BOUND_US), 1.0),
        finish_time_fairness=jct_us / (duration_us * np.maximum(active, 1)),
        **_use(ran, nodes, schedule, gpu_milli),
        user=user,
        completed=completed,
        met_deadline=completed & (schedule.end_us <= deadline_us),
        backfilled=schedule.backfilled,
    )
    from_us, to_us = (int(submit_us.min()), int(schedule.end_us.max())) if len(schedule) else (0, 0)
    return jobs, System(nodes, schedule, gpu_milli, from_us, to_us)


def _codes(names: pl.Series) -> NDArray[np.int32]:
    """A number for each name, counted from 0 in order of first appearance."""
    kinds = pl.Enum(names.unique(maintain_order=True))
    return names.cast(kinds).to_physical().to_numpy().astype(np.int32)


def _microseconds(seconds: pl.Series) -> Ints:
    return np.rint(seconds.to_numpy() * 1e6).astype(np.int64)


def _use(
    ran: pl.DataFrame, nodes: Nodes, schedule: Schedule, gpu_milli: NDArray[np.int32]
) -> dict[str, Floats]:
    """What each job held of GPUs, GPU speed, CPUs and memory, times how long."""
    entry = np.repeat(np.arange(len(schedule)), np.diff(schedule.node_offset))
    run_s = (schedule.end_us - schedule.start_us) / 1e6
    gpus = schedule.node_gpus * (gpu_milli / 1000)[entry]

    def held(amount: Floats) -> Floats:
        return np.bincount(entry, amount, len(schedule)) * run_s

    def share(column: str, capacity: Ints) -> Floats:
        """With k of its G GPUs on a node a gang takes ceil(total * k / G) there; other jobs have one node."""
        total = ran[column].to_numpy().astype(np.int64)[entry]
        gang = np.maximum(ran["gpus"].to_numpy()[entry], 1)
        taken = -(-total * np.maximum(schedule.node_gpus, 1) // gang)
        return np.where(capacity[schedule.node] < UNLIMITED, taken, 0).astype(np.float64)

    return {
        "gpu_s": held(gpus),
        "flops_s": held(gpus * nodes.speed[schedule.node]),
        "cpu_s": held(share("cpus", nodes.cpus)),
        "memory_mib_s": held(share("memory_mib", nodes.memory_mib)),
    }


def _nodes(cluster: Cluster) -> Nodes:
    columns = cluster.node_columns()
    types = cluster.gpu_types

    def by_type(values: list[float | None]) -> Floats:
        by_number: Floats = np.array(values, np.float64)
        return np.take(by_number, columns["type"])

    return Nodes(
        gpus=columns["gpus"],
        speed=by_type([gpu_type.speed for gpu_type in types]),
        cpus=columns["cpus"],
        memory_mib=columns["memory_mib"],
        gpu_idle_w=by_type([gpu_type.idle_w for gpu_type in types]),
        gpu_peak_w=by_type([gpu_type.peak_w for gpu_type in types]),
        idle_w=np.repeat([group.idle_w for group in cluster.nodes], [group.count for group in cluster.nodes]),
    )
