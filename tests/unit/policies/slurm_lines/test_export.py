"""Rules as lines of slurm.conf: they are read back as they are, and what has no counterpart is refused."""

import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

import polars as pl
import pytest

from gpuyard.cluster.model import Cluster, Partition, Qos, parse_cluster
from gpuyard.config import SimulationConfig
from gpuyard.errors import InputError
from gpuyard.policies.grammar import parse_policy
from gpuyard.policies.heuristics import Order
from gpuyard.policies.policy_file import policy_file_text, read_policy_file
from gpuyard.policies.slurm_lines.export import EXPORTED, NEAREST, slurm_lines
from gpuyard.policies.slurm_lines.lines import SlurmLines
from gpuyard.policies.slurm_lines.reading import ReadLines, read_lines
from gpuyard.registry import registered
from gpuyard.simulation.find import find_policy
from gpuyard.workload import Workload, make_workload

CLUSTER = parse_cluster("4x8")
CONFIG = SimulationConfig()


def jobs(**columns: Sequence[object]) -> Workload:
    """Eight jobs that request 10 min to 80 min, on 1 to 8 GPUs."""
    minutes = [10, 20, 30, 40, 50, 60, 70, 80]
    usual: dict[str, Sequence[object]] = {
        "submit_s": [float(one) for one in range(8)],
        "duration_s": [60.0 * one / 2 for one in minutes],
        "estimate_s": [60.0 * one for one in minutes],
        "gpus": [8, 7, 6, 5, 4, 3, 2, 1],
        "priority": [0, 5, 0, 5, 9.5, 0, 0, 0],
    }
    return make_workload(pl.DataFrame(usual | columns, strict=False))


def exported(
    policy: str,
    workload: Workload | None = None,
    cluster: Cluster = CLUSTER,
    config: SimulationConfig = CONFIG,
    classes: int = 4,
) -> tuple[SlurmLines, ReadLines]:
    lines = slurm_lines(find_policy(policy), config, workload or jobs(), cluster, classes=classes)
    return lines, read_lines(lines.text(), cluster)


@pytest.mark.parametrize("backfill", ["strict", "greedy", "easy", "easy-sjf", "conservative", "slurm"])
@pytest.mark.parametrize("order", [name if name != "power" else "power:0.5" for name in EXPORTED])
def test_every_exported_rule_is_read_back_without_a_key_that_is_unknown(order: str, backfill: str) -> None:
    lines, read = exported(f"{order}+{backfill}")
    assert [one.key for one in read.findings if one.status == "unknown"] == []
    assert read.policy.order == ("fifo" if order == "fifo" else "multifactor")
    assert read.policy.backfill == ("strict" if backfill == "strict" else "slurm")
    assert lines.losses or order in ("fifo", "multifactor", "largest", "priority")


def test_every_order_is_exported_or_has_its_nearest_by_name() -> None:
    ours = {name for name, rule in registered("order").items() if isinstance(rule, Order)}
    assert ours == {*EXPORTED, *NEAREST}
    for nearest in filter(None, NEAREST.values()):
        assert parse_policy(nearest).order_name in EXPORTED


def test_multifactor_comes_back_with_the_same_settings(tmp_path: Path) -> None:
    settings = {
        "age_weight": 123.0,
        "fair_share_weight": 4567.0,
        "size_weight": 89.0,
        "partition_weight": 10.0,
        "qos_weight": 11.0,
        "gpu_weight": 12.0,
        "cpu_weight": 13.0,
        "memory_weight": 14.0,
        "priority_weight": 0.0,
        "max_age_s": 3 * 86400.0,
        "usage_half_life_s": 14 * 86400.0 + 3600.0,
        "priority_calc_s": 600.0,
        "favor_small": True,
        "fair_share": "classic",
        "bf_interval_s": 45.0,
        "bf_max_job_test": 321,
        "bf_max_job_part": 20,
        "bf_max_job_user": 10,
        "bf_window_s": 2 * 86400.0,
        "bf_resolution_s": 120.0,
        "user_shares": {"ada": 3.0},
        "group_shares": {"vision": 40.0},
    }
    path = tmp_path / "site.toml"
    path.write_text(policy_file_text("multifactor+slurm", settings))
    lines, read = exported(str(path))
    assert dict(read.policy.settings) == dict(read_policy_file(path).settings)
    assert read.policy.grammar == "multifactor+slurm/consolidate"
    assert lines.losses == ()


def test_weights_that_are_not_whole_keep_their_ratio_and_the_loss_is_told() -> None:
    config = CONFIG.model_copy(update={"age_weight": 0.5, "fair_share_weight": 0.25, "size_weight": 0.0})
    lines, read = exported("multifactor+slurm", config=config)
    assert (read.policy.settings["age_weight"], read.policy.settings["fair_share_weight"]) == (500.0, 250.0)
    assert any("whole numbers" in loss for loss in lines.losses)


