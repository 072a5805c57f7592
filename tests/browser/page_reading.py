"""What tests read off a page, and how they wait for it."""

import csv
import io
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

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


def dashes(place: Any) -> list[str]:
    """Of the lines in a part of the page, as they are drawn."""
    told = "(all) => all.map((one) => getComputedStyle(one).strokeDasharray)"
    found: list[str] = place.locator("path.line").evaluate_all(told)
    return found


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
