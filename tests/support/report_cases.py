"""Results to make reports of: simulations and comparisons of jobs whose names try to break a page."""

from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

import gpuyard as gy
from gpuyard.cluster.model import parse_cluster
from gpuyard.config import SimulationConfig
from gpuyard.evaluate import Comparison
from gpuyard.evaluate.replay import replay_comparison, run_policies
from gpuyard.workload import Workload, make_workload

SCRIPT = "<script>alert(1)</script>"
NASTY = (
    SCRIPT,
    '"quoted", with a comma',
    "</script><img src=x onerror=alert(2)>",
    "<!--<script>",
    "line\u2028separator\nbreak",
    "=1+1",
    "$title &amp; 'single'",
)
EXACT = SimulationConfig(estimates="exact")
POLICIES = ("fifo", "sjf+easy", "wspt+easy")


def jobs_with_names(count: int = 300, seed: int = 0, **columns: Any) -> Workload:
    """Jobs for 4 nodes of 4 GPUs at a load near 1, of users and groups with the names above."""
    draw = np.random.default_rng(seed)
    frame = pl.DataFrame(
        {
            "submit_s": np.sort(draw.uniform(0, 40 * count, count)),
            "duration_s": draw.lognormal(5.3, 1.2, count).clip(1, 30_000),
            "gpus": draw.choice([1, 1, 2, 4, 8], count),
            "priority": draw.choice([1.0, 5.0], count),
            "user": [NASTY[k % len(NASTY)] for k in range(count)],
            "group": [NASTY[k % 3] for k in range(count)],
            "source_id": [f"{SCRIPT}{k}" for k in range(count)],
            **columns,
        }
    )
    return make_workload(frame, name="<i>nasty</i>")


def simulated(
    directory: Path,
    policies: tuple[str, ...] = POLICIES,
    *,
    jobs: Workload | None = None,
    cluster: str = "4x4:v100",
    config: SimulationConfig | None = None,
    current: str = "none",
) -> Path:
    """What ``simulate --out`` writes."""
    workload = jobs_with_names() if jobs is None else jobs
    runs = run_policies(workload, parse_cluster(cluster), policies, config or EXACT, current=current)
    replay_comparison(workload.metadata.name, runs).write(directory)
    return directory


def compared(
    policies: tuple[str, ...] = POLICIES, *, current: str = "fifo+easy", count: int = 1200, **settings: Any
) -> Comparison:
    """Policies on 12 windows that do not overlap, each from an empty cluster."""
    config = settings.pop("config", None) or EXACT
    options = {"windows": 12, "jobs_per_window": 100, "part": "all", "threads": 1, **settings}
    jobs = jobs_with_names(count)
    options = {"cold": True, "whole": False, "current": current, **options}
    return gy.compare(list(policies), jobs, "4x4:v100", config, **options)
