"""Train MaskablePPO of sb3-contrib on native environments, and compare it with rules on jobs it has not seen.

    python examples/train_maskable_ppo.py 150000

The argument is the number of steps, a minute's worth by default. Needs pip install 'gpuyard[sb3]'.
"""

import sys
from collections.abc import Callable
from typing import Any

import gymnasium
import numpy as np
import torch
from sb3_contrib import MaskablePPO

from gpuyard.env.stable_baselines import StableBaselinesVecEnv

JOBS, WARMUP = 128, 200
TASK: dict[str, Any] = {
    "workload": "surges",
    "jobs_per_episode": JOBS,
    "warmup_jobs": WARMUP,  # without, every episode would begin on an empty cluster
    "rewards": {"slowdown": 1.0},
}
SEEN: dict[str, Any] = {"window": 16, "flatten": True}
"""What the policy sees: of the queue, the 16 jobs that the base policy ranks first."""


def train(steps: int) -> MaskablePPO:
    """A policy that has learned from the first 60 % of the log, by time."""
    native = gymnasium.make_vec("gpuyard/SelectJob-v0", num_envs=8, split="train", **TASK, **SEEN)
    env = StableBaselinesVecEnv(native)
    model = MaskablePPO(
        "MlpPolicy",
        env,
        n_steps=256,
        batch_size=512,
        n_epochs=4,
        gamma=1.0,
        ent_coef=0.01,
        seed=0,
        device="cpu",
    )
    return model.learn(steps)


def slowdowns(env: gymnasium.Env[Any, Any], rows: range, act: Callable[[Any], Any]) -> list[float]:
    """Mean bounded slowdown in the windows that start at these rows."""
    values = []
    for row in rows:
        observation, info = env.reset(options={"episode": row})
        ended = False
        while not ended:
            observation, _, terminated, truncated, info = env.step(act(observation))
            ended = terminated or truncated
        values.append(info["episode_metrics"]["mean_bounded_slowdown"])
    return values


def main(steps: int = 150_000, windows: int = 20) -> None:
    """Print a table of the policy, its base policy and two rules, on the last 20 % of the log."""
    torch.set_num_threads(1)  # the network is small: more threads cost more than they bring
    model = train(steps)

    seen = gymnasium.make("gpuyard/SelectJob-v0", split="test", **TASK, **SEEN)
    # Rules look at the whole queue: a window of all jobs holds it.
    whole = gymnasium.make("gpuyard/SelectJob-v0", split="test", window=JOBS + WARMUP, **TASK)
    starts = seen.unwrapped.model.episode_rows
    rows = starts[:: max(1, len(starts) // windows)][:windows]

    def learned(observation: Any) -> Any:
        masks = seen.get_wrapper_attr("action_masks")()
        return model.predict(observation, action_masks=masks, deterministic=True)[0]

    base = seen.unwrapped.model.policy.name
    results = {f"MaskablePPO, {steps:,} steps": slowdowns(seen, rows, learned)}
    for policy in (base, "sjf+easy", "fifo"):
        expert = whole.get_wrapper_attr("expert_action")
        results[policy] = slowdowns(whole, rows, lambda _, expert=expert, policy=policy: expert(policy))

    print(f"mean bounded slowdown in {len(rows)} windows of the last 20 % of the log; lower is better\n")
    print(f"{'policy':28} {'mean':>8} {'median':>8}   better than {base} in")
    for name, values in results.items():
        better = int(np.sum(np.array(values) < np.array(results[base])))
        print(f"{name:28} {np.mean(values):8.2f} {np.median(values):8.2f}   {better} of {len(rows)}")
    print("\nOne run with one seed; another seed gives another policy.")


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