def test_requests_make_classes_at_quantiles_and_shorter_ones_come_first() -> None:
    lines, read = exported("sjf+easy")
    found = {one.name: (one.max_time_s, one.priority_job_factor) for one in read.cluster.partitions}
    assert found == {
        "gpu-20m": (1200.0, 4),
        "gpu-40m": (2400.0, 3),
        "gpu-1h": (3600.0, 2),
        "gpu-rest": (None, 1),
    }
    routed = lines.routing.routed(jobs())
    assert routed.frame["partition"].to_list() == [
        *["gpu-20m"] * 2,
        *["gpu-40m"] * 2,
        *["gpu-1h"] * 2,
        *["gpu-rest"] * 2,
    ]


def test_the_longest_first_has_the_factors_of_classes_the_other_way_round() -> None:
    _, read = exported("ljf+easy")
    assert [one.priority_job_factor for one in read.cluster.partitions] == [1, 2, 3, 4]


def test_classes_by_area_go_by_gpus_too() -> None:
    lines, read = exported("saf+easy", classes=2)
    # areas in GPU-minutes are 80, 140, 180, 200, 200, 180, 140, 80: the median is 140
    assert lines.routing.classes is not None
    assert lines.routing.classes.bounds == (60.0 * 140,)
    first = lines.routing.routed(jobs()).frame["partition"] == "gpu-1"
    assert first.to_list() == [True, True, False, False, False, False, True, True]
    assert all(one.max_time_s is None for one in read.cluster.partitions)


def test_jobs_without_a_request_are_in_the_last_class() -> None:
    some = jobs(estimate_s=[None, 1200.0, 1800.0, 2400.0, 3000.0, 3600.0, 4200.0, 4800.0])
    lines, _ = exported("sjf+easy", some)
    assert lines.routing.routed(some).frame["partition"][0] == "gpu-rest"


def test_partitions_of_the_cluster_are_split_up_with_their_nodes_tier_and_limits() -> None:
    parts = (
        Partition(name="big", nodes="0-2", default=True, max_time_s=3000.0),
        Partition(name="small", nodes="3", priority_tier=2, max_nodes=1),
    )
    cluster = CLUSTER.model_copy(update={"partitions": parts})
    some = jobs(partition=["", "small", "big", "", "", "", "", ""])
    lines, read = exported("sjf+easy", some, cluster, classes=2)
    found = [(one.name, one.max_time_s, one.priority_tier, one.max_nodes) for one in read.cluster.partitions]
    assert found == [
        ("big-40m", 2400.0, 1, None),
        ("big-rest", 3000.0, 1, None),
        ("small-40m", 2400.0, 2, 1),
        ("small-rest", None, 2, 1),
    ]
    nodes = [read.cluster.partition_nodes(one).tolist() for one in read.cluster.partitions]
    assert nodes == [[0, 1, 2], [0, 1, 2], [3], [3]]
    assert lines.routing.routed(some).frame["partition"].to_list()[:4] == [
        *("big-40m", "small-40m", "big-40m", "big-40m")
    ]


def test_an_ageing_bound_is_an_age_weight_as_large_as_all_others() -> None:
    _, read = exported("sjf+easy+age:7200")
    settings = read.policy.settings
    assert settings["max_age_s"] == 7200.0
    assert settings["age_weight"] == settings["partition_weight"] == 4000.0


def test_an_express_lane_is_a_qos_of_long_jobs_that_the_largest_of_them_fits() -> None:
    lines, read = exported("fifo+easy+express:2400:0.5")
    # jobs above 40 min request 50 to 80 min: the median of log(r / T0) is about 0.485, of 32 GPUs 24 are left
    assert [(one.name, one.max_gpus) for one in read.cluster.qos] == [("long", 24)]
    routed = lines.routing.routed(jobs())
    assert routed.frame["qos"].to_list() == ["", "", "", "", "long", "long", "long", "long"]
    _, read = exported("fifo+easy+express:2400:2")
    assert read.cluster.qos[0].max_gpus == 4


def test_priorities_are_qoses_in_their_order() -> None:
    lines, read = exported("priority+easy")
    assert [(one.name, one.priority) for one in read.cluster.qos] == [
        ("priority0", 0),
        ("priority5", 1),
        ("priority9.5", 2),
    ]
    assert lines.routing.routed(jobs()).frame["qos"].to_list()[:5] == [
        *("priority0", "priority5", "priority0", "priority5", "priority9.5")
    ]


def test_the_window_covers_the_longest_request_except_under_greedy() -> None:
    long = jobs(estimate_s=[600.0] * 7 + [3.5 * 86400.0])
    assert exported("fifo+easy", long)[1].policy.settings["bf_window_s"] == 4 * 86400.0
    assert exported("fifo+greedy", long)[1].policy.settings["bf_window_s"] == 60.0


def test_a_window_that_is_stated_is_the_window() -> None:
    config = SimulationConfig(bf_window_s=14400.0)
    assert exported("fifo+easy", config=config)[1].policy.settings["bf_window_s"] == 14400.0


