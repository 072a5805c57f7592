"""The two halves of a log: what is searched on, what is reported on, and the waits that policies give it."""

import time
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from gpuyard.calibrate.closeness import Floats
from gpuyard.cluster.model import Cluster
from gpuyard.config import SimulationConfig
from gpuyard.errors import InputError
from gpuyard.native.inputs import prepare
from gpuyard.policies.grammar import DEFAULT_PLACEMENT, PolicySpec, parse_policy
from gpuyard.simulation.recorded_nodes import named_places
from gpuyard.simulation.recorded_start import RecordedCutter
from gpuyard.simulation.run import SimulationResult, simulate
from gpuyard.units import plural
from gpuyard.workload import Workload
from gpuyard.workload.recorded import moment_text, recorded_jobs, recorded_times_us, recorded_use
from gpuyard.workload.schema import microseconds
from gpuyard.workload.shaping.derive import derived

FEWEST_JOBS = 100
"""Of a log that can be calibrated."""
UNSETTLED = 0.1
"""Share of the first half that is not compared: the simulated cluster begins empty, the real one did not."""
AFTER = 0.25
"""Jobs that come after the first half and do not count, as a share of it."""
MOST_OVER = 0.1
"""Share of the time in which a log may use more GPUs than the cluster has; such seconds are rounding."""


class OutOfTimeError(Exception):
    """A replay was given up because it took too long."""


@dataclass(frozen=True)
class Halves:
    """A log whose jobs all have a recorded start.

    Attributes:
        jobs: All of them.
        first: The jobs of the first half, and some that came next: jobs that still waited wait for them too.
        split: The row of the first job of the second half.
        searched: Rows of the first half that a search goes by: from where on the simulated cluster is busy,
            and only jobs that had started when the last of ``first`` came.
        recorded_s: How long each really waited.
        left_out: Jobs of the log that are not among them, as it does not say when they started, or they can
            never run on the cluster.
        notes: What to know about the record, in whole sentences.
    """

    jobs: Workload
    first: Workload
    split: int
    searched: NDArray[np.int64]
    recorded_s: Floats
    left_out: int
    notes: tuple[str, ...] = ()


def halved(workload: Workload, cluster: Cluster, config: SimulationConfig, most_gpus: float) -> Halves:
    """The halves of a log: its jobs up to the middle one by submit, and those from there on.

    Args:
        workload: The log.
        cluster: What it ran on.
        most_gpus: Of the largest cluster that is tried.
        config: Says whether jobs that can never run are left out or refused.

    Raises:
        InputError: if the log does not say when jobs started, has too few, or cannot have happened on the
            cluster.
    """
    known = recorded_jobs(workload)
    name = workload.metadata.name
    if not len(known):
        raise InputError(
            f"workload {name} does not say when its jobs really started (column recorded_start_s), so there "
            "is nothing to reproduce; import a log that has starts, before its arrivals, durations or gangs "
            "are changed"
        )
    if len(known) < FEWEST_JOBS:
        raise InputError(
            f"workload {name} has recorded starts of {plural(len(known), 'job')}; a calibration needs "
            f"{FEWEST_JOBS}: give a longer log"
        )
    jobs = Workload(workload.frame[known], workload.metadata)
    kept = prepare(jobs, cluster, parse_policy(f"fifo/{DEFAULT_PLACEMENT}"), config, for_learning=True).kept
    jobs = Workload(jobs.frame[kept], workload.metadata)
    notes = _impossible(jobs, cluster, most_gpus)
    split = len(jobs) // 2
    end = split + round(AFTER * split)
    first = derived(jobs, jobs.frame[:end], "first-half", {"jobs": end})
    start_us, _ = recorded_times_us(jobs, np.arange(len(jobs)))
    submit_us = microseconds(jobs.frame["submit_s"])
    rows = np.arange(round(UNSETTLED * split), split)
    started = rows[start_us[rows] <= submit_us[end - 1]]
    searched = started if len(started) >= FEWEST_JOBS // 4 else rows
    wait_s = np.maximum(start_us - submit_us, 0) / 1e6
    return Halves(jobs, first, split, searched, wait_s, len(workload) - len(jobs), notes)


