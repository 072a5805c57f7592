"""How durations, sizes, arrivals and users are spread, as plain numbers for tables and charts."""

import math
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from gpuyard.workload.auditing.demand import demand_series
from gpuyard.workload.schema import Workload
from gpuyard.workload.shaping.derive import DAY_S, gpu_seconds_of, has_dates

BINS_PER_DECADE = 4
CURVE_POINTS = 101
"""Points of a cumulative curve: one for every percent."""
TOP_USERS = 10
WEEKDAYS = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")

Floats = NDArray[np.float64]


def distributions(workload: Workload, gpus: int | None = None) -> dict[str, Any]:
    """Distributions of a workload as JSON-able values; what the workload does not tell is None.

    Args:
        workload: The jobs.
        gpus: GPUs of the cluster that demand over time refers to.

    Returns:
        ``durations``: histogram with logarithmic bins (edges in seconds, shares of jobs and of GPU time),
        and the cumulative curves of both. ``arrivals``: jobs by hour of the day and by day of the week, on
        the log's own clock. ``demand``: as ``demand_series``. ``users``: the largest ones, the Lorenz curve
        of GPU time over users, and its Gini coefficient.
    """
    duration_s = workload.frame["duration_s"].to_numpy()
    gpu_s = gpu_seconds_of(workload)
    return {
        "durations": _durations(duration_s, gpu_s),
        "arrivals": _arrivals(workload),
        "demand": demand_series(workload, gpus).model_dump(mode="json"),
        "users": _users(workload, gpu_s),
    }


def _durations(duration_s: Floats, gpu_s: Floats) -> dict[str, Any]:
    low = math.floor(math.log10(float(duration_s.min())) * BINS_PER_DECADE)
    high = math.ceil(math.log10(float(duration_s.max())) * BINS_PER_DECADE)
    edges = np.array([10 ** (step / BINS_PER_DECADE) for step in range(low, max(high, low + 1) + 1)])
    index = np.clip(np.searchsorted(edges, duration_s, side="right") - 1, 0, len(edges) - 2)
    jobs = np.bincount(index, minlength=len(edges) - 1)
    work = np.bincount(index, weights=gpu_s, minlength=len(edges) - 1)
    total = float(gpu_s.sum())
    return {
        "edges_s": edges.tolist(),
        "jobs": jobs.tolist(),
        "share_of_jobs": (jobs / len(duration_s)).tolist(),
        "share_of_gpu_time": (work / total).tolist() if total else None,
        "quantiles_s": np.quantile(duration_s, np.linspace(0, 1, CURVE_POINTS)).tolist(),
        "gpu_time_quantiles_s": _weighted_quantiles(duration_s, gpu_s) if total else None,
    }


def _weighted_quantiles(values: Floats, weights: Floats) -> list[float]:
    """For each percent the smallest value up to which that share of the weight lies."""
    order = np.argsort(values, kind="stable")
    reached = np.cumsum(weights[order])
    index = np.searchsorted(reached, np.linspace(0, 1, CURVE_POINTS) * reached[-1])
    quantiles: list[float] = values[order][np.minimum(index, len(values) - 1)].tolist()
    return quantiles


def _arrivals(workload: Workload) -> dict[str, Any]:
    dated = has_dates(workload)
    clock_s = workload.frame["submit_s"].to_numpy() + (workload.metadata.epoch_s if dated else 0.0)
    hour = (clock_s % DAY_S // 3600).astype(np.int64)
    weekday = ((clock_s // DAY_S).astype(np.int64) + 3) % 7  # day 0 of the Unix clock was a Thursday
    return {
        "dated": dated,
        "by_hour": np.bincount(hour, minlength=24).tolist(),
        "by_weekday": np.bincount(weekday, minlength=7).tolist() if dated else None,
    }


def _users(workload: Workload, gpu_s: Floats) -> dict[str, Any] | None:
    """None if no job has a user."""
    frame = workload.frame.select("user", gpu_s=pl.Series(gpu_s)).filter(pl.col("user") != "")
    if frame.height == 0:
        return None
    users = frame.group_by("user").agg(jobs=pl.len(), gpu_s=pl.col("gpu_s").sum())
    users = users.sort("gpu_s", "jobs", "user", descending=[True, True, False])
    total = float(users["gpu_s"].sum())
    ascending = users["gpu_s"].to_numpy()[::-1]
    return {
        "users": users.height,
        "top": [
            {
                "user": user,
                "jobs": jobs,
                "share_of_jobs": jobs / frame.height,
                "share_of_gpu_time": used / total if total else None,
            }
            for user, jobs, used in users.head(TOP_USERS).iter_rows()
        ],
        "gini": gini(ascending),
        "lorenz": _lorenz(ascending) if total else None,
    }


def gini(ascending: Floats) -> float | None:
    """Gini coefficient of values sorted upwards: 0 if all are equal, towards 1 if one has all."""
    count, total = len(ascending), float(ascending.sum())
    if not total:
        return None
    ranks = np.arange(1, count + 1)
    return float(2 * (ranks * ascending).sum() / (count * total) - (count + 1) / count)


def _lorenz(ascending: Floats) -> list[float]:
    """Share of the whole that the poorest 0, 1, ... 100 % hold."""
    held = np.concatenate(([0.0], np.cumsum(ascending))) / float(ascending.sum())
    at = np.linspace(0, 1, CURVE_POINTS)
    curve: list[float] = np.interp(at, np.linspace(0, 1, len(held)), held).tolist()
    return curve
