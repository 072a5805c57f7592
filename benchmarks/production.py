"""Policies where production is: whole logs, and long queues.

Ratios are of processor time to ``fifo+easy`` on the same jobs, each run in a process of its own on one
thread. The logs are those of ../shared/traces if that folder is there, else logs of as many jobs are made. A
run that takes longer than ``LIMIT_S`` is ended by an alarm, silently, and counts as that long.
"""

import json
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from gpuyard.errors import InputError
from harness import BenchResult, measure_apart

TRACES = Path(__file__).resolve().parents[2] / "shared" / "traces"
LOGS = {
    "Philly": (TRACES / "philly" / "philly_pollux.csv.gz", "60x8", 82_247, 0.8),
    "RICC": (TRACES / "swf" / "RICC-2010-2.swf.gz", "1024x8", 447_794, 0.9),
}
"""File, cluster, and of the log that is made in its place the jobs and the load."""
PEER = "fifo+easy"
LIMITS = {
    **dict.fromkeys(("multifactor+slurm", "multifactor+easy", "fair-share+easy", "drf+easy"), 10.0),
    **dict.fromkeys(("fifo+conservative", "sjf+conservative", "saf+conservative"), 25.0),
    "wfp3+easy": 5.0,
}
"""Policies, and what each may take in multiples of the peer's time."""
LIMIT_S = 120
QUEUES = (1_000, 10_000, 100_000)
LONG_QUEUES = (
    *("fifo+easy", "wfp3+easy", "fair-share+easy", "drf+easy", "multifactor+easy", "multifactor+slurm"),
    *("fifo+strict", "fifo+greedy", "fifo+easy-sjf", "fifo+conservative", "srtf+greedy"),
)


def on_logs() -> Iterator[BenchResult]:
    """Each policy on each log against the peer."""
    for log in LOGS:
        peer_s = _seconds("log", log, PEER)
        for policy, limit in LIMITS.items():
            taken_s = _seconds("log", log, policy)
            name = f"{policy} on {log}" + (f", ended after {LIMIT_S} s" if taken_s >= LIMIT_S else "")
            yield BenchResult(name, taken_s, "s", PEER, peer_s, limit, lower_is_better=True)


def on_queues() -> Iterator[BenchResult]:
    """What a job costs in queues of other lengths, against the shortest."""
    for policy in LONG_QUEUES:
        costs = {jobs: 1e6 * _seconds("queue", str(jobs), policy) / jobs for jobs in QUEUES}
        for jobs in QUEUES[1:]:
            yield BenchResult(
                f"{policy}, {jobs:,} jobs waiting", costs[jobs], "us/job", f"{QUEUES[0]:,}", costs[QUEUES[0]]
            )


def _seconds(*arguments: str) -> float:
    try:
        return measure_apart(__file__, *arguments)["seconds"]
    except InputError as error:
        if not str(error).endswith("no message"):
            raise
        return float(LIMIT_S)


def _jobs(kind: str, what: str) -> tuple[Any, str]:
    from gpuyard import parse_cluster, read_workload
    from gpuyard.workload import SynthConfig, synthesize

    if kind == "queue":
        # All arrive within a minute on a cluster that takes hours for them.
        config = SynthConfig(jobs=int(what), cluster_gpus=128, load=1000.0, overestimation=2)
        return synthesize(config), "16x8"
    path, cluster, jobs, load = LOGS[what]
    if path.exists():
        return read_workload(path), cluster
    gpus = parse_cluster(cluster).total_gpus
    return synthesize(SynthConfig(jobs=jobs, cluster_gpus=gpus, load=load, overestimation=2)), cluster


def measure(kind: str, what: str, policy: str) -> dict[str, float]:
    """Processor time of one simulation."""
    from gpuyard import SimulationConfig
    from gpuyard.simulation.run import simulate

    jobs, cluster = _jobs(kind, what)
    signal.alarm(LIMIT_S)
    began = time.process_time()
    simulate(jobs, cluster, policy, SimulationConfig(oversize="drop"))
    return {"seconds": time.process_time() - began}


if __name__ == "__main__":
    print(json.dumps(measure(*sys.argv[1:])))
