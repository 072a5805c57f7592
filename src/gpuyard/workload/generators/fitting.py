"""Fitting a trace: from its jobs to a ``FittedTrace``."""

import math
from typing import Any

import numpy as np
import polars as pl

from gpuyard.errors import InputError
from gpuyard.workload.generators.base import MONDAY_S, WEEK_S
from gpuyard.workload.generators.draws import Floats, Integers, running_total, sums_by
from gpuyard.workload.generators.fitted import (
    FittedArrivals,
    FittedEstimates,
    FittedSize,
    FittedSubmitter,
    FittedTrace,
    quantiles_of,
)
from gpuyard.workload.schema import Workload

_HOUR_S = 3600.0
_FEWEST_JOBS = 100
"""A class of gang sizes or durations with fewer jobs is joined with its neighbour."""
_MOST_SUBMITTERS = 500
_MOST_PRIORITIES = 100
_ESTIMATE_CLASSES = 8
_SWEEPS = 50
"""Rounds of proportional fitting of the daily and weekly shape."""
_MOST_HABITS = 0.95


def fit_trace(workload: Workload) -> FittedTrace:
    """Fit arrivals, gang sizes, durations, submitters, statuses and estimates of a trace.

    Args:
        workload: The trace; its clock (``epoch_s``) tells hours and weekdays.

    Raises:
        InputError: if all jobs arrive at one instant, so that there is no rate to fit.
    """
    frame = workload.frame
    if not float(frame["submit_s"][-1]) > 0:
        raise InputError(
            f"workload {workload.metadata.name!r}: all jobs arrive at once; no rate can be fitted"
        )
    frame = frame.with_columns(size=pl.col("gpus").cast(pl.Int64) * pl.col("gpu_milli"))
    sizes = _sizes(frame)
    frame = frame.join(
        pl.DataFrame([(s.gpus, s.gpu_milli, s.duration_class) for s in sizes], _CLASS_SCHEMA, orient="row"),
        on=["gpus", "gpu_milli"],
        how="left",
        maintain_order="left",
    )
    classes = frame["duration_class"].to_numpy()
    durations = frame["duration_s"].to_numpy()
    submitter, submitters = _submitters(frame)
    times = (frame["submit_s"].to_numpy(), durations)
    return FittedTrace(
        name=workload.metadata.name,
        jobs=len(workload),
        arrivals=fit_arrivals(times[0], (workload.metadata.epoch_s - MONDAY_S) % WEEK_S),
        sizes=sizes,
        durations=tuple(quantiles_of(durations[classes == k]) for k in range(int(classes.max()) + 1)),
        submitters=submitters,
        duration_habits=_habits(_shares_below(frame, "duration_s", ["duration_class"]), submitter),
        gang_habits=_habits(_shares_below(frame, "size", []), submitter),
        statuses=dict(_most_common(frame["status"].cast(pl.String), len(frame))),
        priorities=tuple(_most_common(frame["priority"], _MOST_PRIORITIES)),
        estimates=_estimates(frame),
        whole_seconds=all(bool((column == np.floor(column)).all()) for column in times),
    )


_CLASS_SCHEMA = {"gpus": pl.Int32, "gpu_milli": pl.Int32, "duration_class": pl.Int64}


def _sizes(frame: pl.DataFrame) -> tuple[FittedSize, ...]:
    """Gang sizes with their counts; those between powers of two share a class, if they have enough jobs."""
    rows = (
        frame.group_by("size", "gpus", "gpu_milli")
        .agg(
            pl.len().alias("jobs"),
            pl.col("cpus", "memory_mib").quantile(0.5, interpolation="lower").cast(pl.Int64),
        )
        .sort("size", "gpus")
        .to_dicts()
    )
    sizes: list[FittedSize] = []
    number, in_class, bucket = 0, 0, None
    rest = frame.height
    for row in rows:
        own = (row["gpus"] == 0, math.ceil(math.log2(max(row["size"], 1) / 1000)))
        if bucket not in (None, own) and in_class >= _FEWEST_JOBS and rest >= _FEWEST_JOBS:
            number, in_class = number + 1, 0
        bucket = own
        in_class += row["jobs"]
        rest -= row["jobs"]
        del row["size"]
        sizes.append(FittedSize(**row, duration_class=number))
    return tuple(sizes)


