"""Samples a second of PPO against sb3-contrib's MaskablePPO, and against what the network alone allows.

The same environment, 64 of them, rollouts of 128 steps, 4 epochs, on two processors,
measured in turns. MaskablePPO runs once as it comes (a network of 256 x 256 each for policy and values), once
with the layout that gpuyard uses (one such network for both). The ceiling of a network is what two processes
reach that do nothing but the forward passes of collecting a rollout and the forward and backward passes of
four epochs over it, in the same minibatches, without waiting for each other.
"""

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from gpuyard.learn.process.launch import MALLOC, ONE_THREAD
from gpuyard.registry import register
from harness import BenchResult, measure_apart

ENVS, ROLLOUT, EPOCHS, PROCESSES = 64, 128, 4, 2
MINIBATCHES = {"mlp": 1024, "job-scorer": 2048, "cross-attention": 512}
ROUNDS = 2
SECONDS = 25.0
TASK: dict[str, Any] = {"workload": "diurnal", "cluster": "64x8", "jobs_per_episode": 512, "split": "train"}
NETWORKS: dict[str, dict[str, Any]] = {
    "mlp": {"kind": "mlp", "width": 256, "depth": 2},
    "job-scorer": {"kind": "job-scorer", "width": 32},
    "cross-attention": {"kind": "cross-attention", "width": 64, "depth": 1},
}
CEILING = "its forward and backward passes alone"


@register("benchmark", "train")
def training() -> Iterator[BenchResult]:
    """PPO samples a second against MaskablePPO; job-scorer and cross-attention against their ceilings."""
    rounds = [(_own("mlp"), _apart("peer"), _apart("peer-shared")) for _ in range(ROUNDS)]
    own, peer, shared = (max(figures[side] for figures in rounds) for side in range(3))
    yield BenchResult("train ppo, mlp 256x256", own, "samples/s", "MaskablePPO as it comes", peer, 1.7)
    yield BenchResult("train ppo, mlp 256x256", own, "samples/s", "MaskablePPO, one network", shared)
    for name in ("job-scorer", "cross-attention"):
        pairs = [(_own(name), _ceiling(name)) for _ in range(ROUNDS)]
        own, ceiling = (max(pair[side] for pair in pairs) for side in range(2))
        yield BenchResult(f"train ppo, {name}", own, "samples/s", CEILING, ceiling, 0.75)


def _own(network: str) -> float:
    """Samples a second of a real run, from its progress log."""
    from gpuyard.learn.config import read_config
    from gpuyard.learn.process.launch import TrainingProcesses

    tables = {
        "algorithm": "ppo",
        "environment": {**{name: value for name, value in TASK.items() if name != "split"}, "envs": ENVS},
        "network": NETWORKS[network],
        "training": {"steps": 10**9, "minutes": SECONDS / 60, "processes": PROCESSES},
        "validation": {"windows": 1, "every_steps": 10**9, "heuristics": ["fifo"]},
        "ppo": {
            "rollout_steps": ROLLOUT,
            "epochs": EPOCHS,
            "minibatch": MINIBATCHES[network],
            "target_kl": 1e9,
        },
    }
    with tempfile.TemporaryDirectory() as folder:
        directory = Path(folder)
        (directory / "config.toml").write_text(read_config(tables).to_toml(), encoding="utf-8")
        processes = TrainingProcesses(directory, PROCESSES, resume=False)
        while (code := processes.poll()) is None:
            time.sleep(0.2)
        processes.check(code)
        lines = map(json.loads, (directory / "progress.jsonl").read_text(encoding="utf-8").splitlines())
        rates = [line["samples_per_s"] for line in lines if line["event"] == "update"]
    return float(statistics.median(rates[1:]))


def _apart(what: str) -> float:
    return measure_apart(__file__, what, one_thread=False)["samples_per_s"]


def _ceiling(network: str) -> float:
    """What two processes reach together."""
    command = [sys.executable, __file__, "ceiling", network]
    environment = os.environ | MALLOC | ONE_THREAD
    started = [
        subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True)
        for _ in range(PROCESSES)
    ]
    outputs = [process.communicate()[0] for process in started]
    return sum(float(json.loads(output)["samples_per_s"]) for output in outputs)


# --- In processes of their own ---


