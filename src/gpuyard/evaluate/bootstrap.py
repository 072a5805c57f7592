"""Intervals of paired differences, by a circular block bootstrap over windows.

Windows of a trace overlap, or lie side by side in one week: neighbours are alike, and resampling them one by
one would make intervals too narrow. Blocks of neighbours are resampled instead (Politis and Romano, 1992). As
blocks are few and cut what overlaps at their ends, that is still too narrow, by an amount that is known:
intervals are widened by it (``widening``).

The figure is the geometric mean of the windows' ratios, as a few windows with long queues would rule the
ratio of arithmetic means, whose intervals then hold the truth far too seldom.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal, Self

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Verdict = Literal["better", "worse", "tie", "reference", "one run"]

RESAMPLES = 4000
SEED = 0
LEVEL = 0.95
NORMAL_QUANTILE = 1.959964
FEWEST_DISJOINT = 5.0
"""Intervals from fewer disjoint windows are widened as if there were so many, and called weak: what is told
of so few is hardly known."""
ENTRIES_AT_ONCE = 2**22


@dataclass(frozen=True)
class Difference:
    """How far one policy lies from another.

    Attributes:
        ratio: The geometric mean over windows of own / other, less 1: 0.1 is 10 % more. Where values may be 0
            or negative, (own - other) / abs(other) of the means.
        low: Lower end of the 95 % interval; NaN if one window tells none.
        high: Upper end.
        verdict: ``better`` or ``worse`` if the interval excludes zero, else ``tie``; ``one run`` without an
            interval, and ``reference`` of the other itself.
        own: The policy's arithmetic mean.
        other: The other's.
    """

    ratio: float
    low: float
    high: float
    verdict: Verdict
    own: float
    other: float

    @classmethod
    def without_interval(cls, own: float, other: float) -> Self:
        """Between values of one run each."""
        ratio = float(_relative(np.array([own]), np.array([other]))[0])
        return cls(ratio, math.nan, math.nan, "one run", own, other)

    @classmethod
    def of_reference(cls, value: float) -> Self:
        """Of the reference to itself."""
        return cls(0.0, math.nan, math.nan, "reference", value, value)

    @property
    def ratio_of_means(self) -> float:
        """(own - other) / abs(other): what stands beside the geometric mean of ratios."""
        return float(_relative(np.array([self.own]), np.array([self.other]))[0])

    @property
    def is_known(self) -> bool:
        """Whether the ratio is a number: it is not where the other's mean is 0 or unknown."""
        return math.isfinite(self.ratio)

    @property
    def has_interval(self) -> bool:
        """Whether both ends of the interval are known."""
        return math.isfinite(self.low) and math.isfinite(self.high)


def paired_difference(
    own: Floats,
    other: Floats,
    *,
    block: int = 1,
    disjoint: float | None = None,
    lower_is_better: bool,
    offset: float | None = None,
) -> Difference:
    """The relative difference of two policies over the same windows.

    Args:
        own: One value a window, in order of time.
        other: The other policy's, of the same windows.
        block: How many neighbouring windows are resampled together: as many as overlap one of them.
        disjoint: How many windows side by side span as much as all of them; None: as many as there are
            blocks.
        lower_is_better: Of the values.
        offset: Take the geometric mean of the windows' ratios, with this added to every value where one is 0;
            None: the ratio of arithmetic means, as where values may be negative.
    """
    means = float(own.mean()), float(other.mean())
    if len(own) < 2:
        return Difference.without_interval(*means)
    logs = None if offset is None else _log_ratios(own, other, offset)
    if logs is not None:
        low, high = _log_interval(logs, block, disjoint)
        ratio = math.expm1(float(logs.mean()))
        return Difference(ratio, low, high, _verdict(low, high, lower_is_better), *means)
    ratio = float(_relative(np.array([means[0]]), np.array([means[1]]))[0])
    low, high = interval(own, other, block, disjoint)
    return Difference(ratio, low, high, _verdict(low, high, lower_is_better), *means)


def _log_ratios(own: Floats, other: Floats, offset: float) -> Floats | None:
    """Logarithms of the ratio of each window; None where there is none."""
    added = offset if min(own.min(), other.min()) <= 0.0 else 0.0
    if not (np.isfinite(own).all() and np.isfinite(other).all()):
        return None
    if min(own.min(), other.min()) + added <= 0.0:
        return None
    logs: Floats = np.log((own + added) / (other + added))
    return logs


def _log_interval(logs: Floats, block: int, disjoint: float | None) -> tuple[float, float]:
    """The 95 % interval of the geometric mean, less 1."""
    middle, factor = float(logs.mean()), widening(block, len(logs), disjoint)
    low, high = (math.expm1(middle + factor * (end - middle)) for end in _resampled_logs(logs, block))
    return low, high


def _resampled_logs(logs: Floats, block: int) -> tuple[float, float]:
    """The interval of the mean logarithm as resampling alone gives it."""
    tail = 50 * (1 - LEVEL)
    low, high = np.percentile(resampled_means(logs, block), [tail, 100 - tail])
    return float(low), float(high)


def interval(own: Floats, other: Floats, block: int, disjoint: float | None = None) -> tuple[float, float]:
    """The 95 % interval of the relative difference of means."""
    low, high = resampled_interval(own, other, block)
    factor = widening(block, len(own), disjoint)
    centre = float(own.mean()), float(other.mean())
    return _away(low, centre, factor), _away(high, centre, factor)