def test_the_interval_of_backfilling_is_the_setting_whatever_the_rule() -> None:
    config = CONFIG.model_copy(update={"bf_interval_s": 7.0, "bf_resolution_s": 30.0})
    for policy in ("sjf+easy", "fifo+greedy", "multifactor+conservative"):
        settings = exported(policy, config=config)[1].policy.settings
        assert (settings["bf_interval_s"], settings["bf_resolution_s"]) == (7.0, 30.0)


@pytest.mark.parametrize(
    ("policy", "said"),
    [
        ("lifo", "nothing that can be exported comes near"),
        ("wfp3+easy", r"largest\+easy\+age:86400"),
        (
            "tiresias+greedy",
            r"stops running jobs for better ones; the nearest that can be exported is saf\+easy",
        ),
        ("drf+easy", r"fair-share\+easy"),
        ("recorded", "no rule"),
        ("model:bursty-order", "is a network, and Slurm runs none"),
        ("priority+easy+express:600:0.1", "QOSes for priorities and for the lane"),
    ],
)
def test_what_slurm_has_nothing_for_is_refused_with_what_to_export(policy: str, said: str) -> None:
    with pytest.raises(InputError, match=said):
        exported(policy)


def test_a_log_without_requests_makes_no_classes() -> None:
    with pytest.raises(InputError, match="no job of the log requests a run time"):
        exported("sjf+easy", jobs(estimate_s=[None] * 8))


def test_limits_that_classes_or_qoses_would_break_are_refused() -> None:
    limited = (Partition(name="a", default=True, max_gpus_per_user=4),)
    with pytest.raises(InputError, match="partition a limits GPUs or jobs"):
        exported("sjf+easy", cluster=CLUSTER.model_copy(update={"partitions": limited}))
    with pytest.raises(InputError, match="jobs would lose those of"):
        exported("priority+easy", cluster=CLUSTER.model_copy(update={"qos": (Qos(name="x"),)}))


@pytest.mark.parametrize("policy", ["saf+easy", "priority+easy", "fifo+easy+express:600:0.1"])
def test_without_a_log_what_depends_on_it_is_asked_for(policy: str) -> None:
    with pytest.raises(InputError, match="give `"):
        slurm_lines(parse_policy(policy), CONFIG)


def test_without_a_log_classes_have_usual_bounds_and_a_note_says_so() -> None:
    lines = slurm_lines(parse_policy("sjf+easy"), CONFIG)
    assert [line.split()[0] for line in lines.conf if line.startswith("PartitionName")] == [
        *("PartitionName=gpu-30m", "PartitionName=gpu-4h", "PartitionName=gpu-1d", "PartitionName=gpu-rest")
    ]
    assert any("usual ones" in note for note in lines.notes)


@pytest.mark.parametrize(
    "policy", ["sjf+easy", "wspt+easy", "power:0.5+easy+express:600:0.1", "fifo+express:9:1"]
)
def test_the_script_is_lua(policy: str, tmp_path: Path) -> None:
    script = exported(policy)[0].lua
    opens = sum(script.count(f" {word}\n") for word in ("do", "then")) + script.count("function ")
    opens += sum("then" in line and line.rstrip().endswith("end") for line in script.splitlines())
    assert opens == sum(line.split("--")[0].split().count("end") for line in script.splitlines())
    compiler = next(filter(None, map(shutil.which, ("luac", "luac5.4", "luac5.3", "luac5.1"))), None)
    if compiler is not None:
        (tmp_path / "job_submit.lua").write_text(script)
        subprocess.run([compiler, "-p", str(tmp_path / "job_submit.lua")], check=True)


LUA = next(filter(None, map(shutil.which, ("lua", "lua5.4", "lua5.3", "lua5.1"))), None)
SLURM = "slurm = {NO_VAL = 4294967294, NO_VAL16 = 65534, INFINITE = 4294967295, SUCCESS = 0}\n"


@pytest.mark.skipif(LUA is None, reason="there is no lua")
@pytest.mark.parametrize("policy", ["sjf+easy", "wspt+easy", "power:0.5+easy+express:2400:0.1"])
def test_the_script_gives_jobs_what_the_simulation_gives_them(policy: str, tmp_path: Path) -> None:
    some = jobs(estimate_s=[None, 1200.0, 1800.0, 2400.0, 3000.0, 3600.0, 4200.0, 4800.0])
    lines, _ = exported(policy, some)
    calls = [
        f"job = {{time_limit = {'slurm.NO_VAL' if limit is None else limit / 60}, min_nodes = slurm.NO_VAL, "
        f'tres_per_node = "gres/gpu:a100:{gpus}"}} slurm_job_submit(job) print(job.partition, job.qos or "")'
        for limit, gpus in some.frame.select("estimate_s", "gpus").iter_rows()
    ]
    (tmp_path / "job_submit.lua").write_text("\n".join([SLURM, lines.lua, *calls]))
    done = subprocess.run(
        [str(LUA), str(tmp_path / "job_submit.lua")], check=True, capture_output=True, text=True
    )
    routed = lines.routing.routed(some)
    expected = list(zip(routed.column("partition"), routed.column("qos"), strict=True))
    assert [tuple(line.split("\t")) for line in done.stdout.splitlines()] == expected
