"""PPO learns as fast and as far as sb3-contrib's MaskablePPO, with the same settings on the same task."""

from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from sb3_contrib import MaskablePPO
from stable_baselines3.common.torch_layers import BaseFeaturesExtractor

import gpuyard.env  # noqa: F401 (registers the ids)
from gpuyard.env.stable_baselines import StableBaselinesVecEnv
from gpuyard.env.vector import SchedulingVectorEnv, make_model
from gpuyard.learn.collector import Collector
from gpuyard.learn.group import ProcessGroup
from gpuyard.learn.learner import Setup
from gpuyard.learn.networks import make_network
from gpuyard.learn.ppo import PPO, PPOConfig
from gpuyard.learn.schedules import Schedule
from gpuyard.network.config import NetworkConfig
from gpuyard.network.rollout import native_network, run_episodes
from gpuyard.network.sizes import NetworkSizes

pytestmark = pytest.mark.slow

ENVS, ROLLOUT, EPOCHS, MINIBATCH, RATE, WIDTH = 16, 64, 4, 256, 1e-3, 64
STEPS = 60 * ENVS * ROLLOUT
CHECKS = (20 * ENVS * ROLLOUT, STEPS)
SEEDS = (0, 1, 2)
TASK: dict[str, Any] = {
    "generator": {"preset": "demo", "jobs": 48, "load": 2.0},
    "cluster": "2x8",
    "window": 8,
    "tokens": "classes",
    "lookahead": "off",
    "base_policy": "fifo+easy",  # only orders the window here
}
HELD_OUT = list(range(2**40, 2**40 + 48))


class Trunk(BaseFeaturesExtractor):
    """The layers that gpuyard's mlp has."""

    def __init__(self, space: Any) -> None:
        super().__init__(space, WIDTH)
        layers = [torch.nn.Linear(space.shape[0], WIDTH), torch.nn.ReLU(), torch.nn.Linear(WIDTH, WIDTH)]
        self.layers = torch.nn.Sequential(*layers, torch.nn.ReLU())

    def forward(self, observations: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = self.layers(observations)
        return result


def ours(seed: int) -> list[float]:
    """Mean held-out returns of our PPO after each of ``CHECKS``."""
    env = SchedulingVectorEnv("select-job", ENVS, threads=1, **TASK)
    sizes, config = NetworkSizes.of(env.model), NetworkConfig(kind="mlp", width=WIDTH, depth=2)
    network = make_network(config, sizes, seed=seed)
    alone = ProcessGroup(0, 1)
    setup = Setup(sizes, ENVS, STEPS, Schedule(start=RATE), seed, torch.device("cpu"), 1, alone)
    settings = PPOConfig(
        rollout_steps=ROLLOUT, epochs=EPOCHS, minibatch=MINIBATCH, discount=0.999, target_kl=None
    )
    learner, collector = PPO(network, settings, setup), Collector(env, [100 * seed + i for i in range(ENVS)])
    scores, step = [], 0
    while step < STEPS:
        learner.observe(collector.step(learner.act(collector.observation, step)))
        step += ENVS
        learner.update(step, alone.average)
        if step in CHECKS:
            tensors = {name: tensor.detach().numpy() for name, tensor in network.state_dict().items()}
            chooser = native_network(config, sizes, tensors)
            scores.append(float(run_episodes(env.model, HELD_OUT, chooser).returns.mean()))
    return scores


def theirs(seed: int) -> list[float]:
    """The same of MaskablePPO."""
    native = gymnasium.make_vec("gpuyard/SelectJob-v0", num_envs=ENVS, flatten=True, **TASK)
    model = MaskablePPO(
        "MlpPolicy",
        StableBaselinesVecEnv(native),
        n_steps=ROLLOUT,
        batch_size=MINIBATCH,
        n_epochs=EPOCHS,
        learning_rate=RATE,
        gamma=0.999,
        gae_lambda=0.95,
        ent_coef=0.01,
        policy_kwargs={"features_extractor_class": Trunk, "net_arch": []},
        seed=seed,
        device="cpu",
    )
    scores, done = [], 0
    for check in CHECKS:
        model.learn(check - done, reset_num_timesteps=done == 0)
        done = check
        scores.append(_held_out(model))
    return scores


def _held_out(model: MaskablePPO) -> float:
    returns = []
    env = gymnasium.make("gpuyard/SelectJob-v0", flatten=True, **TASK)
    for name in HELD_OUT:
        observation, info = env.reset(options={"episode": name})
        ended = False
        while not ended:
            mask = info["action_mask"].astype(bool)
            action, _ = model.predict(observation, action_masks=mask, deterministic=True)
            observation, _, terminated, truncated, info = env.step(int(action))
            ended = terminated or truncated
        returns.append(info["episode_metrics"]["return"])
    return float(np.mean(returns))


@pytest.mark.xfail(
    reason="in 61,000 steps neither comes to beat fifo on this task: a better one is to be found"
)
def test_learning_curves_are_on_par() -> None:
    torch.set_num_threads(1)
    own = np.array([ours(seed) for seed in SEEDS])
    peer = np.array([theirs(seed) for seed in SEEDS])
    settings = {name: value for name, value in TASK.items() if name not in ("generator", "cluster")}
    model = make_model("select-job", None, TASK["generator"], TASK["cluster"], None, settings)
    rules = {
        name: float(run_episodes(model, HELD_OUT, name).returns.mean())
        for name in ("fifo+greedy", "sjf+greedy")
    }
    print(f"ours {own.tolist()}, MaskablePPO {peer.tolist()}, {rules}")
    spread = float(np.sqrt(own[:, -1].var(ddof=1) / len(SEEDS) + peer[:, -1].var(ddof=1) / len(SEEDS)))
    gap = abs(rules["sjf+greedy"] - rules["fifo+greedy"])
    # Not worse by more than chance (two standard errors, and a tenth of what ordering by length gains).
    assert own[:, -1].mean() > peer[:, -1].mean() - 2 * spread - 0.1 * gap
    assert own[:, -1].mean() > rules["fifo+greedy"]
