"""A schedule joined with its workload and cluster: the columns and totals that metrics are computed from."""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from functools import cached_property

import numpy as np
import polars as pl
from numpy.typing import NDArray

from gpuyard import _core
from gpuyard.cluster.model import UNLIMITED, Cluster
from gpuyard.native.schedule import RUN_ENDINGS, STATUS_NAMES, Runs, Schedule
from gpuyard.workload import Workload
from gpuyard.workload.schema import microseconds

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Flags = NDArray[np.bool_]

BOUND_S = 10.0
"""Run times below 10 s count as 10 s in the bounded slowdown, so that tiny jobs do not rule its mean."""
_TIMES = ("taken_us", "begin_us", "stop_us", "released_us")
QUANTILES = {"p50": 0.50, "p95": 0.95, "p99": 0.99}


def bounded_slowdown(jct: Floats | Ints, duration: Floats | Ints, bound: float = BOUND_S) -> Floats:
    """max(1, completion time / max(run time at speed 1, bound)), all in the same unit, seconds by default."""
    slowdown: Floats = np.maximum(jct / np.maximum(duration, bound), 1.0)
    return slowdown


def outcome_columns() -> list[pl.Expr]:
    """The same of tables: ``wait_s``, ``jct_s`` and ``bounded_slowdown``.

    They are made from the columns ``submit_s``, ``duration_s``, ``start_s`` and ``end_s``.
    """
    jct = pl.col("end_s") - pl.col("submit_s")
    bounded = (jct / pl.max_horizontal(pl.col("duration_s"), pl.lit(BOUND_S))).clip(1.0)
    wait = pl.col("start_s") - pl.col("submit_s")
    return [wait.alias("wait_s"), jct.alias("jct_s"), bounded.alias("bounded_slowdown")]


@dataclass(frozen=True)
class JobOutcomes:
    """One entry a job that ran, in schedule order; the first two fields also count jobs that never ran.

    Attributes:
        submitted: Jobs in the workload (or in a class of it).
        deadlines: How many of them have a deadline.
        wait_s: First begin minus submit.
        queued_s: Time in the system while none of its runs held anything.
        jct_s: Finish minus submit.
        slowdown: jct / run time at speed 1.
        bounded_slowdown: max(1, jct / max(run time at speed 1, 10 s)).
        finish_time_fairness: jct / (run time at speed 1 x users active during the stay).
        gpu_s: GPU-seconds held, by fraction for a shared GPU; this and the next three NaN if not known.
        flops_s: The same, weighted by the speed of the GPUs' types.
        cpu_s: CPU-seconds held on nodes whose CPUs are given.
        memory_mib_s: MiB-seconds held on nodes whose memory is given.
        overhead_gpu_s: GPU-seconds held without progress, by fraction for a shared GPU.
        lost_gpu_s: GPU-seconds at speed 1 of work that was lost.
        preemptions: Runs that were stopped.
        failed_runs: Runs that a failing node ended.
        user: Number of the job's user.
        completed: Whether it ended as completed.
        met_deadline: Whether it has a deadline and completed by it.
        backfilled: Whether it started past a job that ranked before it.
    """

    submitted: int
    deadlines: int
    wait_s: Floats
    queued_s: Floats
    jct_s: Floats
    slowdown: Floats
    bounded_slowdown: Floats
    finish_time_fairness: Floats
    gpu_s: Floats
    flops_s: Floats
    cpu_s: Floats
    memory_mib_s: Floats
    overhead_gpu_s: Floats
    lost_gpu_s: Floats
    preemptions: Ints
    failed_runs: Ints
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
    sleep_w: Floats


@dataclass(frozen=True)
class System:
    """The cluster from the first submit to the last finish of the jobs that ran.

    Attributes:
        nodes: The cluster's nodes.
        schedule: When and where jobs ran.
        pieces: The schedule's runs.
        gpu_milli: Of each run, thousandths of a GPU.
        from_us: First submit.
        to_us: Last finish.
    """

    nodes: Nodes
    schedule: Schedule
    pieces: Runs
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

    @property
    def nodes_known(self) -> bool:
        """Whether it is known on which nodes jobs ran."""
        return self.schedule.nodes_known

    @cached_property
    def time_means(self) -> tuple[float, float, Floats]:
        """Load imbalance, fragmentation, and of each node the µs in which its shared GPUs were in use."""
        runs = self.pieces
        return _core.time_means(
            runs.taken_us,
            runs.released_us,
            runs.node_offset,
            runs.node,
            runs.node_gpus,
            runs.gpu_index,
            self.gpu_milli,
            self.nodes.gpus,
            self.from_us,
            self.to_us,
        )


