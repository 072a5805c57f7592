"""Metrics of jobs that run in several pieces, of nodes that fail and sleep: numbers worked out by hand."""

import hashlib
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from gpuyard.cluster.model import Cluster, parse_cluster
from gpuyard.config import SimulationConfig
from gpuyard.errors import InputError
from gpuyard.evaluate.replay import PolicyRun, replay_comparison, run_policies
from gpuyard.metrics.catalogue import compute_breakdown, compute_metrics
from gpuyard.native.schedule import Schedule
from gpuyard.workload import Workload, make_workload
from support.schedules import Run, make_downtime, make_runs, make_schedule

Case = tuple[Workload, Cluster, Schedule]
KWH = 3.6e6  # joules


def workload(epoch_s: float = 0.0, **columns: list[Any]) -> Workload:
    return make_workload(pl.DataFrame(columns, strict=False), epoch_s=epoch_s)


@pytest.fixture
def cluster() -> Cluster:
    """Two nodes of 50 W, asleep 5 W, with two GPUs each that draw 20 W idle and 100 W busy."""
    return Cluster.model_validate(
        {
            "gpu_types": [{"name": "card", "idle_w": 20.0, "peak_w": 100.0}],
            "nodes": [{"count": 2, "gpus": 2, "type": "card", "idle_w": 50.0, "sleep_w": 5.0}],
        }
    )


@pytest.fixture
def case(cluster: Cluster) -> Case:
    """A (2 GPUs) is stopped and goes on; B (1 GPU) loses 20 s of work when node 0 fails at 65, until 90.

    time     0     40   45   60   65     70   90   100    130  135 s
    node 0   A A   A'   B    B    down        .    B B    .           ' holds GPUs without progress
    node 1   .     .    .    A'   A'     A (restores 5 s)         end
    """
    jobs = workload(
        epoch_s=864_000 - 60, submit_s=[0, 20], duration_s=[100.0, 30.0], gpus=[2, 1], user=["a", "b"]
    )
    runs = make_runs(
        Run(0, 0, 0, 40, 45, {0: 2}, "stopped"),
        Run(1, 45, 45, 65, 65, {0: 1}, "failed", lost_s=20),
        Run(0, 60, 70, 135, 135, {1: 2}, restore_s=5),
        Run(1, 100, 100, 130, 130, {0: 1}),
    )
    plan = make_schedule((0, 135, {1: 2}), (45, 130, {0: 1}))
    return jobs, cluster, replace(plan, runs=runs, downtime=make_downtime((0, 65, 90)))


def value(name: str, case: Case, **options: Any) -> Any:
    return compute_metrics(*case, **options)[name]


def test_waits_end_with_the_first_begin_and_completion_times_with_the_last_end(case: Case) -> None:
    assert value("mean_wait_s", case) == (0 + 25) / 2
    assert value("mean_jct_s", case) == (135 + 110) / 2


def test_gpus_are_utilised_while_any_run_holds_them(case: Case) -> None:
    # A holds 2 GPUs for 45 and 75 s, B one for 20 and 30 s; four GPUs for 135 s, down or not.
    assert value("gpu_utilization", case) == pytest.approx((2 * 120 + 50) / (4 * 135))


def test_cpus_and_memory_are_utilised_while_any_run_holds_them(case: Case) -> None:
    _, _, plan = case
    jobs = workload(submit_s=[0, 20], duration_s=[100.0, 30.0], gpus=[2, 1], cpus=[6, 1], memory_mib=[10, 20])
    limited = Cluster.model_validate({"nodes": [{"count": 2, "gpus": 2, "cpus": 8, "memory_mib": 100}]})
    assert value("cpu_utilization", (jobs, limited, plan)) == pytest.approx((6 * 120 + 50) / (16 * 135))
    assert value("memory_utilization", (jobs, limited, plan)) == pytest.approx(
        (10 * 120 + 20 * 50) / (200 * 135)
    )


def test_jobs_between_their_runs_are_in_the_queue(case: Case) -> None:
    # A is in the system for 135 s and holds GPUs for 120, B for 110 and 50.
    assert value("mean_queue_length", case) == pytest.approx((15 + 60) / 135)


