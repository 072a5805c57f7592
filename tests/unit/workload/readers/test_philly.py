"""Philly: the JSON log of jobs and their attempts, and its machine tables."""

import gzip
import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuyard.errors import InputError
from gpuyard.workload import import_trace
from gpuyard.workload.readers.json_records import json_records
from gpuyard.workload.readers.philly import PhillyFormat
from support.damage import damaged, import_or_refuse
from support.paths import DATA

LOG, MACHINES = DATA / "philly" / "cluster_job_log", DATA / "philly" / "cluster_machine_list"
REDUCED, VC_NODES = DATA / "philly" / "reduced" / "jobs.json", DATA / "philly-csv" / "philly_vc.csv"
PREFIX = "application_1506638472019_"


def by_number(trace) -> dict[str, dict]:
    jobs = trace.workload.frame.iter_rows(named=True)
    return {job["source_id"].removeprefix(PREFIX): job for job in jobs}


def write(tmp_path: Path, *records: object) -> Path:
    path = tmp_path / "cluster_job_log"
    path.write_text(json.dumps(records))
    return path


def record(*attempts: tuple, submitted: object = "2017-10-07 01:00:00", **keys: object) -> dict:
    entries = [
        {"start_time": start, "end_time": end, "detail": [{"ip": "m1", "gpus": ["gpu0"] * gpus}]}
        for start, end, gpus in attempts
    ]
    return {"jobid": "j", "attempts": entries, "submitted_time": submitted, "status": "Pass", **keys}


MINUTE = ("2017-10-07 01:00:00", "2017-10-07 01:01:00", 1)


def test_log_and_tables_are_recognised_by_content():
    assert PhillyFormat.role_of(LOG.read_bytes(), "x") == "jobs"
    assert PhillyFormat.role_of(REDUCED.read_bytes(), "x") == "jobs"
    assert PhillyFormat.role_of(MACHINES.read_bytes(), "x") == "machines"
    assert PhillyFormat.role_of(b"m31,8, 24GB\nm32,2, 12GB\n", "x") == "machines"
    assert PhillyFormat.role_of(VC_NODES.read_bytes(), "x") == "vc-nodes"
    assert PhillyFormat.role_of(b'[{"name": "a", "attempts": 3}]', "cluster_job_log") is None
    assert PhillyFormat.role_of(b'{"jobid": "a", "attempts": []}', "cluster_job_log") is None


def test_attempts_are_summed_by_default_and_spanned_on_request():
    assert by_number(import_trace([LOG]))["1"]["duration_s"] == 74 + 3600
    assert by_number(import_trace([LOG], duration="span"))["1"]["duration_s"] == 74 + 7 + 3600


def test_the_fields_of_a_job():
    trace = import_trace([LOG])
    job = by_number(trace)["1"]
    assert (job["submit_s"], job["gpus"], job["user"], job["group"]) == (0.0, 2, "ce2f4c", "ee9e8c")
    assert trace.workload.metadata.epoch_s == 1507338699.0  # 2017-10-07 01:11:39 UTC
    assert any("taken as UTC" in text for text in trace.report.assumed)


def test_statuses_are_mapped(tmp_path):
    words = ("Pass", "Killed", "Failed", "Lost", None)
    trace = import_trace([write(tmp_path, *(record(MINUTE, status=word) for word in words))])
    statuses = trace.workload.frame["status"].to_list()
    assert statuses == ["completed", "cancelled", "failed", "unknown", "unknown"]
    assert any("'Lost'" in text for text in trace.report.assumed)


def test_what_never_ran_is_rejected_with_its_reason_and_line():
    reasons = {found.reason: found.first for found in import_trace([LOG]).report.rejected}
    assert reasons == {
        "never scheduled: no attempts": ("cluster_job_log:6",),
        "still running: its last attempt has no end": ("cluster_job_log:12",),
        "no attempt lists GPUs": ("cluster_job_log:19",),
        "no attempt has both a start and an end behind it": ("cluster_job_log:22",),
    }


def test_attempts_without_a_start_are_left_out_whether_null_or_the_word_none():
    trace = import_trace([LOG])
    assert by_number(trace)["3"]["duration_s"] == 60 + 30
    repairs = {found.reason: found.first for found in trace.report.repaired}
    assert repairs["attempts without a start or an end are left out"] == ("cluster_job_log:7",)


def test_gpus_are_those_of_the_first_attempt_that_ran_over_all_its_machines():
    trace = import_trace([LOG])
    assert by_number(trace)["3"]["gpus"] == 3
    repairs = {found.reason: found.rows for found in trace.report.repaired}
    assert repairs["attempts differ in their number of GPUs: the first that lists some is taken"] == 1


