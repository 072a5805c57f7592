"""How arrivals and durations are described: shapes of both, with their settings.

``arrivals`` and ``durations`` draw from them.
"""

from typing import Annotated, Literal, Self

from pydantic import BeforeValidator, Field, model_validator

from gpuyard.workload.generators.base import WEEK_S, Positive, Shape, Weight, shape_reader

OFFICE_HOURS = (
    0.45, 0.36, 0.30, 0.27, 0.25, 0.27, 0.35, 0.55, 0.90, 1.35, 1.65, 1.70,
    1.45, 1.50, 1.75, 1.80, 1.75, 1.60, 1.35, 1.15, 1.00, 0.90, 0.75, 0.60,
)  # fmt: skip
"""Relative rate by hour of the day: a working day with a dip at noon, made up rather than measured."""


class AllAtOnce(Shape):
    """Every job at time 0."""

    kind: Literal["all-at-once"] = "all-at-once"


class Uniform(Shape):
    """Equal gaps; independent uniform times are what ``poisson`` draws."""

    kind: Literal["uniform"] = "uniform"


class Poisson(Shape):
    """Independent exponential gaps."""

    kind: Literal["poisson"] = "poisson"


class Bursty(Shape):
    """Most jobs near one of a few centres, the rest anywhere; clipped to the span."""

    kind: Literal["bursty"] = "bursty"
    centres: Annotated[int, Field(ge=1, le=1_000_000)] = 6
    share: Annotated[float, Field(ge=0, le=1)] = 0.8
    """Share of jobs that belong to a burst."""
    spread: Annotated[float, Field(ge=0, le=10)] = 0.03
    """Standard deviation of a burst, as a share of the span."""


class Diurnal(Shape):
    """A Poisson process whose rate follows the hour of the day and the day of the week."""

    kind: Literal["diurnal"] = "diurnal"
    hours: Annotated[tuple[Weight, ...], Field(min_length=24, max_length=24)] = OFFICE_HOURS
    """Relative rate in each hour of the day, from midnight."""
    weekdays: Annotated[tuple[Weight, ...], Field(min_length=7, max_length=7)] = (1, 1, 1, 1, 1, 0.45, 0.4)
    """Relative rate on each day of the week, from Monday."""
    start_s: Annotated[float, Field(ge=0, lt=WEEK_S)] = 0.0
    """When the workload begins, seconds from Monday 00:00."""

    @model_validator(mode="after")
    def _check_some_rate(self) -> Self:
        if not (sum(self.hours) > 0 and sum(self.weekdays) > 0):
            raise ValueError("hours and weekdays each need a weight above 0")
        return self


class MarkovModulated(Shape):
    """A Poisson process whose rate jumps between states (MMPP); the next state is any other one."""

    kind: Literal["markov"] = "markov"
    rates: Annotated[tuple[Weight, ...], Field(min_length=2)] = (1.0, 10.0)
    """Relative rate of arrivals in each state."""
    holding_s: Annotated[tuple[Positive, ...], Field(min_length=2)] = (14_400.0, 1_800.0)
    """Mean time spent in each state before it changes, seconds."""

    @model_validator(mode="after")
    def _check_states(self) -> Self:
        if len(self.rates) != len(self.holding_s):
            raise ValueError("rates and holding_s must have one value for each state")
        if not sum(self.rates) > 0:
            raise ValueError("one of the rates must be above 0")
        return self


Arrivals = Annotated[
    Annotated[
        AllAtOnce | Uniform | Poisson | Bursty | Diurnal | MarkovModulated, Field(discriminator="kind")
    ],
    BeforeValidator(shape_reader(AllAtOnce, Uniform, Poisson, Bursty, Diurnal, MarkovModulated)),
]

TailIndex = Annotated[float, Field(ge=0.01, le=100)]


class Lognormal(Shape):
    """exp(normal) with the median and sigma of the workload, clipped to its bounds."""

    kind: Literal["lognormal"] = "lognormal"


class UniformDurations(Shape):
    """Uniform between the bounds."""

    kind: Literal["uniform"] = "uniform"


class Pareto(Shape):
    """Pareto between the bounds (bounded, not clipped): P(longer than x) falls as x^-alpha."""

    kind: Literal["pareto"] = "pareto"
    alpha: TailIndex = 1.1
    """Below 1 the longest jobs hold most of the work."""


class HeavyTail(Shape):
    """A lognormal body and a bounded Pareto tail."""

    kind: Literal["heavy-tail"] = "heavy-tail"
    tail_share: Annotated[float, Field(ge=0, le=1)] = 0.1
    """Share of jobs in the tail."""
    tail_from_s: Positive = 3600.0
    """Where the tail begins, seconds."""
    alpha: TailIndex = 0.9
    """P(longer than x) in the tail falls as x^-alpha."""


Durations = Annotated[
    Annotated[Lognormal | UniformDurations | Pareto | HeavyTail, Field(discriminator="kind")],
    BeforeValidator(shape_reader(Lognormal, UniformDurations, Pareto, HeavyTail)),
]
