"""Clusters with another number of nodes."""

import pytest

from gpuyard.cluster.model import Cluster, parse_cluster
from gpuyard.cluster.scaling import scale_cluster
from gpuyard.errors import InputError

PARTED = Cluster.model_validate(
    {
        "name": "box",
        "nodes": [{"names": "gn[1-4]", "gpus": 8}, {"names": "big1", "gpus": 16}],
        "partitions": [{"name": "batch", "default": True}, {"name": "short", "nodes": "gn[3-4],big1"}],
        "qos": [{"name": "high", "priority": 5}],
    }
)


def test_every_group_has_so_many_times_the_nodes_and_at_least_one() -> None:
    assert [group.count for group in scale_cluster(parse_cluster("10x8,1x4"), 0.8).nodes] == [8, 1]
    assert [group.count for group in scale_cluster(parse_cluster("10x8,1x4"), 1.5).nodes] == [15, 2]
    assert scale_cluster(PARTED, 1.05) is PARTED


def test_partitions_and_qos_stay() -> None:
    larger = scale_cluster(PARTED, 1.5)
    assert (larger.node_count, larger.total_gpus, larger.qos) == (8, 80, PARTED.qos)
    batch, short = (larger.partition_nodes(one).tolist() for one in larger.partitions)
    assert batch == list(range(8))
    assert short == [2, 3, 6, 7]  # gn5 and gn6 are as gn1 and gn2, big2 is as big1
    smaller = scale_cluster(PARTED, 0.75)
    assert smaller.partition_nodes(smaller.partitions[1]).tolist() == [2, 3]
    assert Cluster.model_validate(smaller.model_dump()) == smaller


def test_a_partition_without_nodes_and_a_factor_of_nothing_are_refused() -> None:
    nodes = [{"names": "gn[1-4]", "gpus": 8}]
    parted = {"nodes": nodes, "partitions": [{"name": "last", "nodes": "gn4"}]}
    with pytest.raises(InputError, match="partition last has none left"):
        scale_cluster(Cluster.model_validate(parted), 0.5)
    with pytest.raises(InputError, match="factor 0"):
        scale_cluster(PARTED, 0.0)