def _impossible(jobs: Workload, cluster: Cluster, most_gpus: float) -> tuple[str, ...]:
    """That the log used more GPUs than there are, if so for a short time.

    Raises:
        InputError: if it used more for long than even the largest cluster that is tried has.
    """
    use = recorded_use(jobs, np.arange(len(jobs)), cluster.total_gpus)
    if use.peak_gpus <= cluster.total_gpus:
        return ()
    share = use.over_s / max(use.span_s, 1e-6)
    told = (
        f"the log used more GPUs than {cluster.name} has in {100 * share:.2g} % of the time, most at "
        f"{moment_text(jobs, use.peak_s)}: {use.peak_gpus:,.10g} of {cluster.total_gpus:,}"
    )
    largest = recorded_use(jobs, np.arange(len(jobs)), int(most_gpus))
    if largest.over_s > MOST_OVER * use.span_s:
        raise InputError(
            f"impossible record: {told}; give the cluster that the log is of, with all of its nodes"
        )
    return (f"{told[0].upper()}{told[1:]}.",)


@dataclass(frozen=True)
class Replayed:
    """Waits that a policy gives jobs.

    Attributes:
        rows: Which jobs of the log, ascending, without gaps.
        wait_s: How long each waits.
    """

    rows: NDArray[np.int64]
    wait_s: Floats

    def between(self, begin: int, end: int) -> "Replayed":
        """Those of jobs from one row on, up to another."""
        kept = (self.rows >= begin) & (self.rows < end)
        return Replayed(self.rows[kept], self.wait_s[kept])

    def of(self, rows: NDArray[np.int64]) -> Floats:
        """Waits of some of the jobs."""
        waits: Floats = self.wait_s[np.searchsorted(self.rows, rows)]
        return waits


def replay(
    jobs: Workload,
    cluster: Cluster,
    policy: PolicySpec,
    config: SimulationConfig,
    limit_s: float | None = None,
) -> Replayed:
    """Run jobs from an empty cluster on.

    Args:
        jobs: All of them.
        cluster: What they run on.
        policy: Who decides.
        config: Settings that all policies share.
        limit_s: Give up after so many seconds; None: never.

    Raises:
        OutOfTimeError: if it takes longer.
        InputError: if the policy or the jobs cannot run on the cluster.
    """
    policy.check_supported(jobs, cluster, config)
    end_s = None if limit_s is None else time.monotonic() + limit_s

    def watch(_: int) -> None:
        if end_s is not None and time.monotonic() > end_s:
            raise OutOfTimeError

    result = simulate(jobs, cluster, policy, config, progress=watch)
    return _waits(result, jobs)


def _waits(result: SimulationResult, jobs: Workload) -> Replayed:
    rows = np.asarray(result.schedule.job, dtype=np.int64)
    submit_us = microseconds(jobs.frame["submit_s"])[rows]
    return Replayed(rows, (result.schedule.start_us - submit_us) / 1e6)


def replay_from_record(
    halves: Halves, cluster: Cluster, policy: PolicySpec, config: SimulationConfig
) -> Replayed:
    """Run the second half, begun with what really ran and waited then.

    Raises:
        InputError: if the policy does not go with that, the log does not name nodes of the cluster, or what
            ran does not fit on them.
    """
    if policy.backfill == "slurm" or getattr(policy.order_rule, "sees_names", False):
        raise InputError(f"{policy.name} goes by more than what runs and waits")
    if named_places(halves.jobs, np.arange(len(halves.jobs)), cluster) is None:
        raise InputError("the log does not name the nodes of its jobs")
    cutter = RecordedCutter(halves.jobs, cluster, config, policy.placement)
    window = cutter.cut("all", count=2, jobs=len(halves.jobs) - halves.split)[-1]
    policy.check_supported(window.jobs, cluster, config)
    result = simulate(
        window.jobs, cluster, policy, config, history=window.history(), beginning=window.beginning
    )
    found = _waits(result, window.jobs).between(window.own.start, window.own.stop)
    return replace(found, rows=found.rows - window.own.start + halves.split)
