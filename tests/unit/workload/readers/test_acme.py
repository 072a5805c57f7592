"""Acme: the logs of Seren and Kalos."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuyard.errors import InputError
from gpuyard.workload import import_trace
from gpuyard.workload.readers.acme import AcmeFormat
from gpuyard.workload.readers.helios import HeliosFormat
from support.damage import damaged, import_or_refuse
from support.paths import DATA

SAMPLES = DATA / "acme"
KALOS, SEREN = SAMPLES / "trace_kalos.csv", SAMPLES / "seren" / "trace_seren.csv"


def by_id(trace) -> dict[str, dict]:
    return {job["source_id"]: job for job in trace.workload.frame.iter_rows(named=True)}


def changed(tmp_path: Path, old: str, new: str, source: Path = SEREN) -> Path:
    text = source.read_text()
    assert old in text
    path = tmp_path / source.name
    path.write_text(text.replace(old, new))
    return path


@pytest.mark.parametrize("path", [KALOS, SEREN])
def test_logs_are_recognised_by_content_and_are_not_helios(path):
    assert AcmeFormat.role_of(path.read_bytes(), "x") == "jobs"
    assert HeliosFormat.role_of(path.read_bytes(), "x") is None


def test_times_of_seren_are_converted_from_their_offset():
    trace = import_trace([SEREN])
    assert trace.workload.metadata.epoch_s == 1677601102.0  # 2023-02-28 16:18:22 UTC
    assert not any("UTC" in text for text in trace.report.assumed)
    job = by_id(trace)["5778469"]
    assert (job["submit_s"], job["duration_s"], job["gpus"], job["cpus"]) == (336.0, 2693.0, 8, 128)


def test_run_time_in_kalos_is_end_minus_start_and_the_difference_is_reported():
    trace = import_trace([KALOS])
    assert trace.workload.metadata.epoch_s == 1684321258.0  # 2023-05-17 11:00:58 UTC
    assert by_id(trace)["dlca"]["duration_s"] == 8.0
    repairs = {found.reason: found.rows for found in trace.report.repaired}
    assert repairs["duration is not end_time - start_time: the difference is taken"] == 2


def test_memory_of_kalos_is_that_of_all_pods():
    trace = import_trace([KALOS])
    assert by_id(trace)["dlca"]["memory_mib"] == 8 * 1000 * 1024
    assert by_id(trace)["dlcc"]["memory_mib"] == 0
    assert any("mem_per_pod_GB times node_num" in text for text in trace.report.assumed)


def test_jobs_that_run_or_never_ran_are_rejected_with_their_reasons():
    reasons = {found.reason: found.first for found in import_trace([KALOS]).report.rejected}
    assert reasons == {
        "still running: no end_time": ("trace_kalos.csv:5",),
        "never ran: no start_time": ("trace_kalos.csv:6",),
    }
    (zero,) = import_trace([SEREN]).report.rejected
    assert zero.reason == "never ran: end_time - start_time is not positive"


def test_statuses_are_mapped():
    jobs = by_id(import_trace([KALOS]))
    assert [jobs[name]["status"] for name in ("dlca", "dlcb", "dlcc")] == ["failed", "cancelled", "completed"]


def test_a_running_job_with_an_end_is_kept_with_an_unknown_status(tmp_path):
    trace = import_trace([changed(tmp_path, "FAILED", "RUNNING")])
    assert by_id(trace)["5778432"]["status"] == "unknown"
    assert any("'RUNNING'" in text for text in trace.report.assumed)


def test_cpu_jobs_can_be_dropped():
    assert by_id(import_trace([KALOS]))["dlcc"]["gpus"] == 0
    assert "dlcc" not in by_id(import_trace([KALOS], cpu_jobs="drop"))


def test_times_without_an_offset_are_taken_as_utc_and_said_so(tmp_path):
    trace = import_trace([changed(tmp_path, "+08:00", "")])
    assert trace.workload.metadata.epoch_s == 1677601102.0 + 8 * 3600
    assert any("without an offset" in text for text in trace.report.assumed)


def test_fractions_of_seconds_are_kept(tmp_path):
    trace = import_trace([changed(tmp_path, "00:20:51+08:00", "00:20:51.250+08:00")])
    assert by_id(trace)["5778432"]["duration_s"] == 117.25


def test_a_time_that_is_none_is_rejected(tmp_path):
    trace = import_trace([changed(tmp_path, "2023-03-01 00:20:51+08:00", "later")])
    assert "end_time is not a time (YYYY-MM-DD HH:MM:SS)" in {found.reason for found in trace.report.rejected}


def test_both_clusters_at_once_are_refused():
    with pytest.raises(InputError, match="import one trace at a time"):
        import_trace([KALOS, SEREN])


@given(st.data())
def test_damaged_files_are_refused_or_accounted_for(tmp_path_factory, data):
    path = tmp_path_factory.mktemp("acme") / "trace.csv"
    source = data.draw(st.sampled_from((KALOS, SEREN))).read_bytes()
    path.write_bytes(data.draw(damaged(source)))
    import_or_refuse([path], "acme", cpu_jobs=data.draw(st.sampled_from(("keep", "drop"))))


@given(st.binary(max_size=300))
def test_random_bytes_are_refused_or_accounted_for(tmp_path_factory, content):
    path = tmp_path_factory.mktemp("acme") / "trace.csv"
    path.write_bytes(SEREN.read_bytes() + content)
    import_or_refuse([path], "acme")
    path.write_bytes(content)
    import_or_refuse([path], "acme")
