"""Times of a page are dates where the log has a clock, and ticks stay apart at every zoom."""

import re
from pathlib import Path
from typing import Any

import pytest

from gpuyard.report import write_report
from gpuyard.workload import make_workload
from support.report_cases import jobs_with_names, simulated

EPOCH_S = 1482356580.0  # 2016-12-21 21:43


@pytest.fixture(scope="module")
def dated_page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    home = tmp_path_factory.mktemp("dated")
    jobs = make_workload(jobs_with_names().frame, epoch_s=EPOCH_S)
    write_report(home / "report.html", [simulated(home / "results", jobs=jobs)])
    return home / "report.html"


TICKS = """(() => { const texts = []; const kept = CanvasRenderingContext2D.prototype.fillText;
  CanvasRenderingContext2D.prototype.fillText = function (text, x, y) {
    if (y === 15) texts.push(text);
    kept.call(this, text, x, y);
  };
  window.rulerTexts = () => texts.splice(0); })()"""


def ruler(page: Any, press: str, times: int) -> list[str]:
    """Texts of the Gantt chart's ruler after keys."""
    page.evaluate(TICKS)
    page.locator("#gantt-canvas").focus()
    for _ in range(times):
        page.keyboard.press(press)
    page.wait_for_timeout(100)
    page.evaluate("rulerTexts()")
    page.keyboard.press("ArrowRight")
    page.wait_for_timeout(100)
    found: list[str] = page.evaluate("rulerTexts()")
    return found


def test_charts_and_the_gantt_show_dates(open_page: Any, dated_page: Path) -> None:
    page = open_page(dated_page)
    chart = page.locator("#figure-utilisation").inner_text()
    assert "time (UTC)" in chart
    assert re.search(r"2[12] Dec 2016", chart)
    assert page.locator("#gantt-status").inner_text().startswith("Showing 2016-12-21 21:43")
    page.locator("#gantt-job").fill("row:17")
    page.locator("#gantt-find button").click()
    assert re.search(r"submitted\n2016-12-2\d \d\d:\d\d\n", page.locator("#gantt-details").inner_text())


@pytest.mark.parametrize("times", [0, 8, 16])
@pytest.mark.parametrize("kind", ["dated", "undated"])
def test_ticks_differ_at_every_zoom(
    open_page: Any, dated_page: Path, simulation_page: Path, kind: str, times: int
) -> None:
    page = open_page(dated_page if kind == "dated" else simulation_page)
    texts = ruler(page, "+", times)
    assert len(texts) >= 2
    assert len(set(texts)) == len(texts)
    if times == 16:
        assert any(re.search(r"\d\d:\d\d$", text) for text in texts)


def test_the_axis_of_differences_says_that_it_is_not_linear(open_page: Any, tmp_path: Path) -> None:
    write_report(
        tmp_path / "report.html", [simulated(tmp_path / "results", ("sjf+easy", "lifo", "fifo+easy"))]
    )
    page = open_page(tmp_path / "report.html")
    assert "mean bounded slowdown against sjf+easy (log scale)" in page.locator("#figure-change").inner_text()


def test_tables_fit_a_printed_page(open_page: Any, dated_page: Path) -> None:
    page = open_page(dated_page, width=720)
    page.emulate_media(media="print")
    box = "getComputedStyle(document.querySelector('#comparison > .scroll')).overflowX"
    assert page.evaluate(box) == "visible"
    sizes = page.evaluate(
        "['#who table', '#policies'].map((name) => document.querySelector(name).scrollWidth)"
    )
    assert max(sizes) <= 720
