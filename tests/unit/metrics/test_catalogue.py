"""Every metric against a number worked out by hand."""

from dataclasses import replace
from typing import Any

import numpy as np
import polars as pl
import pytest

from gpuyard.cluster.model import Cluster, parse_cluster
from gpuyard.errors import InputError
from gpuyard.metrics.catalogue import compute_breakdown, compute_metrics, metrics
from gpuyard.native.schedule import Schedule
from gpuyard.simulation.run import simulate
from gpuyard.workload import Workload, make_workload
from support.paths import DOCS
from support.schedules import make_schedule

PAGE = DOCS / "contract" / "metrics.md"
Case = tuple[Workload, Cluster, Schedule]
COLUMNS = ("wait_s", "jct_s", "slowdown", "bounded_slowdown")


def workload(**columns: list[Any]) -> Workload:
    return make_workload(pl.DataFrame(columns, strict=False))


@pytest.fixture
def two_speeds() -> Cluster:
    """Node 0: two GPUs of speed 1. Node 1: one GPU of speed 2."""
    return parse_cluster("1x2:slow@1,1x1:fast@2")


@pytest.fixture
def limited() -> Cluster:
    """Two nodes of 2 GPUs, 8 CPUs and 1000 MiB."""
    return Cluster.model_validate({"nodes": [{"count": 2, "gpus": 2, "cpus": 8, "memory_mib": 1000}]})


@pytest.fixture
def powered() -> Cluster:
    """A node of 50 W with two GPUs that draw 20 W idle and 100 W busy; one of 30 W without GPUs."""
    return Cluster.model_validate(
        {
            "gpu_types": [{"name": "card", "idle_w": 20.0, "peak_w": 100.0}],
            "nodes": [{"gpus": 2, "type": "card", "idle_w": 50.0}, {"gpus": 0, "cpus": 8, "idle_w": 30.0}],
        }
    )


@pytest.fixture
def three_jobs() -> Case:
    """Two nodes of 2 GPUs. A: both GPUs of node 0; B: one GPU of node 1; C: three GPUs, after both.

    time     0    10   20   40   60   100 s
    node 0   .    A    A    A    C     C      A [0, 40), B [20, 60), C [60, 100)
    node 1   .    .    B    B    C     C
    """
    jobs = workload(submit_s=[0, 10, 10], duration_s=[40.0, 40.0, 8.0], gpus=[2, 1, 3], user=["u", "v", "u"])
    plan = make_schedule((0, 40, {0: 2}), (20, 60, {1: 1}), (60, 100, {0: 2, 1: 1}))
    return jobs, parse_cluster("2x2"), plan


def value(name: str, case: Case, **options: float) -> Any:
    return compute_metrics(*case, **options)[name]


# waits 0, 10, 50; completion times 40, 50, 90; slowdowns 40/40, 50/40, 90/8; bounded 1, 1.25, 90/10.
HAND = {
    "wait_s": [0.0, 10.0, 50.0],
    "jct_s": [40.0, 50.0, 90.0],
    "slowdown": [1.0, 1.25, 11.25],
    "bounded_slowdown": [1.0, 1.25, 9.0],
}


@pytest.mark.parametrize("column", COLUMNS)
def test_mean_and_max_over_jobs(column: str, three_jobs: Case) -> None:
    assert value(f"mean_{column}", three_jobs) == pytest.approx(sum(HAND[column]) / 3, rel=1e-15)
    assert value(f"max_{column}", three_jobs) == max(HAND[column])


@pytest.mark.parametrize("column", COLUMNS)
def test_percentiles_interpolate_linearly(column: str, three_jobs: Case) -> None:
    _, middle, high = HAND[column]
    assert value(f"p50_{column}", three_jobs) == middle
    # Three values: p95 lies at position 0.95 * 2 = 1.9 and p99 at 1.98, between the second and the third.
    assert value(f"p95_{column}", three_jobs) == pytest.approx(middle + 0.9 * (high - middle))
    assert value(f"p99_{column}", three_jobs) == pytest.approx(middle + 0.98 * (high - middle))


def test_bounded_slowdown_is_never_below_one() -> None:
    # 2 s of work started at once: 2 / max(2, 10) = 0.2, which counts as 1.
    case = (
        workload(submit_s=[0], duration_s=[2.0], gpus=[1]),
        parse_cluster("1x1"),
        make_schedule((0, 2, {0: 1})),
    )
    assert value("mean_bounded_slowdown", case) == 1.0
    assert value("mean_slowdown", case) == 1.0


