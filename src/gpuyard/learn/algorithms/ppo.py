"""Proximal policy optimisation (Schulman et al. 2017) with masked actions; docs/algorithms/ppo.md.

A rollout of every environment is collected with the present policy, advantages are estimated (GAE, Schulman
et al. 2016), and the policy takes a few epochs of clipped steps on it. RankHosts, whose actions are numbers,
is driven by a Gaussian around the network's outputs with noise that fades in the course of training.
"""

from collections.abc import Mapping
from typing import Annotated, Any

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field
from torch import Tensor, nn

from gpuyard.learn.learner import (
    Average,
    Learner,
    Observation,
    RunningMoments,
    Setup,
    check_finite,
    sample,
    set_learning_rate,
    to_tensors,
)
from gpuyard.learn.memory.actor import Actor
from gpuyard.learn.memory.collector import Arrays, Transition
from gpuyard.learn.networks.heads import SchedulingNetwork, masked_logits
from gpuyard.learn.rates import Schedule
from gpuyard.registry import register

Share = Annotated[float, Field(gt=0, le=1)]


class PPOConfig(BaseModel):
    """Settings of PPO."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    rollout_steps: Annotated[int, Field(ge=1, le=1_000_000)] = 128
    """Steps of each environment between updates."""
    epochs: Annotated[int, Field(ge=1, le=1000)] = 4
    """Passes over a rollout."""
    minibatch: Annotated[int, Field(ge=1)] = 1024
    """Samples behind one step of the optimizer, over all processes."""
    discount: Share = 0.99
    """Of rewards, per step."""
    gae_lambda: Annotated[float, Field(ge=0, le=1)] = 0.95
    """0: one-step differences; 1: whole returns."""
    clip: Annotated[float, Field(gt=0, le=10)] = 0.2
    """How far the probability of an action may move in an update, as a share."""
    value_clip: Annotated[float, Field(gt=0)] | None = 0.2
    """How far a (normalised) value may move in an update; None: any way."""
    value_weight: Annotated[float, Field(ge=0)] = 0.5
    """Of the squared error of values in the loss."""
    entropy: Schedule = Schedule(start=0.01)
    """Weight of the policy's entropy in the loss."""
    normalize_values: bool = True
    """Learn values in units of the returns' running deviation around their running mean."""
    normalize_advantages: bool = True
    """Bring the advantages of a rollout to mean 0 and deviation 1."""
    target_kl: Annotated[float, Field(gt=0)] | None = 0.03
    """Stop the epochs of an update when the policy has moved this far on average; None: never."""
    max_gradient_norm: Annotated[float, Field(gt=0)] = 0.5
    """Longer gradients are shortened to this."""
    value_updates_first: Annotated[int, Field(ge=0)] = 0
    """Updates that teach values alone, so that a policy to start from is not spoilt by wrong ones."""
    noise: Schedule = Schedule(schedule="exponential", start=0.5, end=0.05)
    """RankHosts only: standard deviation of priorities while exploring."""


def gae(
    rewards: Tensor, values: Tensor, next_values: Tensor, ended: Tensor, discount: float, lam: float
) -> Tensor:
    """Generalised advantage estimates, time first.

    Args:
        rewards: Of each step.
        values: Of the state before it.
        next_values: Of the state after it; 0 where the episode terminated.
        ended: 1 where the episode ended, by termination or truncation.
        discount: Of the next step.
        lam: Lambda.
    """
    advantages = torch.empty_like(rewards)
    following = torch.zeros_like(rewards[0])
    errors = rewards + discount * next_values - values
    for t in range(len(rewards) - 1, -1, -1):
        following = errors[t] + discount * lam * (1.0 - ended[t]) * following
        advantages[t] = following
    return advantages


