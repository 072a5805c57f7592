"""A report of 100,000 jobs: seconds to write it, its size, and seconds until a browser has drawn it.

Three policies on 64 nodes of 8 GPUs. Writing stands beside polars writing the same schedules as CSV files in
the same process, which is what one would have to look at otherwise, and beside the limits that a reader's
patience sets. Drawing is measured in chromium from the start of navigation; the best of the rounds counts.
"""

import json
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from gpuyard.registry import register
from harness import BenchResult, measure_apart

ROUNDS = 3
FRAMES = 10
JOBS = 100_000
POLICIES = ("fifo", "sjf+easy", "wspt+easy")
WRITE_LIMIT_S, DRAW_LIMIT_S, SIZE_LIMIT_MB, FRAME_LIMIT_MS = 5.0, 1.0, 5.0, 50.0
BROWSERS = ("chromium", "chromium-browser", "google-chrome")


@register("benchmark", "report")
def reports() -> Iterator[BenchResult]:
    """Seconds to write and to first draw, and megabytes, of a report of 100,000 jobs."""
    figures = measure_apart(__file__, one_thread=False)
    name = f"report of {JOBS:,} jobs, {len(POLICIES)} policies"
    yield _limited(f"{name}: writing", figures["write_s"], "s", WRITE_LIMIT_S)
    yield BenchResult(f"{name}: writing", figures["write_s"], "s", "polars, CSV files", figures["csv_s"])
    yield _limited(f"{name}: size", figures["size_mb"], "MB", SIZE_LIMIT_MB)
    yield BenchResult(f"{name}: size", figures["size_mb"], "MB", "CSV files", figures["csv_mb"])
    if "draw_s" not in figures:
        print(f"no browser among {', '.join(BROWSERS)}: drawing is not measured", file=sys.stderr)
        return
    yield _limited(f"{name}: first draw", figures["draw_s"], "s", DRAW_LIMIT_S)
    blank = figures["blank_s"]
    yield BenchResult(f"{name}: first draw", figures["draw_s"], "s", "chromium, an empty page", blank)
    yield BenchResult(
        f"{name}: the cluster drawn", figures["gantt_s"], "s", "its own first draw", figures["draw_s"]
    )
    yield _limited(f"{name}: a frame with all bars", figures["frame_ms"], "ms", FRAME_LIMIT_MS)


def _limited(name: str, value: float, unit: str, limit: float) -> BenchResult:
    return BenchResult(name, value, unit, f"the limit of {limit:g} {unit}", limit, 1.0, lower_is_better=True)


def measure() -> dict[str, float]:
    from gpuyard.cluster.model import parse_cluster
    from gpuyard.config import SimulationConfig
    from gpuyard.evaluate.replay import replay_comparison, run_policies
    from gpuyard.report import write_report
    from gpuyard.workload import SynthConfig, synthesize

    workload = synthesize(SynthConfig(jobs=JOBS, cluster_gpus=512, load=0.95))
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder)
        runs = run_policies(workload, parse_cluster("64x8"), POLICIES, SimulationConfig())
        replay_comparison("synthetic", runs).write(home / "results")
        page = home / "report.html"
        writing, csv = [], []
        for _ in range(ROUNDS):
            began = time.perf_counter()
            write_report(page, [home / "results"])
            writing.append(time.perf_counter() - began)
            csv.append(_write_csv(home))
        figures = {"write_s": min(writing), "csv_s": min(csv), "size_mb": page.stat().st_size / 1e6}
        figures["csv_mb"] = sum(path.stat().st_size for path in home.glob("*.csv")) / 1e6
        return figures | _drawing(page)


def _write_csv(home: Path) -> float:
    """Seconds to read the schedules and write them as CSV."""
    import polars as pl

    began = time.perf_counter()
    for path in home.glob("results/schedules/*.parquet"):
        frame = pl.read_parquet(path)
        lists = [name for name, dtype in frame.schema.items() if isinstance(dtype, pl.List)]
        flat = frame.with_columns(pl.col(lists).cast(pl.List(pl.String)).list.join("|"))
        flat.write_csv(home / f"{path.stem}.csv")
    return time.perf_counter() - began


def _drawing(page: Path) -> dict[str, float]:
    """Seconds until things are drawn, in chromium; nothing where there is none."""
    browser = next(filter(None, map(shutil.which, BROWSERS)), None)
    if browser is None:
        return {}
    from playwright.sync_api import sync_playwright

    blank = page.with_name("blank.html")
    blank.write_text("<!DOCTYPE html><title>blank</title><p>nothing", encoding="utf-8")
    marks = "Object.fromEntries(performance.getEntriesByType('mark').map((one) => [one.name, one.startTime]))"
    paint = "performance.getEntriesByName('first-contentful-paint')[0]?.startTime ?? 0"
    rounds = []
    with sync_playwright() as driver:
        arguments = ["--no-sandbox"] if os.geteuid() == 0 else []
        window = driver.chromium.launch(executable_path=browser, args=arguments)
        for _ in range(ROUNDS + 1):  # the first one warms up
            empty, shown = window.new_page(), window.new_page()
            empty.goto(blank.as_uri())
            empty.wait_for_timeout(200)
            shown.goto(page.as_uri())
            shown.wait_for_selector("#gantt-canvas[data-ready]")
            shown.wait_for_timeout(500)
            found = shown.evaluate(marks)
            frame_ms = min(_frame_ms(shown) for _ in range(FRAMES))
            drawn_ms = max(found["first-draw"], shown.evaluate(paint))
            rounds.append((drawn_ms / 1e3, found["gantt-drawn"] / 1e3, frame_ms, empty.evaluate(paint) / 1e3))
            empty.close()
            shown.close()
        window.close()
    draw_s, gantt_s, frame_ms, blank_s = (min(values) for values in zip(*rounds[1:], strict=True))
    return {"draw_s": draw_s, "gantt_s": gantt_s, "frame_ms": frame_ms, "blank_s": blank_s}


def _frame_ms(page: Any) -> float:
    """Milliseconds that the script takes for a frame with all bars in view."""
    canvas = page.locator("#gantt-canvas")
    canvas.press("0")
    page.wait_for_timeout(60)
    return float(canvas.get_attribute("data-ms"))


if __name__ == "__main__":
    print(json.dumps(measure()))