def test_slowdown_refers_to_a_gpu_of_speed_one(two_speeds: Cluster) -> None:
    # 40 s of work on a GPU of speed 2 take 20 s.
    case = workload(submit_s=[0], duration_s=[40.0], gpus=[1]), two_speeds, make_schedule((0, 20, {1: 1}))
    assert value("mean_slowdown", case) == 0.5


def test_makespan_runs_from_first_submit_to_last_finish(three_jobs: Case) -> None:
    assert value("makespan_s", three_jobs) == 100.0


def test_gpu_utilization_is_held_over_available_gpu_time(three_jobs: Case) -> None:
    # (2 * 40 + 1 * 40 + 3 * 40) / (4 * 100)
    assert value("gpu_utilization", three_jobs) == pytest.approx(240 / 400)


def test_a_shared_gpu_is_utilised_by_fraction() -> None:
    # 0.25 * 10 + 0.5 * 20 of 1 * 20 GPU-seconds
    jobs = workload(submit_s=[0, 0], duration_s=[10.0, 20.0], gpus=[1, 1], gpu_milli=[250, 500])
    plan = make_schedule((0, 10, {0: 1}), (0, 20, {0: 1}), gpu_index=[0, 0])
    assert value("gpu_utilization", (jobs, parse_cluster("1x1"), plan)) == pytest.approx(12.5 / 20)


def test_flops_utilization_weighs_gpus_by_speed(two_speeds: Cluster) -> None:
    # Makespan 30 s. Held 2 * 30 * 1 on node 0 and 1 * 10 * 2 on node 1, of (2 * 1 + 1 * 2) * 30.
    jobs = workload(submit_s=[0, 0], duration_s=[30.0, 20.0], gpus=[2, 1])
    case = jobs, two_speeds, make_schedule((0, 30, {0: 2}), (0, 10, {1: 1}))
    assert value("flops_utilization", case) == pytest.approx(80 / 120)
    assert value("gpu_utilization", case) == pytest.approx(70 / 90)


def test_cpus_and_memory_of_a_gang_are_rounded_up_on_each_node(limited: Cluster) -> None:
    # 3 GPUs as 2 + 1. 4 CPUs: ceil(8/3) + ceil(4/3) = 3 + 2 of 2 * 8; 100 MiB: 67 + 34 of 2 * 1000.
    jobs = workload(submit_s=[0], duration_s=[10.0], gpus=[3], cpus=[4], memory_mib=[100])
    case = jobs, limited, make_schedule((0, 10, {0: 2, 1: 1}))
    assert value("cpu_utilization", case) == pytest.approx(5 / 16)
    assert value("memory_utilization", case) == pytest.approx(101 / 2000)


def test_shared_and_cpu_only_jobs_take_all_their_cpus_on_one_node(limited: Cluster) -> None:
    # 3 CPUs for 10 s and 5 CPUs for 20 s of 16 CPUs for 20 s.
    jobs = workload(submit_s=[0, 0], duration_s=[10.0, 20.0], gpus=[1, 0], gpu_milli=[500, 1000], cpus=[3, 5])
    case = jobs, limited, make_schedule((0, 10, {0: 1}), (0, 20, {1: 0}), gpu_index=[0, -1])
    assert value("cpu_utilization", case) == pytest.approx(130 / 320)


def test_utilization_of_unlimited_cpus_is_unknown(three_jobs: Case) -> None:
    assert value("cpu_utilization", three_jobs) is None
    assert value("memory_utilization", three_jobs) is None


def test_load_imbalance_is_the_time_mean_of_the_variance(three_jobs: Case) -> None:
    # Utilisation of the nodes: [0, 20) 1, 0: variance 1/4; [20, 40) 1, 1/2: 1/16; [40, 60) 0, 1/2: 1/16;
    # [60, 100) 1, 1/2: 1/16.
    assert value("load_imbalance", three_jobs) == pytest.approx((20 / 4 + 20 / 16 + 20 / 16 + 40 / 16) / 100)


def test_fragmentation_is_the_free_share_on_partly_used_nodes(three_jobs: Case) -> None:
    # Free on partly used / free: [0, 20) 0/2; [20, 40) 1/1; [40, 60) 1/3; [60, 100) 1/1.
    assert value("fragmentation", three_jobs) == pytest.approx((20 * 1 + 20 / 3 + 40 * 1) / 100)


def test_nothing_is_fragmented_while_no_gpu_is_free() -> None:
    case = (
        workload(submit_s=[0], duration_s=[5.0], gpus=[2]),
        parse_cluster("1x2"),
        make_schedule((0, 5, {0: 2})),
    )
    assert value("fragmentation", case) == 0.0


