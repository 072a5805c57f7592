"""The report as people use it: what it answers, sorting, files, colours, names."""

import re
from pathlib import Path
from typing import Any

from browser.page_reading import dashes, next_frame, numbers, saved, texts
from gpuyard.report import write_report
from gpuyard.report.figures import MOST_LINES
from support.report_cases import NASTY, SCRIPT, simulated


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


def test_every_chart_has_its_data_as_a_file_and_as_a_table(open_page: Any, evaluation_page: Path) -> None:
    page = open_page(evaluation_page)
    figures = page.locator("figure[data-chart]").all()
    assert len(figures) >= 9
    for figure in figures:
        name = figure.get_attribute("data-chart")
        rows = saved(page, f"#figure-{name} .foot button >> nth=0")
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
    every = len(saved(page, "#figure-cdf-wait .foot button >> nth=0")) - 1
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
    assert page.locator("#training .plot > svg path.line").count() >= 3


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
    cells = [text.split("\n")[0].strip().replace("\u00a0", " ") for text in texts(page, 3)]
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
    lines = page.locator("#figure-cdf-wait .plot > svg path.line")
    before = lines.count()
    page.locator("#figure-cdf-wait .legend button").first.click()
    assert lines.count() == before - 1


def test_lines_are_told_apart_without_colour_and_the_legend_has_their_dashes(
    open_page: Any, evaluation_page: Path
) -> None:
    for scheme in ("light", "dark"):
        page = open_page(evaluation_page, scheme=scheme)
        figure = page.locator("#figure-cdf-wait")
        drawn, keys = dashes(figure.locator(".plot > svg")), dashes(figure.locator(".legend"))
        assert drawn == keys
        assert drawn[0] == "none"
        assert len(set(drawn)) == len(drawn) == 4
        figure.locator(".legend button").first.click()
        assert dashes(figure.locator(".plot > svg")) == keys[1:], "hiding a line changes no other"
        figure.locator(".plot").press("ArrowRight")
        assert set(dashes(figure.locator(".tooltip"))) == set(keys[1:])


def test_there_are_as_many_dashes_as_lines_in_a_chart(open_page: Any, tmp_path: Path) -> None:
    orders = ("fifo", "lifo", "sjf", "wspt", "saf")
    names = tuple(f"{order}+{backfill}" for order in orders for backfill in ("strict", "easy"))
    write_report(tmp_path / "report.html", [simulated(tmp_path / "of", names)])
    drawn = dashes(open_page(tmp_path / "report.html").locator("#figure-cdf-wait .plot > svg"))
    assert len(set(drawn)) == len(drawn) == MOST_LINES


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
        return str(page.locator(f"#figure-{chart} .plot > svg").get_attribute("aria-label"))

    assert re.search(r"sjf\+easy: median \S+ \w+.*, 99th percentile [1-9]", told("cdf-wait"))
    assert re.search(r"sjf\+easy: at most [1-9]\d* %", told("utilisation"))