def join(
    workload: Workload, cluster: Cluster, schedule: Schedule, within: tuple[int, int] | None = None
) -> tuple[JobOutcomes, System]:
    """Join a schedule with the jobs and the cluster that it is a schedule of.

    Args:
        workload: The jobs.
        cluster: What they ran on.
        schedule: When and where.
        within: Only what happened between these times counts, in microseconds, as far as it is held or
            waited for: ``queued_s``, GPUs, CPUs and memory held, and the system. Waits and completion times
            are whole.
    """
    frame = workload.frame
    ran = frame if np.array_equal(schedule.job, np.arange(len(frame))) else frame[schedule.job]
    nodes = _nodes(cluster)
    submit_us = microseconds(ran["submit_s"])
    duration_us = np.maximum(microseconds(ran["duration_s"]), 1)
    gpu_milli = ran["gpu_milli"].to_numpy().astype(np.int32, copy=False)
    pieces = schedule.pieces()
    user = _codes(ran["user"])
    jct_us = stay_us = schedule.end_us - submit_us
    if within is not None:
        pieces = clipped(pieces, *within)
        stay_us = np.clip(schedule.end_us, *within) - np.clip(submit_us, *within)
    # By an error of the log a job may have ended before it was submitted: it was there for an instant.
    active = _core.users_active(user, submit_us, np.maximum(schedule.end_us, submit_us + 1))
    deadline_us = np.rint(ran["deadline_s"].fill_null(-np.inf).to_numpy() * 1e6)
    completed = schedule.status == STATUS_NAMES.index("completed")
    jobs = JobOutcomes(
        submitted=len(frame),
        deadlines=len(frame) - frame["deadline_s"].null_count(),
        wait_s=(schedule.start_us - submit_us) / 1e6,
        queued_s=(stay_us - _per_job(pieces, pieces.released_us - pieces.taken_us, len(ran))) / 1e6,
        jct_s=jct_us / 1e6,
        slowdown=jct_us / duration_us,
        bounded_slowdown=bounded_slowdown(jct_us, duration_us, BOUND_S * 1e6),
        finish_time_fairness=jct_us / (duration_us * np.maximum(active, 1)),
        **(_use if schedule.nodes_known else _use_anywhere)(ran, nodes, pieces, gpu_milli),
        **_waste(ran, pieces, gpu_milli),
        preemptions=_count(pieces, "stopped", len(ran)),
        failed_runs=_count(pieces, "failed", len(ran)),
        user=user,
        completed=completed,
        met_deadline=completed & (schedule.end_us <= deadline_us),
        backfilled=schedule.backfilled,
    )
    from_us, to_us = (0, 0)
    if len(schedule):  # only a log with errors has starts before the first submit
        from_us, to_us = int(min(submit_us.min(), schedule.start_us.min())), int(schedule.end_us.max())
    from_us, to_us = within or (from_us, to_us)
    return jobs, System(nodes, schedule, pieces, gpu_milli[pieces.entry], from_us, to_us)


def clipped(runs: Runs, from_us: int, to_us: int) -> Runs:
    """Runs as far as they lie between two times, without those that lie outside."""
    times = {name: np.clip(getattr(runs, name), from_us, to_us) for name in _TIMES}
    inside = times["released_us"] > times["taken_us"]
    counts = np.diff(runs.node_offset)
    held = np.repeat(inside, counts)
    of_runs = ("entry", "ending", "restore_us", "lost_us", "gpu_index")
    return Runs(
        **{name: values[inside] for name, values in times.items()},
        **{name: getattr(runs, name)[inside] for name in of_runs},
        node_offset=np.concatenate([[0], np.cumsum(counts[inside])]).astype(np.int64),
        node=runs.node[held],
        node_gpus=runs.node_gpus[held],
    )


