"""Soft actor-critic for discrete actions: a policy that earns reward and keeps a chosen entropy.

Haarnoja et al. 2018 (SAC, learnt temperature), Christodoulou 2019 (discrete actions). Expectations are taken
over the policy's own probabilities, not over sampled actions. Equations, and what masks do in them, are in
docs/algorithms/sac.md.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, cast

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import Field
from torch import Tensor, nn
from torch.nn import functional

from gpuyard.learn.learner import Average, Setup, check_finite, to_tensors
from gpuyard.learn.memory.collector import Arrays
from gpuyard.learn.memory.replay import Batch
from gpuyard.learn.networks.heads import SchedulingNetwork, dueling, make_network, masked_logits
from gpuyard.learn.off_policy import (
    OffPolicy,
    OffPolicyConfig,
    SlowCopy,
    adam,
    check_has_values,
)
from gpuyard.registry import register


class SACConfig(OffPolicyConfig):
    """Settings of discrete SAC, in addition to those that it shares with D3QN."""

    n_steps: Annotated[int, Field(ge=1, le=1000)] = 1
    """Rewards that are added up before the value of a state is asked for."""
    dueling: bool = True
    """Critics give the value of the state plus the advantage of the action."""
    temperature: Annotated[float, Field(gt=0)] = 1.0
    """What entropy is worth, in units of (scaled) reward; at first, if it is learnt."""
    learn_temperature: bool = True
    """Move it so that the policy's entropy comes to the target."""
    target_entropy: Annotated[float, Field(ge=0, lt=1)] = 0.3
    """As a share of log(legal actions), the most there can be; 0.98 in the paper, which is almost random."""


class Temperature(nn.Module):
    """What entropy is worth, as a logarithm."""

    def __init__(self, temperature: float) -> None:
        super().__init__()
        self.log = nn.Parameter(torch.tensor(math.log(temperature)))


@dataclass(frozen=True)
class Choice:
    """A policy's choice among the legal actions [B, A]; both are 0 where an action is not legal."""

    probabilities: Tensor
    logs: Tensor

    @property
    def entropy(self) -> Tensor:
        """In each state [B]."""
        return -(self.probabilities * self.logs).sum(-1)

    def mean(self, values: Tensor) -> Tensor:
        """Expectations [B] of values of actions [B, A]; 0 if none is legal."""
        return (self.probabilities * values).sum(-1)


def choice(logits: Tensor, mask: Tensor) -> Choice:
    """The softmax over legal actions; without any, probabilities of 0."""
    illegal = mask == 0
    logs = torch.log_softmax(masked_logits(logits, mask), dim=-1)
    return Choice(logs.exp().masked_fill(illegal, 0.0), logs.masked_fill(illegal, 0.0))


def critic_targets(
    next_choice: Choice, next_values: Sequence[Tensor], temperature: Tensor, batch: Batch
) -> Tensor:
    """What values of the actions taken should have been [B].

    Args:
        next_choice: Of the policy, after the transitions.
        next_values: Of all actions there, told by the slow copies of the critics.
        temperature: What entropy is worth.
        batch: Transitions.
    """
    smaller = torch.minimum(*next_values)
    soft_values = next_choice.mean(smaller - temperature * next_choice.logs)
    return batch.returns + batch.discounts * soft_values


def critic_loss(values: Sequence[Tensor], targets: Tensor, batch: Batch, delta: float) -> Tensor:
    """The sum of both critics' Huber losses."""
    losses = [
        functional.huber_loss(_of_actions(told, batch.actions), targets, reduction="none", delta=delta)
        for told in values
    ]
    return (batch.weights * sum(losses)).mean()


def actor_loss(chosen: Choice, values: Sequence[Tensor], temperature: Tensor) -> Tensor:
    """Expected values and entropy under the policy, negated."""
    smaller = torch.minimum(*values).detach()
    return chosen.mean(temperature * chosen.logs - smaller).mean()


def temperature_loss(log_temperature: Tensor, entropy: Tensor, mask: Tensor, share: float) -> Tensor:
    """Falls with the temperature where the entropy is above its target, else with its rise.

    Args:
        log_temperature: A number.
        entropy: Of the policy in each state [B].
        mask: Of legal actions [B, A].
        share: Of the largest entropy that is wanted.
    """
    most = (mask != 0).sum(-1).clamp(min=1).to(entropy.dtype).log()
    return (log_temperature * (entropy - share * most).detach()).mean()


def _of_actions(values: Tensor, actions: Tensor) -> Tensor:
    return values.gather(-1, actions[:, None])[:, 0]


@dataclass(frozen=True)
class SACNetworks:
    """What discrete SAC trains, and the slow copies of its critics."""

    policy: nn.Module
    critics: Sequence[nn.Module]
    targets: Sequence[nn.Module]
    log_temperature: Tensor


