"""Whole episodes of the native environments, and what came of them, computed in plain Python."""

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import polars as pl
import pytest

from differential.env_cases import COLUMNS
from gpuyard.cluster.model import Cluster, GpuType
from gpuyard.env import SchedulingEnv
from gpuyard.workload import Workload, make_workload
from reference.simulator.simulator import Job

Choose = Callable[[SchedulingEnv, Any], Any]
FAST_AND_SLOW = (
    GpuType(name="fast", speed=2.0, idle_w=40, peak_w=400),
    GpuType(name="slow", speed=0.7, idle_w=10, peak_w=70),
)

JOB_MODES: tuple[dict[str, Any], ...] = (
    {"step_mode": "instant"},
    {"step_mode": "event"},
    {"step_mode": "tick", "tick_s": 4.0},
    {"step_mode": "blocking"},
    {"step_mode": "blocking", "blocking_backfill": True},
)
MODES_BY_KIND = {
    "select-job": JOB_MODES,
    "select-job-and-pool": JOB_MODES,
    "accept-or-skip": JOB_MODES[:3],
    "select-host": JOB_MODES[:3],
    "rank-hosts": JOB_MODES[:3],
}
KINDS_AND_MODES = [(kind, mode) for kind, modes in MODES_BY_KIND.items() for mode in modes]


def workload_of(jobs: Sequence[Job], **metadata: Any) -> Workload:
    """The jobs as a workload, in their order."""
    columns = {name: [getattr(job, name) for job in jobs] for name in COLUMNS}
    return make_workload(pl.DataFrame(columns, infer_schema_length=None, strict=False), **metadata)


def make_env(jobs: Sequence[Job], cluster: Cluster | str, kind: str = "select-job", **settings: Any) -> Any:
    """An environment whose one episode are these jobs."""
    return SchedulingEnv(
        kind, workload=workload_of(jobs), cluster=cluster, **{"jobs_per_episode": len(jobs)} | settings
    )


@dataclass(frozen=True)
class Episode:
    """An episode that has ended: the reward of each step, and what the last one reported."""

    rewards: list[float]
    terminated: bool
    truncated: bool
    metrics: dict[str, float]
    schedule: dict[str, Any]

    @property
    def total(self) -> float:
        return sum(self.rewards)


def play(env: SchedulingEnv, choose: Choose, seed: int = 0, episode: int | None = None) -> Episode:
    """Act until the episode ends."""
    _, info = env.reset(seed=seed, options=None if episode is None else {"episode": episode})
    rewards: list[float] = []
    while True:
        _, reward, terminated, truncated, info = env.step(choose(env, info["action_mask"]))
        rewards.append(reward)
        if terminated or truncated:
            return Episode(rewards, terminated, truncated, info["episode_metrics"], env.schedule())


def in_turn(*actions: int) -> Choose:
    """Acts as listed; the episode must end with the last action."""
    left = list(actions)
    return lambda *_: left.pop(0)


def at_random(seed: int) -> Choose:
    """Any legal action; where hosts are ranked, any of a few priorities, so that some are equal."""
    rng = random.Random(seed)

    def choose(env: SchedulingEnv, mask: Any) -> Any:
        if env.model.kind == "rank-hosts":
            return [rng.choice((-1.0, 0.0, 0.5)) for _ in mask]
        return rng.choice([action for action, legal in enumerate(mask) if legal])

    return choose


def following(policy: str) -> Choose:
    return lambda env, _: env.expert_action(policy)


def starts_and_ends(schedule: Any) -> list[tuple[int, int]]:
    """In µs, of every job."""
    start_us, end_us = (
        (schedule[name] if isinstance(schedule, dict) else getattr(schedule, name)).tolist()
        for name in ("start_us", "end_us")
    )
    return list(zip(start_us, end_us, strict=True))


