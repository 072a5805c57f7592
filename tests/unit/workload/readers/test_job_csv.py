"""Reduced job tables: job_id, arrival_s, service_sec, gpu_count."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuyard.workload import import_trace
from gpuyard.workload.readers.job_csv import JobCsvFormat
from support.damage import damaged, import_or_refuse
from support.paths import DATA

TABLE = DATA / "job-csv" / "jobs.csv"
HEADER = "job_id,arrival_s,service_sec,gpu_count\n"


def write(tmp_path: Path, *rows: str) -> Path:
    path = tmp_path / "jobs.csv"
    path.write_text(HEADER + "\n".join(rows) + "\n")
    return path


def test_the_table_is_recognised_by_exactly_its_header():
    assert JobCsvFormat.role_of(HEADER.encode(), "x") == "jobs"
    assert JobCsvFormat.role_of(b"job_id,arrival_s,service_sec\n", "x") is None
    assert JobCsvFormat.role_of(b"job_id,arrival_s,service_sec,gpu_count,user\n", "x") is None


def test_rows_become_jobs():
    jobs = import_trace([TABLE]).workload.frame
    assert jobs.select("submit_s", "duration_s", "gpus", "source_id").rows()[:2] == [
        (0.0, 172800.0, 32, "363167#0"), (651507.0, 172800.0, 8, "394948#2"),
    ]  # fmt: skip


def test_the_clock_of_the_file_is_kept(tmp_path):
    trace = import_trace([write(tmp_path, "a,16670.0,5,1")])
    assert trace.workload.metadata.epoch_s == 16670.0


def test_a_cut_at_48_hours_is_reported_with_its_number_of_jobs():
    assert any("172,800 s (48 h): 2 jobs" in text for text in import_trace([TABLE]).report.assumed)


@pytest.mark.parametrize("longest", ["172799", "172801"])
def test_no_cut_is_reported_where_there_is_none(tmp_path, longest):
    report = import_trace([write(tmp_path, "a,0,5,1", f"b,0,{longest},1")]).report
    assert report.assumed == ()


def test_tasks_of_pai_are_reported_for_what_they_are():
    assert any("when a task started" in text for text in import_trace([TABLE]).report.assumed)


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        ("a,-1,5,1", "arrival_s is negative or more than 4294967296 s"),
        ("a,,5,1", "arrival_s is not a number of seconds"),
        ("a,0,0,1", "never ran: service_sec is not positive"),
        ("a,0,inf,1", "service_sec is not a number of seconds"),
        ("a,0,5,0", "gpu_count is not a whole number from 1 to 2147483647"),
        ("a,0,5", "another number of fields than 4"),
    ],
)
def test_rows_that_cannot_be_jobs_are_rejected_with_a_reason(tmp_path, row, reason):
    (found,) = import_trace([write(tmp_path, "b,0,1,1", row)]).report.rejected
    assert (found.reason, found.rows, found.first) == (reason, 1, ("jobs.csv:3",))


@given(st.data())
def test_damaged_files_are_refused_or_accounted_for(tmp_path_factory, data):
    path = tmp_path_factory.mktemp("job-csv") / "jobs.csv"
    path.write_bytes(data.draw(damaged(TABLE.read_bytes())))
    import_or_refuse([path], "job-csv")


@given(st.binary(max_size=300))
def test_random_bytes_are_refused_or_accounted_for(tmp_path_factory, content):
    path = tmp_path_factory.mktemp("job-csv") / "jobs.csv"
    for start in (b"", TABLE.read_bytes()):
        path.write_bytes(start + content)
        import_or_refuse([path], "job-csv")
