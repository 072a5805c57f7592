"""The policy ``recorded``: the log's own schedule, unchanged, and what is said about it."""

import json

import numpy as np
import polars as pl
import pytest

from gpuyard.cli import app
from gpuyard.cluster.model import Cluster, parse_cluster
from gpuyard.config import SimulationConfig
from gpuyard.errors import InputError
from gpuyard.evaluate import compare
from gpuyard.evaluate.findings import findings
from gpuyard.evaluate.replay import replay_comparison, replay_document, run_policies
from gpuyard.evaluate.storage import read_comparison
from gpuyard.report.sources import read_sources
from gpuyard.simulation.find import find_policy
from gpuyard.simulation.recorded import RecordedPolicy
from gpuyard.simulation.run import simulate
from gpuyard.workload import Workload, make_workload, write_workload

SEPTEMBER_S = 1_598_918_400.0
OF_NODES = ("fragmentation", "load_imbalance", "energy_kwh", "asleep_node_h", "cpu_utilization")


def log_of(**columns: object) -> Workload:
    """Jobs of 100 s on 4 GPUs each, submitted 10 s apart, unless said otherwise."""
    count = max(len(values) for values in columns.values())  # type: ignore[arg-type]
    usual = {
        "submit_s": [10.0 * index for index in range(count)],
        "duration_s": [100.0] * count,
        "gpus": [4] * count,
    }
    return make_workload(pl.DataFrame(usual | columns, strict=False), name="log", epoch_s=SEPTEMBER_S)


def held(workload: Workload, cluster: str | Cluster = "2x4") -> list[dict[int, int]]:
    """GPUs by node of every job."""
    frame = simulate(workload, cluster, "recorded").schedule.frame()
    return [
        dict(zip(nodes, gpus, strict=True)) for nodes, gpus in frame.select("nodes", "node_gpus").iter_rows()
    ]


def test_jobs_start_when_the_log_says_and_run_as_long():
    log = log_of(recorded_start_s=[5.0, 205.5, 105.0])
    result = simulate(log, "2x4", "recorded")
    assert result.policy == "recorded"
    assert result.schedule.start_us.tolist() == [5_000_000, 205_500_000, 105_000_000]
    assert result.schedule.end_us.tolist() == [105_000_000, 305_500_000, 205_000_000]
    assert result.metrics()["mean_wait_s"] == pytest.approx((5 + 195.5 + 85) / 3)
    assert (result.notes, result.impossible, result.dropped.tolist()) == ((), None, [])


def test_a_search_that_found_nothing_better_stands_for_what_was_recorded(tmp_path, capsys):
    (tmp_path / "search.json").write_text(json.dumps({"chosen": "current", "policy": "recorded"}))
    log, path = log_of(recorded_start_s=[5.0, 205.5, 105.0]), tmp_path / "jobs.parquet"
    write_workload(log, path)
    options = ("--cluster", "2x4", "--part", "all", "--windows", "1", "--jobs-per-window", "2", "--cold")
    arguments = ["evaluate", str(tmp_path), "--on", str(path), *options]
    app(arguments, exit_on_error=False, result_action="return_value")
    captured = capsys.readouterr()
    assert f"the search in {tmp_path} recommends nothing: it stands for what runs today" in captured.err
    assert "recorded" in captured.out


def test_speeds_and_estimates_change_nothing():
    log = log_of(recorded_start_s=[5.0, 105.0], estimate_s=[10.0, 10.0])
    config = SimulationConfig(estimates="requested", kill_at_estimate=True)
    fast = simulate(log, parse_cluster("2x4:v100@3"), "recorded", config)
    assert fast.schedule.end_us.tolist() == [105_000_000, 205_000_000]


def test_a_start_before_the_submit_stays():
    result = simulate(log_of(recorded_start_s=[-7.0, 105.0]), "2x4", "recorded")
    assert result.metrics()["mean_wait_s"] == pytest.approx((-7 + 95) / 2)
    assert result.metrics()["makespan_s"] == 212.0


def test_jobs_without_a_start_are_left_out_and_counted():
    result = simulate(log_of(recorded_start_s=[5.0, None, 105.0, None]), "2x4", "recorded")
    assert result.schedule.job.tolist() == [0, 2]
    assert result.dropped.tolist() == [1, 3]
    assert result.notes == ("recorded: 2 of 4 jobs have no recorded start and are left out",)


def test_a_log_without_starts_is_refused():
    with pytest.raises(InputError, match="does not say when its jobs really started"):
        simulate(log_of(gpus=[1, 2]), "2x4", "recorded")


