"""Clusters from Slurm's lists of nodes: scontrol show node, sinfo -N, JSON of old and new versions."""

import json
from pathlib import Path

import pytest

from gpuyard import cli
from gpuyard.cluster.imports.recognise import import_cluster
from gpuyard.cluster.model import Cluster
from gpuyard.errors import InputError

SCONTROL = """\
NodeName=gn1 Arch=x86_64 CoresPerSocket=8
   CPUAlloc=0 CPUTot=16 CPULoad=0.10
   Gres=gpu:a100:8(S:0-1)
   NodeAddr=gn1 NodeHostName=gn1 Version=22.05.8
   OS=Linux 5.10 #1 SMP
   RealMemory=64000 AllocMem=0 FreeMem=1000
   State=IDLE ThreadsPerCore=1
   CfgTRES=cpu=16,mem=64000M,gres/gpu=8

NodeName=gn2 CPUTot=16 Gres=gpu:a100:8(S:0-1) RealMemory=64000 State=MIXED

NodeName=cn1 CPUTot=64 Gres=(null) RealMemory=128000 State=DOWN*+DRAIN
   CfgTRES=cpu=64,mem=128000M
"""
SINFO = """\
NODELIST GRES CPUS MEMORY STATE
gn1 gpu:a100:8(S:0-1) 16 64000 idle
gn1 gpu:a100:8(S:0-1) 16 64000 idle
gn2 gpu:a100:8(S:0-1) 16 64000+ mixed
cn1 (null) 64 128000 down*
"""
OLD = {"nodes": [
    {"name": name, "gres": gres, "cpus": cpus, "real_memory": memory, "state": state, "state_flags": flags}
    for name, gres, cpus, memory, state, flags in (
        ("gn1", "gpu:a100:8(S:0-1)", 16, 64000, "idle", []),
        ("gn2", "gpu:a100:8(S:0-1)", 16, 64000, "mixed", []),
        ("cn1", "", 64, 128000, "down", ["DRAIN"]),
    )
]}  # fmt: skip
NEW = {
    "nodes": [
        {**node, "state": [node["state"].upper(), *node["state_flags"]], "state_flags": None}
        for node in OLD["nodes"]
    ]
}
LISTS = {
    "scontrol": SCONTROL,
    "scontrol -o": "\n".join(" ".join(block.split()) for block in SCONTROL.split("\n\n")),
    "sinfo -N": SINFO,
    "JSON of 22.05": json.dumps(OLD),
    "JSON of 24.11": json.dumps(NEW),
}


def slurm_cluster(*texts: str) -> tuple[Cluster, tuple[str, ...]]:
    result = import_cluster({Path(f"box{i}.txt"): text for i, text in enumerate(texts)})
    return result.cluster, result.notes


def nodes(cluster: Cluster) -> list[tuple[object, ...]]:
    return [(g.count, g.gpus, g.type, g.cpus, g.memory_mib) for g in cluster.nodes]


@pytest.mark.parametrize("form", LISTS)
def test_every_list_gives_the_same_cluster(form):
    cluster, notes = slurm_cluster(LISTS[form])
    assert nodes(cluster) == [(2, 8, "a100", 16, 64000), (1, 0, "cpu", 64, 128000)]
    assert notes == ("3 nodes, 16 GPUs", "down or drained now, and counted: cn1")


@pytest.mark.parametrize(
    ("gres", "kind", "gpus"),
    [
        ("gpu:4", "gpu", 4),
        ("gpu:gaudi:4(S:0),nvme:1", "gaudi", 4),
        ("gres:gpu:v100:2", "v100", 2),
        ("gpu:a100:6,gpu:t4:2", "a100", 8),
        ("lustre:1,gpu:h100:8(S:0-1)", "h100", 8),
    ],
)
def test_gpus_and_types_are_read_from_gres(gres, kind, gpus):
    text = f"NodeName=a CPUTot=8 RealMemory=100 Gres={gres} State=IDLE"
    assert nodes(slurm_cluster(text)[0]) == [(1, gpus, kind, 8, 100)]


