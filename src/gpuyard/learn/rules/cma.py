"""CMA-ES over the weights of a rule, whole windows run natively."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np

from gpuyard.learn.rules.config import SearchConfig
from gpuyard.learn.rules.covariance import covariance_strategy
from gpuyard.learn.rules.grid import Objective
from gpuyard.learn.rules.rule import Rule, RuleModel
from gpuyard.network.config import NetworkConfig
from gpuyard.network.rollout import EpisodeResults, EpisodeRunner, native_network
from gpuyard.network.sizes import NetworkSizes
from gpuyard.observation.config import EnvConfig
from gpuyard.observation.episodes import find_source
from gpuyard.observation.spec import EnvModel
from gpuyard.simulation.windows import FIGURES, Figures, Part
from gpuyard.workload import Workload

KIND = "select-job"
NETWORK = NetworkConfig(kind="rule")


class RuleRunner:
    """Runs rules on windows of one part of a workload.

    Args:
        workload: All jobs.
        cluster: What they run on.
        environment: Its base policy orders the window and places jobs.
        part: Of the workload.
        threads: None: one a processor.
    """

    def __init__(
        self, workload: Workload, cluster: Any, environment: EnvConfig, part: Part, threads: int | None
    ) -> None:
        self.environment = environment
        config = environment.model_copy(update={"split": part})
        self._model = EnvModel(KIND, config, find_source(KIND, config, workload, None, cluster))
        self._runner = EpisodeRunner(self._model, threads)
        self.sizes = NetworkSizes.of(self._model)
        self._columns = (self._model.parts["jobs"].names, self._model.parts["globals"].names)

    def run(self, rules: Sequence[Rule], rows: Sequence[int]) -> list[Figures]:
        """What each rule reaches on the windows that begin at these rows."""
        networks = [native_network(NETWORK, self.sizes, rule.tensors(*self._columns)) for rule in rules]
        return [_figures(results) for results in self._runner.run_many(rows, networks)]

    def run_model(self, model: RuleModel, rows: Sequence[int]) -> Figures:
        """What a rule found earlier, in an environment like this one, reaches."""
        network = native_network(model.network, self.sizes, model.tensors)
        return _figures(self._runner.run(rows, network))

    def run_policy(self, rows: Sequence[int]) -> Figures:
        """What the base policy reaches."""
        return _figures(self._runner.run(rows, self._model.policy.name))

    def model_of(self, rule: Rule) -> RuleModel:
        """The rule with its environment."""
        return RuleModel(rule.tensors(*self._columns), NETWORK, self.environment, self.sizes)


def _figures(results: EpisodeResults) -> Figures:
    return {name: results.metrics[name] for name in FIGURES}


@dataclass(frozen=True)
class Held:
    """Windows with what makes a rule good on them."""

    runner: RuleRunner
    rows: tuple[int, ...]
    objective: Objective

    def figures(self, rule: Rule) -> Figures:
        """Of a rule on all windows."""
        return self.runner.run([rule], self.rows)[0]

    def losses(self, rules: Sequence[Rule], which: Sequence[int], near: Figures) -> list[float]:
        """Of rules on the windows that ``which`` numbers, given those of a similar rule on all."""
        figures = self.runner.run(rules, [self.rows[number] for number in which])
        return [self.objective.loss(one, which, near) for one in figures]


@dataclass(frozen=True)
class Generation:
    """One generation of CMA-ES.

    Attributes:
        number: From 1; 0 is the rule that the search starts from.
        loss: Of the best of its population, on the windows of the generation.
        median_loss: Of its population.
        sigma: Step size.
        train_loss: Of the mean of its distribution on all training windows; None: not looked at.
        validation_loss: The same on the validation windows.
        elapsed_s: Since CMA-ES began.
    """

    number: int
    loss: float
    median_loss: float
    sigma: float
    train_loss: float | None
    validation_loss: float | None
    elapsed_s: float


@dataclass(frozen=True)
class TunedRule:
    """The best rule that CMA-ES passed, by training and validation windows together."""

    rule: Rule
    history: tuple[Generation, ...]


def tune(
    start: Rule,
    steps: Rule,
    train: Held,
    validation: Held,
    config: SearchConfig,
    tell: Callable[[Generation], None],
) -> TunedRule:
    """Move the weights of a rule by CMA-ES.

    Args:
        start: Where to start.
        steps: How much a step of 1 moves each weight; weights that it does not name stay.
        train: Windows that generations are drawn from.
        validation: Windows that help to choose among the means of generations.
        config: Settings.
        tell: Told of every generation.
    """
    return _Tuning(start, steps, train, validation, config, tell).run()


class _Tuning:
    def __init__(
        self,
        start: Rule,
        steps: Rule,
        train: Held,
        validation: Held,
        config: SearchConfig,
        tell: Callable[[Generation], None],
    ) -> None:
        self._start, self._steps = start, steps
        self._train, self._validation = train, validation
        self._config, self._tell = config, tell
        self._began = time.monotonic()
        self._rng = np.random.default_rng(config.seed)
        self._strategy = covariance_strategy(steps.size, config.sigma, config.population, config.seed)
        self._history: list[Generation] = []
        self._near = train.figures(start)  # of the last rule that was looked at on all training windows
        self._best = (np.inf, start)

    def run(self) -> TunedRule:
        self._note(0, [self._train.objective.loss(self._near)], looks=True)
        for number in range(1, self._config.generations + 1):
            losses = self._generation()
            over = number == self._config.generations or self._is_over()
            self._note(number, losses, looks=over or number % self._config.check_every == 0)
            if over:
                break
        return TunedRule(self._best[1], tuple(self._history))

    def _generation(self) -> list[float]:
        points = self._strategy.ask()
        rules = [self._start.moved(self._steps, np.asarray(point)) for point in points]
        losses = self._train.losses(rules, self._draw(), self._near)
        self._strategy.tell(points, losses)
        return losses

    def _draw(self) -> list[int]:
        """Some of the training windows, one of each stretch."""
        count = len(self._train.rows)
        edges = np.linspace(0, count, min(self._config.windows_per_generation, count) + 1).round().astype(int)
        return [int(self._rng.integers(first, end)) for first, end in pairwise(edges)]

    def _note(self, number: int, losses: Sequence[float], *, looks: bool) -> None:
        on_train, on_validation = self._look(self._mean()) if looks else (None, None)
        self._history.append(
            Generation(
                number=number,
                loss=min(losses),
                median_loss=float(np.median(losses)),
                sigma=float(self._strategy.sigma),
                train_loss=on_train,
                validation_loss=on_validation,
                elapsed_s=time.monotonic() - self._began,
            )
        )
        self._tell(self._history[-1])

    def _look(self, rule: Rule) -> tuple[float, float]:
        """Its losses on all windows; the best rule by both together is kept."""
        self._near = self._train.figures(rule)
        on_train = self._train.objective.loss(self._near)
        on_validation = self._validation.objective.loss(self._validation.figures(rule))
        windows = len(self._train.rows), len(self._validation.rows)
        together = float(np.average([on_train, on_validation], weights=windows))
        if together < self._best[0]:
            self._best = (together, rule)
        return on_train, on_validation

    def _mean(self) -> Rule:
        """The middle of the distribution that the next population is drawn from."""
        return self._start.moved(self._steps, np.asarray(self._strategy.mean, dtype=np.float64))

    def _is_over(self) -> bool:
        limit = self._config.seconds
        return limit is not None and time.monotonic() - self._began >= limit
