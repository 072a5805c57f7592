"""Which jobs a job waited for, as logs of schedulers have it."""

import json
from pathlib import Path

import polars as pl
import pytest

from gpuyard.cluster.model import parse_cluster
from gpuyard.errors import InputError
from gpuyard.simulation.run import simulate
from gpuyard.workload import import_trace, make_workload, read_workload
from gpuyard.workload.job_table import write_workload
from gpuyard.workload.readers.dependencies import (
    lsf_dependency,
    pbs_dependency,
    slurm_dependency,
    submit_line_dependency,
)
from gpuyard.workload.shaping.merge import merge
from gpuyard.workload.shaping.slices import window
from support.paths import DATA
from support.slurm_shapes import as_json

PBS = (DATA / "pbs" / "20240301").read_text().splitlines()
LSF = (DATA / "lsf" / "lsb.acct").read_text().splitlines()


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("afterok:123", ("123", False)),
        ("afterok:123:124_5(unfulfilled),afterany:9+30", ("123|124_5|9", False)),
        ("aftercorr:7_*", ("7", False)),
        ("after:5,afternotok:6", ("6", True)),
        ("singleton", (None, True)),
        ("afterok:1?afterok:2", (None, True)),
        ("", (None, False)),
    ],
)
def test_dependencies_of_slurm(text, found):
    assert slurm_dependency(text) == found


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ("sbatch --dependency=afterok:17 job.sh", ("17", False)),
        ("sbatch -d afterany:17:18 job.sh", ("17|18", False)),
        ('sbatch --dependency "singleton" job.sh', (None, False)),
        ("sbatch --dependency=after:17 job.sh", (None, True)),
        ("sbatch -D /data:1 job.sh", (None, False)),
    ],
)
def test_dependencies_among_the_options_of_a_submission(line, found):
    assert submit_line_dependency(line) == found


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("afterok:501.pbs1@pbs1:502.pbs1", ("501|502", False)),
        ("afterany:7[3].pbs1,beforeok:9.pbs1", ("7[3]", True)),
        ("on:2", (None, True)),
        ("", (None, False)),
    ],
)
def test_dependencies_of_pbs(text, found):
    assert pbs_dependency(text) == found


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("done(123) && ended(124[2])", ("123|124[2]", False)),
        ("(done(123) && (exit(9, 1)))", ("123|9", False)),
        ("123", ("123", False)),
        ('done("align*")', (None, True)),
        ("done(1) || done(2)", (None, True)),
        ("started(1) && done(2)", ("2", True)),
        ("", (None, False)),
    ],
)
def test_conditions_of_lsf(text, found):
    assert lsf_dependency(text) == found


def imported(path: Path, text: str):
    path.write_text(text)
    return import_trace([path])


def after(trace) -> dict[str, str | None]:
    frame = trace.workload.frame
    return dict(zip(frame["source_id"], trace.workload.column("after"), strict=True))


def test_swf_names_the_job_before_and_its_think_time_is_noted(tmp_path):
    rows = ["1 0 5 100 8 -1 -1 8 200 -1 1 1 1 -1 0 -1 -1 -1", "2 9 5 100 8 -1 -1 8 200 -1 1 1 1 -1 0 -1 1 60"]
    trace = imported(tmp_path / "log.swf", "\n".join(rows) + "\n")
    assert after(trace) == {"1": None, "2": "1"}
    assert any("think times" in text for text in trace.report.not_modelled)


def test_pbs_records_state_dependencies_among_their_attributes(tmp_path):
    line = PBS[3].replace("501.pbs1;user=ann", "510.pbs1;user=ann depend=afterok:501.pbs1@pbs1,on:1")
    trace = imported(tmp_path / "20240301", f"{PBS[3]}\n{line}\n")
    assert after(trace) == {"501": None, "510": "501"}
    assert any("depends on something else" in found.reason for found in trace.report.repaired)


def test_lsf_records_state_conditions(tmp_path):
    line = LSF[1].replace('"rusage[ngpus_physical=1]" ""', '"rusage[ngpus_physical=1]" "done(11)"')
    assert line != LSF[1]
    assert after(imported(tmp_path / "lsb.acct", f"{LSF[0]}\n{line}\n")) == {"11": None, "12[3]": "11"}


def test_sacct_states_them_in_the_line_of_the_submission(tmp_path):
    names = "JobID|Submit|Start|End|Elapsed|State|AllocTRES|SubmitLine"
    times = "2024-03-01T08:00:00|2024-03-01T08:01:00|2024-03-01T09:01:00|01:00:00|COMPLETED|gres/gpu=1"
    text = f"{names}\n7|{times}|sbatch a.sh\n8|{times}|sbatch -d afterok:7 b.sh\n"
    assert after(imported(tmp_path / "sacct.txt", text)) == {"7": None, "8": "7"}


def test_json_of_sacct_has_the_line_of_the_submission_too(tmp_path):
    document = as_json("24.11")
    first, second = document["jobs"][:2]
    second["submit_line"] = f"sbatch --dependency=afterany:{first['job_id']} x.sh"
    found = after(imported(tmp_path / "sacct.json", json.dumps(document)))
    assert [text for text in found.values() if text] == [str(first["job_id"])]


def some_jobs():
    return make_workload(
        pl.DataFrame(
            {
                "submit_s": [0.0, 1.0, 2.0, 3.0],
                "duration_s": [100.0, 10.0, 10.0, 10.0],
                "gpus": [1, 1, 1, 1],
                "source_id": ["a", "b", "c", "d"],
                "after": [None, "a", "b|zz", "a|c"],
            }
        ),
        epoch_s=1.7e9,
        name="log",
    )


def test_slices_and_files_keep_them(tmp_path):
    assert window(some_jobs(), 1, 3).column("after").to_list() == ["a", "b|zz", "a|c"]
    for name in ("jobs.parquet", "jobs.csv"):
        write_workload(some_jobs(), tmp_path / name)
        assert read_workload(tmp_path / name).column("after").to_list() == [None, "a", "b|zz", "a|c"]


def test_logs_that_are_merged_and_kept_apart_keep_their_own():
    other = make_workload(some_jobs().frame, epoch_s=1.7e9, name="other")
    found = merge([some_jobs(), other], keep_apart=True)
    assert set(found.column("after").to_list()[:8]) == {
        *(None, "log/a", "log/b|log/zz", "log/a|log/c"),
        *("other/a", "other/b|other/zz", "other/a|other/c"),
    }


def test_a_job_starts_when_the_last_that_it_waits_for_has_ended():
    starts = simulate(some_jobs(), parse_cluster("1x8"), "fifo").schedule.start_us / 1e6
    assert starts.tolist() == [0, 100, 110, 120]


def test_jobs_that_wait_for_one_another_are_refused_by_name():
    jobs = make_workload(some_jobs().frame.with_columns(after=pl.Series(["d", "a", "b", "c"])))
    with pytest.raises(InputError, match=r"job a .*job d .* wait for one another"):
        simulate(jobs, parse_cluster("1x8"), "fifo")
