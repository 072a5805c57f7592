"""What holds for every schedule: docs/contract/simulator.md, sections 3 to 7, 9 and 13 to 17.

Written from the inputs and the schedule alone; nothing here runs or copies a simulator. What holds for the
runs of one job is in `run_invariants`.
"""

import math
from collections import Counter, defaultdict
from collections.abc import Sequence
from typing import Any

import numpy as np

from gpuyard.cluster.model import Cluster
from gpuyard.native.schedule import RUN_ENDINGS, STATUS_NAMES, Schedule
from gpuyard.simulation.run import SimulationResult
from support.run_invariants import Run, check_pieces, check_stops

ONE_POOL_RULES = (
    *("consolidate", "best-fit", "first-fit", "worst-fit", "first-available"),
    *("tetris", "fgd", "power-aware"),
)
TIERS = ("tier", "tier-balance", "tier-lex", "tier-cost")


def check_result(result: SimulationResult) -> None:
    """Asserts that every job ran once, where and for as long as it may, and that nothing was overbooked.

    Once: in one run or, if it was stopped or nodes failed, in several that add up to its work.
    """
    schedule, jobs = result.schedule, result.workload.frame.rows(named=True)
    check_everybody_ran(schedule, result.dropped, len(jobs))
    nodes = node_table(result.cluster)
    runs = pieces_of(schedule, jobs)
    placement = result.policy.rpartition("/")[2]
    for run in runs:
        check_gang(run, nodes)
        check_nodes_allowed(run, nodes, result.cluster.owners)
        if placement in ONE_POOL_RULES:
            check_stays_in_one_pool(run, nodes)
        elif placement in TIERS:
            check_tier(run, nodes)
        elif placement == "milp":
            check_one_pool(run, nodes)
    by_job: dict[int, list[Run]] = defaultdict(list)
    for run in runs:
        by_job[run["job"]].append(run)
    for entry in range(len(schedule)):
        job = int(schedule.job[entry])
        check_pieces(by_job[job], nodes, result.config)
        check_agrees(run_of(schedule, entry, jobs[job]), by_job[job])
    check_stops(runs, result.config)
    check_nothing_overbooked(runs, nodes)
    check_downtime(schedule, runs, result)


def run_of(schedule: Schedule, entry: int, job: dict[str, Any]) -> Run:
    """A job of the workload together with when and where it ran; of several runs the last counts."""
    parts = slice(schedule.node_offset[entry], schedule.node_offset[entry + 1])
    return job | {
        "job": int(schedule.job[entry]),
        "start_us": int(schedule.start_us[entry]),
        "end_us": int(schedule.end_us[entry]),
        "ending": STATUS_NAMES[schedule.status[entry]],
        "gpu_index": int(schedule.gpu_index[entry]),
        "shared": job["gpu_milli"] < 1000,
        "asked": asked_nodes(job),
        "nodes": list(zip(schedule.node[parts].tolist(), schedule.node_gpus[parts].tolist(), strict=True)),
    }


def pieces_of(schedule: Schedule, jobs: Sequence[dict[str, Any]]) -> list[Run]:
    """All runs, each together with its job, in order of begin."""
    pieces = schedule.pieces()
    runs = []
    for i in range(len(pieces)):
        job, at = int(schedule.job[pieces.entry[i]]), slice(pieces.node_offset[i], pieces.node_offset[i + 1])
        times = ("taken_us", "begin_us", "stop_us", "released_us", "restore_us", "lost_us")
        runs.append(
            jobs[job]
            | {name: int(getattr(pieces, name)[i]) for name in (*times, "gpu_index")}
            | {
                "job": job,
                "ending": RUN_ENDINGS[pieces.ending[i]],
                "shared": jobs[job]["gpu_milli"] < 1000,
                "asked": asked_nodes(jobs[job]),
                "nodes": list(zip(pieces.node[at].tolist(), pieces.node_gpus[at].tolist(), strict=True)),
            }
        )
    ranks = [(run["begin_us"], run["job"]) for run in runs]
    assert schedule.runs is None or ranks == sorted(ranks), "runs are not in order of (begin, job)"
    return sorted(runs, key=lambda run: (run["begin_us"], run["job"]))


def asked_nodes(job: dict[str, Any]) -> int | None:
    """N of section 3: how many nodes a job asks for."""
    nodes = job.get("nodes")
    if nodes is None or (nodes == 1 and job["gpus"] == 0) or job["gpus"] == 1:
        return None
    return min(int(nodes), job["gpus"] or int(nodes))


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
    entries = set(schedule.pieces().entry.tolist())
    assert entries == set(range(len(schedule))), "a job without a run, or a run without a job"


def check_agrees(whole: Run, pieces: list[Run]) -> None:
    """Section 14: what the schedule says of a job is what its first and its last run say."""
    first, last = pieces[0], pieces[-1]
    assert whole["start_us"] == first["begin_us"], f"started when no run began: {whole}, {first}"
    assert whole["end_us"] == last["stop_us"] == last["released_us"], f"ended when no run did: {whole}"
    for name in ("ending", "nodes", "gpu_index"):
        assert whole[name] == last[name], f"{name} is not that of the last run: {whole}, {last}"


