"""slurm.conf and gres.conf become a cluster; every key is accounted for, and every error has its line."""

from pathlib import Path

import pytest

from gpuyard import cli
from gpuyard.cluster.imports.recognise import import_cluster
from gpuyard.cluster.model import Cluster
from gpuyard.errors import InputError
from gpuyard.policies.policy_file import read_policy_file
from support.paths import ROOT

SAMPLE = ROOT / "tests" / "data" / "slurm-conf"
NODES = "ClusterName=a\nNodeName=n[1-4] CPUs=8 Gres=gpu:2\n"


def imported(*names):
    return import_cluster({SAMPLE / name: (SAMPLE / name).read_text() for name in names})


def of_text(tmp_path: Path, text: str, **others: str):
    path = tmp_path / "slurm.conf"
    path.write_bytes(text.encode())
    for name, content in others.items():
        (tmp_path / f"{name}.conf").write_text(content)
    return import_cluster({path: text})


def found(result, status):
    return {one.key: one for one in result.findings if one.status == status}


def test_nodes_have_their_names_sizes_and_types():
    cluster = imported("slurm.conf", "gres.conf").cluster
    assert cluster.name == "alpha"
    assert [(g.names, g.gpus, g.type, g.cpus, g.memory_mib) for g in cluster.nodes] == [
        ("gn[001-003,005]", 8, "a100", 64, 512000),
        ("gn[010-011]", 4, "v100", 48, 256000),  # the type is that of gres.conf
        ("cn[1-2]", 0, "cpu", 64, 512000),
    ]


def test_partitions_overlap_and_have_their_limits():
    cluster = imported("slurm.conf").cluster
    batch, short, everything = cluster.partitions
    assert (batch.default, batch.nodes, batch.max_time_s) == (True, "gn[001-003,005,010-011]", 2 * 86400)
    assert (short.nodes, short.max_time_s, short.max_nodes) == ("gn[001-003,005],cn1", 90 * 60, 2)
    assert (short.priority_tier, batch.priority_job_factor) == (10, 10)
    assert (everything.nodes, everything.max_time_s) == ("all", None)


def test_the_cluster_reads_back_from_its_file(tmp_path):
    cluster = imported("slurm.conf", "gres.conf", "qos.txt").cluster
    path = tmp_path / "cluster.toml"
    path.write_text(cluster.to_toml())
    assert Cluster.from_toml(path) == cluster


def test_no_key_is_ignored_silently():
    result = imported("slurm.conf", "gres.conf")
    assert found(result, "unknown").keys() == {"FancyNewKey", "SchedulerParameters.bf_magic"}
    not_modelled = found(result, "not-modelled")
    assert {"TopologyPlugin", "NodeName.Weight", "NodeName.Feature", "PartitionName.OverSubscribe"} <= {
        *not_modelled
    }
    assert {"SchedulerParameters.bf_continue", "PriorityFlags.max_tres"} <= {*not_modelled}
    assert not_modelled["PartitionName.State"].remark == "jobs of this partition run here nevertheless"
    assert not_modelled["NodeName.Weight"].where == f"{SAMPLE / 'parts' / 'nodes.conf'}:3"
    assert {"SlurmctldHost", "AuthType", "PreemptType"} <= {*found(result, "no-effect")}
    lines = (SAMPLE / "slurm.conf").read_text().splitlines()
    stated = {line.partition("=")[0] for line in lines if "=" in line and not line.startswith(("#", "bf_"))}
    assert stated <= {one.key for one in result.findings}


def test_nodes_that_do_not_exist_yet_are_left_out_and_named():
    assert (
        "left out, as their state is FUTURE: 9 nodes (fut1, fut2, fut3 ...)" in imported("slurm.conf").notes
    )


