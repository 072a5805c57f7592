"""The cluster of a live state, as policies see it."""

from functools import lru_cache
from typing import Any

from gpuyard.cluster.model import KNOWN_GPU_TYPES, Cluster, parse_cluster
from gpuyard.errors import InputError
from gpuyard.serve.state import ClusterState, Partition


def live_cluster(state: ClusterState) -> Cluster:
    """The nodes and partitions of a state, in the order of the state."""
    return _cluster_of(
        tuple((node.name, node.gpus, node.gpu_type, node.cpus, node.memory_mib) for node in state.nodes),
        _distinct(state),
    )


def known_cluster(text: str, state: ClusterState) -> Cluster:
    """A cluster that its operator describes, if it has the nodes of the state, in their order.

    Raises:
        InputError: naming the first node that differs.
    """
    cluster = parse_cluster(text)
    columns = cluster.node_columns()
    described = list(zip(cluster.node_names, columns["gpus"].tolist(), strict=True))
    for number, node in enumerate(state.nodes):
        there = described[number] if number < len(described) else ("none", 0)
        if there != (node.name, node.gpus):
            raise InputError(
                f"cluster {text}: its node {number} is {there[0] or 'without a name'} with {there[1]} GPUs, "
                f"but the scheduler has {node.name} with {node.gpus} there; import the cluster again"
            )
    if len(described) > len(state.nodes):
        raise InputError(f"cluster {text}: the scheduler has no node {described[len(state.nodes)][0]}")
    return cluster


def _distinct(state: ClusterState) -> tuple[Partition, ...]:
    """Partitions, if they tell jobs apart: none if all are of all nodes, without limits, in one tier."""
    everywhere = len(state.nodes)
    plain = all(
        len(set(one.nodes)) == everywhere and one.max_time_s is None and one.max_nodes is None
        for one in state.partitions
    )
    return () if plain and len({one.tier for one in state.partitions}) < 2 else state.partitions


@lru_cache(maxsize=8)
def _cluster_of(
    nodes: tuple[tuple[str, int, str, int, int], ...], partitions: tuple[Partition, ...]
) -> Cluster:
    if not nodes:
        raise InputError("the scheduler lists no nodes")
    groups: list[dict[str, Any]] = []
    for name, gpus, gpu_type, cpus, memory_mib in nodes:
        alike = {
            "gpus": gpus,
            "type": gpu_type if gpus else "cpu",
            "cpus": max(1, cpus),
            "memory_mib": max(1, memory_mib),
        }
        if groups and all(groups[-1][key] == value for key, value in alike.items()):
            groups[-1]["names"] += f",{name}"
        else:
            groups.append({"names": name, **alike})
    types = {str(group["type"]) for group in groups} - set(KNOWN_GPU_TYPES)
    return Cluster.model_validate(
        {
            "name": "live",
            "gpu_types": [{"name": name} for name in sorted(types)],
            "nodes": groups,
            "partitions": [
                {
                    "name": one.name,
                    "nodes": ",".join(one.nodes),
                    "default": one.default,
                    "priority_tier": one.tier,
                    "max_time_s": one.max_time_s,
                    "max_nodes": one.max_nodes,
                }
                for one in partitions
                if one.nodes
            ],
        }
    )
