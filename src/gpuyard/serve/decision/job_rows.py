"""A job's rows in the tables of a snapshot: what it asks for while it waits, or holds while it runs."""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from gpuyard.cluster.model import Cluster
from gpuyard.native.columns import UNKNOWN_RUN_S
from gpuyard.serve.decision.job_shapes import is_regular, like_node, natural, needs, row_of, whole_nodes
from gpuyard.serve.decision.memory import Memory
from gpuyard.serve.state import ClusterState, Job, Share

Eligible = Callable[[Job], bool]
NOBODY = ""
"""User and group of what is in use by nobody knows whom."""
QUEUE = (
    *("submit_s", "estimate_s", "gpus", "cpus", "memory_mib", "nodes", "priority", "deadline_s", "row"),
    *("queued_s", "prediction_s", "fair_factor", "attained_s", "user", "group"),
)
"""Columns of rows of waiting jobs."""
RUNNING = (
    *("begin_s", "estimate_s", "gpus", "cpus", "memory_mib", "nodes", "row", "attained_s"),
    *("user", "group"),
)
"""Columns of rows of jobs that hold nodes."""


class Owners:
    """Users or groups: numbers that stay, and those of one snapshot, which are in order of name."""

    def __init__(self) -> None:
        self._numbers = {NOBODY: 0}

    @property
    def names(self) -> list[str]:
        """By number."""
        return list(self._numbers)

    def number(self, name: str) -> int:
        """Of a user or group, which may be new."""
        return self._numbers.setdefault(name, len(self._numbers))

    def in_order(
        self, used: Iterable[NDArray[np.int32]], named: Iterable[str]
    ) -> tuple[list[str], NDArray[np.int32]]:
        """Who is used or named, in order of name, and the place of each number in that order."""
        wanted = {self.number(name) for name in named} | {self._numbers[NOBODY]}
        present = np.zeros(len(self._numbers), bool)
        present[list(wanted)] = True
        for numbers in used:
            present[numbers] = True
        names = self.names
        chosen = sorted(np.flatnonzero(present).tolist(), key=names.__getitem__)
        places = np.full(len(names), -1, np.int32)
        places[chosen] = np.arange(len(chosen), dtype=np.int32)
        return [names[number] for number in chosen], places


@dataclass(slots=True)
class Known:
    """What is known of a job.

    Attributes:
        job: As it was; another object means that something may have changed.
        waits: Whether it holds no nodes.
        key: That jobs are sorted by.
        partition: Whose nodes it may use; empty in a cluster without any.
        why: Why it may not be decided on, if it waits.
        rows: Of tables, until they are kept: one, or one for each part where parts are unlike.
        count: How many there are.
        row: Where the first of them is kept; -1: nowhere.
        parts: How many nodes each row has.
        node: Nodes of all rows.
        held: GPUs, CPUs and memory on each of them.
        ids: Its id for its first row, nothing for others.
        notes: What is odd about it.
        lasts: Whether all of this stays so while the job stays as it is.
    """

    job: Job
    waits: bool
    key: tuple[float, tuple[int, ...], str]
    partition: str = ""
    why: str = ""
    rows: list[tuple[float, ...]] = field(default_factory=list)
    count: int = 0
    row: int = -1
    parts: list[int] = field(default_factory=list)
    node: list[int] = field(default_factory=list)
    held: list[tuple[int, int, int]] = field(default_factory=list)
    ids: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    lasts: bool = True


