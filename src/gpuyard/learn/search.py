"""The fourth trainer: a grid over native policies, then CMA-ES over a linear score and gate.

docs/algorithms/search.md says what it does and how to read what it finds. Nothing here needs torch.
"""

import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal

import numpy as np

from gpuyard.cluster.model import Cluster
from gpuyard.config import SimulationConfig
from gpuyard.errors import InputError
from gpuyard.learn.rules.cma import Generation, Held, RuleRunner, TunedRule, tune
from gpuyard.learn.rules.config import SearchConfig
from gpuyard.learn.rules.grid import (
    GridResult,
    Objective,
    Tournament,
    grid_policies,
    search_grid,
)
from gpuyard.learn.rules.rule import RuleModel, Units, rule_of, steps_of
from gpuyard.observation.config import EnvConfig
from gpuyard.policies.family import fixed_heuristics
from gpuyard.policies.grammar import PolicySpec, parse_policy
from gpuyard.simulation.windows import FIGURES, Figures, Part, WindowSet
from gpuyard.workload import Workload

__all__ = ["SearchConfig", "SearchProgress", "SearchResult", "search"]

Stage = Literal["heuristics", "grid", "rule"]
Choice = Literal["heuristic", "grid", "rule"]
TIE = 0.02
"""Heuristics whose mean logarithms of the metric differ by less are alike: the reference is the one of them
with the least mean completion time, which makes its limit the tightest."""


@dataclass(frozen=True)
class SearchProgress:
    """Where a search is.

    Attributes:
        stage: What is being tried.
        done: Policies tried in this round, or generations.
        total: Of how many.
        best: Name of the best policy so far; of rules, ``rule``.
        loss: Its loss on the windows that it was tried on.
        generation: Of CMA-ES, in that stage.
    """

    stage: Stage
    done: int
    total: int
    best: str
    loss: float
    generation: Generation | None = None


Progress = Callable[[SearchProgress], None]


@dataclass(frozen=True)
class Judged:
    """A policy on the training and the validation windows.

    Attributes:
        name: Of the policy, or ``rule``.
        train_loss: The objective on the training windows.
        validation_loss: The same on the validation windows.
        train: Mean metrics by name.
        validation: The same.
    """

    name: str
    train_loss: float
    validation_loss: float
    train: dict[str, float]
    validation: dict[str, float]


@dataclass(frozen=True)
class SearchResult:
    """What a search found.

    Attributes:
        chosen: The kind of policy to use: the simplest that is not clearly worse on the validation windows.
        reference: Full name of the best fixed heuristic, from which limits are counted.
        grid_policy: Full name of the best policy of the grid.
        judged: All three (two without CMA-ES) on both sets of windows, by kind.
        grid_rule: The grid's policy as a rule: what CMA-ES and networks start from.
        rule: What CMA-ES made of it; None without CMA-ES.
        history: Its generations.
        grid: What was tried first: name, windows, loss and charge for exceeding limits, the best first.
        seconds: Wall time of each stage.
    """

    chosen: Choice
    reference: str
    grid_policy: str
    judged: Mapping[Choice, Judged]
    grid_rule: RuleModel
    rule: RuleModel | None
    history: tuple[Generation, ...]
    grid: tuple[tuple[str, int, float, float], ...]
    seconds: Mapping[str, float]

    @property
    def policy(self) -> str | None:
        """Name of the chosen policy; None if it is a rule."""
        return {"heuristic": self.reference, "grid": self.grid_policy, "rule": None}[self.chosen]

    @property
    def best_rule(self) -> RuleModel:
        """The rule to start a network from: what CMA-ES made, if that was chosen, else the grid's policy."""
        return self.rule if self.chosen == "rule" and self.rule is not None else self.grid_rule

    def summary(self) -> dict[str, Any]:
        """As JSON-ready values, without weights."""
        return {
            "chosen": self.chosen,
            "reference": self.reference,
            "grid_policy": self.grid_policy,
            "judged": {kind: asdict(one) for kind, one in self.judged.items()},
            "generations": len(self.history) - 1 if self.history else 0,
            "seconds": dict(self.seconds),
        }


