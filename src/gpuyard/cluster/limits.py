"""Limits on what users and groups run at the same time (docs/contract/slurm.md, section 2)."""

from gpuyard.cluster.model import Cluster, Partition, Qos

WHOSE = {
    "max_gpus_per_user": "user",
    "max_jobs_per_user": "user",
    "max_gpus_per_group": "group",
    "max_gpus": "all",
}
"""Limits on running jobs, and whose jobs each counts."""


def running_limits(entry: Partition | Qos) -> dict[str, int]:
    """The limits on running jobs that a partition or QOS states."""
    found = {name: getattr(entry, name, None) for name in WHOSE}
    return {name: value for name, value in found.items() if value is not None}


def has_running_limits(cluster: Cluster) -> bool:
    """Whether users or groups may be held back by what they run already."""
    entries: list[Partition | Qos] = [*cluster.partitions, *cluster.qos]
    return any(running_limits(entry) for entry in entries)
