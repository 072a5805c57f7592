"""A trained policy beside heuristics on windows that neither training nor validation has seen.

Needs no torch: everything runs natively.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from gpuyard.learn.config import TrainConfig, ValidationSection, load_toml, read_config
from gpuyard.learn.environments import Environments
from gpuyard.learn.worker_files import CONFIG
from gpuyard.network.model_file import find_model, read_model
from gpuyard.network.rollout import EpisodeResults, native_network, run_episodes
from gpuyard.policies.base import parse_policy

AFTER_VALIDATION = 10**6
"""How far the seeds of test draws are from those of validation draws."""
RESAMPLES = 4000
LEARNED = "learned"


@dataclass(frozen=True)
class FinalTest:
    """What policies reached on the same windows.

    Attributes:
        results: By policy, the trained one as ``learned``.
        metric: What they are compared by.
        rival: The heuristic that was best in validation.
    """

    results: dict[str, EpisodeResults]
    metric: str
    rival: str

    def numbers(self, policy: str) -> NDArray[np.float64]:
        """The metric of every window."""
        result = self.results[policy]
        return result.returns if self.metric == "return" else result.metrics[self.metric]

    def difference(self, rival: str | None = None) -> tuple[float, float, float]:
        """Relative difference of the trained policy's mean from a rival's, with a 95 % interval.

        From resampled windows, the same for both.
        """
        own, other = self.numbers(LEARNED), self.numbers(rival or self.rival)
        chance = np.random.default_rng(0).integers(len(own), size=(RESAMPLES, len(own)))
        samples = own[chance].mean(axis=1) / other[chance].mean(axis=1) - 1.0
        low, high = np.percentile(samples, [2.5, 97.5])
        return float(own.mean() / other.mean() - 1.0), float(low), float(high)


def final_test(
    directory: Path, heuristics: Sequence[str], rival: str, windows: int = 64, metric: str | None = None
) -> FinalTest:
    """Run a run's best model and heuristics on its test windows.

    Args:
        directory: Of the run.
        heuristics: To stand beside it.
        rival: The one among them that was best in validation.
        windows: How many; of a generator, so many new draws.
        metric: None: what the run was validated by.
    """
    config: TrainConfig = read_config(load_toml(directory / CONFIG), str(directory / CONFIG))
    first = config.validation.first_draw + AFTER_VALIDATION
    section = ValidationSection(windows=windows, first_draw=first)
    model, names = Environments(config.environment).held_out(section, split="test")
    trained = read_model(find_model(directory))
    network = native_network(trained.network, trained.sizes, trained.tensors)
    results = {LEARNED: run_episodes(model, names, network)}
    for name in dict.fromkeys(parse_policy(policy).name for policy in (*heuristics, rival)):
        results[name] = run_episodes(model, names, name)
    return FinalTest(results, metric or config.validation.metric, parse_policy(rival).name)
