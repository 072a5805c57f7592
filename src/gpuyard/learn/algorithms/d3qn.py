"""D3QN: Q-learning with double targets, a dueling network, n-step returns and prioritised replay.

Mnih et al. 2015 (DQN), van Hasselt et al. 2016 (double), Wang et al. 2016 (dueling), Schaul et al. 2016
(prioritised replay), Hessel et al. 2018 (together). Equations, and what masks do in them, are in
docs/algorithms/d3qn.md.
"""

from collections.abc import Mapping
from typing import Annotated, Any, Self

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import Field, model_validator
from torch import Tensor, nn
from torch.nn import functional

from gpuyard.learn.learner import Average, Setup, check_finite, to_tensors
from gpuyard.learn.memory.collector import Arrays
from gpuyard.learn.memory.replay import Batch
from gpuyard.learn.networks.heads import SchedulingNetwork, dueling, masked_logits
from gpuyard.learn.off_policy import (
    OffPolicy,
    OffPolicyConfig,
    SlowCopy,
    adam,
    check_has_values,
    legal_actions,
)
from gpuyard.learn.rates import Schedule
from gpuyard.registry import register


class D3QNConfig(OffPolicyConfig):
    """Settings of D3QN, in addition to those that it shares with SAC."""

    n_steps: Annotated[int, Field(ge=1, le=1000)] = 3
    """Rewards that are added up before the value of a state is asked for."""
    double: bool = True
    """Choose the next action by the network and value it by its slow copy, which overestimates less."""
    dueling: bool = True
    """Value of the state plus advantage of the action; without, the network's value output is not used."""

    epsilon: Schedule = Schedule(schedule="linear", start=1.0, end=0.05)
    """Share of actions taken at random among the legal ones."""
    epsilon_steps: Annotated[int, Field(ge=1)] = 100_000
    """Steps in which it goes from start to end."""

    priority_exponent: Annotated[float, Field(ge=0, le=1)] = 0.6
    """0 samples evenly, 1 in proportion to the errors of values."""
    priority_correction: Annotated[float, Field(ge=0, le=1)] = 0.4
    """How far weights in the loss make up for that at first; it rises to 1."""
    priority_correction_steps: Annotated[int, Field(ge=1)] = 500_000
    """Steps in which it rises."""
    priority_floor: Annotated[float, Field(gt=0, le=1)] = 1e-3
    """Added to errors, so that everything is sampled now and then."""

    @model_validator(mode="after")
    def _check_shares(self) -> Self:
        if max(self.epsilon.start, self.epsilon.end) > 1:
            raise ValueError("epsilon is a share of actions; start and end must be at most 1")
        return self

    def epsilon_at(self, step: int) -> float:
        """Share of random actions after so many steps."""
        return self.epsilon.at(step / self.epsilon_steps)

    def correction_at(self, step: int) -> float:
        """How far weights make up for priorities after so many steps."""
        done = min(1.0, step / self.priority_correction_steps)
        return self.priority_correction + (1.0 - self.priority_correction) * done


def q_values(network: nn.Module, observation: Mapping[str, Tensor], config: D3QNConfig) -> Tensor:
    """The value of every action; those of illegal ones mean nothing."""
    logits, value = network(observation)
    return dueling(logits, value, observation["mask"]) if config.dueling else logits


def next_values(online: nn.Module, target: nn.Module, batch: Batch, config: D3QNConfig) -> Tensor:
    """What is to come after the transitions: the value of the best legal action, 0 if none is legal."""
    after = batch.next_observation
    slow = q_values(target, after, config)
    chooser = q_values(online, after, config) if config.double else slow
    best = masked_logits(chooser, after["mask"]).argmax(dim=-1)
    return torch.where(legal_actions(after).any(dim=-1), _of_actions(slow, best), 0.0)


def d3qn_loss(
    online: nn.Module, target: nn.Module, batch: Batch, config: D3QNConfig
) -> tuple[Tensor, Tensor, dict[str, Tensor]]:
    """The loss of a batch, the errors of its values (without gradient), and what is to be reported.

    Args:
        online: The network that learns.
        target: Its slow copy.
        batch: Transitions.
        config: Settings.
    """
    with torch.no_grad():
        wanted = batch.returns + batch.discounts * next_values(online, target, batch, config)
    told = _of_actions(q_values(online, batch.observation, config), batch.actions)
    losses = functional.huber_loss(told, wanted, reduction="none", delta=config.huber_delta)
    loss = (batch.weights * losses).mean()
    stats = {"loss/q": loss.detach(), "q/mean": told.detach().mean()}
    return loss, (told - wanted).detach(), stats


def _of_actions(values: Tensor, actions: Tensor) -> Tensor:
    return values.gather(-1, actions[:, None])[:, 0]


@register("algorithm", "d3qn")
class D3QN(OffPolicy):
    """D3QN in the middle of training."""

    summary = "Q-learning: double, dueling, n-step, with prioritised replay"
    settings = D3QNConfig

    def __init__(self, network: SchedulingNetwork, config: D3QNConfig, setup: Setup) -> None:
        check_has_values(network.config, setup.sizes, "d3qn")
        super().__init__(config, setup, prioritised=config.priority_exponent > 0)
        self.config = config
        self._online = network
        self._copies = [SlowCopy(network)]
        self._target = self._copies[0].network
        self.networks = {"policy": self._online, "target": self._target}
        self.optimizers = {"policy": adam(list(network.parameters()), setup.device)}

    @torch.no_grad()
    def act(self, observation: Arrays, step: int) -> NDArray[Any]:
        """The best actions, but for a share of random ones."""
        seen = to_tensors(observation, self.setup.device)
        logits, _ = self._online(seen)  # ranks actions as the dueling values do
        best = masked_logits(logits, seen["mask"]).argmax(dim=-1).cpu().numpy()
        legal = observation["mask"] != 0
        at_random = np.where(legal, self._rng.random(legal.shape), -1.0).argmax(axis=-1)
        explores = self._rng.random(len(legal)) < self.config.epsilon_at(step)
        return np.where(explores, at_random, best)

    def _learn(self, step: int, average: Average) -> dict[str, float]:
        batch = self._sample(self.config.correction_at(step))
        self.optimizers["policy"].zero_grad(set_to_none=True)
        totals: dict[str, float] = {}
        errors = []
        for part in batch.parts(self.setup.accumulate):
            loss, error, stats = d3qn_loss(self._online, self._target, part, self.config)
            share = len(part.actions) / len(batch.actions)
            (loss * share).backward()  # type: ignore[no-untyped-call]
            errors.append(error)
            for name, value in stats.items():
                totals[name] = totals.get(name, 0.0) + share * float(value)
        check_finite("the loss", totals["loss/q"], **totals)
        norm = self._step_optimizers(average, totals)
        sizes = torch.cat(errors).abs().double().cpu().numpy() + self.config.priority_floor
        self.replay.prioritise(batch.entries.cpu().numpy(), sizes**self.config.priority_exponent)
        return {**totals, "gradient_norm": norm, "epsilon": self.config.epsilon_at(step)}
