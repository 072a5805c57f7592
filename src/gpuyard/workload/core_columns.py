"""What jobs ask of nodes: in the form in which the native core takes it, and in words."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from gpuyard import _core
from gpuyard.cluster.model import Cluster, Partition
from gpuyard.errors import InputError
from gpuyard.units import plural
from gpuyard.workload.schema import Workload

MOST_SHARED_GPUS = 64
"""GPUs of a node that jobs may share parts of, at most: the core keeps one bit for each in a word."""


def core_cluster(
    workload: Workload, cluster: Cluster, *, with_watts: bool = False, track_gpus: bool = False
) -> _core.ClusterSpec:
    """The cluster, for these jobs.

    Args:
        workload: The jobs.
        cluster: What they run on.
        with_watts: The power of its nodes matters to decisions.
        track_gpus: Keep the state of every single GPU, even if no job shares one.

    Raises:
        InputError: if single GPUs are to be told apart on nodes that are too large for that.
    """
    shared = bool((workload.frame["gpu_milli"] < 1000).any())
    if (shared or track_gpus) and max(group.gpus for group in cluster.nodes) > MOST_SHARED_GPUS:
        who = "jobs that share GPUs (gpu_milli below 1000) need" if shared else "lookahead per_gpu needs"
        raise InputError(f"{who} nodes of at most {MOST_SHARED_GPUS} GPUs each")
    return core_nodes(cluster, with_watts=with_watts, track_gpus=shared or track_gpus)


def core_nodes(cluster: Cluster, *, with_watts: bool, track_gpus: bool) -> _core.ClusterSpec:
    """The cluster as the core takes it. Nodes whose GPUs are tracked have at most ``MOST_SHARED_GPUS``."""
    nodes = cluster.node_columns()
    del nodes["rack"]
    speeds = np.array([gpu_type.speed for gpu_type in cluster.gpu_types])
    watts = _watts(cluster) if with_watts else {}
    partitions = [
        (cluster.partition_nodes(entry).tolist(), entry.priority_tier, entry.priority_job_factor)
        for entry in cluster.partitions
    ]
    return _core.ClusterSpec(
        **nodes, type_speed=speeds, track_gpus=track_gpus, partitions=partitions, **watts
    )


def _watts(cluster: Cluster) -> dict[str, Any]:
    counts = [group.count for group in cluster.nodes]
    return {
        "node_idle_w": np.repeat(np.array([group.idle_w for group in cluster.nodes], np.float64), counts),
        "type_idle_w": np.array([gpu_type.idle_w or 0.0 for gpu_type in cluster.gpu_types], np.float64),
        "type_peak_w": np.array([gpu_type.peak_w or 0.0 for gpu_type in cluster.gpu_types], np.float64),
    }


def demand_columns(frame: pl.DataFrame, cluster: Cluster) -> dict[str, Any]:
    """Columns of the core's job table that say what a job needs, but those that hold only defaults."""
    columns: dict[str, Any] = {"gpus": frame["gpus"].to_numpy()}
    defaults = (("gpu_milli", 1000, np.int32), ("cpus", 0, np.int64), ("memory_mib", 0, np.int64))
    for name, default, dtype in defaults:
        if (frame[name] != default).any():
            columns[name] = frame[name].to_numpy().astype(dtype)
    if "nodes" in frame.columns and frame["nodes"].null_count() < len(frame):
        columns["nodes"] = frame["nodes"].fill_null(0).to_numpy().astype(np.int32)
    partition = partition_numbers(frame, cluster)
    if partition is not None:
        columns["partition"] = partition
    if cluster.owners:
        owners = {name: index for index, name in enumerate(cluster.owners, start=1)}
        queues = frame["group"].replace_strict(owners, default=0, return_dtype=pl.Int32)
        columns["queue"] = queues.to_numpy()
    return columns | _type_columns(frame, cluster)


def partition_numbers(frame: pl.DataFrame, cluster: Cluster) -> NDArray[np.int32] | None:
    """Each job's partition as a number of the cluster's; None for a cluster without partitions.

    Raises:
        InputError: naming the first job of a partition that the cluster does not have.
    """
    if not cluster.partitions:
        return None
    known = {entry.name: number for number, entry in enumerate(cluster.partitions)}
    known |= dict.fromkeys([""], next((n for n, entry in enumerate(cluster.partitions) if entry.default), -1))
    names = frame["partition"] if "partition" in frame.columns else pl.Series("partition", [""] * len(frame))
    numbers: NDArray[np.int32] = names.replace_strict(known, default=-1, return_dtype=pl.Int32).to_numpy()
    missing = np.flatnonzero(numbers < 0)
    if not len(missing):
        return numbers
    row = frame.row(int(missing[0]), named=True)
    job, name = row["source_id"] or f"of row {row['row']}", names[int(missing[0])]
    listed = ", ".join(entry.name for entry in cluster.partitions)
    what = (
        f"asks for partition {name!r}, which cluster {cluster.name} does not have (it has {listed}); "
        "add it to the cluster's file, or name one of these"
        if name
        else f"names no partition, and no partition of cluster {cluster.name} is the default; "
        "state default = true for one of them"
    )
    raise InputError(f"job {job} {what}. {plural(len(missing), 'job')} like that")


