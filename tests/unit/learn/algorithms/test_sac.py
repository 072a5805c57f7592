"""Discrete SAC: its losses under masks, its temperature, and what a run of it keeps."""

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from pydantic import ValidationError

from gpuyard.learn.algorithms.sac import (
    SAC,
    Choice,
    SACConfig,
    SACNetworks,
    actor_loss,
    choice,
    critic_targets,
    sac_losses,
    temperature_loss,
)
from gpuyard.learn.memory.collector import Collector
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
)

HUGE = 1e9
PLAIN = SACConfig(dueling=False)


def numbers(*rows: Any) -> torch.Tensor:
    return torch.tensor(rows, dtype=torch.float64)


def even_choice(*masks: Any) -> Choice:
    """Among the legal actions, each as likely."""
    return choice(torch.zeros(len(masks), len(masks[0]), dtype=torch.float64), torch.tensor(masks))


# --- Losses ---


def test_illegal_actions_have_probability_0_and_add_nothing_to_entropy() -> None:
    chosen = choice(numbers([HUGE, math.log(3), 0.0]), torch.tensor([[0, 1, 1]]))
    assert chosen.probabilities[0].tolist() == pytest.approx([0, 0.75, 0.25])
    assert float(chosen.entropy) == pytest.approx(-(0.75 * math.log(0.75) + 0.25 * math.log(0.25)))


def test_a_state_without_legal_actions_has_no_value_no_entropy_and_no_gradient() -> None:
    logits = numbers([1.0, 2.0, 3.0]).requires_grad_()
    chosen = choice(logits, torch.tensor([[0, 0, 0]]))
    assert chosen.mean(numbers([HUGE, HUGE, HUGE])).item() == 0
    assert chosen.entropy.item() == 0
    actor_loss(chosen, [numbers([1, 2, 3])] * 2, torch.tensor(1.0)).backward()
    assert logits.grad is not None
    assert not logits.grad.any()


def test_targets_take_the_smaller_critic_and_the_entropy_under_the_policy() -> None:
    batch = transitions([0], [0], [1.0], [1], [0.5])
    values = [numbers([4, 8, HUGE]), numbers([6, 2, HUGE])]
    targets = critic_targets(even_choice([1, 1, 0]), values, torch.tensor(0.1), batch)
    # the smaller ones are 4 and 2, their mean 3; the entropy is log 2
    assert targets.tolist() == pytest.approx([1 + 0.5 * (3 + 0.1 * math.log(2))])


def test_nothing_is_hoped_for_after_an_end() -> None:
    batch = transitions([0], [0], [1.0], [1], [0.0])
    targets = critic_targets(even_choice([1, 1, 1]), [numbers([HUGE] * 3)] * 2, torch.tensor(9.0), batch)
    assert targets.tolist() == [1.0]


def test_the_actor_follows_the_smaller_critic_among_legal_actions() -> None:
    logits = numbers([0.0, 0.0, 0.0]).requires_grad_()
    values = [numbers([1, 5, HUGE]), numbers([3, 2, HUGE])]
    actor_loss(choice(logits, torch.tensor([[1, 1, 0]])), values, torch.tensor(0.0)).backward()
    # of p·(1, 2): d(-p0 - 2 p1)/dlogits = p·(mean - q) with p = 1/2, mean 1.5
    assert logits.grad is not None
    assert logits.grad[0].tolist() == pytest.approx([0.25, -0.25, 0])


def test_entropy_keeps_the_actor_from_certainty_when_critics_are_indifferent() -> None:
    logits = numbers([2.0, 0.0, 0.0]).requires_grad_()
    values = [numbers([0, 0, 0])] * 2
    actor_loss(choice(logits, torch.tensor([[1, 1, 1]])), values, torch.tensor(1.0)).backward()
    assert logits.grad is not None
    assert logits.grad[0, 0] > 0 > logits.grad[0, 1]  # a step against the gradient evens them out


@pytest.mark.parametrize(("entropy", "sign"), [(1.0, 1), (0.1, -1)])
def test_the_temperature_falls_while_there_is_more_entropy_than_wanted(entropy: float, sign: int) -> None:
    log = torch.tensor(0.3, dtype=torch.float64, requires_grad=True)
    mask = torch.tensor([[1, 1, 1]])
    temperature_loss(log, numbers(entropy), mask, share=0.5).backward()
    assert log.grad is not None
    assert log.grad.item() == pytest.approx(entropy - 0.5 * math.log(3))
    assert math.copysign(1, log.grad.item()) == sign


def test_the_entropy_wanted_is_a_share_of_what_the_legal_actions_allow() -> None:
    log = torch.tensor(1.0, dtype=torch.float64)
    masks = torch.tensor([[1, 1, 1], [1, 1, 0], [0, 1, 0], [0, 0, 0]])
    loss = temperature_loss(log, torch.zeros(4, dtype=torch.float64), masks, share=0.5)
    assert loss.item() == pytest.approx(-0.5 * (math.log(3) + math.log(2)) / 4)


def tables(illegal: float = 0.0) -> SACNetworks:
    """In whose states action 2 is worth whatever is asked for."""
    rows = [[[1.0, 2.0, illegal], [0.5, -1.0, -illegal]], [[3.0, 0.0, illegal], [2.0, 1.0, illegal]]]
    return SACNetworks(
        policy=Table([[0.1, 0.2, illegal], [0.3, -0.2, illegal]]),
        critics=[Table(row, values=[1, 2]) for row in rows],
        targets=[Table(row[::-1], values=[3, 4]) for row in rows],
        log_temperature=torch.tensor(-1.0, dtype=torch.float64, requires_grad=True),
    )


LEGAL = {"masks": [[1, 1, 0], [1, 1, 0]], "next_masks": [[1, 1, 0], [1, 1, 0]]}


