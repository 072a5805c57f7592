"""The report as people use it: what it answers, sorting, the chart of the cluster, files, colours, names."""

import csv
import io
import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gpuyard.report import write_report
from report_cases import NASTY, SCRIPT, simulated

Box = dict[str, float]


def texts(page: Any, column: int) -> list[str]:
    return [
        text.strip() for text in page.locator(f"#policies tbody tr > :nth-child({column})").all_inner_texts()
    ]


def numbers(page: Any, head: str) -> list[float]:
    heads = [text.strip() for text in page.locator("#policies thead th").all_inner_texts()]
    place = next(k for k, text in enumerate(heads, 1) if text.startswith(head))
    cells = page.locator(f"#policies tbody tr > :nth-child({place})").all()
    return [float(cell.get_attribute("data-value")) for cell in cells]


def next_frame(page: Any) -> None:
    """Until the page has drawn what it was asked for."""
    page.evaluate("new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")


def wait_until(condition: Callable[[], bool], within_s: float = 10.0) -> None:
    """For what the browser does on its own time, such as turning a wheel."""
    until = time.monotonic() + within_s
    while not condition():
        assert time.monotonic() < until, "it has not come about"
        time.sleep(0.02)


def view(page: Any) -> dict[str, float]:
    """What part of the cluster's time and nodes the canvas shows."""
    next_frame(page)
    canvas = page.locator("#gantt-canvas")
    return {
        name: float(canvas.get_attribute(f"data-{name}")) for name in ("from", "to", "top", "rows", "bars")
    }


def span(page: Any) -> float:
    shown = view(page)
    return shown["to"] - shown["from"]


def canvas_box(page: Any) -> Box:
    canvas = page.locator("#gantt-canvas")
    canvas.scroll_into_view_if_needed()
    box: Box = canvas.bounding_box()
    return box


def saved(page: Any, button: str) -> list[list[str]]:
    with page.expect_download() as waiting:
        page.locator(button).click()
    content = Path(waiting.value.path()).read_text(encoding="utf-8")
    return list(csv.reader(io.StringIO(content, newline="")))


def test_the_first_screen_says_which_is_best_by_how_much_and_how_sure(
    open_page: Any, evaluation_page: Path
) -> None:
    page = open_page(evaluation_page)
    answer = page.locator("#answer-title")
    assert answer.bounding_box()["y"] < 400
    best = page.locator("#policies tr.subject th").inner_text().split()[0].replace("\u200b", "")
    assert best in answer.inner_text()
    assert "interval" in page.locator(".sure").inner_text()
    figures = page.locator(".tiles").inner_text()
    assert "95\xa0% interval" in figures
    assert "mean JCT" in figures
    assert "max wait" in figures
    last_tile = page.locator(".tiles > div").last.bounding_box()
    assert last_tile["y"] + last_tile["height"] < 900
    assert page.locator("#figure-change svg circle").count() == page.locator("#policies tbody tr").count()


def test_a_single_run_says_that_it_has_no_interval(open_page: Any, simulation_page: Path) -> None:
    page = open_page(simulation_page)
    assert "is best" in page.locator("#answer-title").inner_text()
    assert "no interval" in page.locator(".sure").inner_text()


def test_the_table_sorts_by_the_column_that_is_pressed(open_page: Any, evaluation_page: Path) -> None:
    page = open_page(evaluation_page)
    assert numbers(page, "mean bounded slowdown") == sorted(numbers(page, "mean bounded slowdown"))
    head = page.locator("#policies thead th", has_text="p99 wait")
    head.locator("button").click()
    assert head.get_attribute("aria-sort") == "ascending"
    assert numbers(page, "p99 wait") == sorted(numbers(page, "p99 wait"))
    head.locator("button").press("Enter")
    assert head.get_attribute("aria-sort") == "descending"
    assert numbers(page, "p99 wait") == sorted(numbers(page, "p99 wait"), reverse=True)
    assert page.locator("#policies thead th[aria-sort]").count() == 1


def test_verdicts_stand_beside_intervals(open_page: Any, evaluation_page: Path) -> None:
    page = open_page(evaluation_page)
    assert {text.split()[-1] for text in texts(page, 2)} <= {"better", "worse", "tie", "reference"}
    assert sum("reference" in text for text in texts(page, 2)) == 1
    assert sum(" to " in text for text in texts(page, 3)) == len(texts(page, 3)) - 1


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
    assert "row in the trace\n17" in panel.inner_text()
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


