"""The dashboard in a real browser: every page, live, by keyboard, on a phone, light and dark, on its own."""

import random
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("starlette", reason="pip install 'gpuyard[dashboard]'")
from gpuyard.runs.progress import ProgressWriter
from support.dashboards import Server
from support.report_cases import compared
from support.sample_runs import sample_records, write_run
from support.served_journals import submit, write_agent

SCRIPT = "<script>alert(1)</script>"
PAGES = {
    "home": "/",
    "list": "/runs",
    "run": "/runs?run=0/runs/ppo-1",
    "runs": "/runs?run=0/runs/ppo-1&run=0/runs/ppo-2&seeds=band",
    "live": "/live",
    "policies": "/policies",
    "missing": "/runs?run=0/nothing",
}
Open = Callable[..., Any]
ENTROPY = "document.querySelector('#figure-entropy .plot path.line')"


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with two runs, a damaged one, a comparison and an agent."""
    root = tmp_path_factory.mktemp("site")
    for seed, name in ((1, "ppo-1"), (2, "ppo-2")):
        write_run(root / "runs" / name, seed=seed, updates=60, config=f'algorithm = "ppo"\nseed = {seed}\n')
    broken = write_run(root / "runs" / SCRIPT.replace("/", "-"), updates=10)
    (broken / "progress.jsonl").write_text("hello\n", encoding="utf-8")
    compared().write(root / "results")
    write_agent(root / "agent", rounds=120, ago_s=2.0).journal.close()
    return root


@pytest.fixture(scope="module")
def server(site: Path) -> Iterator[Server]:
    started = Server(site)
    yield started
    started.close()


def wait_for_text(page: Any, selector: str, text: str) -> None:
    page.locator(selector, has_text=text).first.wait_for()


@pytest.mark.parametrize("width", [1280, 390])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_every_page_fits_and_keeps_to_itself(visit: Open, server: Server, width: int, scheme: str) -> None:
    page = visit(server, PAGES["home"], scheme=scheme, width=width)
    for name, path in PAGES.items():
        if name == "missing":
            continue
        page.goto(server.base + path)
        page.wait_for_selector("html[data-drawn]")
        assert page.evaluate("document.documentElement.scrollWidth") <= width, name
        assert page.locator("h1").count() == 1
        paper = page.evaluate("getComputedStyle(document.body).backgroundColor")
        assert paper == ("rgb(255, 255, 255)" if scheme == "light" else "rgb(16, 20, 26)")


def test_what_is_not_there_is_said(visit: Open, server: Server) -> None:
    page = visit(server, PAGES["missing"])
    assert "not there any more" in page.locator("main").inner_text()


def test_home_shows_what_was_found_and_what_is_damaged(visit: Open, server: Server) -> None:
    page = visit(server, PAGES["home"])
    assert page.locator("#runs tbody tr").count() == 3
    assert "is not JSON" in page.locator("#runs").inner_text()
    assert "bounded slowdown" in page.locator("#results tbody").inner_text()
    assert "sjf+easy" in page.locator("#agents tbody").inner_text()
    assert page.locator("script", has_text="alert").count() == 0


def test_rows_keep_their_places_and_new_ones_wait(visit: Open, tmp_path: Path) -> None:
    write_run(tmp_path / "a", updates=20)
    write_run(tmp_path / "b", updates=20, stop=None)
    server = Server(tmp_path)
    try:
        page = visit(server, "/")
        before = page.locator("#runs tbody th a").all_inner_texts()
        write_run(tmp_path / "c", updates=20)
        last = before[-1]
        records = list(sample_records(updates=20, stop="finished"))[-1:]
        with ProgressWriter(tmp_path / last / "progress.jsonl") as log:
            log.write(records[0])
        wait_for_text(page, "#runs button.more", "1 new: show")
        assert page.locator("#runs tbody th a").all_inner_texts() == before
        page.locator("#runs button.more").click()
        assert page.locator("#runs tbody th a").all_inner_texts() == ["c", *before]
    finally:
        server.close()


def test_curves_grow_while_a_run_writes_and_stay_when_it_is_gone(visit: Open, tmp_path: Path) -> None:
    import shutil

    records = list(sample_records(updates=30, stop="finished"))
    run = write_run(tmp_path / "live", updates=1, stop=None)
    (run / "progress.jsonl").write_text("", encoding="utf-8")
    server = Server(tmp_path)
    try:
        with ProgressWriter(run / "progress.jsonl") as log:
            for record in records[:6]:
                log.write(record)
            page = visit(server, "/runs?run=0/live")
            wait_for_text(page, "#facts .tiles", "running")
            wait_for_text(page, "#facts .tiles", "40,960")
            rows = f"{ENTROPY}.getAttribute('d').match(/[ML]/g).length"
            assert page.evaluate(rows) == 5
            for record in records[6:]:
                log.write(record)
        wait_for_text(page, "#facts .tiles", "finished")
        page.locator("#figure-validation-score .plot svg").wait_for()
        page.wait_for_function(f"{rows} === 30")
        shutil.rmtree(run)
        wait_for_text(page, "#connection", "is not there any more")
        assert page.locator("#figure-entropy .plot svg").count() == 1
    finally:
        server.close()


def test_a_lost_server_is_told(visit: Open, tmp_path: Path) -> None:
    write_run(tmp_path / "run", updates=20)
    server = Server(tmp_path)
    page = visit(server, "/runs?run=0/run")
    wait_for_text(page, "#facts .tiles", "finished")
    server.close()
    wait_for_text(page, "#connection", "this is how it stood at")


def test_every_chart_gives_csv_svg_and_png(visit: Open, server: Server) -> None:
    page = visit(server, PAGES["run"])
    figure = page.locator("#figure-entropy")
    figure.locator(".plot svg").wait_for()
    files = {}
    for kind in ("CSV", "SVG", "PNG"):
        with page.expect_download() as download:
            figure.get_by_role("button", name=kind).click()
        assert download.value.suggested_filename == f"entropy.{kind.lower()}"
        files[kind] = Path(download.value.path()).read_bytes()
    assert files["CSV"].startswith(b"series,samples,entropy\nppo-1,8192,")
    assert files["PNG"].startswith(b"\x89PNG")
    assert len(files["PNG"]) > 5000
    text = files["SVG"].decode()
    assert "var(" not in text
    assert "class=" not in text
    assert "Entropy" in text


def test_runs_are_chosen_and_laid_over_each_other_by_keyboard_alone(visit: Open, server: Server) -> None:
    page = visit(server, PAGES["home"])
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.className") == "skip"
    page.get_by_role("link", name="Training", exact=True).focus()
    page.keyboard.press("Enter")
    page.wait_for_selector("html[data-drawn]")
    for name in ("choose ppo-1", "choose ppo-2"):
        page.get_by_role("checkbox", name=name).focus()
        page.keyboard.press("Space")
    wait_for_text(page, "#chosen output", "2 chosen")
    page.get_by_role("button", name="Show the chosen runs").focus()
    page.keyboard.press("Enter")
    page.locator("#figure-entropy .plot svg").wait_for()
    assert page.locator("#figure-entropy .plot path.line").count() == 2
    page.get_by_label("Seeds").focus()
    page.keyboard.press("ArrowDown")
    page.wait_for_url("**seeds=band**")
    page.locator("#figure-entropy .plot path.band").wait_for()
    assert page.locator("#figure-entropy .plot path.line").count() == 1
    plot = page.locator("#figure-entropy .plot")
    plot.focus()
    page.keyboard.press("ArrowRight")
    assert "entropy" in page.locator("#figure-entropy .tooltip").inner_text() or plot.inner_text()


def test_the_theme_is_chosen_and_remembered(visit: Open, server: Server) -> None:
    page = visit(server, PAGES["home"])
    page.locator("#theme").click()
    page.goto(server.base + PAGES["policies"])
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(16, 20, 26)"


def test_why_a_job_waits_is_found_by_user_and_by_id(visit: Open, server: Server) -> None:
    page = visit(server, PAGES["live"])
    page.get_by_label("Job or user").fill("10")
    page.keyboard.press("Enter")
    page.locator("#found tbody tr").first.wait_for()
    page.locator("#found tbody tr", has_text="waiting").locator("button").first.click()
    page.locator("#job .reason").wait_for()
    assert "place in the queue" in page.locator("#job").inner_text()
    page.get_by_label("Job or user").fill("nobody")
    page.keyboard.press("Enter")
    wait_for_text(page, "#find output", "no such job")


def test_an_agent_is_followed_and_halted_behind_a_confirmation(visit: Open, tmp_path: Path) -> None:
    served = write_agent(tmp_path / "agent", rounds=30, ago_s=0.0, every_s=1.0)
    server, leading = Server(tmp_path), served.signs.leadership()
    leading.__enter__()
    try:
        page = visit(server, "/live")
        wait_for_text(page, "#head", "round 30")
        assert page.locator("#mode").inner_text() == "shadow"
        submit(served.cluster, random.Random(1))
        served.rounds(5)
        wait_for_text(page, "#head", "round 35")
        page.locator("#halt").focus()
        page.keyboard.press("Enter")
        halt = page.get_by_role("dialog").get_by_role("button", name="Halt")
        assert halt.is_disabled()
        page.keyboard.press("Escape")
        page.get_by_role("dialog").wait_for(state="detached")
        assert not served.signs.halted
        page.locator("#halt").click()
        page.get_by_label("Why, for the record").fill("a test")
        page.get_by_label("Type halt to confirm").fill("halt")
        page.keyboard.press("Enter")
        wait_for_text(page, "#switched", "Halted")
        wait_for_text(page, "#mode", "halted")
        assert "a test" in served.signs.halt_file.read_text()
        served.rounds(1)
        page.locator("#resume").click()
        wait_for_text(page, "#switched", "acts again")
        served.rounds(1)
        wait_for_text(page, "#mode", "shadow")
        assert not served.signs.halted
    finally:
        server.close()
        leading.__exit__(None, None, None)
        served.close()


def test_dates_are_those_of_the_viewer(visit: Open, server: Server) -> None:
    page = visit(server, PAGES["live"])
    page.locator("#figure-waiting-jobs .plot svg").wait_for()
    assert "GMT+9" in page.locator("#figure-waiting-jobs").inner_text()


def test_many_browsers_are_told_at_once(visit: Open, tmp_path: Path) -> None:
    run = write_run(tmp_path / "live", updates=5, stop=None)
    server = Server(tmp_path)
    try:
        pages = [visit(server, "/runs?run=0/live") for _ in range(3)]
        done = threading.Event()
        with ProgressWriter(run / "progress.jsonl") as log:
            for page in pages:
                wait_for_text(page, "#facts .tiles", "running")
            log.write({"event": "stop", "reason": "finished", "step": 5 * 8192})
            done.set()
        for page in pages:
            wait_for_text(page, "#facts .tiles", "finished")
    finally:
        server.close()