def test_a_running_job_keeps_the_attempts_that_ended():
    trace = import_trace([LOG])
    assert by_number(trace)["5"]["duration_s"] == 10
    repairs = {found.reason: found.first for found in trace.report.repaired}
    assert repairs["still running: only the attempts that ended count"] == ("cluster_job_log:15",)


def test_an_attempt_that_ends_before_it_starts_is_left_out(tmp_path):
    backward = ("2017-10-07 02:00:00", "2017-10-07 01:00:00", 1)
    trace = import_trace([write(tmp_path, record(backward, MINUTE), record(backward))])
    assert trace.workload.frame["duration_s"].to_list() == [60.0]
    assert [found.rows for found in trace.report.rejected] == [1]


@pytest.mark.parametrize(
    ("bad", "reason"),
    [
        (17, "not an object with the keys of a job"),
        ({}, "no submitted_time"),
        (record(MINUTE, submitted="soon"), "submitted_time is not a time (YYYY-MM-DD HH:MM:SS)"),
        (record(MINUTE, submitted=5), "no submitted_time"),
        (record((MINUTE[0], MINUTE[0], 1)), "never ran: the time of its attempts is not positive"),
        (record(MINUTE, num_gpus=-2), "gpus is not a whole number from 1 to 2147483647"),
        (record(MINUTE, attempts="none"), "never scheduled: no attempts"),
        (record(MINUTE, attempts=[None, 3]), "never scheduled: no attempts"),
    ],
)
def test_records_that_cannot_be_jobs_are_rejected_with_a_reason(tmp_path, bad, reason):
    trace = import_trace([write(tmp_path, record(MINUTE), bad)], "philly")
    assert {found.reason: found.rows for found in trace.report.rejected} == {reason: 1}


def test_the_reduced_form_states_its_gpus_and_has_no_status():
    (job,) = by_number(import_trace([REDUCED])).values()
    assert (job["gpus"], job["duration_s"], job["status"]) == (8, 74 + 3600, "unknown")
    (span,) = by_number(import_trace([REDUCED], duration="span")).values()
    assert span["duration_s"] == pytest.approx(61.35 * 60)


def test_the_machine_list_makes_a_cluster_whose_types_are_named_by_memory(tmp_path):
    cluster = import_trace([LOG, MACHINES]).cluster
    assert [(group.count, group.gpus, group.type) for group in cluster.nodes] == [
        (1, 2, "gpu-12gb"), (2, 8, "gpu-24gb"),
    ]  # fmt: skip
    assert [gpu_type.memory_mib for gpu_type in cluster.gpu_types] == [12 * 1024, 24 * 1024]
    headless = tmp_path / "machines"
    headless.write_text("m1,2, 12GB\nm2,8, 24GB\nm3,8, 24GB\n")
    assert import_trace([LOG, headless]).cluster == cluster


def test_nodes_of_virtual_clusters_make_owners_and_jobs_without_nodes_are_reported():
    trace = import_trace([LOG, VC_NODES])
    assert trace.cluster.owners == ("6214e9", "11cb48")
    assert trace.cluster.total_gpus == 24
    assert any("2 groups with 3 jobs own no nodes" in text for text in trace.report.assumed)


def test_both_tables_of_machines_contradict_each_other():
    with pytest.raises(InputError, match="give one of the two"):
        import_trace([LOG, MACHINES, VC_NODES])


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ("m1,2, 12GB\nm2,eight, 24GB\n", "line 2, column number of GPUs: is 'eight'"),
        ("m1,2, 12GB\nm2,8\n", "line 2: is 'm2,8'"),
        ("vc,node num\na,1\na,2\n", "line 3: is 'a,2'"),
        ("vc,node num\na,-1\n", "line 2, column node num: is '-1'"),
        ("vc,node num\n", "states no node"),
    ],
)
def test_a_bad_table_of_machines_is_refused(tmp_path, table, message):
    path = tmp_path / "table"
    path.write_text(table)
    with pytest.raises(InputError, match=message):
        import_trace([LOG, path])


@pytest.mark.parametrize("piece", [1, 7, 100])
def test_pieces_of_a_file_make_the_same_records_as_the_whole(monkeypatch, piece):
    whole = list(json_records(LOG))
    monkeypatch.setattr("gpuyard.workload.readers.json_records._PIECE_BYTES", piece)
    monkeypatch.setattr("gpuyard.workload.readers.philly._BATCH_RECORDS", 2)
    assert list(json_records(LOG)) == whole
    assert [value for _, value in whole] == json.loads(LOG.read_text())
    assert [line for line, _ in whole] == [2, 6, 7, 12, 15, 19, 22]