def fewest_nodes(frame: pl.DataFrame, cluster: Cluster, partition: Partition) -> NDArray[np.int64]:
    """The fewest nodes of a partition that could hold each job."""
    columns, nodes = cluster.node_columns(), cluster.partition_nodes(partition)
    largest: dict[str, int] = {}
    for kind, size in zip(columns["type"][nodes].tolist(), columns["gpus"][nodes].tolist(), strict=True):
        name = cluster.gpu_types[kind].name
        largest[name] = max(size, largest.get(name, 0))
    any_type = max(largest.values())
    node_gpus = np.array(
        [any_type if types is None else max((largest.get(name, 0) for name in types), default=0)
         for types in frame["gpu_types"].to_list()]
    )  # fmt: skip
    gpus, asked = frame["gpus"].to_numpy().astype(np.int64), asked_counts(frame)
    fewest = -(-gpus // np.maximum(node_gpus, 1))
    return np.where(asked > 0, asked, np.maximum(1, fewest))


def _type_columns(frame: pl.DataFrame, cluster: Cluster) -> dict[str, Any]:
    """Each distinct list of allowed GPU types, as indices of the cluster's; -1 if it has none of them."""
    if frame["gpu_types"].null_count() == len(frame):
        return {}
    joined = frame["gpu_types"].list.join("|")
    names = joined.drop_nulls().unique().sort().to_list()
    known = {gpu_type.name: index for index, gpu_type in enumerate(cluster.gpu_types)}
    sets = [[known[name] for name in text.split("|") if name in known] or [-1] for text in names]
    numbers = {text: index for index, text in enumerate(names)}
    type_set = joined.replace_strict(numbers, default=-1, return_dtype=pl.Int32)
    return {"type_set": type_set.fill_null(-1).to_numpy(), "type_sets": sets}


def never_placeable(workload: Workload, cluster: Cluster, placement: str) -> NDArray[np.int64]:
    """Positions of jobs that the placement rule could not place even on the empty cluster.

    Raises:
        InputError: if jobs share GPUs of nodes that are too large for that.
    """
    spec = core_cluster(workload, cluster)
    one = np.ones(len(workload), dtype=np.int64)
    demands = demand_columns(workload.frame, cluster)
    jobs = _core.JobTable(spec, submit_us=one - 1, duration_us=one, estimate_us=one, **demands)
    return _core.never_placeable(spec, jobs, placement)


def asked_nodes(job: Mapping[str, Any]) -> int | None:
    """How many nodes a row of the job table asks for (docs/contract/simulator.md, section 3); None: any."""
    nodes, gpus = job.get("nodes"), int(job["gpus"])
    if nodes is None:
        return None
    count = min(int(nodes), gpus) if gpus else int(nodes)
    return None if count == 1 and gpus <= 1 else count


def asked_counts(frame: pl.DataFrame) -> NDArray[np.int64]:
    """The same for all rows of the table; 0 for those that do not ask."""
    if "nodes" not in frame.columns:
        return np.zeros(len(frame), np.int64)
    nodes, gpus = frame["nodes"].fill_null(0).to_numpy().astype(np.int64), frame["gpus"].to_numpy()
    count = np.where(gpus > 0, np.minimum(nodes, gpus), nodes)
    return np.where((count == 1) & (gpus <= 1), 0, count)


def needs_of(job: Mapping[str, Any]) -> str:
    """GPUs, CPUs and memory of a row of the job table: per node if it asks for like nodes, else in all."""
    asked, gpus = asked_nodes(job), int(job["gpus"])
    if asked is None or asked == 1 or gpus % asked:
        size = plural(gpus, "GPU") if job["gpu_milli"] == 1000 else f"{job['gpu_milli'] / 1000:g} GPU"
        where = "" if asked is None else f" on {plural(asked, 'node')}"
        others = _cpus_and_memory(job, 1)
        if not gpus and others:
            return f"{', '.join(others)}{where}"
        return ", ".join([f"{size}{where}", *others])
    each = [plural(gpus // asked, "free GPU")] if gpus else []
    each += _cpus_and_memory(job, asked)
    return f"{asked} nodes" + (f" with {', '.join(each)} each" if each else "")


def _cpus_and_memory(job: Mapping[str, Any], nodes: int) -> list[str]:
    cpus, memory_mib = -(-int(job["cpus"]) // nodes), -(-int(job["memory_mib"]) // nodes)
    return [plural(cpus, "CPU")] * bool(cpus) + [f"{memory_mib} MiB"] * bool(memory_mib)
