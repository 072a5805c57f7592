"""The simulator behind the interface of a live cluster: what is served here equals ``gpuyard simulate``."""

import math
from collections.abc import Sequence
from typing import Any

from gpuyard import _core
from gpuyard.cluster.model import Cluster
from gpuyard.config import SimulationConfig
from gpuyard.errors import InputError
from gpuyard.native.inputs import prepare
from gpuyard.native.snapshot import snapshot_arrays
from gpuyard.policies.base import Policy
from gpuyard.serve.adapter import Action, AdapterError, Outcome, Start
from gpuyard.serve.state import ClusterState, Ended, Job, Node, Partition, Share
from gpuyard.workload import Workload

OVER = "over"
"""Code of the error with which a simulation says that all jobs have ended."""


class SimulatedCluster:
    """A simulated cluster whose jobs a live agent starts. Every observation is one decision point.

    Jobs that the agent may start are those that it would hold on a real cluster.

    Args:
        workload: The jobs.
        cluster: What they run on; nodes without names are called n0, n1, ...
        policy: Who will decide: tells at which times it must be asked.
        config: Settings; estimates are ``requested`` or ``history``.
    """

    def __init__(
        self, workload: Workload, cluster: Cluster, policy: Policy, config: SimulationConfig
    ) -> None:
        if policy.preempts:
            raise InputError(
                f"policy {policy.name} stops running jobs; a simulated cluster does not serve it"
            )
        if (workload.frame["gpu_milli"] < 1000).any():
            raise InputError(
                "some jobs share a GPU (gpu_milli below 1000); live clusters know whole ones only"
            )
        self.cluster = cluster
        self._workload = workload
        inputs = prepare(workload, cluster, policy, config)
        self.kept = inputs.kept
        self._simulator = _core.CheckedSimulator(inputs.cluster, inputs.jobs, inputs.settings, inputs.past)
        self._frame = workload.frame
        self._columns: dict[str, list[Any]] = {
            name: self._frame[name].to_list() for name in self._frame.columns
        }
        self.nodes = tuple(name or f"n{number}" for number, name in enumerate(cluster.node_names))
        self._node_numbers = {name: number for number, name in enumerate(self.nodes)}
        self._default_partition = next((entry.name for entry in cluster.partitions if entry.default), "")
        self._began: dict[int, float] = {}
        self._now_s = 0.0
        self._wake_s: float | None = None
        self._backfilled: frozenset[str] = frozenset()

    @property
    def name(self) -> str:
        """What it is."""
        return "simulated"

    def observe(self) -> ClusterState:
        """The cluster at the next decision point.

        Raises:
            AdapterError: with code ``over`` when all jobs have ended.
        """
        if not self._simulator.advance():
            raise AdapterError("all jobs have ended", OVER)
        arrays = snapshot_arrays(self._simulator.snapshot(), self.cluster)
        now_s = arrays["now_s"]
        queue, running = arrays["queue"], arrays["running"]
        jobs = [
            *(self._waiting(queue, place, arrays) for place in range(len(queue["job"]))),
            *(self._running(running, place) for place in range(len(running["job"]))),
        ]
        there = {int(job.id) for job in jobs}
        ended = tuple(
            Ended(str(row), now_s, self._columns["duration_s"][row], begin_s)
            for row, begin_s in self._began.items()
            if row not in there
        )
        self._now_s = now_s
        self._began = {int(job.id): job.begin_s for job in jobs if job.begin_s is not None}
        down = arrays["nodes"]["down"]
        columns = self.cluster.node_columns()
        nodes = tuple(
            Node(
                name,
                int(columns["gpus"][number]),
                self.cluster.gpu_types[int(columns["type"][number])].name,
                int(columns["cpus"][number]),
                int(columns["memory_mib"][number]),
                "down" if down[number] else "",
            )
            for number, name in enumerate(self.nodes)
        )
        return ClusterState(
            "simulated",
            now_s,
            tuple(jobs),
            nodes,
            self._partitions(),
            ended,
            epoch_s=arrays["epoch_s"],
            backfill_due=bool(arrays["backfill_due"]),
            nodes_changed=bool(arrays["nodes_changed"]),
            instant=int(arrays["instant"]),
        )

    def expect(self, wake_s: float | None, backfilled: frozenset[str]) -> None:
        """Learn what belongs to the next ``apply`` and means nothing to a real cluster.

        Args:
            wake_s: When the policy wants to be asked again at the latest.
            backfilled: Jobs that start past others.
        """
        self._wake_s, self._backfilled = wake_s, backfilled

    def apply(self, actions: Sequence[Action]) -> list[Outcome]:
        """Start jobs; once per observation, also if there is nothing to start."""
        decision = _core.Decision()
        core_id = {int(row): number for number, row in enumerate(self.kept)}
        for action in actions:
            if not isinstance(action, Start):
                continue
            parts = [
                (self._node_numbers[node], gpus) for node, gpus in zip(action.nodes, action.gpus, strict=True)
            ]
            decision.start(core_id[int(action.job)], parts, backfilled=action.job in self._backfilled)
            self._began[int(action.job)] = self._now_s
        if self._wake_s is not None:
            decision.wake_at(round(self._wake_s * 1e6))
        if len(self._simulator.waiting):
            self._simulator.apply(decision)
        return [_outcome(action) for action in actions]

    def give_back_all(self) -> list[Outcome]:
        """Nothing is held."""
        return []

    def schedule(self) -> dict[str, Any]:
        """When and where jobs ran, as ``gpuyard simulate`` has it."""
        return self._simulator.schedule()

    def _partitions(self) -> tuple[Partition, ...]:
        return tuple(
            Partition(
                entry.name,
                tuple(self.nodes[number] for number in self.cluster.partition_nodes(entry).tolist()),
                entry.default,
                entry.priority_tier,
                max_time_s=entry.max_time_s,
                max_nodes=entry.max_nodes,
            )
            for entry in self.cluster.partitions
        )

    def _described(self, row: int) -> dict[str, Any]:
        """What a job asks for, from the log."""
        columns = self._columns

        def of(name: str) -> Any:
            return columns[name][row] if name in columns else None

        types = of("gpu_types")
        return {
            "user": of("user") or "",
            "group": of("group") or "",
            "partition": of("partition") or self._default_partition,
            "qos": of("qos"),
            "gpus": of("gpus"),
            "nodes": of("nodes") or 0,
            "cpus": of("cpus") or 0,
            "memory_mib": of("memory_mib") or 0,
            "gpu_types": tuple(types) if types else None,
            "limit_s": of("estimate_s"),
            "row": row,
            "site_priority": float(of("priority") if of("priority") is not None else 1.0),
            "deadline_s": of("deadline_s"),
        }

    def _waiting(self, queue: dict[str, Any], place: int, arrays: dict[str, Any]) -> Job:
        row = int(self.kept[int(queue["job"][place])])
        fair = float(queue["fair_factor"][place])
        submit_s = float(queue["submit_s"][place])
        return Job(str(row), "waiting", submit_s, held="agent", fair_factor=fair, **self._described(row))

    def _running(self, running: dict[str, Any], place: int) -> Job:
        row = int(self.kept[int(running["job"][place])])
        described = self._described(row)
        first, last = running["node_offset"][place], running["node_offset"][place + 1]
        gpus = described["gpus"]
        shares = []
        for node, count in zip(running["node"][first:last], running["node_gpus"][first:last], strict=True):
            part, whole = (int(count), gpus) if gpus else (1, int(last - first))
            cpus, memory = (math.ceil(described[name] * part / whole) for name in ("cpus", "memory_mib"))
            shares.append(Share(self.nodes[int(node)], int(count), cpus, memory))
        begin_s = float(running["begin_s"][place])
        submit_s = float(self._columns["submit_s"][row])
        return Job(str(row), "running", submit_s, begin_s=begin_s, shares=tuple(shares), **described)


def _outcome(action: Action) -> Outcome:
    if isinstance(action, Start):
        return Outcome(action)
    return Outcome(action, f"a simulated cluster does not {type(action).__name__}", "refused")
