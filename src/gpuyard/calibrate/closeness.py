"""How close simulated waits come to recorded ones, in figures and in a word (docs/guide/calibrate.md)."""

import math
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gpuyard.policies.calibrated import Verdict

Floats = NDArray[np.float64]

NEAR_SHARE = 0.1
"""A wait that is so near the recorded one, as a share of it, counts as the same."""
NEAR_S = 60.0
"""So does one that is this near."""
LEAST_GRAIN_S = 3.0
"""No scheduler starts jobs at once: real ones take a second or two."""
STEPS_S = (3600.0, 600.0, 60.0, 10.0, 1.0)
FEWEST_STEPS = 12
"""Mean waits are by hour, or by less where there are fewer hours than this."""
FEWEST_CORRELATED = 3
QUARTERS = 4
TENTHS = 10
BEYOND_CHANCE = 2.0
"""Standard errors by which a policy must fit better than another."""


@dataclass(frozen=True)
class Bounds:
    """What a verdict asks for.

    Attributes:
        share_near: Least share of jobs within 10 % or a grain.
        factor: Most by which mean waits may differ.
        correlation: Least correlation of mean waits by hour, where there is one.
    """

    share_near: float
    factor: float
    correlation: float


BOUNDS: dict[Verdict, Bounds] = {"good": Bounds(0.7, 1.25, 0.8), "fair": Bounds(0.4, 2.0, 0.5)}
"""What is neither is poor."""


@dataclass(frozen=True)
class Closeness:
    """How close a policy's waits come to those that a log recorded.

    Attributes:
        jobs: That were compared.
        misfit: What a search minimises (``Misfit``).
        median_error_s: Of |simulated - recorded| over jobs.
        p90_error_s: Its 90th percentile.
        mean_recorded_s: Mean recorded wait.
        mean_simulated_s: Mean simulated wait.
        wait_ratio: Simulated mean wait over the recorded one; None if nobody waited.
        correlation: Of mean waits by ``step_s``; None where recorded ones do not change.
        step_s: An hour, or less on short logs.
        share_within: Of jobs whose wait is within 10 % or 60 s of the recorded one.
        share_near: The same with a grain instead of 60 s.
        grain_s: Waits are told apart no finer than this.
        least_difference: Relative error of the mean wait over quarters of the jobs: root mean square.
        verdict: In a word.
    """

    jobs: int
    misfit: float
    median_error_s: float
    p90_error_s: float
    mean_recorded_s: float
    mean_simulated_s: float
    wait_ratio: float | None
    correlation: float | None
    step_s: float
    share_within: float
    share_near: float
    grain_s: float
    least_difference: float
    verdict: Verdict

    def to_json(self) -> dict[str, Any]:
        """As JSON-ready values."""
        return asdict(self)


def grain_of(recorded_s: Floats) -> float:
    """Below which differences of waits do not matter: a tenth of the mean wait, from 3 to 60 s."""
    return float(np.clip(recorded_s.mean() / 10, LEAST_GRAIN_S, NEAR_S))


@dataclass(frozen=True)
class Misfit:
    """How badly waits fit, by tenths of the jobs: a search minimises the value.

    By job, few very long waits do not outweigh all others, as they would in a mean error in seconds, and
    jobs that hardly wait still count, which a median would not notice. But a policy may have most jobs right
    and the few that make up the mean wait wrong; so means of tenths count as much.

    Attributes:
        by_job: Mean over jobs of |log(simulated + grain) - log(recorded + grain)|, of each tenth.
        of_mean: log(mean simulated wait + grain) - log(mean recorded one + grain), of each tenth.
    """

    by_job: Floats
    of_mean: Floats

    @property
    def value(self) -> float:
        """The mean by job, and the root mean square of means."""
        return float(self.by_job.mean() + math.sqrt((self.of_mean**2).mean()))

    def is_below(self, other: "Misfit", least_gain: float) -> bool:
        """Whether it fits better than another by a share, and beyond chance (jackknife over tenths)."""
        gain = other.value - self.value
        if gain <= least_gain * other.value:
            return False
        count = len(self.by_job)
        without = [other._without(part).value - self._without(part).value for part in range(count)]
        variance = (count - 1) * float(np.var(without))
        return gain > BEYOND_CHANCE * math.sqrt(variance)

    def _without(self, part: int) -> "Misfit":
        return Misfit(np.delete(self.by_job, part), np.delete(self.of_mean, part))