def test_queue_length_throughput_and_completion(three_jobs: Case) -> None:
    assert value("mean_queue_length", three_jobs) == pytest.approx(60 / 100)  # waits 0 + 10 + 50
    assert value("throughput_jobs_per_h", three_jobs) == pytest.approx(3 / (100 / 3600))
    assert value("completed_jobs", three_jobs) == 3
    assert value("completion_rate", three_jobs) == 1.0


def test_dropped_and_timed_out_jobs_are_not_completed(three_jobs: Case) -> None:
    jobs, cluster, _ = three_jobs
    plan = make_schedule((0, 40, {0: 2}), (20, 60, {1: 1}), job=[0, 1], status=[1, 0])
    result = compute_metrics(jobs, cluster, plan)
    assert result["completed_jobs"] == 1
    assert result["completion_rate"] == pytest.approx(1 / 3)
    assert result["throughput_jobs_per_h"] == pytest.approx(60.0)  # one in 60 s


def test_users_are_judged_by_their_mean_bounded_slowdown(three_jobs: Case) -> None:
    # u: (1 + 9) / 2 = 5, v: 1.25. Jain: (5 + 1.25)^2 / (2 * (5^2 + 1.25^2))
    assert value("jain_fairness", three_jobs) == pytest.approx(6.25**2 / (2 * 26.5625))


def test_finish_time_fairness_divides_by_the_users_present(three_jobs: Case) -> None:
    # u is present in [0, 100), v in [10, 60): two users in every stay. 40/80, 50/80, 90/16; p95 at place 1.9.
    assert value("finish_time_fairness_p95", three_jobs) == pytest.approx(0.625 + 0.9 * (5.625 - 0.625))


def test_a_user_who_leaves_as_another_arrives_is_not_present_with_them() -> None:
    # Stays [0, 10) and [10, 20) of two users touch but do not overlap: one user each, 10 / (10 * 1).
    jobs = workload(submit_s=[0, 10], duration_s=[10.0, 10.0], gpus=[1, 1], user=["u", "v"])
    plan = make_schedule((0, 10, {0: 1}), (10, 20, {0: 1}))
    assert value("finish_time_fairness_p95", (jobs, parse_cluster("1x1"), plan)) == 1.0


def test_a_deadline_is_missed_by_finishing_late_or_not_completing() -> None:
    # Ends 10, 20, 30, never; due 10 (met), 19 (late), 40 (but timed out), 99 (never ran); the fifth has none.
    jobs = workload(
        submit_s=[0, 0, 0, 0, 0],
        duration_s=[10.0] * 5,
        gpus=[1, 1, 1, 9, 1],
        deadline_s=[10.0, 19.0, 40.0, 99.0, None],
    )
    runs = [(0, 10, {0: 1}), (10, 20, {0: 1}), (20, 30, {0: 1}), (30, 40, {0: 1})]
    plan = make_schedule(*runs, job=[0, 1, 2, 4], status=[0, 0, 1, 0])
    assert value("deadline_miss_rate", (jobs, parse_cluster("1x1"), plan)) == pytest.approx(3 / 4)


def test_deadline_miss_rate_without_deadlines_is_unknown(three_jobs: Case) -> None:
    assert value("deadline_miss_rate", three_jobs) is None


def test_starved_jobs_waited_more_than_a_day() -> None:
    day = 86400.0
    jobs = workload(submit_s=[0, 0], duration_s=[day, 1.0], gpus=[1, 1])
    exactly = make_schedule((0, day, {0: 1}), (day, day + 1, {0: 1}))
    longer = make_schedule((0, day, {0: 1}), (day + 1e-6, day + 1, {0: 1}))
    assert value("starved_jobs", (jobs, parse_cluster("1x1"), exactly)) == 0
    assert value("starved_jobs", (jobs, parse_cluster("1x1"), longer)) == 1


def test_backfilled_jobs_are_counted_and_nothing_is_preempted(three_jobs: Case) -> None:
    jobs, cluster, plan = three_jobs
    result = compute_metrics(jobs, cluster, replace(plan, backfilled=np.array([False, True, False])))
    assert (result["backfilled_jobs"], result["preemptions"], result["lost_gpu_h"]) == (1, 0, 0.0)