def allocations(schedule: Any) -> list[list[tuple[int, int]]]:
    """Nodes, and GPUs on each, of every job."""
    offset, node, gpus = (
        (schedule[name] if isinstance(schedule, dict) else getattr(schedule, name)).tolist()
        for name in ("node_offset", "node", "node_gpus")
    )
    parts = list(zip(node, gpus, strict=True))
    return [parts[begin:end] for begin, end in pairwise(offset)]


@dataclass(frozen=True)
class Run:
    """When and where a job ran; seconds."""

    job: Job
    submit_s: float
    start_s: float
    end_s: float
    parts: list[tuple[int, int]]

    @property
    def wait_s(self) -> float:
        return self.start_s - self.submit_s

    @property
    def jct_s(self) -> float:
        return self.end_s - self.submit_s

    @property
    def length_s(self) -> float:
        return self.end_s - self.start_s

    @property
    def bounded_slowdown(self) -> float:
        return max(1.0, self.jct_s / max(self.job.duration_s, 10.0))


def runs_of(jobs: Sequence[Job], schedule: dict[str, Any]) -> list[Run]:
    """What became of the jobs, all of which must have run."""
    times, places = starts_and_ends(schedule), allocations(schedule)
    assert len(times) == len(jobs)
    assert all(0 <= start_us < end_us for start_us, end_us in times)
    submits = (schedule["submit_us"] / 1e6).tolist()
    return [
        Run(job, submit_s, start_us / 1e6, end_us / 1e6, parts)
        for job, submit_s, (start_us, end_us), parts in zip(jobs, submits, times, places, strict=True)
    ]


def same_metrics(seen: dict[str, float], expected: dict[str, float | int | None]) -> None:
    """All metrics that both have are equal but for rounding; None is NaN."""
    common = seen.keys() & expected.keys()
    assert len(common) >= 36, sorted(common)
    for name in sorted(common):
        value = expected[name]
        value = float("nan") if value is None else value
        assert seen[name] == pytest.approx(value, rel=1e-9, abs=1e-12, nan_ok=True), name


def random_jobs(
    rng: random.Random,
    count: int,
    sizes: Sequence[int],
    *,
    cpus: bool = False,
    shared: bool = False,
    grid_s: float = 1.0,
) -> list[Job]:
    """Jobs that come a few at a time, of times on a coarse grid, so that much happens at once."""
    jobs, submit_s = [], 0.0
    for _ in range(count):
        gpus = rng.choice(sizes)
        duration_s = rng.choice((1, 2, 3, 3, 5, 8, 13, 30)) * grid_s
        job = Job(
            submit_s,
            duration_s,
            gpus,
            cpus=rng.choice((0, 1, 2, 4)) if cpus or gpus == 0 else 0,
            memory_mib=rng.choice((0, 100, 300)) if cpus else 0,
            estimate_s=rng.choice((duration_s, duration_s, 2 * duration_s, 10 * grid_s, 0.5 * duration_s)),
            priority=rng.choice((0.0, 1.0, 1.0, 2.0, 5.0)),
            user=rng.choice(("ada", "bo", "cy")),
            group=rng.choice(("red", "blue")),
            deadline_s=rng.choice((None, submit_s + 3 * duration_s)),
        )
        if shared and gpus == 1 and rng.random() < 0.5:
            job = replace(job, gpu_milli=rng.choice((250, 500, 501)))
        jobs.append(job)
        submit_s += rng.choice((0, 0, 1, 2, 4)) * grid_s
    return jobs


def steps(
    jobs: Sequence[Job], cluster: Cluster | str, actions: Sequence[int], **settings: Any
) -> list[float]:
    """The reward of each step, terms of jobs not divided; the episode must end with the last action."""
    defaults = {"base_policy": "fifo", "window": 4, "per_job": False}
    episode = play(make_env(jobs, cluster, **defaults | settings), in_turn(*actions))
    assert len(episode.rewards) == len(actions)
    return episode.rewards