@pytest.mark.parametrize(
    ("line", "cpus"),
    [
        ("NodeName=a CPUs=10 Sockets=2", 10),
        ("NodeName=a Procs=12", 12),
        ("NodeName=a Sockets=2 CoresPerSocket=16 ThreadsPerCore=2", 64),
        ("NodeName=a Boards=2 SocketsPerBoard=2 CoresPerSocket=4", 16),
        ("nodename = a  cpus = 6", 6),
    ],
)
def test_cpus_are_stated_or_follow_from_sockets(tmp_path, line, cpus):
    assert of_text(tmp_path, f"ClusterName=x\n{line}\n").cluster.nodes[0].cpus == cpus


def test_memory_that_slurm_does_not_count_is_left_out(tmp_path):
    text = "SelectTypeParameters=CR_Core\nNodeName=a CPUs=4 RealMemory=1000\n"
    result = of_text(tmp_path, text)
    assert result.cluster.nodes[0].memory_mib is None
    assert any("memory is not counted" in one.remark for one in result.findings)


def test_defaults_hold_for_the_lines_after_them_and_add_up(tmp_path):
    text = (
        "NodeName=DEFAULT CPUs=4\nNodeName=a\nNodeName=DEFAULT RealMemory=500\nNodeName=b\n"
        "PartitionName=DEFAULT MaxTime=10 Nodes=ALL\nPartitionName=p\n"
        "PartitionName=q Nodes=a MaxTime=INFINITE\n"
    )
    cluster = of_text(tmp_path, text).cluster
    assert [(g.names, g.cpus, g.memory_mib) for g in cluster.nodes] == [("a", 4, None), ("b", 4, 500)]
    assert [(p.nodes, p.max_time_s) for p in cluster.partitions] == [("all", 600), ("a", None)]


def test_carriage_returns_comments_quotes_and_continued_lines_are_read(tmp_path):
    text = '# x\r\nClusterName="my" # y\r\nNodeName=a,\\\r\nb CPUs=2 \\\r\n Gres=gpu:1\r\n'
    result = of_text(tmp_path, text)
    assert result.cluster.name == "my"
    assert [(g.names, g.gpus) for g in result.cluster.nodes] == [("a,b", 1)]


def test_gpus_of_gres_conf_count_where_slurm_conf_states_none(tmp_path):
    gres = "NodeName=n[1-2] Name=gpu Type=h100 Count=4\nName=gpu Type=t4 File=/dev/nvidia[0-1]\n"
    (tmp_path / "gres.conf").write_text(gres)
    conf = "ClusterName=x\nNodeName=n[1-3] CPUs=8\nNodeName=m CPUs=8 Gres=gpu:2\n"
    result = import_cluster({tmp_path / "slurm.conf": conf, tmp_path / "gres.conf": gres})
    assert [(g.names, g.gpus, g.type) for g in result.cluster.nodes] == [
        ("n[1-2]", 4, "h100"),
        ("n3", 0, "cpu"),
        ("m", 2, "t4"),
    ]


BAD = {
    "PartitionName=p Nodes=n[3-5]": r"slurm\.conf, line 3: partition p has node n5, which no NodeName line",
    "NodeName=m[4-1] CPUs=1": r"slurm\.conf, line 3: NodeName: cannot read the range 'm\[4-1\]'",
    "PartitionName=p Nodes=n[1-": r"slurm\.conf, line 3: partition p: cannot read the range",
    "NodeName=n3 CPUs=1": r"line 3: node n3 was described before \(.*slurm\.conf:2\)",
    "PartitionName=p Nodes=ALL\nPartitionName=p": "line 4: partition p was described before",
    "PartitionName=p Nodes=ALL MaxTime=soon": "line 3: partition p: maxtime: cannot read the time 'soon'",
    "NodeName=m CPUs=many": "line 3: cannot read 'many'; expected a whole number",
    "this is no statement": "line 3: cannot read 'this is no statement'",
    "Include nowhere.conf": r"line 3: included file .*nowhere\.conf: cannot be read \(No such file",
    "Include a\0b": "line 3: includes a file whose name holds a zero byte",
    "PriorityWeightAge=much": "line 3: priorityweightage: cannot read 'much'",
    "SchedulerParameters=bf_window=long": "line 3: SchedulerParameters: bf_window: cannot read 'long'",
    "PartitionName=p Nodes=n1 Default=YES\nPartitionName=q Nodes=n1 Default=YES": "are both the default",
}


