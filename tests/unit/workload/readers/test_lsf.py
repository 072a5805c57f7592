"""Reading lsb.acct: counted lists, quotes, versions, hosts, GPUs, limits and states."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuyard.errors import InputError
from gpuyard.workload import import_trace
from gpuyard.workload.readers.lsf_records import RecordError, parse_job_finish, tokens
from support.damage import damaged, import_or_refuse
from support.paths import DATA

SAMPLE = DATA / "lsf" / "lsb.acct"
LINES = SAMPLE.read_text().splitlines()


@pytest.fixture(scope="module")
def trace():
    return import_trace([SAMPLE])


@pytest.fixture(scope="module")
def jobs(trace):
    return {row["source_id"]: row for row in trace.workload.frame.to_dicts()}


@pytest.fixture
def imported(tmp_path):
    def run(*lines, **options):
        path = tmp_path / "lsb.acct"
        path.write_text("\n".join(lines) + "\n")
        return import_trace([path], "lsf", **options)

    return run


def only(trace):
    assert len(trace.workload) == 1, trace.report
    return trace.workload.frame.row(0, named=True)


def test_times_users_and_queues_are_read(trace, jobs):
    job = jobs["11"]
    assert (job["submit_s"], job["duration_s"], job["user"], job["group"]) == (0, 3000, "ann", "gpu")
    assert trace.workload.metadata.epoch_s == 1700000000


def test_lists_before_a_field_do_not_shift_it(jobs):
    assert jobs["11"]["status"] == "completed"  # it asked for a host by name
    assert jobs["12[3]"]["status"] == "timeout"  # four entries of hosts and two of their usage


def test_slots_count_whether_hosts_are_repeated_or_multiplied(jobs):
    assert (jobs["11"]["cpus"], jobs["12[3]"]["cpus"], jobs["13"]["cpus"]) == (4, 4, 16)


def test_doubled_quotes_are_one_quote():
    assert tokens('"a ""b"" c" 1 "" """"') == ['"a ""b"" c"', "1", '""', '""""']
    assert parse_job_finish(LINES[0].replace('"ann"', '"an""n"')).user == 'an"n'


@pytest.mark.parametrize("line", ['"a" "b', '"a"b', 'a"b"', '"a""'])
def test_quotes_that_do_not_match_are_an_error(line):
    with pytest.raises(RecordError, match="quotes do not match"):
        tokens(line)


def test_records_of_old_versions_that_stop_early_are_read(trace, jobs):
    assert jobs["14"]["duration_s"] == 3000
    assert jobs["15[2]"]["duration_s"] == 3000  # without timeEvent, as OpenLava's manual has it
    assert jobs["16"]["status"] == "failed"
    assert not any("not as expected" in found.reason for found in trace.report.repaired)


def test_a_record_may_stop_behind_any_field_after_the_status():
    found = tokens(LINES[0])
    status = found.index("64")
    for end in range(status + 1, len(found)):
        try:
            job = parse_job_finish(" ".join(found[:end]))
        except RecordError as error:
            pytest.fail(f"{end}: {error}")
        assert (job.event_s, job.status, job.hosts, job.slots) == (1700003600, 64, ("n1", "n2"), 4)
    with pytest.raises(RecordError, match="stops before jStatus"):
        parse_job_finish(" ".join(found[:status]))


def test_gpus_are_those_of_a_host_times_hosts_or_of_a_task_times_slots(jobs):
    assert jobs["11"]["gpus"] == 4  # 2 a host on 2 hosts
    assert jobs["12[3]"]["gpus"] == 4  # 1 a task, 4 tasks
    assert jobs["17"]["gpus"] == 4  # bsub -gpu num=4
    assert jobs["20"]["gpus"] == 2  # two entries of GPU usage
    assert jobs["13"]["gpus"] == 0


@pytest.mark.parametrize(
    ("request_text", "gpus"),
    [
        ("rusage[mem=100,ngpus_physical=1.00:gmem=2G]", 2),
        ("rusage[ngpus_physical=3/host]", 6),
        ("rusage[ngpus_excl_p=1]", 2),
        ("select[ngpus>0]", 0),
        ("select[ngpus==4]", 0),
        ("rusage[ngpus_physical=0.50/task]", 2),
    ],
)
def test_gpu_requirements_are_read_from_rusage_only(imported, request_text, gpus):
    line = LINES[0].replace("rusage[ngpus_physical=2.00] ", request_text)
    assert only(imported(line))["gpus"] == gpus


def test_the_submitted_requirement_counts_where_there_is_no_effective_one(imported):
    line = LINES[3].replace('"regular" ""', '"regular" "rusage[ngpus_physical=2]"')
    assert only(imported(line))["gpus"] == 2


def test_run_limits_become_estimates(jobs):
    assert (jobs["11"]["estimate_s"], jobs["13"]["estimate_s"]) == (7200, 43200)
    assert jobs["12[3]"]["estimate_s"] is None  # -1


@pytest.mark.parametrize(
    ("exit_info", "status"),
    [
        (0, "failed"),
        (1, "cancelled"),
        (5, "timeout"),
        (12, "timeout"),
        (14, "cancelled"),
        (15, "cancelled"),
        (16, "failed"),
    ],
)
def test_exit_information_tells_limits_and_kills_from_failures(imported, exit_info, status):
    line = LINES[1].replace('"" "" 0 "" 5 ""', f'"" "" 0 "" {exit_info} ""')
    assert only(imported(line))["status"] == status


def test_jobs_that_did_not_run_are_rejected_by_reason(trace):
    found = {finding.reason: finding.first for finding in trace.report.rejected}
    assert found["never started: startTime is 0"] == ("lsb.acct:8",)
    assert found["never ran: its run time is not positive"] == ("lsb.acct:9",)


def test_other_events_are_counted_with_their_type(trace):
    assert any("JOB_RESIZE" in finding.reason for finding in trace.report.rejected)


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        ("1700003600 11", '"soon" 11', "eventTime is not a whole number"),
        ('"ann"', "ann", "userName is not text in quotes"),
        (' 2 "2*n1"', ' 999999 "2*n1"', "the number of execHosts is not the length of a list that follows"),
        (' 2 "2*n1"', ' -1 "2*n1"', "the number of execHosts is not the length of a list that follows"),
        (' 2 "2*n1"', ' 3 "2*n1"', "execHosts is not text in quotes"),
        ('"2*n2" 64', '"2*n2 64', "quotes do not match"),
    ],
)
def test_bad_lines_are_rejected_with_what_is_wrong(imported, old, new, reason):
    trace = imported(LINES[1], LINES[0].replace(old, new, 1))
    assert [(finding.reason, finding.first) for finding in trace.report.rejected] == [
        (f"a record that cannot be read: {reason}", ("lsb.acct:2",))
    ]


def test_fields_behind_the_status_that_depart_from_the_format_are_reported_and_the_job_kept(imported):
    trace = imported(LINES[0].replace('"app1"', "7"))
    assert only(trace)["gpus"] == 0
    assert "not as expected" in trace.report.repaired[0].reason


def test_the_group_is_the_queue_unless_another_field_is_asked_for(imported):
    assert only(imported(LINES[0]))["group"] == "gpu"
    assert only(imported(LINES[0], group="project"))["group"] == "proj"
    assert only(imported(LINES[0], group="application"))["group"] == "app1"


def test_the_same_record_twice_is_one_job(imported):
    assert imported(LINES[0], LINES[0]).report.merged == 1


def test_the_event_log_is_refused_and_lsb_acct_asked_for(tmp_path):
    path = tmp_path / "lsb.events"
    path.write_text(
        '#80      \n"LOAD_INDEX" "10.108" 1643753712 1 "r15s"\n"JOB_NEW" "10.108" 1643910037 101 1501\n'
    )
    with pytest.raises(
        InputError, match=r"lsb\.events, line 1: is LSF's event log.*import the file lsb\.acct"
    ):
        import_trace([path])


def test_a_report_of_bacct_is_refused_and_lsb_acct_asked_for(tmp_path):
    path = tmp_path / "bacct.txt"
    path.write_text("\nAccounting information about jobs that are:\n  - submitted by all users.\n")
    with pytest.raises(InputError, match=r"bacct\.txt, line 1: is a report of bacct.*lsb\.acct"):
        import_trace([path])


@given(data=st.data())
def test_damaged_logs_are_refused_or_accounted_for(data, tmp_path_factory):
    path = tmp_path_factory.mktemp("lsf") / "damaged"
    path.write_bytes(data.draw(damaged(SAMPLE.read_bytes())))
    import_or_refuse([path], "lsf")


@given(content=st.binary(min_size=1, max_size=300))
def test_arbitrary_bytes_are_refused_or_accounted_for(content, tmp_path_factory):
    path = tmp_path_factory.mktemp("lsf") / "random"
    path.write_bytes(b'"JOB_FINISH" "10.108" ' + content)
    import_or_refuse([path], "lsf")
