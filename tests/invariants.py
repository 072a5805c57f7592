"""What holds for every schedule, whatever the policy: docs/simulator.md, sections 3 to 7 and 9.

Written from the inputs and the schedule alone; nothing here runs or copies a simulator.
"""

import math
from collections import Counter, defaultdict
from typing import Any

import numpy as np

from gpuyard.cluster import Cluster
from gpuyard.config import SimulationConfig
from gpuyard.schedule import STATUS_NAMES, Schedule
from gpuyard.simulate import SimulationResult

ONE_POOL_RULES = ("consolidate", "best-fit", "first-fit", "worst-fit", "first-available", "tetris", "fgd")
TIERS = ("tier", "tier-balance", "tier-lex", "tier-cost")


def check_result(result: SimulationResult) -> None:
    """Asserts that every job ran once, where and for as long as it may, and that nothing was overbooked."""
    schedule, jobs = result.schedule, result.workload.frame.rows(named=True)
    check_everybody_ran(schedule, result.dropped, len(jobs))
    nodes = node_table(result.cluster)
    runs = [run_of(schedule, entry, jobs[schedule.job[entry]]) for entry in range(len(schedule))]
    for run in runs:
        check_gang(run, nodes)
        check_nodes_allowed(run, nodes, result.cluster.owners)
        check_times(run, nodes, result.config)
        placement = result.policy.rpartition("/")[2]
        if placement in ONE_POOL_RULES:
            check_stays_in_one_pool(run, nodes)
        elif placement in TIERS:
            check_tier(run, nodes)
    check_nothing_overbooked(runs, nodes)


def run_of(schedule: Schedule, entry: int, job: dict[str, Any]) -> dict[str, Any]:
    """A job of the workload together with its run."""
    parts = slice(schedule.node_offset[entry], schedule.node_offset[entry + 1])
    return job | {
        "job": int(schedule.job[entry]),
        "start_us": int(schedule.start_us[entry]),
        "end_us": int(schedule.end_us[entry]),
        "ending": STATUS_NAMES[schedule.status[entry]],
        "gpu_index": int(schedule.gpu_index[entry]),
        "shared": job["gpu_milli"] < 1000,
        "nodes": list(zip(schedule.node[parts].tolist(), schedule.node_gpus[parts].tolist(), strict=True)),
    }


def node_table(cluster: Cluster) -> list[dict[str, Any]]:
    columns = cluster.node_columns()
    return [
        {
            "gpus": int(columns["gpus"][i]),
            "cpus": int(columns["cpus"][i]),
            "memory_mib": int(columns["memory_mib"][i]),
            "type": cluster.gpu_types[columns["type"][i]].name,
            "speed": cluster.gpu_types[columns["type"][i]].speed,
            "owner": None if columns["owner"][i] < 0 else cluster.owners[columns["owner"][i]],
        }
        for i in range(cluster.node_count)
    ]


def check_everybody_ran(schedule: Schedule, dropped: np.ndarray, jobs: int) -> None:
    assert sorted([*schedule.job.tolist(), *dropped.tolist()]) == list(range(jobs)), "lost or run twice"
    assert (schedule.start_us >= 0).all(), "a job never started"


def check_gang(run: dict[str, Any], nodes: list[dict[str, Any]]) -> None:
    ids = [node for node, _ in run["nodes"]]
    assert ids == sorted(set(ids)), f"nodes are not distinct and ascending: {run}"
    assert all(0 <= node < len(nodes) for node in ids), f"no such node: {run}"
    assert sum(gpus for _, gpus in run["nodes"]) == run["gpus"], f"half a gang: {run}"
    if run["gpus"] == 0 or run["shared"]:
        assert len(ids) == 1, f"a job that sits on one node is on several: {run}"
    else:
        assert all(gpus >= 1 for _, gpus in run["nodes"]), f"a node without a GPU of the gang: {run}"
    if run["shared"]:
        assert 0 <= run["gpu_index"] < nodes[ids[0]]["gpus"], f"no such GPU: {run}"
    else:
        assert run["gpu_index"] == -1, f"a GPU's index for a job that shares none: {run}"


def check_nodes_allowed(run: dict[str, Any], nodes: list[dict[str, Any]], owners: tuple[str, ...]) -> None:
    owner = run["group"] if run["group"] in owners else None
    for node, _ in run["nodes"]:
        assert nodes[node]["owner"] == owner, f"on a node of {nodes[node]['owner']}: {run}"
        types = run["gpu_types"]
        assert types is None or nodes[node]["type"] in types, f"on a {nodes[node]['type']}: {run}"