def ppo_loss(
    log_probabilities: Tensor,
    entropy: Tensor,
    values: Tensor,
    batch: Mapping[str, Tensor],
    config: PPOConfig,
    entropy_weight: float,
) -> tuple[Tensor, dict[str, Tensor]]:
    """The clipped loss of a minibatch.

    Args:
        log_probabilities: Of the actions taken, under the present policy.
        entropy: Of the present policy in each state.
        values: Of each state, normalised.
        batch: ``log_probabilities`` and ``values`` as they were when the actions were taken, ``advantages``,
            and ``returns`` (normalised).
        config: Settings.
        entropy_weight: At this stage of training.
    """
    moved = log_probabilities - batch["log_probabilities"]
    ratio = moved.exp()
    gain = batch["advantages"] * ratio
    clipped = batch["advantages"] * ratio.clamp(1.0 - config.clip, 1.0 + config.clip)
    policy_loss = -torch.minimum(gain, clipped).mean()
    squares = (values - batch["returns"]).square()
    if config.value_clip is not None:
        near = batch["values"] + (values - batch["values"]).clamp(-config.value_clip, config.value_clip)
        squares = torch.maximum(squares, (near - batch["returns"]).square())
    value_loss = squares.mean()
    loss = policy_loss + config.value_weight * value_loss - entropy_weight * entropy.mean()
    with torch.no_grad():
        stats = {
            "loss/policy": policy_loss.detach(),
            "loss/value": value_loss.detach(),
            "entropy": entropy.detach().mean(),
            "kl": (ratio - 1.0 - moved).mean(),
            "clip_share": ((ratio - 1.0).abs() > config.clip).to(ratio.dtype).mean(),
        }
    return loss, stats


class _Choice(torch.autograd.Function):
    """Log probabilities of actions and entropies, with gradients in closed form: a fraction of the passes."""

    @staticmethod
    def forward(ctx: Any, logits: Tensor, mask: Tensor, actions: Tensor) -> tuple[Tensor, Tensor]:
        logs = torch.log_softmax(masked_logits(logits, mask), dim=-1)
        probabilities = logs.exp()
        entropy = -(probabilities * logs).sum(-1)  # 0 times a large finite number where it is illegal
        ctx.save_for_backward(logs, probabilities, entropy, actions)
        return logs.gather(-1, actions[:, None])[:, 0], entropy

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        of_logs, of_entropy = gradients
        logs, probabilities, entropy, actions = ctx.saved_tensors
        factor = (logs + entropy[:, None]).mul_(of_entropy[:, None]).add_(of_logs[:, None])
        result = factor.mul_(probabilities).neg_()
        return result.scatter_add_(-1, actions[:, None], of_logs[:, None]), None, None


def discrete(logits: Tensor, mask: Tensor, actions: Tensor) -> tuple[Tensor, Tensor]:
    """Log probabilities of actions, and entropies, of choices among the legal ones."""
    both: tuple[Tensor, Tensor] = _Choice.apply(logits, mask, actions)  # type: ignore[no-untyped-call]
    return both


def gaussian(means: Tensor, mask: Tensor, actions: Tensor, noise: float) -> tuple[Tensor, Tensor]:
    """The same of priorities of the hosts that can hold the job: the others' change nothing."""
    legal = mask.to(means.dtype)
    constant = float(np.log(noise) + 0.5 * np.log(2 * np.pi))
    logs = -0.5 * ((actions - means) / noise).square() - constant
    return (logs * legal).sum(-1), (constant + 0.5) * legal.sum(-1)


