"""D3QN: its targets, its masks, its exploration, and what a run of it keeps."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from pydantic import ValidationError

from gpuyard.errors import InputError
from gpuyard.learn.algorithms.d3qn import D3QN, D3QNConfig, d3qn_loss, q_values
from gpuyard.learn.memory.collector import Collector
from gpuyard.learn.memory.replay import Batch
from gpuyard.learn.networks.heads import make_network
from gpuyard.learn.rates import Schedule
from gpuyard.network.config import NetworkConfig
from gpuyard.network.sizes import NetworkSizes
from support.small_environments import vector
from support.small_learning import (
    REPLAY,
    SIZES,
    Table,
    alone,
    learn_for,
    observed,
    setup_of,
    show_steps,
    small_learner,
    step,
    transitions,
    weights_of,
)

HUGE = 1e9
PLAIN = D3QNConfig(dueling=False, huber_delta=1e6)
SMALL = {**REPLAY, "epsilon_steps": 400}


def wanted(online: Table, target: Table, batch: Batch, config: D3QNConfig = PLAIN) -> list[float]:
    """What the loss moves the values of state 0 towards: its error, taken from what is told."""
    _, errors, _ = d3qn_loss(online, target, batch, config)
    logits, _ = online(batch.observation)
    assert not config.dueling
    told = logits.gather(-1, batch.actions[:, None])[:, 0]
    return (told - errors).tolist()


# --- Targets ---


def test_a_double_target_is_chosen_by_the_network_and_valued_by_its_copy() -> None:
    online = Table([[0, 0, 0], [1, 3, 2]])
    target = Table([[0, 0, 0], [40, 20, 30]])
    batch = transitions([0], [1], [5.0], [1], [0.5])
    assert wanted(online, target, batch) == [5 + 0.5 * 20]
    assert wanted(online, target, batch, PLAIN.model_copy(update={"double": False})) == [5 + 0.5 * 40]


def test_dueling_values_are_the_states_value_and_what_actions_add_to_the_mean_of_the_legal() -> None:
    online = Table([[1, 2, 6], [0, 0, 0]], values=[10, 7])
    config = D3QNConfig(huber_delta=1e6)
    one = {"masks": [[1, 1, 0]], "next_masks": [[0, 1, 1]]}
    batch = transitions([0], [1], [0.0], [1], [1.0], **one)
    _, errors, stats = d3qn_loss(online, online, batch, config)
    assert float(stats["q/mean"]) == 10 + 2 - 1.5
    assert errors.tolist() == [10 + 2 - 1.5 - 7]


@pytest.mark.parametrize("double", [True, False])
@pytest.mark.parametrize("dueling", [True, False])
def test_an_illegal_action_of_huge_value_never_enters_a_target(double: bool, dueling: bool) -> None:
    config = D3QNConfig(double=double, dueling=dueling)
    batch = transitions([0], [0], [1.0], [1], [0.9], next_masks=[[1, 0, 1]])

    def loss(illegal: float) -> list[float]:
        online = Table([[1, 2, 3], [4, illegal, 5]], values=[1, 2])
        target = Table([[1, 2, 3], [6, -illegal, 5]], values=[1, 3])
        loss, errors, _ = d3qn_loss(online, target, batch, config)
        return [loss.item(), *errors.tolist()]

    assert loss(HUGE) == loss(0.0) == loss(-HUGE)


def test_illegal_actions_get_no_gradient_and_targets_none_at_all() -> None:
    online = Table([[1, 2, 3], [4, 5, 6]], values=[1, 2])
    target = Table([[1, 2, 3], [4, 5, 6]], values=[1, 2])
    batch = transitions([0], [0], [1.0], [1], [0.9], masks=[[1, 1, 0]], next_masks=[[1, 1, 0]])
    d3qn_loss(online, target, batch, D3QNConfig())[0].backward()
    assert online.logits.grad is not None
    assert online.logits.grad[0, 2] == 0
    assert online.logits.grad[0, :2].all()
    assert not online.logits.grad[1].any()
    assert target.logits.grad is None


def test_what_follows_an_end_or_a_state_without_a_legal_action_counts_nothing() -> None:
    table = Table([[0, 0, 0], [HUGE, HUGE, HUGE]])
    ended = transitions([0], [0], [3.0], [1], [0.0])
    stuck = transitions([0], [0], [3.0], [1], [0.9], next_masks=[[0, 0, 0]])
    assert wanted(table, table, ended) == wanted(table, table, stuck) == [3.0]


def test_errors_beyond_delta_count_linearly_and_each_by_its_weight() -> None:
    table = Table([[0, 0, 0]])
    batch = transitions([0, 0], [0, 1], [0.5, -4.0], [0, 0], [0, 0], weights=[1.0, 0.25])
    loss, errors, _ = d3qn_loss(table, table, batch, D3QNConfig(dueling=False, huber_delta=2.0))
    assert loss.item() == (0.5 * 0.25 + 0.25 * 2 * (4 - 1)) / 2
    assert errors.tolist() == [-0.5, 4.0]


# --- Settings ---


def test_epsilon_and_the_correction_of_priorities_follow_their_schedules() -> None:
    config = D3QNConfig(
        epsilon=Schedule(schedule="exponential", start=1.0, end=0.01),
        epsilon_steps=100,
        priority_correction=0.4,
        priority_correction_steps=10,
    )
    assert [config.epsilon_at(n) for n in (0, 50, 100, 1000)] == pytest.approx([1, 0.1, 0.01, 0.01])
    assert [config.correction_at(n) for n in (0, 5, 10, 99)] == pytest.approx([0.4, 0.7, 1, 1])
    linear = D3QNConfig(epsilon_steps=100)
    assert [linear.epsilon_at(n) for n in (0, 50, 200)] == pytest.approx([1, 0.525, 0.05])


@pytest.mark.parametrize(
    "settings",
    [
        {"discount": 0.0},
        {"discount": 1.1},
        {"n_steps": 0},
        {"epsilon": {"start": 1.5}},
        {"batch_size": 0},
        {"target_share": 0.0},
        {"priority_exponent": 2},
        {"storage": "float64"},
        {"unknown": 1},
    ],
)
def test_settings_out_of_range_or_unknown_are_refused(settings: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        D3QNConfig.model_validate(settings)


def test_a_rule_which_has_no_values_of_actions_is_refused() -> None:
    with pytest.raises(InputError, match="job-scorer"):
        D3QN(make_network(NetworkConfig(kind="rule"), SIZES), D3QNConfig(), setup_of(SIZES, 1))


# --- Acting ---


def learner_of(sizes: NetworkSizes = SIZES, envs: int = 4, **settings: Any) -> D3QN:
    result: D3QN = small_learner(D3QN, D3QNConfig, sizes, envs, **SMALL | settings)
    return result


@pytest.mark.parametrize("epsilon", [0.0, 0.5, 1.0])
def test_only_legal_actions_are_taken(epsilon: float) -> None:
    rng = np.random.default_rng(0)
    learner = learner_of(envs=500, capacity=5000, epsilon=Schedule(start=epsilon))
    observation = observed(rng.random(500).tolist())
    observation["mask"] = (rng.random((500, 3)) < 0.4).astype(np.int8)
    observation["mask"][np.arange(500), rng.integers(3, size=500)] = 1
    actions = learner.act(observation, 0)
    assert observation["mask"][np.arange(500), actions].all()


def test_random_actions_are_spread_evenly_over_the_legal_and_the_rest_are_the_best() -> None:
    learner = learner_of(envs=9000, capacity=90_000, epsilon=Schedule(start=0.6))
    observation = observed([0.5] * 9000)
    observation["mask"][:, 1] = 0
    with torch.no_grad():
        logits, _ = learner.networks["policy"]({n: torch.from_numpy(a) for n, a in observation.items()})
    best = 0 if logits[0, 0] > logits[0, 2] else 2
    shares = np.bincount(learner.act(observation, 0), minlength=3) / 9000
    assert shares[1] == 0
    assert shares[best] == pytest.approx(0.4 + 0.3, abs=0.02)


# --- Learning ---


def test_values_of_a_two_state_problem_are_learnt() -> None:
    learner = learner_of(envs=1, n_steps=1, discount=0.5, scale_rewards=False, learning_starts=2)
    for _ in range(40):  # state 0 earns 1 and leads to state 1, which earns 2 and ends the episode
        learner.observe(step([0.0], [1.0]))
        learner.observe(step([1.0], [2.0], terminated=[0]))
    learner.setup = replace(learner.setup, learning_rate=Schedule(start=1e-2))
    for _ in range(400):
        learner.update(100, alone)
    with torch.no_grad():
        seen = {n: torch.from_numpy(a) for n, a in observed([0.0, 1.0]).items()}
        values = q_values(learner.networks["policy"], seen, learner.config)
    assert float(values[1, 1]) == pytest.approx(2.0, abs=0.1)
    best_after = float(values[1].max())
    assert float(values[0, 0]) == pytest.approx(1 + 0.5 * best_after, abs=0.15)


def test_updates_wait_for_their_time() -> None:
    learner = learner_of(envs=1, n_steps=1, learning_starts=5, train_every=3)
    learned = []
    for t in range(12):
        learner.observe(step([0.0], [1.0]))
        if learner.update(t + 1, alone) is not None:
            learned.append(t + 1)
    assert learned == [6, 9, 12]


@pytest.mark.parametrize(("share", "every"), [(0.25, 1), (1.0, 3)])
def test_the_slow_copy_follows_by_its_share_every_so_many_updates(share: float, every: int) -> None:
    learner = learner_of(envs=1, n_steps=1, learning_starts=0, target_share=share, target_every=every)
    for _ in range(20):
        learner.observe(step([0.3], [1.0]))
    weight = "policy.weight"
    for number in range(1, 7):
        before = learner.networks["target"].state_dict()[weight].clone()
        learner.update(100, alone)
        now = learner.networks["policy"].state_dict()[weight]
        expected = before + share * (now - before) if number % every == 0 else before
        torch.testing.assert_close(learner.networks["target"].state_dict()[weight], expected)


def test_reports_carry_the_names_of_progress_files() -> None:
    env = vector("select-job", 4)
    learner = learner_of(NetworkSizes.of(env.model))
    report = learn_for(learner, Collector(env, [0, 1, 2, 3]), 20)[-1]
    names = {"loss/q", "q/mean", "gradient_norm", "learning_rate", "epsilon", "replay/size"}
    assert names <= report.keys()
    assert all(np.isfinite(value) for value in report.values())
    assert report["replay/size"] == 60


def test_gradients_are_averaged_once_an_update_before_the_optimizer_moves() -> None:
    learner = learner_of(n_steps=1)
    show_steps(learner)
    before, calls = weights_of(learner), []

    def average(weights: Any) -> None:
        calls.append(sum(weight.numel() for weight in weights))
        assert weights_of(learner) == before
        for weight in weights:
            weight.grad.zero_()

    learner.update(100, average)
    assert calls == [sum(weight.numel() for weight in learner.networks["policy"].parameters())]
    assert weights_of(learner) == before  # gradients of 0 move nothing


def test_a_copy_follows_at_once_when_weights_were_set_from_outside() -> None:
    learner = learner_of()
    with torch.no_grad():
        for weight in learner.networks["policy"].parameters():
            weight.fill_(0.5)
    learner.weights_were_set()
    assert all(bool((weight == 0.5).all()) for weight in learner.networks["target"].parameters())
