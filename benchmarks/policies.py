"""Cost of the policies that do more than sort: preemption, reservations, tiers and the integer programme.

As in simulate.py, every measurement runs in a process of its own, on one thread, in turns with its peer, and
the best of a few rounds counts on either side. The integer programme is measured decision by decision.
"""

import json
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from gpuyard.registry import register
from harness import BenchResult, measure_apart
from policy_costs import as_queues_grow, on_logs

SIMPY = str(Path(__file__).with_name("simulate.py"))
PEER = "SimPy, FIFO on a bare counter"
JOBS = 200_000
NODES = 64
LOAD = 0.9
ROUNDS = 3
PREEMPTIVE = ("srtf+strict", "srtf+greedy", "las-2d+strict", "las-2d+greedy")
MILP_CLUSTER = "16x2:p100,20x8:v100"
MILP_JOBS = 6_000
MILP_LOAD = 1.1


@register("benchmark", "policies")
def policies() -> Iterator[BenchResult]:
    """All policies against fifo+easy; preemption against SimPy's plain FIFO; milp and tier a decision."""
    yield from on_logs()
    yield from as_queues_grow()
    for policy in PREEMPTIVE:
        rounds = [(_run(policy), measure_apart(SIMPY, "simpy")["jobs_per_s"]) for _ in range(ROUNDS)]
        stops = rounds[0][0]["preemptions"]
        yield BenchResult(
            f"simulate {policy}, {stops:,.0f} stops",
            max(native["jobs_per_s"] for native, _ in rounds),
            "jobs/s",
            PEER,
            max(peer for _, peer in rounds),
            1.0,
        )
    for order, limit in (("fifo", 10.0), ("sjf", 40.0)):
        pairs = [(_run(f"{order}+conservative"), _run(f"{order}+easy")) for _ in range(ROUNDS)]
        value, peer_value = (min(1e6 / pair[side]["jobs_per_s"] for pair in pairs) for side in (0, 1))
        name = f"simulate {order}+conservative at load 0.9"
        yield BenchResult(name, value, "us/job", f"{order}+easy", peer_value, limit, lower_is_better=True)
    tier = min(measure_apart(__file__, "tier")["us_per_job"] for _ in range(ROUNDS))
    yield BenchResult("fifo/tier a job, whole", tier, "us", "20 us", 20.0, 1.0, lower_is_better=True)
    milp = min((measure_apart(__file__, "milp") for _ in range(ROUNDS)), key=lambda m: m["p99_ms"])
    share = f"{milp['solved']:,.0f} of {milp['decisions']:,.0f} decisions"
    for statistic, limit in (("median", 2.0), ("p99", 20.0)):
        yield BenchResult(
            f"milp {statistic} over those that need the solver ({share}, {milp['fallbacks']:.0f} fallbacks)",
            milp[f"{statistic}_ms"],
            "ms",
            f"{limit:g} ms",
            limit,
            1.0,
            lower_is_better=True,
        )


def _run(policy: str) -> dict[str, float]:
    return measure_apart(__file__, "native", policy)


def measure_native(policy: str) -> dict[str, float]:
    from gpuyard.simulation.run import simulate
    from gpuyard.workload import SynthConfig, synthesize

    workload = synthesize(SynthConfig(jobs=JOBS, cluster_gpus=8 * NODES, load=LOAD))
    began = time.perf_counter()
    result = simulate(workload, f"{NODES}x8", policy)
    elapsed_s = time.perf_counter() - began
    return {"jobs_per_s": JOBS / elapsed_s, "preemptions": float(result.metrics()["preemptions"] or 0)}


def _milp_workload() -> Any:
    from gpuyard.cluster.model import parse_cluster
    from gpuyard.workload import SynthConfig, synthesize

    cluster = parse_cluster(MILP_CLUSTER)
    mix = ((1, 0.45), (2, 0.15), (4, 0.2), (8, 0.15), (16, 0.05))
    config = SynthConfig(jobs=MILP_JOBS, cluster_gpus=cluster.total_gpus, load=MILP_LOAD, gang_mix=mix)
    return synthesize(config), cluster


def measure_tier() -> dict[str, float]:
    from gpuyard.simulation.run import simulate

    workload, cluster = _milp_workload()
    began = time.perf_counter()
    simulate(workload, cluster, "fifo/tier")
    return {"us_per_job": 1e6 * (time.perf_counter() - began) / len(workload)}


def measure_milp() -> dict[str, float]:
    import numpy as np

    from gpuyard.policies.grammar import parse_policy
    from gpuyard.policies.milp.policy import MilpPolicy
    from gpuyard.simulation.run import simulate

    policy = MilpPolicy(parse_policy("fifo/milp"))
    times_ms: list[float] = []
    decisions = 0

    class Timed:
        counters = policy.counters

        def decide(self, snapshot: Any) -> Any:
            nonlocal decisions
            solved, began = policy.counters["milp_solved"], time.perf_counter()
            decision = policy.decide(snapshot)
            elapsed_ms = 1e3 * (time.perf_counter() - began)
            decisions += 1
            if policy.counters["milp_solved"] > solved:
                times_ms.append(elapsed_ms)
            return decision

    workload, cluster = _milp_workload()
    simulate(workload, cluster, Timed())
    median_ms, p99_ms = np.quantile(times_ms, [0.5, 0.99])
    return {
        "median_ms": float(median_ms),
        "p99_ms": float(p99_ms),
        "solved": float(len(times_ms)),
        "decisions": float(decisions),
        "fallbacks": float(policy.counters["milp_fallbacks"]),
    }


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["tier"]:
            print(json.dumps(measure_tier()))
        case ["milp"]:
            print(json.dumps(measure_milp()))
        case ["native", policy]:
            print(json.dumps(measure_native(policy)))
