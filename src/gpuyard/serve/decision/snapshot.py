"""The one way from a live state to the snapshot that every policy decides on.

A state changes little from round to round, and with thousands of jobs every microsecond per job counts. So
what is known of a job is worked out once, and again only when something about it changes.
"""

from dataclasses import dataclass
from itertools import chain
from operator import attrgetter

import numpy as np
from numpy.typing import NDArray

from gpuyard import _core
from gpuyard.cluster.model import Cluster
from gpuyard.config import SimulationConfig
from gpuyard.native.checked import CheckedJobs
from gpuyard.native.snapshot import make_snapshot
from gpuyard.serve.decision.job_rows import Eligible, Known, Owners, RowMaker
from gpuyard.serve.decision.job_shapes import flying
from gpuyard.serve.decision.jobs_in_order import JobsInOrder
from gpuyard.serve.decision.kept_rows import Columns, HeldJobs, KeptRows, numbers_of
from gpuyard.serve.decision.live_cluster import live_cluster
from gpuyard.serve.decision.memory import Memory
from gpuyard.serve.decision.memory_tables import mix, reservations, usages
from gpuyard.serve.state import ClusterState, Job, Node, Share

_SIZE = attrgetter("name", "gpus", "gpu_type", "cpus", "memory_mib")
Ints = NDArray[np.int64]
Flags = NDArray[np.bool_]


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


