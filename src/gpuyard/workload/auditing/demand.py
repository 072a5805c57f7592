"""How much work a workload asks of a cluster over time, before any policy has a say."""

import math

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict

from gpuyard.workload.schema import Workload
from gpuyard.workload.shaping.derive import gpu_seconds_of, has_dates, sizes_of, span_of

STEPS_S = (60.0, 600.0, 3600.0, 6 * 3600.0, 86400.0, 7 * 86400.0, 28 * 86400.0)
MOST_STEPS = 200
"""More points than this a chart does not show."""

Floats = NDArray[np.float64]


class DemandSeries(BaseModel):
    """Demand in equal steps of time, as a share of the cluster's GPUs (or in GPUs, without a cluster)."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    step_s: float
    gpus: int | None
    """GPUs that the shares refer to; None if there is no cluster and values are GPUs."""
    jobs: tuple[int, ...]
    """Jobs submitted in each step."""
    submitted: tuple[float, ...]
    """GPU time of the jobs submitted in a step, over the step's length."""
    in_system: tuple[float, ...]
    """Mean GPUs busy in a step if every job started at its submit."""
    epoch_s: float | None = None
    """What the log's clock (UTC, since 1970) showed at the first submit; None without dates."""


class Oversubscription(BaseModel):
    """What happens if every job starts at its submit, over the time from first to last submit."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    peak: float
    """Most GPUs busy at once, as a share of the cluster's."""
    time_share: float
    """Share of the time in which more GPUs are asked for than there are."""


def demand_series(workload: Workload, gpus: int | None = None) -> DemandSeries:
    """Demand over the span in at most about ``MOST_STEPS`` steps; the last one may be partly empty."""
    span_s = span_of(workload)
    step_s = next((step for step in STEPS_S if span_s / step <= MOST_STEPS), STEPS_S[-1])
    count = max(math.ceil(span_s / step_s + 1e-9), 1)
    submit_s = workload.frame["submit_s"].to_numpy()
    index = np.minimum((submit_s / step_s).astype(np.int64), count - 1)
    scale = 1.0 / (step_s * (gpus or 1))
    jobs = np.bincount(index, minlength=count)
    submitted = np.bincount(index, weights=gpu_seconds_of(workload), minlength=count) * scale
    edges: Floats = np.arange(count + 1, dtype=np.float64) * step_s
    in_system = np.diff(_work_done(workload, edges)) * scale
    return DemandSeries(
        step_s=step_s,
        gpus=gpus or None,
        jobs=tuple(jobs.tolist()),
        submitted=tuple(submitted.tolist()),
        in_system=tuple(np.maximum(in_system, 0.0).tolist()),
        epoch_s=workload.metadata.epoch_s if has_dates(workload) else None,
    )


def _work_done(workload: Workload, moments_s: Floats) -> Floats:
    """GPU-seconds done up to each moment if every job starts at its submit."""
    submit_s = workload.frame["submit_s"].to_numpy()
    end_s = submit_s + workload.frame["duration_s"].to_numpy()
    return _ramp(submit_s, sizes_of(workload), moments_s) - _ramp(end_s, sizes_of(workload), moments_s)


def _ramp(from_s: Floats, sizes: Floats, moments_s: Floats) -> Floats:
    """For each moment the sum of size times the time since ``from_s``, over those that lie before it."""
    order = np.argsort(from_s, kind="stable")
    begun, size = from_s[order], sizes[order]
    total = np.concatenate(([0.0], np.cumsum(size)))
    moment = np.concatenate(([0.0], np.cumsum(size * begun)))
    index = np.searchsorted(begun, moments_s, side="right")
    ramp: Floats = total[index] * moments_s - moment[index]
    return ramp


def oversubscription(workload: Workload, gpus: int) -> Oversubscription:
    """Peak demand and how long it exceeds the GPUs."""
    span_s = span_of(workload)
    submit_s = workload.frame["submit_s"].to_numpy()
    sizes = sizes_of(workload)
    times = np.concatenate((submit_s + workload.frame["duration_s"].to_numpy(), submit_s))
    order = np.argsort(times, kind="stable")  # at one instant, jobs end before others start
    times = times[order]
    busy = np.cumsum(np.concatenate((-sizes, sizes))[order])
    lasting_s = np.diff(np.minimum(times, span_s), append=span_s)
    within = times <= span_s
    over = within & (busy > gpus + 1e-6)
    return Oversubscription(
        peak=float(busy[within].max()) / gpus,
        time_share=float(lasting_s[over].sum()) / span_s if span_s else 0.0,
    )
