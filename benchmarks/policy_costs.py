"""What each policy costs beside ``fifo+easy`` on the same jobs, on whole logs and as queues grow.

The logs are Philly's 82,247 jobs on 60 nodes of 8 GPUs and RICC's 447,784 on 1,024 nodes of 8 processors,
from the folder of traces if there is one (``gpuyard bench --traces``, else ../shared/traces), else made logs
of as many jobs. What is known of run times is what a log tells: requests, else predictions from finished
jobs. Queues are of jobs that are all submitted within minutes and asked for three times the time they need.

Every run has a process of its own and counts its processor time; one that takes too long is stopped, and its
figure is then the least that it would be. To measure another policy, add its name.
"""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness import BenchResult, traces_folder

PEER = "fifo+easy"
# The most that a run may cost, in runs of fifo+easy; None: no target.
TARGETS: dict[str, float | None] = {
    "multifactor+slurm": 10.0,
    "multifactor+easy": 10.0,
    "wfp3+easy": 5.0,
    "unicep+easy": 5.0,
    "fair-share+easy": 10.0,
    "group-fair-share+easy": 10.0,
    "drf+easy": 10.0,
    "fifo+conservative": 25.0,
    "sjf+conservative": 25.0,
    "saf+conservative": 25.0,
}
GROWING = (
    *("fifo", "fifo+greedy", "fifo+easy-sjf", "fifo+conservative", "sjf+easy", "saf+easy", "wfp3+easy"),
    *("unicep+easy", "fair-share+easy", "group-fair-share+easy", "drf+easy"),
    *("multifactor+easy", "multifactor+slurm"),
)
DEFRAGMENTED = ("fifo", "fifo+greedy", "sjf+greedy")
QUEUES = (1_000, 10_000, 100_000)
QUEUE_CLUSTER, QUEUE_GPUS = "64x8", 512
STOPPED_AFTER_S = 120


@dataclass(frozen=True)
class Log:
    """A log to replay: where its file is in the folder of traces, and what is made in its place."""

    name: str
    cluster: str
    file: str
    jobs: int
    made: dict[str, Any]


LOGS = {
    log.name: log
    for log in (
        Log(
            "Philly",
            "60x8",
            "philly/philly_pollux.csv.gz",
            82_247,
            {"cluster_gpus": 480, "load": 0.85, "duration_sigma": 2.2, "groups": 15},
        ),
        Log(
            "RICC",
            "1024x8",
            "swf/RICC-2010-2.swf.gz",
            447_784,
            {"cluster_gpus": 8192, "load": 0.87, "users": 176, "overestimation": 3.0, "duration_sigma": 2.2},
        ),
    )
}


def on_logs() -> Iterator[BenchResult]:
    """Each policy on each log."""
    for log in LOGS.values():
        title = log.name if _file_of(log) else f"a log like {log.name}"
        peer_s, _ = _seconds("log", log.name, PEER)
        for policy, target in TARGETS.items():
            seconds, stopped = _seconds("log", log.name, policy)
            yield BenchResult(
                f"{policy} on {title}{stopped}", seconds, "s", PEER, peer_s, target, lower_is_better=True
            )


def as_queues_grow() -> Iterator[BenchResult]:
    """Each order and each backfill with ever longer queues, per job."""
    for jobs in QUEUES:
        peer_s, _ = _seconds("queue", str(jobs), PEER)
        runs = [("queue", policy) for policy in GROWING]
        runs += [("defragmented", policy) for policy in DEFRAGMENTED]
        for kind, policy in runs:
            seconds, stopped = _seconds(kind, str(jobs), policy)
            moving = " with moves" if kind == "defragmented" else ""
            yield BenchResult(
                f"{policy}{moving}, {jobs:,} jobs wait{stopped}",
                1e6 * seconds / jobs,
                "us/job",
                PEER,
                1e6 * peer_s / jobs,
                lower_is_better=True,
            )


def _seconds(kind: str, what: str, policy: str) -> tuple[float, str]:
    """Processor time of one run, and a note if it was stopped."""
    run = subprocess.run(
        [sys.executable, __file__, kind, what, policy],
        env=os.environ | {"POLARS_MAX_THREADS": "1"},
        stdout=subprocess.PIPE,
        text=True,
    )
    if run.returncode == -signal.SIGXCPU:
        return float(STOPPED_AFTER_S), f", stopped after {STOPPED_AFTER_S} s"
    run.check_returncode()
    return float(json.loads(run.stdout)), ""


def _file_of(log: Log) -> Path | None:
    folder = traces_folder()
    return folder / log.file if folder and (folder / log.file).exists() else None


def measure(kind: str, what: str, policy: str) -> float:
    """Processor time of one simulation, without the reading of its jobs."""
    import resource
    import time

    from gpuyard.config import SimulationConfig
    from gpuyard.simulation.run import simulate
    from gpuyard.workload import SynthConfig, read_workload, synthesize

    cluster = LOGS[what].cluster if kind == "log" else QUEUE_CLUSTER
    if kind != "log":
        made = SynthConfig(jobs=int(what), cluster_gpus=QUEUE_GPUS, load=1000.0, overestimation=3.0)
        jobs = synthesize(made)
    elif file := _file_of(LOGS[what]):
        jobs = read_workload(file)
    else:
        jobs = synthesize(SynthConfig(jobs=LOGS[what].jobs, **LOGS[what].made))
    began = time.process_time()
    limit = int(began) + 1 + STOPPED_AFTER_S
    resource.setrlimit(resource.RLIMIT_CPU, (limit, limit + 60))
    simulate(jobs, cluster, policy, SimulationConfig(defragment=kind == "defragmented"))
    return time.process_time() - began


if __name__ == "__main__":
    print(json.dumps(measure(*sys.argv[1:4])))
