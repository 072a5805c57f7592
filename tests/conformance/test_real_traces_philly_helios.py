"""Public copies of Philly, Helios and PAI jobs: counts and quantiles as computed from the files themselves.

Every file here is read without one rejected row, so that the numbers are those of the raw files.
"""

import gzip
import json
from pathlib import Path

import polars as pl
import pytest

from gpuyard.workload import import_trace
from gpuyard.workload.formats import ImportedTrace


def imported(shared_traces: Path, *names: str, **options: str) -> ImportedTrace:
    paths = [shared_traces / name for name in names]
    for path in paths:
        if not path.is_file():
            pytest.skip(f"{path} is not there")
    trace = import_trace(paths, **options)
    assert trace.report.rejected == ()
    assert trace.report.repaired == ()
    return trace


def quantiles(trace: ImportedTrace, *shares: float) -> list[float]:
    """As the statistics were computed: the value at position floor(share x number of jobs) when sorted."""
    durations = trace.workload.frame["duration_s"].sort()
    return [durations[int(share * len(durations))] for share in shares]


def share_of_gpus(trace: ImportedTrace, gpus: int) -> float:
    return (trace.workload.frame["gpus"] == gpus).mean()


def span_days(trace: ImportedTrace) -> float:
    return trace.workload.frame["submit_s"].max() / 86400


def gpu_hours(trace: ImportedTrace) -> float:
    return trace.workload.frame.select(pl.col("gpus").dot(pl.col("duration_s"))).item() / 3600


PHILLY_CSV = "philly/philly_pollux.csv.gz"
PHILLY_ATTEMPTS = "philly/philly_attempts_subset_3034.json.gz"
VENUS = "helios/venus_gpu_jobs_clamped48h.csv.gz"
PAI = "alibaba-pai-2020/pai_terminated_gpu_tasks_sample60k.csv.gz"


def test_the_reduced_philly_table_has_its_published_shape(shared_traces):
    trace = imported(shared_traces, PHILLY_CSV)
    jobs = trace.workload.frame
    assert (trace.report.format, len(jobs)) == ("philly-csv", 82_247)
    assert span_days(trace) == pytest.approx(109, abs=0.5)
    assert trace.workload.metadata.epoch_s == 1504521041.0  # 2017-09-04 10:30:41
    expected = [61, 115, 1144, 2932, 11266, 43648, 254884]
    assert quantiles(trace, 0.1, 0.25, 0.5, 0.75, 0.9, 0.95, 0.99) == expected
    assert (jobs["gpus"].max(), jobs["gpus"].mean()) == (128, pytest.approx(1.30, abs=0.005))
    shares = {1: 0.932, 2: 0.022, 4: 0.023, 8: 0.020, 16: 0.0024, 32: 0.0008}
    assert {gpus: share_of_gpus(trace, gpus) for gpus in shares} == pytest.approx(shares, abs=6e-4)
    assert (jobs["duration_s"].mean(), jobs["duration_s"].max()) == pytest.approx((13_136, 4.63e6), rel=1e-3)
    assert gpu_hours(trace) == pytest.approx(978_078, abs=1)
    assert (jobs["group"] == "6214e9").sum() == 41_226
    assert (jobs["duration_s"] < 60).mean() == pytest.approx(0.093, abs=5e-4)


def test_the_nodes_of_philly_s_virtual_clusters_are_read(shared_traces):
    cluster = imported(shared_traces, PHILLY_CSV, "philly/philly_vc_nodes.csv").cluster
    assert (cluster.node_count, cluster.total_gpus, len(cluster.owners)) == (352, 2816, 11)


def test_philly_s_attempts_span_what_their_maker_computed(shared_traces):
    """``runtime`` in the file is minutes from the first start to the last end."""
    trace = imported(shared_traces, PHILLY_ATTEMPTS, duration="span")
    assert (trace.report.format, len(trace.workload)) == ("philly", 3_034)
    records = json.loads(gzip.decompress((shared_traces / PHILLY_ATTEMPTS).read_bytes()))
    minutes = {record["id"]: record["runtime"] for record in records}
    spans = dict(trace.workload.frame.select("source_id", "duration_s").iter_rows())
    assert spans == pytest.approx({name: runtime * 60 for name, runtime in minutes.items()})