def resampled_interval(
    own: Floats, other: Floats, block: int, offset: float | None = None
) -> tuple[float, float]:
    """What resampling alone gives, which is too narrow where windows are few or overlap.

    Args:
        own: One value per window.
        other: The other policy's.
        block: How many windows are resampled together.
        offset: As of ``paired_difference``.
    """
    if offset is not None and (logs := _log_ratios(own, other, offset)) is not None:
        low, high = _resampled_logs(logs, block)
        return math.expm1(low), math.expm1(high)
    samples = resampled_differences(own, other, block, RESAMPLES)
    tail = 50 * (1 - LEVEL)
    # Between a number and infinity, which stands where the other's mean is 0, nothing can be interpolated.
    method: Literal["linear", "nearest"] = "linear" if np.isfinite(samples).all() else "nearest"
    low, high = np.percentile(samples, [tail, 100 - tail], method=method)
    return float(low), float(high)


def widening(block: int, count: int, disjoint: float | None = None) -> float:
    """By how much a resampled interval is too narrow.

    Of three causes: blocks that are as long as windows overlap leave out part of what neighbours have in
    common, which for windows that overlap evenly falls off in a line; resampled windows lie around the mean
    of the windows instead of the truth; and how much windows differ is estimated from few of them, for which
    Student's t stands in.

    Args:
        block: How many windows overlap one of them.
        count: Windows.
        disjoint: How many of them side by side span as much as all.
    """
    apart = max(count / max(block, 1) if disjoint is None else disjoint, FEWEST_DISJOINT)
    lags = np.arange(1, max(block, 1))
    shared = 1 - lags / max(block, 1)
    seen = np.clip(1 - lags / usable_block(block, count), 0.0, None)
    share = (1 + 2 * float((seen * shared).sum())) / (1 + 2 * float(shared.sum()))
    return student_quantile(apart - 1) / NORMAL_QUANTILE * math.sqrt(apart / (apart - 1) / share)


_SMALL_QUANTILES: dict[float, float] = {1: 12.706, 2: 4.303, 3: 3.182}
"""Of Student's t, where the expansion is poor."""


def student_quantile(freedom: float) -> float:
    """The 97.5 % quantile of Student's t, by Cornish and Fisher's expansion; good to 0.3 % from 4 on."""
    if freedom in _SMALL_QUANTILES:
        return _SMALL_QUANTILES[freedom]
    z, f = NORMAL_QUANTILE, freedom
    first = (z**3 + z) / 4
    second = (5 * z**5 + 16 * z**3 + 3 * z) / 96
    third = (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384
    return z + first / f + second / f**2 + third / f**3


def _away(end: float, centre: tuple[float, float], factor: float) -> float:
    """An end of an interval, farther from its centre; of positive values on the scale of ratios."""
    own, other = centre
    if not math.isfinite(end) or other == 0.0:
        return end
    if own > 0.0 and other > 0.0 and end <= -1.0:
        return -1.0  # of values that are never negative nothing is farther away
    if own > 0.0 and other > 0.0:
        middle = math.log(own / other)
        return math.exp(middle + factor * (math.log1p(end) - middle)) - 1.0
    middle = (own - other) / abs(other)
    return middle + factor * (end - middle)


def resampled_differences(
    own: Floats, other: Floats, block: int, resamples: int = RESAMPLES, seed: int = SEED
) -> Floats:
    """Relative differences of the means of resampled windows, the same ones for both policies."""
    return np.concatenate(
        [
            _relative(own[which].mean(axis=1), other[which].mean(axis=1))
            for which in _resampled(len(own), block, resamples, seed)
        ]
    )


def resampled_means(values: Floats, block: int, resamples: int = RESAMPLES, seed: int = SEED) -> Floats:
    """Means of resampled windows."""
    return np.concatenate(
        [values[which].mean(axis=1) for which in _resampled(len(values), block, resamples, seed)]
    )


def _resampled(count: int, block: int, resamples: int, seed: int) -> Iterator[NDArray[np.int64]]:
    """Numbers of windows, a row per resample, some rows at a time."""
    size = usable_block(block, count)
    blocks = math.ceil(count / size)
    starts = np.random.default_rng(seed).integers(count, size=(resamples, blocks))
    offsets = np.arange(size)
    step = max(1, ENTRIES_AT_ONCE // count)
    for first in range(0, resamples, step):
        chosen = starts[first : first + step, :, None] + offsets
        yield chosen.reshape(len(chosen), -1)[:, :count] % count


def usable_block(block: int, count: int) -> int:
    """At most half of the windows: blocks that hold nearly all of them would hardly vary."""
    return max(1, min(block, count // 2))


def _relative(own: Floats, other: Floats) -> Floats:
    """(own - other) / abs(other), and 0 where both are the same, be it 0."""
    gap = own - other
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(gap == 0.0, 0.0, gap / np.abs(other))


def _verdict(low: float, high: float, lower_is_better: bool) -> Verdict:
    if low > 0.0:
        return "worse" if lower_is_better else "better"
    if high < 0.0:
        return "better" if lower_is_better else "worse"
    return "tie"
