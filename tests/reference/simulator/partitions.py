"""Section 1 of docs/contract/slurm.md: which partition a job uses, and which partitions share a queue."""

from collections.abc import Sequence
from dataclasses import replace

from reference.simulator.inputs import Job, Partition


def settled(jobs: Sequence[Job], partitions: Sequence[Partition]) -> list[Job]:
    """The jobs, each with the name of the partition that it uses; as they are on clusters without any.

    Raises:
        ValueError: If a job has none; the job and the partition are named.
    """
    if not partitions:
        return list(jobs)
    names = {partition.name for partition in partitions}
    default = next((partition.name for partition in partitions if partition.default), None)
    answer = []
    for id, job in enumerate(jobs):
        name = job.partition or default
        if name is None:
            raise ValueError(f"job {id} names no partition, and no partition is the default")
        if name not in names:
            raise ValueError(f"job {id} is for the partition {name!r}, which the cluster does not have")
        answer.append(replace(job, partition=name))
    return answer


def queue_names(partitions: Sequence[Partition]) -> dict[str, str]:
    """For each partition the first one of its queue, after which the queue is named here."""
    names: dict[str, str] = {}
    for partition in partitions:
        if partition.name not in names:
            names |= dict.fromkeys(reachable(partition, partitions), partition.name)
    return names


def reachable(first: Partition, partitions: Sequence[Partition]) -> set[str]:
    """The partitions that share a node with this one, directly or through others."""
    names, nodes = {first.name}, set(first.nodes)
    for _ in partitions:
        for partition in partitions:
            if nodes & set(partition.nodes):
                names.add(partition.name)
                nodes |= set(partition.nodes)
    return names


def tier_of(job: Job, partitions: Sequence[Partition]) -> int:
    return next((partition.priority_tier for partition in partitions if partition.name == job.partition), 0)
