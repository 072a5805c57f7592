"""Metrics that need the state at every instant, against slow plain Python on random schedules."""

import random
from collections import Counter
from dataclasses import replace
from itertools import pairwise
from statistics import pvariance

import numpy as np
import polars as pl
import pytest

from gpuyard.cluster.model import Cluster
from gpuyard.config import SimulationConfig
from gpuyard.metrics.catalogue import compute_metrics
from gpuyard.native.schedule import Schedule
from gpuyard.workload import Workload, make_workload
from support.schedules import Run, make_downtime, make_runs, make_schedule

SIZES = (1, 2, 3, 4, 8)
Case = tuple[Workload, Cluster, Schedule]


def random_case(seed: int, jobs: int = 40) -> Case:
    """Jobs put, in order of submit, at random times on random GPUs that are free throughout their run."""
    rng = random.Random(seed)
    nodes = [
        {
            "gpus": rng.choice((0, *SIZES)),
            "type": rng.choice("xy"),
            "cpus": 64,
            "idle_w": rng.choice((0.0, 40.0)),
        }
        for _ in range(rng.randint(2, 5))
    ]
    nodes[0]["gpus"] = 4
    types = [
        {"name": "x", "idle_w": 10.0, "peak_w": 70.0},
        {"name": "y", "idle_w": 25.0, "peak_w": 300.0, "speed": 2},
    ]
    cluster = Cluster.model_validate({"gpu_types": types, "nodes": nodes})
    taken: list[tuple[int, int, int, int, int]] = []  # node, GPU, start, end, thousandths
    rows, runs, indices = [], [], []
    for submit in sorted(rng.randint(0, 60) for _ in range(jobs)):
        milli = rng.choice((1000, 1000, rng.randint(1, 999)))
        run, gpu = _find_place(rng, cluster, taken, submit, milli)
        gpus = sum(run[2].values())
        rows.append((submit, float(run[1] - run[0]), gpus, milli if gpus else 1000, rng.choice("abcdefg")))
        runs.append(run)
        indices.append(gpu if milli < 1000 and gpus else -1)
    frame = pl.DataFrame(rows, schema=["submit_s", "duration_s", "gpus", "gpu_milli", "user"], orient="row")
    return make_workload(frame), cluster, make_schedule(*runs, gpu_index=indices)


def _find_place(
    rng: random.Random, cluster: Cluster, taken: list[tuple[int, int, int, int, int]], submit: int, milli: int
) -> tuple[tuple[float, float, dict[int, int]], int]:
    """A start not before the submit, an end, GPUs by node, and the first GPU's index."""
    if rng.random() < 0.1:
        return (submit + 3, submit + 10, {len(cluster.nodes) - 1: 0}), -1
    wanted = 1 if milli < 1000 else rng.randint(1, min(5, cluster.total_gpus))
    start = submit
    while True:
        start += rng.randint(0, 8)
        end = start + rng.randint(1, 30)
        free = []
        for node, group in enumerate(cluster.nodes):
            for gpu in range(group.gpus):
                there = [t[4] for t in taken if t[:2] == (node, gpu) and t[2] < end and t[3] > start]
                if sum(there) + milli <= 1000:
                    free.append((node, gpu))
        if len(free) >= wanted:
            chosen = rng.sample(free, wanted)
            taken.extend((node, gpu, start, end, milli) for node, gpu in chosen)
            counts = {node: sum(1 for other, _ in chosen if other == node) for node, _ in chosen}
            return (start, end, counts), chosen[0][1]


def states(case: Case) -> list[tuple[float, list[float]]]:
    """(length, busy GPUs of each node) of every stretch of time between two events."""
    jobs, cluster, plan = case
    times = sorted({0, *plan.start_us.tolist(), *plan.end_us.tolist()})
    milli = jobs.frame["gpu_milli"].to_list()
    stretches = []
    for begin, end in pairwise(times):
        busy = [0.0] * len(cluster.nodes)
        for entry in np.flatnonzero((plan.start_us <= begin) & (plan.end_us >= end)):
            for k in range(plan.node_offset[entry], plan.node_offset[entry + 1]):
                busy[plan.node[k]] += int(plan.node_gpus[k]) * milli[entry]
        stretches.append((float(end - begin), [thousandths / 1000 for thousandths in busy]))
    return stretches