def test_sums_of_philly_s_attempts_are_the_durations_of_the_reduced_table(shared_traces):
    """3,024 of the 3,034 jobs are found again by submit time and GPUs, each with the sum as its duration."""
    attempts = imported(shared_traces, PHILLY_ATTEMPTS).workload
    table = imported(shared_traces, PHILLY_CSV).workload
    assert attempts.metadata.epoch_s == table.metadata.epoch_s
    keys = ["submit_s", "gpus"]
    found = attempts.frame.select(*keys, "duration_s", "source_id").join(
        table.frame.select(*keys, reduced_s="duration_s"), on=keys
    )
    assert found["source_id"].n_unique() == 3_024
    same = found.filter((pl.col("duration_s") - pl.col("reduced_s")).abs() <= 1)
    assert same["source_id"].n_unique() == 3_024


def test_the_reduced_venus_log_has_its_published_shape(shared_traces):
    trace = imported(shared_traces, VENUS)
    jobs = trace.workload.frame
    assert (trace.report.format, len(jobs)) == ("job-csv", 125_303)
    assert quantiles(trace, 0.5, 0.75, 0.9, 0.95) == [204, 1285, 18_201, 58_055]
    shares = {1: 0.518, 2: 0.056, 4: 0.073, 8: 0.247, 16: 0.042, 32: 0.027}
    assert {gpus: share_of_gpus(trace, gpus) for gpus in shares} == pytest.approx(shares, abs=6e-4)
    assert (jobs["gpus"].max(), jobs["gpus"].mean()) == (200, pytest.approx(6.74, abs=0.005))
    assert gpu_hours(trace) == pytest.approx(2.42e6, rel=3e-3)
    assert any("2,379 jobs" in text for text in trace.report.assumed)


def test_the_sample_of_pai_tasks_has_its_published_shape(shared_traces):
    trace = imported(shared_traces, PAI)
    jobs = trace.workload.frame
    assert (trace.report.format, len(jobs)) == ("job-csv", 60_105)
    assert span_days(trace) == pytest.approx(63.7, abs=0.05)
    assert quantiles(trace, 0.5, 0.9, 0.99) == [618, 12_201, 66_192]
    assert (jobs["gpus"].max(), jobs["gpus"].mean()) == (400, pytest.approx(4.97, abs=0.005))
    assert share_of_gpus(trace, 1) == pytest.approx(0.77, abs=0.005)


@pytest.mark.parametrize(
    ("name", "day", "gpus"),
    [
        ("Venus", "2020-04-01", 968),
        ("Venus", None, 1064),
        ("Earth", "2020-04-01", 784),
        ("Earth", None, 1144),
    ],
)
def test_helios_virtual_clusters_own_the_gpus_of_the_day(shared_traces, tmp_path, name, day, gpus):
    numbers = shared_traces / "helios" / f"{name}_cluster_gpu_number.csv"
    if not numbers.is_file():
        pytest.skip(f"{numbers} is not there")
    log = tmp_path / "cluster_log.csv"
    log.write_text(
        "job_id,user,vc,gpu_num,cpu_num,node_num,state,submit_time,start_time,end_time,duration,queue\n"
        "1,u,vcIya,8,8,1,COMPLETED,2020-09-01 00:00:00,2020-09-01 00:00:00,2020-09-01 00:00:09,9,0\n"
    )
    trace = import_trace([log, numbers], **({"date": day} if day else {}))
    assert trace.cluster.total_gpus == gpus
    assert {group.gpus for group in trace.cluster.nodes} == {8}
    # vcIya owns nothing on any of these days in either cluster, and its job is kept and reported.
    assert any("vcIya 1" in text for text in trace.report.assumed)
