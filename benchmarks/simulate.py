"""Jobs a second of the simulator against SimPy, and how its cost grows with nodes, jobs and queue length.

Every measurement runs in a process of its own, on one thread, five times in turns with its peer; the best of
the five counts on either side, since other work on the machine only ever adds time. The workload has 1, 2, 4
and 8 GPUs a job at 70, 10, 15 and 5 % and lognormal durations. What is timed is `gpuyard.simulation.run` as a
whole: conversion of the table, the simulation and the full schedule.
"""

import json
import sys
import time
from collections.abc import Generator, Iterator
from typing import Any

from gpuyard.registry import register
from harness import BenchResult, measure_apart, peak_memory_gb

JOBS = 1_000_000
NODES = 64
LOAD = 0.9
PEER_JOBS = 60_000
ROUNDS = 5
PEER = "SimPy, FIFO on a bare counter"
TARGETS = {"fifo": 30.0, "sjf": 15.0, "fifo+greedy": 8.0, "fifo+easy": 3.0}


@register("benchmark", "simulate")
def simulate() -> Iterator[BenchResult]:
    """Jobs a second against SimPy; growth with nodes, jobs and queue length; memory."""
    jobs_per_s: dict[str, float] = {}
    for policy, target in TARGETS.items():
        rounds = [(_native(policy), measure_apart(__file__, "simpy")["jobs_per_s"]) for _ in range(ROUNDS)]
        value = max(native["jobs_per_s"] for native, _ in rounds)
        peer_value = max(peer for _, peer in rounds)
        jobs_per_s[policy] = value
        yield BenchResult(f"simulate {policy}", value, "jobs/s", PEER, peer_value, target)
    for policy in TARGETS:
        yield _growth(f"simulate {policy}, 8x the nodes", f"{NODES} nodes", 2.0, policy, nodes=8 * NODES)
    for policy in TARGETS:
        yield _growth(f"simulate {policy}, 10x the jobs", "a tenth of the jobs", 1.2, policy, jobs=JOBS)
    overload = _native("sjf", jobs=3 * JOBS, load=1.3)
    us_per_job = 1e6 / overload["jobs_per_s"]
    name = "simulate sjf, 3M jobs at load 1.3"
    yield BenchResult(
        name, us_per_job, "us/job", "load 0.9", 1e6 / jobs_per_s["sjf"], 3.0, lower_is_better=True
    )
    yield BenchResult(f"{name}, memory", overload["memory_gb"], "GB", "1 GB", 1.0, 1.0, lower_is_better=True)


def _growth(name: str, peer: str, target: float, policy: str, **larger: Any) -> BenchResult:
    """Time a job of a larger run over that of a smaller one, the two measured in turns."""
    smaller = {"jobs": larger["jobs"] // 10} if "jobs" in larger else {}
    rounds = [(_native(policy, **larger), _native(policy, **smaller)) for _ in range(ROUNDS)]
    value, peer_value = (min(1e6 / r[side]["jobs_per_s"] for r in rounds) for side in (0, 1))
    return BenchResult(name, value, "us/job", peer, peer_value, target, lower_is_better=True)


def _native(policy: str, jobs: int = JOBS, nodes: int = NODES, load: float = LOAD) -> dict[str, float]:
    return measure_apart(__file__, "native", policy, str(jobs), str(nodes), str(load))


def measure_native(policy: str, jobs: int, nodes: int, load: float) -> dict[str, float]:
    from gpuyard.simulation.run import simulate
    from gpuyard.workload import SynthConfig, synthesize

    workload = synthesize(SynthConfig(jobs=jobs, cluster_gpus=8 * nodes, load=load))
    began = time.perf_counter()
    simulate(workload, f"{nodes}x8", policy)
    elapsed_s = time.perf_counter() - began
    return {"jobs_per_s": jobs / elapsed_s, "memory_gb": peak_memory_gb()}


def measure_simpy() -> dict[str, float]:
    """The least a discrete-event simulation of jobs can do in SimPy: take n of a counter, wait, give back."""
    import simpy

    from gpuyard.workload import SynthConfig, synthesize

    gpus = 8 * NODES
    frame = synthesize(SynthConfig(jobs=PEER_JOBS, cluster_gpus=gpus, load=LOAD)).frame
    jobs = list(
        zip(frame["submit_s"].to_list(), frame["duration_s"].to_list(), frame["gpus"].to_list(), strict=True)
    )
    began = time.perf_counter()
    env = simpy.Environment()
    counter = simpy.Container(env, capacity=gpus, init=gpus)

    def job(duration_s: float, size: int) -> Generator[Any]:
        yield counter.get(size)
        yield env.timeout(duration_s)
        yield counter.put(size)

    def arrivals() -> Generator[Any]:
        for submit_s, duration_s, size in jobs:
            yield env.timeout(submit_s - env.now)
            env.process(job(duration_s, size))

    env.process(arrivals())
    env.run()
    return {"jobs_per_s": PEER_JOBS / (time.perf_counter() - began)}


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["simpy"]:
            print(json.dumps(measure_simpy()))
        case ["native", policy, jobs, nodes, load]:
            print(json.dumps(measure_native(policy, int(jobs), int(nodes), float(load))))
