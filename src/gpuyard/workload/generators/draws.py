"""Random draws for the generators: the same bits on every machine (docs/contract/simulator.md, section 2).

Draws come from the core's counter-based generator, one stream a purpose. numpy does exact arithmetic in a
fixed order only: its logarithms, its sums and its interpolation depend on the machine. ``math`` has the
transcendental functions, and sums are running sums.
"""

import math
from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]


def uniforms(seed: int, stream: int, count: int) -> Floats:
    """Independent draws from [0, 1)."""
    from gpuyard import _core

    return _core.uniforms(seed, stream, count)


def normals(seed: int, stream: int, count: int) -> Floats:
    """Independent standard normal draws."""
    from gpuyard import _core

    return _core.normals(seed, stream, count)


def exponentials(seed: int, stream: int, count: int) -> Floats:
    """Independent exponential draws of mean 1."""
    from gpuyard import _core

    return _core.exponentials(seed, stream, count)


def lognormals(seed: int, stream: int, count: int, mu: float, sigma: float) -> Floats:
    """Independent draws of exp(mu + sigma * normal)."""
    from gpuyard import _core

    return _core.lognormals(seed, stream, count, mu, sigma)


def integers(seed: int, stream: int, count: int, low: int, high: int) -> Integers:
    """Independent whole numbers, low + floor(u * (high - low + 1)); ``high`` is included."""
    drawn: Integers = low + np.floor(uniforms(seed, stream, count) * (high - low + 1)).astype(np.int64)
    return drawn


def choose(draws: Floats, weights: Sequence[float]) -> Integers:
    """For each draw from [0, 1) the index of a weight, in proportion to the weights."""
    cumulative = np.cumsum(np.array(weights, dtype=np.float64))
    # A product rounded up to the total would fall past the end, or onto trailing weights of 0.
    last = int(np.flatnonzero(np.array(weights))[-1])
    found = np.searchsorted(cumulative, draws * cumulative[-1], side="right")
    chosen: Integers = np.minimum(found, last).astype(np.int64)
    return chosen


def each(function: Callable[[float], float], values: Floats) -> Floats:
    """``function`` of the ``math`` module applied to each value."""
    return np.array(list(map(function, values.tolist())), dtype=np.float64)


def running_total(values: Floats) -> float:
    """Sum from first to last."""
    return float(np.cumsum(values)[-1]) if values.size else 0.0


def sums_by(index: Integers, values: Floats, count: int) -> Floats:
    """Sum of the values of each index from 0 to below ``count``, added from first to last."""
    return np.bincount(index, values, count).astype(np.float64)


def reordered(sample: Floats, score: Floats) -> Floats:
    """The same values, the k-th smallest where the score is the k-th smallest; ties go by position.

    This is Iman and Conover's way to correlated columns: every column keeps its own distribution to the
    last bit, and only the order of its values follows the scores.
    """
    result = np.empty_like(sample)
    result[np.argsort(score, kind="stable")] = np.sort(sample)
    return result


def blend(common: Floats, own: Floats, correlation: float) -> Floats:
    """A standard normal score with the given correlation to ``common``, also standard normal."""
    mixed: Floats = correlation * common + math.sqrt(1.0 - correlation * correlation) * own
    return mixed


def interpolate(at: Floats, x: Floats, y: Floats) -> Floats:
    """The piecewise linear function through the points (x, y), x rising; constant beyond the ends."""
    left = np.clip(np.searchsorted(x, at, side="right") - 1, 0, len(x) - 2)
    width = x[left + 1] - x[left]
    share = np.clip((at - x[left]) / np.where(width > 0, width, 1.0), 0.0, 1.0)
    values: Floats = y[left] + share * (y[left + 1] - y[left])
    return values