def test_what_happened_is_no_rule_that_could_decide():
    policy = find_policy("recorded")
    assert isinstance(policy, RecordedPolicy)
    with pytest.raises(InputError, match="no rule"):
        policy.decide(None)  # type: ignore[arg-type]


def test_too_many_gpus_in_use_are_told_and_nothing_is_bent():
    log = log_of(gpus=[4, 4, 4], recorded_start_s=[5.0, 50.0, 3660.0])
    result = simulate(log, "1x6", "recorded")
    assert result.schedule.start_us.tolist() == [5_000_000, 50_000_000, 3_660_000_000]
    assert result.impossible == "recorded: impossible on 1x6: at 2020-09-01 00:00 8 of 6 GPUs in use"
    assert result.notes == (result.impossible,)
    assert held(log, "1x6") == [{}, {}, {}]
    assert simulate(log, "1x8", "recorded").impossible is None


def test_jobs_that_every_policy_leaves_out_are_left_out_too():
    log = log_of(gpus=[4, 16], recorded_start_s=[5.0, 105.0])
    assert simulate(log, "2x4", "recorded").impossible is not None
    dropping = simulate(log, "2x4", "recorded", SimulationConfig(oversize="drop"))
    assert (dropping.schedule.job.tolist(), dropping.impossible) == ([0], None)


# Nodes


def test_named_nodes_are_matched_in_their_natural_order():
    log = log_of(gpus=[4, 4, 2], recorded_start_s=[0.0, 0.0, 100.0], recorded_nodes=["n10", "n2", "n2|n10"])
    assert held(log) == [{1: 4}, {0: 4}, {0: 1, 1: 1}]
    assert simulate(log, "2x4", "recorded").schedule.nodes_known


def test_named_nodes_are_matched_by_size_where_their_order_does_not_fit():
    log = log_of(gpus=[8, 2], recorded_start_s=[0.0, 0.0], recorded_nodes=["a", "b"])
    assert held(log, "1x2,1x8") == [{1: 8}, {0: 2}]


@pytest.mark.parametrize(
    ("nodes", "why"),
    [
        (["n1", "n1"], "one node would have 8 of 4 GPUs in use"),
        (["n1", None], "of one job it is not known"),
        (["n1", "n2|n3|n4"], "there are more names than nodes"),
    ],
)
def test_names_that_do_not_tell_give_way_to_any_possible_nodes(nodes, why):
    log = log_of(gpus=[4, 4], recorded_start_s=[0.0, 0.0], recorded_nodes=nodes)
    assert held(log) == [{0: 4}, {1: 4}], why
    assert not simulate(log, "2x4", "recorded").schedule.nodes_known, why


def test_gangs_are_split_only_if_otherwise_one_would_have_to_wait():
    assert held(log_of(gpus=[3, 3], recorded_start_s=[0.0, 1.0])) == [{0: 3}, {1: 3}]
    split = held(log_of(gpus=[3, 3, 2], recorded_start_s=[0.0, 1.0, 50.0]))
    assert [sum(gpus.values()) for gpus in split] == [3, 3, 2]
    assert [sum(job.get(node, 0) for job in split) for node in (0, 1)] == [4, 4]


def test_no_node_ever_has_more_jobs_than_gpus():
    generator = np.random.default_rng(3)
    count = 400
    start_s = np.sort(generator.integers(0, 4000, count)).astype(float)
    gpus = generator.integers(0, 5, count)
    log = log_of(gpus=gpus, duration_s=generator.integers(1, 60, count).astype(float),
                 submit_s=np.maximum(start_s - 5, 0), recorded_start_s=start_s,
                 gpu_milli=np.where((gpus == 1) & (start_s % 2 == 0), 300, 1000))  # fmt: skip
    result = simulate(log, "8x8", "recorded")
    assert result.impossible is None
    frame = result.table().explode("nodes", "node_gpus")
    assert frame["nodes"].null_count() == 0
    for moment in np.unique(start_s):
        now = frame.filter((pl.col("start_s") <= moment) & (pl.col("end_s") > moment))
        used = now.group_by("nodes").agg((pl.col("node_gpus") * pl.col("gpu_milli")).sum())
        assert (used["node_gpus"] <= 8000).all()
    assert (frame.group_by("row").agg(pl.col("node_gpus").sum()).sort("row")["node_gpus"] == gpus).all()


def test_owners_types_and_cpus_do_not_keep_a_job_from_where_it_ran():
    cluster = Cluster.model_validate(
        {"nodes": [{"gpus": 4, "type": "v100", "owner": "vision", "cpus": 1}, {"gpus": 2, "cpus": 1}]}
    )
    log = log_of(gpus=[4], group=["speech"], gpu_types=[["a100"]], cpus=[64], recorded_start_s=[0.0])
    assert held(log, cluster) == [{0: 4}]


