"""When jobs arrive: six shapes, each stretched over a span that the load decides.

All but ``bursty`` are one idea: a Poisson process given its number of arrivals runs on its own clock, and the
integral of the rate maps that clock to seconds.
"""

from typing import Annotated, Literal, Self

import numpy as np
from pydantic import BeforeValidator, Field, model_validator

from gpuyard.errors import InputError
from gpuyard.workload.generators.base import DAY_S, MONDAY_S, WEEK_S, Positive, Shape, Weight, shape_reader
from gpuyard.workload.generators.draws import (
    Floats,
    choose,
    exponentials,
    interpolate,
    normals,
    uniforms,
)

_GAP_STREAM = 16
_CENTRE_STREAM = 48
_IN_BURST_STREAM = 49
_WHICH_CENTRE_STREAM = 50
_OFFSET_STREAM = 51
_BETWEEN_STREAM = 52
_HOLDING_STREAM = 53
_JUMP_STREAM = 54
_FIRST_STATE_STREAM = 55

_MAX_CHANGES = 10_000_000

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


def arrival_times(shape: Shape, seed: int, jobs: int, span_s: float) -> Floats:
    """Submit times of jobs within a span, rising, seconds."""
    if isinstance(shape, AllAtOnce):
        return np.zeros(jobs)
    if isinstance(shape, Uniform):
        return np.arange(jobs, dtype=np.float64) / jobs * span_s
    if isinstance(shape, Bursty):
        return np.sort(burst_times(shape, seed, jobs, span_s))
    clock = _poisson_clock(seed, jobs)
    if isinstance(shape, Diurnal):
        return _on_rate(clock, *_weekly_rate(shape, span_s))
    if isinstance(shape, MarkovModulated):
        return _on_rate(clock, *_modulated_rate(shape, seed, span_s))
    return clock * span_s


def start_epoch_s(shape: Shape) -> float:
    """What ``epoch_s`` says for time 0: a time of the week for those shapes that have one, else 0."""
    return MONDAY_S + shape.start_s if isinstance(shape, Diurnal) else 0.0


def burst_times(shape: Bursty, seed: int, jobs: int, span_s: float) -> Floats:
    """Submit times in the order of the draws, not sorted, seconds."""
    centres = uniforms(seed, _CENTRE_STREAM, shape.centres) * span_s
    which = np.floor(uniforms(seed, _WHICH_CENTRE_STREAM, jobs) * shape.centres).astype(np.int64)
    near = centres[which] + normals(seed, _OFFSET_STREAM, jobs) * (shape.spread * span_s)
    between = uniforms(seed, _BETWEEN_STREAM, jobs) * span_s
    in_burst = uniforms(seed, _IN_BURST_STREAM, jobs) < shape.share
    times: Floats = np.clip(np.where(in_burst, near, between), 0.0, span_s)
    return times


def _poisson_clock(seed: int, jobs: int) -> Floats:
    """A Poisson process on [0, 1) given its number of arrivals: partial sums of gaps, over one gap more."""
    sums = np.cumsum(exponentials(seed, _GAP_STREAM, jobs + 1))
    clock: Floats = sums[:-1] / sums[-1]
    return clock


def _on_rate(clock: Floats, edges_s: Floats, rates: Floats) -> Floats:
    """Seconds at which the integral of a stepwise rate has reached each share of its total.

    Args:
        clock: Shares from 0 to 1, rising.
        edges_s: Where the rate changes, and the two ends; one more than ``rates``.
        rates: Relative rate between the edges.
    """
    integral = np.concatenate([[0.0], np.cumsum(rates * np.diff(edges_s))])
    if not integral[-1] > 0:
        raise InputError("no job can arrive: the rate of arrivals is 0 over the whole span")
    return interpolate(clock * integral[-1], integral, edges_s)


def _weekly_rate(shape: Diurnal, span_s: float) -> tuple[Floats, Floats]:
    first_hour = int(shape.start_s // 3600)
    hours = int((shape.start_s + span_s) // 3600) - first_hour + 1
    if hours > _MAX_CHANGES:
        raise InputError(
            f"a span of {span_s / DAY_S:,.0f} days is too long for a daily cycle; raise the load"
        )
    hour = first_hour + np.arange(hours)
    rates = np.array(shape.hours)[hour % 24] * np.array(shape.weekdays)[hour // 24 % 7]
    edges_s = np.append(hour * 3600.0 - shape.start_s, span_s)
    edges_s[0] = 0.0
    return edges_s, rates


def _modulated_rate(shape: MarkovModulated, seed: int, span_s: float) -> tuple[Floats, Floats]:
    """Edges and rates of one path through the states. The first state is drawn from the long-run shares."""
    states = len(shape.rates)
    if span_s > _MAX_CHANGES * min(shape.holding_s):
        raise InputError(f"markov: holding times are too short for a span of {span_s:,.0f} s")
    first = choose(uniforms(seed, _FIRST_STATE_STREAM, 1), shape.holding_s)
    count = 64
    while True:
        jumps = 1 + np.floor(uniforms(seed, _JUMP_STREAM, count) * (states - 1)).astype(np.int64)
        state = (first + np.concatenate([[0], np.cumsum(jumps[:-1])])) % states
        holding_s = exponentials(seed, _HOLDING_STREAM, count) * np.array(shape.holding_s)[state]
        ends_s = np.cumsum(holding_s)
        if ends_s[-1] >= span_s:
            break
        count *= 2
    used = int(np.searchsorted(ends_s, span_s)) + 1
    edges_s = np.concatenate([[0.0], ends_s[: used - 1], [span_s]])
    return edges_s, np.array(shape.rates)[state[:used]]
