"""The spot-GPU trace: jobs of workers, high-priority or spot."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuyard.errors import InputError
from gpuyard.workload import import_trace
from gpuyard.workload.readers.requests import SHARES_ROUNDED, THOUSANDTHS_ROUNDED
from gpuyard.workload.readers.spot_gpu import SpotGpuFormat
from support.damage import damaged, import_or_refuse
from support.paths import DATA
from support.reading import by_id, read_or_refuse, rejected, repaired

SAMPLES = DATA / "spot-gpu-2026"
JOBS, NODES = SAMPLES / "job_info_df.csv", SAMPLES / "node_info_df.csv"
HEADER = JOBS.read_text().splitlines()[0]


def write(tmp_path: Path, *rows: str, header: str = HEADER) -> Path:
    path = tmp_path / "job_info_df.csv"
    path.write_text("\n".join([header, *rows]) + "\n")
    return path


def test_both_tables_are_recognised_whatever_the_order_of_columns():
    assert SpotGpuFormat.role_of(JOBS.read_bytes(), "x") == "jobs"
    assert SpotGpuFormat.role_of(NODES.read_bytes(), "x") == "nodes"
    assert SpotGpuFormat.role_of(b"node_name,gpu_model,gpu_capacity_num,cpu_num\n", "x") == "nodes"
    assert SpotGpuFormat.role_of(b"," + JOBS.read_bytes(), "x") == "jobs"
    assert SpotGpuFormat.role_of(b"arrival_time,runtime,gpus,priority\n", "job_info_df.csv") is None


def test_a_job_takes_the_gpus_and_cpus_of_all_its_workers():
    job = by_id(import_trace([JOBS]))["2"]
    assert (job["gpus"], job["gpu_milli"], job["cpus"]) == (16, 1000, 240)
    assert (job["gpu_types"], job["user"], job["submit_s"], job["duration_s"]) == (
        ["A100-SXM4-80GB"], "57", 60.0, 41060.0,
    )  # fmt: skip


def test_one_worker_on_a_part_of_a_gpu_shares_it():
    job = by_id(import_trace([JOBS]))["3"]
    assert (job["gpus"], job["gpu_milli"]) == (1, 500)


def test_several_workers_on_parts_of_gpus_take_one_each_and_the_report_says_so():
    trace = import_trace([JOBS])
    assert (by_id(trace)["4"]["gpus"], by_id(trace)["4"]["gpu_milli"]) == (4, 1000)
    assert repaired(trace) == {SHARES_ROUNDED: 1}


def test_a_share_finer_than_a_thousandth_is_rounded_up_and_reported(tmp_path):
    trace = import_trace([write(tmp_path, "1,13,A10,20,0.3333,1,0,10,HP")])
    assert trace.workload.frame["gpu_milli"].to_list() == [334]
    assert repaired(trace) == {THOUSANDTHS_ROUNDED: 1}


def test_high_priority_jobs_have_a_larger_priority_than_spot_jobs():
    jobs = by_id(import_trace([JOBS]))
    assert (jobs["1"]["priority"], jobs["2"]["priority"], jobs["2"]["group"]) == (2.0, 1.0, "Spot")


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        ("2,1,A10,8,1,1,90,0,HP", "never ran: duration is not positive"),
        ("2,1,A10,8,1,1,90,,HP", "no duration"),
        ("2,1,A10,8,1,1,,9,HP", "no submit_time"),
        ("2,1,A10,8,1,0,1,9,HP", "worker_num is no whole number above 0"),
        ("2,1,A10,8,1,1.5,1,9,HP", "worker_num is no whole number above 0"),
        ("2,1,A10,8,-1,1,1,9,HP", "gpu_request or cpu_request is negative"),
        ("2,1,A10,0,0,1,1,9,HP", "asks for neither GPUs nor CPUs"),
        ("2,1,A10,8,1,1,1,9,Mid", "job_type is neither HP nor Spot"),
        ("2,1,A10,8,one,1,1,9,HP", "gpu_request is not a number"),
    ],
)
def test_rows_that_make_no_sense_are_rejected_with_the_reason(tmp_path, row, reason):
    assert rejected(import_trace([write(tmp_path, "1,1,A10,8,1,1,0,10,HP", row)])) == {reason: 1}


def test_a_job_larger_than_the_schema_is_rejected(tmp_path):
    trace = import_trace([write(tmp_path, "1,1,A10,8,1,1,0,10,HP", "2,1,A10,8,1,1e300,0,10,HP")])
    assert list(rejected(trace).values()) == [1]
    assert len(trace.workload) == 1


def test_the_node_table_makes_the_cluster():
    cluster = import_trace([JOBS, NODES]).cluster
    assert [(g.count, g.gpus, g.type, g.cpus) for g in cluster.nodes] == [
        (1, 4, "GPU-series-1", 192),
        (2, 1, "A10", 128),
        (1, 8, "A100-SXM4-80GB", 128),
    ]


def test_a_table_without_a_column_is_refused_and_the_column_named(tmp_path):
    with pytest.raises(InputError, match="worker_num is missing"):
        import_trace([write(tmp_path, header=HEADER.replace("worker_num", "workers"))], "spot-gpu-2026")


@given(jobs=damaged(JOBS.read_bytes()), nodes=damaged(NODES.read_bytes()))
def test_damaged_tables_are_refused_or_accounted_for(tmp_path_factory, jobs, nodes):
    folder = tmp_path_factory.mktemp("spot")
    job_path, node_path = folder / "jobs.csv", folder / "nodes.csv"
    job_path.write_bytes(jobs)
    node_path.write_bytes(nodes)
    import_or_refuse([job_path], "spot-gpu-2026")
    read_or_refuse("spot-gpu-2026", {"jobs": [job_path], "nodes": [node_path]})


@given(data=st.binary(max_size=300))
def test_random_bytes_are_refused(tmp_path_factory, data):
    path = tmp_path_factory.mktemp("spot") / "jobs.csv"
    path.write_bytes(data)
    assert import_or_refuse([path], "spot-gpu-2026") is None
