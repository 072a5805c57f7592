"""Pages of training runs and of workloads as they are drawn: columns, steps, bands, levels, files."""

import re
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from browser.page_reading import saved
from gpuyard.cluster.model import parse_cluster
from gpuyard.report.frame import PageMaker
from gpuyard.report.pages.training import runs_page
from gpuyard.report.pages.workload import card_page, description_page
from gpuyard.runs.directory import open_run
from gpuyard.workload import describe
from gpuyard.workload.auditing.audit import audit
from gpuyard.workload.distributions import distributions
from support.report_cases import SCRIPT, jobs_with_names
from support.sample_runs import write_run

PLOT_HEIGHT = 200
X, Y = {"label": "x", "unit": "1", "scale": "linear"}, {"label": "y", "unit": "1", "scale": "linear"}


def series(name: str, y: list[float], colour: int = 1, **more: Any) -> dict[str, Any]:
    return {"name": name, "colour": colour, "y": y, **more}


def drawn(open_page: Any, path: Path, **chart: Any) -> Any:
    """The figure of one chart."""
    maker = PageMaker("title", "subtitle")
    maker.section("Charts", maker.figures([{"title": "chart", "x": X, "y": Y, **chart}]))
    path.write_text(maker.html(), encoding="utf-8")
    return open_page(path).locator("#figure-chart")


def columns(figure: Any) -> list[dict[str, float]]:
    names = ("x", "y", "width", "height")
    return [
        {name: float(one.get_attribute(name)) for name in names}
        for one in figure.locator("rect.column").all()
    ]


def path_of(figure: Any, kind: str) -> str:
    found: str = figure.locator(f".plot > svg path.{kind}").first.get_attribute("d")
    return found


def test_columns_are_as_high_as_their_values_and_none_is_drawn_for_nothing(
    open_page: Any, tmp_path: Path
) -> None:
    values = [series("s", [1.0, 2.0, 0.0])]
    figure = drawn(open_page, tmp_path / "a.html", kind="columns", labels=["a", "b", "c"], series=values)
    low, high = columns(figure)
    assert high["height"] == pytest.approx(PLOT_HEIGHT)
    assert low["height"] == pytest.approx(PLOT_HEIGHT / 2)
    assert low["y"] + low["height"] == pytest.approx(high["y"] + high["height"])


def test_columns_of_several_series_stand_side_by_side(open_page: Any, tmp_path: Path) -> None:
    both = [series("one", [1.0]), series("two", [1.0], 2)]
    figure = drawn(open_page, tmp_path / "a.html", kind="columns", labels=["a"], series=both)
    first, second = columns(figure)
    assert first["x"] + first["width"] == pytest.approx(second["x"])
    figure.locator(".legend button", has_text="one").click()
    assert len(columns(figure)) == 1


def test_labels_are_thinned_out_where_they_would_overlap(open_page: Any, tmp_path: Path) -> None:
    labels = [f"label {k}" for k in range(40)]
    values = [series("s", [1.0] * 40)]
    figure = drawn(open_page, tmp_path / "a.html", kind="columns", labels=labels, series=values)
    boxes = [one.bounding_box() for one in figure.locator("svg text", has_text="label").all()]
    assert 5 < len(boxes) < 30
    assert all(a["x"] + a["width"] < b["x"] for a, b in pairwise(boxes))


def test_columns_span_their_bins_on_a_log_scale(open_page: Any, tmp_path: Path) -> None:
    x = {"label": "duration", "unit": "s", "scale": "log"}
    chart = {"edges": [1.0, 10.0, 100.0], "series": [series("s", [1.0, 1.0])]}
    figure = drawn(open_page, tmp_path / "a.html", kind="columns", **chart, x=x)
    first, second = columns(figure)
    assert first["width"] == pytest.approx(second["width"], abs=0.2)
    figure.locator(".plot").focus()
    figure.page.keyboard.press("ArrowRight")
    figure.page.keyboard.press("ArrowRight")
    assert figure.locator(".tooltip").inner_text().split("\n")[0] == "duration 10 s to 1 min 40 s"
    assert saved(figure.page, "#figure-chart .foot button >> nth=0")[1:] == [
        ["s", "1", "10", "1"],
        ["s", "10", "100", "1"],
    ]


