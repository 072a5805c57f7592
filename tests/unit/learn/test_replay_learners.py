"""What D3QN and SAC, which learn from a replay buffer, have in common."""

from dataclasses import replace
from typing import Any

import pytest

from gpuyard.errors import InputError
from gpuyard.learn.algorithms.d3qn import D3QN, D3QNConfig
from gpuyard.learn.algorithms.sac import SAC, SACConfig
from gpuyard.learn.memory.collector import Collector
from gpuyard.network.sizes import NetworkSizes
from support.small_environments import vector
from support.small_learning import (
    REPLAY,
    SIZES,
    alone,
    learn_for,
    resumed_run_differs,
    show_steps,
    small_learner,
    weights_of,
)

ALGORITHMS: dict[str, tuple[Any, Any, dict[str, Any]]] = {
    "d3qn": (D3QN, D3QNConfig, {"epsilon_steps": 400}),
    "sac": (SAC, SACConfig, {}),
}
every_algorithm = pytest.mark.parametrize("name", ALGORITHMS)


def learner_of(name: str, sizes: NetworkSizes = SIZES, **settings: Any) -> Any:
    algorithm, config, usual = ALGORITHMS[name]
    return small_learner(algorithm, config, sizes, **REPLAY | usual | settings)


@every_algorithm
def test_environments_whose_actions_are_numbers_are_refused(name: str) -> None:
    with pytest.raises(InputError, match="use ppo"):
        learner_of(name, replace(SIZES, kind="rank-hosts", tokens=3))


@every_algorithm
def test_a_gradient_in_pieces_is_the_gradient(name: str) -> None:
    reports = []
    for pieces in (1, 3):
        learner = learner_of(name, accumulate=pieces)
        show_steps(learner)
        reports.append(learner.update(100, alone))
    assert reports[0] == pytest.approx(reports[1], rel=1e-4)


def weights_after_a_run(name: str, seed: int) -> dict[str, bytes]:
    env = vector("select-job", 4, max_steps=11)
    learner = learner_of(name, NetworkSizes.of(env.model), seed=seed)
    learn_for(learner, Collector(env, [0, 1, 2, 3]), 30)
    return weights_of(learner)


@every_algorithm
def test_the_same_seed_gives_the_same_weights_and_another_does_not(name: str) -> None:
    assert weights_after_a_run(name, 1) == weights_after_a_run(name, 1) != weights_after_a_run(name, 2)


@pytest.mark.parametrize("before", [3, 12, 37])
@pytest.mark.parametrize(("name", "settings"), [("d3qn", {"train_every": 2}), ("sac", {"n_steps": 2})])
def test_a_run_that_is_taken_up_equals_one_that_never_stopped(
    name: str, settings: dict[str, int], before: int
) -> None:
    def env() -> Any:
        return vector("select-job", 4, max_steps=7)

    sizes = NetworkSizes.of(env().model)
    assert not resumed_run_differs(lambda: learner_of(name, sizes, **settings), env, before, 20)