class RowMaker:
    """Makes the rows of jobs of one cluster.

    Args:
        cluster: As policies see it.
        state: A state that lists its nodes and partitions.
        zero_s: Of the policies' clock.
        estimates: ``requested`` or ``history``.
        eligible: Which waiting jobs may be decided on.
        users: Numbers of users.
        groups: The same of groups.
    """

    def __init__(
        self,
        cluster: Cluster,
        state: ClusterState,
        zero_s: float,
        estimates: str,
        eligible: Eligible,
        users: Owners,
        groups: Owners,
    ) -> None:
        self._cluster, self._zero_s, self._estimates = cluster, zero_s, estimates
        self._eligible, self._users, self._groups = eligible, users, groups
        self.number_of = {node.name: number for number, node in enumerate(state.nodes)}
        self._partitions = {one.name for one in cluster.partitions}
        default = next((one.name for one in cluster.partitions if one.default), None)
        self._default = default or next((one.name for one in cluster.partitions), "")

    def _known(self, job: Job) -> Known:
        partition = job.partition if job.partition in self._partitions else self._default
        return Known(job, job.waits, (job.submit_s, natural(job.id), job.id), partition)

    def _owner(self, job: Job) -> tuple[int, int]:
        return self._users.number(job.user), self._groups.number(job.group)

    def _estimate(self, job: Job, memory: Memory) -> float:
        estimate_s = memory.estimate_s(job, self._estimates)
        return math.nan if estimate_s is None else max(1e-6, estimate_s)

    # --- waiting

    def waiting(self, job: Job, state: ClusterState, memory: Memory) -> Known:
        """The row of a waiting job, if it may be decided on."""
        known = self._known(job)
        known.why = job.left or self._unfit(job, state)
        if not known.why and not self._eligible(job):
            known.why = "not held for the agent"
        if known.why:
            return known
        zero_s = self._zero_s
        row = (
            job.submit_s - zero_s,
            self._estimate(job, memory),
            *needs(job, state),
            job.site_priority,
            math.nan if job.deadline_s is None else job.deadline_s - zero_s,
            row_of(job),
            memory.queued_s.get(job.id, job.submit_s) - zero_s,
            memory.predictions_s.get(job.id, UNKNOWN_RUN_S),
            job.fair_factor,
            memory.attained_s.get(job.id, 0.0),
            *self._owner(job),
        )
        known.rows, known.count = [row], 1
        return known

    def _unfit(self, job: Job, state: ClusterState) -> str:
        if job.held == "other":
            return "held"
        if self._partitions and job.partition not in self._partitions:
            return f"partition {job.partition!r} is not known"
        if job.gpus > self._cluster.total_gpus:
            return "asks for more GPUs than there are"
        if job.exclusive and like_node(job, state) is None:
            return "asks for whole nodes, of which there are several kinds"
        return ""

    # --- running

    def running(
        self, job: Job, state: ClusterState, memory: Memory, shares: Sequence[Share] | None = None
    ) -> Known:
        """Rows of a running job: one, or one for each part where parts are unlike.

        Args:
            job: The job.
            state: Where it runs.
            memory: What is remembered of it.
            shares: What it holds; None: what the state says.
        """
        known = self._known(job)
        known.lasts = job.begin_s is not None and shares is None
        given = whole_nodes(job, state) if shares is None else shares
        there = [share for share in given if share.node in self.number_of]
        if shares is None:
            known.notes = self._oddities(job, given, memory)
        parts = sorted(((self.number_of[share.node], share) for share in there), key=lambda part: part[0])
        if not parts:
            return known
        begin_s = (job.begin_s if job.begin_s is not None else state.now_s) - self._zero_s
        # What has nothing left to do is expected to end now.
        estimate_s = 1e-6 if job.phase == "ending" else self._estimate(job, memory)
        times = (begin_s, estimate_s)
        further = (row_of(job), memory.attained_s.get(job.id, 0.0), *self._owner(job))
        known.held = [(share.gpus, share.cpus, share.memory_mib) for _, share in parts]
        known.node = [node for node, _ in parts]
        if is_regular(job, [share for _, share in parts]):
            nodes = len(parts) if job.gpus == 0 and len(parts) > 1 else 0
            known.rows = [(*times, job.gpus, job.cpus, job.memory_mib, nodes, *further)]
            known.parts = [len(parts)]
        else:
            known.rows = [(*times, *held, 0, *further) for held in known.held]
            known.parts = [1] * len(parts)
        known.count = len(known.rows)
        known.ids = (job.id, *[""] * (known.count - 1))
        return known

    def _oddities(self, job: Job, given: Sequence[Share], memory: Memory) -> tuple[str, ...]:
        unknown = [share.node for share in given if share.node not in self.number_of]
        notes = [f"job {job.id} runs on {node}, which is not listed as a node" for node in unknown]
        if not given and not memory.in_flight.get(job.id):
            notes.append(f"job {job.id} runs, but on no node that is known")
        return tuple(notes)

    def unlisted(self, node: int, gpus: int, now_s: float) -> Known:
        """GPUs of a node that are in use by nobody knows whom."""
        known = self._known(Job("", "running", now_s))
        nobody = (self._users.number(NOBODY), self._groups.number(NOBODY))
        known.rows = [(now_s - self._zero_s, math.nan, gpus, 0, 0, 0, 0, 0.0, *nobody)]
        known.parts, known.node, known.held = [1], [node], [(gpus, 0, 0)]
        known.count, known.ids, known.lasts = 1, ("",), False
        return known