@pytest.mark.parametrize("dueling", [False, True])
def test_what_networks_say_of_illegal_actions_changes_no_loss(dueling: bool) -> None:
    config = SACConfig(dueling=dueling)
    batch = transitions([0, 1], [0, 1], [1.0, 2.0], [1, 0], [0.9, 0.9], **LEGAL)

    def losses(illegal: float) -> list[float]:
        return [loss.item() for loss in sac_losses(tables(illegal), batch, config)[0].values()]

    assert losses(HUGE) == losses(0.0) == losses(-HUGE)


@pytest.mark.parametrize("dueling", [False, True])
def test_illegal_actions_get_no_gradient(dueling: bool) -> None:
    networks = tables()
    batch = transitions([0, 1], [0, 1], [1.0, 2.0], [1, 0], [0.9, 0.9], **LEGAL)
    losses, _ = sac_losses(networks, batch, SACConfig(dueling=dueling))
    sum(losses.values()).backward()  # type: ignore[union-attr]
    for table in (networks.policy, *networks.critics):
        assert table.logits.grad[:, 2].tolist() == [0, 0]
        assert table.logits.grad[:, :2].any()


@pytest.mark.parametrize("name", ["critic", "actor", "temperature"])
def test_each_loss_moves_its_own_networks_alone(name: str) -> None:
    networks = tables()
    batch = transitions([0, 1], [0, 1], [1.0, 2.0], [1, 0], [0.9, 0.9])
    sac_losses(networks, batch, PLAIN)[0][name].backward()
    moved = {
        "critic": [critic.logits.grad is not None for critic in networks.critics],
        "actor": [networks.policy.logits.grad is not None],
        "temperature": [networks.log_temperature.grad is not None],
    }
    assert all(moved.pop(name))
    assert not any(any(others) for others in moved.values())
    assert all(target.logits.grad is None for target in networks.targets)


# --- Settings ---


@pytest.mark.parametrize(
    "settings", [{"temperature": 0.0}, {"target_entropy": 1.0}, {"target_entropy": -0.1}, {"epsilon": 0.1}]
)
def test_settings_out_of_range_or_unknown_are_refused(settings: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        SACConfig.model_validate(settings)


# --- Acting and learning ---


def learner_of(sizes: NetworkSizes = SIZES, envs: int = 4, **settings: Any) -> SAC:
    result: SAC = small_learner(SAC, SACConfig, sizes, envs, **REPLAY | settings)
    return result


def test_actions_are_drawn_by_their_probabilities_and_never_illegal() -> None:
    learner = learner_of(envs=20_000, capacity=200_000)
    with torch.no_grad():
        learner.networks["policy"].policy.bias.copy_(torch.tensor([0.0, 5.0, math.log(3)]))
        learner.networks["policy"].policy.weight.zero_()
    observation = observed([0.5] * 20_000)
    observation["mask"][:, 1] = 0
    shares = np.bincount(learner.act(observation, 0), minlength=3) / 20_000
    assert shares[1] == 0
    assert shares[[0, 2]] == pytest.approx([0.25, 0.75], abs=0.02)


def test_critics_differ_and_start_without_the_rule_that_the_policy_starts_from() -> None:
    sizes = replace(SIZES, global_columns=2, job_base_choice=0, base_waits=1)
    network = make_network(NetworkConfig(kind="mlp", width=8, residual="base"), sizes, seed=3)
    learner = SAC(network, SACConfig(**REPLAY), setup_of(sizes, 1))
    one, two = (learner.networks[name] for name in ("critic_1", "critic_2"))
    assert one.config.residual == two.config.residual == "none"
    assert not torch.equal(one.policy.weight, two.policy.weight)


def test_a_two_state_problem_is_solved_and_the_temperature_brings_entropy_to_its_target() -> None:
    learner = learner_of(
        envs=1,
        discount=0.5,
        scale_rewards=False,
        learning_starts=2,
        target_entropy=0.4,
        capacity=200,
        batch_size=64,
    )
    learner.setup = replace(learner.setup, learning_rate=Schedule(start=1e-2))
    for t in range(60):  # action t % 3 in state t % 3: only 1 pays
        learner.observe(step([float(t % 3)], [float(t % 3 == 1)], terminated=[0]))
    reports = [learner.update(100, alone) for _ in range(600)]
    assert reports[-1] is not None
    assert reports[-1]["entropy"] == pytest.approx(0.4 * math.log(3), abs=0.15)


def test_a_temperature_that_is_not_learnt_stays() -> None:
    learner = learner_of(learn_temperature=False, temperature=0.25)
    show_steps(learner)
    for _ in range(3):
        report = learner.update(100, alone)
    assert report is not None
    assert report["temperature"] == pytest.approx(0.25)
    assert "temperature" not in learner.optimizers


def test_slow_copies_of_both_critics_follow_by_their_share() -> None:
    learner = learner_of(target_share=0.25)
    show_steps(learner)
    before = {name: learner.networks[name].value.weight.clone() for name in ("target_1", "target_2")}
    learner.update(100, alone)
    for name, old in before.items():
        now = learner.networks[name.replace("target", "critic")].value.weight
        torch.testing.assert_close(learner.networks[name].value.weight, old + 0.25 * (now - old))


def test_reports_carry_the_names_of_progress_files() -> None:
    env = vector("select-job", 4)
    learner = learner_of(NetworkSizes.of(env.model))
    report = learn_for(learner, Collector(env, [0, 1, 2, 3]), 20)[-1]
    losses = {"loss/q", "loss/policy", "loss/temperature"}
    assert losses | {"entropy", "temperature", "q/mean", "gradient_norm", "learning_rate"} <= report.keys()
    assert all(np.isfinite(value) for value in report.values())