def test_energy_is_nodes_idle_draw_plus_peak_or_idle_draw_of_each_gpu(powered: Cluster) -> None:
    # 100 s: nodes (50 + 30) * 100; GPU 0 busy 60 s: 100 * 60 + 20 * 40; GPU 1 idle: 20 * 100. 16,800 J.
    jobs = workload(submit_s=[0, 0], duration_s=[60.0, 100.0], gpus=[1, 0])
    case = jobs, powered, make_schedule((0, 60, {0: 1}), (0, 100, {1: 0}))
    assert value("energy_kwh", case) == pytest.approx(16_800 / 3.6e6)
    assert value("energy_per_job_kwh", case) == pytest.approx(8_400 / 3.6e6)
    assert value("energy_cost", case, price_per_kwh=0.3) == pytest.approx(16_800 / 3.6e6 * 0.3)
    assert value("energy_cost", case) is None


def test_a_shared_gpu_draws_peak_power_while_any_job_is_on_it(powered: Cluster) -> None:
    # GPU 0: [0, 40) and [20, 60) overlap, then [80, 100): busy 80 s. GPU 1: [0, 50). Makespan 100 s.
    # Nodes 80 * 100; GPUs idle 2 * 20 * 100; busy adds (100 - 20) * (80 + 50). 22,400 J.
    jobs = workload(
        submit_s=[0, 0, 20, 80],
        duration_s=[40.0, 50.0, 40.0, 20.0],
        gpus=[1] * 4,
        gpu_milli=[100, 700, 900, 500],
    )
    runs = [(0, 40, {0: 1}), (0, 50, {0: 1}), (20, 60, {0: 1}), (80, 100, {0: 1})]
    case = jobs, powered, make_schedule(*runs, gpu_index=[0, 1, 0, 0])
    assert value("energy_kwh", case) == pytest.approx(22_400 / 3.6e6)


def test_energy_without_watts_is_unknown(three_jobs: Case) -> None:
    result = compute_metrics(*three_jobs, price_per_kwh=0.3)
    assert [result[name] for name in ("energy_kwh", "energy_cost", "energy_per_job_kwh")] == [None] * 3


def test_a_cluster_without_gpus_has_no_gpu_metrics() -> None:
    cluster = Cluster.model_validate({"nodes": [{"gpus": 0, "cpus": 4}]})
    result = compute_metrics(
        workload(submit_s=[0], duration_s=[10.0], gpus=[0], cpus=[3]), cluster, make_schedule((0, 10, {0: 0}))
    )
    unknown = ("gpu_utilization", "flops_utilization", "load_imbalance", "fragmentation", "energy_kwh")
    assert [result[name] for name in unknown] == [None] * len(unknown)
    assert result["cpu_utilization"] == pytest.approx(3 / 4)


def test_a_schedule_of_no_jobs_has_counts_but_no_averages(three_jobs: Case) -> None:
    jobs, cluster, _ = three_jobs
    result = compute_metrics(jobs, cluster, make_schedule())
    assert (result["completed_jobs"], result["completion_rate"], result["mean_wait_s"]) == (0, 0.0, None)
    assert result["makespan_s"] is None


def test_a_schedule_that_overfills_a_node_is_refused(three_jobs: Case) -> None:
    jobs, cluster, _ = three_jobs
    plan = make_schedule((0, 40, {0: 2}), (39, 60, {0: 1}), (60, 100, {0: 2, 1: 1}))
    with pytest.raises(ValueError, match="node 0 is given more work than it has GPUs"):
        compute_metrics(jobs, cluster, plan)


def test_breakdown_by_group_judges_each_group_by_its_own_jobs(three_jobs: Case) -> None:
    jobs, cluster, plan = three_jobs
    grouped = Workload(jobs.frame.with_columns(group=pl.Series(["b", "a", "b"])), jobs.metadata)
    table = compute_breakdown(grouped, cluster, plan, "group")
    assert table["class"].to_list() == ["b", "a"], "by number of jobs"
    assert table["jobs"].to_list() == [2, 1]
    assert table["mean_wait_s"].to_list() == [25.0, 10.0]  # b: (0 + 50) / 2
    assert table["max_bounded_slowdown"].to_list() == [9.0, 1.25]
    assert table["gpu_utilization"].to_list() == pytest.approx([200 / 400, 40 / 400])
    assert table["completion_rate"].to_list() == [1.0, 1.0]


def test_breakdown_by_priority_is_in_order_of_priority(three_jobs: Case) -> None:
    jobs, cluster, plan = three_jobs
    ranked = Workload(jobs.frame.with_columns(priority=pl.Series([10.0, 2.5, 2.5])), jobs.metadata)
    table = compute_breakdown(ranked, cluster, plan, "priority")
    assert table["class"].to_list() == ["2.5", "10"]
    assert table["mean_wait_s"].to_list() == [30.0, 0.0]


