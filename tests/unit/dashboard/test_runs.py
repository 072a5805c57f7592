"""Training runs: what is drawn of them, alone and over each other, and what may be done to them."""

import asyncio
import json
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gpuyard.dashboard.feeds import Feeds
from gpuyard.dashboard.library import Library
from gpuyard.dashboard.pages.runs import RunsSource
from gpuyard.dashboard.site import Site
from gpuyard.dashboard.training.charts import settings_chart, training_chart_list
from gpuyard.dashboard.training.control import trainer
from gpuyard.dashboard.training.followed import FollowedRun
from gpuyard.runs.progress import ProgressWriter, is_being_written
from support.coroutines import run_alone
from support.sample_runs import sample_records, write_run
from support.training_runs import tiny_config
from unit.dashboard.conftest import ORIGIN, Visit, page_data
from unit.dashboard.test_feeds import take

CONFIG = 'algorithm = "ppo"\nseed = {}\n\n[ppo]\nlearning_rate = {}\n'


def three(root: Path) -> list[str]:
    """Two seeds of the same settings, and a run of others."""
    for name, seed, rate in (("a", 0, 0.1), ("b", 1, 0.1), ("c", 2, 0.3)):
        write_run(root / name, seed=seed, updates=40, config=CONFIG.format(seed, rate))
    return ["0/a", "0/b", "0/c"]


def followed(root: Path, names: str) -> list[FollowedRun]:
    runs = [FollowedRun(root / name) for name in names]
    for run in runs:
        run.look()
    return runs


def source_of(root: Path, ids: list[str], *, seeds: bool = False) -> RunsSource:
    return RunsSource(Site(Library([root]), {}), ids, "steps", seeds=seeds)


def test_curves_come_with_validations_and_heuristics_as_levels(tmp_path: Path) -> None:
    ids = three(tmp_path)
    found = source_of(tmp_path, ids[:1]).look()
    charts = {chart["id"]: chart for chart in found["charts"]}
    assert [level["name"] for level in charts["validation-score"]["levels"]]
    assert "entropy" in charts
    (series,) = charts["entropy"]["series"]
    assert len(series["x"]) == 40
    best = max(one["score"] for one in sample_records(40) if one["event"] == "validation")
    assert found["facts"][0]["tiles"]["best score"] == f"{best:.3f}"
    json.dumps(found, allow_nan=False)


