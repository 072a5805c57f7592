"""The one way from a live state to the snapshot that every policy decides on."""

import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from gpuyard import _core
from gpuyard.cluster.model import KNOWN_GPU_TYPES, Cluster, parse_cluster
from gpuyard.config import SimulationConfig
from gpuyard.errors import InputError
from gpuyard.native.snapshot import make_snapshot
from gpuyard.serve.memory import InFlight, Memory
from gpuyard.serve.state import ClusterState, Job, Node, Partition, Share

Eligible = Callable[[Job], bool]
_NUMBERS = re.compile(r"\d+")
_NOBODY = ""
"""User and group of what is in use by nobody knows whom."""


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
    state.check()
    cluster = cluster or live_cluster(state)
    return _Builder(state, memory, config, estimates, eligible, cluster).build()


def live_cluster(state: ClusterState) -> Cluster:
    """The nodes and partitions of a state, in the order of the state."""
    return _cluster_of(
        tuple((node.name, node.gpus, node.gpu_type, node.cpus, node.memory_mib) for node in state.nodes),
        _distinct(state),
    )


def known_cluster(text: str, state: ClusterState) -> Cluster:
    """A cluster that its operator describes, if it has the nodes of the state, in their order.

    Raises:
        InputError: naming the first node that differs.
    """
    cluster = parse_cluster(text)
    columns = cluster.node_columns()
    described = list(zip(cluster.node_names, columns["gpus"].tolist(), strict=True))
    for number, node in enumerate(state.nodes):
        there = described[number] if number < len(described) else ("none", 0)
        if there != (node.name, node.gpus):
            raise InputError(
                f"cluster {text}: its node {number} is {there[0] or 'without a name'} with {there[1]} GPUs, "
                f"but the scheduler has {node.name} with {node.gpus} there; import the cluster again"
            )
    if len(described) > len(state.nodes):
        raise InputError(f"cluster {text}: the scheduler has no node {described[len(state.nodes)][0]}")
    return cluster


def natural(name: str) -> tuple[int, ...]:
    """Numbers in an id, to sort 99 before 100 and 7_2 before 7_10."""
    return tuple(int(number) for number in _NUMBERS.findall(name))


def _distinct(state: ClusterState) -> tuple[Partition, ...]:
    """Partitions, if they tell jobs apart: none if all are of all nodes, without limits, in one tier."""
    everywhere = len(state.nodes)
    plain = all(
        len(set(one.nodes)) == everywhere and one.max_time_s is None and one.max_nodes is None
        for one in state.partitions
    )
    return () if plain and len({one.tier for one in state.partitions}) < 2 else state.partitions


@lru_cache(maxsize=8)
def _cluster_of(
    nodes: tuple[tuple[str, int, str, int, int], ...], partitions: tuple[Partition, ...]
) -> Cluster:
    if not nodes:
        raise InputError("the scheduler lists no nodes")
    groups: list[dict[str, Any]] = []
    for name, gpus, gpu_type, cpus, memory_mib in nodes:
        alike = {
            "gpus": gpus,
            "type": gpu_type if gpus else "cpu",
            "cpus": max(1, cpus),
            "memory_mib": max(1, memory_mib),
        }
        if groups and all(groups[-1][key] == value for key, value in alike.items()):
            groups[-1]["names"] += f",{name}"
        else:
            groups.append({"names": name, **alike})
    types = {str(group["type"]) for group in groups} - set(KNOWN_GPU_TYPES)
    return Cluster.model_validate(
        {
            "name": "live",
            "gpu_types": [{"name": name} for name in sorted(types)],
            "nodes": groups,
            "partitions": [
                {
                    "name": one.name,
                    "nodes": ",".join(one.nodes),
                    "default": one.default,
                    "priority_tier": one.tier,
                    "max_time_s": one.max_time_s,
                    "max_nodes": one.max_nodes,
                }
                for one in partitions
                if one.nodes
            ],
        }
    )


@dataclass
class _Rows:
    """Rows of table ``running``: one per job, or per node where a job's parts are unlike."""

    columns: dict[str, list[Any]] = field(
        default_factory=lambda: {
            name: []
            for name in (
                *("job", "begin_s", "estimate_s", "gpus", "cpus", "memory_mib", "nodes", "user", "group"),
                *("partition", "qos", "row", "attained_s", "node", "node_gpus"),
            )
        }
    )
    offset: list[int] = field(default_factory=lambda: [0])

    def add(self, parts: Sequence[tuple[int, int]], **values: Any) -> None:
        for name, value in values.items():
            self.columns[name].append(value)
        for node, gpus in parts:
            self.columns["node"].append(node)
            self.columns["node_gpus"].append(gpus)
        self.offset.append(len(self.columns["node"]))


