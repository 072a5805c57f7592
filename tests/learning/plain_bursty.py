"""The bursty workload's environment in plain Python, from the text of its publication and nothing else.

Eight identical GPUs, the 50 oldest waiting jobs to choose from. Each step starts the chosen job, if any, and
then consumes one event: the next finish or arrival. The reward is the share of the work that completed, minus
dt/H times the share that waits or is still to be run *after* the event. At the end it is the share that is
left of the horizon H = last arrival + 1.3 work / GPUs if all have finished, else minus the share of the work
that has not. (The penalty for a no-op while something fits is left out: the rules here never do that.)
"""

import heapq
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from gpuyard.workload import Workload

GPUS = 8
WINDOW = 50
MAX_STEPS = 2_000


@dataclass(frozen=True)
class PlainJob:
    arrival: float
    duration: float
    gpus: int

    @property
    def work(self) -> float:
        return self.gpus * self.duration


Rule = Callable[[Sequence[PlainJob]], PlainJob]


def oldest(feasible: Sequence[PlainJob]) -> PlainJob:
    return feasible[0]


def shortest(feasible: Sequence[PlainJob]) -> PlainJob:
    return min(feasible, key=lambda job: job.duration)


def any_of(rng: random.Random) -> Rule:
    return lambda feasible: feasible[rng.randrange(len(feasible))]


def plain_jobs(workload: Workload, keeps_clock: bool = False) -> list[PlainJob]:
    """Of a draw. Workloads begin at 0; with `keeps_clock` they begin when the formulas say they do."""
    offset = workload.metadata.epoch_s if keeps_clock else 0.0
    columns = (workload.frame[name].to_list() for name in ("submit_s", "duration_s", "gpus"))
    return [PlainJob(offset + submit_s, *rest) for submit_s, *rest in zip(*columns, strict=True)]


def plain_return(jobs: Sequence[PlainJob], rule: Rule, one_by_one: bool = False) -> float:
    """The return of an episode under a rule that never waits while something fits.

    Args:
        jobs: In order of arrival.
        rule: Chooses among the jobs of the window that fit.
        one_by_one: Whether jobs that arrive together are several events, not one.
    """
    work = sum(job.work for job in jobs)
    horizon = jobs[-1].arrival + 1.3 * work / GPUS
    coming = [*reversed(jobs)]
    waiting: list[PlainJob] = []
    running: list[tuple[float, int, PlainJob]] = []
    now, total, finished, free, steps = 0.0, 0.0, 0.0, GPUS, 0
    while coming and coming[-1].arrival <= 0.0:
        waiting.append(coming.pop())
    while (waiting or running or coming) and now <= horizon and steps < MAX_STEPS:
        feasible = [job for job in waiting[:WINDOW] if job.gpus <= free]
        if feasible:
            job = rule(feasible)
            waiting.remove(job)
            free -= job.gpus
            heapq.heappush(running, (now + job.duration, steps, job))
        before, steps = now, steps + 1
        arrival = coming[-1].arrival if coming else float("inf")
        now = min(arrival, running[0][0] if running else float("inf"))
        while running and running[0][0] <= now:
            job = heapq.heappop(running)[2]
            free += job.gpus
            finished += job.work
            total += job.work / work
        while coming and coming[-1].arrival <= now:
            waiting.append(coming.pop())
            if one_by_one:
                break
        left = sum(job.work for job in waiting)
        left += sum(job.work * (end - now) / job.duration for end, _, job in running)
        total -= (now - before) / horizon * left / work
    if waiting or running or coming:
        return total - (1.0 - finished / work)
    return total + max(0.0, (horizon - now) / horizon)