class Encoder:
    """Makes snapshots of one cluster, round after round.

    What it makes of a state and a memory is the same, to the last bit, whether it has seen the states before
    or not: what it keeps of them only saves time.

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
        self._known: _KnownCluster | None = None

    def encode(self, state: ClusterState, memory: Memory) -> LiveSnapshot:
        """The snapshot of a state that the memory has seen.

        Raises:
            InputError: if the state cannot be.
        """
        state.check()
        known, self._known = self._known, None  # what fails half-way is not gone on with
        if known is None or not known.goes_on(state, memory):
            known = _KnownCluster(self, self._given or live_cluster(state), state, memory)
        made = known.encode(state, memory)
        self._known = known
        return made


class _KnownCluster:
    """What is known of a cluster and its jobs while its nodes, partitions and clock are the same.

    Args:
        encoder: Whose settings hold.
        cluster: As policies see it.
        state: The first state.
        memory: That has seen it.
    """

    def __init__(self, encoder: Encoder, cluster: Cluster, state: ClusterState, memory: Memory) -> None:
        self._cluster, self._config = cluster, encoder.config
        self._users, self._groups = Owners(), Owners()
        self._zero_s = memory.zero_s or 0.0
        self._maker = RowMaker(
            cluster, state, self._zero_s, encoder.estimates, encoder.eligible, self._users, self._groups
        )
        self._kept = KeptRows(cluster, self._users, self._groups)
        self._before: dict[str, Job] = {}
        self._jobs: dict[str, Known] = {}
        self._passing: set[str] = set()  # jobs of which the next round may say something else
        self._queue, self._held = JobsInOrder(), JobsInOrder()
        self._left: dict[str, str] = {}
        self._notes: dict[str, tuple[str, ...]] = {}
        self._memory, self._updates = memory, memory.updates
        self._basis = (memory.zero_s, state.partitions)
        self._sizes = _sizes(state.nodes)
        self._names = tuple(self._maker.number_of)
        sizes = [(gpus, max(1, cpus), max(1, memory_mib)) for _, gpus, _, cpus, memory_mib in self._sizes]
        self._capacity = np.array(sizes, np.int64).reshape(-1, 3)

    def goes_on(self, state: ClusterState, memory: Memory) -> bool:
        """Whether this is the state after the last one, of the same cluster.

        What is remembered of a job may be other once a state in between was missed.
        """
        return (
            memory is self._memory
            and memory.updates - self._updates <= 1
            and (memory.zero_s, state.partitions) == self._basis
            and _sizes(state.nodes) == self._sizes
        )

    def encode(self, state: ClusterState, memory: Memory) -> LiveSnapshot:
        """The snapshot of a state.

        Raises:
            InputError: if the state cannot be.
        """
        self._updates = memory.updates
        self._look_up(state, memory)
        flights = self._flights(state, memory)
        notes = [note for _, said in sorted(self._notes.items()) for note in said]
        notes += [note for known in flights for note in known.notes]
        shut = np.array([bool(node.closed) for node in state.nodes])
        running = self._fitted(flights, state, memory, shut, notes)
        rows, ids = self._to_decide(memory)
        made = self._made(state, memory, rows, ids, running, shut)
        if self._kept.tidy(self._jobs.values()):
            self._queue.find_rows_again(self._jobs)
            self._held.find_rows_again(self._jobs)
        return LiveSnapshot(
            made,
            self._cluster,
            (*ids, *running.ids),
            self._names,
            tuple(ids),
            dict(self._left),
            tuple(notes),
        )

    # --- what is known of jobs

    def _look_up(self, state: ClusterState, memory: Memory) -> None:
        """Learn about jobs that are new or changed, and forget those that are gone."""
        now, before = state.by_id, self._before
        others = [id for id, job in now.items() if before.get(id) is not job]
        gone = [self._jobs.pop(id) for id in before.keys() - now.keys()] if before else []
        fresh: list[Known] = []
        for id in dict.fromkeys([*others, *(id for id in self._passing if id in now)]):
            known, job = self._jobs.get(id), now[id]
            if known is not None:
                if known.lasts and known.job == job:
                    continue
                gone.append(known)
            make = self._maker.waiting if job.waits else self._maker.running
            self._jobs[id] = make(job, state, memory)
            fresh.append(self._jobs[id])
        self._before = now
        self._change(gone, fresh)

    def _change(self, gone: list[Known], fresh: list[Known]) -> None:
        for known in gone:
            for table in (self._left, self._notes):
                table.pop(known.job.id, None)
            self._passing.discard(known.job.id)
        self._left |= {known.job.id: known.why for known in fresh if known.why}
        self._notes |= {known.job.id: known.notes for known in fresh if known.notes}
        self._passing |= {known.job.id for known in fresh if not known.lasts}
        queued, held = ([known for known in fresh if known.waits is waits] for waits in (True, False))
        queued = [known for known in queued if not known.why]
        self._kept.keep(queued, held)
        self._queue.change([known for known in gone if known.waits and not known.why], queued)
        self._held.change([known for known in gone if not known.waits], held)

    def _flights(self, state: ClusterState, memory: Memory) -> list[Known]:
        """Jobs that were released and do not run yet count as if they did."""
        released = [self._jobs[id] for id in sorted(memory.in_flight) if id in self._jobs]
        flights = [
            self._maker.running(flying(known.job, memory.in_flight[known.job.id]), state, memory)
            for known in released
            if known.waits
        ]
        self._kept.keep([], flights)
        return flights

    def _to_decide(self, memory: Memory) -> tuple[Ints, list[str]]:
        """Rows and ids of waiting jobs, but for those that were released."""
        rows, ids = self._queue.rows()[0], self._queue.ids
        released = [self._jobs[id] for id in memory.in_flight if id in self._jobs]
        places = [self._queue.place(known) for known in released if known.waits and not known.why]
        if places:
            ids = ids.copy()
            for place in sorted(places, reverse=True):
                del ids[place]
        return np.delete(rows, places), ids

    # --- what nodes have room for

    def _sums(self, parts: Columns) -> Ints:
        """GPUs, CPUs and memory that jobs hold, node by node."""
        count = len(self._capacity)
        kinds = (parts["node_gpus"], parts["cpus"], parts["memory_mib"])
        sums = [np.bincount(parts["node"], weights=kind, minlength=count) for kind in kinds]
        return np.stack(sums, axis=1).astype(np.int64)

    def _fitted(
        self, flights: list[Known], state: ClusterState, memory: Memory, shut: Flags, notes: list[str]
    ) -> HeldJobs:
        """Jobs that hold nodes, cut down where they hold more than a node has; such a node takes no more."""
        running = self._running(flights)
        held = self._sums(running.parts)
        over = held > self._capacity
        if over.any():
            for number in np.flatnonzero(over[:, 0]).tolist():
                shut[number] = True
                node = state.nodes[number]
                notes.append(f"node {node.name}: jobs hold {held[number, 0]} GPUs, but it has {node.gpus}")
            jobs = [*(self._jobs[id] for id in self._held.ids), *flights]
            jobs = self._cut_down(jobs, state, memory, np.flatnonzero(over.any(axis=1)).tolist())
            running = self._all_of(jobs)
            held = self._sums(running.parts)
        unlisted = self._unlisted(state, held)
        if not unlisted:
            return running
        self._kept.keep([], unlisted)
        return running.followed_by(self._all_of(unlisted))

    def _running(self, flights: list[Known]) -> HeldJobs:
        first, count = self._held.rows()
        several = np.flatnonzero(count != 1)
        ids = self._held.ids
        if len(several):
            ids = [one for id in ids for one in self._jobs[id].ids]
        rows, parts = self._kept.running(first, count)
        running = HeldJobs(rows, parts, ids)
        return running.followed_by(self._all_of(flights)) if flights else running

    def _all_of(self, jobs: list[Known]) -> HeldJobs:
        ids = list(chain.from_iterable([known.ids for known in jobs]))
        return HeldJobs(*self._kept.running(numbers_of(jobs, "row"), numbers_of(jobs, "count")), ids)

    def _cut_down(
        self, running: list[Known], state: ClusterState, memory: Memory, crowded: list[int]
    ) -> list[Known]:
        free = {number: self._capacity[number].tolist() for number in crowded}
        cut = {
            place: self._cut(known, state, memory, free)
            for place, known in enumerate(running)
            if free.keys() & set(known.node)
        }
        self._kept.keep([], list(cut.values()))
        return [cut.get(place, known) for place, known in enumerate(running)]

    def _cut(self, known: Known, state: ClusterState, memory: Memory, free: dict[int, list[int]]) -> Known:
        shares = []
        for node, wanted in zip(known.node, known.held, strict=True):
            got = list(wanted)
            if node in free:
                got = [min(want, left) for want, left in zip(wanted, free[node], strict=True)]
                free[node] = [left - some for left, some in zip(free[node], got, strict=True)]
            shares.append(Share(state.nodes[node].name, *got))
        return self._maker.running(known.job, state, memory, shares)

    def _unlisted(self, state: ClusterState, held: Ints) -> list[Known]:
        """GPUs that a node says are in use and that no listed job holds."""
        says = np.array([-1 if node.gpus_used is None else node.gpus_used for node in state.nodes], np.int64)
        unknown = np.clip(says - held[:, 0], 0, self._capacity[:, 0] - held[:, 0])
        return [
            self._maker.unlisted(node, int(unknown[node]), state.now_s)
            for node in np.flatnonzero(unknown).tolist()
        ]

    # --- tables

    def _made(
        self,
        state: ClusterState,
        memory: Memory,
        queue: Ints,
        ids: list[str],
        running: HeldJobs,
        shut: Flags,
    ) -> _core.Snapshot:
        used = np.zeros(len(shut), bool)
        used[running.parts["node"]] = True
        jobs = self._checked(queue, running, state.now_s - self._zero_s, memory)
        return make_snapshot(
            self._cluster,
            now_s=state.now_s - self._zero_s,
            queue=jobs,
            # A node with jobs cannot be down: it is kept from new jobs as one that is promised to somebody.
            nodes={"down": (shut & ~used).astype(np.uint8), "promised": (shut & used).astype(np.int32)},
            users=usages(memory.users, jobs.users),
            groups=usages(memory.groups, jobs.groups),
            finished={
                "gpu_s": [total for _, total in memory.gpu_time.values()],
                "jobs": [count for count, _ in memory.gpu_time.values()],
            },
            mix=mix(memory),
            reservations=reservations(memory, ids, self._maker.number_of),
            arrivals=memory.arrivals,
            arrivals_s=memory.arrivals_s - self._zero_s if memory.arrived else None,
            instant=memory.instant,
            epoch_s=state.epoch_s + self._zero_s,
            finished_early=memory.finished_early(
                self._cluster, self._maker.number_of, self._config.locality_penalty
            ),
            nodes_changed=state.nodes_changed,
            backfill_due=state.backfill_due,
            config=self._config,
        )

    def _checked(self, queue: Ints, held: HeldJobs, now_s: float, memory: Memory) -> CheckedJobs:
        waiting = self._kept.waiting(queue)
        # A clock that was set back must not make jobs come from the future.
        waiting["submit_us"] = np.minimum(waiting["submit_us"], round(now_s * 1e6))
        waiting["job"] = np.arange(len(queue))
        running = held.rows | {name: held.parts[name] for name in ("node", "node_gpus")}
        running["node_offset"] = np.concatenate(([0], np.cumsum(held.rows["parts"])))
        running["job"] = np.arange(len(queue), len(queue) + len(held.ids))
        names = []
        for kind, owners, named in (
            ("user", self._users, memory.users),
            ("group", self._groups, memory.groups),
        ):
            in_order, places = owners.in_order((waiting[kind], running[kind]), named)
            waiting[kind], running[kind] = places[waiting[kind]], places[running[kind]]
            names.append(in_order)
        return CheckedJobs(waiting, running, names[0], names[1], self._kept.types)


def _sizes(nodes: tuple[Node, ...]) -> list[tuple[str, int, str, int, int]]:
    return list(map(_SIZE, nodes))
