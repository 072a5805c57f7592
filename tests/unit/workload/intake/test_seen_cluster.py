"""The cluster that a log shows: per node the most in use at once, nodes of one name taken as alike."""

from pathlib import Path

import polars as pl
import pytest

from gpuyard import cli
from gpuyard.cluster.model import Cluster, NodeGroup
from gpuyard.errors import InputError
from gpuyard.workload.intake.seen_cluster import SeenCluster, seen_cluster
from gpuyard.workload.schema import make_workload
from support.slurm_shapes import delimited, rows

LOG = Path("sacct.txt")


def seen(*jobs: tuple[float, float, int, str | None], cpus: int = 4, **columns: object) -> SeenCluster:
    """Of jobs given by start, duration, GPUs and nodes."""
    start_s, duration_s, gpus, nodes = zip(*jobs, strict=True)
    frame = pl.DataFrame(
        {"submit_s": [0.0] * len(jobs), "recorded_start_s": start_s, "duration_s": duration_s, "gpus": gpus,
         "recorded_nodes": nodes, "cpus": [cpus] * len(jobs), **columns}
    )  # fmt: skip
    return seen_cluster(make_workload(frame), LOG)


def sizes(found: SeenCluster) -> list[tuple[int, int, int | None]]:
    return [(group.count, group.gpus, group.cpus) for group in found.cluster.nodes]


def test_jobs_that_ran_together_add_up_and_those_that_followed_each_other_do_not():
    assert sizes(seen((0, 10, 2, "gn1"), (5, 10, 4, "gn1"))) == [(1, 6, 8)]
    assert sizes(seen((0, 10, 2, "gn1"), (10, 10, 4, "gn1"))) == [(1, 4, 4)]


def test_a_gang_is_divided_among_its_nodes():
    assert sizes(seen((0, 10, 8, "gn1|gn2"), cpus=16)) == [(2, 4, 8)]
    assert sizes(seen((0, 10, 7, "gn1|gn2"), cpus=16)) == [(2, 4, 8)]


def test_nodes_of_one_name_are_alike_if_half_of_them_were_seen_so():
    assert sizes(seen((0, 9, 8, "gn1"), (0, 9, 1, "gn2"))) == [(2, 8, 4)]
    assert sizes(seen((0, 9, 8, "gn1"), (0, 9, 1, "gn2"), (0, 9, 2, "gn3"))) == [
        (1, 1, 4),
        (1, 2, 4),
        (1, 8, 4),
    ]


def test_nodes_of_other_names_are_groups_of_their_own_and_those_without_gpus_have_cpus():
    found = seen((0, 9, 8, "a100-1"), (0, 9, 2, "t4-1"), (0, 9, 0, "cpu1"), (0, 9, 0, "cpu2"), cpus=16)
    assert sizes(found) == [(1, 8, 16), (2, 0, 16), (1, 2, 16)]
    assert [group.type for group in found.cluster.nodes] == ["gpu", "cpu", "gpu"]


def test_types_are_those_of_the_jobs_and_of_other_nodes_of_the_name():
    found = seen((0, 9, 8, "gn1"), (0, 9, 8, "gn2"), gpu_types=[["a100"], None])
    assert [(group.count, group.type) for group in found.cluster.nodes] == [(2, "a100")]


def test_the_notes_say_what_it_rests_on():
    found = seen((0, 9, 8, "gn1"), (0, 9, 1, "gn2"), (0, 9, 1, None), (0, 9, 1, None))
    assert "50 % of the jobs: 2 nodes, 16 GPUs. This is a lower bound" in found.notes[0]
    assert found.notes[1] == "gn#: 2 nodes of 8 GPUs, seen in use on 1 of them; 2 jobs."


def test_a_log_without_nodes_is_refused_with_both_ways_out():
    frame = pl.DataFrame({"submit_s": [0.0], "duration_s": [1.0], "gpus": [1]})
    with pytest.raises(InputError, match=r"NodeList and AllocTRES.*gpuyard cluster import"):
        seen_cluster(make_workload(frame), LOG)


def test_the_command_writes_it_with_its_notes(tmp_path, capfd):
    log, cluster = tmp_path / "sacct.txt", tmp_path / "c.toml"
    log.write_text(delimited(rows()))
    out = ["--out", str(tmp_path / "jobs.parquet"), "--cluster-out", str(cluster)]
    assert cli.main(["workload", "import", str(log), *out]) == cli.DONE
    assert "Cluster: Derived from the nodes of 100 % of the jobs" in capfd.readouterr().out
    assert cluster.read_text().startswith("# Derived from")
    # gn1 had 2 + 4 GPUs in use at once, gn2 1 + 1, gn3 4 and gn4 1: each stands for itself.
    assert Cluster.from_toml(cluster).nodes == (
        NodeGroup(count=2, gpus=0, cpus=4, memory_mib=2048),
        NodeGroup(count=1, gpus=1, cpus=4, memory_mib=2048),
        NodeGroup(count=1, gpus=2, cpus=8, memory_mib=4096),
        NodeGroup(count=1, gpus=4, cpus=8, memory_mib=4096),
        NodeGroup(count=1, gpus=6, cpus=16, memory_mib=8192),
    )