@register("algorithm", "ppo")
class PPO(Learner):
    """PPO in the middle of training."""

    summary = "proximal policy optimisation: clipped steps on fresh rollouts"
    settings = PPOConfig
    takes_warm_start = True

    def __init__(self, network: SchedulingNetwork, config: PPOConfig, setup: Setup) -> None:
        self.config = config
        self.setup = setup
        self.networks = {"policy": network}
        parameters = [p for p in network.parameters() if p.requires_grad]
        self.optimizers = {
            "policy": torch.optim.Adam(parameters, lr=1.0, eps=1e-5, fused=setup.device.type == "cpu")
        }
        self._parameters = parameters
        self._network = network
        self._generator = torch.Generator().manual_seed(setup.seed)
        self._moments = RunningMoments()
        self._seen = network.inputs
        self._rollout: dict[str, Tensor] = {}
        shape = (config.rollout_steps, setup.envs)
        names = ("rewards", "terminated", "ended", "cut_values")
        self._outcome = {name: np.zeros(shape, np.float32) for name in names}
        self._filled = 0
        self._noise = config.noise.start
        self._updates = 0

    @property
    def at_boundary(self) -> bool:
        """Between rollouts."""
        return self._filled == 0

    # --- Collecting ---

    @torch.no_grad()
    def act(self, observation: Arrays, step: int) -> NDArray[Any]:
        """Draw actions from the policy."""
        if self._filled == 0:
            self._actor = Actor(self._network, self.setup.device)
        seen = to_tensors(observation, self.setup.device)
        logits, values = self._actor(observation)
        mask = seen["mask"]
        if self.setup.sizes.ranks_hosts:
            if self._filled == 0:
                self._noise = self.config.noise.at(self.setup.progress(step))
            noise = torch.randn(logits.shape, generator=self._generator)
            actions = logits + self._noise * noise.to(logits.device)
            logs, _ = gaussian(logits, mask, actions, self._noise)
        else:
            probabilities = torch.log_softmax(masked_logits(logits, mask), dim=-1)
            actions = sample(probabilities, self._generator)
            logs = probabilities.gather(-1, actions[:, None])[:, 0]
        kept = {name: seen[name] for name in self._seen}
        kept |= {"actions": actions, "log_probabilities": logs, "values": values}
        for name, tensor in kept.items():
            if name not in self._rollout:
                shape = (self.config.rollout_steps, *tensor.shape)
                self._rollout[name] = torch.zeros(shape, dtype=tensor.dtype, device=self.setup.device)
            self._rollout[name][self._filled] = tensor
        return actions.cpu().numpy()

    @torch.no_grad()
    def observe(self, transition: Transition) -> None:
        """Keep rewards, ends, and the values of states that were cut off."""
        at = self._filled
        self._outcome["rewards"][at] = transition.rewards
        self._outcome["terminated"][at] = transition.terminated
        self._outcome["ended"][at] = transition.terminated | transition.truncated
        if len(transition.ended):
            _, values = self._actor(transition.last_observation)
            self._outcome["cut_values"][at][transition.ended] = values.cpu().numpy()
        self._filled += 1
        if self._filled == self.config.rollout_steps:
            _, self._last_values = self._actor(transition.next_observation)

    # --- Learning ---

    def update(self, step: int, average: Average) -> dict[str, float] | None:
        """A few epochs on the rollout, once it is full."""
        if self._filled < self.config.rollout_steps:
            return None
        self._filled = 0
        batch = self._batch()
        progress = self.setup.progress(step)
        rate = self.setup.learning_rate.at(progress)
        set_learning_rate(self.optimizers, rate)
        totals: dict[str, float] = {}
        updates = 0
        for _ in range(self.config.epochs):
            kl = 0.0
            parts = self._minibatches(len(batch["actions"]))
            for part in parts:
                rows = part.to(self.setup.device)
                chosen = {name: tensor.index_select(0, rows) for name, tensor in batch.items()}
                stats = self._step(chosen, self.config.entropy.at(progress), average)
                updates += 1
                for name, value in stats.items():
                    totals[name] = totals.get(name, 0.0) + value
                kl += stats["kl"] / len(parts)
            if self._has_moved_far(kl):
                break
        means = {name: total / updates for name, total in totals.items()}
        self._updates += 1
        return {**means, "learning_rate": rate, "optimizer_steps": updates, **self._explained(batch)}

    def _has_moved_far(self, kl: float) -> bool:
        if self.config.target_kl is None:
            return False
        group = self.setup.group
        return float(group.sum_exactly(np.array([kl]))[0]) / group.size > self.config.target_kl

    def _batch(self) -> dict[str, Tensor]:
        """The rollout as one batch of samples, with advantages and returns."""
        outcome = {
            name: torch.from_numpy(array).to(self.setup.device) for name, array in self._outcome.items()
        }
        rollout, config, moments = {**self._rollout, **outcome}, self.config, self._moments
        mean, deviation = (moments.mean, moments.deviation) if config.normalize_values else (0.0, 1.0)
        values = rollout["values"] * deviation + mean
        following = torch.cat([rollout["values"][1:], self._last_values[None]])
        following = torch.where(rollout["ended"] > 0, rollout["cut_values"], following) * deviation + mean
        following = following * (1.0 - rollout["terminated"])
        advantages = gae(
            rollout["rewards"], values, following, rollout["ended"], config.discount, config.gae_lambda
        )
        returns = advantages + values
        if config.normalize_values:
            moments.add(returns, self.setup.group)
            returns = (returns - moments.mean) / moments.deviation
            # Old values in the new units, so that clipping compares like with like.
            old = (values - moments.mean) / moments.deviation
        else:
            old = rollout["values"]
        if config.normalize_advantages:
            advantages = (advantages - advantages.mean()) / (advantages.std() + 1e-8)
        batch = {name: rollout[name] for name in (*self._seen, "actions", "log_probabilities")}
        batch |= {"advantages": advantages, "returns": returns, "values": old}
        return {name: tensor.flatten(0, 1) for name, tensor in batch.items()}

    def _minibatches(self, samples: int) -> list[Tensor]:
        size = max(1, self.config.minibatch // self.setup.group.size)
        order = torch.randperm(samples, generator=self._generator)
        return list(torch.split(order, size))

    def _step(self, batch: dict[str, Tensor], entropy_weight: float, average: Average) -> dict[str, float]:
        """One step of the optimizer."""
        optimizer = self.optimizers["policy"]
        optimizer.zero_grad(set_to_none=True)
        totals: dict[str, float] = {}
        samples = len(batch["actions"])
        for part in torch.arange(samples).chunk(self.setup.accumulate):
            piece = batch if len(part) == samples else {name: t[part] for name, t in batch.items()}
            loss, stats = self._loss(piece, entropy_weight)
            known = {name: float(value) for name, value in stats.items()}
            check_finite("the loss", loss.detach(), **known)
            share = len(part) / samples
            (loss * share).backward()  # type: ignore[no-untyped-call]
            for name, number in known.items():
                totals[name] = totals.get(name, 0.0) + share * number
        average(self._parameters)
        norm = nn.utils.clip_grad_norm_(self._parameters, self.config.max_gradient_norm)
        check_finite("the gradient's norm", norm, **totals)
        optimizer.step()
        return {**totals, "gradient_norm": float(norm)}

    def _loss(self, batch: dict[str, Tensor], entropy_weight: float) -> tuple[Tensor, dict[str, Tensor]]:
        seen: Observation = {name: batch[name] for name in self._seen}
        logits, values = self._network(seen)
        if self.setup.sizes.ranks_hosts:
            logs, entropy = gaussian(logits, seen["mask"], batch["actions"], self._noise)
        else:
            logs, entropy = discrete(logits, seen["mask"], batch["actions"])
        loss, stats = ppo_loss(logs, entropy, values, batch, self.config, entropy_weight)
        if self._updates < self.config.value_updates_first:
            loss = (values - batch["returns"]).square().mean()
        return loss, stats

    def _explained(self, batch: dict[str, Tensor]) -> dict[str, float]:
        """How much of the returns' variance the values told beforehand."""
        variance = float(batch["returns"].var())
        left = float((batch["returns"] - batch["values"]).var())
        return {"explained_variance": 1.0 - left / variance} if variance > 0 else {}

    # --- Resuming ---

    def state(self) -> dict[str, Any]:
        """Random draws and running statistics."""
        return {
            "generator": self._generator.get_state(),
            "moments": self._moments.state(),
            "updates": np.array(self._updates),
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Take ``state`` back."""
        self._generator.set_state(torch.as_tensor(state["generator"]))
        self._moments.restore(state["moments"])
        self._updates = int(state["updates"])
