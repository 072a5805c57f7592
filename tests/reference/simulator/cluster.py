"""Sections 5, 6 and 17 of docs/contract/simulator.md: pools, what is free and held, run times, watts.

Pools of partitions are those of section 1 of docs/contract/slurm.md.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from reference.simulator.inputs import LATEST_US, UNLIMITED, Job, Node, Partition
from reference.simulator.partitions import queue_names

Watts = dict[str, tuple[float, float]]  # GPU type: (idle, peak)
Allocation = tuple[tuple[int, int], ...]  # (node, GPUs) by ascending node


# --- 5. Cluster -----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Pool:
    id: int
    size: int
    type: str
    owner: str | None
    speed: float
    nodes: tuple[int, ...]
    partition: str | None = None
    queue: str | None = None  # the owner, or the first partition of the queue


def make_pools(
    nodes: Sequence[Node], speeds: dict[str, float], partitions: Sequence[Partition] = ()
) -> list[Pool]:
    return pools_of_partitions(nodes, speeds, partitions) if partitions else pools_of_owners(nodes, speeds)


def pools_of_owners(nodes: Sequence[Node], speeds: dict[str, float]) -> list[Pool]:
    members: dict[tuple[str, str | None, int], list[int]] = {}
    for id, node in enumerate(nodes):
        members.setdefault((node.type, node.owner, node.gpus), []).append(id)
    return [
        Pool(id, size, type, owner, speeds.get(type, 1.0), tuple(ids), queue=owner)
        for id, ((type, owner, size), ids) in enumerate(members.items())
    ]


def pools_of_partitions(
    nodes: Sequence[Node], speeds: dict[str, float], partitions: Sequence[Partition]
) -> list[Pool]:
    """One per (partition, GPU type, size): a node may be in several."""
    queues = queue_names(partitions)
    members: dict[tuple[str, str, int], list[int]] = {}
    for partition in partitions:
        for id in sorted(partition.nodes):
            members.setdefault((partition.name, nodes[id].type, nodes[id].gpus), []).append(id)
    return [
        Pool(id, size, type, None, speeds.get(type, 1.0), tuple(ids), partition, queues[partition])
        for id, ((partition, type, size), ids) in enumerate(members.items())
    ]


def queue_of(pools: list[Pool], job: Job) -> str | None:
    """The queue of the job's partition; else the owner group whose nodes it uses; None for unowned nodes."""
    of_partition = [pool for pool in pools if pool.partition is not None and pool.partition == job.partition]
    if of_partition:
        return of_partition[0].queue
    return job.group if any(pool.owner == job.group for pool in pools) else None


def queues(pools: list[Pool]) -> list[str | None]:
    """All queues, in order."""
    if any(pool.partition is not None for pool in pools):
        return list(dict.fromkeys(pool.queue for pool in pools))
    return [None, *dict.fromkeys(pool.owner for pool in pools if pool.owner is not None)]


def allowed_pools(pools: list[Pool], job: Job) -> list[Pool]:
    return [
        pool
        for pool in pools
        if pool.queue == queue_of(pools, job)
        and pool.partition in (None, job.partition)
        and (job.gpu_types is None or pool.type in job.gpu_types)
        and (job.gpus == 0 or pool.size >= 1)
    ]


@dataclass
class FreeNode:
    gpu_milli: list[int]  # free thousandths of each GPU
    cpus: int
    memory_mib: int
    given_cpus: int | None = None  # the node's capacity
    given_memory_mib: int | None = None
    available: bool = True  # neither down (section 16) nor closed (section 15)

    @property
    def empty(self) -> int:
        return self.gpu_milli.count(1000)

    @property
    def free_milli(self) -> int:
        return sum(self.gpu_milli)

    def gpu_for(self, milli: int) -> int | None:
        """The fullest GPU with that much room, the lowest-numbered one among equals."""
        fitting = [(free, index) for index, free in enumerate(self.gpu_milli) if free >= milli]
        return min(fitting)[1] if fitting else None

    def copy(self) -> "FreeNode":
        return FreeNode(
            list(self.gpu_milli),
            self.cpus,
            self.memory_mib,
            self.given_cpus,
            self.given_memory_mib,
            self.available,
        )


def empty_cluster(nodes: Sequence[Node]) -> list[FreeNode]:
    def capacity(given: int | None) -> int:
        return UNLIMITED if given is None else given

    return [
        FreeNode(
            [1000] * node.gpus, capacity(node.cpus), capacity(node.memory_mib), node.cpus, node.memory_mib
        )
        for node in nodes
    ]


def copy_of(free: list[FreeNode]) -> list[FreeNode]:
    return [node.copy() for node in free]