def _measure_ceiling(name: str) -> float:
    import numpy as np
    import torch

    from gpuyard.env.vector import SchedulingVectorEnv
    from gpuyard.learn.networks.heads import make_network
    from gpuyard.network.config import NetworkConfig
    from gpuyard.network.sizes import NetworkSizes

    torch.set_num_threads(1)
    collecting, learning = ENVS // PROCESSES, MINIBATCHES[name] // PROCESSES
    env = SchedulingVectorEnv("select-job", learning, threads=1, **TASK)
    observation, _ = env.reset(seed=0)
    for _ in range(200):
        observation, *_ = env.step(env.random_actions())
    network = make_network(NetworkConfig(**NETWORKS[name]), NetworkSizes.of(env.model), seed=0)
    rollout = [observation]
    while len(rollout) * learning < ROLLOUT * collecting:
        rollout.append(env.step(env.random_actions())[0])
    whole = {part: torch.from_numpy(np.concatenate([one[part] for one in rollout])) for part in rollout[0]}
    small = _pieces(whole, collecting)
    large = _pieces(whole, learning)

    def pass_over() -> None:
        with torch.no_grad():
            for piece in small:
                network(piece)
        for _ in range(EPOCHS):
            for piece in large:
                network.zero_grad(set_to_none=True)
                logits, value = network(piece)
                (logits.sum() + value.sum()).backward()

    pass_over()
    times = []
    end = time.perf_counter() + SECONDS / 2
    while time.perf_counter() < end:
        began = time.perf_counter()
        pass_over()
        times.append(time.perf_counter() - began)
    return len(whole["mask"]) / statistics.median(times)


def _pieces(whole: dict[str, Any], size: int) -> list[dict[str, Any]]:
    count = len(whole["mask"]) // size
    return [{part: tensor[i * size : (i + 1) * size] for part, tensor in whole.items()} for i in range(count)]


def _measure_peer(*, shared: bool) -> float:
    import gymnasium
    import torch
    from sb3_contrib import MaskablePPO
    from stable_baselines3.common.callbacks import BaseCallback
    from stable_baselines3.common.torch_layers import BaseFeaturesExtractor

    import gpuyard.env  # noqa: F401 (registers the ids)
    from gpuyard.env.stable_baselines import StableBaselinesVecEnv

    class Trunk(BaseFeaturesExtractor):
        def __init__(self, space: Any) -> None:
            super().__init__(space, 256)
            layers = (torch.nn.Linear(space.shape[0], 256), torch.nn.ReLU(), torch.nn.Linear(256, 256))
            self.layers = torch.nn.Sequential(*layers, torch.nn.ReLU())

        def forward(self, observations: torch.Tensor) -> torch.Tensor:
            result: torch.Tensor = self.layers(observations)
            return result

    class Clock(BaseCallback):
        def __init__(self) -> None:
            super().__init__()
            self.marks: list[float] = []

        def _on_step(self) -> bool:
            return not self.marks or time.perf_counter() - self.marks[0] < SECONDS

        def _on_rollout_start(self) -> None:
            self.marks.append(time.perf_counter())

    torch.set_num_threads(PROCESSES)
    native = gymnasium.make_vec("gpuyard/SelectJob-v0", num_envs=ENVS, flatten=True, **TASK)
    one = {"features_extractor_class": Trunk, "net_arch": []}
    two = {"net_arch": [256, 256], "activation_fn": torch.nn.ReLU}
    model = MaskablePPO(
        "MlpPolicy",
        StableBaselinesVecEnv(native),
        n_steps=ROLLOUT,
        batch_size=MINIBATCHES["mlp"],
        n_epochs=EPOCHS,
        policy_kwargs=one if shared else two,
        device="cpu",
        seed=0,
    )
    clock = Clock()
    model.learn(10**9, callback=clock)
    spans = [later - earlier for earlier, later in zip(clock.marks, clock.marks[1:], strict=False)]
    return ENVS * ROLLOUT / statistics.median(spans)


if __name__ == "__main__":
    what = sys.argv[1]
    figure = (
        _measure_ceiling(sys.argv[2]) if what == "ceiling" else _measure_peer(shared=what == "peer-shared")
    )
    print(json.dumps({"samples_per_s": figure}))
