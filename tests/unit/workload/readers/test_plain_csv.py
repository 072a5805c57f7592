"""Reduced job tables: arrival_time, runtime, gpus, priority."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuyard.errors import InputError
from gpuyard.workload import import_trace
from gpuyard.workload.readers.plain_csv import PlainCsvFormat
from support.damage import damaged, import_or_refuse
from support.paths import DATA

TABLE = DATA / "plain-csv" / "jobs.csv"


@pytest.fixture
def with_zero(tmp_path) -> Path:
    path = tmp_path / "jobs.csv"
    path.write_text(TABLE.read_text() + "20,30,0,0.5\n")
    return path


def test_the_table_is_recognised_by_exactly_its_header():
    assert PlainCsvFormat.role_of(TABLE.read_bytes(), "x") == "jobs"
    assert PlainCsvFormat.role_of(b"arrival_time,runtime,gpus\n", "x") is None


def test_rows_become_jobs_with_their_priority():
    trace = import_trace([TABLE])
    jobs = trace.workload.frame.select("submit_s", "duration_s", "gpus", "priority").rows()
    assert jobs == [(0.0, 5660000.0, 8, 5.0), (12.5, 1216.0, 1, 0.5)]
    assert trace.report.rejected[0].reason == "never ran: runtime is not positive"


def test_zero_gpus_are_ambiguous_and_refused_with_the_line_and_the_remedy(with_zero):
    with pytest.raises(
        InputError, match=r"jobs\.csv, line 5, column gpus: is 0.*`option\.zero_gpus` \(cpu, one or reject\)"
    ):
        import_trace([with_zero])


def test_zero_gpus_are_one_gpu_where_reading_is_lenient(with_zero):
    trace = import_trace([with_zero], strict=False)
    assert trace.workload.frame["gpus"].to_list() == [8, 1, 1]
    assert any("taken as one GPU" in text for text in trace.report.assumed)
    assert trace.report.repaired[0].rows == 1


@pytest.mark.parametrize(("meaning", "gpus"), [("cpu", [8, 1, 0]), ("one", [8, 1, 1]), ("reject", [8, 1])])
def test_the_user_can_say_what_zero_gpus_mean(with_zero, meaning, gpus):
    trace = import_trace([with_zero], zero_gpus=meaning)
    assert trace.workload.frame["gpus"].to_list() == gpus


def test_an_empty_priority_is_the_default_and_a_word_is_rejected(tmp_path):
    path = tmp_path / "jobs.csv"
    path.write_text("arrival_time,runtime,gpus,priority\n0,1,1,\n0,1,1,high\n")
    trace = import_trace([path])
    assert trace.workload.frame["priority"].to_list() == [1.0]
    assert trace.report.rejected[0].reason == "priority is not a number"


@given(st.data())
def test_damaged_files_are_refused_or_accounted_for(tmp_path_factory, data):
    path = tmp_path_factory.mktemp("plain-csv") / "jobs.csv"
    path.write_bytes(data.draw(damaged(TABLE.read_bytes())))
    meaning = data.draw(st.sampled_from(("cpu", "one", "reject", None)))
    import_or_refuse([path], "plain-csv", strict=data.draw(st.booleans()), zero_gpus=meaning)


@given(st.binary(max_size=300))
def test_random_bytes_are_refused_or_accounted_for(tmp_path_factory, content):
    path = tmp_path_factory.mktemp("plain-csv") / "jobs.csv"
    for start in (b"", TABLE.read_bytes()):
        path.write_bytes(start + content)
        import_or_refuse([path], "plain-csv", strict=False)
