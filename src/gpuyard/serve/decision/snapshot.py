"""The one way from a live state to the snapshot that every policy decides on.

A state changes little from round to round, and with thousands of jobs every microsecond per job counts. So
what is known of a job is worked out once, and again only when something about it changes.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gpuyard import _core
from gpuyard.cluster.model import Cluster
from gpuyard.config import SimulationConfig
from gpuyard.native.columns import UNKNOWN_RUN_S
from gpuyard.native.snapshot import make_snapshot
from gpuyard.serve.decision.job_shapes import (
    flying,
    is_regular,
    like_node,
    natural,
    needs,
    row_of,
    whole_nodes,
)
from gpuyard.serve.decision.live_cluster import live_cluster
from gpuyard.serve.decision.memory import Memory
from gpuyard.serve.state import ClusterState, Job, Share

Eligible = Callable[[Job], bool]
Ints = NDArray[np.int64]
_NOBODY = ""
"""User and group of what is in use by nobody knows whom."""
_QUEUE = (
    *("submit_s", "estimate_s", "gpus", "cpus", "memory_mib", "nodes", "priority", "deadline_s", "row"),
    *("queued_s", "prediction_s", "fair_factor", "attained_s", "user", "group"),
)
_RUNNING = (
    *("begin_s", "estimate_s", "gpus", "cpus", "memory_mib", "nodes", "row", "attained_s"),
    *("user", "group"),
)


@dataclass(frozen=True)
class LiveSnapshot:
    """A snapshot of a live cluster, and what its numbers stand for.

    Attributes:
        snapshot: For ``Policy.decide``.
        cluster: The cluster as policies see it.
        ids: Ids of jobs by number; empty for parts of jobs.
        nodes: Names of nodes by number.
        queue: Ids of the jobs that may be decided on, in order of number.
        left: Waiting jobs that may not, with the reason.
        notes: What was odd about the state, for people.
    """

    snapshot: _core.Snapshot
    cluster: Cluster
    ids: tuple[str, ...]
    nodes: tuple[str, ...]
    queue: tuple[str, ...]
    left: dict[str, str]
    notes: tuple[str, ...]


def make_live_snapshot(
    state: ClusterState,
    memory: Memory,
    config: SimulationConfig,
    *,
    estimates: str = "requested",
    eligible: Eligible | None = None,
    cluster: Cluster | None = None,
) -> LiveSnapshot:
    """What policies decide on. ``memory`` has seen the state.

    Args:
        state: As an adapter observed it.
        memory: What earlier states left behind.
        config: Settings of the policy.
        estimates: ``requested`` or ``history``.
        eligible: Which waiting jobs may be decided on; None: all that are not left to the scheduler.
        cluster: What it is known to be; None: as the state tells.

    Raises:
        InputError: if the state cannot be.
    """
    return Encoder(config, estimates, eligible or (lambda _: True), cluster).encode(state, memory)


@dataclass(slots=True)
class _Known:
    """What is known of a job.

    Attributes:
        job: As it was; another object means that something may have changed.
        key: That jobs are sorted by.
        why: Why it may not be decided on, if it waits.
        rows: Numbers of its row, or of each of its rows if its parts on nodes are unlike.
        parts: How many nodes each row has.
        node: Nodes of all rows.
        held: GPUs, CPUs and memory on each of them.
        ids: Its id for its first row, nothing for others.
    """

    job: Job
    key: tuple[float, tuple[int, ...], str]
    why: str = ""
    rows: list[tuple[float, ...]] = field(default_factory=list)
    parts: list[int] = field(default_factory=list)
    node: list[int] = field(default_factory=list)
    held: list[tuple[int, int, int]] = field(default_factory=list)
    ids: list[str] = field(default_factory=list)


class Encoder:
    """Makes snapshots of one cluster, round after round.

    Args:
        config: Settings of the policy.
        estimates: ``requested`` or ``history``.
        eligible: Which waiting jobs may be decided on.
        cluster: What it is known to be; None: as states tell.
    """

    def __init__(
        self, config: SimulationConfig, estimates: str, eligible: Eligible, cluster: Cluster | None = None
    ) -> None:
        self.config, self.estimates, self.eligible = config, estimates, eligible
        self._given = cluster
        self._known: dict[str, _Known] = {}
        self._basis: tuple[Any, ...] = ()
        self._cluster: Cluster | None = None
        self._users: dict[str, int] = {_NOBODY: 0}
        self._groups: dict[str, int] = {_NOBODY: 0}
        self._capacity: Ints = np.zeros((0, 3), np.int64)
        self._number_of: dict[str, int] = {}
        self._partitions: set[str] = set()
        self._zero_s = 0.0

    def encode(self, state: ClusterState, memory: Memory) -> LiveSnapshot:
        """The snapshot of a state that the memory has seen.

        Raises:
            InputError: if the state cannot be.
        """
        state.check()
        notes: list[str] = []
        cluster = self._begin(state, memory)
        waiting, running = self._look_up(state, memory, cluster, notes)
        released = [known.job for known in waiting if known.job.id in memory.in_flight]
        running += [
            self._running(flying(job, memory.in_flight[job.id]), state, memory, notes) for job in released
        ]
        shut = np.array([bool(node.closed) for node in state.nodes])
        running, held = self._fitted(running, state, memory, shut, notes)
        queue = [known for known in waiting if not known.why and known.job.id not in memory.in_flight]
        queue.sort(key=_key)
        left = {known.job.id: known.why for known in waiting if known.why}
        return self._made(state, memory, cluster, queue, running, shut, held, left, notes)

    # --- what is known of jobs

    def _begin(self, state: ClusterState, memory: Memory) -> Cluster:
        """The cluster. What depends on nodes, partitions or the clock is forgotten if these are others."""
        nodes = [(node.name, node.gpus, node.gpu_type, node.cpus, node.memory_mib) for node in state.nodes]
        basis = (nodes, state.partitions, memory.zero_s)
        if self._cluster is not None and self._basis == basis:
            return self._cluster
        cluster = self._given or live_cluster(state)
        self._known, self._basis, self._cluster = {}, basis, cluster
        sizes = [(gpus, max(1, cpus), max(1, memory_mib)) for _, gpus, _, cpus, memory_mib in nodes]
        self._capacity = np.array(sizes, np.int64).reshape(-1, 3)
        self._number_of = {node[0]: number for number, node in enumerate(nodes)}
        self._partitions = {one.name for one in cluster.partitions}
        self._zero_s = memory.zero_s or 0.0
        return cluster

    def _owner(self, job: Job) -> tuple[int, int]:
        """Numbers of its user and its group."""
        users, groups = self._users, self._groups
        return users.setdefault(job.user, len(users)), groups.setdefault(job.group, len(groups))

    def _look_up(
        self, state: ClusterState, memory: Memory, cluster: Cluster, notes: list[str]
    ) -> tuple[list[_Known], list[_Known]]:
        before, now = self._known, {}
        waiting: list[_Known] = []
        running: list[_Known] = []
        for job in state.jobs:
            known = before.get(job.id)
            waits = job.phase == "waiting"
            if known is None or (known.job is not job and known.job != job):
                known = (
                    self._waiting(job, state, memory, cluster)
                    if waits
                    else self._running(job, state, memory, notes)
                )
            now[job.id] = known
            (waiting if waits else running).append(known)
        self._known = now
        return waiting, running

    def _waiting(self, job: Job, state: ClusterState, memory: Memory, cluster: Cluster) -> _Known:
        zero_s, estimate_s = self._zero_s, memory.estimate_s(job, self.estimates)
        row = (
            job.submit_s - zero_s,
            math.nan if estimate_s is None else max(1e-6, estimate_s),
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
        why = job.left or self._unfit(job, state, cluster)
        if not why and not self.eligible(job):
            why = "not held for the agent"
        return _Known(job, (job.submit_s, natural(job.id), job.id), why, [row])

    def _unfit(self, job: Job, state: ClusterState, cluster: Cluster) -> str:
        if job.held == "other":
            return "held"
        if self._partitions and job.partition not in self._partitions:
            return f"partition {job.partition!r} is not known"
        if job.gpus > cluster.total_gpus:
            return "asks for more GPUs than there are"
        if job.exclusive and like_node(job, state) is None:
            return "asks for whole nodes, of which there are several kinds"
        return ""

    def _running(
        self,
        job: Job,
        state: ClusterState,
        memory: Memory,
        notes: list[str],
        shares: Sequence[Share] | None = None,
    ) -> _Known:
        """Rows of a running job: one, or one for each part where parts are unlike.

        Args:
            job: The job.
            state: Where it runs.
            memory: What is remembered of it.
            notes: Takes what is odd about it.
            shares: What it holds; None: what the state says.
        """
        known = _Known(job, (job.submit_s, natural(job.id), job.id))
        given = whole_nodes(job, state) if shares is None else shares
        unknown = [share.node for share in given if share.node not in self._number_of]
        notes += [f"job {job.id} runs on {node}, which is not listed as a node" for node in unknown]
        parts = sorted(
            ((self._number_of[share.node], share) for share in given if share.node in self._number_of),
            key=lambda part: part[0],
        )
        if not given and not memory.in_flight.get(job.id):
            notes.append(f"job {job.id} runs, but on no node that is known")
        if not parts:
            return known
        begin_s = (job.begin_s if job.begin_s is not None else state.now_s) - self._zero_s
        estimate_s = memory.estimate_s(job, self.estimates)
        if job.phase == "ending":  # what has nothing left to do is expected to end now
            estimate_s = 1e-6
        times = (begin_s, math.nan if estimate_s is None else max(1e-6, estimate_s))
        further = (row_of(job), memory.attained_s.get(job.id, 0.0), *self._owner(job))
        if is_regular(job, [share for _, share in parts]):
            nodes = len(parts) if job.gpus == 0 and len(parts) > 1 else 0
            known.rows.append((*times, job.gpus, job.cpus, job.memory_mib, nodes, *further))
            known.parts.append(len(parts))
        else:
            for _, share in parts:
                known.rows.append((*times, share.gpus, share.cpus, share.memory_mib, 0, *further))
                known.parts.append(1)
        known.ids = [job.id, *[""] * (len(known.rows) - 1)]
        known.node += [node for node, _ in parts]
        known.held += [(share.gpus, share.cpus, share.memory_mib) for _, share in parts]
        return known

    # --- what nodes have room for

    def _sums(self, running: list[_Known]) -> Ints:
        """GPUs, CPUs and memory that jobs hold, node by node."""
        parts = list(chain.from_iterable([known.held for known in running]))
        held = np.array(parts, np.int64).reshape(-1, 3)
        node = list(chain.from_iterable([known.node for known in running]))
        count = len(self._capacity)
        sums = [np.bincount(node, weights=held[:, kind], minlength=count) for kind in range(3)]
        return np.stack(sums, axis=1).astype(np.int64) if node else np.zeros((count, 3), np.int64)

    def _fitted(
        self,
        running: list[_Known],
        state: ClusterState,
        memory: Memory,
        shut: NDArray[np.bool_],
        notes: list[str],
    ) -> tuple[list[_Known], Ints]:
        """Jobs, cut down where they hold more than a node has; such a node takes no more jobs."""
        held = self._sums(running)
        over = held > self._capacity
        if not over.any():
            return running, held
        crowded = set(np.flatnonzero(over.any(axis=1)).tolist())
        for number in np.flatnonzero(over[:, 0]).tolist():
            shut[number] = True
            node = state.nodes[number]
            notes.append(f"node {node.name}: jobs hold {held[number, 0]} GPUs, but it has {node.gpus}")
        free = {number: self._capacity[number].tolist() for number in crowded}
        fitted = [
            self._cut(known, state, memory, free) if crowded.intersection(known.node) else known
            for known in running
        ]
        return fitted, self._sums(fitted)

    def _cut(self, known: _Known, state: ClusterState, memory: Memory, free: dict[int, list[int]]) -> _Known:
        shares = []
        for node, wanted in zip(known.node, known.held, strict=True):
            got = list(wanted)
            if node in free:
                got = [min(want, left) for want, left in zip(wanted, free[node], strict=True)]
                free[node] = [left - some for left, some in zip(free[node], got, strict=True)]
            shares.append(Share(state.nodes[node].name, *got))
        return self._running(known.job, state, memory, [], shares)

    # --- tables

    def _made(
        self,
        state: ClusterState,
        memory: Memory,
        cluster: Cluster,
        queue: list[_Known],
        running: list[_Known],
        shut: NDArray[np.bool_],
        held: Ints,
        left: dict[str, str],
        notes: list[str],
    ) -> LiveSnapshot:
        says = np.array([-1 if node.gpus_used is None else node.gpus_used for node in state.nodes], np.int64)
        # GPUs that a node says are in use and that no listed job holds.
        unknown = np.clip(says - held[:, 0], 0, self._capacity[:, 0] - held[:, 0])
        mystery = np.flatnonzero(unknown).tolist()
        jobs = [known.job for known in queue]
        users, groups = _owners(memory.users, self._users), _owners(memory.groups, self._groups)
        used = held.any(axis=1) | (unknown > 0)
        held_table = self._running_table(running, mystery, unknown, len(queue), state, cluster)
        made = make_snapshot(
            cluster,
            now_s=state.now_s - self._zero_s,
            queue=self._queue_table(queue, state, cluster),
            running=held_table if len(held_table["job"]) else None,
            # A node with jobs cannot be down: it is kept from new jobs as one that is promised to somebody.
            nodes={"down": (shut & ~used).astype(np.uint8), "promised": (shut & used).astype(np.int32)},
            users=users,
            groups=groups,
            finished={
                "gpu_s": [total for _, total in memory.gpu_time.values()],
                "jobs": [count for count, _ in memory.gpu_time.values()],
            },
            mix=_mix(memory),
            reservations=self._reservations(memory, jobs),
            arrivals=memory.arrivals,
            arrivals_s=memory.arrivals_s - self._zero_s if memory.arrived else None,
            instant=memory.instant,
            epoch_s=state.epoch_s + self._zero_s,
            finished_early=memory.finished_early(cluster, self._number_of, self.config.locality_penalty),
            nodes_changed=state.nodes_changed,
            backfill_due=state.backfill_due,
            config=self.config,
        )
        ids = [job.id for job in jobs]
        ids += chain.from_iterable([known.ids for known in running])
        ids += [""] * len(mystery)
        return LiveSnapshot(
            made,
            cluster,
            tuple(ids),
            tuple(self._number_of),
            tuple(ids[: len(jobs)]),
            left,
            tuple(notes),
        )

    def _partition(self, job: Job | None, cluster: Cluster) -> str:
        if job is not None and job.partition in self._partitions:
            return job.partition
        return next((one.name for one in cluster.partitions if one.default), cluster.partitions[0].name)

    def _places(self, table: dict[str, Any], jobs: list[Job], extra: int, cluster: Cluster) -> None:
        """Partitions and QOS, where there are any; and what is numbers, as whole ones."""
        for kind in ("user", "group"):
            table[kind] = table[kind].astype(np.int32)
        if self._partitions:
            table["partition"] = [self._partition(job, cluster) for job in jobs]
            table["partition"] += [self._partition(None, cluster)] * extra
        if cluster.qos:
            table["qos"] = [job.qos for job in jobs] + [None] * extra

    def _queue_table(self, queue: list[_Known], state: ClusterState, cluster: Cluster) -> dict[str, Any]:
        numbers = np.array([known.rows[0] for known in queue], np.float64).reshape(-1, len(_QUEUE))
        table: dict[str, Any] = {name: numbers[:, place] for place, name in enumerate(_QUEUE)}
        # A clock that was set back must not make jobs come from the future.
        table["submit_s"] = np.minimum(table["submit_s"], state.now_s - self._zero_s)
        table["job"] = np.arange(len(queue))
        jobs = [known.job for known in queue]
        self._places(table, jobs, 0, cluster)
        if any(job.gpu_types is not None for job in jobs):
            table["gpu_types"] = [job.gpu_types for job in jobs]
        return table

    def _running_table(
        self,
        running: list[_Known],
        mystery: list[int],
        unknown: Ints,
        first: int,
        state: ClusterState,
        cluster: Cluster,
    ) -> dict[str, Any]:
        now_s = state.now_s - self._zero_s
        lost = [int(unknown[node]) for node in mystery]
        rows = list(chain.from_iterable([known.rows for known in running]))
        rows += [(now_s, math.nan, gpus, 0, 0, 0, 0, 0.0, 0, 0) for gpus in lost]
        numbers = np.array(rows, np.float64).reshape(-1, len(_RUNNING))
        table: dict[str, Any] = {name: numbers[:, place] for place, name in enumerate(_RUNNING)}
        table["job"] = np.arange(first, first + len(rows))
        parts = [*chain.from_iterable([known.parts for known in running]), *[1] * len(mystery)]
        table["node_offset"] = np.concatenate(([0], np.cumsum(parts))).astype(np.int64)
        node = [*chain.from_iterable([known.node for known in running]), *mystery]
        table["node"] = np.array(node, np.int32)
        held = chain.from_iterable([known.held for known in running])
        table["node_gpus"] = np.array([*(part[0] for part in held), *lost], np.int32)
        jobs = (
            [known.job for known in running for _ in known.parts] if self._partitions or cluster.qos else []
        )
        self._places(table, jobs, len(mystery), cluster)
        return table

    def _reservations(self, memory: Memory, jobs: list[Job]) -> dict[str, Any] | None:
        if not memory.reservations:
            return None
        numbers = {job.id: number for number, job in enumerate(jobs)}
        plan = [entry for entry in memory.reservations if entry[0] in numbers]
        parts = [[(self._number_of[node], gpus) for node, gpus in nodes] for _, _, _, nodes in plan]
        return {
            "job": [numbers[job] for job, *_ in plan],
            "begin_s": [math.nan if begin_s is None else begin_s for _, begin_s, *_ in plan],
            "end_s": [math.nan if end_s is None else end_s for _, _, end_s, _ in plan],
            "node_offset": [0, *np.cumsum([len(some) for some in parts]).tolist()],
            "node": [node for some in parts for node, _ in some],
            "node_gpus": [gpus for some in parts for _, gpus in some],
        }


def _key(known: _Known) -> tuple[float, tuple[int, ...], str]:
    return known.key


def _owners(table: dict[str, Any], numbers: dict[str, int]) -> dict[str, Any]:
    for name in table:
        numbers.setdefault(name, len(numbers))
    found = [table.get(name) for name in numbers]
    return {
        "name": list(numbers),
        "usage": [0.0 if usage is None else usage.gpu_s for usage in found],
        "updated_s": [0.0 if usage is None else usage.updated_us / 1e6 for usage in found],
    }


def _mix(memory: Memory) -> dict[str, Any]:
    sizes = [(int(gpus), jobs) for gpus, jobs in memory.arrived.items() if int(gpus) > 0]
    return {"gpus": [gpus for gpus, _ in sizes], "jobs": [jobs for _, jobs in sizes]}
