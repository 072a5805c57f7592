"""Which jobs of a workload can never run on a cluster."""

from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from gpuyard import _core
from gpuyard.cluster import Cluster
from gpuyard.workload.schema import Workload

MOST_SHARED_GPUS = 64
"""GPUs of a node that jobs may share parts of, at most (docs/simulator.md)."""


def never_placeable(
    workload: Workload, cluster: Cluster, placement: str = "consolidate"
) -> NDArray[np.int64] | None:
    """Positions of jobs that no free cluster could ever hold; None if the core cannot tell.

    Args:
        workload: The jobs.
        cluster: The cluster.
        placement: Name of the placement rule.
    """
    frame = workload.frame
    shared = bool((frame["gpu_milli"] < 1000).any())
    if shared and max(group.gpus for group in cluster.nodes) > MOST_SHARED_GPUS:
        return None
    nodes = cluster.node_columns()
    del nodes["rack"]
    speeds = np.array([gpu_type.speed for gpu_type in cluster.gpu_types])
    spec = _core.ClusterSpec(**nodes, type_speed=speeds, track_gpus=shared)
    one = np.ones(len(workload), dtype=np.int64)
    jobs = _core.JobTable(
        spec, submit_us=one - 1, duration_us=one, estimate_us=one, **_demands(frame, cluster)
    )
    return _core.never_placeable(spec, jobs, placement)


def _demands(frame: pl.DataFrame, cluster: Cluster) -> dict[str, Any]:
    """What a job asks of nodes, as the core takes it."""
    columns: dict[str, Any] = {
        "gpus": frame["gpus"].to_numpy(),
        "gpu_milli": frame["gpu_milli"].to_numpy(),
        "cpus": frame["cpus"].cast(pl.Int64).to_numpy(),
        "memory_mib": frame["memory_mib"].to_numpy(),
    }
    if cluster.owners:
        owners = {name: index for index, name in enumerate(cluster.owners, start=1)}
        queue = frame["group"].replace_strict(owners, default=0, return_dtype=pl.Int32)
        columns["queue"] = queue.to_numpy()
    if frame["gpu_types"].null_count() < frame.height:
        joined = frame["gpu_types"].list.join("|")
        lists = joined.drop_nulls().unique().sort().to_list()
        known = {gpu_type.name: index for index, gpu_type in enumerate(cluster.gpu_types)}
        sets = [[known[name] for name in text.split("|") if name in known] or [-1] for text in lists]
        numbers = {text: index for index, text in enumerate(lists)}
        type_set = joined.replace_strict(numbers, default=-1, return_dtype=pl.Int32).fill_null(-1)
        columns |= {"type_set": type_set.to_numpy(), "type_sets": sets}
    return columns
