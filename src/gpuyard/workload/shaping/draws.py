"""Random draws keyed by a job's original row, so that they are the same in every slice of a trace.

The same function as the core's (docs/contract/simulator.md, section 2), for many rows at once and any row
numbers.
"""

import numpy as np
from numpy.typing import NDArray

THIN_STREAM = 8
DAY_STREAM = 9
ESTIMATE_STREAM = 10
WIDEN_STREAM = 11
WIDTH_STREAM = 12

_Words = NDArray[np.uint64]


def uniforms_by_row(seed: int, stream: int, row: NDArray[np.int64]) -> NDArray[np.float64]:
    """For each row ``uniform(seed, stream, row, 0)``, in [0, 1)."""
    key = _mix(_mix(np.array([seed], np.uint64)) ^ np.uint64(stream))
    drawn = _mix(_mix(key ^ row.astype(np.uint64)))
    uniform: NDArray[np.float64] = (drawn >> np.uint64(11)).astype(np.float64) * 2.0**-53
    return uniform


def _mix(words: _Words) -> _Words:
    """splitmix64."""
    with np.errstate(over="ignore"):
        words = words + np.uint64(0x9E3779B97F4A7C15)
        words = (words ^ (words >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        words = (words ^ (words >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return words ^ (words >> np.uint64(31))
