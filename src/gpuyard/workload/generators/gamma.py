"""Gamma-distributed draws and the gamma distribution function, the same bits on every machine."""

import math
from collections.abc import Callable

import numpy as np

from gpuyard.workload.generators.draws import Floats, each, normals, uniforms

_ROUND = 1 << 16
"""Streams of later rounds of a rejection method lie this far apart."""
_RETRY = 1 << 32
"""Streams of later attempts to stay below a limit lie this far apart."""

_RELATIVE_ERROR = 1e-15
_TINY = 1e-300


def gammas(seed: int, stream: int, shape: Floats) -> Floats:
    """Independent draws of scale 1, one for each shape, which must be at least 1.

    Marsaglia and Tsang (ACM TOMS 26(3), 2000): with d = shape - 1/3, c = 1/sqrt(9 d), a normal x and a
    uniform u, d v with v = (1 + c x)^3 is accepted if log u < x^2/2 + d - d v + d log v. Round r takes x from
    stream + r 2^16 and u from the stream behind it, for every job, so a job's draws depend on no other job.
    """
    drawn = np.empty_like(shape)
    waiting = np.arange(len(shape))
    attempt = 0
    while waiting.size:
        x = normals(seed, stream + attempt * _ROUND, len(shape))[waiting]
        u = 1.0 - uniforms(seed, stream + 1 + attempt * _ROUND, len(shape))[waiting]
        d = shape[waiting] - 1.0 / 3.0
        root = 1.0 + x / np.sqrt(9.0 * d)
        v = np.where(root > 0, root * root * root, 1.0)
        bound = 0.5 * x * x + d - d * v + d * each(math.log, v)
        accepted = (root > 0) & (each(math.log, u) < bound)
        drawn[waiting[accepted]] = (d * v)[accepted]
        waiting = waiting[~accepted]
        attempt += 1
    return drawn


def redrawn_up_to(limit: float, draw: Callable[[int], Floats]) -> Floats:
    """Draws of which those above ``limit`` are drawn again.

    Args:
        limit: Largest value that is kept.
        draw: Makes all draws of an attempt; it adds its argument to the numbers of its streams.
    """
    drawn = draw(0)
    attempt = 0
    while (again := drawn > limit).any():
        attempt += 1
        drawn = np.where(again, draw(attempt * _RETRY), drawn)
    return drawn


def gamma_cdf(x: float, shape: float, scale: float) -> float:
    """Probability that a gamma draw is at most ``x``."""
    z = x / scale
    if z <= 0:
        return 0.0
    factor = math.exp(shape * math.log(z) - z - math.lgamma(shape))
    return factor * _series(z, shape) if z < shape + 1 else 1.0 - factor * _fraction(z, shape)


def _series(z: float, shape: float) -> float:
    """Sum of z^k / (shape (shape+1) ... (shape+k)) over k from 0 (DLMF 8.7.1)."""
    term = total = 1.0 / shape
    k = 0
    while term > total * _RELATIVE_ERROR:
        k += 1
        term *= z / (shape + k)
        total += term
    return total


def _fraction(z: float, shape: float) -> float:
    """The continued fraction of the upper incomplete gamma function (DLMF 8.9.2), by Lentz's method."""
    b = z + 1.0 - shape
    c, d = 1.0 / _TINY, 1.0 / b
    value = d
    k = 0
    while True:
        k += 1
        a = -k * (k - shape)
        b += 2.0
        d = 1.0 / (a * d + b or _TINY)
        c = b + a / c or _TINY
        value *= c * d
        if abs(c * d - 1.0) <= 2 * _RELATIVE_ERROR:
            return value
