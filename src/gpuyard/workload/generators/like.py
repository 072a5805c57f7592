"""Workloads like a given trace, of any length."""

import math
from pathlib import Path
from typing import Annotated, ClassVar

import numpy as np
import polars as pl
from pydantic import Field, ValidationError

from gpuyard.config import refusal
from gpuyard.errors import InputError
from gpuyard.registry import register
from gpuyard.workload.formats import Trace
from gpuyard.workload.generators.base import MONDAY_S, GeneratorConfig
from gpuyard.workload.generators.draws import (
    Floats,
    Integers,
    choose,
    each,
    exponentials,
    normals,
    reordered,
    sums_by,
    uniforms,
)
from gpuyard.workload.generators.fitted import (
    FittedArrivals,
    FittedEstimates,
    FittedTrace,
    from_quantiles,
)
from gpuyard.workload.generators.fitting import fit_trace, hour_and_weekday, hours_of_span
from gpuyard.workload.generators.users import habit_scores
from gpuyard.workload.schema import Workload, make_workload

_CLOCK_STREAM = 112
_SWING_STREAM = 113
_GAP_STREAM = 114
_CLOSING_GAP_STREAM = 115
_SIZE_STREAM = 116
_DURATION_STREAM = 117
_SUBMITTER_STREAM = 118
_STATUS_STREAM = 119
_PRIORITY_STREAM = 120
_RATIO_STREAM = 121
_HAS_ESTIMATE_STREAM = 122
_DURATION_HABIT_STREAMS = (123, 124)
_GANG_HABIT_STREAMS = (125, 126)

_HOUR_S = 3600.0
_SWEEPS = 10


@register("workload-generator", "like")
class LikeConfig(GeneratorConfig):
    """What to draw from a fitted trace."""

    step: ClassVar[str] = "like"

    fitted: FittedTrace
    rate: Annotated[float, Field(gt=0, le=1e6)] = 1.0
    """Arrivals come this many times as fast as in the trace; the shape over the day stays."""

    def generate(self) -> Trace:
        """Draw the workload."""
        return Trace(
            make_workload(
                pl.DataFrame(_columns(self)),
                name=self.name,
                epoch_s=MONDAY_S + self.fitted.arrivals.start_s,
                source=f"like {self.fitted.name}",
                history=self.history(),
            )
        )


def workload_like(
    trace: Workload | FittedTrace, *, seed: int = 0, jobs: int | None = None, rate: float = 1.0
) -> Workload:
    """Draw a workload like a trace.

    Args:
        trace: The trace, or what was fitted to it.
        seed: Key of every draw.
        jobs: How many; None: as many as the trace has.
        rate: Arrivals come this many times as fast.
    """
    fitted = trace if isinstance(trace, FittedTrace) else fit_trace(trace)
    config = LikeConfig(
        name=f"like-{fitted.name}",
        seed=seed,
        jobs=fitted.jobs if jobs is None else jobs,
        fitted=fitted,
        rate=rate,
    )
    return config.generate().workload


def read_fitted(path: str | Path) -> FittedTrace:
    """Read what ``FittedTrace.model_dump_json`` wrote.

    Raises:
        InputError: if the file cannot be read or is not that.
    """
    try:
        return FittedTrace.model_validate_json(Path(path).read_bytes())
    except OSError as error:
        raise InputError(f"{path}: {error.strerror}") from None
    except ValidationError as error:
        raise InputError(f"{refusal(error, str(path))}; expected a fitted trace as JSON") from None


def _columns(config: LikeConfig) -> dict[str, pl.Series | Floats]:
    fitted, seed, jobs = config.fitted, config.seed, config.jobs
    submitter = choose(uniforms(seed, _SUBMITTER_STREAM, jobs), [s.jobs for s in fitted.submitters])
    size = _sizes(config, submitter)
    durations = _durations(config, submitter, size)
    submits = draw_arrivals(fitted.arrivals, seed, jobs, config.rate)
    if fitted.whole_seconds:
        submits, durations = np.floor(submits), np.maximum(np.rint(durations), 1.0)
    status = choose(uniforms(seed, _STATUS_STREAM, jobs), list(fitted.statuses.values()))
    priority = choose(uniforms(seed, _PRIORITY_STREAM, jobs), [count for _, count in fitted.priorities])
    columns: dict[str, pl.Series | Floats] = {
        "submit_s": submits,
        "duration_s": durations,
        "status": pl.Series(list(fitted.statuses)).gather(status),
        "priority": np.array([value for value, _ in fitted.priorities])[priority],
    }
    for name in ("gpus", "gpu_milli", "cpus", "memory_mib"):
        columns[name] = pl.Series([getattr(s, name) for s in fitted.sizes], dtype=pl.Int64).gather(size)
    for name in ("user", "group"):
        columns[name] = pl.Series([getattr(s, name) for s in fitted.submitters]).gather(submitter)
    if fitted.estimates is not None:
        columns["estimate_s"] = _estimates(config, fitted.estimates, durations)
    return columns


def _sizes(config: LikeConfig, submitter: Integers) -> Integers:
    """For each job the position of its gang size among the fitted ones."""
    drawn = choose(uniforms(config.seed, _SIZE_STREAM, config.jobs), [s.jobs for s in config.fitted.sizes])
    if not config.fitted.gang_habits:
        return drawn
    scores = _scores(config, _GANG_HABIT_STREAMS, submitter, config.fitted.gang_habits)
    return reordered(drawn.astype(np.float64), scores).astype(np.int64)