class _Builder:
    def __init__(
        self,
        state: ClusterState,
        memory: Memory,
        config: SimulationConfig,
        estimates: str,
        eligible: Eligible | None,
        cluster: Cluster,
    ) -> None:
        self.state, self.memory, self.config, self.cluster = state, memory, config, cluster
        self.estimates, self.eligible = estimates, eligible
        self.zero_s = memory.zero_s or 0.0
        self.number_of = {node.name: number for number, node in enumerate(state.nodes)}
        self.free = [[node.gpus, max(1, node.cpus), max(1, node.memory_mib)] for node in state.nodes]
        self.in_use = [False] * len(state.nodes)
        self.closed = [bool(node.closed) for node in state.nodes]
        self.known_partitions = {one.name for one in cluster.partitions}
        self.left: dict[str, str] = {}
        self.notes: list[str] = []
        ranked = sorted(state.jobs, key=lambda job: (job.submit_s, natural(job.id), job.id))
        self.ids = [job.id for job in ranked]
        self.numbers = {id: number for number, id in enumerate(self.ids)}
        self.rows = _Rows()

    def build(self) -> LiveSnapshot:
        for job in self.state.jobs:
            if not job.waits:
                self._add_running(job)
        for id, release in self.memory.in_flight.items():
            if id in self.state.by_id and self.state.by_id[id].waits:
                self._add_in_flight(self.state.by_id[id], release)
        self._add_unknown_use()
        waiting = [job for job in self.state.jobs if job.waits and self._may_decide(job)]
        waiting.sort(key=lambda job: self.numbers[job.id])
        users, groups = (self._owners(table, kind, waiting) for table, kind in self._tables())
        memory = self.memory
        made = make_snapshot(
            self.cluster,
            now_s=self.state.now_s - self.zero_s,
            queue=self._queue(waiting),
            running={**self.rows.columns, "node_offset": self.rows.offset}
            if self.rows.columns["job"]
            else None,
            nodes=self._nodes(),
            users=users,
            groups=groups,
            finished={
                "gpu_s": [total for _, total in memory.gpu_time.values()],
                "jobs": [count for count, _ in memory.gpu_time.values()],
            },
            mix=self._mix(),
            reservations=self._reservations(waiting),
            arrivals=memory.arrivals,
            arrivals_s=memory.arrivals_s - self.zero_s if memory.arrived else None,
            instant=memory.instant,
            epoch_s=self.state.epoch_s + self.zero_s,
            finished_early=memory.finished_early(self.cluster, self.number_of, self.config.locality_penalty),
            nodes_changed=self.state.nodes_changed,
            backfill_due=self.state.backfill_due,
            config=self.config,
        )
        names = tuple(node.name for node in self.state.nodes)
        queue = tuple(job.id for job in waiting)
        return LiveSnapshot(made, self.cluster, tuple(self.ids), names, queue, self.left, tuple(self.notes))

    # --- running jobs

    def _add_running(self, job: Job) -> None:
        shares = [self._clamped(job, share) for share in self._whole(job)]
        parts = sorted((self.number_of[share.node], share) for share in shares if share is not None)
        if not parts:
            if job.shares:
                return
            self.notes.append(f"job {job.id} runs, but on no node that is known")
            return
        begin_s = (job.begin_s if job.begin_s is not None else self.state.now_s) - self.zero_s
        estimate_s = self.memory.estimate_s(job, self.estimates)
        if job.phase == "ending":  # what has nothing left to do is expected to end now
            estimate_s = 1e-6
        common = self._common(job) | {
            "begin_s": begin_s,
            "estimate_s": math.nan if estimate_s is None else max(1e-6, estimate_s),
            "attained_s": self.memory.attained_s.get(job.id, 0.0),
        }
        if _regular(job, [share for _, share in parts]):
            self.rows.add(
                [(node, share.gpus) for node, share in parts],
                job=self.numbers[job.id],
                gpus=job.gpus,
                cpus=job.cpus,
                memory_mib=job.memory_mib,
                nodes=len(parts) if job.gpus == 0 and len(parts) > 1 else 0,
                **common,
            )
            return
        for place, (node, share) in enumerate(parts):
            self.rows.add(
                [(node, share.gpus)],
                job=self.numbers[job.id] if place == 0 else self._part_number(),
                gpus=share.gpus,
                cpus=share.cpus,
                memory_mib=share.memory_mib,
                nodes=0,
                **common,
            )

    def _common(self, job: Job) -> dict[str, Any]:
        return {
            "user": job.user,
            "group": job.group,
            "partition": self._partition(job),
            "qos": job.qos,
            "row": _row(job),
        }

    def _partition(self, job: Job) -> str | None:
        if not self.known_partitions:
            return None
        if job.partition in self.known_partitions:
            return job.partition
        return next(
            (one.name for one in self.cluster.partitions if one.default), self.cluster.partitions[0].name
        )

    def _part_number(self) -> int:
        self.ids.append("")
        return len(self.ids) - 1

    def _whole(self, job: Job) -> list[Share]:
        """What a job keeps others from: all of a node that it shares with nobody."""
        if not job.exclusive:
            return list(job.shares)
        known = [self.state.node_by_name[share.node] for share in job.shares if share.node in self.number_of]
        return [Share(node.name, node.gpus, max(1, node.cpus), max(1, node.memory_mib)) for node in known]

    def _clamped(self, job: Job, share: Share) -> Share | None:
        """What is left of a node for it; a node on which jobs hold more than there is takes no more jobs."""
        number = self.number_of.get(share.node)
        if number is None:
            self.notes.append(f"job {job.id} runs on {share.node}, which is not listed as a node")
            return None
        free = self.free[number]
        self.in_use[number] = True
        if share.gpus > free[0]:
            self.closed[number] = True
            self.notes.append(
                f"node {share.node}: jobs hold more GPUs than its {self.state.nodes[number].gpus}"
            )
        gpus, cpus, memory = (
            min(share.gpus, free[0]),
            min(share.cpus, free[1]),
            min(share.memory_mib, free[2]),
        )
        self.free[number] = [free[0] - gpus, free[1] - cpus, free[2] - memory]
        if (gpus, cpus, memory) == (share.gpus, share.cpus, share.memory_mib):
            return share
        return Share(share.node, gpus, cpus, memory)

    def _add_in_flight(self, job: Job, release: InFlight) -> None:
        total = max(1, job.gpus)
        shares = tuple(
            Share(
                node, gpus, -(-job.cpus * max(gpus, 1) // total), -(-job.memory_mib * max(gpus, 1) // total)
            )
            for node, gpus in release.nodes
        )
        held = Job(
            job.id, "starting", job.submit_s, job.user, job.group, job.partition, job.qos,
            gpus=job.gpus, cpus=job.cpus, memory_mib=job.memory_mib, limit_s=job.limit_s,
            exclusive=job.exclusive, begin_s=release.since_s, shares=shares, row=job.row,
        )  # fmt: skip
        self._add_running(held)

    def _add_unknown_use(self) -> None:
        """GPUs that a node says are in use and that no listed job holds."""
        for number, node in enumerate(self.state.nodes):
            if node.gpus_used is None:
                continue
            unknown = node.gpus_used - (node.gpus - self.free[number][0])
            if unknown > 0 and self.free[number][0] >= unknown:
                self.in_use[number] = True
                self.free[number][0] -= unknown
                self.rows.add(
                    [(number, unknown)], job=self._part_number(), gpus=unknown, cpus=0, memory_mib=0, nodes=0,
                    begin_s=self.state.now_s - self.zero_s, estimate_s=math.nan, attained_s=0.0, user=_NOBODY,
                    group=_NOBODY, partition=self._partition(Job("", "running", 0.0)), qos=None, row=0,
                )  # fmt: skip

    # --- waiting jobs

    def _may_decide(self, job: Job) -> bool:
        if job.id in self.memory.in_flight:
            return False
        why = job.left or self._unfit(job)
        if not why and self.eligible is not None and not self.eligible(job):
            why = "not the agent's"
        if why:
            self.left[job.id] = why
        return not why

    def _unfit(self, job: Job) -> str:
        if job.held == "other":
            return "held"
        if self.known_partitions and job.partition not in self.known_partitions:
            return f"partition {job.partition!r} is not known"
        if job.gpus > self.cluster.total_gpus:
            return "asks for more GPUs than there are"
        if job.exclusive and self._like_node(job) is None:
            return "asks for whole nodes, of which there are several kinds"
        return ""

    def _like_node(self, job: Job) -> Node | None:
        """A node, if all that the job may use are alike."""
        names = next((one.nodes for one in self.state.partitions if one.name == job.partition), None)
        nodes = self.state.nodes if names is None else [self.state.node_by_name[name] for name in names]
        if job.gpu_types is not None:
            nodes = [node for node in nodes if node.gpu_type in job.gpu_types]
        kinds = {(node.gpus, node.cpus, node.memory_mib) for node in nodes}
        return nodes[0] if len(kinds) == 1 else None

    def _needs(self, job: Job) -> tuple[int, int, int, int]:
        """GPUs, CPUs, memory and nodes; all of its nodes for a job that shares them with nobody."""
        if not job.exclusive or (node := self._like_node(job)) is None:
            return job.gpus, job.cpus, job.memory_mib, job.nodes
        count = max(1, job.nodes, -(-job.gpus // node.gpus) if node.gpus else 1)
        return count * node.gpus, count * max(1, node.cpus), count * max(1, node.memory_mib), count

    def _queue(self, waiting: list[Job]) -> dict[str, Any]:
        memory = self.memory
        estimates = [memory.estimate_s(job, self.estimates) for job in waiting]
        needs = [self._needs(job) for job in waiting]
        return {
            "job": [self.numbers[job.id] for job in waiting],
            # A clock that was set back must not make jobs come from the future.
            "submit_s": [min(job.submit_s, self.state.now_s) - self.zero_s for job in waiting],
            "estimate_s": [math.nan if one is None else max(1e-6, one) for one in estimates],
            **{
                name: [need[place] for need in needs]
                for place, name in enumerate(("gpus", "cpus", "memory_mib", "nodes"))
            },
            "gpu_types": [job.gpu_types for job in waiting],
            "user": [job.user for job in waiting],
            "group": [job.group for job in waiting],
            "partition": [self._partition(job) for job in waiting],
            "qos": [job.qos for job in waiting],
            "priority": [job.site_priority for job in waiting],
            "deadline_s": [
                math.nan if job.deadline_s is None else job.deadline_s - self.zero_s for job in waiting
            ],
            "row": [_row(job) for job in waiting],
            "queued_s": [memory.queued_s.get(job.id, job.submit_s) - self.zero_s for job in waiting],
            "prediction_s": [memory.predictions_s.get(job.id, 3600.0) for job in waiting],
            "fair_factor": [job.fair_factor for job in waiting],
            "attained_s": [memory.attained_s.get(job.id, 0.0) for job in waiting],
        }

    # --- the other tables

    def _tables(self) -> tuple[tuple[dict[str, Any], str], ...]:
        return (self.memory.users, "user"), (self.memory.groups, "group")

    def _owners(self, table: dict[str, Any], kind: str, waiting: list[Job]) -> dict[str, Any]:
        names = {getattr(job, kind) for job in waiting} | set(self.rows.columns[kind]) | set(table)
        listed = sorted(names) or [_NOBODY]
        found = [table.get(name) for name in listed]
        return {
            "name": listed,
            "usage": [0.0 if usage is None else usage.gpu_s for usage in found],
            "updated_s": [0.0 if usage is None else usage.updated_us / 1e6 for usage in found],
        }

    def _nodes(self) -> dict[str, Any]:
        # A node with jobs cannot be down: it is kept from new jobs as one that is promised to somebody.
        closed = list(zip(self.closed, self.in_use, strict=True))
        return {
            "down": [int(shut and not used) for shut, used in closed],
            "promised": [int(shut and used) for shut, used in closed],
        }

    def _mix(self) -> dict[str, Any]:
        sizes = [(int(gpus), jobs) for gpus, jobs in self.memory.arrived.items() if int(gpus) > 0]
        return {"gpus": [gpus for gpus, _ in sizes], "jobs": [jobs for _, jobs in sizes]}

    def _reservations(self, waiting: list[Job]) -> dict[str, Any] | None:
        there = {job.id for job in waiting}
        plan = [entry for entry in self.memory.reservations if entry[0] in there]
        if not plan:
            return None
        parts = [[(self.number_of[node], gpus) for node, gpus in nodes] for _, _, _, nodes in plan]
        offset = [0]
        for some in parts:
            offset.append(offset[-1] + len(some))
        return {
            "job": [self.numbers[job] for job, *_ in plan],
            "begin_s": [math.nan if begin_s is None else begin_s for _, begin_s, *_ in plan],
            "end_s": [math.nan if end_s is None else end_s for _, _, end_s, _ in plan],
            "node_offset": offset,
            "node": [node for some in parts for node, _ in some],
            "node_gpus": [gpus for some in parts for _, gpus in some],
        }


def _regular(job: Job, shares: list[Share]) -> bool:
    """Whether the job's parts are those that its totals stand for (docs/contract/simulator.md, section 3)."""
    total = job.gpus
    if sum(share.gpus for share in shares) != total:
        return False
    if total == 0:
        count = len(shares)
        wanted = (-(-job.cpus // count), -(-job.memory_mib // count))
        return all((share.cpus, share.memory_mib) == wanted for share in shares)
    return all(
        share.gpus > 0
        and share.cpus == -(-job.cpus * share.gpus // total)
        and share.memory_mib == -(-job.memory_mib * share.gpus // total)
        for share in shares
    )


def _row(job: Job) -> int:
    """Key of random draws: the same for a job at every round."""
    if job.row is not None:
        return job.row
    row = 0
    for number in natural(job.id):
        row = (row * 1_000_003 + number) % 2**31
    return row
