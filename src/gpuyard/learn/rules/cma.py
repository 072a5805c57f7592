"""CMA-ES over the weights of a rule, whole windows run natively."""

import time
from collections.abc import Sequence
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
from gpuyard.simulation.window_set import FIGURES, Figures
from gpuyard.simulation.windows import Part
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


class Tuning:
    """Moves the weights of a rule by CMA-ES, a generation at a time.

    All but the time follows from the seed and the losses: a resumed one is given the same losses again.

    Attributes:
        history: Its generations, the first of which is the rule that it starts from.
        losses: Of the populations of all further generations.
        rule: The best rule that it passed, by training and validation windows together.

    Args:
        start: Where to start.
        steps: How much a step of 1 moves each weight; weights that it does not name stay.
        train: Windows that generations are drawn from.
        validation: Windows that help to choose among the means of generations.
        config: Settings.
    """

    def __init__(self, start: Rule, steps: Rule, train: Held, validation: Held, config: SearchConfig) -> None:
        self._start, self._steps = start, steps
        self._train, self._validation = train, validation
        self._config = config
        self._began, self._is_late = time.monotonic(), False
        self._rng = np.random.default_rng(config.seed)
        self._strategy = covariance_strategy(steps.size, config.sigma, config.population, config.seed)
        self.history: list[Generation] = []
        self.losses: list[list[float]] = []
        self._near = train.figures(start)  # of the last rule that was looked at on all training windows
        self._least, self.rule = np.inf, start
        self._note([train.objective.loss(self._near)], looks=True)

    @property
    def generation(self) -> int:
        """How many there were after the start."""
        return len(self.losses)

    @property
    def is_over(self) -> bool:
        """Whether generations or time are used up."""
        return self._is_late or self.generation == self._config.generations

    def advance(self) -> Generation:
        """One generation."""
        points = self._strategy.ask()
        rules = [self._start.moved(self._steps, np.asarray(point)) for point in points]
        losses = self._train.losses(rules, self._draw(), self._near)
        self._strategy.tell(points, losses)
        self.losses.append(losses)
        limit = self._config.seconds
        self._is_late = limit is not None and self._elapsed_s() >= limit
        return self._note(losses, looks=self.is_over or self.generation % self._config.check_every == 0)

    def repeat(self, losses: Sequence[Sequence[float]], history: Sequence[Generation]) -> None:
        """Go through generations again, given their losses; the history has its start too."""
        looked = None
        for numbers, generation in zip(losses, history[1:], strict=True):
            points = self._strategy.ask()
            self._draw()
            self._strategy.tell(points, list(numbers))
            self.losses.append(list(numbers))
            self.history.append(generation)
            if generation.train_loss is not None and generation.validation_loss is not None:
                looked = self._mean()
                self._keep(looked, generation.train_loss, generation.validation_loss)
        if looked is not None:
            self._near = self._train.figures(looked)
        self._began = time.monotonic() - history[-1].elapsed_s

    def _draw(self) -> list[int]:
        """Some of the training windows, one of each stretch."""
        count = len(self._train.rows)
        edges = np.linspace(0, count, min(self._config.windows_per_generation, count) + 1).round().astype(int)
        return [int(self._rng.integers(first, end)) for first, end in pairwise(edges)]

    def _note(self, losses: Sequence[float], *, looks: bool) -> Generation:
        on_train, on_validation = self._look(self._mean()) if looks else (None, None)
        self.history.append(
            Generation(
                number=self.generation,
                loss=min(losses),
                median_loss=float(np.median(losses)),
                sigma=float(self._strategy.sigma),
                train_loss=on_train,
                validation_loss=on_validation,
                elapsed_s=self._elapsed_s(),
            )
        )
        return self.history[-1]

    def _look(self, rule: Rule) -> tuple[float, float]:
        """Its losses on all windows."""
        self._near = self._train.figures(rule)
        on_train = self._train.objective.loss(self._near)
        on_validation = self._validation.objective.loss(self._validation.figures(rule))
        self._keep(rule, on_train, on_validation)
        return on_train, on_validation

    def _keep(self, rule: Rule, on_train: float, on_validation: float) -> None:
        """Keep the rule if it is the best so far, by all windows together."""
        windows = len(self._train.rows), len(self._validation.rows)
        together = float(np.average([on_train, on_validation], weights=windows))
        if together < self._least:
            self._least, self.rule = together, rule

    def _mean(self) -> Rule:
        """The middle of the distribution that the next population is drawn from."""
        return self._start.moved(self._steps, np.asarray(self._strategy.mean, dtype=np.float64))

    def _elapsed_s(self) -> float:
        return time.monotonic() - self._began