@pytest.mark.parametrize("text", BAD)
def test_errors_name_the_file_and_the_line(tmp_path, text):
    with pytest.raises(InputError, match=BAD[text]):
        of_text(tmp_path, f"{NODES}{text}\n")


def test_a_configuration_without_nodes_is_refused(tmp_path):
    with pytest.raises(InputError, match="lists no node"):
        of_text(tmp_path, "ClusterName=x\n")


def test_files_that_include_each_other_are_refused(tmp_path):
    with pytest.raises(
        InputError, match=r"more\.conf, line 1: includes slurm\.conf, which includes this file again"
    ):
        of_text(tmp_path, f"{NODES}Include more.conf\n", more="Include slurm.conf\n")


def test_an_error_in_an_included_file_names_that_file(tmp_path):
    with pytest.raises(InputError, match=r"more\.conf, line 2: partition p has node x"):
        of_text(tmp_path, f"{NODES}Include more.conf\n", more="\nPartitionName=p Nodes=n1,x\n")


def test_limits_of_qoses_are_read_and_a_partition_takes_those_of_its_own():
    result = imported("slurm.conf", "qos.txt")
    high = next(one for one in result.cluster.qos if one.name == "high")
    assert (high.priority, high.max_time_s, high.max_gpus, high.max_gpus_per_job) == (100, 86400, 24, 16)
    assert (high.max_gpus_per_user, high.max_jobs_per_user, high.max_gpus_per_group) == (8, 4, 20)
    short = result.cluster.partitions[1]
    assert (short.max_time_s, short.max_gpus_per_user, short.max_jobs_per_user) == (1800, 2, 3)
    assert {"QOS high.maxtres.cpu", "QOS high.preempt", "QOS high.flags"} <= {*found(result, "not-modelled")}


def test_a_qos_that_a_partition_names_and_nobody_describes_is_noted():
    assert any("part-short (of short)" in note for note in imported("slurm.conf").notes)


def test_shares_of_accounts_and_users_become_settings_where_they_are_simple():
    result = imported("slurm.conf", "assoc.txt")
    assert result.settings["group_shares"] == {"vision": 40.0, "speech": 20.0}
    assert result.settings["user_shares"] == {"ada": 3.0}
    assert {"share of bo", "share of speech/cleo"} <= {*found(result, "not-modelled")}


def test_tables_of_qoses_alone_are_no_cluster():
    with pytest.raises(InputError, match="says nothing of nodes"):
        imported("qos.txt")


def test_the_command_writes_the_cluster_and_the_policy_and_lists_every_key(tmp_path, capfd):
    cluster, policy = tmp_path / "cluster.toml", tmp_path / "policy.toml"
    files = [str(SAMPLE / name) for name in ("slurm.conf", "gres.conf", "qos.txt", "assoc.txt")]
    out = ["--out", str(cluster), "--policy-out", str(policy)]
    assert cli.main(["cluster", "import", *files, *out]) == cli.DONE
    printed = capfd.readouterr().out
    assert "FancyNewKey" in printed
    assert "slurm.conf:31" in printed
    assert "AuthType (line 4)" in printed
    assert Cluster.from_toml(cluster).total_gpus == 40
    assert read_policy_file(policy).settings["age_weight"] == 1000


def test_only_slurm_conf_has_a_policy(tmp_path, capfd):
    nodes = tmp_path / "nodes.txt"
    nodes.write_text("NodeName=a CPUTot=4 State=IDLE")
    out = ["--out", str(tmp_path / "c.toml"), "--policy-out", str(tmp_path / "p.toml")]
    assert cli.main(["cluster", "import", str(nodes), *out]) == cli.BAD_INPUT
    assert "only slurm.conf says what the policy is" in capfd.readouterr().err
    assert not (tmp_path / "c.toml").exists()
