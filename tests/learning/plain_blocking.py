"""Heuristics on a machine of equal processors, one chosen job at a time, in plain Python.

The chosen job is the first in order; time moves from event to event until it fits. With backfill others start
meanwhile, oldest first: those that end by the time at which the chosen one is expected to fit, or that leave
enough for it then (docs/contract/mdp.md, "Time"). In the environment that the published figures come from,
only those that end by then do. Estimates are exact.
"""

import heapq
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from gpuyard.workload import Workload

PROCESSORS = 256


COLUMNS = ("submit_s", "duration_s", "gpus")


@dataclass(frozen=True)
class PlainJob:
    row: int
    submit: float
    duration: float
    size: int


Score = Callable[[PlainJob, float], float]

SCORES: dict[str, Score] = {
    "fifo": lambda job, now: job.submit,
    "sjf": lambda job, now: job.duration,
    "f1": lambda job, now: math.log10(job.duration) * job.size + 870.0 * math.log10(max(job.submit, 1.0)),
    "wfp3": lambda job, now: -(((now - job.submit) / job.duration) ** 3) * job.size,
    "unicep": lambda job, now: -(now - job.submit) / (math.log2(max(job.size, 2)) * job.duration),
}


def plain_jobs(workload: Workload, first: int, count: int) -> list[PlainJob]:
    """A window, on the clock of the trace."""
    columns = (workload.frame[name][first : first + count].to_list() for name in COLUMNS)
    return [PlainJob(first + i, *job) for i, job in enumerate(zip(*columns, strict=True))]


class PlainMachine:
    """The state of a machine on which jobs arrive."""

    def __init__(self, jobs: Sequence[PlainJob]) -> None:
        self.coming = [*reversed(jobs)]
        self.waiting: list[PlainJob] = []
        self.running: list[tuple[float, int, PlainJob]] = []
        self.free = PROCESSORS
        self.now = jobs[0].submit
        self.slowdowns: list[float] = []
        self.arrive()

    def arrive(self) -> None:
        while self.coming and self.coming[-1].submit <= self.now:
            self.waiting.append(self.coming.pop())

    def start(self, job: PlainJob) -> None:
        self.waiting.remove(job)
        self.free -= job.size
        heapq.heappush(self.running, (self.now + job.duration, job.row, job))
        end = self.now + job.duration
        self.slowdowns.append(max(1.0, (end - job.submit) / max(job.duration, 10.0)))

    def next_event(self) -> None:
        arrival = self.coming[-1].submit if self.coming else float("inf")
        self.now = min(arrival, self.running[0][0] if self.running else float("inf"))
        while self.running and self.running[0][0] <= self.now:
            self.free += heapq.heappop(self.running)[2].size
        self.arrive()

    def backfill(self, chosen: PlainJob, around: bool) -> None:
        room, shadow = self.free, 0.0
        for end, _, job in sorted(self.running):
            if room >= chosen.size and end > shadow:
                break
            room, shadow = room + job.size, end
        room -= chosen.size
        for job in [job for job in self.waiting if job is not chosen]:
            if job.size > self.free:
                continue
            if self.now + job.duration <= shadow:
                self.start(job)
            elif around and job.size <= room:
                room -= job.size
                self.start(job)


def plain_slowdown(jobs: Sequence[PlainJob], order: str, backfill: bool, around: bool = True) -> float:
    """The mean bounded slowdown under an order.

    Args:
        jobs: In order of arrival.
        order: One of `SCORES`.
        backfill: Whether other jobs start while the chosen one does not fit.
        around: Whether they may outlast that, if they leave enough for it.
    """
    machine, score = PlainMachine(jobs), SCORES[order]
    while machine.waiting or machine.coming:
        if not machine.waiting:
            machine.next_event()
            continue
        now = machine.now
        chosen = min(machine.waiting, key=lambda job: (score(job, now), job.submit, job.row))
        while chosen.size > machine.free:
            if backfill:
                machine.backfill(chosen, around)
            machine.next_event()
        machine.start(chosen)
    return sum(machine.slowdowns) / len(jobs)