def test_load_imbalance_and_fragmentation_follow_the_runs(case: Case) -> None:
    # Use of nodes 0, 1: [0, 45) 1, 0; [45, 60) 1/2, 0; [60, 65) 1/2, 1; [65, 100) 0, 1; [100, 130) 1/2, 1;
    # [130, 135) 0, 1. Free on partly used nodes / free: 0; 1/3; 1/1; 0/2; 1/1; 0/2.
    assert value("load_imbalance", case) == pytest.approx((85 / 4 + 50 / 16) / 135)
    assert value("fragmentation", case) == pytest.approx((15 / 3 + 5 + 30) / 135)


def test_stops_failures_overhead_and_lost_work(case: Case) -> None:
    result = compute_metrics(*case)
    assert (result["preemptions"], result["failed_runs"]) == (1, 1)
    assert result["lost_gpu_h"] == pytest.approx(20 / 3600)
    # A's checkpoint 5 s, waking 10 s and restore 5 s, on 2 GPUs each.
    assert result["overhead_gpu_h"] == pytest.approx(2 * 20 / 3600)


def test_a_restore_cut_short_counts_as_long_as_it_took() -> None:
    jobs = workload(submit_s=[0], duration_s=[20.0], gpus=[1])
    runs = make_runs(
        Run(0, 0, 0, 10, 10, {0: 1}, "stopped"),
        Run(0, 10, 10, 13, 13, {0: 1}, "failed", restore_s=5),
        Run(0, 20, 20, 35, 35, {0: 1}, restore_s=5),
    )
    plan = replace(make_schedule((0, 35, {0: 1})), runs=runs)
    assert value("overhead_gpu_h", (jobs, parse_cluster("1x1"), plan)) == pytest.approx((3 + 5) / 3600)


def test_stops_failures_and_lost_work_belong_to_the_class_of_their_job(case: Case) -> None:
    table = compute_breakdown(*case, "gpus")
    assert table["class"].to_list() == ["1", "2-4"]
    assert table["preemptions"].to_list() == [0, 1]
    assert table["failed_runs"].to_list() == [1, 0]
    assert table["lost_gpu_h"].to_list() == pytest.approx([20 / 3600, 0])
    assert table["overhead_gpu_h"].to_list() == pytest.approx([0, 40 / 3600])
    assert table["mean_queue_length"].to_list() == pytest.approx([60 / 135, 15 / 135])
    assert "asleep_node_h" not in table.columns


def test_a_node_that_is_down_draws_nothing_and_a_waking_one_draws_idle(case: Case) -> None:
    # Two nodes of 50 + 2 * 20 W for 135 s, less one for 25 s. In use, 80 W more: A's GPUs 45 s and, from its
    # begin on, 65 s; B's 20 and 30 s.
    joules = 90 * (2 * 135 - 25) + 80 * (2 * 110 + 50)
    assert value("energy_kwh", case) == pytest.approx(joules / KWH)
    assert value("asleep_node_h", case) == 0.0


@pytest.mark.parametrize(
    ("sleep_after_s", "asleep_s"),
    [
        (20, 40),  # node 1 from 20 to 60; node 0 is idle for 10 s after its repair and for 5 s at the end
        (5, 55 + 5),  # node 1 from 5; node 0 from 95 to 100, and at the end for 0 s
        (0, 60 + 10 + 5),
        (60, 0),
    ],
)
def test_an_idle_node_falls_asleep(case: Case, sleep_after_s: float, asleep_s: float) -> None:
    result = compute_metrics(*case, config=SimulationConfig(sleep_after_s=sleep_after_s))
    joules = 90 * (2 * 135 - 25) + 80 * (2 * 110 + 50) - (90 - 5) * asleep_s
    assert result["asleep_node_h"] == pytest.approx(asleep_s / 3600)
    assert result["energy_kwh"] == pytest.approx(joules / KWH)


def test_a_node_that_no_job_uses_sleeps_to_the_end(cluster: Cluster) -> None:
    # Both runs on node 0 overlap in part; node 1 is asleep from 10 to 50. Whole jobs, no runs apart.
    jobs = workload(submit_s=[0, 0], duration_s=[30.0, 40.0], gpus=[1, 1])
    plan = make_schedule((0, 30, {0: 1}), (10, 50, {0: 1}))
    result = compute_metrics(jobs, cluster, plan, config=SimulationConfig(sleep_after_s=10))
    assert result["asleep_node_h"] == pytest.approx(40 / 3600)
    assert result["energy_kwh"] == pytest.approx((90 * 100 - 85 * 40 + 80 * 70) / KWH)