def selected(page: Any) -> tuple[str, set[str]]:
    """The selected job and the nodes that it ran on."""
    panel = page.locator("#gantt-details")
    nodes = panel.locator("dt", has_text="nodes").locator("xpath=following-sibling::dd[1]").inner_text()
    return panel.locator("h3").inner_text(), set(nodes.split(", "))


def test_keys_go_on_from_jobs_that_hold_several_nodes(open_page: Any, simulation_page: Path) -> None:
    import polars as pl

    home = simulation_page.parent / "results" / "sjf+easy_consolidate"
    schedule = pl.read_parquet(home / "schedule.parquet")
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
    choice.select_option(label="fifo")
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
    import polars as pl

    page = open_page(simulation_page)
    rows = saved(page, "#gantt-csv")
    schedule = pl.read_parquet(
        simulation_page.parent / "results" / "sjf+easy_consolidate" / "schedule.parquet"
    )
    assert page.locator("#gantt-policy option").first.inner_text() == "sjf+easy"
    table = [dict(zip(rows[0], row, strict=True)) for row in rows[1:]]
    assert len(table) == len(schedule)
    assert [row["user"] for row in table] == schedule["user"].to_list()
    assert {row["user"] for row in table} == set(NASTY)
    for row, start_s, nodes in zip(table, schedule["start_s"], schedule["nodes"], strict=True):
        assert float(row["start_s"]) == pytest.approx(start_s, abs=0.002)
        assert row["nodes"] == "|".join(map(str, nodes))


def test_every_chart_has_its_data_as_a_file_and_as_a_table(open_page: Any, evaluation_page: Path) -> None:
    page = open_page(evaluation_page)
    figures = page.locator("figure[data-chart]").all()
    assert len(figures) >= 9
    for figure in figures:
        name = figure.get_attribute("data-chart")
        rows = saved(page, f"#figure-{name} .foot button")
        assert len(rows) > 1
        assert all(len(row) == len(rows[0]) for row in rows)
        figure.locator("summary").click()
        figure.locator("tbody tr").first.wait_for()


def test_the_table_of_a_chart_follows_what_is_chosen(open_page: Any, evaluation_page: Path) -> None:
    page = open_page(evaluation_page)
    figure = page.locator("#figure-by-user")
    figure.locator("summary").click()
    figure.locator("th", has_text="mean bounded slowdown").wait_for()
    figure.locator("select").select_option("mean wait")
    assert "mean wait (s)" in figure.locator("thead").inner_text()


def test_a_table_with_some_of_the_rows_says_so(open_page: Any, evaluation_page: Path) -> None:
    page = open_page(evaluation_page)
    table = page.locator("#figure-cdf-wait .foot")
    table.locator("summary").click()
    table.locator("tbody tr").first.wait_for()
    shown = table.locator("tbody tr").count()
    every = len(saved(page, "#figure-cdf-wait .foot button")) - 1
    assert shown < every
    assert f"{shown} of {every} rows" in table.locator(".note").inner_text()
    page.locator("#figure-change summary").click()
    page.locator("#figure-change tbody tr").first.wait_for()
    assert page.locator("#figure-change .foot .note").count() == 0


def test_the_tables_that_are_quoted_can_be_saved(
    open_page: Any, evaluation_page: Path, tmp_path: Path
) -> None:
    page = open_page(evaluation_page)
    rows = saved(page, "[data-csv=policies]")
    table = [dict(zip(rows[0], row, strict=True)) for row in rows[1:]]
    slowdowns = [float(row["mean_bounded_slowdown"]) for row in table]
    assert slowdowns == numbers(page, "mean bounded slowdown")
    assert [row["verdict"] for row in table] == [text.split()[-1] for text in texts(page, 2)]
    assert sum(row["role"] == "reference" for row in table) == 1
    write_report(tmp_path / "report.html", [simulated(tmp_path / "of", ("fifo+easy", "lifo+greedy"))])
    page = open_page(tmp_path / "report.html")
    lost = saved(page, "[data-csv=losses]")
    assert len(lost) - 1 == page.locator("#losses tbody tr").count() > 0
    users = {row[1] for row in lost if row[0] == "user"}
    assert users
    assert users <= set(NASTY)


def test_training_curves_are_shown(open_page: Any, simulation_page: Path) -> None:
    page = open_page(simulation_page)
    assert page.locator("#training figure").count() >= 3
    assert page.locator("#training svg path.line").count() >= 3


