"""The command gpuyard calibrate, and what simulate, evaluate and report say of what it writes."""

from pathlib import Path

import pytest

from gpuyard.policies.policy_file import read_policy_file
from gpuyard.workload import write_workload
from support.command_line import Run, assert_refused, document
from support.evaluation_cases import CLUSTER, recorded_log, some_jobs

QUICK = ("--estimates", "exact", "--trials", "3", "--node-factors", "1")


@pytest.fixture
def log(tmp_path: Path) -> Path:
    path = tmp_path / "log.parquet"
    write_workload(recorded_log(), path)
    return path


def test_it_prints_figures_and_curves_and_writes_a_policy(run: Run, log: Path, tmp_path: Path) -> None:
    code, out, err = run("calibrate", log, "--cluster", CLUSTER, "--out", tmp_path / "found", *QUICK)
    assert code == 0, err
    for words in ("Verdict: good", "wait error, median", "Mean wait by", "Tried on the first half"):
        assert words in out
    names = {path.name for path in (tmp_path / "found").iterdir()}
    assert names == {"calibrated.toml", "calibration.json", "calibration.html"}
    assert read_policy_file(tmp_path / "found" / "calibrated.toml").calibration is not None
    page = (tmp_path / "found" / "calibration.html").read_text()
    assert "What the verdict asks for" in page
    assert '"recorded"' in page


def test_json_is_one_strict_document(run: Run, log: Path) -> None:
    code, out, _ = run("calibrate", log, "--cluster", CLUSTER, "--json", *QUICK)
    assert code == 0
    found = document(out)
    assert (found["policy"], found["verdict"], found["log"]) == ("fifo+easy", "good", "log.parquet")
    assert found["second_half"]["median_error_s"] == 0.0


def test_answers_against_a_calibrated_policy_say_how_closely_it_reproduces_the_log(
    run: Run, log: Path, tmp_path: Path
) -> None:
    run("calibrate", log, "--cluster", CLUSTER, "--out", tmp_path / "found", *QUICK)
    current = ("--current", tmp_path / "found" / "calibrated.toml", "--estimates", "exact")
    told = "calibrated reproduces log.parquet: good."
    results = ("--policy", "sjf+easy", "--out", tmp_path / "results")
    code, out, err = run("simulate", log, "--cluster", CLUSTER, *current, *results)
    assert code == 0, err
    assert told in " ".join(out.split())
    code, out, err = run("report", tmp_path / "results", "--out", tmp_path / "page.html")
    assert code == 0, err
    assert told in " ".join(out.split())
    assert told in (tmp_path / "page.html").read_text().replace("&nbsp;", " ")
    small = ("--windows", "3", "--jobs-per-window", "40", "--cold", "--no-whole")
    code, out, err = run("evaluate", "sjf+easy", "--on", log, "--cluster", CLUSTER, *current, *small)
    assert code == 0, err
    assert told in " ".join(out.split())


def test_what_cannot_be_calibrated_is_refused_with_what_to_do(run: Run, log: Path, tmp_path: Path) -> None:
    bare = tmp_path / "bare.parquet"
    write_workload(some_jobs(), bare)
    assert_refused(*run("calibrate", bare, "--cluster", CLUSTER), ["recorded_start_s", "import a log"])
    assert_refused(*run("calibrate", log), ["--cluster"])
    assert_refused(*run("calibrate", log, "--cluster", CLUSTER, "--policy", "fifoo"), ["fifoo"])
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "thesis.txt").write_text("")
    refused = run("calibrate", log, "--cluster", CLUSTER, "--out", tmp_path / "full")
    assert_refused(*refused, ["--out", "holds no calibration"])


def test_a_damaged_calibration_is_refused(run: Run, log: Path, tmp_path: Path) -> None:
    path = tmp_path / "site.toml"
    path.write_text('policy = "fifo+easy"\n[calibration]\nverdict = "splendid"\n')
    assert_refused(*run("simulate", log, "--cluster", CLUSTER, "--policy", path), ["calibration"])
