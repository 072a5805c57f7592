"""When jobs arrive: six shapes, each stretched over a span that the load decides.

All but ``bursty`` are one idea: a Poisson process given its number of arrivals runs on its own clock, and the
integral of the rate maps that clock to seconds.
"""

import numpy as np

from gpuyard.errors import InputError
from gpuyard.workload.generators.base import DAY_S, MONDAY_S, Shape
from gpuyard.workload.generators.draws import (
    Floats,
    choose,
    exponentials,
    interpolate,
    normals,
    uniforms,
)
from gpuyard.workload.generators.shapes import AllAtOnce, Bursty, Diurnal, MarkovModulated, Uniform

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