def test_breakdown_by_gpus_has_the_documented_classes_and_counts_dropped_jobs() -> None:
    sizes = [0, 1, 1, 2, 4, 5, 8, 9, 16, 17, 64, 65]
    milli = [1000, 500, *[1000] * 10]
    jobs = workload(submit_s=[0] * 12, duration_s=[1.0] * 12, gpus=sizes, gpu_milli=milli)
    runs = [(k, k + 1.0, {0: size}) for k, size in enumerate(sizes[:-1])]
    plan = make_schedule(*runs, gpu_index=[-1, 0, *[-1] * 9])
    table = compute_breakdown(jobs, parse_cluster("1x64"), plan, "gpus")
    assert table["class"].to_list() == ["0", "<1", "1", "2-4", "5-8", "9-16", "17-64", ">64"]
    assert table["jobs"].to_list() == [1, 1, 1, 2, 2, 2, 2, 1]
    assert table["completion_rate"].to_list() == [1.0] * 7 + [0.0]
    assert table["mean_wait_s"].to_list() == [0.0, 1.0, 2.0, 3.5, 5.5, 7.5, 9.5, None]


@pytest.mark.parametrize(
    "name", ["gpu_utilization", "mean_queue_length", "throughput_jobs_per_h", "completed_jobs"]
)
@pytest.mark.parametrize("by", ["user", "group", "gpus", "runtime", "priority"])
def test_shares_of_the_classes_add_up_to_the_whole(name: str, by: str, three_jobs: Case) -> None:
    assert compute_breakdown(*three_jobs, by)[name].sum() == pytest.approx(value(name, three_jobs))


def test_a_breakdown_by_something_else_is_refused(three_jobs: Case) -> None:
    with pytest.raises(InputError, match="did you mean 'group'"):
        compute_breakdown(*three_jobs, "groups")


def test_every_metric_stands_in_the_docs_with_its_unit_and_direction() -> None:
    text = PAGE.read_text()
    for entry in metrics().values():
        assert f"| `{entry.name}` | {entry.unit} | {entry.direction} |" in text


def test_metrics_are_reported_in_order_of_registration(three_jobs: Case) -> None:
    result = compute_metrics(*three_jobs)
    assert list(result) == list(metrics())
    assert all(isinstance(number, float | int | None) for number in result.values())


# --- Some of the jobs, with the cluster as all of them use it ---


def test_metrics_of_some_jobs_are_theirs_and_use_is_that_of_all_while_they_come() -> None:
    """Job 0 holds both GPUs until 30 s; job 1 comes at 10 s and runs 30 to 80; job 2 runs 60 to 160."""
    jobs = workload(submit_s=[0.0, 10.0, 60.0], duration_s=[30.0, 50.0, 100.0], gpus=[2, 1, 1])
    cluster = parse_cluster("1x2")
    schedule = simulate(jobs, cluster, "fifo").schedule
    assert (schedule.start_us / 1e6).tolist() == [0.0, 30.0, 60.0]
    found = compute_metrics(jobs, cluster, schedule, measured=range(1, 3))
    assert (found["mean_wait_s"], found["max_wait_s"], found["mean_jct_s"]) == (10.0, 20.0, 85.0)
    assert found["completed_jobs"] == 2
    # From the first submit of the two to the last, 10 s to 60 s: 20 s x 2 GPUs of job 0, 30 s x 1 of job 1.
    assert found["gpu_utilization"] == pytest.approx(70.0 / 100.0)
    assert found["mean_queue_length"] == pytest.approx(20.0 / 50.0)
    for name in ("makespan_s", "throughput_jobs_per_h", "energy_kwh", "energy_cost", "asleep_node_h"):
        assert found[name] is None, name
    assert found.keys() == metrics().keys()


def test_metrics_of_all_jobs_are_those_of_the_schedule() -> None:
    jobs = workload(submit_s=[0.0, 10.0, 60.0], duration_s=[30.0, 50.0, 100.0], gpus=[2, 1, 1])
    cluster = parse_cluster("1x2")
    schedule = simulate(jobs, cluster, "fifo").schedule
    assert compute_metrics(jobs, cluster, schedule, measured=range(3)) == (
        compute_metrics(jobs, cluster, schedule)
    )


def test_a_single_job_has_no_stretch_of_time() -> None:
    jobs = workload(submit_s=[0.0, 10.0, 60.0], duration_s=[30.0, 50.0, 100.0], gpus=[2, 1, 1])
    cluster = parse_cluster("1x2")
    schedule = simulate(jobs, cluster, "fifo").schedule
    found = compute_metrics(jobs, cluster, schedule, measured=range(1, 2))
    assert (found["mean_wait_s"], found["gpu_utilization"], found["mean_queue_length"]) == (20.0, None, None)
