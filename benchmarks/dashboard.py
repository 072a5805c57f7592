"""The dashboard: start to first byte, home with 500 runs, the processor's share for 50 browsers on one run.

The server is a process of its own. Its start stands beside that of Python's own file server. For many
browsers, streams of events are held open over the loopback device while a run writes five updates a second;
the server's processor time is read from /proc. A replay of a million jobs is in dashboard_replay.py.
"""

import http.client
import json
import math
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path

from gpuyard.registry import register
from harness import BenchResult, measure_apart
from served import asked, memory_mib, processor_s, served

ROUNDS = 3
RUNS, UPDATES, HEURISTICS = 500, 150, 12
BROWSERS, WATCH_S, WRITE_EVERY_S = 50, 15.0, 0.2
START_LIMIT_S, HOME_LIMIT_S, SHARE_LIMIT = 1.0, 0.3, 0.5
REPLAY = (
    ("first_s", "first draw", "s", 1.5),
    ("first_cpu_s", "first draw, processor time", "s", 1.5),
    ("step_p95_s", "step of the slider, 95th percentile", "s", 0.1),
    ("step_cpu_s", "step of the slider, processor time", "s", 0.1),
    ("sent_mb", "sent for the first draw and 100 steps", "MB", 5.0),
    ("rss_mib", "memory", "MiB", 1000.0),
)
"""Figure, what it is, unit, limit."""


@register("benchmark", "dashboard")
def pages() -> Iterator[BenchResult]:
    """Seconds to the first byte and to home with 500 runs; a core's share for 50 browsers on a live run."""
    found = measure_apart(__file__, "pages", one_thread=False)
    yield _limited("dashboard: start to first byte", found["start_s"], "s", START_LIMIT_S)
    own = "python -m http.server"
    yield BenchResult("dashboard: start to first byte", found["start_s"], "s", own, found["plain_s"])
    for times, kind in (("first", "cold"), ("again", "warm")):
        name = f"dashboard: home with {RUNS} runs, {times}"
        yield _limited(name, found[f"{kind}_s"], "s", HOME_LIMIT_S)
        yield _limited(f"{name}, processor time", found[f"{kind}_cpu_s"], "s", HOME_LIMIT_S)
    name = f"dashboard: {BROWSERS} browsers on a live run"
    yield _limited(f"{name}, share of a core", found["share"], "", SHARE_LIMIT)
    yield BenchResult(f"{name}, share of a core", found["share"], "", "one browser", found["share_of_one"])
    yield BenchResult(f"{name}, memory", found["rss_mib"], "MiB", "after the start", found["idle_mib"])
    replay = measure_apart(str(Path(__file__).with_name("dashboard_replay.py")), one_thread=False)
    name = "dashboard: replay of a million jobs on 1,000 nodes, two policies"
    for key, what, unit, limit in REPLAY:
        yield _limited(f"{name}: {what}", replay[key], unit, limit)


def _limited(name: str, value: float, unit: str, limit: float) -> BenchResult:
    return BenchResult(name, value, unit, f"the limit of {limit:g} {unit}", limit, 1.0, lower_is_better=True)


def measure() -> dict[str, float]:
    with tempfile.TemporaryDirectory() as folder:
        empty, full = Path(folder) / "empty", Path(folder) / "full"
        empty.mkdir()
        for number in range(RUNS):
            write_run(full / f"run-{number:03}", UPDATES)
        starts = [start_s(empty) for _ in range(ROUNDS)]
        plain = [plain_start_s(empty) for _ in range(ROUNDS)]
        found = {"start_s": min(starts), "plain_s": min(plain)}
        with served(full) as (process, address, token):
            found["idle_mib"] = memory_mib(process.pid)
            before = processor_s(process.pid)
            homes = [page_s(address, token, "/")]
            found["cold_cpu_s"] = processor_s(process.pid) - before
            homes += [page_s(address, token, "/") for _ in range(ROUNDS)]
            found |= {"cold_s": homes[0], "warm_s": min(homes[1:])}
            found["warm_cpu_s"] = (processor_s(process.pid) - before - found["cold_cpu_s"]) / ROUNDS
            found["share_of_one"] = share(process.pid, address, token, full / "run-000", 1)
            found["share"] = share(process.pid, address, token, full / "run-000", BROWSERS)
            found["rss_mib"] = memory_mib(process.pid)
    return found


