"""Values in words, and tables that fit where they are shown."""

import math
from typing import Any

import pytest
from rich.console import Console
from rich.table import Table

from gpuyard.cli import demo
from gpuyard.metrics.catalogue import metrics
from gpuyard.terminal.console import Progress
from gpuyard.terminal.tables import COMPARED, bench_table, best_entries, comparison_table
from gpuyard.units import duration, json_text, metric_label, metric_text, number, plural, rough
from harness import BenchResult


@pytest.mark.parametrize(
    ("seconds", "long", "short"),
    [
        (0, "0 s", "0s"),
        (0.0005, "0.50 ms", "0.50ms"),
        (0.25, "0.25 s", "0.25s"),
        (0.999, "1.0 s", "1.0s"),
        (59.94, "59.9 s", "59.9s"),
        (59.96, "1 min", "1m"),
        (789, "13 min 9 s", "13m 9s"),
        (3599.4, "59 min 59 s", "59m 59s"),
        (3599.6, "1 h", "1h"),
        (16457, "4 h 34 min", "4h 34m"),
        (86399, "1 d", "1d"),
        (86400 + 3600, "1 d 1 h", "1d 1h"),
        (1234 * 86400, "1,234 d", "1,234d"),
        (-90, "-1 min 30 s", "-1m 30s"),
    ],
)
def test_durations_read_in_their_two_largest_units(seconds: float, long: str, short: str) -> None:
    assert duration(seconds) == long
    assert duration(seconds, short=True) == short


def test_no_duration_shows_60_of_a_unit() -> None:
    for seconds in [59.9 + step / 100 for step in range(20)] + [3590 + step / 10 for step in range(200)]:
        assert "60" not in duration(seconds)
    for seconds in range(86_000, 90_200, 7):
        assert "60 min" not in duration(seconds)
        assert "24 h" not in duration(seconds)


def test_metrics_read_in_units_that_their_names_imply() -> None:
    assert metric_text("mean_wait_s", 789.0) == "13 min 9 s"
    assert metric_text("gpu_utilization", 0.618) == "61.8 %"
    assert metric_text("mean_bounded_slowdown", 102.2) == "102"
    assert metric_text("starved_jobs", 1234) == "1,234"
    assert metric_text("energy_kwh", None) == "-"
    assert metric_text("energy_kwh", math.nan) == "-"
    assert metric_label("mean_jct_s") == "mean JCT"
    assert metric_label("gpu_utilization") == "GPU use"


def test_numbers_keep_about_three_digits() -> None:
    assert [number(value) for value in (1.234, 12.34, 123.4, 1234.5, 7)] == [
        "1.23",
        "12.3",
        "123",
        "1,234",
        "7",
    ]
    assert [rough(value) for value in (939_956, 1_268_648, 57.3)] == ["940,000", "1.27 million", "57.3"]
    assert [plural(1, "job"), plural(2000, "job"), plural(2, "policy")] == [
        "1 job",
        "2,000 jobs",
        "2 policies",
    ]


def test_json_has_null_for_what_is_no_finite_number() -> None:
    assert json_text({"a": [math.nan, (math.inf, 1.5)]}) == json_text({"a": [None, [None, 1.5]]})


def test_best_is_by_direction_and_by_what_is_shown() -> None:
    assert best_entries("mean_wait_s", "lower", [789.0, 789.2, 800.0]) == [True, True, False]
    assert best_entries("gpu_utilization", "higher", [0.5, None, 0.6]) == [False, False, True]
    assert best_entries("gpu_utilization", "higher", [0.6, 0.6]) == [False, False]
    assert best_entries("backfilled_jobs", "neutral", [1, 2]) == [False, False]
    assert best_entries("energy_kwh", "lower", [None, None]) == [False, False]


def render(table: Table, width: int) -> list[str]:
    console = Console(width=width, record=True, quiet=False, force_terminal=False, file=None, markup=False)
    with console.capture() as captured:
        console.print(table)
    return captured.get().splitlines()


