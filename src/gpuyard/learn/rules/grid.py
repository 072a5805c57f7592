"""The first half of the search: native policies tried on windows, the worse ones given up early."""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np

from gpuyard.config import SimulationConfig
from gpuyard.learn.rules.config import SearchConfig
from gpuyard.policies.grammar import LARGEST_EXPONENT, PolicySpec, parse_policy
from gpuyard.simulation.window_set import FIGURES, Figures, WindowSet

AT_ONCE, AT_ONCE_WITH_HISTORY = 16, 256
"""Policies run before progress is told; with predictions from long histories, which are made anew every time,
more of them."""
WINDOWS_GROW = 3
FEWEST_KEPT = 6
MOVES = {"exponent": 1.25, "t0_s": 1.6, "k": 1.3}
"""Factors by which refining moves a number; each round takes the square root of the factors before."""
WITHOUT_ESTIMATES = ("fifo", "lifo", "smallest", "largest")

Tell = Callable[[int, int, str, float], None]
"""Told how many of how many are done, the best policy so far and its loss."""


@dataclass(frozen=True)
class Objective:
    """What makes a policy good on windows: small is better.

    Attributes:
        config: The metric and the limits.
        reference: What the reference policy reached on every window of the set.
        parts: Numbers of the windows of each part on which limits must be kept; none: on all together.
    """

    config: SearchConfig
    reference: Figures
    parts: tuple[range, ...] = ()

    def loss(
        self, figures: Figures, which: Sequence[int] | None = None, near: Figures | None = None
    ) -> float:
        """The mean logarithm of the metric, plus what is charged for exceeding limits.

        Args:
            figures: Of the policy, on the windows that ``which`` numbers.
            which: None: all.
            near: What a similar policy reached on all windows; see ``charge``.
        """
        values = figures[self.config.metric]
        # A mean wait may be 0: a second is added to it.
        offset = 1.0 if self.config.metric == "mean_wait_s" else 0.0
        return float(np.log(values + offset).mean()) + self.charge(figures, which, near)

    def charge(
        self, figures: Figures, which: Sequence[int] | None = None, near: Figures | None = None
    ) -> float:
        """What is added for exceeding limits; 0 if all are kept.

        Whether a policy keeps a limit on some windows depends on which windows these are. With ``near`` the
        figures are taken to differ from those of the similar policy on all windows as they do on these.
        """
        everything = range(len(self.reference[self.config.metric]))
        numbers = list(everything if which is None else which)
        return self.config.penalty * sum(
            self._excess(metric, limit, figures, numbers, near, part)
            for part in self.parts or (everything,)
            for metric, limit in self.limits().items()
        )

    def _excess(
        self,
        metric: str,
        limit: float,
        figures: Figures,
        numbers: Sequence[int],
        near: Figures | None,
        part: range,
    ) -> float:
        """By how much a limit is exceeded in a part, as a share of what is usual."""
        places = [place for place, number in enumerate(numbers) if number in part]
        if not places:
            return 0.0
        rows, known = [numbers[place] for place in places], self.reference[metric]
        own, usual = float(figures[metric][places].mean()), float(known[rows].mean())
        if near is not None:
            own += float(near[metric][list(part)].mean() - near[metric][rows].mean())
            usual = float(known[list(part)].mean())
        ratio = own / usual if usual > 0.0 else 1.0 + own
        return max(0.0, ratio - 1.0 - limit)

    def limits(self) -> dict[str, float]:
        """Most increase of metrics over the reference, as shares."""
        limits = {
            "mean_jct_s": self.config.max_jct_increase,
            "p99_wait_s": self.config.max_p99_wait_increase,
        }
        return {metric: limit for metric, limit in limits.items() if limit is not None}


@dataclass
class Trial:
    """A policy and what it has reached so far."""

    policy: PolicySpec
    figures: dict[int, tuple[float, ...]] = field(default_factory=dict)  # by window
    loss: float = math.inf
    charge: float = 0.0

    @property
    def windows(self) -> int:
        """On how many it was tried."""
        return len(self.figures)


@dataclass(frozen=True)
class GridResult:
    """What the grid found.

    Attributes:
        best: The policy.
        figures: What it reached on the training windows.
        trials: Everything that was tried, the best first; those given up early come last.
    """

    best: PolicySpec
    figures: Figures
    trials: tuple[Trial, ...]


def grid_policies(config: SearchConfig, simulation: SimulationConfig) -> list[PolicySpec]:
    """Orders, express lanes and backfills to try; without estimates there are only sizes and ages."""
    if simulation.estimates == "none":
        backfills = [backfill for backfill in config.backfills if backfill != "easy"] or ["greedy"]
        return [
            PolicySpec(order, backfill, None, config.placement)
            for order in WITHOUT_ESTIMATES
            for backfill in backfills
        ]
    lanes = [""] + [f"+express:{t0_s!r}:{k!r}" for t0_s in config.express_t0_s for k in config.express_k]
    return [
        parse_policy(f"power:{exponent!r}+{backfill}{lane}/{config.placement}")
        for exponent in config.exponents
        for backfill in config.backfills
        for lane in lanes
    ]