def write_run(directory: Path, updates: int) -> None:
    """A training run of so many updates, with a validation after every tenth."""
    directory.mkdir(parents=True)
    judged = {"metric": "mean_wait_s", "higher_is_better": True, "total_steps": 8192 * updates}
    lines: list[dict[str, object]] = [
        {"event": "start", "algorithm": "ppo", "name": directory.name, **judged}
    ]
    for number in range(1, updates + 1):
        lines.append(update(number))
        if number % 10 == 0:
            lines.append(validation(number))
    text = "".join(json.dumps(line, separators=(",", ":")) + "\n" for line in lines)
    (directory / "progress.jsonl").write_text(text, encoding="utf-8")
    (directory / "config.toml").write_text('algorithm = "ppo"\nseed = 1\n', encoding="utf-8")


def update(number: int) -> dict[str, object]:
    names = ("loss/policy", "loss/value", "entropy", "kl", "clip_share", "gradient_norm", "episode/return")
    values = {name: math.sin(number / 9 + place) for place, name in enumerate(names)}
    known = {"step": 8192 * number, "update": number, "elapsed_s": 0.4 * number, "samples_per_s": 2e4}
    return {"event": "update", **known, "values": values}


def validation(number: int) -> dict[str, object]:
    values = {"policy/score": -1.0 / number, "policy/mean_wait_s": 99.0}
    for place in range(HEURISTICS):
        values |= {f"rule-{place}+easy/score": -0.01 * place, f"rule-{place}+easy/mean_wait_s": 100.0 + place}
    known = {"step": 8192 * number, "elapsed_s": 0.4 * number, "score": -1.0 / number, "better": True}
    return {"event": "validation", **known, "values": values}


def start_s(folder: Path) -> float:
    began = time.perf_counter()
    with served(folder) as (_, address, token):
        page_s(address, token, "/")
        return time.perf_counter() - began


def plain_start_s(folder: Path) -> float:
    with socket.create_server(("127.0.0.1", 0)) as free:
        address = f"127.0.0.1:{free.getsockname()[1]}"
    began = time.perf_counter()
    command = [sys.executable, "-m", "http.server", address.rpartition(":")[2], "--bind", "127.0.0.1"]
    process = subprocess.Popen(command, cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        page_s(address, "", "/")
        return time.perf_counter() - began
    finally:
        process.kill()
        process.wait()


def page_s(address: str, token: str, path: str) -> float:
    began = time.perf_counter()
    asked(address, token, path).read()
    return time.perf_counter() - began


def share(pid: int, address: str, token: str, run: Path, browsers: int) -> float:
    """Of a core, that the server takes while a run is written and so many browsers follow it."""
    over = threading.Event()
    path = f"/api/runs?run=0/{run.name}&across=steps&seeds=each"
    streams = [asked(address, token, path) for _ in range(browsers)]
    seen = [0] * browsers
    readers = [threading.Thread(target=drain, args=(streams[k], over, seen, k)) for k in range(browsers)]
    for reader in readers:
        reader.start()
    time.sleep(2.0)
    before, began, number = processor_s(pid), time.perf_counter(), UPDATES
    with (run / "progress.jsonl").open("a", encoding="utf-8") as log:
        while time.perf_counter() - began < WATCH_S:
            number += 1
            log.write(json.dumps(update(number), separators=(",", ":")) + "\n")
            log.flush()
            time.sleep(WRITE_EVERY_S)
    used, took = processor_s(pid) - before, time.perf_counter() - began
    over.set()
    for reader in readers:
        reader.join()
    assert min(seen) > WATCH_S / 4, f"a browser was told of {min(seen)} changes only"
    return used / took


def drain(stream: http.client.HTTPResponse, over: threading.Event, seen: list[int], place: int) -> None:
    """Read a stream, and count the charts in it."""
    with stream:
        while not over.is_set() and (line := stream.readline()):
            seen[place] += line == b"event: charts\n"


if __name__ == "__main__":
    print(json.dumps(measure()))
