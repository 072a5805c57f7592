"""PPO: estimates of advantages worked out by hand, the clipped loss, masks, exact resumption."""

import copy
import math
from typing import Any

import numpy as np
import pytest
import torch

from gpuyard.env.vector import SchedulingVectorEnv
from gpuyard.learn.algorithms.ppo import PPO, PPOConfig, discrete, gae, gaussian, ppo_loss
from gpuyard.learn.learner import NotFiniteError, RunningMoments, Setup, sample
from gpuyard.learn.memory.collector import Collector
from gpuyard.learn.networks.heads import make_network, masked_logits
from gpuyard.learn.process.group import ProcessGroup
from gpuyard.learn.rates import Schedule
from gpuyard.network.config import NetworkConfig
from gpuyard.network.sizes import NetworkSizes

ALONE = ProcessGroup(0, 1)


def column(*numbers: float) -> torch.Tensor:
    return torch.tensor(numbers, dtype=torch.float64)[:, None]


def test_advantages_by_hand() -> None:
    # Three steps, discount 1/2, lambda 1/2; errors: 1 + 2/2 - 1 = 1, 2 + 4/2 - 2 = 2, 3 + 6/2 - 4 = 2.
    advantages = gae(
        column(1, 2, 3), column(1, 2, 4), column(2, 4, 6), column(0, 0, 0), discount=0.5, lam=0.5
    )
    assert advantages[:, 0].tolist() == [1 + 0.25 * (2 + 0.25 * 2), 2 + 0.25 * 2, 2]


def test_advantages_do_not_cross_the_end_of_an_episode() -> None:
    # The second step ends its episode: nothing of the third counts for the first two.
    advantages = gae(
        column(1, 2, 30), column(1, 2, 4), column(2, 0, 60), column(0, 1, 0), discount=0.5, lam=0.5
    )
    assert advantages[:2, 0].tolist() == [1 + 0.25 * 0, 0]


def loss_of(ratio: float, advantage: float, value: float, old: float, **settings: Any) -> torch.Tensor:
    logs = torch.tensor([math.log(ratio)], dtype=torch.float64)
    batch = {
        "log_probabilities": torch.zeros(1, dtype=torch.float64),
        "advantages": torch.tensor([advantage], dtype=torch.float64),
        "values": torch.tensor([old], dtype=torch.float64),
        "returns": torch.zeros(1, dtype=torch.float64),
    }
    entropy = torch.tensor([2.0], dtype=torch.float64)
    config = PPOConfig(clip=0.2, value_weight=0.5, **settings)
    return ppo_loss(logs, entropy, torch.tensor([value], dtype=torch.float64), batch, config, 0.1)[0]


@pytest.mark.parametrize(
    ("ratio", "advantage", "gain"),
    [(1.1, 2.0, 2.2), (1.5, 2.0, 2.4), (1.5, -2.0, -3.0), (0.5, 2.0, 1.0), (0.5, -2.0, -1.6)],
)
def test_gain_is_clipped_where_it_would_reward_going_too_far(
    ratio: float, advantage: float, gain: float
) -> None:
    assert float(loss_of(ratio, advantage, 0.0, 0.0)) == pytest.approx(-gain - 0.1 * 2.0)


def test_value_that_moved_far_is_charged_as_if_it_had_not_come_closer() -> None:
    # From 1 to 0.5 with a clip of 0.2: near = 0.8, and 0.8^2 > 0.5^2.
    assert float(loss_of(1.0, 0.0, 0.5, 1.0, value_clip=0.2)) == pytest.approx(0.5 * 0.64 - 0.2)
    assert float(loss_of(1.0, 0.0, 0.5, 1.0, value_clip=None)) == pytest.approx(0.5 * 0.25 - 0.2)


def test_masked_actions_are_never_sampled() -> None:
    mask = torch.zeros(64, 20)
    mask[:, [3, 7]] = 1
    logs = torch.log_softmax(masked_logits(torch.randn(64, 20), mask), -1)
    generator = torch.Generator().manual_seed(0)
    drawn = torch.cat([sample(logs, generator) for _ in range(200)])
    assert set(drawn.tolist()) == {3, 7}


def test_samples_follow_the_probabilities() -> None:
    logs = torch.log(torch.tensor([[0.7, 0.2, 0.1]])).repeat(30_000, 1)
    counts = torch.bincount(sample(logs, torch.Generator().manual_seed(1))) / 30_000
    assert counts.tolist() == pytest.approx([0.7, 0.2, 0.1], abs=0.015)


def test_masked_actions_get_no_gradient_and_no_entropy() -> None:
    logits = torch.randn(5, 4, dtype=torch.float64, requires_grad=True)
    mask = torch.tensor([[1, 1, 0, 1]] * 5)
    logs, entropy = discrete(logits, mask, torch.tensor([0, 1, 3, 0, 1]))
    (logs.sum() + entropy.sum()).backward()
    assert logits.grad is not None
    assert (logits.grad[:, 2] == 0).all()
    assert (logits.grad[:, [0, 1, 3]] != 0).any()
    assert (entropy <= math.log(3) + 1e-12).all()


