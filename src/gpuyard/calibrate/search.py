"""The search: policies by name, then numbers of nodes, then settings, each replayed on the first half."""

import random
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from gpuyard.calibrate.candidates import MULTIFACTOR, Candidate, variations
from gpuyard.calibrate.closeness import Misfit, misfit
from gpuyard.calibrate.config import CalibrationConfig
from gpuyard.calibrate.halves import Halves, OutOfTimeError, replay
from gpuyard.cluster.model import Cluster
from gpuyard.cluster.scaling import scale_cluster
from gpuyard.config import SimulationConfig
from gpuyard.errors import InputError
from gpuyard.units import duration

Stage = Literal["policies", "nodes", "settings"]
Progress = Callable[[str, int, int, str], None]
"""Told the stage, how many of its trials are done, how many there are at most, and a remark."""

LEAST_GAIN = 0.005
"""What comes later must fit better by this share: of equally good policies the plainest is kept."""
LEAST_NODE_GAIN = 0.02
"""The same of another number of nodes than the given one."""
WORSE_IN_A_ROW = 2
"""Sizes of a cluster that fit worse, after which no further ones are tried that way."""
WORTH_FITTING = 1.5
"""The best multifactor is fitted too if its misfit is at most so many times the best one."""
LARGEST_PART = 0.34
"""Of the time that is left, for one trial."""


@dataclass(frozen=True)
class Trial:
    """A policy on a cluster, and how well it fits the first half.

    Attributes:
        candidate: The policy.
        cluster: What it ran on.
        fit: How well it fits.
        stage: When it was tried.
        elapsed_s: How long that took.
    """

    candidate: Candidate
    cluster: Cluster
    fit: Misfit
    stage: Stage
    elapsed_s: float

    @property
    def misfit(self) -> float:
        """The same as one number."""
        return self.fit.value

    def beats(self, other: "Trial") -> bool:
        """Whether it fits better, beyond chance and by a share that is worth another policy."""
        return self.fit.is_below(other.fit, LEAST_NODE_GAIN if self.stage == "nodes" else LEAST_GAIN)

    def to_json(self) -> dict[str, Any]:
        """As JSON-ready values."""
        return {
            "policy": self.candidate.label,
            "settings": self.candidate.settings,
            "nodes": self.cluster.node_count,
            "misfit": self.misfit,
            "stage": self.stage,
            "elapsed_s": self.elapsed_s,
        }


