"""What a browser waits for on the replay page of a million jobs on 1,000 nodes: run by ``bench dashboard``.

A browser's own work is not in the figures: requests are made as the page makes them, for two policies.
"""

import json
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from urllib.parse import urlencode

import numpy as np
import polars as pl

from gpuyard.cluster.model import parse_cluster
from gpuyard.config import SimulationConfig
from gpuyard.evaluate.replay import replay_comparison, run_policies
from gpuyard.workload import make_workload
from served import asked, memory_mib, processor_s, served

JOBS, NODES, LOAD = 1_000_000, 1_000, 0.93
POLICIES = ("fifo+easy", "sjf+easy")
STEPS = 100


def measure() -> dict[str, float]:
    with tempfile.TemporaryDirectory() as folder:
        names = write_results(Path(folder) / "replay")
        with served(Path(folder)) as (process, address, token), ThreadPoolExecutor(2) as both:
            asked(address, token, "/").read()
            site = Site(address, token, names, both)
            before = processor_s(process.pid)
            first_s = site.first_draw()
            found = {"first_s": first_s, "first_cpu_s": processor_s(process.pid) - before}
            before = processor_s(process.pid)
            steps = [site.step(k / STEPS) for k in range(STEPS)]
            found["step_cpu_s"] = (processor_s(process.pid) - before) / STEPS
            found |= {"step_p95_s": float(np.quantile(steps, 0.95)), "sent_mb": site.sent / 1e6}
            found["rss_mib"] = memory_mib(process.pid)
    return found


def write_results(directory: Path) -> list[str]:
    """Both policies' schedules of as many jobs as keep the cluster busy."""
    draw = np.random.default_rng(0)
    duration_s = draw.lognormal(7.0, 1.8, JOBS).clip(1, 700_000)
    gpus = draw.choice([1, 1, 1, 2, 4, 8, 8, 16], JOBS)
    span_s = float((duration_s * gpus).sum()) / (NODES * 8) / LOAD
    frame = pl.DataFrame(
        {
            "submit_s": np.sort(draw.uniform(0, span_s, JOBS)),
            "duration_s": duration_s,
            "gpus": gpus,
            "user": [f"user{k}" for k in draw.integers(0, 200, JOBS)],
            "source_id": [str(4_000_000 + k) for k in range(JOBS)],
        }
    )
    jobs, config = make_workload(frame, name="a million jobs"), SimulationConfig(estimates="exact")
    runs = run_policies(jobs, parse_cluster(f"{NODES}x8"), POLICIES, config, current="none")
    replay_comparison("a million jobs", runs).write(directory)
    return [run.policy for run in runs]


class Site:
    """Asks as the page does, for both policies at once."""

    def __init__(self, address: str, token: str, policies: list[str], both: ThreadPoolExecutor) -> None:
        self._address, self._token, self._policies, self._both = address, token, policies, both
        self.sent = 0
        self.ended_s = 0.0

    def get(self, path: str) -> bytes:
        """What lies at a path."""
        data = asked(self._address, self._token, path).read()
        self.sent += len(data)
        return data

    def ask(self, name: str, **more: object) -> list[bytes]:
        """A question about both policies."""
        paths = [
            f"/api/replay/{name}?{urlencode({'id': '0/replay', 'policy': policy, 'by': 'wait', **more})}"
            for policy in self._policies
        ]
        return list(self._both.map(self.get, paths))

    def first_draw(self) -> float:
        """Seconds until all is there that the first picture needs."""
        began = time.perf_counter()
        self.get("/replay")
        for name in ("replay.js", "replay-panel.js", "replay-canvas.js", "drawing.js", "replay.css"):
            self.get(f"/static/{name}")
        about = json.loads(self.ask("about")[0])
        self.ended_s = about["ended_s"]
        self.ask("moment", at=self.ended_s / 2)
        stretch = {"from": about["began_s"], "to": self.ended_s, "first": 0, "last": NODES}
        self.ask("picture", **stretch, columns=560, rows=250)
        return time.perf_counter() - began

    def step(self, share: float) -> float:
        """Seconds until both policies' moment is there."""
        began = time.perf_counter()
        self.ask("moment", at=share * self.ended_s)
        return time.perf_counter() - began


if __name__ == "__main__":
    print(json.dumps(measure()))
