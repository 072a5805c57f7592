"""Clusters from LSF's lists of hosts and from Kubernetes' nodes."""

import json
from pathlib import Path

import pytest

from gpuyard.cluster.imports.recognise import import_cluster
from gpuyard.errors import InputError
from support.paths import ROOT

DATA = ROOT / "tests" / "data"
LSF = DATA / "lsf-hosts"
KUBERNETES = DATA / "kubernetes" / "nodes.json"


def imported(*paths):
    return import_cluster({path: path.read_text() for path in paths})


def nodes(result):
    return [(g.names, g.gpus, g.type, g.cpus, g.memory_mib) for g in result.cluster.nodes]


def test_hosts_of_lsf_have_their_cpus_memory_and_gpus():
    result = imported(LSF / "lshosts.txt", LSF / "lshosts-gpu.txt")
    assert nodes(result) == [
        ("host[01-02]", 4, "TeslaV100_SXM2_", 64, 515584),
        ("host03", 0, "cpu", 32, 128000),
    ]
    assert "left out, without GPUs and CPUs: login" in result.notes


def test_job_slots_count_as_cpus_where_only_bhosts_is_given():
    result = imported(LSF / "bhosts.txt", LSF / "bhosts-gpu.txt")
    assert [(names, gpus, cpus) for names, gpus, _, cpus, _ in nodes(result)] == [
        ("host01", 2, 64),
        ("host02", 0, 64),
        ("host03", 0, 32),
    ]
    assert "down or drained now, and counted: host03" in result.notes


def test_both_lists_of_lsf_go_together_in_any_order():
    first = imported(LSF / "bhosts.txt", LSF / "lshosts.txt", LSF / "lshosts-gpu.txt")
    second = imported(LSF / "lshosts-gpu.txt", LSF / "lshosts.txt", LSF / "bhosts.txt")
    assert sorted(map(str, nodes(first))) == sorted(map(str, nodes(second)))


def test_a_cut_off_line_of_lsf_is_refused_with_its_number():
    with pytest.raises(InputError, match=r"hosts, line 2: has 3 columns, expected 9"):
        import_cluster({Path("hosts"): "HOST_NAME STATUS JL/U MAX NJOBS RUN SSUSP USUSP RSV\nhost01 ok 4"})


def test_nodes_of_kubernetes_have_what_pods_can_use():
    result = imported(KUBERNETES)
    assert nodes(result) == [
        ("gpu-a,gpu-b", 8, "NVIDIA-A100-SXM4-80GB", 63, 257379),
        ("gpu-m", 4, "NVIDIA-A100-SXM4-80GB-3g.40gb", 64, 262144),
        ("cpu-a", 0, "cpu", 32, 131072),
    ]
    figures = {one.name: one.peak_w for one in result.cluster.gpu_types}
    assert figures["NVIDIA-A100-SXM4-80GB"] == 400  # a well-known model under the vendor's name


def test_what_to_know_of_kubernetes_nodes_is_said():
    notes = imported(KUBERNETES).notes
    assert "left out, as they take no pods (control plane): master-0" in notes
    assert "down or drained now, and counted: gpu-b, cpu-a" in notes
    assert "slices of GPUs (MIG) count as whole GPUs: gpu-m" in notes


def test_a_quantity_that_cannot_be_read_is_refused_with_its_node():
    text = KUBERNETES.read_text().replace("63500m", "plenty")
    with pytest.raises(InputError, match="node gpu-a: cannot read the quantity 'plenty'"):
        import_cluster({KUBERNETES: text})


def test_one_node_of_kubernetes_is_a_list_too():
    item = json.loads(KUBERNETES.read_text())["items"][1]
    assert import_cluster({KUBERNETES: json.dumps(item)}).cluster.total_gpus == 8


@pytest.mark.parametrize("text", ["a,b\n1,2\n", "hello", '{"items": [{"kind": "Pod"}]}', "[1]"])
def test_other_files_are_refused_with_the_list_of_what_is_read(text):
    with pytest.raises(
        InputError, match=r"Read are slurm\.conf and gres\.conf; .* kubectl get nodes -o json"
    ):
        import_cluster({Path("some.txt"): text})


def test_two_descriptions_of_the_same_nodes_are_refused():
    conf = DATA / "slurm-conf" / "slurm.conf"
    text = "NodeName=a CPUTot=4 State=IDLE"
    with pytest.raises(InputError, match=r"nodes\.txt: .*slurm\.conf describes the nodes already"):
        import_cluster({conf: conf.read_text(), Path("nodes.txt"): text})