@pytest.mark.parametrize("width", [40, 60, 80, 100, 120, 200])
def test_a_comparison_shows_every_name_and_value_whole_at_any_width(width: int) -> None:
    console = Console(width=width)
    values: list[dict[str, Any]] = [
        dict.fromkeys(COMPARED, 0.9 * (index + 1)) for index in range(len(demo.POLICIES))
    ]
    shown = {name: metrics()[name] for name in COMPARED}
    lines = render(comparison_table(console, demo.POLICIES, values, shown), width)
    assert max(len(line) for line in lines) <= width
    text = "".join("".join(lines).split())
    assert "…" not in text
    parts = {part for policy in demo.POLICIES for part in policy.replace("/", "+").split("+")}
    if width >= 60:
        for part in parts:
            assert part in text
    assert "*" in text


def test_findings_follow_the_numbers() -> None:
    def entry(wait_s: float, slowdown: float, p99_s: float = 100.0, use: float = 0.5) -> dict[str, float]:
        return {
            "mean_wait_s": wait_s,
            "mean_bounded_slowdown": slowdown,
            "p99_wait_s": p99_s,
            "gpu_utilization": use,
        }

    values = {
        demo.FIFO: entry(100, 9.0),
        demo.COUNTING: entry(200, 8),
        demo.FIFO_EASY: entry(50, 5, use=0.4),
        "sjf+easy/consolidate": entry(10, 2.0, p99_s=7200),
    }
    placement, backfill, order = demo.findings(values)
    assert "0.50 times the 3 min 20 s" in placement
    assert "lowers GPU use by 10.0 points" in backfill
    assert "sjf+easy has the lowest mean bounded slowdown, 2.00 against 9.00" in order
    assert "and the lowest mean wait, 10.0 s" in order
    values["wspt+easy/consolidate"] = entry(20, 1, p99_s=60)
    assert "at no price" in demo.findings(values)[2]
    values["wspt+easy/consolidate"] = entry(20, 1, p99_s=9000)
    assert "at a price" in demo.findings(values)[2]


def test_short_names_leave_out_the_defaults_only() -> None:
    names = {
        "fifo+strict/consolidate": "fifo",
        "fifo+strict/anywhere": "fifo/anywhere",
        "sjf+easy/consolidate": "sjf+easy",
        "wspt+strict+express:600:0.1/consolidate": "wspt+express:600:0.1",
        "wspt+easy+express:600:0.1/spread": "wspt+easy+express:600:0.1/spread",
    }
    assert {name: demo.short_name(name) for name in names} == names


def test_benchmarks_say_whether_their_targets_were_met() -> None:
    results = [
        BenchResult("steps", 1234.5, "steps/s", "peer", 10.0),
        BenchResult("jobs", 30.0, "jobs/s", "peer", 10.0, target=4.0),
        BenchResult("memory", 1.0, "GB", "peer", 10.0, target=0.5, lower_is_better=True),
    ]
    rows = [line.split() for line in render(bench_table(results), 100)[2:]]
    assert rows[0] == ["steps", "1,230", "steps/s", "123", "-", "-", "peer:", "10.0"]
    assert rows[1][3:7] == ["3.00", ">=", "4", "no"]
    assert rows[2][3:7] == ["0.10", "<=", "0.5", "yes"]


def test_long_work_away_from_a_terminal_prints_plain_lines(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    clock = [0.0]
    monkeypatch.setattr("gpuyard.terminal.console.time.monotonic", lambda: clock[0])
    progress = Progress(jobs_per_run=1000, runs=2)
    update = progress.start_run("fifo")
    clock[0] = 9.0
    update(100)
    clock[0] = 10.0
    update(500)
    progress.start_run("sjf")(0)
    clock[0] = 25.0
    update(250)
    progress.stop()
    out, err = capsys.readouterr()
    assert out == ""
    assert err.splitlines() == [
        "fifo: 500 of 2,000 jobs, 50.0 jobs/s, 30.0 s left",
        "sjf: 1,250 of 2,000 jobs, 50.0 jobs/s, 15.0 s left",
    ]