def _durations(config: LikeConfig, submitter: Integers, size: Integers) -> Floats:
    """Durations of each class of gang sizes, given to the jobs of the class in the order of their scores."""
    fitted = config.fitted
    scores = _scores(config, _DURATION_HABIT_STREAMS, submitter, fitted.duration_habits)
    draws = uniforms(config.seed, _DURATION_STREAM, config.jobs)
    classes = np.array([s.duration_class for s in fitted.sizes])[size]
    durations = np.empty(config.jobs)
    for number, quantiles in enumerate(fitted.durations):
        of_class = classes == number
        durations[of_class] = reordered(from_quantiles(draws[of_class], quantiles), scores[of_class])
    return durations


def _scores(config: LikeConfig, streams: tuple[int, int], submitter: Integers, habits: float) -> Floats:
    return habit_scores(config.seed, streams, submitter, len(config.fitted.submitters), habits)


def _estimates(config: LikeConfig, fitted: FittedEstimates, durations: Floats) -> pl.Series:
    """Requested run times, null where there is none."""
    draws = uniforms(config.seed, _RATIO_STREAM, config.jobs)
    place = np.searchsorted(np.array(fitted.duration_bounds_s), durations, side="right")
    ratio = np.empty(config.jobs)
    for number, quantiles in enumerate(fitted.ratios):
        ratio[place == number] = from_quantiles(draws[place == number], quantiles)
    estimates = durations * ratio
    if config.fitted.whole_seconds:
        estimates = np.rint(estimates)
    known = uniforms(config.seed, _HAS_ESTIMATE_STREAM, config.jobs) < fitted.known_share
    return pl.Series(np.where(known, np.maximum(estimates, 1e-6), np.nan), nan_to_null=True)


def draw_arrivals(fitted: FittedArrivals, seed: int, jobs: int, rate: float) -> Floats:
    """Submit times, rising, seconds.

    The number of jobs of each hour is that of a Poisson process given its total, whose rate is the fitted
    shape times lognormal swings; the swings leave the expected sums over each hour of the day and each
    weekday as fitted. Within an hour, gaps are drawn from the fitted ones.
    """
    span_s = jobs / (fitted.jobs_per_h * rate) * _HOUR_S
    lengths = hours_of_span(fitted.start_s, span_s)
    cumulative = np.cumsum(_hourly_rates(fitted, seed, lengths))
    sums = np.cumsum(exponentials(seed, _CLOCK_STREAM, jobs + 1))
    clock = sums[:-1] / sums[-1] * cumulative[-1]
    last = int(np.flatnonzero(lengths)[-1])
    hour = np.minimum(np.searchsorted(cumulative, clock, side="right"), last)
    starts_s = (int(fitted.start_s // _HOUR_S) + np.arange(len(lengths))) * _HOUR_S - fitted.start_s
    starts_s[0] = 0.0
    return np.sort(starts_s[hour] + _within_hours(fitted, seed, hour) * lengths[hour] * _HOUR_S)


def _hourly_rates(fitted: FittedArrivals, seed: int, lengths: Floats) -> Floats:
    """Expected share of jobs in each hour, of any total."""
    of_day, of_week = hour_and_weekday(fitted.start_s, len(lengths))
    shape: Floats = np.array(fitted.hours)[of_day] * np.array(fitted.weekdays)[of_week] * lengths
    if not fitted.swing_sigma:
        return shape
    by_hour, by_weekday = sums_by(of_day, shape, 24), sums_by(of_week, shape, 7)
    rates = shape * _swings(fitted, seed, len(lengths))
    for _ in range(_SWEEPS):
        rates = rates * _factor(by_weekday, sums_by(of_week, rates, 7))[of_week]
        rates = rates * _factor(by_hour, sums_by(of_day, rates, 24))[of_day]
    return rates


def _factor(wanted: Floats, found: Floats) -> Floats:
    factor: Floats = wanted / np.where(found > 0, found, 1.0)
    return factor


def _swings(fitted: FittedArrivals, seed: int, hours: int) -> Floats:
    """exp(sigma g) with g a stationary first-order autoregressive normal process."""
    fresh = math.sqrt(1.0 - fitted.swing_memory * fitted.swing_memory)
    levels: list[float] = []
    for shock in normals(seed, _SWING_STREAM, hours).tolist():
        levels.append(fitted.swing_memory * levels[-1] + fresh * shock if levels else shock)
    return each(math.exp, fitted.swing_sigma * np.array(levels))


def _within_hours(fitted: FittedArrivals, seed: int, hour: Integers) -> Floats:
    """Where in its hour each job arrives, as a share of the hour: partial sums of gaps over their total."""
    gaps = from_quantiles(uniforms(seed, _GAP_STREAM, len(hour)), fitted.gaps)
    closing = from_quantiles(uniforms(seed, _CLOSING_GAP_STREAM, int(hour[-1]) + 1), fitted.gaps)
    totals = sums_by(hour, gaps, int(hour[-1]) + 1)
    sums = np.cumsum(gaps)
    before = np.concatenate([[0.0], np.cumsum(totals)])[hour]
    whole = (totals + closing)[hour]
    # Two running sums of the same gaps, added up in different order, may differ in the last bits.
    share: Floats = np.clip((sums - before) / np.where(whole > 0, whole, 1.0), 0.0, 1.0 - 2.0**-20)
    return share