def search(
    workload: Workload,
    cluster: Cluster,
    config: SearchConfig | None = None,
    simulation: SimulationConfig | None = None,
    *,
    progress: Progress | None = None,
) -> SearchResult:
    """Search for a rule that fares well on a workload.

    Args:
        workload: All jobs; those of the last 20 % of its time are not looked at.
        cluster: What they run on.
        config: How to search.
        simulation: Settings of the simulation.
        progress: Told now and then where the search is.

    Raises:
        InputError: if there are too few jobs, or settings that environments do not offer.
    """
    job = _Search(workload, cluster, config or SearchConfig(), simulation or SimulationConfig(), progress)
    return job.run()


class _Search:
    def __init__(
        self,
        workload: Workload,
        cluster: Cluster,
        config: SearchConfig,
        simulation: SimulationConfig,
        progress: Progress | None,
    ) -> None:
        self._workload, self._cluster = workload, cluster
        self._config, self._simulation = config, simulation
        self._progress = progress or (lambda _: None)
        self._seconds: dict[str, float] = {}
        if not any(group.gpus for group in cluster.nodes):
            raise InputError(f"cluster {cluster.name} has no GPUs; a rule shares out GPUs")

    def run(self) -> SearchResult:
        train, validation = self._timed("windows", self._windows)
        reference = self._timed("heuristics", lambda: self._reference(train))
        reached = [
            windows.run([reference], threads=self._config.threads)[0] for windows in (train, validation)
        ]
        on_train, on_validation = (
            Objective(self._config, {**figures, **self._limited(windows)})
            for figures, windows in zip(reached, (train, validation), strict=True)
        )
        found = self._timed("grid", lambda: self._found(train, validation, on_train, on_validation))
        seen = validation.run([found.best], threads=self._config.threads)[0]
        judged: dict[Choice, Judged] = {
            "heuristic": _judged(reference.name, (reached[0], reached[1]), on_train, on_validation),
            "grid": _judged(found.best.name, (found.figures, seen), on_train, on_validation),
        }
        held = (
            Held(self._runner(found.best, "train"), train.rows, on_train),
            Held(self._runner(found.best, "validation"), validation.rows, on_validation),
        )
        start = rule_of(found.best, self._cluster.total_gpus, some_unknown=self._some_unknown)
        tuned = (
            self._timed("rule", lambda: self._tune(found.best, held)) if self._config.generations else None
        )
        if tuned is not None:
            figures = tuple(one.runner.run([tuned.rule], one.rows)[0] for one in held)
            judged["rule"] = _judged("rule", (figures[0], figures[1]), on_train, on_validation)
        return SearchResult(
            chosen=_choose(judged, self._config.least_gain),
            reference=reference.name,
            grid_policy=found.best.name,
            judged=judged,
            grid_rule=held[0].runner.model_of(start),
            rule=held[0].runner.model_of(tuned.rule) if tuned else None,
            history=tuned.history if tuned else (),
            grid=tuple((t.policy.name, t.windows, t.loss, t.charge) for t in found.trials),
            seconds=dict(self._seconds),
        )

    def _found(
        self, train: WindowSet, validation: WindowSet, on_train: Objective, on_validation: Objective
    ) -> GridResult:
        """What the grid found, with its figures on the training windows."""
        if self._config.grid_on == "train":
            return self._grid(train, on_train)
        known = {
            name: np.concatenate([on_train.reference[name], on_validation.reference[name]])
            for name in on_train.reference
        }
        count = len(train)
        parts = (range(count), range(count, count + len(validation)))
        found = self._grid(train.joined(validation), Objective(self._config, known, parts))
        return replace(found, figures={name: values[:count] for name, values in found.figures.items()})

    def _limited(self, windows: WindowSet) -> Figures:
        """What limits are counted from, if not from the reference."""
        if self._config.limits_from is None:
            return {}
        policy = replace(parse_policy(self._config.limits_from), placement=self._config.placement)
        figures = windows.run([policy], threads=self._config.threads)[0]
        return {metric: figures[metric] for metric in ("mean_jct_s", "p99_wait_s")}

    def _timed(self, stage: str, work: Callable[[], Any]) -> Any:
        began = time.perf_counter()
        answer = work()
        self._seconds[stage] = time.perf_counter() - began
        return answer

    def _windows(self) -> tuple[WindowSet, WindowSet]:
        config = self._config
        train, validation = (
            WindowSet.of(
                self._workload,
                self._cluster,
                self._simulation,
                part,
                count=count,
                jobs=config.jobs_per_window,
                placement=config.placement,
            )
            for part, count in _counts(config)
        )
        return train, validation

    def _tell(self, stage: Stage) -> Callable[[int, int, str, float], None]:
        return lambda done, total, best, loss: self._progress(SearchProgress(stage, done, total, best, loss))

    def _reference(self, train: WindowSet) -> PolicySpec:
        """The best fixed heuristic on the training windows."""
        free = self._config.model_copy(update={"max_jct_increase": None, "max_p99_wait_increase": None})
        nothing: Figures = {name: np.ones(len(train)) for name in FIGURES}
        tournament = Tournament(train, Objective(free, nothing), self._config.threads)
        policies = fixed_heuristics(self._cluster, self._simulation, self._config.placement)
        last = tournament.rounds(policies, self._config, self._tell("heuristics"))
        least = min(trial.loss for trial in last)
        alike = [trial for trial in last if trial.loss <= least + TIE]
        return min(alike, key=lambda t: float(tournament.figures_of(t)["mean_jct_s"].mean())).policy

    def _grid(self, train: WindowSet, objective: Objective) -> GridResult:
        policies = grid_policies(self._config, self._simulation)
        return search_grid(train, objective, policies, self._config, self._tell("grid"))

    @property
    def _some_unknown(self) -> bool:
        if self._simulation.estimates == "requested":
            return self._workload.frame["estimate_s"].null_count() > 0
        return self._simulation.estimates == "history"

    def _runner(self, base: PolicySpec, part: Literal["train", "validation"]) -> RuleRunner:
        environment = EnvConfig(
            base_policy=base.name,
            window=self._config.rows,
            jobs_per_episode=self._config.jobs_per_window,
            tokens="classes",
            lookahead="off",
            simulation=self._simulation,
        )
        return RuleRunner(self._workload, self._cluster, environment, part, self._config.threads)

    def _tune(self, base: PolicySpec, held: tuple[Held, Held]) -> TunedRule:
        gpus, total = self._cluster.total_gpus, self._config.generations
        told = self._simulation.estimates != "none"
        start = rule_of(base, gpus, some_unknown=self._some_unknown)
        steps = steps_of(Units.of(self._workload, self._cluster), told=told, some_unknown=self._some_unknown)

        def tell(generation: Generation) -> None:
            said = SearchProgress("rule", generation.number, total, "rule", generation.loss, generation)
            self._progress(said)

        return tune(start, steps, *held, self._config, tell)


def _counts(config: SearchConfig) -> tuple[tuple[Part, int], ...]:
    return (("train", config.train_windows), ("validation", config.validation_windows))


def _judged(
    name: str, figures: tuple[Figures, Figures], on_train: Objective, on_validation: Objective
) -> Judged:
    means = [{metric: float(values.mean()) for metric, values in one.items()} for one in figures]
    return Judged(name, on_train.loss(figures[0]), on_validation.loss(figures[1]), *means)


def _choose(judged: Mapping[Choice, Judged], least_gain: float) -> Choice:
    """The simplest, unless a more complicated one is better by ``least_gain`` on the validation windows."""
    chosen: Choice = "heuristic"
    for kind, one in judged.items():
        if one.validation_loss <= judged[chosen].validation_loss - least_gain:
            chosen = kind
    return chosen
