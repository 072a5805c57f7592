"""A task that our PPO and sb3-contrib's MaskablePPO learn from the same weights, with the same settings."""

from dataclasses import dataclass
from typing import Any, cast

import gymnasium
import numpy as np
import torch
from numpy.typing import NDArray
from sb3_contrib import MaskablePPO
from sb3_contrib.common.maskable.policies import MaskableMultiInputActorCriticPolicy
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.torch_layers import BaseFeaturesExtractor
from torch import Tensor

import gpuyard.env  # noqa: F401 (registers the ids)
from gpuyard.env.stable_baselines import StableBaselinesVecEnv
from gpuyard.env.vector import SchedulingVectorEnv
from gpuyard.learn.algorithms.ppo import PPO, PPOConfig
from gpuyard.learn.memory.collector import Collector
from gpuyard.learn.networks.heads import SchedulingNetwork, make_network
from gpuyard.learn.rates import Schedule
from gpuyard.network.config import NetworkConfig
from gpuyard.network.rollout import native_network, run_episodes
from gpuyard.network.sizes import NetworkSizes
from support.small_learning import alone, setup_of

TASK: dict[str, Any] = {
    "generator": {
        "preset": "demo",
        "jobs": 32,
        "cluster_gpus": 4,
        "load": 1.5,
        "arrivals": "poisson",
        "gang_mix": ((1, 1.0),),
        "durations": "lognormal",
        "duration_median_s": 100.0,
        "duration_sigma": 1.2,
        "duration_min_s": 10.0,
        "duration_max_s": 2000.0,
    },
    "cluster": "4x1",
    "window": 8,
    "tokens": "classes",
    "lookahead": "off",
    "base_policy": "fifo+greedy",  # only orders the window here
    "rewards": {"slowdown": 1.0},
}
"""32 jobs of one GPU, half more than 4 GPUs can do: shortest first is four times as good as by arrival."""
NETWORK = NetworkConfig(kind="job-scorer", width=32, depth=2)
HELD_OUT = list(range(2**40, 2**40 + 96))


@dataclass(frozen=True)
class SharedSettings:
    """What both learners are given."""

    envs: int = 16
    rollout: int = 32
    epochs: int = 4
    minibatch: int = 256
    rate: float = 2e-3
    discount: float = 0.99
    gae_lambda: float = 0.95
    clip: float = 0.2
    entropy: float = 0.01
    network: NetworkConfig = NETWORK

    @property
    def steps_per_update(self) -> int:
        """Of all environments together."""
        return self.envs * self.rollout


@dataclass(frozen=True)
class Learnt:
    """How a learner came along.

    Attributes:
        returns: Mean returns of the episodes that it learnt from, from one of the given updates to the next.
        held_out: The mean return of the best actions of its policy at the end, on held-out episodes.
    """

    returns: NDArray[np.float64]
    held_out: float


def held_out_return(chooser: SchedulingNetwork | str) -> float:
    """The mean return of a network that does what it holds best, or of a policy, on held-out episodes."""
    model = SchedulingVectorEnv("select-job", 1, threads=1, **TASK).model
    if isinstance(chooser, str):
        return float(run_episodes(model, HELD_OUT, chooser).returns.mean())
    weights = {name: tensor.detach().numpy() for name, tensor in chooser.state_dict().items()}
    native = native_network(chooser.config, chooser.sizes, weights)
    return float(run_episodes(model, HELD_OUT, native).returns.mean())