def _codes(names: pl.Series) -> NDArray[np.int32]:
    """A number for each name, counted from 0 in order of first appearance."""
    kinds = pl.Enum(names.unique(maintain_order=True))
    return names.cast(kinds).to_physical().to_numpy().astype(np.int32)


def _per_job(runs: Runs, amount: Floats | Ints, jobs: int) -> Floats:
    """The sum over the runs of each job."""
    return np.bincount(runs.entry, amount, jobs).astype(np.float64, copy=False)


def _count(runs: Runs, ending: str, jobs: int) -> Ints:
    """How many runs of each job ended so."""
    return np.bincount(runs.entry[runs.ending == RUN_ENDINGS.index(ending)], minlength=jobs)


def _use(ran: pl.DataFrame, nodes: Nodes, runs: Runs, gpu_milli: NDArray[np.int32]) -> dict[str, Floats]:
    """What each job held of GPUs, GPU speed, CPUs and memory, times how long."""
    run = np.repeat(np.arange(len(runs)), np.diff(runs.node_offset))
    job = runs.entry[run]
    held_s = (runs.released_us - runs.taken_us) / 1e6
    gpus = runs.node_gpus * (gpu_milli / 1000)[job]

    def held(amount: Floats) -> Floats:
        return _per_job(runs, np.bincount(run, amount, len(runs)) * held_s, len(ran))

    def share(column: str, capacity: Ints) -> Floats:
        """With k of its G GPUs on a node a gang takes ceil(total * k / G) there; others split evenly."""
        total = ran[column].to_numpy().astype(np.int64)[job]
        gang = ran["gpus"].to_numpy()[job]
        gang = np.where(gang > 0, gang, np.diff(runs.node_offset)[run])
        taken = -(-total * np.maximum(runs.node_gpus, 1) // gang)
        return np.where(capacity[runs.node] < UNLIMITED, taken, 0).astype(np.float64)

    return {
        "gpu_s": held(gpus),
        "flops_s": held(gpus * nodes.speed[runs.node]),
        "cpu_s": held(share("cpus", nodes.cpus)),
        "memory_mib_s": held(share("memory_mib", nodes.memory_mib)),
    }


def _use_anywhere(
    ran: pl.DataFrame, nodes: Nodes, runs: Runs, gpu_milli: NDArray[np.int32]
) -> dict[str, Floats]:
    """The same of jobs of which it is not known where they ran; NaN for what depends on that."""
    held_s = _per_job(runs, runs.released_us - runs.taken_us, len(ran)) / 1e6
    gpu_s: Floats = ran["gpus"].to_numpy() * (gpu_milli / 1000) * held_s
    alike = len(nodes.speed) > 0 and bool((nodes.speed == nodes.speed[0]).all())
    unknown = np.full(len(ran), np.nan)
    flops_s = gpu_s * nodes.speed[0] if alike else unknown
    return {"gpu_s": gpu_s, "flops_s": flops_s, "cpu_s": unknown, "memory_mib_s": unknown}


def _waste(ran: pl.DataFrame, runs: Runs, gpu_milli: NDArray[np.int32]) -> dict[str, Floats]:
    """GPU time of each job that it held without progress, and that of lost work."""
    size = ran["gpus"].to_numpy() * (gpu_milli / 1000)
    restore_us = np.minimum(runs.restore_us, runs.stop_us - runs.begin_us)  # a stop may cut it short
    idle_us = (runs.begin_us - runs.taken_us) + restore_us + (runs.released_us - runs.stop_us)
    return {
        "overhead_gpu_s": _per_job(runs, idle_us, len(ran)) * size / 1e6,
        "lost_gpu_s": _per_job(runs, runs.lost_us, len(ran)) * size / 1e6,
    }


def _nodes(cluster: Cluster) -> Nodes:
    columns = cluster.node_columns()
    types = cluster.gpu_types
    counts = [group.count for group in cluster.nodes]

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
        idle_w=np.repeat([group.idle_w for group in cluster.nodes], counts),
        sleep_w=np.repeat([group.sleep_w for group in cluster.nodes], counts),
    )
