"""Training runs as a page: what it shows, that it needs nothing else, that names never become markup."""

import csv
import json
import re
import urllib.parse
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from gpuyard.report.pages import charts
from gpuyard.report.pages.charts import Series
from gpuyard.report.pages.run_figures import MOST_POINTS, FigureMaker
from gpuyard.report.pages.training import runs_page
from gpuyard.runs.curves import Curve
from gpuyard.runs.directory import open_run
from support.sample_runs import sample_records, write_run

STATED = {"metric": "return", "higher_is_better": True}

EVIL = "<script>alert(1)</script>"


class Page(HTMLParser):
    """What is in a page: tags, texts, links; refuses tags that are not closed in order."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[str] = []
        self.texts: list[str] = []
        self.links: dict[str, str] = {}
        self.feed(text)
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        if tag != "meta":
            self.open.append(tag)
        values = dict(attrs)
        assert not any(name.startswith("on") for name in values)
        if tag == "a":
            self.links[values["download"] or ""] = values["href"] or ""

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.texts.append(data)

    @property
    def text(self) -> str:
        return "\n".join(self.texts)


def page_of(*directories: Path, **options: Any) -> Page:
    return Page(runs_page([open_run(directory) for directory in directories], **options))


def test_a_page_of_one_run_shows_every_curve_and_the_heuristics(tmp_path: Path) -> None:
    text = page_of(write_run(tmp_path / "ppo-1", updates=40)).text
    for part in (
        *("Training run ppo-1", "Validation score", "Validation: mean wait", "score, higher is better"),
        *("sjf+easy 0.529", "wspt+greedy 0.517", "fifo+easy 0.402"),
        *("Policy loss", "Value loss", "Entropy", "KL", "Gradient norm", "Learning rate", "Episode return"),
        *(
            "Decisions to wait",
            "Which row was picked",
            "Return that the policy expects",
        ),
        *("How sure the policy was of its choice", "network.kind", "better than sjf+easy"),
    ):
        assert part in text


def test_a_page_needs_nothing_but_itself(tmp_path: Path) -> None:
    text = runs_page([open_run(write_run(tmp_path / "ppo-1", updates=40))])
    page = Page(text)
    assert "script" not in page.tags
    assert "default-src 'none'" in text
    assert not re.search(r"https?://(?!www\.w3\.org)", text)
    assert all(link.startswith("data:text/csv") for link in page.links.values())


def test_every_chart_can_be_read_as_a_table(tmp_path: Path) -> None:
    page = page_of(write_run(tmp_path / "ppo-1", updates=40))
    assert page.tags.count("svg") == page.tags.count("details") == page.texts.count("as a table") > 12


def test_runs_are_laid_over_each_other_in_colours_that_stay(tmp_path: Path) -> None:
    first = write_run(tmp_path / "ppo-1", updates=40)
    second = write_run(tmp_path / "sac-1", updates=20, algorithm="sac", seed=5)
    only = {"event": "update", "step": 30 * 8192, "values": {"loss/temperature": 0.5}}
    with (second / "progress.jsonl").open("a", encoding="utf-8") as file:
        file.write(json.dumps(only) + "\n")
    text = runs_page([open_run(first), open_run(second)])
    figures = {re.findall("<title>(.*?)</title>", part)[0]: part for part in text.split("<figure>")[1:]}
    assert "var(--series-1" in figures["Entropy"]
    assert "var(--series-2" in figures["Entropy"]
    assert "var(--series-1" not in figures["Temperature loss"]
    assert "sac-1" in figures["Temperature loss"].split("<svg")[0]
    assert "2 training runs" in text
    assert "Settings that differ" in text


def test_curves_can_be_drawn_over_minutes(tmp_path: Path) -> None:
    directory = write_run(tmp_path / "ppo-1", updates=40)
    assert "minutes of training" in page_of(directory, across="minutes").text
    assert "minutes of training" not in page_of(directory).text


def test_the_files_hold_every_value_that_was_written(tmp_path: Path) -> None:
    page = page_of(write_run(tmp_path / "ppo-1", updates=300))
    rows = csv_rows(page.links["ppo-1-updates.csv"])
    written = [record for record in sample_records(300, name="ppo-1") if record["event"] == "update"]
    assert len(rows) == 300
    assert [float(row["entropy"]) for row in rows] == [record["values"]["entropy"] for record in written]
    assert len(csv_rows(page.links["ppo-1-validations.csv"])) == 30


def csv_rows(link: str) -> list[dict[str, str]]:
    _, _, text = link.partition(",")
    return list(csv.DictReader(urllib.parse.unquote(text).splitlines()))


def test_names_are_text_never_markup(tmp_path: Path) -> None:
    config = f"algorithm = '{EVIL}'\n\"{EVIL}\" = '{EVIL}'\n"
    directory = write_run(tmp_path / "run", updates=20, name=EVIL, algorithm=EVIL, config=config)
    lines = (directory / "progress.jsonl").read_text(encoding="utf-8")
    lines = lines.replace("sjf+easy", EVIL).replace("gradient_norm", EVIL)
    (directory / "progress.jsonl").write_text(lines, encoding="utf-8")
    for runs in ([directory], [directory, write_run(tmp_path / "other", updates=10)]):
        text = runs_page([open_run(run) for run in runs])
        assert "<script" not in text
        page = Page(text)
        assert EVIL in page.text
        assert all("<" not in name and "/" not in name for name in page.links)


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


def test_a_long_curve_is_drawn_as_means_in_a_band() -> None:
    curve = Curve()
    for step in range(1000):
        curve.append(step, step, float(step % 2))
    draw = FigureMaker("steps", ["run"])
    text = draw.figure("t", "value", [draw.line("run", curve)])
    assert 'fill-opacity=".16"' in text
    drawn = max(re.findall(r' d="M([^"]*)" fill="none"', text), key=len)
    assert drawn.count("L") < MOST_POINTS


def test_a_heuristic_far_off_does_not_flatten_the_curves() -> None:
    curve = Curve()
    for step, value in enumerate([480.0, 500.0, 520.0]):
        curve.append(step, step, value)
    draw = FigureMaker("steps", ["run"])
    text = draw.figure("t", "value", [draw.line("run", curve)], [(530.0, "near"), (1294.0, "far")])
    assert "Too far off to be shown: far" in text
    assert ">near</text>" in text
    assert ">1,000</text>" not in text


# What charts learnt for this


@pytest.mark.parametrize("low", [-100.0, -0.03, 0.0, 0.2, 5000.0])
@pytest.mark.parametrize("span", [0.0, 1e-5, 0.7, 33.0, 1e7])
def test_a_scale_between_any_values_has_a_few_round_ticks_that_enclose_them(low: float, span: float) -> None:
    axis = charts.range_axis("y", low, low + span)
    slack = 1e-9 * max(abs(low), span, 1)
    assert axis.low <= low + slack
    assert axis.high >= low + span - slack
    assert 3 <= len(axis.ticks) <= 12
    assert axis.ticks[0][0] == axis.low
    assert axis.ticks[-1][0] == axis.high


def test_names_of_close_levels_do_not_lie_on_each_other() -> None:
    x, y = charts.linear_axis("x", 1.0), charts.linear_axis("y", 1.0)
    line = Series("s", [0.0, 1.0])
    levels = [(0.5, "one"), (0.51, "two"), (0.9, "three")]
    text = charts.line_chart("t", [[0.0, 1.0]], [line], x, y, levels=levels)
    right = {name: float(at) for at, name in re.findall(r'class="over" x="(\d+)"[^>]*>(\w+)<', text)}
    assert right["two"] == right["three"]
    assert right["one"] < right["two"] - 3 * charts.LETTER_WIDTH
