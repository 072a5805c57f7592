"""Every algorithm finds the best schedule of problems whose best schedule is known by trying them all."""

from collections.abc import Callable
from typing import Any

import pytest
import torch

from gpuyard.learn.algorithms.d3qn import D3QN, D3QNConfig
from gpuyard.learn.algorithms.ppo import PPO, PPOConfig
from gpuyard.learn.algorithms.sac import SAC, SACConfig
from gpuyard.learn.learner import Learner, Setup
from gpuyard.learn.networks.heads import make_network
from gpuyard.learn.rates import Schedule
from gpuyard.network.config import NetworkConfig
from learning.tiny_scheduling import PROBLEMS, best_return, learnt_return, return_of, train_tiny
from support.small_learning import setup_of

ENVS = 8
SEEDS = (3, *(pytest.param(seed, marks=pytest.mark.slow) for seed in (4, 5)))
"""Networks with which no problem is solved by chance before training."""
Make = Callable[[Any, Setup], Learner]


COMMON: dict[str, Any] = {
    "discount": 1.0,
    "n_steps": 1,  # exact: no rewards of actions that were only explored are counted in
    "batch_size": 64,
    "learning_starts": 200,
    "capacity": 4000,
    "target_share": 0.05,
}


def d3qn(network: Any, setup: Setup) -> Learner:
    return D3QN(network, D3QNConfig(**COMMON, epsilon_steps=1500), setup)


def sac(network: Any, setup: Setup) -> Learner:
    return SAC(network, SACConfig(**COMMON), setup)


def ppo(network: Any, setup: Setup) -> Learner:
    # Much of it: with 0.03 a third of seeds, other ones on other processors, never tries to wait.
    fading = Schedule(schedule="linear", start=0.1, end=0.0)
    return PPO(network, PPOConfig(discount=1.0, rollout_steps=16, minibatch=64, entropy=fading), setup)


ALGORITHMS: dict[str, tuple[Make, int]] = {"ppo": (ppo, 800), "d3qn": (d3qn, 300), "sac": (sac, 500)}
"""How to make a learner, and how many steps of each environment it may learn from."""


@pytest.fixture(autouse=True)
def _one_thread() -> Any:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.mark.parametrize("name", PROBLEMS)
def test_the_best_schedule_is_not_the_obvious_one(name: str) -> None:
    env = PROBLEMS[name].single()
    obvious = return_of(env, lambda _: env.expert_action(PROBLEMS[name].pitfall))
    assert obvious < best_return(name) - 0.01


@pytest.mark.parametrize("name", PROBLEMS)
@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_the_best_schedule_is_learnt(algorithm: str, seed: int, name: str) -> None:
    problem, (make, steps) = PROBLEMS[name], ALGORITHMS[algorithm]
    kind = "host-attention" if problem.kind == "select-host" else "job-scorer"
    setup = setup_of(
        problem.sizes, ENVS, seed=seed, total_steps=steps * ENVS, learning_rate=Schedule(start=4e-3)
    )
    learner = make(make_network(NetworkConfig(kind=kind), problem.sizes, seed=seed), setup)
    assert learnt_return(learner, name) < best_return(name) - 0.01, "there was nothing to learn"
    train_tiny(learner, problem.vector(ENVS), steps)
    assert learnt_return(learner, name) == pytest.approx(best_return(name), abs=1e-9)