def misfit(recorded_s: Floats, simulated_s: Floats, grain_s: float) -> Misfit:
    """How badly waits of jobs, at least two and in order of submit, fit recorded ones."""
    apart = np.abs(np.log(simulated_s + grain_s) - np.log(recorded_s + grain_s))
    parts = np.array_split(np.arange(len(apart)), min(TENTHS, len(apart)))
    return Misfit(
        np.array([apart[part].mean() for part in parts]),
        np.array([_apart(recorded_s[part], simulated_s[part], grain_s) for part in parts]),
    )


def share_near(recorded_s: Floats, simulated_s: Floats, near_s: float) -> float:
    """Share of jobs whose wait is within 10 % or ``near_s`` of the recorded one."""
    allowed = np.maximum(NEAR_SHARE * recorded_s, near_s)
    return float((np.abs(simulated_s - recorded_s) <= allowed).mean())


def step_of(submit_s: Floats) -> float:
    """The span that mean waits are taken over: an hour, or less if there are too few hours."""
    span_s = float(np.ptp(submit_s))
    return next((step for step in STEPS_S if span_s >= FEWEST_STEPS * step), STEPS_S[-1])


def means_by_step(submit_s: Floats, wait_s: Floats, step_s: float) -> tuple[Floats, Floats]:
    """Begins of the spans in which jobs were submitted, and the mean wait of these jobs."""
    number = np.floor(submit_s / step_s).astype(np.int64)
    spans, index = np.unique(number, return_inverse=True)
    means: Floats = np.bincount(index, weights=wait_s) / np.bincount(index)
    begins: Floats = spans.astype(np.float64) * step_s
    return begins, means


def correlation(recorded: Floats, simulated: Floats, grain_s: float) -> float | None:
    """Pearson's of mean waits; None where there are few or recorded ones vary by less than a grain."""
    if len(recorded) < FEWEST_CORRELATED or recorded.std() < grain_s:
        return None
    if simulated.std() == 0.0:
        return 0.0
    return float(np.clip(np.corrcoef(recorded, simulated)[0, 1], -1.0, 1.0))


def least_difference(recorded_s: Floats, simulated_s: Floats, grain_s: float) -> float:
    """By how much mean waits of a quarter of the jobs are off: root mean square, as a share."""
    parts = np.array_split(np.arange(len(recorded_s)), min(QUARTERS, len(recorded_s)))
    apart = [_apart(recorded_s[part], simulated_s[part], grain_s) for part in parts]
    return math.expm1(math.sqrt(sum(one**2 for one in apart) / len(apart)))


def _apart(recorded_s: Floats, simulated_s: Floats, grain_s: float) -> float:
    """The logarithm of the ratio of mean waits, a grain added to each."""
    return math.log((float(simulated_s.mean()) + grain_s) / (float(recorded_s.mean()) + grain_s))


def closeness(submit_s: Floats, recorded_s: Floats, simulated_s: Floats, grain_s: float) -> Closeness:
    """How close waits come to recorded ones.

    Args:
        submit_s: Of the jobs that are compared, at least one, ascending.
        recorded_s: Their recorded waits.
        simulated_s: Their simulated waits.
        grain_s: Waits are told apart no finer than this.
    """
    error = np.abs(simulated_s - recorded_s)
    step_s = step_of(submit_s)
    _, by_step = means_by_step(submit_s, recorded_s, step_s)
    _, simulated_by_step = means_by_step(submit_s, simulated_s, step_s)
    correlated = correlation(by_step, simulated_by_step, grain_s)
    near = share_near(recorded_s, simulated_s, grain_s)
    recorded, simulated = float(recorded_s.mean()), float(simulated_s.mean())
    return Closeness(
        jobs=len(submit_s),
        misfit=misfit(recorded_s, simulated_s, grain_s).value,
        median_error_s=float(np.median(error)),
        p90_error_s=float(np.quantile(error, 0.9)),
        mean_recorded_s=recorded,
        mean_simulated_s=simulated,
        wait_ratio=simulated / recorded if recorded > 0 else None,
        correlation=correlated,
        step_s=step_s,
        share_within=share_near(recorded_s, simulated_s, NEAR_S),
        share_near=near,
        grain_s=grain_s,
        least_difference=least_difference(recorded_s, simulated_s, grain_s),
        verdict=verdict(near, math.exp(abs(_apart(recorded_s, simulated_s, grain_s))), correlated),
    )


def verdict(near: float, factor: float, correlated: float | None) -> Verdict:
    """Good, fair or poor: the first of which all bounds are kept."""
    for name, bounds in BOUNDS.items():
        varies_alike = correlated is None or correlated >= bounds.correlation
        if near >= bounds.share_near and factor <= bounds.factor and varies_alike:
            return name
    return "poor"
