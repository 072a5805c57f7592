"""Metrics that need the state at every instant, against slow plain Python on random schedules."""

import random
from itertools import pairwise
from statistics import pvariance

import numpy as np
import polars as pl
import pytest

from gpuyard.cluster import Cluster
from gpuyard.metrics import compute_metrics
from gpuyard.schedule import Schedule
from gpuyard.workload import Workload, make_workload
from schedules import make_schedule

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
