"""Reading Slurm's job completion log: keys, names with blanks, arrays, limits in minutes."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuyard.workload import import_trace
from gpuyard.workload.readers.slurm_jobcomp import SlurmJobcomp
from support.damage import damaged, import_or_refuse
from support.paths import DATA

SAMPLE = DATA / "slurm-jobcomp" / "jobcomp.log"


@pytest.fixture
def jobs():
    return {row["source_id"]: row for row in import_trace([SAMPLE]).workload.frame.to_dicts()}


def test_keys_become_columns(jobs):
    job = jobs["301"]
    assert (job["duration_s"], job["gpus"], job["cpus"], job["memory_mib"]) == (3600, 2, 8, 4096)
    assert (job["user"], job["group"], job["status"]) == ("ann", "gpu", "completed")


def test_limits_are_minutes_and_unlimited_is_unknown(jobs):
    assert jobs["301"]["estimate_s"] == 7200
    assert jobs["302_7"]["estimate_s"] is None


def test_names_and_directories_with_blanks_and_keys_do_not_mislead():
    jobs = import_trace([SAMPLE], group="account").workload.frame
    row = jobs.row(0, named=True)
    assert (row["source_id"], row["status"], row["group"]) == ("302_7", "timeout", "speech")


def test_a_job_that_never_started_is_rejected():
    report = import_trace([SAMPLE]).report
    assert [(found.reason, found.first) for found in report.rejected] == [
        ("never started", ("jobcomp.log:3",))
    ]


def test_other_lines_are_rejected(tmp_path):
    path = tmp_path / "jobcomp.log"
    path.write_bytes(b"slurmctld restarted\n" + SAMPLE.read_bytes())
    report = import_trace([path], "slurm-jobcomp").report
    assert report.rejected[0].reason in {"does not start with JobId=", "never started"}
    assert report.rows_read == 4


def test_what_scontrol_shows_is_not_taken_for_the_log():
    assert SlurmJobcomp.role_of(b"JobId=7 JobName=a UserId=ann(1) JobState=RUNNING\n", "jobs") is None


@given(data=st.data())
def test_damaged_logs_are_refused_or_accounted_for(data, tmp_path_factory):
    path = tmp_path_factory.mktemp("jobcomp") / "damaged.log"
    path.write_bytes(data.draw(damaged(SAMPLE.read_bytes())))
    import_or_refuse([path], "slurm-jobcomp")


@given(content=st.binary(min_size=1, max_size=300))
def test_arbitrary_bytes_are_refused_or_accounted_for(content, tmp_path_factory):
    path = tmp_path_factory.mktemp("jobcomp") / "random.log"
    path.write_bytes(b"JobId=1 " + content)
    import_or_refuse([path], "slurm-jobcomp")
