"""Clusters: nodes, GPU types, partitions and presets. It imports no other folder."""

from gpuyard.cluster.model import Cluster, GpuType, NodeGroup, parse_cluster

__all__ = ["Cluster", "GpuType", "NodeGroup", "parse_cluster"]