def test_gaussian_agrees_with_torch_and_leaves_out_hosts_that_cannot_hold_the_job() -> None:
    means, actions = torch.randn(3, 4, dtype=torch.float64), torch.randn(3, 4, dtype=torch.float64)
    mask = torch.tensor([[1, 0, 1, 1]] * 3)
    expected = torch.distributions.Normal(means, 0.3)
    logs, entropy = gaussian(means, mask, actions, 0.3)
    legal = [0, 2, 3]
    assert torch.allclose(logs, expected.log_prob(actions)[:, legal].sum(-1))
    assert torch.allclose(entropy, expected.entropy()[:, legal].sum(-1))


def test_running_moments_are_those_of_all_numbers() -> None:
    numbers, moments = torch.randn(1000) * 3 + 5, RunningMoments()
    for part in numbers.split(130):
        moments.add(part, ALONE)
    assert moments.mean == pytest.approx(float(numbers.double().mean()))
    assert moments.deviation == pytest.approx(float(numbers.double().std(unbiased=False)))


def make(kind: str = "select-job", total: int = 4096, **settings: Any) -> tuple[PPO, Collector]:
    if kind == "rank-hosts":
        generator = {"preset": "host-farm", "jobs": 20}
        env = SchedulingVectorEnv(kind, 4, threads=1, preset="host-farm", generator=generator)
        network = NetworkConfig(kind="host-attention", width=8)
    else:
        jobs = {"workload": "demo", "jobs_per_episode": 16, "window": 8, "split": "train"}
        env = SchedulingVectorEnv(kind, 4, threads=1, **jobs)
        network = NetworkConfig(width=8)
    sizes = NetworkSizes.of(env.model)
    setup = Setup(sizes, 4, total, Schedule(start=1e-3), 3, torch.device("cpu"), 1, ALONE)
    config = PPOConfig(rollout_steps=16, minibatch=32, epochs=2, **settings)
    return PPO(make_network(network, sizes, seed=0), config, setup), Collector(env, [1, 2, 3, 4])


def go(learner: PPO, collector: Collector, step: int, until: int) -> int:
    while step < until:
        learner.observe(collector.step(learner.act(collector.observation, step)))
        step += 4
        learner.update(step, ALONE.average)
    return step


def weights(learner: PPO) -> torch.Tensor:
    return torch.cat([p.detach().reshape(-1) for p in learner.networks["policy"].parameters()])


@pytest.mark.parametrize("kind", ["select-job", "rank-hosts"])
def test_learning_goes_on_the_same_from_its_state(kind: str) -> None:
    straight, there = make(kind)
    step = go(straight, there, 0, 256)
    assert straight.at_boundary
    resumed, here = make(kind)
    here.restore(*there.state())
    resumed.networks["policy"].load_state_dict(straight.networks["policy"].state_dict())
    resumed.optimizers["policy"].load_state_dict(copy.deepcopy(straight.optimizers["policy"].state_dict()))
    resumed.restore(copy.deepcopy(straight.state()))
    go(straight, there, step, 640)
    go(resumed, here, step, 640)
    assert torch.equal(weights(straight), weights(resumed))


def test_gradient_in_parts_is_that_of_the_whole() -> None:
    whole, collector = make()
    go(whole, collector, 0, 64 - 4)
    for name in ("whole", "parts"):
        learner, there = make()
        learner.setup = Setup(**{**vars(learner.setup), "accumulate": 1 if name == "whole" else 4})
        go(learner, there, 0, 64)
        if name == "whole":
            expected = weights(learner)
    assert torch.allclose(weights(learner), expected, atol=1e-5)


def test_values_alone_are_taught_at_first() -> None:
    learner, collector = make(value_updates_first=1)
    before = {n: p.detach().clone() for n, p in learner.networks["policy"].named_parameters()}
    go(learner, collector, 0, 64)
    after = dict(learner.networks["policy"].named_parameters())
    assert torch.equal(before["policy.weight"], after["policy.weight"])
    assert not torch.equal(before["value.weight"], after["value.weight"])


def test_loss_that_is_not_finite_stops_training() -> None:
    learner, collector = make()
    with torch.no_grad():
        next(learner.networks["policy"].parameters())[0, 0] = float("nan")
    with pytest.raises(NotFiniteError, match="finite"):
        go(learner, collector, 0, 64)


def test_policy_that_moved_too_far_ends_the_epochs() -> None:
    learner, collector = make(target_kl=1e-12)
    stats = None
    step = 0
    while stats is None:
        learner.observe(collector.step(learner.act(collector.observation, step)))
        step += 4
        stats = learner.update(step, ALONE.average)
    assert stats["optimizer_steps"] == 2  # one epoch of two minibatches instead of two


def test_noise_of_ranked_hosts_fades() -> None:
    learner, collector = make("rank-hosts", total=1000)
    spreads = []
    for step in (0, 999):
        with torch.no_grad():
            seen = {name: torch.from_numpy(a) for name, a in collector.observation.items()}
            means = learner.networks["policy"](seen)[0].numpy()
        spreads.append(float(np.std(learner.act(collector.observation, step) - means)))
    assert spreads[0] > 5 * spreads[1]