@pytest.mark.parametrize("seed", range(25))
def test_load_imbalance_and_fragmentation(seed: int) -> None:
    case = random_case(seed)
    sizes = [group.gpus for group in case[1].nodes]
    imbalance = fragmentation = total = 0.0
    for length, busy in states(case):
        imbalance += length * pvariance([b / size for b, size in zip(busy, sizes, strict=True) if size])
        free = sum(sizes) - sum(busy)
        partly = sum(size - b for b, size in zip(busy, sizes, strict=True) if 0 < b < size)
        fragmentation += length * (partly / free if free > 1e-9 else 0.0)
        total += length
    result = compute_metrics(*case)
    assert result["load_imbalance"] == pytest.approx(imbalance / total, rel=1e-12)
    assert result["fragmentation"] == pytest.approx(fragmentation / total, rel=1e-12)


@pytest.mark.parametrize("seed", range(25))
def test_finish_time_fairness_counts_distinct_users_present(seed: int) -> None:
    jobs, _, plan = case = random_case(seed, jobs=60)
    submit, users = jobs.frame["submit_s"].to_list(), jobs.frame["user"].to_list()
    end = (plan.end_us / 1e6).tolist()
    ratios = []
    for j, duration in enumerate(jobs.frame["duration_s"]):
        present = {users[i] for i in range(len(users)) if submit[i] < end[j] and end[i] > submit[j]}
        ratios.append((end[j] - submit[j]) / (duration * len(present)))
    assert compute_metrics(*case)["finish_time_fairness_p95"] == pytest.approx(
        np.quantile(ratios, 0.95), rel=1e-12
    )


