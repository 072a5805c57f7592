"""What ``gpuyard train search`` prints, and the windows it takes of a small workload."""

import io
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from gpuyard.cli.train import _table, _words, fitting_window, with_windows_that_fit
from gpuyard.learn.rules.run import prepare_search
from gpuyard.learn.search import Judged, SearchResult
from gpuyard.workload.shaping.slices import window

LONG = "power:0.7071067811865476+easy-sjf+express:10800.5:0.123456/consolidate"
VALUES = {"mean_bounded_slowdown": 123.4, "mean_jct_s": 5e5, "p99_wait_s": 3e5, "max_wait_s": 6e5}


def result_with(name: str) -> SearchResult:
    nothing: Any = None
    judged = {
        "heuristic": Judged("wspt+easy/consolidate", 1.0, 1.0, VALUES, VALUES),
        "grid": Judged(name, 1.0, 0.5, VALUES, VALUES),
    }
    return SearchResult(
        "grid", "wspt+easy/consolidate", name, judged, nothing, nothing, (), (), {"grid": 3.0}
    )  # type: ignore[arg-type]


@pytest.mark.parametrize("width", [20, 60, 80, 100, 160])
def test_names_of_policies_are_whole_however_narrow_the_terminal(width: int) -> None:
    screen = Console(file=io.StringIO(), width=width, force_terminal=False)
    screen.print(_table(result_with(LONG), width), crop=False)
    text = screen.file.getvalue()  # type: ignore[attr-defined]
    assert LONG in text
    assert "mean" in text
    assert text.count("123 ") + text.count("123\n") >= 2, "values are whole too"
    assert ("5 d 19 h" in text) == (width == 160)


def test_short_names_leave_room_for_all_metrics() -> None:
    screen = Console(file=io.StringIO(), width=100, force_terminal=False)
    screen.print(_table(result_with("sjf+easy/consolidate"), 100))
    lines = screen.file.getvalue().splitlines()  # type: ignore[attr-defined]
    assert max(map(len, lines)) <= 100
    for value in ("123", "5 d 19 h", "3 d 11 h", "6 d 23 h"):
        assert value in lines[-1]


def test_commands_name_the_policy_whole() -> None:
    assert any(line.endswith(f"--policy {LONG}") for line in _words(result_with(LONG), Path("runs/search-1")))


@pytest.mark.parametrize(
    ("workload", "given", "size"),
    [
        ("demo", {}, 256),
        ("bursty-8gpu", {}, 32),
        ("poisson", {}, 1024),
        ("demo", {"jobs_per_window": 50}, 50),
    ],
)
def test_windows_are_shorter_where_the_usual_ones_find_no_room(
    workload: str, given: dict[str, int], size: int, capfd: pytest.CaptureFixture[str]
) -> None:
    tables = {"environment": {"workload": workload, "cluster": "8x8"}, "search": given}
    run = with_windows_that_fit(prepare_search(tables, None))
    assert run.search.jobs_per_window == size
    assert run.document()["search"]["jobs_per_window"] == size
    told = capfd.readouterr().err
    assert ("--search.jobs_per_window" in told) == (size in (256, 32))


def test_too_few_jobs_for_any_window_are_left_to_be_refused() -> None:
    run = prepare_search({"environment": {"workload": "demo"}}, None)
    few = replace(run, workload=window(run.workload, 0, 60))
    assert fitting_window(few) is None
    assert with_windows_that_fit(few) is few
