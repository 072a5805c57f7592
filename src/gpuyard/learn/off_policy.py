"""What D3QN and SAC share: they learn from a memory of past steps, towards targets of slow copies."""

import copy
from collections.abc import Mapping
from typing import Annotated, Any

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field
from torch import Tensor, nn

from gpuyard.errors import InputError
from gpuyard.learn.learner import (
    Average,
    Learner,
    RunningMoments,
    Setup,
    State,
    check_finite,
    set_learning_rate,
)
from gpuyard.learn.memory.collector import Transition
from gpuyard.learn.memory.replay import Batch, Replay, Storage
from gpuyard.network.config import RULE_KINDS, NetworkConfig
from gpuyard.network.sizes import NetworkSizes

Share = Annotated[float, Field(gt=0, le=1)]


class OffPolicyConfig(BaseModel):
    """Settings that D3QN and SAC share. Steps are decisions, over all environments and processes."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    discount: Share = 0.99
    """Of rewards, per step."""
    n_steps: Annotated[int, Field(ge=1, le=1000)]
    """Rewards that are added up before the value of a state is asked for: more carry news further back in
    one update, and depend more on how the actions in between were chosen."""

    batch_size: Annotated[int, Field(ge=1, le=1_000_000)] = 256
    """Transitions behind one step of the optimizer, over all processes."""
    learning_starts: Annotated[int, Field(ge=0)] = 5_000
    """Steps before the first update."""
    train_every: Annotated[int, Field(ge=1, le=1_000_000)] = 1
    """Steps of each environment between updates."""
    updates: Annotated[int, Field(ge=1, le=10_000)] = 1
    """How many there are each time. With 64 environments, one of 256 learns from each step 4 times."""
    huber_delta: Annotated[float, Field(gt=0)] = 1.0
    """Errors of values beyond this count linearly rather than squared."""
    max_gradient_norm: Annotated[float, Field(gt=0)] = 10.0
    """Longer gradients are shortened to this."""

    target_every: Annotated[int, Field(ge=1, le=10_000_000)] = 1
    """Updates after which slow copies follow."""
    target_share: Share = 0.005
    """How far they follow: a little often (0.005 every update), or wholly now and then (1 every 1,000)."""

    capacity: Annotated[int, Field(ge=2)] = 50_000
    """Steps to remember, over all processes; ``gpuyard env describe`` shows how large an observation is."""
    storage: Storage = "float32"
    """float16 halves the memory and rounds observations to three digits."""
    scale_rewards: bool = True
    """Divide rewards by the running deviation of returns, so that other settings do not depend on units."""


class OffPolicy(Learner):
    """An algorithm with a memory, in the middle of training; subclasses choose actions and learn."""

    _copies: "list[SlowCopy]"

    def __init__(self, config: OffPolicyConfig, setup: Setup, *, prioritised: bool) -> None:
        self._settings = config
        self.setup = setup
        self.replay = Replay(
            config.capacity // setup.group.size,
            setup.sizes,
            setup.envs,
            n_steps=config.n_steps,
            prioritised=prioritised,
            storage=config.storage,
        )
        self.keep_steps = self.replay.places
        self._batch_size = max(1, config.batch_size // setup.group.size)
        self._rng = np.random.default_rng(setup.seed)
        self._returns = np.zeros(setup.envs)  # of the episodes that are under way
        self._recent: list[NDArray[np.float64]] = []  # returns that the deviation does not know of yet
        self._moments = RunningMoments()
        self._updates = 0

    @property
    def at_boundary(self) -> bool:
        """Always: there are no rollouts."""
        return True

    def observe(self, transition: Transition) -> None:
        """Remember a step; in a resumed run, first those that it had remembered before."""
        if self.replay.awaited:
            self.replay.repeat(transition)
            return
        self.replay.add(transition)
        if self._settings.scale_rewards:
            self._returns = self._returns * self._settings.discount + transition.rewards
            self._recent.append(self._returns.copy())
            self._returns[transition.ended] = 0.0

    def update(self, step: int, average: Average) -> dict[str, float] | None:
        """Learn from a batch or several, if it is time to."""
        config = self._settings
        if self.replay.awaited:
            raise RuntimeError(f"{self.replay.awaited} steps are yet to be shown again after restore")
        if step < config.learning_starts or self.replay.seen % config.train_every or not len(self.replay):
            return None
        if self._recent:
            self._moments.add(torch.from_numpy(np.concatenate(self._recent)), self.setup.group)
            self._recent = []
        rate = self.setup.learning_rate.at(self.setup.progress(step))
        set_learning_rate(self.optimizers, rate)
        for _ in range(config.updates):
            values = self._learn(step, average)
            self._updates += 1
            if self._updates % config.target_every == 0:
                self._follow(config.target_share)
        return {**values, "learning_rate": rate, "replay/size": float(self.replay.held)}

    def _learn(self, step: int, average: Average) -> dict[str, float]:
        """One step of the optimizers; what happened, by name."""
        raise NotImplementedError

    def weights_were_set(self) -> None:
        """To be called after weights were loaded into the networks: slow copies follow at once."""
        self._follow(1.0)

    def _follow(self, share: float) -> None:
        for slow_copy in self._copies:
            slow_copy.follow(share)

    def _sample(self, correction: float = 1.0) -> Batch:
        batch = self.replay.sample(
            self._batch_size,
            self._rng,
            discount=self._settings.discount,
            correction=correction,
            scale=self._moments.deviation,
        )
        return batch.to(self.setup.device)

    def _step_optimizers(self, average: Average, known: Mapping[str, float]) -> float:
        """Average and clip gradients, then step; the norm of all gradients before clipping."""
        groups = [_with_gradients(optimizer) for optimizer in self.optimizers.values()]
        average([weight for group in groups for weight in group])
        limit = self._settings.max_gradient_norm
        norm = float(np.hypot.reduce([float(nn.utils.clip_grad_norm_(group, limit)) for group in groups]))
        check_finite("the gradient's norm", norm, **known)
        for optimizer in self.optimizers.values():
            optimizer.step()
        return norm

    def state(self) -> State:
        """Random draws, running statistics, priorities; not the steps remembered."""
        bits: Any = self._rng.bit_generator.state
        numbers = (bits["state"]["state"], bits["state"]["inc"])
        words = [number >> shift & (2**64 - 1) for number in numbers for shift in (64, 0)]
        recent = np.stack(self._recent) if self._recent else np.zeros((0, self.setup.envs))
        return {
            "updates": np.array(self._updates),
            "rng": np.array([*words, bits["has_uint32"], bits["uinteger"]], np.uint64).view(np.int64),
            "returns": self._returns.copy(),
            "recent_returns": recent,
            "moments": self._moments.state(),
            **{f"replay.{name}": array for name, array in self.replay.state().items()},
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Take ``state`` back; ``observe`` is then to be shown the last ``keep_steps`` steps again."""
        given = {name: np.asarray(value) for name, value in state.items()}
        words = [int(word) for word in np.ascontiguousarray(given["rng"]).view(np.uint64)]
        self._rng.bit_generator.state = {
            "bit_generator": "PCG64",
            "state": {"state": words[0] << 64 | words[1], "inc": words[2] << 64 | words[3]},
            "has_uint32": words[4],
            "uinteger": words[5],
        }
        self._updates = int(given["updates"])
        self._returns = given["returns"].copy()
        self._recent = list(given["recent_returns"])
        self._moments.restore(given["moments"])
        prefix = "replay."
        self.replay.restore(
            {name.removeprefix(prefix): given[name] for name in given if name.startswith(prefix)}
        )


