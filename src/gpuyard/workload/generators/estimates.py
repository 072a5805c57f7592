"""What users ask for: too much, in round numbers, and sometimes too little."""

import numpy as np

from gpuyard.workload.generators.draws import Floats, exponentials, uniforms

_ESTIMATE_STREAM = 21
_IS_SHORT_STREAM = 22
_SHORTFALL_STREAM = 23

_MINUTE, _HOUR, _DAY = 60, 3600, 86_400
ROUND_TIMES_S = (
    *(_MINUTE * n for n in (1, 5, 10, 15, 20, 30, 45)),
    *(_HOUR * n for n in (1, 2, 3, 4, 6, 8, 10, 12, 18)),
    *(_DAY * n for n in (1, 2, 3, 4, 5, 7, 10, 14, 21, 30)),
)
"""Times that people ask for; above the last one whole multiples of it."""


def draw_estimates(
    seed: int, durations: Floats, mean_factor: float, short_share: float, round_times: bool
) -> Floats:
    """Requested run times, seconds.

    Args:
        seed: Key of the draws.
        durations: True run times, seconds.
        mean_factor: Mean of estimate / duration before rounding, of jobs that do not ask for too little.
            A job's own factor is 1 + (mean_factor - 1) times an exponential draw of mean 1.
        short_share: Share of jobs that ask for too little: for 20 % to 100 % of their run time, uniformly.
        round_times: Round to ``ROUND_TIMES_S``: up, or down for those that ask for too little.
    """
    excess = exponentials(seed, _ESTIMATE_STREAM, len(durations))
    estimates: Floats = durations * (1.0 + (mean_factor - 1.0) * excess)
    short = np.zeros(len(durations), dtype=bool)
    if short_share:
        short = uniforms(seed, _IS_SHORT_STREAM, len(durations)) < short_share
        shortfall = durations * (0.2 + 0.8 * uniforms(seed, _SHORTFALL_STREAM, len(durations)))
        estimates = np.where(short, shortfall, estimates)
    if round_times:
        estimates = np.where(short, rounded_down(estimates), rounded_up(estimates))
    return estimates


def rounded_up(times_s: Floats) -> Floats:
    """The next round time."""
    ladder = np.array(ROUND_TIMES_S, dtype=np.float64)
    place = np.searchsorted(ladder, times_s, side="left")
    beyond = np.ceil(times_s / ladder[-1]) * ladder[-1]
    return np.where(place < len(ladder), ladder[np.minimum(place, len(ladder) - 1)], beyond)


def rounded_down(times_s: Floats) -> Floats:
    """The last round time before; what lies below the first stays as it is."""
    ladder = np.array(ROUND_TIMES_S, dtype=np.float64)
    place = np.searchsorted(ladder, times_s, side="right") - 1
    beyond = np.floor(times_s / ladder[-1]) * ladder[-1]
    down = np.where(place < len(ladder) - 1, ladder[np.maximum(place, 0)], beyond)
    return np.where(place < 0, times_s, down)