class Search:
    """Tries policies on the first half of a log within limits of time and number.

    Attributes:
        trials: What was tried.
        skipped: Why policies were not, by label.

    Args:
        halves: The log.
        config: Settings that all policies share.
        limits: How long and for what to search.
        grain_s: Waits are told apart no finer than this.
        progress: Told how far it is.
    """

    def __init__(
        self,
        halves: Halves,
        config: SimulationConfig,
        limits: CalibrationConfig,
        grain_s: float,
        progress: Progress | None = None,
    ) -> None:
        self.trials: list[Trial] = []
        self.skipped: dict[str, str] = {}
        self._halves, self._config, self._limits, self._grain_s = halves, config, limits, grain_s
        self._progress = progress
        self._end_s = time.monotonic() + 60 * limits.minutes

    @property
    def is_over(self) -> bool:
        """Whether time or trials are used up, or nothing can fit better."""
        used = len(self.trials) >= self._limits.trials or time.monotonic() >= self._end_s
        return used or (bool(self.trials) and self.best().misfit == 0.0)

    def best(self, among: Sequence[Trial] | None = None) -> Trial:
        """The trial that fits best; an earlier one unless a later one is clearly better."""
        trials = self.trials if among is None else among
        found = trials[0]
        for one in trials[1:]:
            if one.beats(found):
                found = one
        return found

    def try_policies(self, candidates: Sequence[Candidate], cluster: Cluster) -> None:
        """Try each on a cluster. The very first of all must run: what comes later has to beat it.

        Raises:
            InputError: if the first cannot.
        """
        for number, one in enumerate(candidates):
            self._tell("policies", number, len(candidates))
            places = [trial.cluster for trial in self.trials if trial.candidate is one]
            if self.trials and self.is_over:
                if not places:
                    self.skipped.setdefault(one.label, "no time or trials were left")
            elif all(place is not cluster for place in places):
                self._try(one, cluster, "policies", must_run=not self.trials)
        self._tell("policies", len(candidates), len(candidates))

    def try_sizes(self, cluster: Cluster) -> None:
        """Try the best policies on other numbers of nodes."""
        factors = sorted({*self._limits.node_factors} - {1.0})
        ways = [[one for one in factors if one < 1.0][::-1], [one for one in factors if one > 1.0]]
        leaders = self._leaders()
        total = len(leaders) * len(factors)
        for place, leader in enumerate(leaders):
            for way, chosen in enumerate(ways):
                self._try_way(leader, cluster, chosen)
                done = place * len(factors) + (len(ways[0]) if way == 0 else len(factors))
                self._tell("nodes", done, total)

    def _try_way(self, leader: Trial, cluster: Cluster, factors: Sequence[float]) -> None:
        least, worse, nodes = leader.misfit, 0, {cluster.node_count}
        for factor in factors:
            try:
                scaled = scale_cluster(cluster, factor)
            except InputError as error:
                self.skipped[f"{factor:g} times the nodes"] = str(error)
                continue
            if scaled.node_count in nodes or self.is_over or worse == WORSE_IN_A_ROW:
                continue
            nodes.add(scaled.node_count)
            trial = self._try(leader.candidate, scaled, "nodes")
            worse = worse + 1 if trial is None or trial.misfit >= least else 0
            least = least if trial is None else min(least, trial.misfit)

    def fit_settings(self) -> None:
        """Vary the settings of the best policies, one at a time and in random order, while that helps."""
        chance = random.Random(self._limits.search_seed)
        for leader in self._leaders():
            improves = True
            while improves and not self.is_over:
                leader, improves = self._one_round(leader, chance)
        self._tell("settings", self._limits.trials, self._limits.trials)

    def _one_round(self, leader: Trial, chance: random.Random) -> tuple[Trial, bool]:
        """Each setting once: the best trial so far, and whether it is a new one."""
        first, cluster, jobs = leader, leader.cluster, self._halves.first
        names = list(variations(leader.candidate, self._config, jobs, cluster))
        chance.shuffle(names)
        for name in names:
            for value in variations(leader.candidate, self._config, jobs, cluster).get(name, ()):
                if self.is_over:
                    return leader, False
                self._tell("settings", len(self.trials), self._limits.trials)
                trial = self._try(leader.candidate.varied(**{name: value}), cluster, "settings")
                if trial is not None and trial.beats(leader):
                    leader = trial
        return leader, leader is not first

    def _leaders(self) -> list[Trial]:
        """The best trial, and the best of multifactor if it is another and comes near."""
        best = self.best()
        others = [one for one in self.trials if one.candidate.policy.order == MULTIFACTOR]
        if not others or best.candidate.policy.order == MULTIFACTOR:
            return [best]
        second = self.best(others)
        return [best, second] if second.misfit <= WORTH_FITTING * best.misfit else [best]

    def _try(self, one: Candidate, cluster: Cluster, stage: Stage, *, must_run: bool = False) -> Trial | None:
        halves, began = self._halves, time.monotonic()
        limit_s = None if must_run else max(0.0, LARGEST_PART * (self._end_s - began))
        try:
            found = replay(halves.first, cluster, one.policy, self._config, limit_s)
        except OutOfTimeError:
            self.skipped[one.label] = f"gave up after {duration(limit_s or 0.0)}"
            return None
        except InputError as error:
            if must_run:
                raise
            self.skipped[one.label] = str(error)
            return None
        rows = halves.searched
        value = misfit(halves.recorded_s[rows], found.of(rows), self._grain_s)
        trial = Trial(one, cluster, value, stage, time.monotonic() - began)
        self.trials.append(trial)
        return trial

    def _tell(self, stage: Stage, done: int, total: int) -> None:
        if self._progress is not None:
            remark = f"best so far {self.best().candidate.label}" if self.trials else ""
            self._progress(stage, done, total, remark)
