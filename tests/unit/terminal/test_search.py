"""What ``gpuyard train search`` prints."""

import io
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from gpuyard.learn.rules.result import Judged, SearchResult
from gpuyard.metrics.guards import BrokenLimit
from gpuyard.terminal.search import Summary, search_in_words, search_table

LONG = "power:0.7071067811865476+easy-sjf+express:10800.5:0.123456/consolidate"
BROKEN = BrokenLimit("gpus", "5-8", 300, "p99_wait_s", 144 * 86400.0, 6 * 86400.0, 7.5 * 86400.0)
VALUES = {"mean_bounded_slowdown": 123.4, "mean_jct_s": 5e5, "p99_wait_s": 3e5, "max_wait_s": 6e5}


def summary_with(name: str) -> Summary:
    nothing: Any = None
    today = Judged("fifo+easy/consolidate", 2.0, 2.0, VALUES, VALUES)
    judged = {
        "current": today,
        "heuristic": Judged("wspt+easy/consolidate", 1.0, 1.0, VALUES, VALUES, (BROKEN,)),
        "grid": Judged(name, 1.0, 0.5, VALUES, VALUES),
    }
    result = SearchResult(
        chosen="grid",
        current=today.name,
        reference="wspt+easy/consolidate",
        grid_policy=name,
        unguarded=Judged("power:2+easy/consolidate", 0.5, 0.4, VALUES, VALUES, (BROKEN,)),
        judged=judged,  # type: ignore[arg-type]
        grid_rule=nothing,
        rule=nothing,
        history=(),
        grid=(),
        seconds={"grid": 3.0},
        starts=None,
    )
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
    lines = search_in_words(summary_with(LONG), Path("runs/search-1"))
    assert lines[0].startswith(f"{LONG}: recommended. ")
    assert any(f"gpuyard evaluate {LONG} --on" in line for line in lines)


def test_what_breaks_limits_is_not_recommended_and_its_gain_and_price_are_told() -> None:
    text = "\n".join(search_in_words(summary_with(LONG), Path("runs/search-1")))
    price = "jobs of 5-8 GPUs would wait 144 d (99th percentile), 6 d today"
    assert f"power:2+easy/consolidate: not recommended: {price}. It has" in text
    assert text.count(price) == 2, "of the best fixed heuristic too"


def test_nothing_is_recommended_where_nothing_that_keeps_the_limits_is_better() -> None:
    summary = {**summary_with(LONG), "chosen": "current", "policy": "fifo+easy/consolidate"}
    assert search_in_words(summary, Path("runs/search-1"))[0].startswith("Nothing is recommended: ")
