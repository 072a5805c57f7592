"""Which values each column of the observation takes in training, measured when a model is written.

The base policy and the network itself act in episodes of training, because training passes through the
states of both. Work is bounded by a number of observations, not by time: a run that is repeated or resumed
has to write the same bytes.
"""

from collections.abc import Callable, Mapping
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray

from gpuyard import _core
from gpuyard.network.config import NetworkConfig
from gpuyard.network.observed import ColumnRange, Observed, held_rows
from gpuyard.network.rollout import NativeNetwork, native_network
from gpuyard.network.sizes import NetworkSizes
from gpuyard.observation.buffers import Arrays, make_buffers
from gpuyard.observation.spec import EnvModel

OBSERVATIONS = 4096
"""Of the base policy, and as many of the network."""
BUSY_EPISODES = 32
"""Episodes that begin on a busy cluster: many, so that all times of day and all phases of a log come up."""
COLD_EPISODES = 8
"""Episodes that begin on an empty one: few, so that each gets far enough for its queue to fill."""
SERVED_KINDS = ("select-job", "select-job-and-pool")

Episodes = list[tuple[_core.EpisodeTable, int, int, int, int]]
Act = Callable[[_core.VectorEnv, Arrays], NDArray[np.int64]]


def observed_ranges(
    model: EnvModel, network: NetworkConfig, tensors: Mapping[str, NDArray[np.float32]]
) -> Observed | None:
    """What a network that acts in an environment sees there.

    Args:
        model: The environment of training.
        network: Settings of the network.
        tensors: Its weights.

    Returns:
        None for networks that cannot serve a live cluster: they need no range to be compared with.
    """
    config = model.config
    if model.kind not in SERVED_KINDS or config.step_mode != "instant" or config.flatten:
        return None
    if model not in _OF_BASE:
        _OF_BASE[model] = _seen_by_base(model)
    episodes, of_base = _OF_BASE[model]
    native = native_network(network, NetworkSizes.of(model), tensors)
    found = {name: extremes.copy() for name, extremes in of_base.items()}
    _look(model, episodes, lambda _, seen: _chosen(native, seen), found)
    columns = {name: found[name].columns(part.names) for name, part in model.parts.items()}
    if any(one is None for one in columns.values()):
        return None
    looked_at = 2 * (OBSERVATIONS // len(episodes)) * len(episodes)
    return Observed(looked_at, *(columns[name] or () for name in ("jobs", "nodes", "globals")))


class _Extremes:
    """Least and largest values of columns so far."""

    def __init__(self, columns: int) -> None:
        self._least = np.full(columns, np.inf, np.float32)
        self._largest = np.full(columns, -np.inf, np.float32)

    def copy(self) -> "_Extremes":
        other = _Extremes(0)
        other._least, other._largest = self._least.copy(), self._largest.copy()
        return other

    def add(self, rows: NDArray[np.float32]) -> None:
        if len(rows):
            np.minimum(self._least, rows.min(axis=0), out=self._least)
            np.maximum(self._largest, rows.max(axis=0), out=self._largest)

    def columns(self, names: tuple[str, ...]) -> tuple[ColumnRange, ...] | None:
        """By name; None if there was no row."""
        if not (np.isfinite(self._least).all() and np.isfinite(self._largest).all()):
            return None
        both = zip(names, self._least.tolist(), self._largest.tolist(), strict=True)
        return tuple(ColumnRange(*one) for one in both)


Looked = tuple[Episodes, dict[str, _Extremes]]
_OF_BASE: WeakKeyDictionary[EnvModel, Looked] = WeakKeyDictionary()
"""A run writes many models, but its base policy always sees the same."""


def _seen_by_base(model: EnvModel) -> Looked:
    policy, episodes = model.policy.compile(), _episodes(model)
    found = {name: _Extremes(len(part.names)) for name, part in model.parts.items()}
    _look(model, episodes, lambda core, _: core.expert_actions(policy), found)
    return episodes, found


def _episodes(model: EnvModel) -> Episodes:
    """Windows all over the training part, or the first draws."""
    count = BUSY_EPISODES if model.config.around[0] else COLD_EPISODES
    if model.draws:
        seeds: tuple[int, ...] | None = getattr(model.source, "seeds", None)
        return [model.episode(seed) for seed in (seeds[:count] if seeds else range(count))]
    rows = model.episode_rows
    count = min(count, len(rows))
    return [model.episode(int(row)) for row in np.linspace(rows[0], rows[-1], count).round()]


def _look(model: EnvModel, episodes: Episodes, act: Act, found: Mapping[str, _Extremes]) -> None:
    """Act in episodes side by side; where one ends, go on with the next in the list."""
    count = len(episodes)
    core = _core.VectorEnv(model.spec, count, 1, "same-step")
    seen: Arrays = make_buffers(model, count)
    core.attach(seen)
    for i, episode in enumerate(episodes):
        core.give(i, *episode)
    core.reset(np.arange(count, dtype=np.uint64), np.ones(count, np.uint8))
    begun = np.ones(count, np.int64)
    _give_next(core, episodes, begun, range(count))
    for _ in range(OBSERVATIONS // count):
        for name, extremes in found.items():
            extremes.add(seen[name] if name == "globals" else held_rows(seen[name]))
        core.step(act(core, seen))
        ended = np.flatnonzero(seen["ended"])
        begun[ended] += 1
        _give_next(core, episodes, begun, ended)


def _give_next(core: _core.VectorEnv, episodes: Episodes, begun: NDArray[np.int64], which: Any) -> None:
    """Name the episodes that will begin by themselves when the present ones end."""
    for i in which:
        core.give(int(i), *episodes[int(i + begun[i]) % len(episodes)])


def _chosen(network: NativeNetwork, seen: Arrays) -> NDArray[np.int64]:
    logits, _ = network.forward_batch(seen["jobs"], seen["nodes"], seen["globals"], seen["mask"])
    best: NDArray[np.int64] = np.where(seen["mask"] != 0, logits, -np.inf).argmax(axis=1)
    return best
