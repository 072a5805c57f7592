"""Reading Grid Engine's accounting: fields, tasks of parallel jobs, requests, milliseconds, exit codes."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuyard.errors import InputError
from gpuyard.workload import import_trace
from support.damage import damaged, import_or_refuse
from support.paths import DATA
from support.reading import by_id, rejected

SAMPLE = DATA / "sge" / "accounting"
LINES = SAMPLE.read_text().splitlines()
RECORD = LINES[3]


@pytest.fixture(scope="module")
def trace():
    return import_trace([SAMPLE])


@pytest.fixture
def imported(tmp_path):
    def run(*lines, strict=True, **options):
        path = tmp_path / "accounting"
        path.write_text("\n".join(lines) + "\n")
        return import_trace([path], "sge", strict=strict, **options)

    return run


def test_a_record_becomes_a_job(trace):
    job = by_id(trace)["601"]
    assert (job["submit_s"], job["duration_s"], job["estimate_s"]) == (0, 3600, 7200)
    assert (job["gpus"], job["cpus"], job["memory_mib"]) == (2, 1, 1000)
    assert (job["user"], job["group"], job["status"]) == ("ann", "gpu.q", "completed")
    assert trace.workload.metadata.epoch_s == 1709280000


def test_what_happened_is_kept_and_hosts_only_where_all_are_known(trace):
    jobs = by_id(trace)
    assert (jobs["601"]["recorded_start_s"], jobs["601"]["recorded_nodes"]) == (10, "g1")
    assert jobs["604"]["recorded_nodes"] is None
    assert [jobs["601"][name] for name in ("partition", "account", "name")] == ["gpu.q", "sge", "train"]


def test_comments_are_no_rows_and_tasks_are_part_of_their_job(trace):
    assert (trace.report.rows_read, trace.report.jobs, trace.report.merged) == (10, 7, 2)
    assert rejected(trace) == {"never started: start_time is 0": 1}


def test_array_tasks_have_the_ids_that_qstat_shows(trace):
    assert by_id(trace)["602.3"]["status"] == "timeout"  # failed = 37: the master enforced h_rt


def test_a_limit_with_colons_does_not_shift_fields(trace):
    job = by_id(trace)["603"]
    assert (job["estimate_s"], job["cpus"], job["memory_mib"]) == (43200, 8, 1000)
    assert job["status"] == "cancelled"  # SIGKILL long before the limit


def test_univas_milliseconds_and_resident_memory_are_read(trace):
    job = by_id(trace)["608"]
    assert (job["submit_s"], job["duration_s"], job["memory_mib"]) == (900.25, 60, 100)


def test_a_rescheduled_run_is_cancelled_and_an_exit_code_is_a_failure(trace):
    jobs = by_id(trace)
    assert (jobs["606"]["status"], jobs["605"]["status"]) == ("cancelled", "failed")


def test_gpus_of_several_slots_are_refused_until_it_is_said_what_they_count_for(imported):
    record = RECORD.replace(":NONE:1:0:", ":smp:4:0:")
    with pytest.raises(InputError, match=r"4 slots asks for gpu=2.*gpus_per"):
        imported(record)
    assert imported(record, gpus_per="slot").workload.frame["gpus"].to_list() == [8]
    assert imported(record, gpus_per="job").workload.frame["gpus"].to_list() == [2]
    lenient = imported(record, strict=False)
    assert lenient.workload.frame["gpus"].to_list() == [8]
    assert any("each slot" in text for text in lenient.report.assumed)


def test_the_resource_that_counts_gpus_can_be_named(imported):
    record = RECORD.replace("gpu=2", "v100=3")
    assert imported(record).workload.frame["gpus"].to_list() == [0]
    assert imported(record, gpu_resource="a100,v100").workload.frame["gpus"].to_list() == [3]


def test_short_lines_and_words_for_times_are_rejected(imported):
    report = imported(RECORD, "a:b:c", RECORD.replace(":1709280000:", ":soon:")).report
    assert (report.jobs, report.rejected[0].rows, report.rejected[0].first[0]) == (1, 2, "accounting:2")


def test_what_qacct_prints_is_refused_with_the_file_to_take(tmp_path):
    path = tmp_path / "out"
    path.write_text("=" * 62 + "\nqname        gpu.q\nhostname     g1\n")
    with pytest.raises(InputError, match="common/accounting"):
        import_trace([path])


@given(data=st.data())
def test_damaged_files_are_refused_or_accounted_for(data, tmp_path_factory):
    path = tmp_path_factory.mktemp("sge") / "damaged"
    path.write_bytes(data.draw(damaged(SAMPLE.read_bytes())))
    import_or_refuse([path], "sge", strict=False)
