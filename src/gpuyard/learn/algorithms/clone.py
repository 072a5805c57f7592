"""Behaviour cloning: learn to do what a policy does; docs/algorithms/clone.md.

States are collected by the policy that is imitated, and to a share by the network itself: a learner that has
only ever seen its teacher's states does not know what to do after its own mistakes (Ross et al. 2011).
"""

from collections.abc import Callable, Mapping
from typing import Annotated, Any, Self

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field
from torch import Tensor, nn

from gpuyard.env.vector import SchedulingVectorEnv
from gpuyard.learn.config import TrainConfig
from gpuyard.learn.learner import (
    Average,
    Learner,
    Setup,
    check_finite,
    sample,
    set_learning_rate,
    to_tensors,
)
from gpuyard.learn.memory.collector import Arrays, Transition
from gpuyard.learn.networks.heads import masked_logits
from gpuyard.policies.grammar import parse_policy
from gpuyard.registry import register


class CloneConfig(BaseModel):
    """Settings of behaviour cloning."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    policy: str = "wspt+easy"
    """What is imitated."""
    own_share: Annotated[float, Field(ge=0, le=1)] = 0.2
    """Of the actions taken, those that the network chooses; the labels are the policy's throughout."""
    rollout_steps: Annotated[int, Field(ge=1, le=1_000_000)] = 32
    """Steps of each environment between updates."""
    epochs: Annotated[int, Field(ge=1, le=1000)] = 2
    """Passes over what was seen between updates."""
    minibatch: Annotated[int, Field(ge=1)] = 512
    """Samples behind one step of the optimizer, over all processes."""
    max_gradient_norm: Annotated[float, Field(gt=0)] = 1.0
    """Longer gradients are shortened to this."""


def clone_loss(logits: Tensor, mask: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
    """Cross entropy to the labels, and the share of labels that are the likeliest action."""
    legal = masked_logits(logits, mask)
    loss = nn.functional.cross_entropy(legal, labels)
    return loss, (legal.argmax(-1) == labels).to(logits.dtype).mean()


def ranking_loss(means: Tensor, mask: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
    """Of priorities of hosts: those that can hold the job shall stand where the label's do."""
    legal = mask.to(means.dtype)
    loss = (((means - labels) * legal).square().sum(-1) / legal.sum(-1).clamp(min=1)).mean()
    chosen = masked_logits(means, mask).argmax(-1) == masked_logits(labels, mask).argmax(-1)
    return loss, chosen.to(means.dtype).mean()


@register("algorithm", "clone")
class Clone(Learner):
    """Behaviour cloning in the middle of training.

    Args:
        network: To be trained.
        config: Settings.
        setup: Everything else.
        expert: Says what the policy does in every environment's present state.
    """

    summary = "behaviour cloning: learn to act as a policy does"
    settings = CloneConfig

    def __init__(
        self, network: nn.Module, config: CloneConfig, setup: Setup, expert: Callable[[], NDArray[Any]]
    ) -> None:
        self.config = config
        self.setup = setup
        self.networks = {"policy": network}
        self._network = network
        self._parameters = [p for p in network.parameters() if p.requires_grad]
        self.optimizers = {
            "policy": torch.optim.Adam(self._parameters, lr=1.0, fused=setup.device.type == "cpu")
        }
        self._expert = expert
        self._generator = torch.Generator().manual_seed(setup.seed)
        self._rollout: list[dict[str, Tensor]] = []

    @classmethod
    def create(
        cls, network: nn.Module, settings: CloneConfig, setup: Setup, env: SchedulingVectorEnv
    ) -> Self:
        """A learner that asks the environments what the policy would do."""
        return cls(network, settings, setup, lambda: env.expert_actions(settings.policy))

    @classmethod
    def prepare(cls, config: TrainConfig) -> tuple[TrainConfig, list[str]]:
        """Refuses policies that do not exist."""
        parse_policy(config.settings.policy)
        return super().prepare(config)

    @property
    def at_boundary(self) -> bool:
        """Between rollouts."""
        return not self._rollout

    @torch.no_grad()
    def act(self, observation: Arrays, step: int) -> NDArray[Any]:
        """The policy's actions, and to a share the network's own."""
        seen = to_tensors(observation, self.setup.device)
        labels = torch.from_numpy(np.asarray(self._expert())).to(self.setup.device)
        self._rollout.append({**seen, "labels": labels})
        if self.config.own_share == 0:
            return labels.cpu().numpy()
        logits, _ = self._network(seen)
        if self.setup.sizes.ranks_hosts:
            own = logits
        else:
            own = sample(torch.log_softmax(masked_logits(logits, seen["mask"]), -1), self._generator)
        chosen = torch.rand(len(labels), generator=self._generator) < self.config.own_share
        chosen = chosen.to(self.setup.device).view(-1, *[1] * (labels.ndim - 1))
        return torch.where(chosen, own.to(labels.dtype), labels).cpu().numpy()

    def observe(self, transition: Transition) -> None:
        """What comes of actions does not matter here."""

    def update(self, step: int, average: Average) -> dict[str, float] | None:
        """A few epochs on what was seen since the last update, once it is enough."""
        if len(self._rollout) < self.config.rollout_steps:
            return None
        batch = {name: torch.cat([part[name] for part in self._rollout]) for name in self._rollout[0]}
        self._rollout = []
        rate = self.setup.learning_rate.at(self.setup.progress(step))
        set_learning_rate(self.optimizers, rate)
        totals = np.zeros(3)
        size = max(1, self.config.minibatch // self.setup.group.size)
        for _ in range(self.config.epochs):
            order = torch.randperm(len(batch["labels"]), generator=self._generator)
            for part in torch.split(order, size):
                totals += [
                    *self._step({name: tensor[part] for name, tensor in batch.items()}, average),
                ]
        loss, agreement, norm = totals / (self.config.epochs * -(-len(batch["labels"]) // size))
        return {"loss/clone": loss, "agreement": agreement, "gradient_norm": norm, "learning_rate": rate}

    def _step(self, batch: dict[str, Tensor], average: Average) -> tuple[float, float, float]:
        optimizer = self.optimizers["policy"]
        optimizer.zero_grad(set_to_none=True)
        logits, _ = self._network(batch)
        of = ranking_loss if self.setup.sizes.ranks_hosts else clone_loss
        loss, agreement = of(logits, batch["mask"], batch["labels"])
        check_finite("the loss", loss.detach())
        loss.backward()  # type: ignore[no-untyped-call]
        average(self._parameters)
        norm = nn.utils.clip_grad_norm_(self._parameters, self.config.max_gradient_norm)
        check_finite("the gradient's norm", norm, loss=float(loss.detach()))
        optimizer.step()
        return float(loss.detach()), float(agreement), float(norm)

    def state(self) -> dict[str, Any]:
        """Random draws."""
        return {"generator": self._generator.get_state()}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Take ``state`` back."""
        self._generator.set_state(torch.as_tensor(state["generator"]))
