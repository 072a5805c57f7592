"""Replay, Compare and What if in a real browser: play, two policies, a story, from a form to results."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest

pytest.importorskip("starlette", reason="pip install 'gpuyard[dashboard]'")
from gpuyard.workload import write_workload
from support.dashboards import Server
from support.report_cases import compared, jobs_with_names, simulated

Open = Callable[..., Any]
PAGES = {
    "replay": "/replay?id=0/four",
    "two": "/replay?id=0/four&b=&by=user",
    "compare": "/compare?results=0/four&results=0/six",
    "choose": "/compare",
    "windows": "/compare?results=0/windows",
    "what if": "/what-if",
}
MIDDLE_S = 8000
"""Seconds: half of the time that the replays take is later."""
AT = "[...document.querySelectorAll('.panel')].map((panel) => Number(panel.dataset.at))"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    root = tmp_path_factory.mktemp("site")
    simulated(root / "four")
    simulated(root / "six", cluster="6x4:v100")
    compared().write(root / "windows")
    write_workload(jobs_with_names(), root / "jobs.parquet")
    started = Server(root)
    yield started
    started.close()


def drawn(page: Any) -> None:
    page.wait_for_selector("html[data-drawn]")
    if page.locator(".panel").count():
        page.wait_for_selector("html[data-replay]")
        page.wait_for_selector(".panel canvas[data-ready]")


@pytest.mark.parametrize(("scheme", "width"), [("light", 1280), ("dark", 390)])
def test_every_page_fits_and_keeps_to_itself(visit: Open, server: Server, scheme: str, width: int) -> None:
    page = visit(server, PAGES["replay"], scheme=scheme, width=width)
    for name, path in PAGES.items():
        page.goto(server.base + path)
        if name != "choose":
            drawn(page)
        assert page.evaluate("document.documentElement.scrollWidth") <= width, name
        assert page.locator("h1").count() == 1


def test_the_slider_moves_both_policies_to_the_same_moment(visit: Open, server: Server) -> None:
    page = visit(server, PAGES["two"])
    drawn(page)
    slider = page.locator("#slider")
    for value in (1500, 8000):
        slider.evaluate(f"(one) => {{ one.value = {value}; one.dispatchEvent(new Event('input')); }}")
        page.wait_for_function(f"() => {AT}.every((at) => Math.abs(at - {AT}[0]) < 1e-9)")
        page.wait_for_function(f"() => {AT}[0] {'<' if value < 5000 else '>'} {MIDDLE_S}")
    first, second = page.locator(".panel-head output").all_inner_texts()
    assert "of 16 GPUs in use" in first
    assert "of 16 GPUs in use" in second


def test_it_plays_and_pauses_by_keyboard_alone(visit: Open, server: Server) -> None:
    page = visit(server, PAGES["two"])
    drawn(page)
    page.keyboard.press("Home")
    page.wait_for_function(f"() => {AT}.every((at) => at === 0)")
    page.keyboard.press("Space")
    page.wait_for_function(f"() => {AT}[0] > 0")
    assert page.locator("#play").get_attribute("aria-pressed") == "true"
    page.keyboard.press("Space")
    assert page.locator("#play").get_attribute("aria-pressed") == "false"
    page.wait_for_function(f"() => {AT}[0] === {AT}[1]")
    page.keyboard.press("End")
    page.keyboard.press("ArrowLeft")
    page.wait_for_function("() => document.getElementById('told').textContent.includes('GPUs in use')")
    page.keyboard.press("+")
    canvas = page.locator(".stretch canvas").first
    page.wait_for_function("(one) => Number(one.dataset.from) > 0", arg=canvas.element_handle())


def test_a_job_of_the_queue_tells_why_it_waits(visit: Open, server: Server) -> None:
    page = visit(server, PAGES["two"])
    drawn(page)
    page.locator(".queue button").first.focus()
    page.keyboard.press("Enter")
    page.wait_for_function("() => document.querySelectorAll('.why[data-told]').length === 2", timeout=60_000)
    told = page.locator("#story").inner_text()
    assert "asked for" in told
    assert page.locator("#job-title").inner_text().startswith("Story of job")
    assert page.locator("script", has_text="alert").count() == 0


def test_a_click_and_enter_open_the_job_of_a_gpu(visit: Open, server: Server) -> None:
    page = visit(server, PAGES["replay"])
    drawn(page)
    squares = page.locator(".frame canvas").first
    squares.focus()
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    page.locator("#story article h3").wait_for()
    assert page.locator("#story dl").inner_text().startswith("submitted")


def test_colours_are_chosen_and_named(visit: Open, server: Server) -> None:
    page = visit(server, PAGES["replay"])
    drawn(page)
    page.locator("#colour").select_option("group")
    page.wait_for_function("() => document.getElementById('legend').textContent.startsWith('Group')")
    assert page.locator("#legend i").count() >= 3
    page.wait_for_function("() => location.search.includes('by=group')")


def test_compare_draws_what_no_other_beats(visit: Open, server: Server) -> None:
    page = visit(server, PAGES["compare"])
    drawn(page)
    chart = page.locator("#figure-pareto")
    assert chart.locator("circle").count() == 6
    chart.locator("select").select_option("p99 wait")
    assert "p99 wait" in chart.locator("svg[role=img]").get_attribute("aria-label")
    page.locator("details.pick summary").click()
    page.locator("select[name=metric]").select_option("mean_wait_s")
    page.get_by_role("button", name="Show").click()
    drawn(page)
    assert "mean wait" in page.locator("#figure-change h3").inner_text()


def test_what_if_leads_from_a_form_to_results(visit: Open, server: Server) -> None:
    page = visit(server, "/what-if?log=0%2F.%2Fjobs.parquet&cluster=4x4&policy=sjf%2Beasy&change=0:2")
    assert page.locator("input.added").input_value() == "2"
    page.locator("#start").focus()
    page.keyboard.press("Enter")
    page.wait_for_selector("article[data-state=done]", timeout=90_000)
    assert "change=0%3A2" in page.url
    page.get_by_text("compare", exact=True).click()
    drawn(page)
    assert "sjf+easy on 4x4 +2 nodes" in page.locator("#policies").inner_text()


def test_what_if_is_cancelled(visit: Open, server: Server) -> None:
    page = visit(server, "/what-if?log=built-in:surges&cluster=8x8&policy=fifo%2Bconservative&change=0:1")
    page.locator("#start").click()
    page.get_by_role("button", name="Cancel").first.click()
    page.wait_for_selector("article[data-state=cancelled]")


def test_what_cannot_be_asked_is_said(visit: Open, server: Server) -> None:
    page = visit(server, "/what-if?log=0%2F.%2Fjobs.parquet&cluster=4x4&change=0:-4", refused=True)
    page.locator("#start").click()
    page.wait_for_function("() => document.getElementById('refused').textContent.includes('no node is left')")
