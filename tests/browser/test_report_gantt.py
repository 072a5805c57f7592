"""The chart of the cluster as people use it: by mouse, by keys, and as a file."""

from pathlib import Path
from typing import Any

import polars as pl
import pytest

from browser.page_reading import canvas_box, saved, span, view, wait_until
from gpuyard.evaluate import Comparison
from support.report_cases import NASTY, SCRIPT


def test_the_gantt_zooms_and_pans_by_mouse(open_page: Any, simulation_page: Path) -> None:
    page = open_page(simulation_page)
    box, whole = canvas_box(page), span(page)
    middle = (box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    page.mouse.move(*middle)
    page.locator("#gantt-canvas").focus()
    page.mouse.wheel(0, -600)
    wait_until(lambda: span(page) < 0.7 * whole)
    zoomed = view(page)
    page.mouse.down()
    page.mouse.move(middle[0] - 150, middle[1], steps=5)
    page.mouse.up()
    panned = view(page)
    assert panned["from"] > zoomed["from"]
    assert panned["to"] - panned["from"] == pytest.approx(zoomed["to"] - zoomed["from"])
    page.locator("#gantt-in").click()
    assert span(page) < zoomed["to"] - zoomed["from"]
    page.locator("#gantt-fit").click()
    assert span(page) == pytest.approx(whole)


def test_the_wheel_scrolls_the_page_unless_the_gantt_has_focus_or_it_is_a_pinch(
    open_page: Any, simulation_page: Path
) -> None:
    page = open_page(simulation_page)
    box, whole = canvas_box(page), span(page)
    page.mouse.move(box["x"] + 300, box["y"] + 100)
    before = page.evaluate("scrollY")
    page.mouse.wheel(0, -200)
    wait_until(lambda: page.evaluate("scrollY") < before)
    assert span(page) == whole
    box = canvas_box(page)
    page.mouse.move(box["x"] + 300, box["y"] + 100)
    page.keyboard.down("Control")  # what a pinch on a touchpad is told as
    page.mouse.wheel(0, -100)
    wait_until(lambda: span(page) < whole)
    page.keyboard.up("Control")


def test_the_gantt_zooms_and_pans_by_keys(open_page: Any, simulation_page: Path) -> None:
    page = open_page(simulation_page)
    whole = span(page)
    page.locator("#gantt-canvas").focus()
    for _ in range(4):
        page.keyboard.press("+")
    zoomed = view(page)
    assert zoomed["to"] - zoomed["from"] < 0.5 * whole
    page.keyboard.press("ArrowRight")
    moved = view(page)
    assert moved["from"] > zoomed["from"]
    page.keyboard.press("]")
    page.keyboard.press("ArrowDown")
    lower = view(page)
    assert lower["rows"] < 4
    assert lower["top"] > 0
    assert "Showing" in page.locator("#gantt-status").inner_text()
    page.keyboard.press("0")
    assert span(page) == pytest.approx(whole)


def test_a_click_and_enter_open_a_job(open_page: Any, simulation_page: Path) -> None:
    page = open_page(simulation_page)
    panel = page.locator("#gantt-details")
    assert panel.get_attribute("aria-live") == "polite"
    page.locator("#gantt-canvas").focus()
    page.keyboard.press("Enter")
    first = panel.locator("h3").inner_text()
    assert first.startswith(f"job {SCRIPT}")
    assert "waited" in panel.inner_text()
    page.keyboard.press("Shift+ArrowRight")
    assert panel.locator("h3").inner_text() != first
    page.locator("#gantt-job").fill("17")
    page.locator("#gantt-find button").click()
    assert panel.locator("h3").inner_text().endswith("17 (row 17)")
    page.locator("#gantt-fit").click()
    page.locator("#gantt-canvas").press("Escape")
    assert panel.locator("dl").count() == 0
    box = canvas_box(page)
    for share in (0.3, 0.35, 0.4, 0.45, 0.5):  # the cluster is busy, but not at every place
        page.mouse.click(box["x"] + box["width"] * share, box["y"] + 40)
    assert panel.locator("dl").is_visible()
    assert "nodes" in panel.inner_text()


def test_an_unknown_job_is_said_to_be_unknown(open_page: Any, simulation_page: Path) -> None:
    page = open_page(simulation_page)
    page.locator("#gantt-job").fill("none <b>such</b>")
    page.locator("#gantt-find button").click()
    told = page.locator("#gantt-details").inner_text()
    assert "There is no job none <b>such</b> here" in told
    assert "300 jobs, rows 0 to 299 of the trace" in told


def schedule_of(page: Path, policy: str = "sjf+easy") -> pl.DataFrame:
    """The schedule of a policy that a page was made from."""
    comparison = Comparison.read(page.parent / "results")
    return comparison.schedules[comparison.policy(policy).name]


def selected(page: Any) -> tuple[str, set[str]]:
    """The selected job and the nodes that it ran on."""
    panel = page.locator("#gantt-details")
    nodes = panel.locator("dt", has_text="nodes").locator("xpath=following-sibling::dd[1]").inner_text()
    return panel.locator("h3").inner_text(), set(nodes.split(", "))


def test_keys_go_on_from_jobs_that_hold_several_nodes(open_page: Any, simulation_page: Path) -> None:
    schedule = schedule_of(simulation_page)
    held = dict(schedule.select("row", "nodes").iter_rows())
    wide = [row for row, nodes in held.items() if len(nodes) > 1 and nodes[1] == nodes[0] + 1 < 3]
    assert len(wide) > 3, "no job holds neighbouring nodes, so this shows nothing"
    page = open_page(simulation_page)
    for row in wide[:4]:
        page.locator("#gantt-job").fill(str(row))
        page.locator("#gantt-find button").click()
        found, nodes = selected(page)
        page.locator("#gantt-canvas").focus()
        page.keyboard.press("Shift+ArrowDown")
        below, others = selected(page)
        assert below != found
        assert max(others) > min(nodes)
        page.keyboard.press("Shift+ArrowRight")
        beside, more = selected(page)
        assert beside not in (found, below)
        assert others & more, "it is in the same row"


def test_the_hint_of_a_bar_goes_when_the_chart_moves(open_page: Any, simulation_page: Path) -> None:
    page = open_page(simulation_page)
    box, hint = canvas_box(page), page.locator("#gantt-hint")
    places = ((box["x"] + box["width"] * share / 20, box["y"] + 40) for share in range(6, 14))
    while not hint.is_visible():  # the cluster is busy, but not at every place
        page.mouse.move(*next(places))
    page.locator("#gantt-canvas").focus()
    page.keyboard.press("+")
    assert not hint.is_visible()


def test_another_policy_shows_its_own_schedule_in_the_same_view(
    open_page: Any, simulation_page: Path
) -> None:
    page = open_page(simulation_page)
    canvas, choice = page.locator("#gantt-canvas"), page.locator("#gantt-policy")
    page.locator("#gantt-in").click()
    before = view(page)
    page.locator("#gantt-job").fill("200")
    page.locator("#gantt-find button").click()
    told = page.locator("#gantt-details").inner_text()
    choice.select_option(label="fifo+strict")
    page.wait_for_selector('#gantt-canvas[data-policy="fifo+strict/consolidate"]')
    assert page.locator("#gantt-details").inner_text() != told
    assert canvas.get_attribute("data-policy") == "fifo+strict/consolidate"
    assert before["rows"] == view(page)["rows"]


def test_colours_of_bars_have_a_legend(open_page: Any, simulation_page: Path) -> None:
    page = open_page(simulation_page)
    for mode, word in (("size", "GPUs"), ("user", SCRIPT), ("wait", "Waited")):
        page.locator("#gantt-colour").select_option(mode)
        assert word in page.locator("#gantt-legend").inner_text()


def test_the_schedule_is_downloaded_with_names_as_they_are(open_page: Any, simulation_page: Path) -> None:
    page = open_page(simulation_page)
    rows = saved(page, "#gantt-csv")
    schedule = schedule_of(simulation_page)
    assert page.locator("#gantt-policy option").first.inner_text() == "sjf+easy"
    table = [dict(zip(rows[0], row, strict=True)) for row in rows[1:]]
    assert len(table) == len(schedule)
    assert [row["user"] for row in table] == schedule["user"].to_list()
    assert {row["user"] for row in table} == set(NASTY)
    for row, start_s, nodes in zip(table, schedule["start_s"], schedule["nodes"], strict=True):
        assert float(row["start_s"]) == pytest.approx(start_s, abs=0.002)
        assert row["nodes"] == "|".join(map(str, nodes))