def test_a_node_may_be_asleep_before_the_first_job_that_ran(cluster: Cluster) -> None:
    # The job of time 0 was dropped. T is [30, 60); node 0 is taken at 40, node 1 never.
    jobs = workload(submit_s=[0, 30], duration_s=[10.0, 10.0], gpus=[9, 1])
    plan = make_schedule((50, 60, {0: 1}), job=[1])
    plan = replace(plan, runs=make_runs(Run(0, 40, 50, 60, 60, {0: 1})))
    result = compute_metrics(jobs, cluster, plan, config=SimulationConfig(sleep_after_s=20))
    assert result["asleep_node_h"] == pytest.approx((10 + 30) / 3600)
    assert result["energy_kwh"] == pytest.approx((90 * 60 - 85 * 40 + 80 * 10) / KWH)


def test_failures_outside_the_makespan_cost_nothing(cluster: Cluster) -> None:
    jobs = workload(submit_s=[0, 30], duration_s=[10.0, 10.0], gpus=[9, 1])
    plan = replace(make_schedule((50, 60, {0: 1}), job=[1]), downtime=make_downtime((0, 5, 10), (1, 20, 45)))
    assert value("energy_kwh", (jobs, cluster, plan)) == pytest.approx((90 * (60 - 15) + 80 * 10) / KWH)
    sleepy = SimulationConfig(sleep_after_s=10)
    # Node 0 sleeps from 20, in T from 30, to 50; node 1 from 55.
    assert value("asleep_node_h", (jobs, cluster, plan), config=sleepy) == pytest.approx(25 / 3600)


def test_shared_gpus_draw_peak_power_from_the_begin_of_the_first_run(cluster: Cluster) -> None:
    # GPU 1 of node 0: [10, 30) and [20, 50), then [60, 70): 50 s in use. Held, by fraction: 30, 30, 10 s.
    jobs = workload(submit_s=[0, 0], duration_s=[30.0, 30.0], gpus=[1, 1], gpu_milli=[300, 500])
    runs = make_runs(
        Run(0, 0, 10, 30, 30, {0: 1}, "stopped", gpu_index=1),
        Run(1, 20, 20, 50, 50, {0: 1}, gpu_index=1),
        Run(0, 60, 60, 70, 70, {0: 1}, gpu_index=1),
    )
    plan = replace(make_schedule((10, 70, {0: 1}), (20, 50, {0: 1}), gpu_index=[1, 1]), runs=runs)
    result = compute_metrics(jobs, cluster, plan)
    assert result["energy_kwh"] == pytest.approx((2 * 90 * 70 + 80 * 50) / KWH)
    assert result["gpu_utilization"] == pytest.approx((0.3 * 40 + 0.5 * 30) / (4 * 70))
    assert result["overhead_gpu_h"] == pytest.approx(0.3 * 10 / 3600)


@pytest.mark.parametrize(("sleep_after_s", "asleep_s"), [(None, 0), (20, 40)])
def test_the_price_is_that_of_the_time_of_day(
    case: Case, sleep_after_s: float | None, asleep_s: float
) -> None:
    # Time 0 is a minute before midnight: until 60 a kWh costs 3, from there on 1. Until 60: two nodes, A's
    # two GPUs for 45 s, B's for 15 s, and all of the sleep.
    config = SimulationConfig(sleep_after_s=sleep_after_s)
    before = 90 * 120 + 80 * (90 + 15) - 85 * asleep_s
    after = 90 * (2 * 75 - 25) + 80 * (2 * 65 + 5 + 30)
    result = compute_metrics(*case, price_per_kwh="0-12:1,12-24:3", config=config)
    assert result["energy_kwh"] == pytest.approx((before + after) / KWH)
    assert result["energy_cost"] == pytest.approx((3 * before + after) / KWH)


def test_a_flat_tariff_is_energy_times_price(case: Case) -> None:
    energy = value("energy_kwh", case)
    for price in (0.2, "0.2", "0-24:0.2"):
        assert value("energy_cost", case, price_per_kwh=price) == energy * 0.2
    assert value("energy_cost", case, price_per_kwh="0-1:0.2,1-24:0.2") == pytest.approx(energy * 0.2)


def test_the_cost_of_unknown_energy_is_unknown(case: Case) -> None:
    jobs, _, plan = case
    result = compute_metrics(jobs, parse_cluster("2x2"), plan, price_per_kwh="0-12:1,12-24:3")
    assert (result["energy_kwh"], result["energy_cost"]) == (None, None)
    assert result["asleep_node_h"] == 0.0


