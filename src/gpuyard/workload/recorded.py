"""What a log says really happened: how much of the cluster was in use, and when."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gpuyard.units import duration
from gpuyard.workload.schema import Workload, microseconds
from gpuyard.workload.shaping.derive import date_text, has_dates

MILLI = 1000
"""GPUs are counted in thousandths, as jobs may share one."""


@dataclass(frozen=True)
class RecordedUse:
    """GPUs in use by the recorded schedule.

    Attributes:
        peak_gpus: Most GPUs in use at once.
        peak_s: When that was first so, on the workload's clock.
        over_s: How long more GPUs were in use than the cluster has.
        span_s: From the first recorded start to the last end.
    """

    peak_gpus: float
    peak_s: float
    over_s: float
    span_s: float


def recorded_jobs(workload: Workload) -> NDArray[np.int64]:
    """Positions of the jobs of which the log says when they started."""
    if not workload.has("recorded_start_s"):
        return np.zeros(0, dtype=np.int64)
    return np.flatnonzero(workload.frame["recorded_start_s"].is_not_null().to_numpy()).astype(np.int64)


def has_recorded(workload: Workload) -> bool:
    """Whether a log says when its jobs started, of at least half of them."""
    return workload.has("recorded_start_s") and 2 * len(recorded_jobs(workload)) >= len(workload)


def early_starts(workload: Workload) -> NDArray[np.int64]:
    """Positions of the jobs that started, by the log, before they were submitted."""
    jobs = recorded_jobs(workload)
    if not len(jobs):
        return jobs
    frame = workload.frame[jobs]
    is_early: NDArray[np.bool_] = (frame["recorded_start_s"] < frame["submit_s"]).to_numpy()
    return jobs[is_early]


def recorded_times_us(
    workload: Workload, jobs: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Starts and ends of these jobs, which have a recorded start, in microseconds."""
    frame = workload.frame[jobs]
    start_us = microseconds(frame["recorded_start_s"])
    return start_us, start_us + np.maximum(microseconds(frame["duration_s"]), 1)


def recorded_use(workload: Workload, jobs: NDArray[np.int64], gpus: int) -> RecordedUse:
    """How many GPUs these jobs, at least one, really used at once.

    Args:
        workload: The jobs.
        jobs: Positions of those that count, all with a recorded start.
        gpus: GPUs that the cluster has.
    """
    start_us, end_us = recorded_times_us(workload, jobs)
    frame = workload.frame[jobs]
    milli = frame["gpus"].to_numpy().astype(np.int64) * frame["gpu_milli"].to_numpy()
    times = np.concatenate((end_us, start_us))
    order = np.argsort(times, kind="stable")  # at one instant, jobs end before others start
    times = times[order]
    busy = np.cumsum(np.concatenate((-milli, milli))[order])
    peak = int(busy.argmax())
    over_us = np.diff(times)[busy[:-1] > gpus * MILLI].sum()
    return RecordedUse(
        float(busy[peak]) / MILLI, float(times[peak]) / 1e6, float(over_us) / 1e6, float(np.ptp(times)) / 1e6
    )


def moment_text(workload: Workload, moment_s: float) -> str:
    """A moment of the workload for people: a date where the clock tells dates."""
    if has_dates(workload):
        return date_text(workload, moment_s)
    return f"{duration(abs(moment_s))} {'before' if moment_s < 0 else 'after'} the first submit"