def _submitters(frame: pl.DataFrame) -> tuple[Integers, tuple[FittedSubmitter, ...]]:
    """The submitter of each job, and the busiest of them."""
    counted = (
        frame.group_by("user", "group")
        .agg(jobs=pl.len())
        .sort(["jobs", "user", "group"], descending=[True, False, False])
    ).with_row_index("submitter")
    of_job = frame.select("user", "group").join(
        counted, on=["user", "group"], how="left", maintain_order="left"
    )
    number: dict[str, str] = {"": ""}
    kept = []
    for _, user, group, jobs in counted.head(_MOST_SUBMITTERS).iter_rows():
        name = number.setdefault(user, f"u{len(number) - 1}")
        kept.append(FittedSubmitter(user=name, group=group, jobs=jobs))
    return of_job["submitter"].to_numpy().astype(np.int64), tuple(kept)


def _most_common(values: pl.Series, most: int) -> list[tuple[Any, int]]:
    """Values and how many jobs have them."""
    counted = (
        values.alias("value").value_counts(name="jobs").sort(["jobs", "value"], descending=[True, False])
    )
    return list(counted.head(most).iter_rows())


def _shares_below(frame: pl.DataFrame, column: str, within: list[str]) -> Floats:
    """Mean rank of each value among all, or among those of the same class, minus a half: from 0 to 1."""
    rank, count = pl.col(column).rank("average"), pl.len()
    if within:
        rank, count = rank.over(within), count.over(within)
    ranked = frame.select(rank=rank, count=count.cast(pl.Float64))
    shares: Floats = (ranked["rank"].to_numpy() - 0.5) / ranked["count"].to_numpy()
    return shares


def _habits(share: Floats, submitter: Integers) -> float:
    """Intraclass correlation of ranks by submitter (one-way analysis of variance), as one of normal scores.

    Ranks and normal scores are related by r = 2 sin(pi r_s / 6).
    """
    jobs = np.bincount(submitter).astype(np.float64)
    total, groups = float(len(share)), len(jobs)
    if groups < 2 or total <= groups:
        return 0.0
    centred = share - running_total(share) / total
    means = sums_by(submitter, centred, groups) / jobs
    between = running_total(jobs * means * means) / (groups - 1)
    within = running_total((centred - means[submitter]) ** 2) / (total - groups)
    typical = (total - running_total(jobs * jobs) / total) / (groups - 1)
    spread = between + (typical - 1) * within
    correlation = (between - within) / spread if spread > 0 else 0.0
    return min(max(2.0 * math.sin(math.pi * correlation / 6.0), 0.0), _MOST_HABITS)