def test_dark_follows_the_system_and_the_button_changes_it(open_page: Any, simulation_page: Path) -> None:
    def paper(page: Any) -> str:
        return str(page.evaluate("getComputedStyle(document.body).backgroundColor"))

    light, dark = open_page(simulation_page), open_page(simulation_page, scheme="dark")
    bright, dim = paper(light), paper(dark)
    assert bright == "rgb(255, 255, 255)"
    assert dim != bright
    before = light.locator("#gantt-canvas").screenshot()
    light.locator("#theme").click()
    assert paper(light) == dim
    next_frame(light)
    assert light.locator("#gantt-canvas").screenshot() != before
    dark.locator("#theme").click()
    assert paper(dark) == bright


def test_names_from_a_log_are_text_everywhere(open_page: Any, simulation_page: Path) -> None:
    page = open_page(simulation_page)
    assert page.locator("h1").inner_text().startswith("<i>nasty</i>")
    assert page.locator("main img, main i:not(.swatch), main b").count() == 0
    assert page.locator("#figure-by-user text", has_text=SCRIPT).count() == 1
    page.locator("#figure-by-user summary").click()
    page.locator("#figure-by-user td", has_text=SCRIPT).first.wait_for()
    page.locator("#gantt-table summary").click()
    page.locator("#gantt-table td", has_text=SCRIPT).first.wait_for()


def test_a_phone_shows_everything_without_scrolling_sideways(open_page: Any, evaluation_page: Path) -> None:
    page = open_page(evaluation_page, width=390)
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    assert page.locator("#answer-title").is_visible()


def test_texts_of_the_first_chart_stay_in_its_card_on_a_phone(open_page: Any, evaluation_page: Path) -> None:
    page = open_page(evaluation_page, width=390)
    outside = page.evaluate(
        """(() => {
          const card = document.querySelector("#figure-change").getBoundingClientRect();
          return [...document.querySelectorAll("#figure-change text")].filter((one) => {
            const box = one.getBoundingClientRect();
            return box.left < card.left || box.right > card.right;
          }).map((one) => one.textContent);
        })()"""
    )
    assert outside == []


def test_the_row_of_the_answer_stands_out_to_its_left_end_on_a_phone(
    open_page: Any, evaluation_page: Path
) -> None:
    page = open_page(evaluation_page, width=390)
    paint = "(one) => getComputedStyle(one).backgroundColor"
    row, name, other = (
        page.locator(f"#policies {place}").first.evaluate(paint)
        for place in ("tr.subject", "tr.subject th", "tbody tr:not(.subject) th")
    )
    assert name == row != other


def test_a_difference_reads_the_same_in_the_chart_and_the_table(
    open_page: Any, evaluation_page: Path
) -> None:
    page = open_page(evaluation_page)
    cells = [text.split("\n")[0].strip() for text in texts(page, 3)]
    drawn = page.locator("#figure-change svg g text").all_text_contents()
    assert drawn == cells


def test_charts_tell_values_by_keys(open_page: Any, evaluation_page: Path) -> None:
    page = open_page(evaluation_page)
    plot = page.locator("#figure-cdf-wait .plot")
    plot.focus()
    page.keyboard.press("ArrowRight")
    assert "wait" in plot.locator(".tooltip").inner_text()
    assert "%" in plot.locator(".tooltip").inner_text()


def test_a_series_can_be_hidden(open_page: Any, evaluation_page: Path) -> None:
    page = open_page(evaluation_page)
    lines = page.locator("#figure-cdf-wait path.line")
    before = lines.count()
    page.locator("#figure-cdf-wait .legend button").first.click()
    assert lines.count() == before - 1


def test_parts_of_the_page_are_named_for_screen_readers(open_page: Any, evaluation_page: Path) -> None:
    page = open_page(evaluation_page)
    for role in ("banner", "main", "navigation", "contentinfo"):
        assert page.get_by_role(role).count() == 1
    assert page.get_by_role("application", name="Jobs on the nodes over time").count() == 1
    unnamed = page.evaluate(
        "[...document.querySelectorAll('button, select, input')].filter((one) => !one.labels?.length"
        " && !one.textContent.trim() && !one.getAttribute('aria-label')).length"
    )
    assert unnamed == 0
    assert page.locator("svg[role=img]:not([aria-label])").count() == 0


def test_screen_readers_are_told_what_charts_show(open_page: Any, evaluation_page: Path) -> None:
    page = open_page(evaluation_page)

    def told(chart: str) -> str:
        return str(page.locator(f"#figure-{chart} svg").get_attribute("aria-label"))

    assert re.search(r"sjf\+easy: median \S+ \w+.*, 99th percentile [1-9]", told("cdf-wait"))
    assert re.search(r"sjf\+easy: at most [1-9]\d* %", told("utilisation"))