def test_broken_limits_are_drawn_against_the_limit(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", updates=20)
    lines = [json.loads(line) for line in (run / "progress.jsonl").read_text().splitlines()]
    broken = {"by": "all", "name": "", "jobs": 9, "metric": "max_wait_s", "own": 300.0, "other": 80.0}
    next(line for line in lines if line["event"] == "validation")["broken"] = [{**broken, "limit": 100.0}]
    (run / "progress.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    charts = {chart["id"]: chart for chart in source_of(tmp_path, ["0/run"]).look()["charts"]}
    chart = charts["waits-against-their-limits"]
    assert chart["series"][0]["y"] == [3.0, 1.0]
    assert chart["levels"] == [{"name": "limit", "value": 1.0}]


def test_seeds_make_a_band_with_the_interval_of_their_mean(tmp_path: Path) -> None:
    three(tmp_path)
    runs = followed(tmp_path, "abc")
    chart = next(one for one in training_chart_list(runs, "steps", seeds=True) if one["id"] == "entropy")
    band, alone = chart["series"]
    assert (band["name"], alone["name"]) == ("a and 1 more seed", "c")
    a, b = (np.array(run.curves["entropy"].values) for run in runs[:2])
    mean, half = (a + b) / 2, 12.706 * np.abs(a - b) / 2  # of two values: s / sqrt(2) = |a - b| / 2
    np.testing.assert_allclose(band["y"], mean, rtol=1e-3)
    np.testing.assert_allclose(band["low"], mean - half, rtol=1e-3, atol=1e-4)
    np.testing.assert_allclose(band["high"], mean + half, rtol=1e-3, atol=1e-4)


def test_hyperparameters_stand_against_scores(tmp_path: Path) -> None:
    three(tmp_path)
    chart = settings_chart([run.run for run in followed(tmp_path, "abc")])
    assert chart is not None
    assert set(chart["choices"]) == {"seed", "ppo.learning_rate"}
    rows = chart["choices"]["ppo.learning_rate"]["rows"]
    assert [(row["name"], len(row["dots"])) for row in rows] == [("0.1", 2), ("0.3", 1)]
    assert settings_chart([]) is None


def test_a_resumed_run_drops_its_tail(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", updates=30, stop=None)
    (one,) = followed(tmp_path, ["run"])  # type: ignore[arg-type]
    assert len(one.curves["entropy"].values) == 30
    with ProgressWriter.resume(run / "progress.jsonl", 10 * 8192) as log:
        one.look()
        assert len(one.curves["entropy"].values) == 10
        assert one.state == "running"
        for record in list(sample_records(updates=30, stop=None))[-12:]:
            log.write(record)
        one.look()
    assert one.story.step == 30 * 8192


def test_the_stream_follows_a_run_and_outlives_it(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", updates=10, stop=None)

    async def follow() -> None:
        feeds = Feeds(0.01)
        stream = feeds.follow("run", lambda: source_of(tmp_path, ["0/run"]))
        first = await next_event(stream, "facts")
        assert first[0]["state"] == "killed"
        with ProgressWriter(run / "progress.jsonl"):
            assert (await next_event(stream, "facts"))[0]["state"] == "running"
        await next_event(stream, "facts")
        shutil.rmtree(run)
        await take(stream, "trouble", f"{run}: is not there any more")

    run_alone(follow())


async def next_event(stream: Any, name: str) -> Any:
    from unit.dashboard.test_feeds import parsed

    async with asyncio.timeout(5):
        while True:
            for found, value in parsed([await anext(stream)]):
                if found == name:
                    return value


@pytest.mark.parametrize("count", [0, 9])
def test_as_many_runs_as_there_are_colours(tmp_path: Path, visit: Visit, count: int) -> None:
    write_run(tmp_path / "run", updates=10)
    asked = "&".join(f"run=0/run{number}" for number in range(count)) or "run="
    assert visit().get(f"/runs?{asked}").status_code in (400, 404)


def test_the_list_offers_runs_and_the_page_shows_them(tmp_path: Path, visit: Visit) -> None:
    ids = three(tmp_path)
    browser = visit()
    assert {row["id"] for row in page_data(browser.get("/runs").text)["runs"]} == set(ids)
    assert browser.get("/api/runs/scores").json()["chart"]["title"] == "Settings against score"
    text = browser.get("/runs?run=0/a&run=0/b&across=minutes&seeds=band").text
    assert "Settings that differ" in text
    assert page_data(text)["across"] == "minutes"


def test_a_lock_that_others_hold_is_no_training_run(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", updates=10, stop=None)
    with ProgressWriter(run / "progress.jsonl"):
        assert trainer(run) is None  # this very test holds it


def test_what_cannot_be_done_is_refused(tmp_path: Path, visit: Visit) -> None:
    three(tmp_path)
    browser = visit()
    for action in ("pause", "finish", "resume", "kill", None, ["pause"]):
        asked = {"run": "0/a", "action": action}
        answer = browser.post("/api/runs/do", json=asked, headers={"Origin": ORIGIN})
        assert answer.status_code == 400
    answer = browser.post(
        "/api/runs/do", json={"run": "0/../x", "action": "pause"}, headers={"Origin": ORIGIN}
    )
    assert answer.status_code == 404


def wait_until(condition: Any, within_s: float = 60.0) -> None:
    until = time.monotonic() + within_s
    while not condition():
        assert time.monotonic() < until
        time.sleep(0.05)


@pytest.mark.slow
def test_a_real_run_is_paused_resumed_and_finished(tmp_path: Path, visit: Visit) -> None:
    config = tiny_config("evolve", evolve={"generations": 1_000_000})
    (tmp_path / "run.toml").write_text(config.to_toml(), encoding="utf-8")
    run = tmp_path / "run"
    command = [sys.executable, "-c", "import sys; from gpuyard.cli import main; sys.exit(main())"]
    command += ["train", "evolve", "--config", str(tmp_path / "run.toml"), "--out", str(run), "--quiet"]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    browser = visit()

    def do(action: str) -> Any:
        return browser.post(
            "/api/runs/do", json={"run": "0/run", "action": action}, headers={"Origin": ORIGIN}
        )

    def state() -> str:
        one = FollowedRun(run)
        one.look(60.0)
        return one.state

    try:
        wait_until(lambda: (run / "checkpoint.safetensors").is_file() and trainer(run) is not None)
        assert do("resume").status_code == 400
        assert do("pause").status_code == 200
        process.wait(60)
        assert state() == "interrupted"
        assert do("resume").status_code == 200
        wait_until(lambda: trainer(run) is not None)
        steps = FollowedRun(run)
        steps.look()
        assert do("finish").status_code == 200
        wait_until(lambda: not is_being_written(run / "progress.jsonl") and state() == "finished")
        assert (run / "best.safetensors").is_file()
        assert do("resume").status_code == 400
    finally:
        process.kill()
        process.wait()
        if (pid := trainer(run)) is not None:
            import os
            import signal

            os.kill(pid, signal.SIGKILL)
