"""Classes of jobs by what they request: Slurm has no weight for that, but partitions have priorities."""

from collections.abc import Sequence

import numpy as np

from gpuyard.cluster.hostlists import compressed_nodes
from gpuyard.cluster.model import Cluster, Partition
from gpuyard.errors import InputError, setting
from gpuyard.policies.slurm_lines.draft import Draft
from gpuyard.policies.slurm_lines.lines import minutes_of, slurm_time
from gpuyard.policies.slurm_lines.routing import ScoreClasses, scores

USUAL_BOUNDS_S = (1800.0, 14400.0, 86400.0)
"""Where there is no log: half an hour, four hours, a day."""
STEP = 1000
"""Priority between one class and the next."""
BASE = "gpu"
"""What partitions are called where the cluster has none."""
LAST = "rest"
_LOST_LIMITS = ("max_gpus_per_job", "max_gpus_per_user", "max_jobs_per_user")


def by_request(draft: Draft, exponent: float, *, by_gpus: bool, longest_first: bool = False) -> None:
    """Give jobs partitions by (requested time) ^ exponent, times GPUs if these count.

    Raises:
        InputError: if no job requests a time, or the cluster's partitions cannot be split up.
    """
    bases = _bases(draft)
    bounds = _bounds(draft, exponent, by_gpus=by_gpus)
    timed = exponent == 1.0 and not by_gpus
    names = [_short(bound) for bound in bounds] if timed else [str(one + 1) for one in range(len(bounds))]
    draft.classes = ScoreClasses(
        exponent, by_gpus, tuple(bounds), (*names, LAST), bases, longest_first=longest_first
    )
    draft.weights = {"partition_weight": float(STEP * (len(bounds) + 1))}
    what = "time limit" if timed else "time limit and GPUs"
    draft.losses.append(
        f"Slurm has no weight for the time limit. Jobs are in {len(bounds) + 1} classes by {what}, each a "
        "partition on the same nodes; within a class they come in order of submit."
    )
    draft.notes.append(
        "The partitions replace those of slurm.conf. job_submit.lua gives each job its class, so users name "
        "no new partition."
    )
    if draft.workload is None:
        draft.notes.append(
            "The bounds of classes are usual ones; with a log they are quantiles of its requests."
        )


def partition_lines(classes: ScoreClasses, cluster: Cluster | None) -> list[str]:
    """``PartitionName`` lines of all classes."""
    timed = classes.exponent == 1.0 and not classes.by_gpus
    lines = []
    for base in classes.bases:
        for number, suffix in enumerate(classes.suffixes):
            is_last = number == len(classes.bounds)
            limits = [] if is_last or not timed else [classes.bounds[number]]
            limits += [] if base.max_time_s is None else [base.max_time_s]
            fields = [f"PartitionName={base.name}-{suffix}", f"Nodes={_nodes(base, cluster)}"]
            fields += ["Default=YES"] if base.default and is_last else []
            fields += [f"MaxTime={slurm_time(min(limits))}"] if limits else []
            fields += [] if base.max_nodes is None else [f"MaxNodes={base.max_nodes}"]
            fields += [f"PriorityTier={base.priority_tier}"] if base.priority_tier != 1 else []
            lines.append(" ".join([*fields, f"PriorityJobFactor={classes.factor(number)}", "State=UP"]))
    return lines


def node_labels(cluster: Cluster) -> list[str]:
    """Names of a cluster's nodes; those without one are called by their number."""
    return [name or f"node{number}" for number, name in enumerate(cluster.node_names)]


def _nodes(base: Partition, cluster: Cluster | None) -> str:
    if cluster is None or base.nodes.strip().lower() == "all":
        return "ALL"
    labels = node_labels(cluster)
    return compressed_nodes([labels[number] for number in cluster.partition_nodes(base)]) or "ALL"


def _bases(draft: Draft) -> tuple[Partition, ...]:
    cluster = draft.cluster
    if cluster is None or not cluster.partitions:
        if cluster is not None and cluster.owners:
            raise InputError(
                f"policy {draft.rule.name}: on Slurm it needs partitions by time limit, and nodes of cluster "
                f"{cluster.name} are owned by {cluster.owners[0]}; export multifactor or fair-share, or "
                "leave owners out of the cluster's file"
            )
        return (Partition(name=BASE, default=True),)
    for partition in cluster.partitions:
        if any(getattr(partition, limit) is not None for limit in _LOST_LIMITS):
            raise InputError(
                f"policy {draft.rule.name}: on Slurm it needs partitions by time limit, and partition "
                f"{partition.name} limits GPUs or jobs, which would then count for each class; leave these "
                "limits out of the cluster's file, or export multifactor or fair-share"
            )
    return cluster.partitions


def _bounds(draft: Draft, exponent: float, *, by_gpus: bool) -> list[float]:
    """Quantiles of what jobs request, as bounds of classes."""
    if draft.workload is None:
        if by_gpus or exponent != 1.0:
            raise InputError(
                f"policy {draft.rule.name}: on Slurm it needs classes of jobs by time limit and GPUs, whose "
                f"bounds are quantiles of a log; give {setting('workload')} and {setting('cluster')}"
            )
        return list(USUAL_BOUNDS_S)
    found = scores(draft.workload, exponent, by_gpus=by_gpus)
    found = found[np.isfinite(found)]
    if not len(found):
        raise InputError(
            f"policy {draft.rule.name}: no job of the log requests a run time, and Slurm knows nothing else; "
            "export a policy that needs none, such as smallest+easy or fair-share+easy"
        )
    shares = np.arange(1, draft.most_classes) / draft.most_classes
    quantiles = np.quantile(found, shares, method="inverted_cdf")
    if not by_gpus and exponent == 1.0:  # Slurm's time limits are whole minutes
        quantiles = np.array([60.0 * minutes_of(one) for one in quantiles])
    else:
        quantiles = np.array([float(f"{one:.3g}") for one in quantiles])
    return _below(np.unique(quantiles), float(found.max()))


def _below(bounds: Sequence[float] | np.ndarray, largest: float) -> list[float]:
    """Bounds that leave something above them; one at least."""
    kept = [float(one) for one in bounds if one < largest]
    return kept or [float(bounds[0])]


def _short(seconds: float) -> str:
    minutes = minutes_of(seconds)
    for size, unit in ((1440, "d"), (60, "h")):
        if minutes % size == 0:
            return f"{minutes // size}{unit}"
    return f"{minutes}m"