def adam(weights: list[nn.Parameter], device: torch.device) -> torch.optim.Adam:
    """Adam over those of the weights that are trained; its learning rate is set before every update."""
    trained = [weight for weight in weights if weight.requires_grad]
    return torch.optim.Adam(trained, lr=1.0, eps=1e-5, fused=device.type == "cpu")


def _with_gradients(optimizer: torch.optim.Optimizer) -> list[nn.Parameter]:
    """Without an output of a network that the loss does not use."""
    return [w for group in optimizer.param_groups for w in group["params"] if w.grad is not None]


class SlowCopy:
    """A copy of a network that follows it."""

    def __init__(self, network: nn.Module) -> None:
        self.network = copy.deepcopy(network).requires_grad_(False)
        self._slow: list[Tensor] = [*self.network.parameters(), *self.network.buffers()]
        self._fast: list[Tensor] = [*network.parameters(), *network.buffers()]

    @torch.no_grad()
    def follow(self, share: float) -> None:
        """Move every weight this far towards the network's; 1 copies it."""
        if share == 1.0:
            torch._foreach_copy_(self._slow, self._fast)
        else:
            torch._foreach_lerp_(self._slow, self._fast, share)


def legal_actions(observation: Mapping[str, Tensor]) -> Tensor:
    """True where an action can be executed [B, A]."""
    return observation["mask"] != 0


def check_has_values(network: NetworkConfig, sizes: NetworkSizes, algorithm: str) -> None:
    """Raise an InputError if there are no values of actions to learn."""
    if sizes.ranks_hosts:
        raise InputError(f"{algorithm} chooses among actions, but {sizes.kind} takes numbers; use ppo")
    if network.kind in RULE_KINDS:
        raise InputError(
            f"a rule has no values for {algorithm} to learn; use network.kind = 'job-scorer' with "
            "network.residual = 'rule'"
        )