def sac_losses(
    networks: SACNetworks, batch: Batch, config: SACConfig
) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """Losses ``critic``, ``actor`` and ``temperature``, and what is to be reported.

    Each has gradients for its own networks alone, so they may be added up.
    """
    now, after = batch.observation, batch.next_observation
    temperature = networks.log_temperature.detach().exp()
    with torch.no_grad():
        next_choice = choice(networks.policy(after)[0], after["mask"])
        next_values = [_values(critic, after, config) for critic in networks.targets]
        targets = critic_targets(next_choice, next_values, temperature, batch)
    values = [_values(critic, now, config) for critic in networks.critics]
    chosen = choice(networks.policy(now)[0], now["mask"])
    entropy = chosen.entropy
    losses = {
        "critic": critic_loss(values, targets, batch, config.huber_delta),
        "actor": actor_loss(chosen, values, temperature),
        "temperature": temperature_loss(
            networks.log_temperature, entropy, now["mask"], config.target_entropy
        ),
    }
    told = torch.minimum(*(_of_actions(value, batch.actions) for value in values))
    stats = {
        "loss/q": losses["critic"].detach(),
        "loss/policy": losses["actor"].detach(),
        "loss/temperature": losses["temperature"].detach(),
        "entropy": entropy.detach().mean(),
        "q/mean": told.detach().mean(),
    }
    return losses, stats


def _values(critic: nn.Module, observation: Mapping[str, Tensor], config: SACConfig) -> Tensor:
    logits, value = critic(observation)
    return dueling(logits, value, observation["mask"]) if config.dueling else logits


@register("algorithm", "sac")
class SAC(OffPolicy):
    """Discrete SAC in the middle of training."""

    summary = "soft actor-critic for discrete actions, with a learnt temperature"
    settings = SACConfig

    def __init__(self, network: SchedulingNetwork, config: SACConfig, setup: Setup) -> None:
        check_has_values(network.config, setup.sizes, "sac")
        super().__init__(config, setup, prioritised=False)
        self.config = config
        # Critics tell values: they begin with nothing of the rule that the policy may start from.
        plain = network.config.model_copy(update={"residual": "none"})
        critics = [
            make_network(plain, setup.sizes, seed=seed).to(setup.device) for seed in self._critic_seeds()
        ]
        self._copies = [SlowCopy(critic) for critic in critics]
        targets = [copy.network for copy in self._copies]
        temperature = Temperature(config.temperature).to(setup.device)
        self.networks = {
            "policy": network,
            "critic_1": critics[0],
            "critic_2": critics[1],
            "target_1": targets[0],
            "target_2": targets[1],
            "temperature": temperature,
        }
        self._trained = SACNetworks(network, critics, targets, temperature.log)
        self.optimizers = {
            "policy": adam(list(network.parameters()), setup.device),
            "critics": adam([w for critic in critics for w in critic.parameters()], setup.device),
        }
        if config.learn_temperature:
            self.optimizers["temperature"] = adam([temperature.log], setup.device)

    def _critic_seeds(self) -> list[int]:
        """The same in all processes: those of the first."""
        own = np.random.default_rng([self.setup.seed, 1]).integers(2**62, size=2).astype(np.int64)
        return [int(seed) for seed in np.frombuffer(self.setup.group.broadcast(own.tobytes()), np.int64)]

    @torch.no_grad()
    def act(self, observation: Arrays, step: int) -> NDArray[Any]:
        """Draw actions from the policy."""
        seen = to_tensors(observation, self.setup.device)
        logits = masked_logits(self._trained.policy(seen)[0], seen["mask"]).cpu().numpy()
        return cast(NDArray[Any], (logits + self._rng.gumbel(size=logits.shape)).argmax(axis=-1))

    def _learn(self, step: int, average: Average) -> dict[str, float]:
        batch = self._sample()
        for optimizer in self.optimizers.values():
            optimizer.zero_grad(set_to_none=True)
        totals: dict[str, float] = {}
        for part in batch.parts(self.setup.accumulate):
            losses, stats = sac_losses(self._trained, part, self.config)
            share = len(part.actions) / len(batch.actions)
            total = losses["critic"] + losses["actor"]
            if self.config.learn_temperature:
                total = total + losses["temperature"]
            (total * share).backward()  # type: ignore[no-untyped-call]
            for name, value in stats.items():
                totals[name] = totals.get(name, 0.0) + share * float(value)
        totals["temperature"] = float(self._trained.log_temperature.detach().exp())
        check_finite("the loss", totals["loss/q"] + totals["loss/policy"], **totals)
        return {**totals, "gradient_norm": self._step_optimizers(average, totals)}
