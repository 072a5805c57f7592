"""Training runs as a page: what it shows, that it needs nothing else, that names never become markup."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from gpuyard.report.pages.training import runs_page
from gpuyard.report.training import MOST_POINTS, MOST_RUNS, RunCharts
from gpuyard.runs.curves import Curve
from gpuyard.runs.directory import open_run
from support.sample_runs import sample_records, write_run
from support.written_pages import OWN_SCRIPTS, WrittenPage

STATED = {"metric": "return", "higher_is_better": True}

EVIL = "<script>alert(1)</script>"


def page_of(*directories: Path, **options: Any) -> WrittenPage:
    return WrittenPage(runs_page([open_run(directory) for directory in directories], **options))


def test_a_page_of_one_run_shows_every_curve_and_the_heuristics(tmp_path: Path) -> None:
    page = page_of(write_run(tmp_path / "ppo-1", updates=40))
    for part in (
        *("Training run ppo-1", "Validation score", "Validation: mean wait", "Higher is better."),
        *("Policy loss", "Value loss", "Entropy", "KL", "Gradient norm", "Learning rate", "Episode return"),
        *("Decisions to wait", "Which row was picked", "Return that the policy expects"),
        *("How sure the policy was of its choice", "network.kind", "better than sjf+easy"),
    ):
        assert part in page.text
    levels = page.charts["Validation score"]["levels"]
    shown = {level["name"]: round(level["value"], 3) for level in levels}
    assert shown == {"sjf+easy": 0.529, "wspt+greedy": 0.517}
    assert "Too far off to be shown: fifo+easy 0.402." in page.text


def test_a_page_needs_nothing_but_itself(tmp_path: Path) -> None:
    text = runs_page([open_run(write_run(tmp_path / "ppo-1", updates=40))])
    page = WrittenPage(text)
    assert page.scripts == OWN_SCRIPTS
    assert "default-src 'none'; script-src 'sha256-" in text
    assert not re.search(r"https?://(?!www\.w3\.org)", text)
    assert all(link.startswith("#") for link in page.links)


def test_every_chart_has_its_data(tmp_path: Path) -> None:
    page = page_of(write_run(tmp_path / "ppo-1", updates=40))
    assert page.places == list(page.data["charts"])
    assert len(page.places) > 12


def test_runs_are_laid_over_each_other_in_colours_that_stay(tmp_path: Path) -> None:
    first = write_run(tmp_path / "ppo-1", updates=40)
    second = write_run(tmp_path / "sac-1", updates=20, algorithm="sac", seed=5)
    only = {"event": "update", "step": 30 * 8192, "values": {"loss/temperature": 0.5}}
    with (second / "progress.jsonl").open("a", encoding="utf-8") as file:
        file.write(json.dumps(only) + "\n")
    page = page_of(first, second)
    colours = {
        title: {one["name"]: one["colour"] for one in chart["series"]} for title, chart in page.charts.items()
    }
    assert colours["Entropy"] == {"ppo-1": 1, "sac-1": 2}
    assert colours["Temperature loss"] == {"sac-1": 2}
    assert colours["Which row was picked"] == {"ppo-1": 1, "sac-1": 2}
    assert "2 training runs" in page.text
    assert "Settings that differ" in page.text


def test_more_runs_than_colours_have_colours_too() -> None:
    names = [f"run-{number}" for number in range(MOST_RUNS + 2)]
    curves = dict.fromkeys(names, curve_of([1.0]))
    chart = RunCharts("steps", names).lines("t", ("value", "1"), curves)
    assert [one["colour"] for one in chart["series"]] == [*range(1, MOST_RUNS + 1), 1, 2]


def test_curves_can_be_drawn_over_minutes(tmp_path: Path) -> None:
    directory = write_run(tmp_path / "ppo-1", updates=40)
    for across, label in (("minutes", "minutes of training"), ("steps", "samples")):
        chart = page_of(directory, across=across).charts["Entropy"]
        assert chart["x"]["label"] == label
        assert chart["series"][0]["x"][-1] == pytest.approx(chart["x"]["high"])


def test_the_files_hold_every_value_that_was_written(tmp_path: Path) -> None:
    page = page_of(write_run(tmp_path / "ppo-1", updates=300))
    names, *rows = page.data["tables"]["ppo-1-updates"]
    written = [record for record in sample_records(300, name="ppo-1") if record["event"] == "update"]
    assert len(rows) == 300
    place = names.index("entropy")
    assert [row[place] for row in rows] == [record["values"]["entropy"] for record in written]
    assert len(page.data["tables"]["ppo-1-validations"]) == 31
    assert "ppo-1-updates.csv" in page.text


def test_runs_whose_names_differ_in_signs_alone_have_files_of_their_own(tmp_path: Path) -> None:
    one = write_run(tmp_path / "a", updates=10, name="a b")
    two = write_run(tmp_path / "b", updates=20, name="a/b")
    tables = page_of(one, two).data["tables"]
    assert [len(tables[name]) for name in ("a-b-updates", "a-b-updates-2")] == [11, 21]


def test_names_are_text_never_markup(tmp_path: Path) -> None:
    config = f"algorithm = '{EVIL}'\n\"{EVIL}\" = '{EVIL}'\n"
    directory = write_run(tmp_path / "run", updates=20, name=EVIL, algorithm=EVIL, config=config)
    lines = (directory / "progress.jsonl").read_text(encoding="utf-8")
    lines = lines.replace("sjf+easy", EVIL).replace("gradient_norm", EVIL)
    (directory / "progress.jsonl").write_text(lines, encoding="utf-8")
    for runs in ([directory], [directory, write_run(tmp_path / "other", updates=10)]):
        page = page_of(*runs)
        assert page.scripts == OWN_SCRIPTS
        assert EVIL in page.text
        assert any(EVIL in level["name"] for level in page.charts["Validation score"]["levels"])
        assert all("<" not in name and "/" not in name for name in page.data["tables"])


@pytest.mark.parametrize(
    "records",
    [
        [],
        [{"event": "start", "algorithm": "ppo", "name": "x", "total_steps": 10, "time": 0, **STATED}],
        [{"event": "update", "step": 0, "values": {"kl": None, "entropy": 0.0}}],
        [{"event": "update", "step": 5, "values": {}}, {"event": "validation", "step": 5, "values": {}}],
        [
            {
                "event": "validation",
                "step": 5,
                "score": None,
                "better": False,
                "values": {"policy/score": None},
            }
        ],
        [{"event": "actions", "step": 5, "values": {"noop_share": None, "rank_histogram": [0, 0]}}],
        [
            {
                "event": "actions",
                "step": 5,
                "values": {"value_histogram": {"edges": [1.0, 1.0], "counts": [3]}},
            }
        ],
        [{"event": "actions", "step": 5, "values": {"rank_histogram": "many", "value_histogram": None}}],
    ],
)
def test_a_run_that_says_little_has_a_page(tmp_path: Path, records: list[dict[str, Any]]) -> None:
    if records and records[0]["event"] != "start":
        records = [{"event": "start", **STATED}, *records]
    lines = "".join(json.dumps(record) + "\n" for record in records)
    (tmp_path / "progress.jsonl").write_text(lines, encoding="utf-8")
    assert "Made by gpuyard" in page_of(tmp_path).text


def test_runs_of_the_same_name_are_told_apart_by_their_directories(tmp_path: Path) -> None:
    first, second = (write_run(tmp_path / folder / "ppo", updates=10) for folder in "ab")
    text = page_of(first, second).text
    assert str(first) in text
    assert str(second) in text


def curve_of(values: list[float]) -> Curve:
    curve = Curve()
    for step, value in enumerate(values):
        curve.append(step, step, value)
    return curve


def test_a_long_curve_is_drawn_as_means_in_a_band() -> None:
    values = [float(step % 2) for step in range(1000)]
    draw = RunCharts("steps", ["run"])
    (line,) = draw.lines("t", ("value", "1"), {"run": curve_of(values)})["series"]
    assert 2 < len(line["y"]) == len(line["x"]) < MOST_POINTS
    assert set(line["low"]) == {0.0}
    assert set(line["high"]) == {1.0}
    (short,) = draw.lines("t", ("value", "1"), {"run": curve_of(values[:MOST_POINTS])})["series"]
    assert short["y"] == values[:MOST_POINTS]
    assert "low" not in short


def test_a_heuristic_far_off_does_not_flatten_the_curves() -> None:
    curves = {"run": curve_of([480.0, 500.0, 520.0])}
    levels = [(530.0, "near"), (1294.0, "far")]
    chart = RunCharts("steps", ["run"]).lines("t", ("wait", "s"), curves, levels)
    assert chart["note"] == "Too far off to be shown: far 21 min 34 s."
    assert chart["levels"] == [{"name": "near", "value": 530.0}]


@pytest.mark.parametrize(
    ("values", "bounds"),
    [
        ([0.2, 1.0], {"zero": 1}),
        ([-1.0, -0.2], {"zero": 1}),
        ([0.8, 1.0], {}),
        ([-0.5, 1.0], {}),
        ([0.0003, 0.0003], {"low": 0.00015, "high": 0.00045}),
        ([0.0], {"low": -0.5, "high": 0.5}),
    ],
)
def test_scales_fit_their_curves(values: list[float], bounds: dict[str, float]) -> None:
    chart = RunCharts("steps", ["run"]).lines("t", ("value", "1"), {"run": curve_of(values)})
    found = {name: value for name, value in chart["y"].items() if name in ("zero", "low", "high")}
    assert found == pytest.approx(bounds)
