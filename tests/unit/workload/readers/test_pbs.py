"""Reading accounting logs of PBS and Torque: records of one job, hosts, GPUs, sizes and exit codes."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuyard.errors import InputError
from gpuyard.workload import import_trace
from gpuyard.workload.readers.pbs_records import allocation, mebibytes, pairs, seconds
from support.damage import damaged, import_or_refuse
from support.paths import DATA
from support.reading import by_id, rejected

SAMPLE = DATA / "pbs" / "20240301"
LINES = SAMPLE.read_text().splitlines()
END = LINES[3]


@pytest.fixture(scope="module")
def trace():
    return import_trace([SAMPLE])


@pytest.fixture
def imported(tmp_path):
    def run(*lines, **options):
        path = tmp_path / "20240301"
        path.write_text("\n".join(lines) + "\n")
        return import_trace([path], "pbs", **options)

    return run


def test_an_end_record_becomes_a_job(trace):
    job = by_id(trace)["501"]
    assert (job["submit_s"], job["duration_s"], job["estimate_s"]) == (0, 3600, 7200)
    assert (job["gpus"], job["cpus"], job["memory_mib"]) == (2, 8, 16384)
    assert (job["user"], job["group"], job["status"]) == ("ann", "gpu", "completed")
    assert trace.workload.metadata.epoch_s == 1709280000


def test_queue_and_start_records_are_part_of_the_job_that_ended(trace):
    assert (trace.report.rows_read, trace.report.jobs, trace.report.merged) == (14, 6, 3)


def test_what_is_no_end_of_a_job_is_rejected_with_its_reason(trace):
    assert rejected(trace) == {
        "a record of a job whose end is rejected or not in the file": 2,
        "a record of type L, which is about no job": 1,
        "a record of a whole array, whose tasks have records of their own": 1,
        "never started: it has no start": 1,
    }


def test_gpus_are_those_of_all_vnodes_or_of_torques_list(trace):
    jobs = by_id(trace)
    assert (jobs["502[3]"]["gpus"], jobs["502[3]"]["cpus"]) == (8, 16)
    assert (jobs["505"]["gpus"], jobs["505"]["cpus"]) == (4, 4)


def test_what_happened_and_what_was_asked_for_is_kept(trace):
    jobs = by_id(trace)
    assert (jobs["501"]["recorded_start_s"], jobs["501"]["recorded_nodes"]) == (10, "g1")
    assert (jobs["502[3]"]["recorded_nodes"], jobs["505"]["recorded_nodes"]) == ("g1|g2", "t1|t2")
    assert (jobs["502[3]"]["nodes"], jobs["505"]["nodes"]) == (None, 2)
    assert [jobs["501"][name] for name in ("partition", "account", "name")] == ["gpu", "deep vision", "train"]


def test_scattered_chunks_are_nodes_that_were_asked_for(imported):
    end = LINES[5].replace("Resource_List.select", "Resource_List.place=scatter Resource_List.select")
    assert imported(end).workload.frame["nodes"].to_list() == [2]


def test_memory_per_cpu_counts_for_every_cpu(trace):
    assert by_id(trace)["503"]["memory_mib"] == 4 * 512


def test_a_requeued_run_is_a_job_of_its_own(trace):
    runs = trace.workload.frame.filter(source_id="504")
    assert list(zip(runs["duration_s"], runs["status"], strict=True)) == [
        (600, "cancelled"),
        (3000, "failed"),
    ]


@pytest.mark.parametrize(
    ("code", "walltime", "status"),
    [
        ("0", "02:00:00", "completed"),
        ("1", "02:00:00", "failed"),
        ("-29", "02:00:00", "timeout"),
        ("-11", "02:00:00", "timeout"),
        ("271", "02:00:00", "cancelled"),
        ("271", "01:00:00", "timeout"),
        ("x", "02:00:00", "unknown"),
    ],
)
def test_exit_codes_become_statuses(imported, code, walltime, status):
    end = END.replace("Exit_status=0", f"Exit_status={code}")
    end = end.replace("walltime=02:00:00", f"walltime={walltime}")
    assert imported(end).workload.frame["status"].to_list() == [status]


@pytest.mark.parametrize(
    ("message", "gpus", "cpus"),
    [
        ("Resource_List.select=2:ncpus=8:ngpus=4+1:ncpus=4", 8, 20),
        ("Resource_List.nodes=3:ppn=2:gpus=1", 3, 6),
        ("Resource_List.nodes=g7:ppn=2:gpus=1", 1, 2),
        ("Resource_List.ngpus=3 Resource_List.ncpus=5", 3, 5),
        ("exec_host=a/0,2-3+b/7", 0, 4),
        ("exec_host=a/0*4+b/1*2", 0, 6),
        ("exec_vnode=(a:ncpus=2:ngpus=1+a[1]:ncpus=2)+(b:ncpus=1:ngpus=1)", 2, 5),
        ("queue=x", 0, 0),
    ],
)
def test_requests_and_hosts_are_counted(message, gpus, cpus):
    had = allocation(pairs(message))
    assert (had.gpus, had.cpus) == (gpus, cpus)


def test_sizes_and_times_are_read_in_all_units():
    sizes = ["1gb", "1048576kb", "512mb", "1", "2mw", "1tb", "x", ""]
    assert [mebibytes(size) for size in sizes] == [1024, 1024, 512, 1, 16, 2**20, 0, 0]
    times = ["01:00:00", "90", "02:30", "100:00:00", "soon"]
    assert [seconds(time) for time in times] == [3600, 90, 150, 360000, None]


def test_quoted_values_may_hold_blanks(imported):
    assert imported(END, group="account").workload.frame["group"].to_list() == ["deep vision"]


def test_several_days_are_one_log(tmp_path):
    days = [tmp_path / "20240301", tmp_path / "20240302"]
    days[0].write_text("\n".join(LINES[:3]) + "\n")
    days[1].write_text(END + "\n")
    report = import_trace(days).report
    assert (report.jobs, report.merged, len(report.rejected)) == (1, 2, 1)


@pytest.mark.parametrize(
    "text",
    [
        "03/01/2024 08:00:00;0008;Server@pbs1;Job;1.pbs1;Job Queued at request of ann@login1\n",
        "Job id            Name             User              Time Use S Queue\n------ ----\n",
    ],
)
def test_other_outputs_are_refused_with_the_directory_to_take(tmp_path, text):
    path = tmp_path / "log"
    path.write_text(text)
    with pytest.raises(InputError, match="server_priv/accounting"):
        import_trace([path])


@given(data=st.data())
def test_damaged_logs_are_refused_or_accounted_for(data, tmp_path_factory):
    path = tmp_path_factory.mktemp("pbs") / "damaged"
    path.write_bytes(data.draw(damaged(SAMPLE.read_bytes())))
    import_or_refuse([path], "pbs")