@pytest.mark.parametrize("seed", range(25))
def test_energy_second_by_second(seed: int) -> None:
    """All times of the random schedules are whole seconds, so that every GPU can be looked at each second."""
    _, cluster, plan = case = random_case(seed)
    watts = {gpu_type.name: (gpu_type.idle_w or 0, gpu_type.peak_w or 0) for gpu_type in cluster.gpu_types}
    joules = 0.0
    for second in range(int(plan.end_us.max() // 10**6)):
        running = np.flatnonzero((plan.start_us <= second * 10**6) & (plan.end_us > second * 10**6))
        for node, group in enumerate(cluster.nodes):
            busy, shared = 0, set()
            for entry in running:
                for k in range(plan.node_offset[entry], plan.node_offset[entry + 1]):
                    if plan.node[k] == node and plan.gpu_index[entry] >= 0:
                        shared.add(int(plan.gpu_index[entry]))
                    elif plan.node[k] == node:
                        busy += int(plan.node_gpus[k])
            busy += len(shared)
            idle_w, peak_w = watts[group.type]
            joules += group.idle_w + busy * peak_w + (group.gpus - busy) * idle_w
    assert compute_metrics(*case)["energy_kwh"] == pytest.approx(joules / 3.6e6, rel=1e-12)


@pytest.mark.parametrize("seed", range(5))
def test_percentiles_equal_numpy_to_the_last_bit(seed: int) -> None:
    jobs, _, plan = case = random_case(seed)
    wait_s = plan.start_us / 1e6 - jobs.frame["submit_s"].to_numpy()
    result = compute_metrics(*case)
    for name, q in (("p50", 0.5), ("p95", 0.95), ("p99", 0.99)):
        assert result[f"{name}_wait_s"] == np.quantile(wait_s, q)


# Jobs in several pieces, failures and sleep. All times are whole seconds.

TARIFF = "0-0.01:0.5,0.01-0.02:3,0.02-23.99:1,23.99-24:0.25"
"""Prices that change 36 and 72 s after midnight, and 36 s before it."""


def random_pieces(seed: int, jobs: int = 25) -> tuple[Case, list[Run], list[tuple[int, int, int]]]:
    """Jobs in one to four runs each, put where GPUs are free and up; the runs, and (node, from, to) down."""
    rng = random.Random(seed)
    _, cluster, _ = random_case(seed, jobs=1)
    groups = [group.model_copy(update={"sleep_w": rng.choice((0.0, 7.0))}) for group in cluster.nodes]
    cluster = cluster.model_copy(update={"nodes": tuple(groups)})
    down = []
    for node in range(len(groups)):
        at = 0
        while rng.random() < 0.6:
            at += rng.randint(1, 60)
            down.append((node, at, at := at + rng.randint(1, 30)))
    blocked = [(*gpu, begin, end, 1000) for node, begin, end in down for gpu in _places_of(cluster, node)]
    rows, runs = [], []
    for entry, submit in enumerate([0, *sorted(rng.randint(0, 60) for _ in range(jobs - 1))]):
        milli = rng.choice((1000, 1000, rng.randint(1, 999)))
        wanted = 1 if milli < 1000 else rng.randint(0, 4)
        own = _random_runs_of_job(rng, cluster, blocked, entry, submit, milli, wanted)
        rows.append((submit, float(rng.randint(1, 40)), wanted, milli, rng.choice("abc")))
        runs.append(own)
    columns = ["submit_s", "duration_s", "gpus", "gpu_milli", "user"]
    table = make_workload(
        pl.DataFrame(rows, schema=columns, orient="row"), epoch_s=rng.randint(-90, 10) + 5 * 86400
    )
    plan = make_schedule(
        *((own[0].begin_s, own[-1].released_s, dict(own[-1].nodes)) for own in runs),
        gpu_index=[own[-1].gpu_index for own in runs],
    )
    pieces = sorted((run for own in runs for run in own), key=lambda run: (run.begin_s, run.entry))
    last = int(plan.end_us.max() // 10**6)
    down = [(node, begin, min(end, last)) for node, begin, end in down if begin < last]
    return (
        (table, cluster, replace(plan, runs=make_runs(*pieces), downtime=make_downtime(*down))),
        pieces,
        down,
    )


def _places_of(cluster: Cluster, node: int) -> list[tuple[int, int]]:
    """The node's GPUs, and -1 for what CPU-only jobs use, of which there is enough for all."""
    return [(node, gpu) for gpu in range(-1, cluster.nodes[node].gpus)]


def _random_runs_of_job(
    rng: random.Random,
    cluster: Cluster,
    taken: list[tuple[int, int, int, int, int]],
    entry: int,
    submit: int,
    milli: int,
    wanted: int,
) -> list[Run]:
    runs: list[Run] = []
    at, pieces = submit, rng.choice((1, 1, 2, 4))
    while len(runs) < pieces:
        at += rng.randint(0, 10)
        begin = at + rng.choice((0, 0, rng.randint(1, 9)))
        stop = begin + rng.randint(1, 20)
        is_last = len(runs) == pieces - 1
        end = stop if is_last else stop + rng.choice((0, rng.randint(1, 4)))
        free = [
            gpu
            for node in range(len(cluster.nodes))
            for gpu in _places_of(cluster, node)
            if (gpu[1] < 0) == (wanted == 0)
            and sum(t[4] for t in taken if t[:2] == gpu and t[2] < end and t[3] > at) + milli <= 1000
        ]
        if len(free) < max(wanted, 1):
            continue
        chosen = rng.sample(free, max(wanted, 1))
        taken.extend((*gpu, at, end, milli) for gpu in chosen if wanted)
        nodes = Counter(node for node, _ in chosen) if wanted else {chosen[0][0]: 0}
        ending = "completed" if is_last else rng.choice(("stopped", "failed"))
        runs.append(
            Run(
                *(entry, at, begin, stop, end, nodes, ending),
                restore_s=rng.choice((0, 2, 7)) if runs else 0,
                lost_s=rng.randint(0, 9) if ending == "failed" else 0,
                gpu_index=chosen[0][1] if milli < 1000 else -1,
            )
        )
        at = end
    return runs


def price_at(clock_s: float) -> float:
    second = clock_s % 86400
    return 0.5 if second < 36 else 3.0 if second < 72 else 1.0 if second < 86400 - 36 else 0.25


@pytest.mark.parametrize("seed", range(40))
def test_energy_sleep_and_cost_of_runs_second_by_second(seed: int) -> None:
    case, runs, down = random_pieces(seed)
    jobs, cluster, plan = case
    sleep_after_s = random.Random(seed).choice((None, 0, 3, 10, 40))
    watts = {gpu_type.name: (gpu_type.idle_w or 0, gpu_type.peak_w or 0) for gpu_type in cluster.gpu_types}
    idle_since = [0] * len(cluster.nodes)
    joules = cost = asleep_s = 0.0
    for second in range(int(plan.end_us.max() // 10**6)):
        total_w = 0.0
        for node, group in enumerate(cluster.nodes):
            here = [run for run in runs if node in run.nodes and run.taken_s <= second < run.released_s]
            if any(where == node and begin <= second < end for where, begin, end in down):
                assert not here
                idle_since[node] = second + 1
                continue
            if here:
                idle_since[node] = second + 1
            elif sleep_after_s is not None and second - idle_since[node] >= sleep_after_s:
                asleep_s += 1
                total_w += group.sleep_w
                continue
            begun = [run for run in here if run.begin_s <= second]
            busy = sum(run.nodes[node] for run in begun if run.gpu_index < 0)
            busy += len({run.gpu_index for run in begun if run.gpu_index >= 0})
            idle_w, peak_w = watts[group.type]
            total_w += group.idle_w + busy * peak_w + (group.gpus - busy) * idle_w
        joules += total_w
        cost += total_w * price_at(jobs.metadata.epoch_s + second)
    config = SimulationConfig(sleep_after_s=sleep_after_s)
    result = compute_metrics(*case, price_per_kwh=TARIFF, config=config)
    assert result["energy_kwh"] == pytest.approx(joules / 3.6e6, rel=1e-12)
    assert result["energy_cost"] == pytest.approx(cost / 3.6e6, rel=1e-9)  # epoch_s takes digits
    assert result["asleep_node_h"] == pytest.approx(asleep_s / 3600, rel=1e-12)


@pytest.mark.parametrize("seed", range(40))
def test_use_of_runs_second_by_second(seed: int) -> None:
    case, runs, _ = random_pieces(seed)
    jobs, cluster, plan = case
    sizes = [group.gpus for group in cluster.nodes]
    frame, seconds = jobs.frame, int(plan.end_us.max() // 10**6)
    share = [milli / 1000 for milli in frame["gpu_milli"]]
    imbalance = fragmentation = used = waiting = overhead = 0.0
    for second in range(seconds):
        held = [run for run in runs if run.taken_s <= second < run.released_s]
        busy = [sum(run.nodes.get(node, 0) * share[run.entry] for run in held) for node in range(len(sizes))]
        imbalance += pvariance([b / size for b, size in zip(busy, sizes, strict=True) if size])
        free = sum(sizes) - sum(busy)
        partly = sum(size - b for b, size in zip(busy, sizes, strict=True) if 1e-9 < b < size - 1e-9)
        fragmentation += partly / free if free > 1e-9 else 0.0
        used += sum(busy)
        present = (frame["submit_s"] <= second).to_numpy() & (plan.end_us > second * 10**6)
        waiting += int(present.sum()) - len({run.entry for run in held})
        for run in held:
            progress = run.begin_s + run.restore_s <= second < run.stop_s
            overhead += 0 if progress else sum(run.nodes.values()) * share[run.entry]
    lost = sum(run.lost_s * sum(run.nodes.values()) * share[run.entry] for run in runs)
    result = compute_metrics(*case)
    assert result["load_imbalance"] == pytest.approx(imbalance / seconds, rel=1e-9)
    assert result["fragmentation"] == pytest.approx(fragmentation / seconds, rel=1e-9)
    assert result["gpu_utilization"] == pytest.approx(used / (seconds * sum(sizes)), rel=1e-12)
    assert result["mean_queue_length"] == pytest.approx(waiting / seconds, rel=1e-12)
    assert result["overhead_gpu_h"] == pytest.approx(overhead / 3600, rel=1e-12)
    assert result["lost_gpu_h"] == pytest.approx(lost / 3600, rel=1e-12)
    endings = Counter(run.ending for run in runs)
    assert (result["preemptions"], result["failed_runs"]) == (endings["stopped"], endings["failed"])
