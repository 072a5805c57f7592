"""What ``gpuyard train search`` prints."""

import io
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from gpuyard.learn.rules.search import Judged, SearchResult
from gpuyard.terminal.search import Summary, search_in_words, search_table

LONG = "power:0.7071067811865476+easy-sjf+express:10800.5:0.123456/consolidate"
VALUES = {"mean_bounded_slowdown": 123.4, "mean_jct_s": 5e5, "p99_wait_s": 3e5, "max_wait_s": 6e5}


def summary_with(name: str) -> Summary:
    nothing: Any = None
    judged = {
        "heuristic": Judged("wspt+easy/consolidate", 1.0, 1.0, VALUES, VALUES),
        "grid": Judged(name, 1.0, 0.5, VALUES, VALUES),
    }
    result = SearchResult(
        "grid", "wspt+easy/consolidate", name, judged, nothing, nothing, (), (), {"grid": 3.0}
    )  # type: ignore[arg-type]
    return result.summary()


@pytest.mark.parametrize("width", [20, 60, 80, 100, 160])
def test_names_of_policies_are_whole_however_narrow_the_terminal(width: int) -> None:
    screen = Console(file=io.StringIO(), width=width, force_terminal=False)
    screen.print(search_table(summary_with(LONG), width), crop=False)
    text = screen.file.getvalue()  # type: ignore[attr-defined]
    assert LONG in text
    assert "mean" in text
    assert text.count("123 ") + text.count("123\n") >= 2, "values are whole too"
    assert ("5 d 19 h" in text) == (width == 160)


def test_short_names_leave_room_for_all_metrics() -> None:
    screen = Console(file=io.StringIO(), width=100, force_terminal=False)
    screen.print(search_table(summary_with("sjf+easy/consolidate"), 100))
    lines = screen.file.getvalue().splitlines()  # type: ignore[attr-defined]
    assert max(map(len, lines)) <= 100
    for value in ("123", "5 d 19 h", "3 d 11 h", "6 d 23 h"):
        assert value in lines[-1]


def test_commands_name_the_policy_whole() -> None:
    assert any(
        line.endswith(f"--policy {LONG}")
        for line in search_in_words(summary_with(LONG), Path("runs/search-1"))
    )
