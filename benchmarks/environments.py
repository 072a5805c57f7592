"""Steps a second of the environments against SimPy's jobs a second, and how the cost of a step grows.

Every measurement runs in a process of its own, in turns with its peer; the best of the rounds counts on
either side. A step is everything a trainer pays for: choosing a random legal action, stepping 64 environments
from Python, observations of 64 jobs x 21 columns and 64 nodes x 11, masks, rewards, metrics of episodes that
end, new episodes. On a trace at load 1.3 random actions keep few jobs waiting; where all jobs arrive at once,
the window is full until the end.
"""

import json
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from gpuyard.registry import register
from harness import BenchResult, measure_apart, peak_memory_gb

ENVIRONMENTS = 64
SECONDS = 4.0
ROUNDS = 3
SIMPY = str(Path(__file__).with_name("simulate.py"))
FARM_COLUMNS: dict[str, Any] = {
    "job_features": ("cpus", "memory"),
    "node_features": ("cpu_use", "memory_use", "cpus", "memory"),
    "global_features": (),
}
PEER = "SimPy, FIFO on a bare counter"


@register("benchmark", "env")
def environments() -> Iterator[BenchResult]:
    """Environment steps a second against SimPy; two threads; growth with queue and nodes; memory."""
    for name, case in (("a trace at load 1.3", {}), ("64 jobs wait at all times", {"queue": 1_000})):
        rounds = [(_steps(**case), measure_apart(SIMPY, "simpy")["jobs_per_s"]) for _ in range(ROUNDS)]
        own, peer = max(own for own, _ in rounds), max(peer for _, peer in rounds)
        yield BenchResult(f"env SelectJob, {name}", own, "steps/s", PEER, peer, 3.0)
    yield _ratio("env SelectJob, two threads", "one thread", 1.7, {"threads": 2}, {})
    longer, shorter = {"queue": 16_000}, {"queue": 1_000}
    yield _growth("env SelectJob, 16x the queue", "a queue of 1,000", 1.2, longer, shorter)
    asked = {"queue": 1_000, "asked": True}
    yield _growth("env SelectJob, columns on request", "the usual columns", None, asked, shorter)
    yield _growth(
        "env SelectJob, 64x the nodes as classes",
        "64 nodes",
        2.0,
        {"nodes": 4_096, "tokens": "classes"},
        {"nodes": 64, "tokens": "classes"},
    )
    for columns, all_columns in (("4 features a host", False), ("all features", True)):
        farm = {"kind": "select-host", "hosts": 1_000, "all_columns": all_columns}
        own = max(_steps(**farm) for _ in range(ROUNDS))
        yield BenchResult(f"env SelectHost, 1,000 hosts, {columns}", own, "steps/s", "100,000 steps/s", 1e5)
    memory = measure_apart(__file__, json.dumps({"memory": True}))
    yield BenchResult(
        "env SelectJob, memory after 10M steps",
        memory["late_gb"],
        "GB",
        "after 1M steps",
        memory["early_gb"],
        1.02,
        lower_is_better=True,
    )


def _steps(**case: Any) -> float:
    return measure_apart(__file__, json.dumps(case))["steps_per_s"]


def _ratio(name: str, peer: str, target: float, case: dict[str, Any], other: dict[str, Any]) -> BenchResult:
    rounds = [(_steps(**case), _steps(**other)) for _ in range(ROUNDS)]
    value, peer_value = (max(r[side] for r in rounds) for side in (0, 1))
    return BenchResult(name, value, "steps/s", peer, peer_value, target)


def _growth(
    name: str, peer: str, target: float | None, case: dict[str, Any], other: dict[str, Any]
) -> BenchResult:
    rounds = [(_steps(**case), _steps(**other)) for _ in range(ROUNDS)]
    value, peer_value = (min(1e6 / r[side] for r in rounds) for side in (0, 1))
    return BenchResult(name, value, "us/step", peer, peer_value, target, lower_is_better=True)


def make_environments(
    kind: str = "select-job",
    nodes: int = 64,
    hosts: int = 0,
    queue: int = 0,
    tokens: str = "nodes",
    threads: int = 1,
    all_columns: bool = True,
    asked: bool = False,
) -> Any:
    """64 environments: jobs arrive at load 1.3 over 1,024-job windows, or ``queue`` of them at once.

    With ``asked`` observations also tell when each job could start, which takes a look at all running jobs.
    """
    from gpuyard import _core
    from gpuyard.env import SchedulingVectorEnv
    from gpuyard.workload import SynthConfig, synthesize
    from gpuyard.workload.generators import HostFarmConfig
    from gpuyard.workload.generators.shapes import AllAtOnce, Poisson

    if hosts:
        farm = HostFarmConfig(hosts=(hosts, hosts), jobs=20_000, max_arrivals_a_tick=hosts // 3).generate()
        return SchedulingVectorEnv(
            kind,
            ENVIRONMENTS,
            workload=farm.workload,
            cluster=farm.cluster,
            jobs_per_episode=2_000,
            threads=threads,
            copy=False,
            **({} if all_columns else FARM_COLUMNS),
        )
    every = [name for name, *_ in _core.JOB_COLUMNS + _core.ASKED_JOB_COLUMNS]
    features: dict[str, Any] = {"job_features": every} if asked else {}
    jobs = queue or 16 * nodes
    config = SynthConfig(
        jobs=jobs if queue else 8 * jobs,
        cluster_gpus=8 * nodes,
        load=1.3,
        arrivals=AllAtOnce() if queue else Poisson(),
    )
    return SchedulingVectorEnv(
        kind,
        ENVIRONMENTS,
        workload=synthesize(config),
        cluster=f"{nodes}x8",
        jobs_per_episode=jobs,
        tokens=tokens,
        threads=threads,
        copy=False,
        **features,
    )


def step(env: Any, steps: int) -> None:
    for _ in range(steps // ENVIRONMENTS):
        env.step(env.random_actions())


def measure_speed(**case: Any) -> dict[str, float]:
    env = make_environments(**case)
    env.reset(seed=0)
    step(env, 20_000)
    steps, began = 0, time.perf_counter()
    while time.perf_counter() - began < SECONDS:
        step(env, 6_400)
        steps += 6_400
    return {"steps_per_s": steps / (time.perf_counter() - began)}


def measure_memory() -> dict[str, float]:
    env = make_environments()
    env.reset(seed=0)
    step(env, 1_000_000)
    early_gb = peak_memory_gb()
    step(env, 9_000_000)
    return {"early_gb": early_gb, "late_gb": peak_memory_gb()}


if __name__ == "__main__":
    case = json.loads(sys.argv[1])
    print(json.dumps(measure_memory() if case.pop("memory", False) else measure_speed(**case)))
