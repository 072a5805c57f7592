"""Section 2 of docs/contract/slurm.md: limits of partitions and of qualities of service."""

from collections.abc import Sequence

from reference.simulator.cluster import Pool, allowed_pools, least_nodes
from reference.simulator.inputs import Job, Partition, Qos, to_us


def partition_of(job: Job, partitions: Sequence[Partition]) -> Partition | None:
    return next((partition for partition in partitions if partition.name == job.partition), None)


def qos_of(job: Job, qos: Sequence[Qos]) -> Qos | None:
    return next((quality for quality in qos if quality.name == job.qos), None)


def can_ever_be_within(
    job: Job, pools: list[Pool], partitions: Sequence[Partition], qos: Sequence[Qos]
) -> bool:
    """Whether the job is within the limits per job, and within the running limits if it is alone."""
    for limited in (partition_of(job, partitions), qos_of(job, qos)):
        if limited is not None and not is_within_limits_per_job(job, limited):
            return False
    return has_few_enough_nodes(job, pools, partitions) and is_within(job, [], partitions, qos)


def has_few_enough_nodes(job: Job, pools: list[Pool], partitions: Sequence[Partition]) -> bool:
    partition = partition_of(job, partitions)
    if partition is None or partition.max_nodes is None:
        return True
    fewest = [least_nodes(pool, job) for pool in allowed_pools(pools, job)]
    return bool(fewest) and min(fewest) <= partition.max_nodes


def is_within_limits_per_job(job: Job, limited: Partition | Qos) -> bool:
    if limited.max_time_s is not None and job.estimate_s is not None:
        is_short_enough = max(1, to_us(job.estimate_s)) <= to_us(limited.max_time_s)
        if not is_short_enough:
            return False
    return limited.max_gpus_per_job is None or job.milli <= 1000 * limited.max_gpus_per_job


def is_within(job: Job, running: Sequence[Job], partitions: Sequence[Partition], qos: Sequence[Qos]) -> bool:
    """Whether no running limit is exceeded if the job runs beside these."""
    partition, quality = partition_of(job, partitions), qos_of(job, qos)
    if partition is not None:
        others = [other for other in running if other.partition == job.partition]
        if not is_within_limits_per_user(job, others, partition):
            return False
    if quality is None:
        return True
    others = [other for other in running if other.qos == job.qos]
    of_its_group = [other for other in others if other.group == job.group]
    return (
        is_within_limits_per_user(job, others, quality)
        and is_at_most(quality.max_gpus_per_group, job, of_its_group)
        and is_at_most(quality.max_gpus, job, others)
    )


def is_within_limits_per_user(job: Job, others: Sequence[Job], limited: Partition | Qos) -> bool:
    of_its_user = [other for other in others if other.user == job.user]
    if limited.max_jobs_per_user is not None and len(of_its_user) + 1 > limited.max_jobs_per_user:
        return False
    return is_at_most(limited.max_gpus_per_user, job, of_its_user)


def is_at_most(limit: int | None, job: Job, others: Sequence[Job]) -> bool:
    """Whether so many GPUs suffice for the job and the others, in thousandths."""
    return limit is None or job.milli + sum(other.milli for other in others) <= 1000 * limit


def has_running_limits(partitions: Sequence[Partition], qos: Sequence[Qos]) -> bool:
    names = ("max_gpus_per_user", "max_jobs_per_user", "max_gpus_per_group", "max_gpus")
    return any(getattr(limited, name, None) is not None for limited in (*partitions, *qos) for name in names)
