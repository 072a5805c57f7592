"""``gpuyard evaluate``: what it shows, writes and refuses."""

import re
from pathlib import Path
from typing import Any

import pytest

from gpuyard.cli import main
from gpuyard.evaluate import Comparison
from gpuyard.evaluate.findings import advice
from gpuyard.workload import write_workload
from support.command_line import document
from support.evaluation_cases import CLUSTER, like_its_base, some_jobs, with_few_heuristics, written

SMALL = ("--windows", "4", "--jobs-per-window", "40", "--choosing-windows", "3")


@pytest.fixture(scope="module")
def jobs(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("jobs") / "jobs.parquet"
    write_workload(some_jobs(), path)
    return str(path)


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    code = main(["evaluate", *arguments])
    captured = capsys.readouterr()
    return code, captured.out, captured.err


def test_the_answer_is_a_table_then_words_then_who_loses(
    jobs: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "160")
    with_few_heuristics(monkeypatch)
    arguments = ("wspt+easy+express:60:0.1", "--on", jobs, "--cluster", CLUSTER, *SMALL, "--all-heuristics")
    code, out, _ = run(capsys, *arguments)
    assert code == 0
    table, words = out.split("\n\n", 1)
    for heading in ("policy", "difference", "(95 % interval)", "in one go", "JCT", "p99"):
        assert heading in table
    assert "wspt+easy+express:60:0.1" in table
    assert "reference" in table
    assert words.startswith("wspt+easy+express:60:0.1: ")
    assert words.index("Mean bounded slowdown is ") < words.index("Who loses")
    assert "was the best fixed heuristic on earlier windows" in " ".join(words.split())
    assert "In hindsight" in words


def test_names_are_whole_on_a_narrow_terminal(
    jobs: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    code, out, _ = run(capsys, "wspt+easy+express:60:0.1", "--on", jobs, "--cluster", CLUSTER, *SMALL)
    table = out.split("\n\n", 1)[0]
    assert code == 0
    assert max(map(len, table.splitlines())) <= 80
    first = next(i for i, line in enumerate(table.splitlines()) if line.startswith("wspt+easy "))
    assert table.splitlines()[first + 1].startswith("+express:60:0.1 ")


def test_json_is_one_document_with_everything_that_is_shown(
    jobs: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    arguments = ("saf", "--on", jobs, "--cluster", CLUSTER, *SMALL, "--current", "sjf+easy", "--json")
    code, out, _ = run(capsys, *arguments, "--out", str(tmp_path / "out"))
    told: dict[str, Any] = document(out)
    assert code == 0
    assert told["reference"] == "sjf+easy/consolidate"
    assert told["setting"]["jobs_per_window"] == 40
    by_name = {result["name"]: result for result in told["results"]}
    saf = by_name["saf+strict/consolidate"]
    read = Comparison.read(tmp_path / "out")
    difference = read.difference("saf")
    assert saf["differences"]["mean_bounded_slowdown"]["ratio"] == difference.ratio
    assert saf["differences"]["mean_bounded_slowdown"]["interval"] == [difference.low, difference.high]
    assert saf["differences"]["mean_bounded_slowdown"]["verdict"] == difference.verdict
    assert {"mean_jct_s", "p99_wait_s", "max_wait_s"} <= set(saf["differences"])
    assert saf["means"]["gpu_utilization"] == read.mean("saf", "gpu_utilization")
    assert told["summary"] == read.summary().split("\n")
    assert read.whole is not None
    whole = read.whole_rows()["saf+strict/consolidate"]
    assert saf["whole"]["max_wait_s"] == whole["max_wait_s"]
    assert saf["advice"] == advice(read, "saf")
    assert saf["broken_limits"] == [vars(one) for one in read.broken_limits("saf")]
    assert by_name["sjf+easy/consolidate"]["advice"] is None
    assert (told["rival"], told["hindsight"]) == (None, None)
    assert "saf+strict/consolidate" in told["who_loses"]


def test_few_windows_side_by_side_are_told_before_running_with_the_size_that_helps(
    jobs: str, capsys: pytest.CaptureFixture[str]
) -> None:
    here = ("saf", "--on", jobs, "--cluster", CLUSTER, "--current", "sjf", "--windows", "20")
    code, _, err = run(capsys, *here, "--jobs-per-window", "60")
    assert code == 0
    told = re.search(
        r"note: the test part of \S+ has (\d+) jobs, [\d.]+ windows of 60 side by side, so intervals will be "
        r"weak; --jobs-per-window (\d+) would make it (\d+)\n",
        err,
    )
    assert told is not None
    code, out, err = run(capsys, *here, "--jobs-per-window", told[2], "--json")
    assert code == 0
    assert "weak" not in err
    # Jobs that arrive after the last window take some room.
    assert 5 <= int(told[3]) - 1 <= document(out)["setting"]["disjoint"] <= int(told[3])


def test_a_log_that_is_shorter_than_a_window_is_refused_with_the_option_and_a_size_that_fits(
    jobs: str, capsys: pytest.CaptureFixture[str]
) -> None:
    here = ("saf", "--on", jobs, "--cluster", CLUSTER)
    code, _, err = run(capsys, *here)
    assert code == 2
    size = re.search(r"windows of 1,024 jobs: the test part .*, such as --jobs-per-window (\d+)$", err, re.M)
    assert size is not None
    assert run(capsys, *here, "--jobs-per-window", size[1], "--windows", "3")[0] == 0


def test_the_help_does_not_promise_what_is_not_checked(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capsys, "--help")
    assert code == 0
    assert "Compare policies on held-out jobs" in out
    assert "not trained on" not in out


def test_jobs_too_few_for_any_window_are_pointed_to_draws(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    write_workload(some_jobs(60), tmp_path / "few.parquet")
    code, _, err = run(capsys, "saf", "--on", str(tmp_path / "few.parquet"), "--cluster", CLUSTER)
    assert code == 2
    assert "compare on draws like these jobs (--draws)" in err


def test_fresh_draws_of_a_built_in_workload(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ("saf", "--on", "demo", "--draws", "--windows", "3", "--jobs-per-window", "30")
    code, out, _ = run(capsys, *arguments, "--current", "sjf")
    assert code == 0
    assert "3 fresh draws of demo (30 jobs each)" in out.replace("\n", " ")


def test_zero_jobs_per_window_is_the_whole_part(jobs: str, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ("saf", "--on", jobs, "--cluster", CLUSTER, "--jobs-per-window", "0", "--current", "sjf")
    code, out, _ = run(capsys, *arguments, "--json")
    assert code == 0
    told = document(out)
    assert told["setting"]["kind"] == "whole"
    interval = told["results"][0]["differences"]["mean_bounded_slowdown"]
    assert (interval["interval"], interval["verdict"]) == ([None, None], None)


def test_models_trained_with_other_information_need_transfer(
    jobs: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    model = written(tmp_path, like_its_base(base_policy="sjf+easy"))
    arguments = (
        model,
        "--on",
        jobs,
        "--cluster",
        CLUSTER,
        *SMALL,
        "--estimates",
        "noisy",
        "--current",
        "sjf",
    )
    code, _, err = run(capsys, *arguments)
    assert code == 2
    assert "estimates history, but runs with noisy" in err
    assert "--transfer" in err
    code, out, _ = run(capsys, *arguments, "--transfer")
    assert code == 0
    assert "Note on learned: was trained with estimates history" in out.replace("\n", " ")


def test_episodes_are_played_in_the_environment_of_a_run(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    farm = {"preset": "host-farm", "jobs": 25, "hosts": [5, 5]}
    (tmp_path / "config.toml").write_text(
        'algorithm = "ppo"\n[environment]\nid = "gpuyard/SelectHost-v0"\n[environment.generator]\n'
        'preset = "host-farm"\njobs = 25\nhosts = [5, 5]\n[validation]\nmetric = "mean_wait_s"\n'
    )
    model = like_its_base("select-host", "host-attention", generator=farm, window=1)
    written(tmp_path, model, "best")
    code, out, _ = run(
        capsys, str(tmp_path), "fifo+greedy/best-fit", "--episodes", "3", "--current",
        "fifo+greedy/first-available", "--json",
    )  # fmt: skip
    assert code == 0
    told = document(out)
    assert told["setting"]["kind"] == "episodes"
    assert told["setting"]["metric"] == "mean_wait_s"
    assert str(tmp_path) in {result["name"] for result in told["results"]}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("saf",), "--on is missing"),
        (("saf", "--on", "{jobs}"), "--cluster is missing"),
        (("saf", "--on", "demo", "--draws", "--part", "train"), "draws of a generator have no parts"),
        (("saf", "--on", "{jobs}", "--cluster", CLUSTER), "has"),
        (
            ("saf", "--on", "{jobs}", "--cluster", CLUSTER, "--metric", "wait", *SMALL),
            "unknown metric 'wait'",
        ),
        (("saf", "--on", "{jobs}", "--cluster", CLUSTER, "--out", "{taken}", *SMALL), "holds no results"),
        (("{taken}", "--on", "{jobs}", "--cluster", CLUSTER, *SMALL), "there is no model in this directory"),
        (("{taken}", "--episodes", "3"), "there is no model in this directory"),
        (("saf", "--episodes", "3", "--on", "{jobs}"), "--on has no meaning with --episodes"),
        (("saf", "--episodes", "3", "--estimates", "none"), "--estimates has no meaning with --episodes"),
        (("saf", "--episodes", "3", "--windows", "4"), "--windows has no meaning with --episodes"),
    ],
)
def test_bad_input_is_refused_with_what_to_do(
    arguments: tuple[str, ...],
    message: str,
    jobs: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    filled = [argument.format(jobs=jobs, taken=tmp_path) for argument in arguments]
    code, out, err = run(capsys, *filled)
    assert (code, out) == (2, "")
    assert message in err
