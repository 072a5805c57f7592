"""Whole episodes run natively by a network or a policy, on all processors and without torch."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gpuyard import _core
from gpuyard.config import available_cores
from gpuyard.errors import InputError
from gpuyard.network.config import NetworkConfig
from gpuyard.network.sizes import NetworkSizes
from gpuyard.network.tensors import check_tensors
from gpuyard.observation.spec import EnvModel, acting_policy

NativeNetwork = _core.Network
"""A network that the native core computes."""

METRICS = tuple(_core.EPISODE_METRICS)


@dataclass(frozen=True)
class EpisodeResults:
    """What came of episodes.

    Attributes:
        names: The episodes: first rows of windows, or seeds of a generator.
        returns: The sum of rewards of each.
        lengths: Its steps.
        metrics: Each metric of every episode, by name.
    """

    names: tuple[int, ...]
    returns: NDArray[np.float64]
    lengths: NDArray[np.int64]
    metrics: dict[str, NDArray[np.float64]]

    def mean(self, metric: str) -> float:
        """Of a metric over all episodes."""
        return float(self.metrics[metric].mean())


def native_network(
    config: NetworkConfig, sizes: NetworkSizes, tensors: Mapping[str, NDArray[np.float32]]
) -> NativeNetwork:
    """A network in the form in which the core computes it.

    Raises:
        InputError: if tensors are missing, unknown, of another shape or not finite, or if the network does
            not go with the environment.
    """
    check_tensors(config, sizes, tensors)
    plain = {name: np.ascontiguousarray(values, dtype=np.float32) for name, values in tensors.items()}
    try:
        return _core.Network(config.model_dump(), sizes.to_json(), plain)
    except ValueError as error:
        raise InputError(f"network {config.kind}: {error}") from None


class EpisodeRunner:
    """Runs episodes of one environment. What it allocates serves all of them.

    Args:
        model: The environment.
        threads: None: one a processor.
    """

    def __init__(self, model: EnvModel, threads: int | None = None) -> None:
        if threads is not None and threads < 1:
            raise InputError(f"threads {threads}: at least 1")
        self.model = model
        self._rollouts = _core.Rollouts(model.spec, threads or available_cores())

    def run(self, names: Sequence[int], chooser: NativeNetwork | str) -> EpisodeResults:
        """Every episode to its end.

        Args:
            names: First rows of windows, or seeds of a generator.
            chooser: A network, whose largest logit is what is done, or the name of a policy.

        Raises:
            InputError: if there is no such episode, or the policy cannot act in the environment.
        """
        acting = acting_policy(chooser, self.model.kind).compile() if isinstance(chooser, str) else chooser
        episodes = self._episodes(names)
        try:
            metrics, returns, lengths = self._rollouts.run(episodes, acting)
        except ValueError as error:
            raise InputError(str(error)) from None
        return _results(names, metrics, returns, lengths)

    def run_many(self, names: Sequence[int], networks: Sequence[NativeNetwork]) -> list[EpisodeResults]:
        """The same episodes by every network."""
        episodes = self._episodes(names)
        try:
            metrics, returns, lengths = self._rollouts.run_many(episodes, list(networks))
        except ValueError as error:
            raise InputError(str(error)) from None
        return [_results(names, metrics[i], returns[i], lengths[i]) for i in range(len(networks))]

    def _episodes(self, names: Sequence[int]) -> list[tuple[_core.EpisodeTable, int, int, int, int]]:
        return [self.model.episode(self.model.check_name(name)) for name in names]


def run_episodes(
    model: EnvModel, names: Sequence[int], chooser: NativeNetwork | str, threads: int | None = None
) -> EpisodeResults:
    """Every episode to its end, as ``EpisodeRunner.run`` does."""
    return EpisodeRunner(model, threads).run(names, chooser)


def _results(
    names: Sequence[int],
    metrics: NDArray[np.float64],
    returns: NDArray[np.float64],
    lengths: NDArray[np.int64],
) -> EpisodeResults:
    columns = {name: metrics[:, i].copy() for i, name in enumerate(METRICS)}
    return EpisodeResults(tuple(int(name) for name in names), returns, lengths, columns)