def check_times(run: dict[str, Any], nodes: list[dict[str, Any]], config: SimulationConfig) -> None:
    assert run["start_us"] >= round(run["submit_s"] * 1e6), f"starts before its submit: {run}"
    whole_us = run_us(round(run["duration_s"] * 1e6), run, nodes, config.locality_penalty)
    took_us = run["end_us"] - run["start_us"]
    if run["ending"] == "completed":
        assert took_us == whole_us, f"took {took_us} us for {whole_us}: {run}"
        return
    assert config.kill_at_estimate, f"killed without need: {run}"
    assert took_us < whole_us, f"killed when it was done: {run}"
    if config.estimates == "requested":
        assert took_us == run_us(round(run["estimate_s"] * 1e6), run, nodes, config.locality_penalty), (
            f"{run}"
        )


def run_us(duration_us: int, run: dict[str, Any], nodes: list[dict[str, Any]], penalty: float) -> int:
    """Section 6, for the nodes of this run."""
    used = [nodes[node] for node, _ in run["nodes"]]
    speed = min(node["speed"] for node in used) if run["gpus"] else 1.0
    fewest = min(math.ceil(run["gpus"] / node["gpus"]) for node in used) if run["gpus"] else 1
    return max(1, round(duration_us / speed * (1.0 + penalty * ((len(used) - fewest) / fewest))))


def check_stays_in_one_pool(run: dict[str, Any], nodes: list[dict[str, Any]]) -> None:
    """The shape of section 9: full nodes of one pool and the remainder on one more."""
    pools = {(nodes[node]["type"], nodes[node]["gpus"]) for node, _ in run["nodes"]}
    assert len(pools) == 1, f"over several pools: {run}"
    if run["gpus"] == 0:
        return
    ((_, size),) = pools
    full, remainder = divmod(run["gpus"], size)
    expected = Counter({size: full}) + Counter({remainder: 1 if remainder else 0})
    assert Counter(gpus for _, gpus in run["nodes"]) == expected, f"more nodes than needed: {run}"


def check_tier(run: dict[str, Any], nodes: list[dict[str, Any]]) -> None:
    """One pool, and at most one node more than needed."""
    pools = {(nodes[node]["type"], nodes[node]["gpus"]) for node, _ in run["nodes"]}
    assert len(pools) == 1, f"over several pools: {run}"
    if run["gpus"] > 0:
        ((_, size),) = pools
        spare = len(run["nodes"]) - math.ceil(run["gpus"] / size)
        assert spare in (0, 1), f"more nodes than a tier has: {run}"


def check_nothing_overbooked(runs: list[dict[str, Any]], nodes: list[dict[str, Any]]) -> None:
    """Goes through starts and ends in order of time, ends first, and counts what is held on every node."""
    changes = sorted(
        [(run["start_us"], 1, i) for i, run in enumerate(runs)]
        + [(run["end_us"], -1, i) for i, run in enumerate(runs)]
    )
    whole, cpus, memory = Counter[int](), Counter[int](), Counter[int]()
    shares: dict[int, Counter[int]] = defaultdict(Counter)  # by node: thousandths held of each shared GPU
    for _, sign, i in changes:
        run = runs[i]
        for node, gpus in run["nodes"]:
            fraction = gpus if run["gpus"] > 1 and not run["shared"] else 1
            cpus[node] += sign * -(-run["cpus"] * fraction // max(run["gpus"], 1))
            memory[node] += sign * -(-run["memory_mib"] * fraction // max(run["gpus"], 1))
            if run["shared"]:
                shares[node][run["gpu_index"]] += sign * run["gpu_milli"]
            else:
                whole[node] += sign * gpus
            held = [milli for milli in shares[node].values() if milli > 0]
            assert all(milli <= 1000 for milli in held), f"a GPU of node {node} is over-shared by {run}"
            busy = whole[node] + len(held)
            assert busy <= nodes[node]["gpus"], f"{busy} GPUs of node {node} are busy with {run}"
            assert cpus[node] <= nodes[node]["cpus"], f"node {node} lacks CPUs for {run}"
            assert memory[node] <= nodes[node]["memory_mib"], f"node {node} lacks memory for {run}"
    assert not any((+whole).values()), "GPUs are held after the end"
    assert not any((+cpus).values()), "CPUs are held after the end"
    assert not any((+memory).values()), "memory is held after the end"
