"""Pages in a real browser: Debian's chromium, driven by Playwright. Without one these tests are skipped."""

import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from gpuyard.report import write_report
from support.dashboards import Server
from support.report_cases import compared, simulated
from support.sample_runs import write_run

NAMES = ("chromium", "chromium-browser", "google-chrome")


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    """A browser without a window."""
    path = next(filter(None, map(shutil.which, NAMES)), None)
    if path is None:
        pytest.skip(f"no browser: none of {', '.join(NAMES)} is on PATH (Debian: apt-get install chromium)")
    if os.environ.get("GPUYARD_BROWSER") == "required":
        from playwright import sync_api as playwright
    else:
        playwright = pytest.importorskip("playwright.sync_api")
    # Chromium's sandbox refuses to run as root, which containers are.
    arguments = ["--no-sandbox"] if os.geteuid() == 0 else []
    with playwright.sync_playwright() as driver:
        started = driver.chromium.launch(executable_path=path, args=arguments)
        yield started
        started.close()


class Opened:
    """A page, and everything that it should not have done."""

    def __init__(self, context: Any, path: Path) -> None:
        self.page = context.new_page()
        self.page.set_default_timeout(20_000)
        self.complaints: list[str] = []
        self.page.on("console", lambda message: self._note(message.type, message.text))
        self.page.on("pageerror", lambda error: self.complaints.append(f"error: {error}"))
        self.page.on("dialog", self._refuse)
        self.page.on("request", lambda request: self._check(request.url))
        self.page.goto(path.as_uri())
        self.page.wait_for_selector("html[data-drawn]")
        if self.page.locator("#gantt-canvas").count():
            self.page.wait_for_selector("#gantt-canvas[data-ready]")

    def _note(self, kind: str, text: str) -> None:
        if kind in ("error", "warning"):
            self.complaints.append(f"console {kind}: {text}")

    def _refuse(self, dialog: Any) -> None:
        self.complaints.append(f"dialog: {dialog.message}")
        dialog.dismiss()

    def _check(self, url: str) -> None:
        if not url.startswith(("file:", "blob:")):  # a blob is a file that the page itself made
            self.complaints.append(f"request: {url[:100]}")


@pytest.fixture(scope="session")
def simulation_page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A report of simulations, with a training run beside them."""
    home = tmp_path_factory.mktemp("simulation")
    path = home / "report.html"
    write_report(path, [simulated(home / "results")], runs=[write_run(home / "ppo-1")])
    return path


@pytest.fixture(scope="session")
def evaluation_page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A report of a comparison with intervals."""
    path = tmp_path_factory.mktemp("evaluation") / "report.html"
    write_report(path, [compared()])
    return path


@pytest.fixture
def open_page(browser: Any) -> Iterator[Any]:
    """Opens a page; at the end of the test it must have kept quiet and to itself."""
    contexts, opened = [], []

    def start(path: Path, *, scheme: str = "light", width: int = 1280) -> Any:
        context = browser.new_context(
            locale="en-US",
            color_scheme=scheme,
            viewport={"width": width, "height": 900},
            accept_downloads=True,
        )
        contexts.append(context)
        opened.append(Opened(context, path))
        return opened[-1].page

    yield start
    for context in contexts:
        context.close()
    assert [complaint for one in opened for complaint in one.complaints] == []


@pytest.fixture
def visit(browser: Any) -> Iterator[Any]:
    """Opens pages of a dashboard; in the end none may have complained or asked anybody else."""
    contexts, complaints = [], []

    def start(
        server: Server, path: str, *, scheme: str = "light", width: int = 1280, refused: bool = False
    ) -> Any:
        context = browser.new_context(
            locale="en-US",
            timezone_id="Asia/Tokyo",
            color_scheme=scheme,
            viewport={"width": width, "height": 900},
            accept_downloads=True,
        )
        contexts.append(context)
        page = context.new_page()
        page.set_default_timeout(20_000)
        own = (server.base, "blob:")

        def note(message: Any) -> None:
            # Browsers complain by themselves of what is not there, and of a server that a test has ended.
            expected = (
                server.closed
                or ("404" in message.text and "nothing" in path)
                or (refused and "400" in message.text)
            )
            if message.type in ("error", "warning") and not expected:
                complaints.append(f"console {message.type}: {message.text}")

        page.on("console", note)
        page.on("pageerror", lambda error: complaints.append(f"error: {error}"))
        page.on("dialog", lambda dialog: (complaints.append("dialog"), dialog.dismiss()))
        page.on("request", lambda asked: None if asked.url.startswith(own) else complaints.append(asked.url))
        page.goto(server.url)
        page.goto(server.base + path)
        page.wait_for_selector("html[data-drawn]")
        return page

    yield start
    for context in contexts:
        context.close()
    assert complaints == []
