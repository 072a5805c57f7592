"""The summary of a workload, against numbers worked out by hand."""

import json

import polars as pl
import pytest

from gpuyard.cluster.model import parse_cluster
from gpuyard.workload import describe, make_workload


@pytest.fixture
def jobs():
    return make_workload(
        pl.DataFrame(
            {
                "submit_s": [0.0, 10.0, 30.0, 100.0],
                "duration_s": [100.0, 200.0, 300.0, 400.0],
                "gpus": [1, 1, 4, 0],
                "gpu_milli": [500, 1000, 1000, 1000],
                "estimate_s": [200.0, None, 1200.0, None],
                "user": ["ann", "bob", "ann", ""],
                "group": ["x", "x", "x", "x"],
                "status": ["completed", "failed", "completed", None],
            }
        ),
        name="four",
    )


def test_counts_and_spans(jobs):
    summary = describe(jobs)
    assert summary["name"] == "four"
    assert (summary["jobs"], summary["users"], summary["groups"]) == (4, 2, 1)
    assert (summary["cpu_only_jobs"], summary["shared_gpu_jobs"]) == (1, 1)
    assert summary["span_s"] == 100.0
    assert summary["gpu_hours"] == pytest.approx((50 + 200 + 1200) / 3600)
    assert summary["statuses"] == {"completed": 2, "failed": 1, "unknown": 1}


def test_load_is_work_over_the_cluster_s_gpu_time_in_the_span(jobs):
    assert describe(jobs, parse_cluster("1x4"))["load"] == pytest.approx(1450 / (100 * 4))
    assert describe(jobs)["load"] is None
    assert describe(jobs, parse_cluster("farm-small"))["load"] is None


def test_gang_sizes_have_shares_of_jobs_and_of_gpu_time(jobs):
    sizes = describe(jobs)["gang_sizes"]
    assert [entry["gpus"] for entry in sizes] == [0.0, 0.5, 1.0, 4.0]
    assert [entry["share_of_jobs"] for entry in sizes] == [0.25] * 4
    assert [entry["share_of_gpu_time"] for entry in sizes] == pytest.approx(
        [0, 50 / 1450, 200 / 1450, 1200 / 1450]
    )


def test_quantiles_interpolate_linearly(jobs):
    summary = describe(jobs)
    assert summary["duration_s"]["p50"] == 250.0
    assert summary["duration_s"]["p90"] == pytest.approx(370.0)
    assert (summary["duration_s"]["max"], summary["duration_s"]["mean"]) == (400.0, 250.0)
    assert summary["interarrival_s"]["p50"] == 20.0
    assert summary["gpus"]["max"] == 4.0


def test_estimates_are_compared_with_durations(jobs):
    assert describe(jobs)["estimates"] == {"jobs": 2, "median_estimate_over_duration": 3.0}


def test_a_single_job_without_anything_still_describes_itself():
    lone = make_workload(pl.DataFrame({"submit_s": [5.0], "duration_s": [1.0], "gpus": [0]}))
    summary = describe(lone, parse_cluster("demo"))
    assert summary["load"] is None
    assert summary["interarrival_s"] is None
    assert summary["estimates"] == {"jobs": 0, "median_estimate_over_duration": None}
    assert summary["gang_sizes"][0]["share_of_gpu_time"] is None


def test_the_summary_is_plain_json(jobs):
    summary = describe(jobs, parse_cluster("demo"))
    assert json.loads(json.dumps(summary, allow_nan=False)) == summary