def test_several_types_and_slices_are_named():
    text = "NodeName=a CPUTot=8 Gres=gpu:a100_3g.20gb:2,gpu:t4:1 State=IDLE"
    notes = slurm_cluster(text)[1]
    assert [note.split(",")[0].split(":")[0] for note in notes[1:]] == [
        "GPUs of several types",
        "slices of GPUs (MIG) count as whole GPUs",
    ]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "submit_s,duration_s\n",
            r"line 1: is no list of nodes that is known\. Read are slurm\.conf and gres\.conf; Slurm's",
        ),
        ('{"sinfo": []}', "groups nodes .* run scontrol show nodes --json"),
        ('{"jobs": []}', "has no list of nodes"),
        ("{", "cannot be read as JSON"),
        ('{"nodes": []}', "lists no node"),
        ("NODELIST GRES CPUS\ngn1 gpu:8\n", "line 2: has 2 columns, expected 3"),
        ("NodeName=a State=IDLE", "none of its 1 nodes states GPUs or CPUs"),
    ],
)
def test_other_texts_are_refused_with_what_to_do(text, message):
    with pytest.raises(InputError, match=message):
        slurm_cluster(text)


def test_the_command_writes_a_cluster_that_reads_back(tmp_path, capfd):
    path, out = tmp_path / "scontrol.txt", tmp_path / "cluster.toml"
    path.write_text(SCONTROL)
    assert cli.main(["cluster", "import", str(path), "--out", str(out)]) == cli.DONE
    assert "3 nodes, 16 GPUs" in capfd.readouterr().out
    assert Cluster.from_toml(out) == import_cluster({path: SCONTROL}).cluster


SHOWN = """\
PartitionName=batch
   AllowGroups=ALL AllowAccounts=ALL AllowQos=ALL
   AllocNodes=ALL Default=YES QoS=N/A
   DefaultTime=NONE DisableRootJobs=NO
   MaxNodes=UNLIMITED MaxTime=7-00:00:00 MinNodes=0
   Nodes=gn[1-2]
   PriorityJobFactor=1 PriorityTier=1 RootOnly=NO
   State=UP TotalCPUs=32 TotalNodes=2

PartitionName=debug
   Default=NO QoS=quick MaxNodes=1 MaxTime=00:30:00
   Nodes=gn1,cn1 PriorityJobFactor=5 PriorityTier=7 State=UP TotalNodes=2
"""


def test_nodes_keep_their_names():
    cluster, _ = slurm_cluster(SCONTROL)
    assert [group.names for group in cluster.nodes] == ["gn[1-2]", "cn1"]


@pytest.mark.parametrize(
    "text",
    [
        "NodeName=a CPUTot=8 Partitions=batch,debug\n\nNodeName=b CPUTot=8 Partitions=batch",
        "NODELIST PARTITION CPUS\na batch* 8\na debug 8\nb batch* 8",
        json.dumps({"nodes": [
            {"name": "a", "cpus": 8, "partitions": ["batch", "debug"]},
            {"name": "b", "cpus": 8, "partitions": ["batch"]},
        ]}),
    ],
)  # fmt: skip
def test_partitions_that_nodes_are_listed_in_are_kept(text):
    cluster, notes = slurm_cluster(text)
    assert [(one.name, one.nodes) for one in cluster.partitions] == [("batch", "all"), ("debug", "a")]
    marked = "batch*" in text
    assert cluster.partitions[0].default is marked
    assert any("add the output of scontrol show partition" in note for note in notes) is not marked


@pytest.mark.parametrize("text", [SHOWN, "\n".join(" ".join(one.split()) for one in SHOWN.split("\n\n"))])
def test_shown_partitions_bring_limits_and_the_default(text):
    batch, debug = slurm_cluster(SCONTROL, text)[0].partitions
    assert (batch.nodes, batch.default, batch.max_time_s, batch.max_nodes) == ("gn[1-2]", True, 604800, None)
    assert (debug.nodes, debug.default, debug.max_time_s, debug.max_nodes) == ("gn1,cn1", False, 1800, 1)
    assert (debug.priority_tier, debug.priority_job_factor) == (7, 5)


def test_a_shown_partition_with_unknown_nodes_is_refused_with_its_line():
    with pytest.raises(InputError, match=r"box1\.txt, line 10: partition debug has node xx"):
        slurm_cluster(SCONTROL, SHOWN.replace("gn1,cn1", "xx"))


def test_shown_partitions_alone_are_no_cluster():
    with pytest.raises(InputError, match="says nothing of nodes"):
        slurm_cluster(SHOWN)