def test_steps_hold_a_value_until_the_next_and_are_cut_at_the_top(open_page: Any, tmp_path: Path) -> None:
    one = [series("s", [0.0, 99.0, 1.0], x=[0.0, 1.0, 2.0])]
    y = {**Y, "low": 0.0, "high": 1.0}
    figure = drawn(open_page, tmp_path / "a.html", kind="lines", steps=True, series=one, y=y)
    assert re.fullmatch(r"M[\d.]+ 208\.0H[\d.]+V8\.0H[\d.]+V8\.0", path_of(figure, "line"))


def test_a_band_reaches_from_the_least_to_the_greatest(open_page: Any, tmp_path: Path) -> None:
    one = [series("s", [1.0, 1.0], x=[0.0, 1.0], low=[0.0, 0.0], high=[2.0, 2.0])]
    figure = drawn(open_page, tmp_path / "a.html", kind="lines", series=one)
    heights = {float(y) for y in re.findall(r"[ML][\d.]+ ([\d.]+)", path_of(figure, "band"))}
    assert heights == {8.0, 208.0}
    assert saved(figure.page, "#figure-chart .foot button >> nth=0")[:2] == [
        ["series", "x", "y", "least", "greatest"],
        ["s", "0", "1", "0", "2"],
    ]


def test_names_of_close_levels_do_not_lie_on_each_other(open_page: Any, tmp_path: Path) -> None:
    levels = [{"name": name, "value": at} for name, at in (("one", 0.5), ("two", 0.51), ("three", 0.9))]
    line = [series("s", [0.0, 1.0], x=[0.0, 1.0])]
    figure = drawn(open_page, tmp_path / "a.html", kind="lines", series=line, levels=levels)
    names = ("one 0.5", "two 0.51", "three 0.9")
    box = {name: figure.locator("text.over", has_text=name).first.bounding_box() for name in names}
    one, two, three = (box[name] for name in names)
    assert two["x"] + two["width"] == pytest.approx(three["x"] + three["width"], abs=0.5)
    assert one["x"] + one["width"] < two["x"]


def test_long_texts_of_a_scale_stay_in_the_picture(open_page: Any, tmp_path: Path) -> None:
    y = {"label": "wait", "unit": "s", "scale": "linear"}
    line = [series("s", [480.0, 590.0], x=[0.0, 1.0])]
    figure = drawn(open_page, tmp_path / "a.html", kind="lines", series=line, y=y)
    left = figure.locator("svg[role=img]").bounding_box()["x"]
    ticks = figure.locator("svg text", has_text="min").all()
    assert any(" s" in tick.inner_html() for tick in ticks)
    assert all(tick.bounding_box()["x"] >= left for tick in ticks)


@pytest.mark.parametrize("width", [1280, 390])
def test_every_chart_of_every_page_is_drawn(open_page: Any, tmp_path: Path, width: int) -> None:
    cluster, jobs = parse_cluster("4x4"), jobs_with_names(60)
    runs = [open_run(write_run(tmp_path / name, updates=300, name=SCRIPT + name)) for name in ("a", "b")]
    pages = {
        "one": runs_page(runs[:1]),
        "two": runs_page(runs, across="minutes"),
        "description": description_page(describe(jobs, cluster), distributions(jobs, cluster.total_gpus)),
        "card": card_page(audit(jobs, cluster)),
    }
    for name, html in pages.items():
        path = tmp_path / f"{name}.html"
        path.write_text(html, encoding="utf-8")
        page = open_page(path, width=width)
        figures = page.locator("figure[data-chart]").all()
        assert len(figures) >= 2
        for figure in figures:
            assert figure.locator("path.line, rect.column").count() > 0
            assert "NaN" not in figure.inner_html()
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")


def test_the_files_of_a_run_can_be_saved(open_page: Any, tmp_path: Path) -> None:
    path = tmp_path / "page.html"
    path.write_text(runs_page([open_run(write_run(tmp_path / "ppo-1", updates=40))]), encoding="utf-8")
    rows = saved(open_page(path), "[data-csv=ppo-1-updates]")
    assert len(rows) == 41
    assert "entropy" in rows[0]