def test_a_price_that_cannot_be_read_is_refused(case: Case) -> None:
    with pytest.raises(InputError, match="price of energy cheap: expected a price per kWh"):
        compute_metrics(*case, price_per_kwh="cheap")


def test_a_schedule_of_no_jobs_has_no_sleep(case: Case) -> None:
    jobs, cluster, _ = case
    config = SimulationConfig(sleep_after_s=1)
    result = compute_metrics(jobs, cluster, make_schedule(), price_per_kwh="0-12:1,12-24:3", config=config)
    assert (result["asleep_node_h"], result["energy_kwh"], result["energy_cost"]) == (None, 0.0, 0.0)


def test_a_schedule_without_runs_is_the_same_as_one_run_a_job(cluster: Cluster) -> None:
    jobs = workload(
        submit_s=[0, 5, 9], duration_s=[30.0, 40.0, 7.0], gpus=[1, 3, 1], gpu_milli=[400, 1000, 999]
    )
    plan = make_schedule((1, 31, {0: 1}), (5, 45, {0: 1, 1: 2}), (50, 57, {0: 1}), gpu_index=[0, -1, 1])
    again = replace(plan, runs=plan.pieces())
    options: dict[str, Any] = {"price_per_kwh": "0-12:1,12-24:3", "config": SimulationConfig(sleep_after_s=2)}
    first, second = (compute_metrics(jobs, cluster, schedule, **options) for schedule in (plan, again))
    assert {name for name, number in first.items() if number is None} == {
        name for name, number in second.items() if number is None
    }
    known = {name: number for name, number in first.items() if number is not None}
    assert known == pytest.approx({name: second[name] for name in known}, rel=1e-14)
    assert known["asleep_node_h"] > 0


def test_the_hash_covers_runs_where_there_are_any(case: Case) -> None:
    _, _, plan = case
    runs = plan.runs
    assert runs is not None
    columns = [plan.start_us, plan.end_us, np.array([1, 1]), plan.node, plan.node_gpus]
    alone = replace(plan, runs=None, downtime=None)
    assert alone.hash() == hashlib.sha256(np.concatenate(columns).astype("<i8").tobytes()).hexdigest()
    columns += [runs.entry, runs.taken_us, runs.begin_us, runs.stop_us, runs.released_us]
    columns += [np.array([1, 1, 1, 1]), runs.node, runs.node_gpus]
    assert plan.hash() == hashlib.sha256(np.concatenate(columns).astype("<i8").tobytes()).hexdigest()


def test_runs_as_a_table(case: Case) -> None:
    table = case[2].run_frame()
    assert table.row(2, named=True) == {
        "entry": 0,
        "job": 0,
        "taken_s": 60.0,
        "begin_s": 70.0,
        "stop_s": 135.0,
        "released_s": 135.0,
        "ending": "completed",
        "restore_s": 5.0,
        "lost_s": 0.0,
        "gpu_index": -1,
        "nodes": [1],
        "node_gpus": [2],
    }
    assert table["ending"].to_list() == ["stopped", "failed", "completed", "completed"]
    assert table["lost_s"].to_list() == [0, 20, 0, 0]


def test_executions_are_written_beside_the_schedule(case: Case, tmp_path: Path) -> None:
    jobs, cluster, plan = case
    (run,) = run_policies(jobs, cluster, ["fifo"], SimulationConfig())
    replay_comparison("jobs.csv", [run]).write(tmp_path, csv=True)
    written = tmp_path / "executions" / "0.parquet"
    assert written.exists() == (run.result.schedule.runs is not None)
    rows = Workload(jobs.frame.with_columns(row=pl.Series([7, 5])), jobs.metadata)
    pieces = PolicyRun(replace(run.result, schedule=plan, workload=rows), run.metrics, run.entry)
    replay_comparison("jobs.csv", [pieces]).write(tmp_path, csv=True)
    table = pl.read_parquet(written)
    assert table["row"].to_list() == [7, 5, 7, 5]
    assert table["entry"].to_list() == [0, 1, 0, 1]
    assert table.drop("row").equals(plan.run_frame().drop("job"))
    assert pl.read_csv(written.with_suffix(".csv"))["released_s"].to_list() == [45, 65, 135, 130]
