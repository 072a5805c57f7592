"""Checks of a workload against a cluster: contention, jobs that do not fit."""

import numpy as np
import polars as pl

from gpuyard.workload.auditing.demand import oversubscription
from gpuyard.workload.auditing.fidelity import Facts, Found, check, percent
from gpuyard.workload.core_columns import never_placeable
from gpuyard.workload.shaping.rescale import area_load

CONTENDED = 0.5
"""Below this load, policies hardly differ."""


@check("no-contention", needs="cluster")
def no_contention(facts: Facts) -> Found | None:
    """A load far below 1: hardly any job ever waits."""
    cluster = facts.needs_cluster()
    load = area_load(facts.workload, cluster)
    if load is None or load >= CONTENDED or not facts.column("gpus").any():
        return None  # jobs without GPUs bring no load that could be changed
    demand = oversubscription(facts.workload, cluster.total_gpus)
    never = demand.peak < 1
    return Found(
        "serious" if never else "warning",
        f"the load on {cluster.name} is {load:.3f}; if every job started at once, "
        f"{percent(demand.peak)} of the GPUs would be busy at the peak",
        (
            "A replay shows no contention: whatever the policy, "
            + ("no job waits for want of GPUs" if never else "few jobs wait")
            + ", and differences between policies are noise."
        ),
        "Compress time: gpuyard workload shape FILE --load 0.9 --cluster C --out b.parquet; or shrink the "
        "cluster in its shape: the same with --cluster-out small.toml; or use a contended preset "
        "(gpuyard workload list)",
        {"load": load, "peak": demand.peak, "oversubscribed_time_share": demand.time_share},
    )


@check("overload", needs="cluster")
def overload(facts: Facts) -> Found | None:
    """More work than the cluster can do: queues grow as long as the trace lasts."""
    cluster = facts.needs_cluster()
    load = area_load(facts.workload, cluster)
    if load is None or load <= 1:
        return None
    demand = oversubscription(facts.workload, cluster.total_gpus)
    return Found(
        "serious" if load > 2 else "warning",
        f"the load on {cluster.name} is {load:.2f}; more GPUs are asked for than there are in "
        f"{percent(demand.time_share)} of the time",
        "The queue grows until the last submit and drains long after it. Waits grow with the length of the "
        "trace, so they are no property of the policy alone.",
        "Lower it to what real clusters see, 0.85 to 0.95: gpuyard workload shape FILE --load 0.9 "
        "--cluster C --out steady.parquet",
        {"load": load, "peak": demand.peak, "oversubscribed_time_share": demand.time_share},
    )


@check("never-placeable", needs="cluster")
def never_run(facts: Facts) -> Found | None:
    """Jobs that can never run on the cluster."""
    cluster = facts.needs_cluster()
    jobs = never_placeable(facts.workload, cluster, "consolidate")
    if len(jobs) == 0:
        return None
    chosen = np.zeros(facts.jobs, dtype=np.bool_)
    chosen[jobs] = True
    share = facts.gpu_time_share(chosen)
    first = facts.frame.row(int(jobs[0]), named=True)
    return Found(
        "serious",
        f"{len(jobs):,} jobs can never run on {cluster.name} with placement consolidate, such as row "
        f"{first['row']} ({first['gpus']} GPUs); they hold {percent(share)} of the GPU time",
        "A simulation refuses them, or leaves them out and says so (--oversize drop).",
        "Use a larger cluster or the one of the trace; or gpuyard simulate ... --oversize drop",
        {
            "jobs": len(jobs),
            "share_of_jobs": len(jobs) / facts.jobs,
            "share_of_gpu_time": share,
            "first_row": first["row"],
        },
    )


@check("awkward-gang-sizes", needs="cluster")
def awkward_gang_sizes(facts: Facts) -> Found | None:
    """Gangs that neither divide a node's GPUs nor fill whole nodes."""
    cluster = facts.needs_cluster()
    node_sizes = {group.gpus for group in cluster.nodes if group.gpus > 0}
    sizes = facts.column("gpus").astype(np.int64)
    awkward = sizes > 0
    for gpus in node_sizes:
        awkward &= np.where(sizes <= gpus, gpus % np.maximum(sizes, 1), sizes % gpus) != 0
    share = facts.gpu_time_share(awkward)
    if not node_sizes or share < 0.05:
        return None
    found, counts = np.unique(sizes[awkward], return_counts=True)
    common = [int(size) for size in found[np.argsort(-counts, kind="stable")][:5]]
    nodes = " or ".join(str(size) for size in sorted(node_sizes))
    return Found(
        "warning" if share > 0.2 else "note",
        f"gangs of {', '.join(map(str, common))} GPUs, with {percent(share)} of the GPU time, do not divide "
        f"nodes of {nodes}",
        "They leave parts of nodes that few other jobs can use: the placement rule matters as much as the "
        "order, and counting GPUs (placement anywhere) misleads.",
        "Compare placements: gpuyard simulate FILE --cluster C --policy fifo --policy fifo/best-fit",
        {
            "share_of_jobs": float(awkward.mean()),
            "share_of_gpu_time": share,
            "sizes": tuple(map(str, common)),
        },
    )


@check("groups-without-nodes", needs="cluster")
def groups_without_nodes(facts: Facts) -> Found | None:
    """Jobs of groups that own no nodes, on a cluster where others do."""
    cluster = facts.needs_cluster()
    if not cluster.owners:
        return None
    outside = ~facts.frame["group"].is_in(list(cluster.owners))
    share = float(outside.mean() or 0.0)  # type: ignore[arg-type]
    if share == 0:
        return None
    names = facts.frame["group"].filter(outside).value_counts(sort=True)["group"].head(5).to_list()
    return Found(
        "warning",
        f"{percent(share)} of the jobs are of groups that own no nodes of {cluster.name}, such as "
        f"{', '.join(map(repr, names))}",
        "They may use only nodes that nobody owns; where there are none, they can never run.",
        "Give them to an owner: gpuyard workload shape FILE --relabel OLD=NEW --out grouped.parquet",
        {"share_of_jobs": share, "groups": tuple(names)},
    )


@check("cpu-only-jobs")
def cpu_only_jobs(facts: Facts) -> Found | None:
    """Jobs without GPUs."""
    share = float((facts.frame["gpus"] == 0).mean() or 0.0)  # type: ignore[arg-type]
    if share < 0.01:
        return None
    without_cpus = facts.frame.filter(pl.col("gpus") == 0).select((pl.col("cpus") == 0).mean()).item()
    numbers = {"share_of_jobs": share, "of_those_without_cpus": without_cpus}
    also = f", and {percent(without_cpus)} of those for no CPU either" if without_cpus else ""
    if share == 1:
        return Found(
            "serious",
            f"no job asks for a GPU{also}",
            "On nodes that state no CPUs every job starts at once. Nothing can be learnt about GPUs.",
            "If the cluster has GPUs, the log was exported without them: list the fields that count them "
            "(Slurm: AllocTRES and ReqTRES) and import again. If it has none, describe nodes with gpus = 0 "
            "and their cpus in a TOML file, and simulate on that.",
            numbers,
        )
    return Found(
        "note",
        f"{percent(share)} of the jobs ask for no GPU{also}",
        "On nodes that state no CPUs they start at once, wait for nothing, and pull down averages over jobs.",
        "For questions about GPUs leave them out: gpuyard workload shape FILE --gpus 1- --out gpu.parquet",
        numbers,
    )