def learn_by_ours(settings: SharedSettings, seed: int, updates: tuple[int, ...]) -> Learnt:
    """Train our PPO, and tell its mean return up to each of these updates."""
    env = SchedulingVectorEnv("select-job", settings.envs, threads=1, **TASK)
    sizes = NetworkSizes.of(env.model)
    network = make_network(settings.network, sizes, seed=seed)
    setup = setup_of(sizes, settings.envs, learning_rate=Schedule(start=settings.rate), seed=seed)
    config = PPOConfig(
        rollout_steps=settings.rollout,
        epochs=settings.epochs,
        minibatch=settings.minibatch,
        discount=settings.discount,
        gae_lambda=settings.gae_lambda,
        clip=settings.clip,
        entropy=Schedule(start=settings.entropy),
        # MaskablePPO does none of these.
        value_clip=None,
        normalize_values=False,
        target_kl=None,
    )
    learner = PPO(network, config, setup)
    collector = Collector(env, [seed + i for i in range(settings.envs)])  # as MaskablePPO seeds them
    returns, done = [], 0
    while done < updates[-1]:
        learner.observe(collector.step(learner.act(collector.observation, 0)))
        if learner.update(0, alone) is not None:
            done += 1
            if done in updates:
                returns.append(collector.take_finished()["return"])
    return Learnt(np.array(returns), held_out_return(network))


def learn_by_theirs(settings: SharedSettings, seed: int, updates: tuple[int, ...]) -> Learnt:
    """The same of MaskablePPO."""
    env = cast(
        SchedulingVectorEnv,
        gymnasium.make_vec("gpuyard/SelectJob-v0", num_envs=settings.envs, threads=1, **TASK),
    )
    network = make_network(settings.network, NetworkSizes.of(env.model), seed=seed)
    model = MaskablePPO(
        _SamePolicy,
        StableBaselinesVecEnv(env),
        n_steps=settings.rollout,
        batch_size=settings.minibatch,
        n_epochs=settings.epochs,
        learning_rate=settings.rate,
        gamma=settings.discount,
        gae_lambda=settings.gae_lambda,
        clip_range=settings.clip,
        ent_coef=settings.entropy,
        policy_kwargs={
            "features_extractor_class": _WholeNetwork,
            "features_extractor_kwargs": {"network": network},
            "net_arch": [],
        },
        seed=seed,
        device="cpu",
    )
    returns, done = [], 0
    for update in updates:
        ended = _EndedEpisodes()
        steps = (update - done) * settings.steps_per_update
        model.learn(steps, callback=ended, reset_num_timesteps=done == 0)
        done = update
        returns.append(np.mean(ended.returns))
    return Learnt(np.array(returns), held_out_return(network))


class _EndedEpisodes(BaseCallback):
    """Keeps the returns of episodes that end."""

    def __init__(self) -> None:
        super().__init__()
        self.returns: list[float] = []

    def _on_step(self) -> bool:
        self.returns += [info["episode"]["r"] for info in self.locals["infos"] if "episode" in info]
        return True


class _WholeNetwork(BaseFeaturesExtractor):
    """One of our networks, its logits and value in one row."""

    def __init__(self, space: Any, network: SchedulingNetwork) -> None:
        super().__init__(space, network.sizes.actions + 1)
        self.network = network

    def forward(self, observation: dict[str, Tensor]) -> Tensor:
        logits, values = self.network(observation)
        return torch.cat([logits, values[:, None]], 1)


class _Columns(torch.nn.Module):
    """Some of a row's numbers."""

    def __init__(self, begin: int, end: int) -> None:
        super().__init__()
        self._begin, self._end = begin, end

    def forward(self, rows: Tensor) -> Tensor:
        return rows[:, self._begin : self._end]


class _SamePolicy(MaskableMultiInputActorCriticPolicy):
    """A policy without layers of its own: the network's outputs as they are, its first weights too."""

    def _build(self, lr_schedule: Any) -> None:
        self._build_mlp_extractor()
        actions = int(cast(gymnasium.spaces.Discrete, self.action_space).n)
        self.action_net, self.value_net = _Columns(0, actions), _Columns(actions, actions + 1)  # type: ignore[assignment]
        self.optimizer = self.optimizer_class(self.parameters(), lr=lr_schedule(1), **self.optimizer_kwargs)