def test_metrics_about_nodes_need_known_nodes():
    cluster = parse_cluster("2x4:v100")
    known = log_of(recorded_start_s=[0.0, 50.0], recorded_nodes=["a", "b"])
    values = simulate(known, cluster, "recorded").metrics()
    assert all(values[name] is not None for name in OF_NODES if name != "cpu_utilization")
    assumed = simulate(log_of(recorded_start_s=[0.0, 50.0]), cluster, "recorded").metrics()
    assert [name for name in OF_NODES if assumed[name] is not None] == []
    assert assumed["gpu_utilization"] == values["gpu_utilization"] == pytest.approx(800 / (8 * 150))
    assert assumed["flops_utilization"] == assumed["gpu_utilization"]
    mixed = simulate(log_of(recorded_start_s=[0.0, 50.0]), "1x4:v100@2,1x4", "recorded").metrics()
    assert mixed["flops_utilization"] is None


# Rows


def test_what_happened_stands_first_and_is_the_reference(tmp_path):
    log = log_of(recorded_start_s=[50.0, 205.0, None, 105.0])
    runs = run_policies(log, parse_cluster("2x4"), ["fifo", "sjf+easy"], SimulationConfig())
    assert [run.policy for run in runs] == ["recorded", "fifo+strict/consolidate", "sjf+easy/consolidate"]
    assert [run.entry.label for run in runs] == ["recorded", "fifo+strict", "sjf+easy"]
    assert [run.entry.role for run in runs] == ["reference", "given", "given"]
    comparison = replay_comparison("log.csv", runs)
    assert comparison.reference == "recorded"
    comparison.write(tmp_path / "out")
    read = read_comparison(tmp_path / "out")
    assert read.policies[0].kind == "recorded"
    assert "1 of 4 jobs" in read.policies[0].note
    assert read.schedules["recorded"]["row"].to_list() == [0, 1, 3]
    document = replay_document("log.csv", runs, ["mean_wait_s"])
    assert json.loads(json.dumps(document))["results"][0]["impossible"] is None


def test_what_happened_stands_first_beside_another_reference(tmp_path):
    log = log_of(recorded_start_s=[50.0, 205.0, None, 105.0])
    few = (parse_cluster("2x4"), ["sjf+easy", "recorded"], SimulationConfig())
    runs = run_policies(log, *few, current="fifo")
    assert [run.entry.label for run in runs] == ["recorded", "fifo+strict", "sjf+easy"]
    assert [run.entry.role for run in runs] == ["recorded", "reference", "given"]
    comparison = replay_comparison("log.csv", runs)
    assert (comparison.reference, comparison.chosen_on) == ("fifo+strict/consolidate", "given")
    assert comparison.with_current("recorded").with_current("fifo").policies == comparison.policies


def test_what_happened_is_a_row_of_windows_beside_another_reference():
    starts = [10.0 * index + 100.0 if index % 3 else None for index in range(90)]
    log = log_of(gpus=[8] * 90, duration_s=[9.0] * 90, recorded_start_s=starts)
    few = {"windows": 3, "jobs_per_window": 10, "part": "all", "current": "fifo"}
    found = compare(["sjf+easy"], log, "1x8", **few)
    assert [one.label for one in found.shown] == ["recorded", "fifo+strict", "sjf+easy"]
    assert [one.role for one in found.shown] == ["recorded", "reference", "given"]
    wait_s = [start - 10.0 * index for index, start in enumerate(starts) if start is not None]
    assert found.whole_rows()["recorded"]["mean_wait_s"] == pytest.approx(sum(wait_s) / len(wait_s))
    whole = found.whole.windows.filter(pl.col("policy") == "recorded")["mean_wait_s"].to_list()
    assert whole == pytest.approx(found.values("recorded", "mean_wait_s").tolist())
    assert "recorded" not in [one.policies[0] for one in findings(found) if one.kind == "verdict"]


def test_what_happened_is_no_row_of_windows_if_one_of_them_has_no_starts():
    starts = [None if index < 20 else 10.0 * index + 100.0 for index in range(60)]
    log = log_of(gpus=[8] * 60, duration_s=[9.0] * 60, recorded_start_s=starts)
    few = {"windows": 3, "jobs_per_window": 10, "part": "all", "current": "fifo"}
    assert [one.label for one in compare(["sjf+easy"], log, "1x8", **few).shown] == [
        "fifo+strict",
        "sjf+easy",
    ]


