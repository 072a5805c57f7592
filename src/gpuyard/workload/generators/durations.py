"""How long jobs run: four distributions, all within a shortest and a longest duration."""

import math

import numpy as np

from gpuyard.workload.generators.base import Shape
from gpuyard.workload.generators.draws import Floats, each, lognormals, uniforms
from gpuyard.workload.generators.shapes import HeavyTail, Pareto, UniformDurations

_DURATION_STREAM = 17
_IS_TAIL_STREAM = 56
_TAIL_STREAM = 57


def draw_durations(
    shape: Shape, seed: int, jobs: int, *, median_s: float, sigma: float, low_s: float, high_s: float
) -> Floats:
    """Independent durations, seconds.

    Args:
        shape: The distribution.
        seed: Key of the draws.
        jobs: How many.
        median_s: Median of the lognormal ones.
        sigma: Standard deviation of their natural logarithm.
        low_s: Shortest duration.
        high_s: Longest duration.
    """
    if isinstance(shape, UniformDurations):
        drawn = low_s + uniforms(seed, _DURATION_STREAM, jobs) * (high_s - low_s)
    elif isinstance(shape, Pareto):
        drawn = bounded_pareto(uniforms(seed, _DURATION_STREAM, jobs), shape.alpha, low_s, high_s)
    else:
        drawn = lognormals(seed, _DURATION_STREAM, jobs, math.log(median_s), sigma)
    if isinstance(shape, HeavyTail):
        in_tail = uniforms(seed, _IS_TAIL_STREAM, jobs) < shape.tail_share
        start_s = min(max(shape.tail_from_s, low_s), high_s)
        tail = bounded_pareto(uniforms(seed, _TAIL_STREAM, jobs), shape.alpha, start_s, high_s)
        drawn = np.where(in_tail, tail, drawn)
    clipped: Floats = np.clip(drawn, low_s, high_s)
    return clipped


def bounded_pareto(draws: Floats, alpha: float, low: float, high: float) -> Floats:
    """The quantile function low * (1 - u (1 - (low/high)^alpha))^(-1/alpha)."""
    kept = 1.0 - math.pow(low / high, alpha)
    values: Floats = low * each(lambda x: math.pow(x, -1.0 / alpha), 1.0 - draws * kept)
    return values


def log_uniform(draws: Floats, low: float, high: float) -> Floats:
    """The quantile function exp(log low + u (log high - log low))."""
    start, width = math.log(low), math.log(high) - math.log(low)
    return each(math.exp, start + draws * width)
