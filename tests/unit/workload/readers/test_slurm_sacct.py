"""Reading what sacct prints: layouts, ids, steps, requeues, resources, times and states."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuyard.errors import InputError
from gpuyard.workload import chunks, import_trace
from gpuyard.workload.readers.slurm_sacct import SlurmSacct
from support.damage import damaged, import_or_refuse
from support.paths import DATA

SAMPLES = DATA / "slurm-sacct"
USUAL = {
    "JobID": "7", "User": "ann", "Account": "vision", "Partition": "gpu", "State": "COMPLETED",
    "Submit": "2024-03-01T08:00:00", "Start": "2024-03-01T08:01:00", "End": "2024-03-01T09:01:00",
    "Elapsed": "01:00:00", "Timelimit": "02:00:00", "NNodes": "2", "NCPUS": "8", "ReqMem": "", "ReqTRES": "",
    "AllocTRES": "",
}  # fmt: skip
HEADER = "|".join(USUAL)


@pytest.fixture
def imported(tmp_path):
    """Imports rows that differ from the usual one as stated."""

    def run(*rows, options=None, header=HEADER):
        names = header.strip("|").split("|")
        lines = ["|".join((USUAL | row).get(name, "") for name in names) for row in rows]
        path = tmp_path / "sacct.txt"
        path.write_text("\n".join([header, *lines]) + "\n")
        return import_trace([path], **(options or {}))

    return run


def job(trace):
    assert len(trace.workload) == 1, trace.report
    return trace.workload.frame.row(0, named=True)


def reasons(trace_or_error):
    return {found.reason: found.rows for found in trace_or_error.report.rejected}


def by_id(trace):
    return {row["source_id"]: row for row in trace.workload.frame.to_dicts()}


def test_the_sample_of_quirks_reads_as_calculated_by_hand():
    trace = import_trace([SAMPLES / "sacct.txt"])
    jobs = by_id(trace)
    assert (jobs["101"]["gpus"], jobs["101"]["memory_mib"], jobs["101"]["estimate_s"]) == (2, 4096, 7200)
    assert (jobs["102_7"]["gpus"], jobs["102_7"]["duration_s"]) == (8, 49 * 3600)
    assert jobs["102_7"]["memory_mib"] == 16 * 1000
    assert (jobs["103"]["duration_s"], jobs["103"]["status"], jobs["103"]["memory_mib"]) == (
        30.5,
        "cancelled",
        1024,
    )
    assert (jobs["104"]["status"], jobs["104"]["estimate_s"], jobs["104"]["memory_mib"]) == (
        "failed",
        None,
        16384,
    )
    assert [jobs[f"111_{task}"]["memory_mib"] for task in (1, 2, 5)] == [1000] * 3
    assert trace.workload.metadata.epoch_s == 1709280000
    assert trace.report.rows_read == 18
    assert trace.report.merged == 3


@pytest.mark.parametrize("chunk_bytes", [100, 1000, 3000])
def test_pieces_of_any_size_give_the_same_jobs(chunk_bytes, monkeypatch):
    whole = import_trace([SAMPLES / "sacct.txt"])
    monkeypatch.setattr(chunks, "CHUNK_BYTES", chunk_bytes)  # steps come apart from their jobs
    pieces = import_trace([SAMPLES / "sacct.txt"])
    assert pieces.workload.frame.equals(whole.workload.frame)
    assert pieces.report == whole.report


def test_a_lone_quote_in_a_name_does_not_join_the_pieces_behind_it(monkeypatch):
    monkeypatch.setattr(chunks, "CHUNK_BYTES", 400)
    assert len(list(chunks.line_chunks(SAMPLES / "sacct.txt"))) > 5


def test_a_name_with_pipes_in_the_middle_does_not_shift_the_fields():
    assert by_id(import_trace([SAMPLES / "sacct.txt"]))["102_7"]["group"] == "gpu"


def test_a_name_with_pipes_at_the_end_of_the_headerless_form_is_kept_together():
    jobs = by_id(import_trace([SAMPLES / "xdmod" / "accounting.log"]))
    assert set(jobs) == {"501", "502"}
    assert (jobs["501"]["gpus"], jobs["501"]["memory_mib"], jobs["501"]["duration_s"]) == (2, 31000, 259200)
    assert jobs["502"]["memory_mib"] == 72192


@pytest.mark.parametrize(("version", "group"), [("aws-v1", ""), ("aws-v2", "spot")])
def test_both_versions_of_the_aws_form_are_read(version, group):
    jobs = import_trace([SAMPLES / version / "sacct.txt"]).workload.frame
    assert jobs["duration_s"].to_list() == [316]
    assert jobs["group"].to_list() == [group]


def test_the_header_may_have_any_order_case_and_a_separator_at_the_end(tmp_path):
    path = tmp_path / "a.txt"
    path.write_text("ELAPSED|submit|JobIDRaw|\n00:10|2024-03-01T08:00:00|5|\nELAPSED|submit|JobIDRaw|\n")
    trace = import_trace([path])
    assert job(trace)["duration_s"] == 10
    assert job(trace)["source_id"] == "5"


def test_a_byte_order_mark_before_the_header_is_no_part_of_it(tmp_path):
    path = tmp_path / "a.txt"
    path.write_bytes(b"\xef\xbb\xbfJobID|Submit|Elapsed\n5|2024-03-01T08:00:00|00:10\n")
    assert import_trace([path]).report.rows_read == 1


def test_steps_are_part_of_their_job_even_if_they_come_first(imported):
    trace = imported({"JobID": "7.batch"}, {"JobID": "7.extern"}, {"JobID": "7.0"}, {})
    assert job(trace)["source_id"] == "7"
    assert trace.report.merged == 3


def test_steps_of_a_job_that_is_not_there_are_rejected(imported):
    trace = imported({}, {"JobID": "8.batch"}, {"JobID": "9_1.0"})
    assert reasons(trace) == {"a step of a job that is rejected or not in the file": 2}


def test_runs_of_a_requeued_job_are_separate_jobs_unless_merged(imported):
    runs = (
        {"Elapsed": "00:10:00", "State": "PREEMPTED"},
        {"Submit": "2024-03-01T08:20:00", "Start": "2024-03-01T08:30:00", "Elapsed": "00:50:00"},
    )
    separate = imported(*runs)
    assert separate.workload.frame["duration_s"].to_list() == [600, 3000]
    assert any("requeued" in text for text in separate.report.assumed)
    merged = imported(*runs, options={"requeued": "merge"})
    assert (job(merged)["duration_s"], job(merged)["status"]) == (3600, "completed")
    assert merged.report.merged == 1


def test_the_same_record_twice_is_one_job(imported):
    trace = imported({}, {}, {"User": "bob"})
    assert job(trace)["user"] == "ann"
    assert trace.report.merged == 2


def test_array_tasks_are_jobs_and_their_lists_are_expanded(imported):
    trace = imported({"JobID": "7_4"}, {"JobID": "8_[1-3,9%2]"}, {"JobID": "9_[0-6:3]"})
    assert sorted(by_id(trace)) == ["7_4", "8_1", "8_2", "8_3", "8_9", "9_0", "9_3", "9_6"]
    assert trace.report.rows_read == 8


@pytest.mark.parametrize("tasks", ["1,3,...", "1-999999999", "5-1", "1-9:0", "", "x"])
def test_lists_of_array_tasks_that_cannot_be_expanded_are_rejected(imported, tasks):
    trace = imported({}, {"JobID": f"8_[{tasks}]"})
    assert sum(reasons(trace).values()) == 1


@pytest.mark.parametrize(
    ("state", "status"),
    [
        ("COMPLETED", "completed"),
        ("FAILED", "failed"),
        ("NODE_FAIL", "failed"),
        ("OUT_OF_MEMORY", "failed"),
        ("BOOT_FAIL", "failed"),
        ("CANCELLED", "cancelled"),
        ("CANCELLED by 380693", "cancelled"),
        ("CANCELLED+", "cancelled"),
        ("PREEMPTED", "cancelled"),
        ("TIMEOUT", "timeout"),
        ("DEADLINE", "timeout"),
        ("ODD_STATE", "unknown"),
    ],
)
def test_states_become_statuses(imported, state, status):
    trace = imported({"State": state})
    assert job(trace)["status"] == status
    assert bool(trace.report.repaired) == (status == "unknown")


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"State": "RUNNING", "End": "Unknown"}, "still running or waiting: it has no end"),
        (
            {"State": "PENDING", "Start": "Unknown", "End": "Unknown"},
            "still running or waiting: it has no end",
        ),
        ({"State": "RUNNING"}, "still running or waiting: it has no end"),
        ({"End": ""}, "still running or waiting: it has no end"),
        ({"Start": "None", "Elapsed": "00:00:00"}, "never started"),
        ({"Start": "Unknown"}, "never started"),
        ({"Elapsed": "00:00:00"}, "never ran: its run time is not positive"),
        ({"Elapsed": "soon"}, "Elapsed is not [D-]HH:MM:SS"),
        ({"Elapsed": "1:2:3:4"}, "Elapsed is not [D-]HH:MM:SS"),
        ({"Elapsed": "9999999-00:00:00"}, "runs for more than 136 years"),
        ({"Submit": "Unknown"}, "Submit is not a time"),
        ({"Submit": "2024-13-01T08:00:00"}, "Submit is not a time"),
        ({"Submit": "1950-01-01T08:00:00"}, "submitted before 1970 or after 2106"),
        ({"Start": "08:00"}, "Start or End is not a time"),
        ({"JobID": "ann"}, "JobID is not the id of a job"),
        ({"AllocTRES": "gres/gpu=99999999999"}, "the number of GPUs is out of range"),
        ({"User": "a|b"}, "another number of fields than 15"),
    ],
)
def test_rows_that_are_no_finished_jobs_are_rejected_with_reason_and_line(imported, change, reason):
    trace = imported({"JobID": "6"}, change)
    assert reasons(trace) == {reason: 1}
    assert trace.report.rejected[0].first == ("sacct.txt:3",)


@pytest.mark.parametrize(
    ("allocated", "requested", "gpus"),
    [
        ("cpu=8,gres/gpu=2", "", 2),
        ("cpu=8,gres/gpu:a100=2", "", 2),
        ("cpu=8,gres/gpu:a100=2,gres/gpu=2", "", 2),
        ("gres/gpu=5,gres/gpu:a100=2,gres/gpu:v100=3", "", 5),
        ("gres/gpu:a100=2,gres/gpu:v100=3", "", 5),
        ("gres/gpu:1g.5gb=3", "", 3),
        ("cpu=8,gres/gpumem=16G,gres/gpuutil=50", "", 0),
        ("", "cpu=8,gres/gpu=4", 4),
        ("cpu=8,gres/gpu=2", "cpu=8,gres/gpu=4", 2),
        ("", "", 0),
    ],
)
def test_gpus_are_counted_once(imported, allocated, requested, gpus):
    assert job(imported({"AllocTRES": allocated, "ReqTRES": requested}))["gpus"] == gpus


@pytest.mark.parametrize(
    ("gres", "gpus"),
    [("gpu:2", 4), ("gres:gpu:a100:3", 6), ("gpu", 2), ("gpu:a100:1(S:0-1),lustre:1", 2), ("ib:1", 0)],
)
def test_gres_lists_count_the_gpus_of_each_node(imported, gres, gpus):
    header = HEADER.replace("AllocTRES", "ReqGRES")
    assert job(imported({"ReqGRES": gres}, header=header))["gpus"] == gpus


def test_gpu_types_are_taken_only_when_asked_for(imported):
    row = {"ReqTRES": "gres/gpu:a100=1", "AllocTRES": "gres/gpu:a100=1,gres/gpu:v100=1,gres/gpu=2"}
    assert job(imported(row))["gpu_types"] is None
    assert job(imported(row, options={"gpu_types": "requested"}))["gpu_types"] == ["a100"]
    assert job(imported(row, options={"gpu_types": "allocated"}))["gpu_types"] == ["a100", "v100"]


@pytest.mark.parametrize(
    ("reqmem", "mib"),
    [
        ("1000Mn", 2000),
        ("1000Mc", 8000),
        ("1000M", 1000),
        ("2Gn", 4096),
        ("1.5G", 1536),
        ("2048K", 2),
        ("1T", 1048576),
        ("100", 100),
        ("0n", 0),
        ("2147484648Mn", 8000),
    ],
)
def test_memory_is_of_the_whole_job(imported, reqmem, mib):
    assert job(imported({"ReqMem": reqmem}))["memory_mib"] == mib


def test_allocated_memory_goes_before_requested_memory(imported):
    row = {"ReqMem": "5Gn", "ReqTRES": "mem=6G", "AllocTRES": "cpu=1,mem=62.50G,node=1"}
    assert job(imported(row))["memory_mib"] == 64000


@pytest.mark.parametrize("reqmem", ["much", "1e9G", "9" * 40 + "T"])
def test_memory_that_cannot_be_read_is_reported(imported, reqmem):
    trace = imported({"ReqMem": reqmem})
    assert job(trace)["memory_mib"] == 0
    assert [found.reason for found in trace.report.repaired] == ["memory cannot be read: taken as 0"]


@pytest.mark.parametrize(
    ("limit", "estimate_s", "repaired"),
    [
        ("02:00:00", 7200, 0),
        ("1-00:00:00", 86400, 0),
        ("30:00", 1800, 0),
        ("UNLIMITED", None, 0),
        ("Partition_Limit", None, 0),
        ("", None, 0),
        ("2 hours", None, 1),
    ],
)
def test_time_limits_become_estimates(imported, limit, estimate_s, repaired):
    trace = imported({"Timelimit": limit})
    assert job(trace)["estimate_s"] == estimate_s
    assert len(trace.report.repaired) == repaired


def test_raw_limits_are_minutes_and_raw_run_times_seconds(imported):
    header = HEADER.replace("Timelimit", "TimelimitRaw").replace("Elapsed", "ElapsedRaw")
    found = job(imported({"TimelimitRaw": "90", "ElapsedRaw": "61"}, header=header))
    assert (found["estimate_s"], found["duration_s"]) == (5400, 61)


def test_without_elapsed_the_run_time_is_from_start_to_end(imported):
    header = HEADER.replace("|Elapsed", "")
    assert job(imported({"End": "2024-03-01T08:01:42"}, header=header))["duration_s"] == 42


@pytest.mark.parametrize(
    ("submit", "epoch_s", "naive"),
    [
        ("2024-03-01T08:00:00", 1709280000, True),
        ("2024-03-01T08:00:00Z", 1709280000, False),
        ("2024-03-01T08:00:00+0100", 1709276400, False),
        ("2024-03-01T08:00:00-05:00", 1709298000, False),
        ("1709280000", 1709280000, False),
    ],
)
def test_times_with_a_zone_convert_and_those_without_are_taken_as_utc(imported, submit, epoch_s, naive):
    row = {"Submit": submit, "Start": "1709280000", "End": "1709280060"}
    trace = imported(row)
    assert trace.workload.metadata.epoch_s == epoch_s
    assert ("times without a zone are taken as UTC (option timezone)" in trace.report.assumed) == naive


def test_the_group_is_the_partition_unless_another_field_is_asked_for(imported):
    assert job(imported({}))["group"] == "gpu"
    assert job(imported({}, options={"group": "account"}))["group"] == "vision"
    with pytest.raises(InputError, match=r"no field Qos.*--format="):
        imported({}, options={"group": "qos"})


def test_several_outputs_are_read_as_one_trace(tmp_path):
    rows = "JobID|Submit|Elapsed\n{}|2024-03-01T08:00:0{}|00:10\n"
    paths = [tmp_path / "a.txt", tmp_path / "b.txt"]
    for number, path in enumerate(paths):
        path.write_text(rows.format(7 + number, 5 - number))
    trace = import_trace(paths)
    assert trace.workload.frame["source_id"].to_list() == ["8", "7"]
    assert trace.workload.metadata.history[0].settings["files"] == ["a.txt", "b.txt"]


def test_a_header_that_lacks_what_a_job_needs_is_refused_with_the_command(tmp_path):
    path = tmp_path / "a.txt"
    path.write_text("JobID|State|User\n7|COMPLETED|ann\n")
    with pytest.raises(InputError, match=r"a\.txt, line 1: no field Submit, Elapsed.*sacct --parsable2"):
        import_trace([path])


def test_output_without_pipes_is_refused_with_advice(tmp_path):
    path = tmp_path / "a.txt"
    path.write_text("JobID Submit Elapsed\n----- ----- -----\n7 2024-03-01T08:00:00 00:10\n")
    with pytest.raises(InputError, match="run sacct with --parsable2"):
        import_trace([path], "slurm-sacct")


@pytest.mark.parametrize(
    "head", [b"a|b|c\n1|2|3\n", b"JobID|Fruit\n1|apple\n", b"1|2|COMPLETED\n", b"jobid,submit\n"]
)
def test_other_tables_are_not_taken_for_sacct(head):
    assert SlurmSacct.role_of(head, "jobs.txt") is None


LAYOUTS = [SAMPLES / "sacct.txt", SAMPLES / "xdmod" / "accounting.log", SAMPLES / "aws-v1" / "sacct.txt"]


@given(data=st.data(), options=st.sampled_from([{}, {"requeued": "merge", "gpu_types": "allocated"}]))
@pytest.mark.parametrize("sample", LAYOUTS, ids=lambda path: path.parent.name)
def test_damaged_output_is_refused_or_accounted_for(sample, data, options, tmp_path_factory):
    path = tmp_path_factory.mktemp("sacct") / "damaged.txt"
    path.write_bytes(data.draw(damaged(sample.read_bytes())))
    import_or_refuse([path], "slurm-sacct", **options)


@given(
    content=st.binary(min_size=1, max_size=300)
    | st.text("|\n0:T-_.[]JobIDSubmitElapsed", min_size=1).map(str.encode)
)
def test_arbitrary_bytes_are_refused_or_accounted_for(content, tmp_path_factory):
    path = tmp_path_factory.mktemp("sacct") / "random.txt"
    path.write_bytes(content)
    import_or_refuse([path], "slurm-sacct")