def test_batches_make_the_same_jobs_as_the_whole(monkeypatch):
    whole = import_trace([LOG])
    monkeypatch.setattr("gpuyard.workload.readers.philly._BATCH_RECORDS", 2)
    batches = import_trace([LOG])
    assert batches.workload.frame.equals(whole.workload.frame)
    assert set(batches.report.rejected) == set(whole.report.rejected)
    assert set(batches.report.repaired) == set(whole.report.repaired)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{}", "line 1: cannot be read as JSON .expected a JSON list"),
        ("[{},\n {]", "line 2: cannot be read as JSON"),
        ("[{} {}]", "expected ',' or '\\]' behind a record"),
        ("[{}] x", "expected nothing behind the list"),
        ("[{},\n{}", "line 2: the file ends here"),
        ('[{"jobid": "abc', "Unterminated string"),
        ("[" * 100_000, "recursion"),
        ("[" + "9" * 10_000 + "]", "digits"),
        ("[]", "no job is left of 0 rows"),
    ],
)
def test_what_is_no_json_list_is_refused_with_its_line(tmp_path, text, message):
    path = tmp_path / "log.json"
    path.write_text(text)
    with pytest.raises(InputError, match=message):
        import_trace([path], "philly")


@pytest.mark.parametrize("poisoned", [{"user": "\ud800é"}, {"vc": "a\udfff"}, {"submitted_time": "\udc00"}])
def test_a_job_with_half_a_character_is_rejected_with_its_line(tmp_path, poisoned):
    path = tmp_path / "log.gz"
    records = [record(MINUTE, user="é"), record(MINUTE, **poisoned), record(MINUTE, vc="née\U0001f600")]
    path.write_bytes(gzip.compress(("[\n" + ",\n".join(map(json.dumps, records)) + "]").encode()))
    trace = import_trace([path])
    (found,) = trace.report.rejected
    assert found.reason == "holds half of a UTF-16 pair, which is no text"
    assert found.first == ("log.gz:3",)
    jobs = trace.workload.frame
    assert (jobs["user"][0], jobs["group"][1]) == ("é", "née\U0001f600")


def test_an_attempt_with_half_a_character_rejects_its_job(tmp_path):
    path = tmp_path / "log.json"
    whole, poisoned = record(MINUTE), record(MINUTE)
    poisoned["attempts"][0]["end_time"] = "\ud800"
    path.write_text(json.dumps([poisoned, whole]))
    trace = import_trace([path])
    assert [found.rows for found in trace.report.rejected] == [1]
    assert len(trace.workload) == 1


@pytest.mark.parametrize("number", ["NaN", "-Infinity", "1e999", "9" * 400])
def test_a_number_that_is_none_is_no_count_of_gpus(tmp_path, number):
    path = tmp_path / "log.json"
    poisoned = json.dumps(record(MINUTE)).replace('"attempts"', f'"num_gpus": {number}, "attempts"')
    path.write_text(f"[{poisoned}]")
    assert len(import_trace([path]).workload) == 1


@given(st.data())
def test_damaged_files_are_refused_or_accounted_for(tmp_path_factory, data):
    folder = tmp_path_factory.mktemp("philly")
    log, table = folder / "log", folder / "table"
    log.write_bytes(data.draw(damaged(data.draw(st.sampled_from((LOG, REDUCED))).read_bytes())))
    table.write_bytes(data.draw(damaged(data.draw(st.sampled_from((MACHINES, VC_NODES))).read_bytes())))
    import_or_refuse([log], "philly", duration=data.draw(st.sampled_from(("sum", "span"))))
    import_or_refuse([LOG, table], "philly")


VALUES = st.recursive(
    st.none() | st.booleans() | st.floats() | st.integers() | st.text(max_size=5) | st.sampled_from(MINUTE),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=5,
)


@given(st.dictionaries(st.sampled_from(("jobid", "attempts", "submitted_time", "num_gpus", "vc")), VALUES))
def test_values_of_any_kind_are_rejected_or_read(tmp_path_factory, values):
    path = write(tmp_path_factory.mktemp("philly"), {**record(MINUTE), **values}, record(MINUTE))
    assert import_or_refuse([path], "philly") is not None


@given(st.binary(max_size=300))
def test_random_bytes_are_refused_or_accounted_for(tmp_path_factory, content):
    path = tmp_path_factory.mktemp("philly") / "log"
    path.write_bytes(content)
    import_or_refuse([path], "philly")
