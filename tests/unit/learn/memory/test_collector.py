"""Environments are put back exactly where they were, by repeating what was done in them."""

from typing import Any

import numpy as np
import pytest

from gpuyard.env.vector import SchedulingVectorEnv
from gpuyard.errors import InputError
from gpuyard.learn.memory.collector import Collector, Transition

SEEDS = [11, 12, 13, 14]
SETUPS: dict[str, tuple[str, dict[str, Any]]] = {
    "windows": ("select-job", {"workload": "demo", "split": "train", "jobs_per_episode": 24}),
    "draws": ("select-job", {"generator": {"preset": "bursty-8gpu", "jobs": 20}, "window": 8}),
    "ranked hosts": ("rank-hosts", {"preset": "host-farm", "generator": {"preset": "host-farm", "jobs": 20}}),
}


def make(name: str, keep: int = 0) -> Collector:
    kind, settings = SETUPS[name]
    return Collector(SchedulingVectorEnv(kind, len(SEEDS), threads=1, **settings), SEEDS, keep)


def same(a: Transition, b: Transition) -> bool:
    parts = all((a.next_observation[name] == b.next_observation[name]).all() for name in a.observation)
    return parts and (a.rewards == b.rewards).all() and (a.ended == b.ended).all()


@pytest.mark.parametrize("name", SETUPS)
@pytest.mark.parametrize("scattered", [False, True])
def test_restored_collector_goes_on_as_the_original(name: str, scattered: bool) -> None:
    original, restored = make(name), make(name)
    if scattered:
        original.scatter()
    for _ in range(150):
        original.step(original.env.random_actions())
    restored.restore(*original.state())
    assert all((original.observation[part] == restored.observation[part]).all() for part in ("jobs", "mask"))
    for _ in range(120):
        actions = original.env.random_actions()
        assert same(original.step(actions), restored.step(actions))
    assert original.state()[0] == restored.state()[0]


def test_steps_that_a_replay_buffer_holds_are_shown_again() -> None:
    original, restored = make("draws", keep=40), make("draws", keep=40)
    seen = [original.step(original.env.random_actions()) for _ in range(130)]
    again: list[Transition] = []
    restored.restore(*original.state(), 40, again.append)
    assert len(again) == 40
    for a, b in zip(seen[-40:], again, strict=True):
        assert same(a, b)
        assert (a.actions == b.actions).all()
        assert all((a.observation[part] == b.observation[part]).all() for part in a.observation)
        assert all((a.last_observation[p] == b.last_observation[p]).all() for p in a.last_observation)


def test_scattered_environments_are_at_different_places() -> None:
    collector = make("windows")
    collector.scatter()
    began = [episodes[-1][1] for episodes in collector.state()[0]["episodes"]]
    assert len(set(began)) == len(SEEDS)


def test_actions_are_forgotten_once_no_episode_needs_them() -> None:
    collector = make("draws")
    for _ in range(1000):
        collector.step(collector.env.random_actions())
    assert len(collector.state()[1]["actions"]) < 300


def test_state_of_other_environments_is_refused() -> None:
    document, arrays = make("windows").state()
    document["episodes"] = document["episodes"][:2]
    with pytest.raises(InputError, match="number of environments"):
        make("windows").restore(document, arrays)


def test_actions_that_cannot_be_repeated_are_refused() -> None:
    original = make("windows")
    for _ in range(5):
        original.step(original.env.random_actions())
    document, arrays = original.state()
    noop = original.env.model.actions - 1
    arrays["actions"] = np.where(arrays["actions"] == noop, 0, 40).astype(np.int32)
    with pytest.raises(ValueError, match="cannot be repeated"):
        make("windows").restore(document, arrays)


def test_means_of_finished_episodes_are_told_once() -> None:
    collector = make("draws")
    while not collector.finished.get("return"):
        collector.step(collector.env.random_actions())
    means = collector.take_finished()
    assert means["count"] >= 1
    assert means["length"] > 0
    assert collector.take_finished() == {"count": 0}
