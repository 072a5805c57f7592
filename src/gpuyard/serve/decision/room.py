"""What is free on a live cluster: beside running jobs, releases in flight and starts of this round."""

from collections.abc import Collection, Sequence

from gpuyard.serve.decision.memory import Memory
from gpuyard.serve.state import ClusterState, Job, Partition


class Room:
    """GPUs, CPUs and memory that are free on each node.

    Args:
        state: Of the round.
        memory: Of the round.
        stopped: Running jobs that count as gone.
    """

    def __init__(self, state: ClusterState, memory: Memory, stopped: Collection[str] = ()) -> None:
        self.nodes = state.node_by_name
        self.free = {node.name: [node.gpus, node.cpus, node.memory_mib] for node in state.nodes}
        used = {node.name: node.gpus_used for node in state.nodes if node.gpus_used is not None}
        for job in state.running:
            if job.id not in stopped:
                self._hold(job)
                continue
            for share in job.shares:
                used[share.node] = used.get(share.node, 0) - share.gpus
        for name, gpus in used.items():  # GPUs in use by nobody knows whom
            if name in self.free:
                self.free[name][0] = min(self.free[name][0], self.nodes[name].gpus - max(0, gpus))
        for id, release in memory.in_flight.items():
            released = state.by_id.get(id)
            if released is not None and released.waits:
                self.take(released, release.nodes)

    def _hold(self, job: Job) -> None:
        for share in job.shares:
            if share.node in self.free:
                needs = [share.gpus, share.cpus, share.memory_mib]
                self.free[share.node] = _less(self.free[share.node], needs, job.exclusive)

    def take(self, job: Job, nodes: Sequence[tuple[str, int]]) -> None:
        """Count a start."""
        for node, gpus in nodes:
            if node in self.free:
                self.free[node] = _less(self.free[node], _needs_on(job, gpus, len(nodes)), job.exclusive)

    def holds(self, job: Job, nodes: Sequence[tuple[str, int]]) -> bool:
        """Whether there is room for a job on these nodes."""
        if job.exclusive and sum(self.nodes[node].gpus for node, _ in nodes) < job.gpus:
            return False
        return all(self._holds_part(job, node, gpus, len(nodes)) for node, gpus in nodes)

    def _holds_part(self, job: Job, node: str, gpus: int, parts: int) -> bool:
        free, whole = self.free[node], self.nodes[node]
        if job.exclusive:  # it gets all of the node, whatever it asked for
            return free == [whole.gpus, whole.cpus, whole.memory_mib]
        return min(_less(free, _needs_on(job, gpus, parts))) >= 0

    def holds_somewhere(self, job: Job, partition: Partition | None) -> bool:
        """Whether there is room for a job somewhere, on nodes that take jobs and that it may use."""
        allowed = [
            node
            for node in self.nodes.values()
            if not node.closed
            and (partition is None or (partition.open and node.name in partition.nodes))
            and (not job.gpus or job.gpu_types is None or node.gpu_type in job.gpu_types)
        ]
        most = max((node.gpus for node in allowed), default=0)
        if job.gpus and not most:
            return False
        count = max(1, job.nodes, -(-job.gpus // most) if job.gpus else 1)
        if not within_limits(job, count, partition):
            return False
        each = -(-job.gpus // count)
        return sum(self._holds_part(job, node.name, each, count) for node in allowed) >= count


def within_limits(job: Job, nodes: int, partition: Partition | None) -> bool:
    """Whether a job on so many nodes keeps to the limits of its partition."""
    if partition is None:
        return True
    if partition.max_nodes is not None and nodes > partition.max_nodes:
        return False
    limit_s = partition.max_time_s
    return limit_s is None or (job.limit_s is not None and job.limit_s <= limit_s)


def _needs_on(job: Job, gpus: int, parts: int) -> list[int]:
    """GPUs, CPUs and memory of a job on a node (docs/contract/simulator.md, section 3)."""
    if job.gpus:
        return [gpus, -(-job.cpus * gpus // job.gpus), -(-job.memory_mib * gpus // job.gpus)]
    return [0, -(-job.cpus // parts), -(-job.memory_mib // parts)]


def _less(free: list[int], needs: list[int], all_of_it: bool = False) -> list[int]:
    if all_of_it:
        return [min(0, left) for left in free]
    return [left - need for left, need in zip(free, needs, strict=True)]
