"""``gpuyard runs``: lists, descriptions, comparisons, pages and watching, for people and as JSON."""

import json
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gpuyard import cli
from gpuyard.runs.progress import ProgressWriter
from support.sample_runs import sample_records, write_run

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def run(capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Run:
    """Run a command line in an empty directory: exit code, standard output, standard error."""
    monkeypatch.setenv("COLUMNS", "110")
    monkeypatch.chdir(tmp_path)

    def call(*arguments: object) -> tuple[int, str, str]:
        code = cli.main([str(argument) for argument in ("runs", *arguments)])
        return code, *capfd.readouterr()

    return call


def document(run: Run, *arguments: object) -> Any:
    code, out, _ = run(*arguments, "--json")
    assert code == 0
    return json.loads(out)


@pytest.fixture
def two_runs(tmp_path: Path) -> tuple[Path, Path]:
    first = write_run(tmp_path / "runs" / "ppo-1", updates=40)
    second = write_run(tmp_path / "runs" / "sac-1", updates=20, algorithm="sac", seed=3, stop="interrupted")
    return first, second


def test_the_list_has_every_run_with_its_state_and_score(run: Run, two_runs: tuple[Path, Path]) -> None:
    code, out, errors = run("list")
    assert (code, errors) == (0, "")
    rows = [line.split() for line in out.splitlines() if line.startswith(("ppo-1", "sac-1"))]
    assert [row[:4] for row in rows] == [
        ["ppo-1", "ppo", "finished", "327,680"],
        ["sac-1", "sac", "interrupted", "163,840"],
    ]
    listed = document(run, "list")
    assert [entry["state"] for entry in listed["runs"]] == ["finished", "interrupted"]
    assert listed["runs"][0]["best_heuristic"] == {"policy": "sjf+easy/consolidate", "score": 0.529}


def test_an_empty_folder_says_how_runs_come_about(run: Run, tmp_path: Path) -> None:
    code, out, _ = run("list", tmp_path)
    assert code == 0
    assert "There are no runs" in out
    assert "gpuyard train" in out
    assert document(run, "list", tmp_path) == {"folder": str(tmp_path), "runs": [], "unreadable": []}


def test_a_missing_folder_is_bad_input(run: Run) -> None:
    code, out, errors = run("list")
    assert (code, out) == (2, "")
    assert "runs: there is no such folder" in errors


def test_one_broken_run_does_not_hide_the_others(run: Run, two_runs: tuple[Path, Path]) -> None:
    (two_runs[0] / "progress.jsonl").write_text("nonsense\n", encoding="utf-8")
    code, out, errors = run("list")
    assert code == 0
    assert "sac-1" in out
    assert "note: left out: " in errors
    assert "line 1" in errors
    assert [entry["directory"] for entry in document(run, "list")["unreadable"]] == ["runs/ppo-1"]


def test_showing_a_run_says_how_good_it_is_and_how_to_use_it(run: Run, two_runs: tuple[Path, Path]) -> None:
    code, out, _ = run("show", "ppo-1")
    assert code == 0
    for part in ("finished", "327,680 of 327,680", "% better than sjf+easy", "network.kind", "mlp"):
        assert part in out
    assert "gpuyard simulate WORKLOAD --policy runs/ppo-1" in out
    assert "--resume" not in out
    shown = document(run, "show", "ppo-1")
    assert shown["config"]["network"] == {"kind": "mlp"}
    assert shown["model"] == "runs/ppo-1/best.safetensors"
    assert shown["best"]["score"] == max(
        record["score"] for record in sample_records(40) if record["event"] == "validation"
    )


def test_showing_a_stopped_run_says_how_to_go_on(run: Run, two_runs: tuple[Path, Path]) -> None:
    assert "gpuyard train --resume runs/sac-1" in run("show", "sac-1")[1]
    assert document(run, "show", "sac-1")["resumable"] is True
    (two_runs[1] / "checkpoint.safetensors").unlink()
    assert "before its first checkpoint" in run("show", "sac-1")[1]
    assert document(run, "show", "sac-1")["resumable"] is False


def test_showing_a_run_that_was_not_finite_points_to_the_diagnosis(run: Run, tmp_path: Path) -> None:
    write_run(tmp_path / "bad", updates=3, stop="nan")
    assert "diagnosis.json" in run("show", tmp_path / "bad")[1]


@pytest.mark.parametrize("command", ["show", "compare", "plot", "watch"])
def test_what_is_no_run_is_bad_input(run: Run, command: str, tmp_path: Path) -> None:
    for name, said in (("nothing", "there is no such directory"), (tmp_path, "is not a run")):
        code, out, errors = run(command, name)
        assert (code, out) == (2, "")
        assert said in errors


def test_comparing_puts_runs_side_by_side(run: Run, two_runs: tuple[Path, Path]) -> None:
    code, out, _ = run("compare", *two_runs)
    assert code == 0
    assert "ppo-1" in out
    assert "sac-1" in out
    assert " ".join(out.split()).count("the best heuristic on the same windows") == 2
    compared = document(run, "compare", *two_runs)["runs"]
    assert [entry["algorithm"] for entry in compared] == ["ppo", "sac"]


def test_a_run_named_twice_is_bad_input(run: Run, two_runs: tuple[Path, Path]) -> None:
    code, _, errors = run("compare", "ppo-1", two_runs[0])
    assert code == 2
    assert "is given twice" in errors


def test_plotting_writes_one_page(run: Run, two_runs: tuple[Path, Path], tmp_path: Path) -> None:
    code, out, _ = run("plot", "ppo-1", "sac-1", "--out", "both.html", "--over", "minutes")
    assert code == 0
    assert "both.html" in out
    assert "2 training runs" in (tmp_path / "both.html").read_text(encoding="utf-8")
    assert document(run, "plot", "ppo-1") == {"out": "curves.html", "runs": ["runs/ppo-1"]}
    assert (tmp_path / "curves.html").is_file()


def test_a_page_that_cannot_be_written_is_refused(run: Run, two_runs: tuple[Path, Path]) -> None:
    assert "ends in .html" in run("plot", "ppo-1", "--out", "curves.png")[2]
    assert "there is no directory" in run("plot", "ppo-1", "--out", "missing/curves.html")[2]


def test_watching_follows_a_run_to_its_end(run: Run, tmp_path: Path) -> None:
    directory = tmp_path / "live"
    directory.mkdir()
    began = threading.Event()

    def train() -> None:
        with ProgressWriter(directory / "progress.jsonl") as writer:
            for record in sample_records(10):
                writer.write(record)
                began.set()
                time.sleep(0.02)

    thread = threading.Thread(target=train)
    thread.start()
    began.wait()
    assert document(run, "watch", directory)["state"] == "running"
    code, out, _ = run("watch", directory)
    thread.join()
    assert code == 0
    lines = out.splitlines()
    assert lines[0] == f"ppo in {directory}"
    assert any(line.startswith("validation after 81,920 samples") for line in lines)
    assert lines[-1] == f"{directory} finished"


def test_a_narrow_terminal_still_names_every_run(
    run: Run, two_runs: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "60")
    out = run("list")[1]
    assert max(map(len, out.splitlines())) <= 60
    assert "interrupted" in out
