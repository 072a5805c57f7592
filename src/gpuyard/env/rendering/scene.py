"""What there is to draw of an environment: who holds which GPU, who waits, what is left."""

import math
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gpuyard import _core
from gpuyard.cluster.model import UNLIMITED

MIB_PER_GIB = 1024
LONGEST_S = 2_592_000.0
"""Lengths of time are drawn by their logarithm, up to 30 days, as observations have them."""

Holders = tuple[int, ...]
"""The jobs that hold one GPU: none, one, or those that share it."""


@dataclass(frozen=True)
class WaitingJob:
    """A row of the window.

    Attributes:
        row: In the window, from 0.
        job: Its number in the episode.
        gpus: A fraction for a share of one.
        cpus: 0 if it asks for none.
        memory_mib: 0 if it asks for none.
        estimate_s: NaN if unknown.
        wait_s: Since it was submitted.
    """

    row: int
    job: int
    gpus: float
    cpus: int
    memory_mib: int
    estimate_s: float
    wait_s: float


@dataclass(frozen=True)
class RunningJob:
    """A job that runs.

    Attributes:
        job: Its number in the episode.
        nodes: Those it is on, each with its GPUs there.
        left_s: Until its expected end; NaN if unknown.
    """

    job: int
    nodes: tuple[tuple[int, int], ...]
    left_s: float

    @property
    def gpus(self) -> int:
        """GPUs that it is on; one that it shares counts in full."""
        return sum(gpus for _, gpus in self.nodes)


@dataclass(frozen=True)
class Use:
    """How much of a node's CPUs or memory is taken; ``capacity`` is None where nobody stated it."""

    free: int
    capacity: int | None

    @property
    def share(self) -> float:
        """In use, from 0 to 1."""
        return 1.0 - self.free / self.capacity if self.capacity else 0.0


class Scene:
    """A snapshot, sorted for drawing."""

    def __init__(self, snapshot: _core.Snapshot, clock_s: float, window: list[int]) -> None:
        self.clock_s = clock_s
        self._nodes = snapshot.nodes
        self.gpus: NDArray[Any] = self._nodes["gpus"]
        self.empty_gpus: NDArray[Any] = self._nodes["empty_gpus"]
        self.pool: NDArray[Any] = self._nodes["pool"]
        self.running = _running(snapshot)
        queue = snapshot.queue
        self.waiting = len(queue["job"])
        self.window = _window(queue, window)

    @property
    def total_gpus(self) -> int:
        """Of the cluster."""
        return int(self.gpus.sum())

    @property
    def gpus_in_use(self) -> float:
        """By fraction."""
        return self.total_gpus - float(self._nodes["free_milli"].sum()) / 1000.0

    @property
    def use_text(self) -> str:
        """How many GPUs are in use, for a heading."""
        use, total = self.gpus_in_use, self.total_gpus
        return f"{round(use, 2):,.10g} of {total:,} GPUs in use ({100 * use / total:.1f} %)"

    @property
    def pools(self) -> list[NDArray[np.int64]]:
        """The nodes of each pool."""
        return [np.flatnonzero(self.pool == pool) for pool in np.unique(self.pool)]

    @cached_property
    def holders(self) -> list[list[Holders]]:
        """For every node and GPU who holds it.

        The core tells how many GPUs of a node a job has, not which; they are shown in order of jobs.
        """
        parts: list[list[tuple[int, int]]] = [[] for _ in self.gpus]
        for job in self.running:
            for node, gpus in job.nodes:
                parts[node].append((job.job, gpus))
        return [
            _seated(held, int(size), int(size - empty))
            for held, size, empty in zip(parts, self.gpus, self.empty_gpus, strict=True)
        ]

    def jobs_on(self, node: int) -> int:
        """How many jobs run on a node."""
        return int(self._job_counts[node])

    @cached_property
    def _job_counts(self) -> NDArray[np.int64]:
        nodes = [node for job in self.running for node, _ in job.nodes]
        return np.bincount(np.array(nodes, dtype=np.int64), minlength=len(self.gpus))

    def occupancy(self) -> tuple[NDArray[Any], NDArray[Any], str]:
        """Of each node what is in use and what there is, and its name; without GPUs, whether a job runs."""
        if self.total_gpus:
            return self.gpus - self.empty_gpus, self.gpus, "its GPUs in use"
        return np.minimum(self._job_counts, 1), np.ones_like(self._job_counts), "its nodes with a job"

    def cpus(self, node: int) -> Use:
        """CPUs of a node."""
        return self._use("cpus", "free_cpus", node)

    def memory_gib(self, node: int) -> Use:
        """Memory of a node."""
        use = self._use("memory_mib", "free_memory_mib", node)
        return Use(use.free // MIB_PER_GIB, use.capacity and use.capacity // MIB_PER_GIB)

    def _use(self, name: str, free_name: str, node: int) -> Use:
        capacity = int(self._nodes[name][node]) if name in self._nodes else UNLIMITED
        return Use(int(self._nodes[free_name][node]), None if capacity >= UNLIMITED else capacity)


def _running(snapshot: _core.Snapshot) -> list[RunningJob]:
    columns = snapshot.running
    left_s = columns["expected_end_s"] - snapshot.now_s
    return [
        RunningJob(job, tuple(snapshot.nodes_of(job)), left)
        for job, left in sorted(zip(columns["job"].tolist(), left_s.tolist(), strict=True))
    ]


def _window(queue: dict[str, NDArray[Any]], window: list[int]) -> list[WaitingJob]:
    place = {job: i for i, job in enumerate(queue["job"].tolist())}
    gpus = queue["gpus"] * queue["gpu_milli"] / 1000.0
    return [
        WaitingJob(
            row=row,
            job=job,
            gpus=float(gpus[place[job]]),
            cpus=int(queue["cpus"][place[job]]),
            memory_mib=int(queue["memory_mib"][place[job]]),
            estimate_s=float(queue["estimate_s"][place[job]]),
            wait_s=float(queue["wait_s"][place[job]]),
        )
        for row, job in enumerate(window)
        if job in place
    ]


def _seated(parts: list[tuple[int, int]], size: int, busy: int) -> list[Holders]:
    """Jobs on the GPUs of one node; if they are more than its busy GPUs, those with one GPU share."""
    whole = sum(gpus for _, gpus in parts)
    if whole <= busy:
        seats: list[Holders] = [(job,) for job, gpus in parts for _ in range(gpus)]
    else:
        seats = [(job,) for job, gpus in parts if gpus > 1 for _ in range(gpus)]
        singles = [job for job, gpus in parts if gpus == 1]
        left = max(busy - len(seats), 1)
        cuts = [round(i * len(singles) / left) for i in range(left + 1)]
        seats += [tuple(singles[a:b]) for a, b in pairwise(cuts)]
    return (seats + [()] * size)[:size]


def log_share(value: float, most: float) -> float:
    """Where a value lies on a logarithmic scale from 0 to ``most``; 0 if it is unknown."""
    if math.isnan(value) or value <= 0 or most <= 0:
        return 0.0
    return min(math.log1p(value) / math.log1p(most), 1.0)