def check_gang(run: Run, nodes: list[dict[str, Any]]) -> None:
    ids = [node for node, _ in run["nodes"]]
    assert ids == sorted(set(ids)), f"nodes are not distinct and ascending: {run}"
    assert all(0 <= node < len(nodes) for node in ids), f"no such node: {run}"
    assert sum(gpus for _, gpus in run["nodes"]) == run["gpus"], f"half a gang: {run}"
    if run["asked"] is not None:
        check_asked(run, nodes)
    elif run["gpus"] == 0 or run["shared"]:
        assert len(ids) == 1, f"a job that sits on one node is on several: {run}"
    else:
        assert all(gpus >= 1 for _, gpus in run["nodes"]), f"a node without a GPU of the gang: {run}"
    if run["shared"]:
        assert 0 <= run["gpu_index"] < nodes[ids[0]]["gpus"], f"no such GPU: {run}"
    else:
        assert run["gpu_index"] == -1, f"a GPU's index for a job that shares none: {run}"


def check_asked(run: Run, nodes: list[dict[str, Any]]) -> None:
    """Section 3: as many nodes as were asked for, of one pool, with GPUs split evenly."""
    assert len(run["nodes"]) == run["asked"], f"not on {run['asked']} nodes: {run}"
    check_one_pool(run, nodes)
    shares = [gpus for _, gpus in run["nodes"]]
    assert max(shares) - min(shares) <= 1, f"not split evenly: {run}"


def check_nodes_allowed(run: Run, nodes: list[dict[str, Any]], owners: tuple[str, ...]) -> None:
    owner = run["group"] if run["group"] in owners else None
    for node, _ in run["nodes"]:
        assert nodes[node]["owner"] == owner, f"on a node of {nodes[node]['owner']}: {run}"
        types = run["gpu_types"]
        assert types is None or nodes[node]["type"] in types, f"on a {nodes[node]['type']}: {run}"


def check_one_pool(run: Run, nodes: list[dict[str, Any]]) -> int:
    """The size of the pool's nodes."""
    pools = {(nodes[node]["type"], nodes[node]["gpus"]) for node, _ in run["nodes"]}
    assert len(pools) == 1, f"over several pools: {run}"
    ((_, size),) = pools
    return int(size)


def check_stays_in_one_pool(run: Run, nodes: list[dict[str, Any]]) -> None:
    """The shape of section 9: full nodes of one pool and the remainder on one more."""
    size = check_one_pool(run, nodes)
    if run["gpus"] == 0 or run["asked"] is not None:
        return
    full, remainder = divmod(run["gpus"], size)
    expected = Counter({size: full}) + Counter({remainder: 1 if remainder else 0})
    assert Counter(gpus for _, gpus in run["nodes"]) == expected, f"more nodes than needed: {run}"


def check_tier(run: Run, nodes: list[dict[str, Any]]) -> None:
    """One pool, and at most one node more than needed."""
    size = check_one_pool(run, nodes)
    if run["gpus"] > 0 and run["asked"] is None:
        spare = len(run["nodes"]) - math.ceil(run["gpus"] / size)
        assert spare in (0, 1), f"more nodes than a tier has: {run}"


def check_nothing_overbooked(runs: list[Run], nodes: list[dict[str, Any]]) -> None:
    """Goes through what is taken and released in order of time and counts what is held on every node."""
    changes = sorted(
        [(run["taken_us"], 1, i) for i, run in enumerate(runs)]
        + [(run["released_us"], -1, i) for i, run in enumerate(runs)]
    )
    whole, cpus, memory = Counter[int](), Counter[int](), Counter[int]()
    shares: dict[int, Counter[int]] = defaultdict(Counter)  # by node: thousandths held of each shared GPU
    for _, sign, i in changes:
        run = runs[i]
        for node, gpus in run["nodes"]:
            fraction = gpus if run["gpus"] > 1 and not run["shared"] else 1
            parts = run["gpus"] or run["asked"] or 1
            cpus[node] += sign * -(-run["cpus"] * fraction // parts)
            memory[node] += sign * -(-run["memory_mib"] * fraction // parts)
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


def check_downtime(schedule: Schedule, runs: list[Run], result: SimulationResult) -> None:
    """Section 16: nothing is held on a node that is down, and only failing nodes make runs fail."""
    down: dict[int, list[tuple[int, int]]] = defaultdict(list)
    if schedule.downtime is not None:
        columns = (schedule.downtime.node, schedule.downtime.from_us, schedule.downtime.to_us)
        for node, from_us, to_us in zip(*(column.tolist() for column in columns), strict=True):
            down[node].append((from_us, to_us))
    assert not down or result.config.node_mtbf_s is not None, "nodes fail although none may"
    end_us = int(schedule.end_us.max())
    for node, spans in down.items():
        times = [us for span in sorted(spans) for us in span]
        assert 0 <= node < result.cluster.node_count
        assert times == sorted(times), f"node {node} fails while it is down: {spans}"
        assert times[-1] <= end_us, f"node {node} is down after the end: {spans}"
    for run in runs:
        failing = False
        for node, _ in run["nodes"]:
            for from_us, to_us in down[node]:
                is_apart = run["released_us"] <= from_us or to_us <= run["taken_us"]
                assert is_apart, f"held on node {node}, which is down from {from_us} to {to_us}: {run}"
                failing = failing or run["released_us"] == from_us
        assert failing or run["ending"] != "failed", f"failed without a failing node: {run}"