@pytest.mark.parametrize(
    ("starts", "options"),
    [([5.0, None, None], {}), ([5.0, 15.0, 25.0], {"current": "none"})],
    ids=["few starts", "not wanted"],
)
def test_without_enough_starts_or_if_not_wanted_there_is_no_such_row(starts, options):
    log = log_of(gpus=[1, 1, 1], recorded_start_s=starts)
    runs = run_policies(log, parse_cluster("2x4"), ["fifo"], SimulationConfig(), **options)
    assert [run.policy for run in runs] == ["fifo+strict/consolidate"]


def test_a_row_that_cannot_be_is_marked_wherever_its_label_is_shown():
    log = log_of(gpus=[8, 8], recorded_start_s=[5.0, 50.0])
    runs = run_policies(log, parse_cluster("1x8"), ["fifo"], SimulationConfig())
    entry = replay_comparison("log.csv", runs).policies[0]
    assert (entry.name, entry.label) == ("recorded", "recorded (impossible)")
    assert "16 of 8 GPUs in use" in entry.note


def test_a_row_that_cannot_be_is_marked_in_windows_too():
    starts = [10.0 * index + 100.0 for index in range(60)]
    starts[45] = starts[46]
    log = log_of(gpus=[8] * 60, duration_s=[9.0] * 60, recorded_start_s=starts)
    few = {"windows": 3, "jobs_per_window": 10, "part": "all"}
    entry = compare(["fifo"], log, "1x8", **few, current="recorded").policies[0]
    assert (entry.name, entry.label) == ("recorded", "recorded (impossible)")
    assert "16 of 8 GPUs in use" in entry.note
    assert compare(["fifo"], log, "2x8", **few).policies[0].label == "recorded"


def test_waits_below_zero_are_counted_marked_and_not_clamped(tmp_path, capsys):
    log = log_of(recorded_start_s=[-40.0, 15.0, -30.0], gpus=[4, 4, 8])
    few = (parse_cluster("2x4"), ["fifo+easy"], SimulationConfig())
    first = run_policies(log, *few)[0]
    assert first.metrics["mean_wait_s"] == pytest.approx((-40.0 + 5.0 - 50.0) / 3)
    assert first.result.marks == ("impossible", "negative waits")
    assert first.entry.label == "recorded (impossible, negative waits)"
    assert "2 of 3 jobs started before being submitted" in first.result.notes[0]
    write_workload(log, tmp_path / "log.parquet")
    arguments = ["simulate", str(tmp_path / "log.parquet"), "--cluster", "8x4", "--policy", "fifo+easy"]
    app(arguments, exit_on_error=False, result_action="return_value")
    said = capsys.readouterr()
    (row,) = [line for line in said.out.splitlines() if line.startswith("recorded (negative")]
    assert "*" not in row, "what looks best because of an error is best of nothing"


def test_waits_below_zero_are_marked_in_windows_and_on_the_page():
    starts = [10.0 * index + (-50.0 if index % 2 else 100.0) for index in range(60)]
    log = log_of(gpus=[1] * 60, duration_s=[9.0] * 60, recorded_start_s=starts)
    few = {"windows": 3, "jobs_per_window": 10, "part": "all", "metric": "mean_wait_s"}
    found = compare(["sjf+easy"], log, "4x8", **few, current="fifo")
    assert found.policies[0].label == "recorded (negative waits)"
    assert "started before being submitted" in found.policies[0].note
    report, _ = read_sources([found])
    assert report.best != "recorded"
    assert "recorded" not in report.answer.sentence


def test_a_row_that_is_asked_for_stands_first_once():
    log = log_of(recorded_start_s=[50.0, 205.0])
    runs = run_policies(log, parse_cluster("2x4"), ["fifo", "recorded"], SimulationConfig())
    assert [run.policy for run in runs] == ["recorded", "fifo+strict/consolidate"]


@pytest.mark.parametrize(("flags", "rows"), [((), 2), (("--current", "none"), 1)])
def test_the_command_shows_it(tmp_path, capsys, flags, rows):
    write_workload(log_of(gpus=[4, 8], recorded_start_s=[5.0, 50.0]), tmp_path / "log.parquet")
    arguments = [str(tmp_path / "log.parquet"), "--cluster", "2x4", "--policy", "fifo", *flags]
    app(["simulate", *arguments, "--json"], exit_on_error=False, result_action="return_value")
    results = json.loads(capsys.readouterr().out)["results"]
    assert len(results) == rows
    app(["simulate", *arguments], exit_on_error=False, result_action="return_value")
    said = capsys.readouterr()
    assert ("recorded (impossible)" in said.out) == (rows == 2)
    marked = [line for line in said.out.splitlines() if line.startswith("recorded") and "*" in line]
    assert marked == [], "what cannot be is best of nothing"
    assert ("12 of 8 GPUs in use" in said.err) == (rows == 2)
