"""Scheduling problems so small that every sequence of actions can be tried, and a loop to learn them by."""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import numpy as np
import torch

from gpuyard.env import SchedulingEnv, SchedulingVectorEnv
from gpuyard.learn.learner import Learner, to_tensors
from gpuyard.learn.memory.collector import Collector
from gpuyard.learn.networks.heads import masked_logits
from gpuyard.network.sizes import NetworkSizes
from reference.simulator.simulator import Job
from support.env_runs import workload_of
from support.small_learning import alone

EXACT: dict[str, Any] = {"estimates": "exact"}


@dataclass(frozen=True)
class TinyProblem:
    """One episode of a few jobs, always the same.

    Attributes:
        kind: Of the environment.
        cluster: What the jobs run on.
        jobs: All there are.
        settings: Of the environment.
        pitfall: A policy that acts as one would at first sight, and is not the best.
    """

    kind: str
    cluster: str
    jobs: tuple[Job, ...]
    pitfall: str
    settings: dict[str, Any] = field(default_factory=dict)

    @property
    def arguments(self) -> dict[str, Any]:
        """Of an environment."""
        common = {"jobs_per_episode": len(self.jobs), "lookahead_horizon_s": 1000.0}
        return {"workload": workload_of(self.jobs), "cluster": self.cluster, **common, **self.settings}

    def vector(self, envs: int) -> SchedulingVectorEnv:
        """Several of it."""
        return SchedulingVectorEnv(self.kind, envs, threads=1, **EXACT, **self.arguments)

    def single(self) -> SchedulingEnv:
        """One of it."""
        return SchedulingEnv(self.kind, **EXACT, **self.arguments)

    @property
    def sizes(self) -> NetworkSizes:
        """Of its observations."""
        return NetworkSizes.of(self.single().model)


PROBLEMS = {
    # One GPU, all jobs there from the start: the shortest first, against the order of arrival.
    "order": TinyProblem(
        "select-job",
        "1x1",
        tuple(Job(0.0, duration_s, 1) for duration_s in (300.0, 20.0, 120.0, 60.0)),
        pitfall="fifo+greedy",
        settings={"window": 4, "base_policy": "fifo+greedy"},
    ),
    # A long job could start beside one that runs, but short ones are to come: it must be held back, twice.
    "wait": TinyProblem(
        "select-job",
        "1x3",
        (Job(0.0, 200.0, 1), Job(0.0, 100.0, 2), Job(10.0, 10.0, 2), Job(25.0, 20.0, 2)),
        pitfall="sjf+greedy",
        settings={"window": 4, "base_policy": "fifo+greedy"},
    ),
    # The small job must go to the small node, or the large one that follows cannot start.
    "host": TinyProblem(
        "select-host",
        "1x4:a,1x2:b,1x3:c",
        (Job(0.0, 500.0, 2), Job(1.0, 400.0, 3), Job(2.0, 100.0, 4), Job(600.0, 50.0, 1)),
        pitfall="fifo+greedy/first-fit",
    ),
}


@cache
def best_return(name: str) -> float:
    """The largest return of any sequence of actions."""
    env = PROBLEMS[name].single()
    best = -np.inf
    unexplored: list[tuple[int, ...]] = [()]
    while unexplored:
        beginning = unexplored.pop()
        mask, total, over = _replay(env, beginning)
        if over:
            best = max(best, total)
        else:
            unexplored += [(*beginning, int(action)) for action in np.flatnonzero(mask)]
    return float(best)


def _replay(env: SchedulingEnv, actions: tuple[int, ...]) -> tuple[Any, float, bool]:
    _, info = env.reset(seed=0)
    total, over = 0.0, False
    for action in actions:
        _, reward, terminated, truncated, info = env.step(action)
        total += reward
        over = terminated or truncated
    return info["action_mask"], total, over


def return_of(env: SchedulingEnv, choose: Callable[[Any], Any]) -> float:
    """What a policy earns in an episode."""
    observation, _ = env.reset(seed=0)
    total, over = 0.0, False
    while not over:
        observation, reward, terminated, truncated, _ = env.step(choose(observation))
        total += reward
        over = terminated or truncated
    return total


def learnt_return(learner: Learner, name: str) -> float:
    """What a learner's policy earns when it does what it holds best."""

    @torch.no_grad()
    def choose(observation: Any) -> int:
        rows = {part: array[None] for part, array in observation.items()}
        seen = to_tensors(rows, torch.device("cpu"))
        return int(masked_logits(learner.networks["policy"](seen)[0], seen["mask"]).argmax())

    return return_of(PROBLEMS[name].single(), choose)


def train_tiny(learner: Learner, env: SchedulingVectorEnv, steps: int) -> int:
    """Learn from so many steps of every environment; returns the number of updates."""
    collector = Collector(env, list(range(env.num_envs)))
    updates = 0
    for number in range(1, steps + 1):
        actions = learner.act(collector.observation, (number - 1) * env.num_envs)
        learner.observe(collector.step(actions))
        updates += learner.update(number * env.num_envs, alone) is not None
    return updates