def _estimates(frame: pl.DataFrame) -> FittedEstimates | None:
    """Ratios in classes of like many jobs, by duration."""
    known = frame.filter(pl.col("estimate_s").is_not_null())
    if known.height == 0:
        return None
    durations = known["duration_s"].to_numpy()
    ratios = known["estimate_s"].to_numpy() / durations
    ordered = np.sort(durations)
    classes = max(1, min(_ESTIMATE_CLASSES, known.height // _FEWEST_JOBS))
    bounds = np.unique(ordered[[k * known.height // classes for k in range(1, classes)]])
    bounds = bounds[bounds > ordered[0]]
    place = np.searchsorted(bounds, durations, side="right")
    return FittedEstimates(
        known_share=known.height / frame.height,
        duration_bounds_s=tuple(bounds.tolist()),
        ratios=tuple(quantiles_of(ratios[place == k]) for k in range(len(bounds) + 1)),
    )


def fit_arrivals(submits_s: Floats, start_s: float) -> FittedArrivals:
    """Fit the rate of arrivals.

    Args:
        submits_s: Submit times, rising from 0, seconds.
        start_s: Time of the week at 0, seconds from Monday 00:00.
    """
    span_s = float(submits_s[-1])
    hour = np.floor((start_s + submits_s) / _HOUR_S).astype(np.int64) - int(start_s // _HOUR_S)
    exposure = hours_of_span(start_s, span_s)
    counts = np.bincount(hour, minlength=len(exposure)).astype(np.float64)[: len(exposure)]
    of_day, of_week = hour_and_weekday(start_s, len(exposure))
    hours, weekdays = _daily_and_weekly(counts, exposure, of_day, of_week)
    expected = hours[of_day] * weekdays[of_week] * exposure
    expected *= running_total(counts) / running_total(expected)
    sigma, memory = _swings(counts, expected)
    same_hour = hour[1:] == hour[:-1]
    gaps = (np.diff(submits_s) * counts[hour[1:]] / _HOUR_S)[same_hour]
    return FittedArrivals(
        jobs_per_h=len(submits_s) / (span_s / _HOUR_S),
        start_s=start_s,
        hours=tuple(hours.tolist()),
        weekdays=tuple(weekdays.tolist()),
        swing_sigma=sigma,
        swing_memory=memory,
        gaps=quantiles_of(gaps if gaps.size else np.ones(1)),
    )


def hours_of_span(start_s: float, span_s: float) -> Floats:
    """How much of each clock hour lies in a span, as a share of an hour; the ends may be cut."""
    first = int(start_s // _HOUR_S)
    last = int((start_s + span_s) // _HOUR_S)
    edges = np.arange(first, last + 2, dtype=np.float64) * _HOUR_S
    inside = np.clip(edges, start_s, start_s + span_s)
    return np.diff(inside) / _HOUR_S


def hour_and_weekday(start_s: float, hours: int) -> tuple[Integers, Integers]:
    """Hour of the day and day of the week (Monday is 0) of each hour of a span."""
    hour = int(start_s // _HOUR_S) + np.arange(hours)
    return hour % 24, hour // 24 % 7


def _daily_and_weekly(
    counts: Floats, exposure: Floats, of_day: Integers, of_week: Integers
) -> tuple[Floats, Floats]:
    """Rates by hour times rates by weekday whose sums over each hour and each weekday are those of the trace.

    Hours and weekdays that the trace does not reach get the mean rate.
    """
    hours, weekdays = np.ones(24), np.ones(7)
    for _ in range(_SWEEPS):
        hours = _ratio(sums_by(of_day, counts, 24), sums_by(of_day, exposure * weekdays[of_week], 24))
        weekdays = _ratio(sums_by(of_week, counts, 7), sums_by(of_week, exposure * hours[of_day], 7))
    return hours / (running_total(hours) / 24), weekdays / (running_total(weekdays) / 7)


def _ratio(found: Floats, expected: Floats) -> Floats:
    seen = expected > 0
    mean = running_total(found) / max(running_total(expected), 1e-300)
    ratio: Floats = np.where(seen, found / np.where(seen, expected, 1.0), mean)
    return ratio


def _swings(counts: Floats, expected: Floats) -> tuple[float, float]:
    """Moments of a Poisson process with lognormal, first-order autoregressive rate.

    Var N = m + m^2 (e^(s^2) - 1) and Cov(N, next N) = m m' (e^(s^2 r) - 1).
    """
    off = counts - expected
    square = running_total(expected * expected)
    variance = (running_total(off * off) - running_total(expected)) / square
    if variance <= 0 or len(counts) < 3:
        return 0.0, 0.0
    products = max(running_total(expected[1:] * expected[:-1]), 1e-300)
    covariance = running_total(off[1:] * off[:-1]) / products
    log_variance = math.log1p(variance)
    memory = math.log1p(max(covariance, 0.0)) / log_variance
    return math.sqrt(log_variance), min(memory, 0.99)
