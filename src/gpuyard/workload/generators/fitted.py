"""What is kept of a trace so that workloads like it can be drawn: counts, quantiles and rates, no jobs."""

from typing import Annotated, Self

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, model_validator

from gpuyard.workload.generators.draws import Floats, interpolate
from gpuyard.workload.schema import STATUSES

PROBABILITIES: tuple[float, ...] = (
    *(k / 100 for k in range(99)),
    *(0.98 + k / 500 for k in range(1, 10)),
    *(1 - 0.5**k / 1000 for k in range(8)),
    1.0,
)
"""Where a quantile function is kept: every percent, and closer in the upper tail, which holds the work."""

Share = Annotated[float, Field(ge=0, le=1)]
Count = Annotated[int, Field(ge=1)]
Nonnegative = Annotated[float, Field(ge=0)]
Quantiles = Annotated[
    tuple[Nonnegative, ...], Field(min_length=len(PROBABILITIES), max_length=len(PROBABILITIES))
]
"""Values at ``PROBABILITIES``, linear in between."""


class _Frozen(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class FittedSize(_Frozen):
    """Jobs of one gang size."""

    gpus: Annotated[int, Field(ge=0)]
    gpu_milli: Annotated[int, Field(ge=1, le=1000)] = 1000
    jobs: Count
    duration_class: Annotated[int, Field(ge=0)]
    """Which of the trace's ``durations`` holds for them."""
    cpus: Annotated[int, Field(ge=0)] = 0
    """Median CPUs of such a job."""
    memory_mib: Annotated[int, Field(ge=0)] = 0
    """Median memory of such a job, MiB."""


class FittedSubmitter(_Frozen):
    """A user in a group. Users are numbered, from the busiest; groups keep their names."""

    user: str
    group: str
    jobs: Count


class FittedEstimates(_Frozen):
    """Requested over true run time."""

    known_share: Share
    """Share of jobs with an estimate."""
    duration_bounds_s: tuple[Nonnegative, ...]
    """Between classes of durations; jobs at a bound belong to the upper class."""
    ratios: tuple[Quantiles, ...]
    """Estimate / duration in each class, one more than there are bounds."""

    @model_validator(mode="after")
    def _check_classes(self) -> Self:
        if len(self.ratios) != len(self.duration_bounds_s) + 1:
            raise ValueError("ratios must be one more than duration_bounds_s")
        return self


class FittedArrivals(_Frozen):
    """The rate of arrivals: a daily and weekly shape, random swings, and clusters within an hour."""

    jobs_per_h: Annotated[float, Field(gt=0)]
    start_s: Nonnegative
    """Time of the week of the first submit, seconds from Monday 00:00 on the trace's clock."""
    hours: Annotated[tuple[Nonnegative, ...], Field(min_length=24, max_length=24)]
    """Relative rate by hour of the day."""
    weekdays: Annotated[tuple[Nonnegative, ...], Field(min_length=7, max_length=7)]
    """Relative rate by day of the week, from Monday."""
    swing_sigma: Nonnegative
    """Standard deviation of the log of the rate of an hour around that shape."""
    swing_memory: Share
    """Correlation of that log from one hour to the next."""
    gaps: Quantiles
    """Gaps between arrivals within an hour, over the mean gap of that hour."""


class FittedTrace(_Frozen):
    """A trace in a few kilobytes. Made by ``fit_trace``; ``LikeConfig`` draws from it."""

    name: str
    jobs: Count
    """Jobs of the trace."""
    arrivals: FittedArrivals
    sizes: Annotated[tuple[FittedSize, ...], Field(min_length=1)]
    """From small to large."""
    durations: Annotated[tuple[Quantiles, ...], Field(min_length=1)]
    """Durations of each class of gang sizes, seconds."""
    submitters: Annotated[tuple[FittedSubmitter, ...], Field(min_length=1)]
    duration_habits: Annotated[float, Field(ge=0, lt=1)] = 0.0
    """Share of the variance of durations (of their normal scores, in a class of sizes) between submitters."""
    gang_habits: Annotated[float, Field(ge=0, lt=1)] = 0.0
    """The same of gang sizes."""
    statuses: dict[str, Count]
    priorities: tuple[tuple[float, Count], ...]
    estimates: FittedEstimates | None = None
    whole_seconds: bool = False
    """Whether all times of the trace are whole seconds."""

    @model_validator(mode="after")
    def _check_references(self) -> Self:
        if max(size.duration_class for size in self.sizes) >= len(self.durations):
            raise ValueError("sizes name a duration_class that durations does not have")
        if unknown := set(self.statuses) - set(STATUSES):
            raise ValueError(f"statuses: {sorted(unknown)} are not among {', '.join(STATUSES)}")
        return self


def quantiles_of(values: Floats) -> tuple[float, ...]:
    """Quantiles at ``PROBABILITIES``, by linear interpolation between order statistics."""
    ordered = np.sort(values)
    ranks = np.array(PROBABILITIES) * (len(ordered) - 1)
    if len(ordered) == 1:
        return tuple([float(ordered[0])] * len(PROBABILITIES))
    return tuple(interpolate(ranks, np.arange(len(ordered), dtype=np.float64), ordered).tolist())


def from_quantiles(draws: Floats, quantiles: tuple[float, ...]) -> Floats:
    """Values of the quantile function at draws from [0, 1)."""
    return interpolate(draws, np.array(PROBABILITIES), np.array(quantiles))