@dataclass(frozen=True)
class Held:
    """What a job holds on one node."""

    node: int
    gpu_indices: tuple[int, ...]
    gpu_milli: int  # of each of these GPUs
    cpus: int
    memory_mib: int


def share(job: Job, gpus: int) -> tuple[int, int]:
    """CPUs and MiB that a job takes on a node that holds so many of its GPUs."""
    if job.gpus == 0 and job.asked_nodes is not None:
        return -(-job.cpus // job.asked_nodes), -(-job.memory_mib // job.asked_nodes)
    if job.gpus == 0 or job.is_shared:
        return job.cpus, job.memory_mib
    return -(-job.cpus * gpus // job.gpus), -(-job.memory_mib * gpus // job.gpus)


def gpus_taken(node: FreeNode, job: Job, gpus: int) -> tuple[int, ...]:
    """The indices of the GPUs that so many of the job's GPUs would be on this node."""
    if job.is_shared:
        index = node.gpu_for(job.gpu_milli)
        assert index is not None
        return (index,)
    indices = [index for index, milli in enumerate(node.gpu_milli) if milli == 1000][:gpus]
    assert len(indices) == gpus
    return tuple(indices)


def take(free: list[FreeNode], job: Job, allocation: Allocation) -> list[Held]:
    held = [
        Held(id, gpus_taken(free[id], job, gpus), job.gpu_milli, *share(job, gpus)) for id, gpus in allocation
    ]
    change(free, held, -1)
    return held


def change(free: list[FreeNode], held: list[Held], sign: int) -> None:
    """Gives back (sign = 1) or takes away (sign = -1) exactly these GPUs, CPUs and this memory."""
    for part in held:
        node = free[part.node]
        for index in part.gpu_indices:
            node.gpu_milli[index] += sign * part.gpu_milli
        node.cpus += sign * part.cpus
        node.memory_mib += sign * part.memory_mib
        assert all(0 <= milli <= 1000 for milli in node.gpu_milli)
        assert node.cpus >= 0
        assert node.memory_mib >= 0


# --- 6. Run time on an allocation -----------------------------------------------------------------------


def least_nodes(pool: Pool, job: Job) -> int:
    if job.asked_nodes is not None:
        return job.asked_nodes
    return -(-job.gpus // pool.size) if job.gpus >= 1 else 1


def speed_and_excess(job: Job, allocation: Allocation, pools: list[Pool]) -> tuple[float, float]:
    used = {id for id, _ in allocation}
    used_pools = [pool for pool in pools if used & set(pool.nodes)]
    speed = min(pool.speed for pool in used_pools) if job.gpus >= 1 else 1.0
    n_min = min(least_nodes(pool, job) for pool in used_pools)
    return speed, float(len(used) - n_min) / float(n_min)


def scaled_us(base_us: int, speed: float, excess: float, penalty: float) -> int:
    exact = (float(base_us) / speed) * (1.0 + penalty * excess)
    if exact > LATEST_US:
        raise ValueError("a run time is more than 2^62 microseconds")
    return max(1, round(exact))


def run_time_us(base_us: int, job: Job, allocation: Allocation, pools: list[Pool], penalty: float) -> int:
    speed, excess = speed_and_excess(job, allocation, pools)
    return scaled_us(base_us, speed, excess, penalty)


def work_us(progress_us: int, job: Job, allocation: Allocation, pools: list[Pool], penalty: float) -> int:
    """Section 14: the work, at speed 1, that progress of that length has done."""
    speed, excess = speed_and_excess(job, allocation, pools)
    f = (1.0 / speed) * (1.0 + penalty * excess)
    return progress_us if f == 1.0 else math.floor(float(progress_us) / f)


# --- 17. Watts ------------------------------------------------------------------------------------------


def milliwatts(watts: float) -> int:
    return round(watts * 1000.0)


def draw_mw(nodes: Sequence[Node], watts: Watts, free: list[FreeNode]) -> int:
    """What the cluster draws if its GPUs are free and held like that."""
    total = 0
    for node, state in zip(nodes, free, strict=True):
        total += milliwatts(node.idle_w)
        if node.gpus == 0:
            continue
        idle_w, peak_w = watts[node.type]
        idle, peak = milliwatts(idle_w), milliwatts(peak_w)
        held = sum(1 for milli in state.gpu_milli if milli < 1000)
        total += node.gpus * idle + held * (peak - idle)
    return total


def energy_rate(job: Job, pool: Pool, nodes: Sequence[Node], watts: Watts) -> float:
    """Section 8: watts at speed 1 of a job with GPUs on a pool of size >= 1."""
    n, z = job.size, float(pool.size)
    _, peak_w = watts[pool.type]
    return (n * peak_w + (n / z) * nodes[pool.nodes[0]].idle_w) / pool.speed
