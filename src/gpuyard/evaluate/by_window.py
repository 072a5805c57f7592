"""Whether a few windows carry a difference: a comparison looked at window by window."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from gpuyard.evaluate.comparison import Comparison


@dataclass(frozen=True)
class ByWindow:
    """A policy against the reference, window by window.

    Attributes:
        ahead: Windows in which it is better.
        behind: Windows in which it is worse.
        windows: How many there are.
        median: Relative difference in the median window.
        without_best: Relative difference of means without the window that favours the policy most.
    """

    ahead: int
    behind: int
    windows: int
    median: float
    without_best: float


def by_window(comparison: Comparison, policies: Sequence[str]) -> ByWindow | None:
    """How policies did in single windows.

    Args:
        comparison: Whose windows.
        policies: Names; of several the mean in every window counts.

    Returns:
        None if there are fewer than three windows, or nothing to compare with.
    """
    setting, reference = comparison.setting, comparison.reference
    count = len(setting.windows)
    if reference is None or reference in policies or count < 3:
        return None
    own = np.mean([comparison.values(name) for name in policies], axis=0)
    other = comparison.values(reference)
    if not (np.isfinite(own).all() and (other > 0).all()):
        return None
    sign = 1.0 if setting.lower_is_better else -1.0
    without = [np.delete(own, i).mean() / np.delete(other, i).mean() - 1.0 for i in range(count)]
    return ByWindow(
        ahead=int((sign * own < sign * other).sum()),
        behind=int((sign * own > sign * other).sum()),
        windows=count,
        median=float(np.median(own / other - 1.0)),
        without_best=float(max(without, key=lambda ratio: sign * ratio)),
    )