class Tournament:
    """Runs policies on windows, each at most once on each."""

    def __init__(self, windows: WindowSet, objective: Objective, threads: int | None) -> None:
        self._windows = windows
        self._objective = objective
        self._threads = threads
        self._trials: dict[str, Trial] = {}

    def trials(self) -> tuple[Trial, ...]:
        """All, the best first: those tried on more windows, then those that keep the limits."""
        return tuple(sorted(self._trials.values(), key=_standing))

    def enter(self, policies: Iterable[PolicySpec]) -> list[Trial]:
        """The trials of policies."""
        return [self._trials.setdefault(policy.name, Trial(policy)) for policy in policies]

    def run(self, trials: Sequence[Trial], which: Sequence[int], tell: Tell) -> None:
        """Bring trials up to these windows."""
        chunk = AT_ONCE_WITH_HISTORY if self._windows.predicts else AT_ONCE
        for first in range(0, len(trials), chunk):
            part = trials[first : first + chunk]
            missing = [number for number in which if any(number not in trial.figures for trial in part)]
            found = self._windows.run([trial.policy for trial in part], missing, self._threads)
            for trial, figures in zip(part, found, strict=True):
                rows = zip(*figures.values(), strict=True)
                trial.figures |= dict(zip(missing, rows, strict=True))
                self._judge(trial)
            leader = min(trials[: first + len(part)], key=_standing)
            tell(first + len(part), len(trials), leader.policy.name, leader.loss)

    def rounds(self, policies: Sequence[PolicySpec], config: SearchConfig, tell: Tell) -> list[Trial]:
        """Try all on a few windows, the better part on more, and so on; returns the last part."""
        trials = self.enter(policies)
        count = config.first_windows
        while True:
            self.run(trials, self._windows.spread(count), tell)
            if count >= len(self._windows):
                return trials
            trials = sorted(trials, key=lambda trial: (trial.loss, trial.policy.name))
            trials = trials[: max(FEWEST_KEPT, math.ceil(len(trials) * config.kept_share))]
            count *= WINDOWS_GROW

    def figures_of(self, trial: Trial) -> Figures:
        """What a policy reached, window by window."""
        numbers = sorted(trial.figures)
        table = np.array([trial.figures[number] for number in numbers])
        return {name: table[:, i] for i, name in enumerate(FIGURES)}

    def _judge(self, trial: Trial) -> None:
        numbers = sorted(trial.figures)
        figures = self.figures_of(trial)
        trial.loss = self._objective.loss(figures, numbers)
        trial.charge = self._objective.charge(figures, numbers)


def _standing(trial: Trial) -> tuple[int, bool, float, str]:
    return (-trial.windows, trial.charge > 0.0, trial.loss, trial.policy.name)


def search_grid(
    windows: WindowSet, objective: Objective, policies: Sequence[PolicySpec], config: SearchConfig, tell: Tell
) -> GridResult:
    """The best of the policies on the training windows, its numbers refined."""
    tournament = Tournament(windows, objective, config.threads)
    best = min(tournament.rounds(policies, config, tell), key=_standing)
    for round_number in range(config.refinements):
        near = tournament.enter(neighbours(best.policy, 0.5 ** (round_number // 2)))
        tournament.run(near, range(len(windows)), tell)
        best = min([best, *near], key=_standing)
    return GridResult(best.policy, tournament.figures_of(best), tournament.trials())


def neighbours(policy: PolicySpec, power: float) -> list[PolicySpec]:
    """Policies whose numbers differ a little, one at a time.

    Args:
        policy: Whose numbers are moved.
        power: Of the factors in ``MOVES``; less than 1 makes smaller moves.
    """
    if policy.order_name != "power":
        return []
    lane = policy.admission
    numbers = {"exponent": policy.order_parameter} | ({"t0_s": lane.t0_s, "k": lane.k} if lane else {})
    near = []
    for name, value in numbers.items():
        for sign in (-1.0, 1.0):
            moved = {**numbers, name: float(f"{value * MOVES[name] ** (sign * power):.3g}")}
            if moved["exponent"] <= LARGEST_EXPONENT:
                near.append(_with_numbers(policy, moved))
    return near


def _with_numbers(policy: PolicySpec, numbers: dict[str, float]) -> PolicySpec:
    lane = f"+express:{numbers['t0_s']!r}:{numbers['k']!r}" if "k" in numbers else ""
    name = f"power:{numbers['exponent']!r}+{policy.backfill}{lane}/{policy.placement}"
    return parse_policy(name.replace("e+", "e"))
