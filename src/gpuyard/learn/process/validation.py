"""How good a policy is on held-out windows, compared with heuristics on the same windows."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gpuyard.errors import InputError
from gpuyard.learn.config import TrainConfig, ValidationSection
from gpuyard.learn.memory.environments import Environments
from gpuyard.learn.process.observed_ranges import observed_ranges
from gpuyard.metrics.catalogue import metrics
from gpuyard.metrics.guards import BrokenLimit, broken_limits, wait_row
from gpuyard.network.config import NetworkConfig
from gpuyard.network.model_file import ModelFile
from gpuyard.network.observed import KEY
from gpuyard.network.rollout import EpisodeResults, native_network, run_episodes
from gpuyard.network.sizes import NetworkSizes
from gpuyard.observation.spec import EnvModel
from gpuyard.policies.grammar import parse_policy
from gpuyard.registry import suggest

SHOWN = (
    "return",
    "mean_bounded_slowdown",
    "mean_jct_s",
    "mean_wait_s",
    "p99_wait_s",
    "max_wait_s",
    "gpu_utilization",
)
PENALTY = 10.0
"""Charge, in logarithms of the metric, for each unit of the mean completion time above its limit, and for
each unit of the logarithm of a wait above its limit: waits can be a hundred times as long as they may be."""
LARGEST_CHARGE = 100.0
"""In logarithms of the metric: what is worse than that is as bad as anything, and still a number."""


@dataclass(frozen=True)
class Judgement:
    """What a policy reached.

    Attributes:
        score: Larger is better; what models are chosen by.
        values: Metrics by name, averaged over the windows.
        broken: Limits on waits that it breaks on the windows, the worst first.
    """

    score: float
    values: dict[str, float]
    broken: tuple[BrokenLimit, ...] = ()


@dataclass(frozen=True)
class Measure:
    """What limits are counted from, on the same windows.

    Attributes:
        jct: Mean completion times of the reference; None: there is no limit.
        waits: Waits under what runs today; None: there is no limit.
    """

    jct: NDArray[np.float64] | None = None
    waits: Mapping[str, float] | None = None


class Validation:
    """Held-out windows, and what heuristics reach on them.

    Attributes:
        current: What runs today, from which limits on waits are counted; None: there are none.
        reference: The best of the heuristics, from which the limit of completion times is counted. The base
            policy is one of them only if it is named as one: a tuned base may itself be beyond the limit.

    Args:
        environments: Of the configuration.
        section: Of the configuration.
        network: Settings of the network that will be judged.
        threads: That run windows.
    """

    def __init__(
        self, environments: Environments, section: ValidationSection, network: NetworkConfig, threads: int
    ) -> None:
        self._section = section
        self._model, self._names = environments.held_out(section)
        self._network = network
        self._sizes = NetworkSizes.of(self._model)
        self._threads = threads
        self._higher = _higher_is_better(section.metric)
        own = self._model.policy.name
        names = [_full_name(name) for name in section.heuristics or environments.usual_heuristics()]
        self.heuristics: dict[str, Judgement] = {}
        self.current = environments.today(section.current) if environments.is_guarded else None
        today = [] if self.current is None else [self.current]
        results = {
            name: run_episodes(self._model, self._names, name, threads=threads)
            for name in dict.fromkeys([own, *names, *today])
        }
        self.reference = min(names, key=lambda name: self.loss(results[name]))
        self._measure = self.measure(results.__getitem__)
        for name, result in results.items():
            self.heuristics[name] = self._judge(result)

    def measure(self, run: Callable[[str], EpisodeResults]) -> Measure:
        """What limits are counted from on some windows.

        Args:
            run: Runs a policy on them.
        """
        limited = self._section.max_jct_increase is not None
        jct = run(self.reference).metrics["mean_jct_s"] if limited else None
        return Measure(jct, None if self.current is None else _waits(run(self.current)))

    def broken(self, results: EpisodeResults, measure: Measure) -> tuple[BrokenLimit, ...]:
        """Limits on waits that a policy breaks, the worst first."""
        if measure.waits is None:
            return ()
        return tuple(broken_limits(wait_row(_waits(results)), wait_row(measure.waits), self._section))

    @property
    def windows(self) -> int:
        """How many there are."""
        return len(self._names)

    def best_heuristic(self) -> tuple[str, Judgement]:
        """The one with the best score."""
        return max(self.heuristics.items(), key=lambda entry: entry[1].score)

    def run(self, tensors: Mapping[str, NDArray[np.float32]]) -> Judgement:
        """Judge the policy with these weights: its likeliest action in every state."""
        network = native_network(self._network, self._sizes, tensors)
        return self._judge(run_episodes(self._model, self._names, network, threads=self._threads))

    def record(self, judgement: Judgement) -> dict[str, Any]:
        """The values of a line of ``progress.jsonl``."""
        both = {"policy": judgement, **self.heuristics}
        return {
            f"{name}/{metric}": value
            for name, one in both.items()
            for metric, value in {"score": one.score, **one.values}.items()
        }

    def _judge(self, results: EpisodeResults) -> Judgement:
        values = {"return": float(np.mean(results.returns))}
        for name in SHOWN[1:]:
            mean = float(np.mean(results.metrics[name]))
            if np.isfinite(mean):
                values[name] = mean
        if self._section.metric not in values:
            values[self._section.metric] = float(np.mean(results.metrics[self._section.metric]))
        broken = self.broken(results, self._measure)
        return Judgement(-self.loss(results, self._measure), values, broken)

    def loss(self, results: EpisodeResults, measure: Measure | None = None) -> float:
        """The metric over windows, such that smaller is better.

        Args:
            results: Of a policy.
            measure: What limits are counted from on the same windows; None: no limits.
        """
        section = self._section
        numbers = results.returns if section.metric == "return" else results.metrics[section.metric]
        average = section.average or ("mean" if section.metric == "return" else "geometric")
        charge = 0.0 if measure is None else PENALTY * self._excess(results, measure)
        if average == "mean":
            mean = float(np.mean(numbers))
            return (-mean if self._higher else mean) + charge * abs(mean)
        if not (numbers > 0).all():
            raise InputError(
                f"validation.average geometric needs values above 0, but {section.metric} is not; use mean"
            )
        logarithm = float(np.mean(np.log(numbers)))
        charge = min(charge, LARGEST_CHARGE)
        return -float(np.exp(logarithm - charge)) if self._higher else float(np.exp(logarithm + charge))

    def _excess(self, results: EpisodeResults, measure: Measure) -> float:
        """By how much limits are exceeded, in units of them."""
        excess = sum(math.log(one.excess) for one in self.broken(results, measure))
        section = self._section
        if measure.jct is not None and section.max_jct_increase is not None:
            ratio = _increased(results.metrics["mean_jct_s"], measure.jct, section.jct_of)
            excess += max(0.0, ratio - 1.0 - section.max_jct_increase)
        return excess


def _waits(results: EpisodeResults) -> dict[str, float]:
    """Over all windows together: the mean of their 99th percentiles, and the longest wait."""
    metrics = results.metrics
    return {
        "p99_wait_s": float(metrics["p99_wait_s"].mean()),
        "max_wait_s": float(metrics["max_wait_s"].max()),
    }


def _increased(own: NDArray[np.float64], usual: NDArray[np.float64], of: str) -> float:
    """By which factor completion times are longer than usual."""
    ratio = float(own.mean()) / float(usual.mean())
    if of == "mean":
        return ratio
    return max(ratio, float(np.exp(np.log(own / usual).mean())))


def _full_name(name: str) -> str:
    return parse_policy(name).name


def _higher_is_better(metric: str) -> bool:
    if metric == "return":
        return True
    from gpuyard.env.vector import METRICS

    if metric not in METRICS:
        known = dict.fromkeys(("return", *METRICS))
        raise InputError(f"validation.metric: unknown metric {metric!r}{suggest(metric, known)}")
    return metrics()[metric].direction == "higher" if metric in metrics() else False


def model_of(
    config: TrainConfig,
    model: EnvModel,
    tensors: Mapping[str, NDArray[np.float32]],
    step: int,
    judgement: Judgement,
) -> ModelFile:
    """The weights of a network as a model, with what it was trained on, what it reached and what it saw."""
    training: dict[str, Any] = {
        "algorithm": config.algorithm,
        "steps": step,
        "seed": config.training.seed,
        "environment": config.to_document()["environment"],
        "validation": {"score": judgement.score, **judgement.values},
    }
    observed = observed_ranges(model, config.network, tensors)
    if observed is not None:
        training[KEY] = observed.to_json()
    return ModelFile.of(model, config.network, tensors, training)
