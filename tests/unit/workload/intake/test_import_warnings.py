"""An import warns of what makes every result doubtful, and only then."""

from pathlib import Path

import pytest

from gpuyard import cli
from gpuyard.workload import import_trace
from support.slurm_shapes import delimited, rows

GOOD = rows()[:7]


def write(folder: Path, listed: list[dict[str, str]]) -> Path:
    path = folder / "sacct.txt"
    path.write_text(delimited(listed))
    return path


def changed(**values: str) -> list[dict[str, str]]:
    """The jobs, the first with other values."""
    return [{**GOOD[0], **values}, *GOOD[1:]]


def without(*names: str) -> list[dict[str, str]]:
    return [{name: value for name, value in row.items() if name not in names} for row in GOOD]


CASES = {
    "rejected-rows": ([*GOOD, *rows()[7:], rows()[7]], "3 of 10 rows (30 %) became no job"),
    "no-gpu-field": (without("ReqTRES", "AllocTRES"), "no field says how many GPUs"),
    "no-gpus": ([GOOD[2], GOOD[4]], "all 2 jobs have 0 GPUs"),
    "starts-before-submit": (changed(Start="2024-03-01T07:59:59"), "1 job started before it was submitted"),
    "mig-slices": (
        changed(AllocTRES="cpu=8,gres/gpu=2,gres/gpu:a100_3g.20gb=2,mem=4G"),
        "1 job had slices of GPUs (MIG)",
    ),
}


@pytest.mark.parametrize("id", CASES)
def test_each_warning_is_given_alone_with_its_numbers(id, tmp_path):
    listed, text = CASES[id]
    (warning,) = import_trace([write(tmp_path, listed)]).report.warnings
    assert warning.id == id
    assert text in warning.text
    assert warning.remedy


@pytest.mark.parametrize("gres", ["gpu:1g.5gb:2", "gpu:a100_1g.5gb:1"])
def test_slices_in_gres_lists_are_found(gres, tmp_path):
    listed = [{**row, "AllocGRES": "gpu:1"} for row in without("ReqTRES", "AllocTRES")]
    listed[0]["AllocGRES"] = gres
    report = import_trace([write(tmp_path, listed)]).report
    assert [warning.id for warning in report.warnings] == ["mig-slices"]


def test_a_sound_log_has_no_warning(tmp_path):
    assert import_trace([write(tmp_path, GOOD)]).report.warnings == ()


def test_two_rows_in_ten_are_still_no_warning(tmp_path):
    listed = [*GOOD, rows()[7], *rows()[:1], rows()[8]]  # 8 rows of jobs and 2 that are rejected
    report = import_trace([write(tmp_path, listed)]).report
    assert (report.rows_read, sum(found.rows for found in report.rejected)) == (10, 2)
    assert report.warnings == ()


def steps_of(row: dict[str, str], count: int) -> list[dict[str, str]]:
    return [{**row, "JobID": f"{row['JobID']}.{number}"} for number in range(count)]


def test_steps_of_a_rejected_job_do_not_count_as_rejected_rows(tmp_path):
    listed = [*GOOD, rows()[7], *steps_of(rows()[7], 12)]
    report = import_trace([write(tmp_path, listed)]).report
    assert [found.rows for found in report.rejected if found.parts] == [12]
    assert report.warnings == (), "1 of 8 jobs"


def test_steps_of_jobs_that_are_kept_do_not_hide_rejected_rows(tmp_path):
    listed = [*GOOD, *steps_of(GOOD[0], 50), *rows()[7:], rows()[7]]
    report = import_trace([write(tmp_path, listed)]).report
    assert report.merged_parts == 50
    assert [warning.text.split(" became")[0] for warning in report.warnings] == ["3 of 10 rows (30 %)"]


def test_what_a_simulation_does_not_use_is_said(tmp_path):
    listed = [{**row, "Reservation": "", "Constraints": "a100"} for row in changed(QOS="high")]
    said = import_trace([write(tmp_path, listed)]).report.not_modelled
    assert [text.split(" ")[0] for text in said] == ["features", "limits", "limits"]
    assert "limits and priorities of 2 QOS" in said
    assert not any("reservations" in text for text in said)


def test_the_command_prints_warnings_and_strict_writes_nothing(tmp_path, capfd):
    log, out = write(tmp_path, CASES["no-gpus"][0]), tmp_path / "jobs.parquet"
    arguments = ["workload", "import", str(log), "--out", str(out)]
    assert cli.main([*arguments, "--strict"]) == cli.FAILED
    assert not out.exists()
    printed = capfd.readouterr().out
    assert "WARNING: all 2 jobs have 0 GPUs." in printed
    assert "What to do: " in printed
    assert "Nothing is written" in printed
    assert cli.main(arguments) == cli.DONE
    assert out.exists()


def test_strict_is_content_with_a_sound_log(tmp_path):
    log, out = write(tmp_path, GOOD), tmp_path / "jobs.parquet"
    assert cli.main(["workload", "import", str(log), "--out", str(out), "--strict"]) == cli.DONE
    assert out.exists()


def test_other_commands_repeat_the_warning_of_a_log_they_read(tmp_path, capfd):
    log = write(tmp_path, CASES["no-gpus"][0])
    assert cli.main(["workload", "describe", str(log)]) == cli.DONE
    assert "WARNING: all 2 jobs have 0 GPUs" in capfd.readouterr().err
