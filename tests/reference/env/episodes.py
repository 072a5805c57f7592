"""Which jobs an episode holds, how much work they are, its horizon, and metrics of its end.

See docs/contract/mdp.md.
"""

import copy
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from reference.env.observation import quotient
from reference.env.state import EnvState
from reference.simulator.simulator import Job, Node, Outcome, Policy, Request, draw, to_s, uniform

EPISODE_STREAM = 6


@dataclass(frozen=True)
class Episode:
    """What is fixed when an episode begins.

    Attributes:
        requests: All jobs, warm-up and cool-down included, by id.
        own: Ids of the jobs of the window.
        nodes: The cluster.
        horizon_s: H, or None.
    """

    requests: tuple[Request, ...]
    own: tuple[int, ...]
    nodes: Sequence[Node]
    horizon_s: float | None

    @cached_property
    def gpus(self) -> int:
        return sum(node.gpus for node in self.nodes)

    @cached_property
    def counts_cpus(self) -> bool:
        """Whether none of the episode's own jobs has GPUs, so that work is counted in CPU-seconds."""
        return all(self.requests[id].job.gpus == 0 for id in self.own)

    @property
    def counted(self) -> range:
        """Ids of the jobs that rewards count: warm-up and the window, not cool-down."""
        return range(self.own[-1] + 1)

    def has_finished(self, state: EnvState) -> bool:
        return all(id in state.outcomes for id in self.counted)

    def work_of(self, id: int) -> float:
        request = self.requests[id]
        size = float(request.job.cpus) if self.counts_cpus else request.job.size
        return size * to_s(request.duration_us)

    @cached_property
    def work(self) -> float:
        return sum(self.work_of(id) for id in self.own)

    def share(self, id: int) -> float:
        """The job's a."""
        return quotient(self.work_of(id), self.work) if id in self.counted else 0.0

    def share_of(self, requests: Sequence[Request]) -> float:
        """Σ a, by ascending id."""
        return sum(self.share(id) for id in sorted(request.id for request in requests))


def make_episode(
    requests: Sequence[Request],
    warmup: int,
    cooldown: int,
    nodes: Sequence[Node],
    horizon_factor: float | None,
) -> Episode:
    """An episode of all requests but the first `warmup` and the last `cooldown`.

    Their clock begins at its time 0.
    """
    own = tuple(range(warmup, len(requests) - cooldown))
    episode = Episode(tuple(requests), own, nodes, None)
    if horizon_factor is None:
        return episode
    capacity = sum(node.cpus or 0 for node in nodes) if episode.counts_cpus else episode.gpus
    last_arrival_s = to_s(max(requests[id].submit_us for id in own))
    horizon_s = last_arrival_s + quotient(horizon_factor * episode.work, capacity)
    return Episode(tuple(requests), own, nodes, horizon_s)


# --- which jobs


def first_row(seed: int, episode: int, rows: int, jobs_per_episode: int, cooldown_jobs: int = 0) -> int:
    """The first row of a window of a workload, `episode` being the number of episodes begun before."""
    u = uniform(seed, EPISODE_STREAM, episode, 0)
    room = min(cooldown_jobs, (rows - jobs_per_episode) // 2)
    return int(u * (rows - jobs_per_episode - room + 1))


def generator_seed(seed: int, episode: int, generator_seeds: Sequence[int] | None = None) -> int:
    """The seed of a generator's draw."""
    if generator_seeds is None:
        return draw(seed, EPISODE_STREAM, episode, 0) >> 1
    u = uniform(seed, EPISODE_STREAM, episode, 0)
    return generator_seeds[int(u * len(generator_seeds))]


def episode_jobs(jobs: Sequence[Job], row: int, count: int, warmup_jobs: int) -> tuple[list[Job], int]:
    """The jobs of the window that starts at a row after as many warm-up jobs as there are; their number."""
    warmup = min(warmup_jobs, row)
    return list(jobs[row - warmup : row + count]), warmup


# --- metrics of the window's own jobs


def metric(name: str, episode: Episode, outcomes: dict[int, Outcome]) -> float:
    if name == "gpu_utilization":
        return gpu_utilization(episode, outcomes)
    values = [job_metric(name, episode.requests[id], outcomes[id]) for id in episode.own]
    return sum(values) / float(len(values))


def job_metric(name: str, request: Request, outcome: Outcome) -> float:
    wait = to_s(outcome.start_us - request.submit_us)
    jct = to_s(outcome.end_us - request.submit_us)
    r = to_s(request.duration_us)
    return {
        "mean_wait_s": wait,
        "mean_jct_s": jct,
        "mean_slowdown": jct / r,
        "mean_bounded_slowdown": max(1.0, jct / max(r, 10.0)),
    }[name]


def gpu_utilization(episode: Episode, outcomes: dict[int, Outcome]) -> float:
    held = sum(
        episode.requests[id].job.size * to_s(outcomes[id].end_us - outcomes[id].start_us)
        for id in episode.own
    )
    first_us = min(episode.requests[id].submit_us for id in episode.own)
    last_us = max(outcomes[id].end_us for id in episode.own)
    return quotient(held, float(episode.gpus) * to_s(last_us - first_us))


def baseline_metric(name: str, episode: Episode, state: EnvState, policy: Policy) -> float:
    """The metric of a policy that goes on from a state, of which nothing is changed."""
    run = copy.deepcopy(state)
    run.policy = policy
    while run.event_is_pending:
        run.happen()
        run.decide_by_policy()
    if not run.all_have_finished:
        raise ValueError(f"under {policy} some job can never start")
    return metric(name, episode, run.outcomes)
