"""Reward terms of the native environments: sums are metrics, each is what docs/contract/mdp.md says."""

import math
import random
from collections.abc import Sequence
from typing import Any

import pytest

from gpuyard.cluster.model import Cluster, GpuType, NodeGroup
from gpuyard.config import SimulationConfig
from reference.simulator.simulator import Job
from support.env_runs import (
    FAST_AND_SLOW,
    KINDS_AND_MODES,
    Run,
    at_random,
    make_env,
    play,
    random_jobs,
    runs_of,
    steps,
)

TELESCOPING = (
    *("jct", "wait", "slowdown", "completed_work", "waiting_work", "utilization", "flops_utilization"),
    *("cpu_utilization", "completions", "energy", "makespan"),
)
BY_JOB = ("jct", "wait", "slowdown", "completions")


# --- telescoping terms, by hand
#
# Four GPUs. A (3 GPUs, 30 s) comes at 0 and starts. B (2 GPUs, 12 s) and C (1 GPU, 4 s) come at 10 s. C fits
# and starts: it ends at 14 s. B must wait for A until 30 s and ends at 42 s.
A, B, C = Job(0, 30, 3, priority=1.0), Job(10, 12, 2, priority=4.0), Job(10, 4, 1, priority=2.0)
ABC = [A, B, C]
WORK = 3 * 30 + 2 * 12 + 1 * 4  # 118 GPU-seconds
# `instant`: start A (row 0), which leads to 10 s; start C (row 1 behind B), which leads over 14 s, when
# nothing fits, to 30 s; start B, which leads to the end at 42 s.
ACTIONS = (0, 1, 0)


@pytest.mark.parametrize(
    ("term", "expected"),
    [
        # 0..10 one job, 10..14 three, 14..30 two, 30..42 one: 10, 12 + 32, 12; Σ jct = 30 + 32 + 4 = 66.
        # The sum of the terms is 10 + 44 + 12 = 66 too.
        ("jct", [-10, -44, -12]),
        ("wait", [0, -20, 0]),  # B alone, from 10 to 30 s
        ("slowdown", [0, -20 / 12, 0]),  # B: 32/12 - 1; C never waits
        ("completed_work", [0, (90 + 4) / WORK, 24 / WORK]),
        ("waiting_work", [0, -20 * 24 / WORK, 0]),
        # 3 GPUs for 10 s; 4 for 4 s and 3 for 16 s; 2 for 12 s.
        ("utilization", [30 / 4, (16 + 48) / 4, 24 / 4]),
        ("flops_utilization", [30 / 4, 64 / 4, 24 / 4]),  # one speed: the same
        ("completions", [0, 1 + 2, 4]),
        ("makespan", [-10, -20, -12]),
    ],
)
def test_a_telescoping_term_of_three_jobs_is_what_it_is_by_hand(term: str, expected: list[float]) -> None:
    assert steps(ABC, "1x4", ACTIONS, rewards={term: 1.0}) == pytest.approx(expected, abs=1e-12)


def test_slowdown_of_a_short_job_grows_from_ten_seconds_minus_its_duration_on() -> None:
    # B (r = 4) comes at 2 s and waits for A until 20 s; it begins to count at 2 + 6 = 8 s and counts 1/10 a
    # second. In `event` mode: start A (to 2 s), wait (to 20 s), start B (to the end). (18 + 4)/10 - 1 = 1.2.
    jobs = [Job(0, 20, 1), Job(2, 4, 1)]
    seen = steps(jobs, "1x1", [0, 4, 0], step_mode="event", rewards={"slowdown": 1.0})
    assert seen == pytest.approx([0, -1.2, 0])


def test_slowdown_of_a_short_job_that_starts_in_time_is_never_charged() -> None:
    # B waits for 6 s = 10 - r, and not longer: its bounded slowdown is 1.
    jobs = [Job(0, 8, 1), Job(2, 4, 1)]
    assert steps(jobs, "1x1", [0, 0], rewards={"slowdown": 1.0}) == [0, 0]


def test_slowdown_grows_in_parts_of_ticks() -> None:
    # As above, but with ticks of 5 s: start A, then waits to 10, 15, 20 s: B counts from 8 s on. Started at
    # 20 s it ends at 24 s, where the clock stops.
    jobs = [Job(0, 20, 1), Job(2, 4, 1)]
    seen = steps(jobs, "1x1", [0, 4, 4, 4, 0], step_mode="tick", tick_s=5.0, rewards={"slowdown": 1.0})
    assert seen == pytest.approx([0, -0.2, -0.5, -0.5, 0])


def test_makespan_under_ticks_ends_with_the_last_finish() -> None:
    assert steps(
        [Job(0, 7, 1)], "1x1", [0, 1], window=1, step_mode="tick", tick_s=5.0, rewards={"makespan": 1}
    ) == [
        -5,
        -2,
    ]


def test_blocking_charges_the_wait_for_the_chosen_job_to_the_step_that_chose_it() -> None:
    # Step 1: A at 0, to 10 s. Step 2: B, though C would fit: both wait for 20 s; B starts at 30 s, C still
    # waits, no time passes. Step 3: C at 30 s; to the end at 42 s.
    seen = steps(ABC, "1x4", [0, 0, 0], step_mode="blocking", rewards={"wait": 1.0})
    assert seen == pytest.approx([0, -40, 0])


def test_blocking_with_backfill_starts_the_short_job_meanwhile() -> None:
    # C ends at 14 s, before the shadow time of B at 30 s: only B waits. The step goes on to the end.
    seen = steps(ABC, "1x4", [0, 0], step_mode="blocking", blocking_backfill=True, rewards={"wait": 1.0})
    assert seen == pytest.approx([0, -20])


def test_flops_utilization_weighs_gpus_by_their_speed_in_the_chosen_pool() -> None:
    # 12 s take 4 s at speed 3 and 24 s at speed 0.5. The speeds of all GPUs are 3 + 2 · 0.5 = 4.
    cluster = "1x1:fast@3,1x2:slow@0.5"
    settings: dict[str, Any] = {"kind": "select-job-and-pool", "window": 1}
    job = [Job(0, 12, 1)]
    for pool, utilization, flops in ((0, 4 / 3, 4 * 3 / 4), (1, 24 / 3, 24 * 0.5 / 4)):
        assert steps(job, cluster, [pool], rewards={"utilization": 1}, **settings) == pytest.approx(
            [utilization]
        )
        assert steps(job, cluster, [pool], rewards={"flops_utilization": 1}, **settings) == pytest.approx(
            [flops]
        )


def test_cpu_utilization_counts_only_nodes_on_which_cpus_are_given() -> None:
    cluster = Cluster(nodes=(NodeGroup(gpus=1, type="gpu", cpus=8), NodeGroup(gpus=1, type="gpu")))
    jobs = [Job(0, 10, 1, cpus=6), Job(0, 10, 1, cpus=6)]
    # One of them sits on the node of 8 CPUs, the other where none are given.
    assert sum(steps(jobs, cluster, [0, 0], rewards={"cpu_utilization": 1.0})) == pytest.approx(10 * 6 / 8)


def test_energy_counts_idle_and_busy_gpus_and_nodes() -> None:
    cluster = Cluster(
        gpu_types=(GpuType(name="x", idle_w=30, peak_w=300),),
        nodes=(NodeGroup(count=2, gpus=2, type="x", idle_w=100),),
    )
    jobs = [Job(0, 3600, 2), Job(0, 7200, 1)]
    # Both at once: 1 h with 3 of 4 GPUs busy, then 1 h with 1 of them.
    both_w, one_w = 200 + 3 * 300 + 30, 200 + 300 + 3 * 30
    assert steps(jobs, cluster, [0, 0], rewards={"energy": 1.0}) == pytest.approx(
        [0, -(both_w + one_w) / 1000]
    )
    # Under `event` the first start leads to its finish: 1 h with 2 of 4 GPUs busy, then 2 h with 1.
    seen = steps(jobs, cluster, [0, 0], step_mode="event", rewards={"energy": 1.0})
    assert seen == pytest.approx([-(200 + 2 * 300 + 2 * 30) / 1000, -2 * one_w / 1000])


def test_completions_leave_out_jobs_that_time_out_and_completed_work_does_not() -> None:
    jobs = [Job(0, 10, 1, estimate_s=6, priority=5.0), Job(0, 10, 1, estimate_s=10, priority=7.0)]
    settings = {"estimates": "requested", "simulation": SimulationConfig(kill_at_estimate=True)}
    assert sum(steps(jobs, "1x2", [0, 0], rewards={"completions": 1.0}, **settings)) == 7
    assert sum(steps(jobs, "1x2", [0, 0], rewards={"completed_work": 1.0}, **settings)) == pytest.approx(1)


@pytest.mark.parametrize("term", TELESCOPING)
def test_only_terms_of_jobs_are_divided_by_the_number_of_jobs(term: str) -> None:
    cluster = Cluster(
        gpu_types=(GpuType(name="x", idle_w=30, peak_w=300),), nodes=(NodeGroup(gpus=4, type="x", cpus=9),)
    )
    jobs = [Job(0, 30, 3, cpus=3), Job(10, 12, 2, cpus=2), Job(10, 4, 1)]
    whole, divided = (
        steps(jobs, cluster, ACTIONS, rewards={term: 1.0}, per_job=per_job) for per_job in (False, True)
    )
    assert any(whole)
    divisor = 3 if term in BY_JOB else 1
    assert divided == pytest.approx([reward / divisor for reward in whole])


def test_terms_are_weighted_and_added() -> None:
    seen = steps(ABC, "1x4", ACTIONS, rewards={"wait": 2.0, "makespan": -0.5, "completions": 1.0})
    assert seen == pytest.approx([5, -40 + 10 + 3, 6 + 4])


# --- telescoping terms, at random

MIXED = Cluster(
    gpu_types=FAST_AND_SLOW,
    nodes=(
        NodeGroup(count=2, gpus=4, type="slow", cpus=12, memory_mib=4000, idle_w=100),
        NodeGroup(count=1, gpus=4, type="fast", idle_w=200.5),
        NodeGroup(count=1, gpus=2, type="fast", cpus=8),
    ),
)
PLAIN = Cluster(
    gpu_types=(GpuType(name="x", idle_w=50, peak_w=400),),
    nodes=(NodeGroup(count=3, gpus=4, type="x", cpus=9, idle_w=10),),
)


def node_list(cluster: Cluster) -> list[tuple[int, GpuType, int | None, float]]:
    """GPUs, type, CPUs and idle watts of every node."""
    types = {gpu_type.name: gpu_type for gpu_type in cluster.gpu_types}
    return [
        (group.gpus, types[group.type], group.cpus, group.idle_w)
        for group in cluster.nodes
        for _ in range(group.count)
    ]


def cpus_on(run: Run, gpus: int) -> int:
    """A gang with k of its G GPUs on a node takes ceil(CPUs · k / G) there, another job all of them."""
    return math.ceil(run.job.cpus * max(gpus, 1) / max(run.job.gpus, 1))


def expected_sums(runs: Sequence[Run], cluster: Cluster) -> dict[str, float]:
    """What each telescoping term adds up to, from starts and ends alone; no job shares a GPU."""
    nodes = node_list(cluster)
    work = sum(run.job.gpus * run.job.duration_s for run in runs)
    makespan_s = max(run.end_s for run in runs)
    flops = cpu_s = joules = 0.0
    for run in runs:
        for node, gpus in run.parts:
            _, gpu_type, cpus, _ = nodes[node]
            flops += gpus * gpu_type.speed * run.length_s
            cpu_s += cpus_on(run, gpus) * run.length_s if cpus is not None else 0.0
            joules += gpus * (gpu_type.peak_w - gpu_type.idle_w) * run.length_s  # type: ignore[operator]
    idle_w = sum(idle_w + gpus * gpu_type.idle_w for gpus, gpu_type, _, idle_w in nodes)  # type: ignore[operator]
    return {
        "jct": -sum(run.jct_s for run in runs),
        "wait": -sum(run.wait_s for run in runs),
        "slowdown": -sum(
            max(0.0, run.wait_s - max(0.0, 10 - run.job.duration_s)) / max(run.job.duration_s, 10)
            for run in runs
        ),
        "completed_work": 1.0,
        "waiting_work": -sum(run.job.gpus * run.job.duration_s / work * run.wait_s for run in runs),
        "utilization": sum(run.job.gpus * run.length_s for run in runs) / sum(node[0] for node in nodes),
        "flops_utilization": flops / sum(gpus * gpu_type.speed for gpus, gpu_type, _, _ in nodes),
        "cpu_utilization": cpu_s / sum(cpus for _, _, cpus, _ in nodes if cpus is not None),
        "completions": sum(run.job.priority for run in runs),
        "energy": -(idle_w * makespan_s + joules) / 3.6e6,
        "makespan": -makespan_s,
    }


def sums_by_metrics(metrics: dict[str, float], jobs: int) -> dict[str, float]:
    """The same from what the environment reports."""
    makespan_s = metrics["makespan_s"]
    return {
        "jct": -metrics["mean_jct_s"] * jobs,
        "wait": -metrics["mean_wait_s"] * jobs,
        "utilization": metrics["gpu_utilization"] * makespan_s,
        "flops_utilization": metrics["flops_utilization"] * makespan_s,
        "cpu_utilization": metrics["cpu_utilization"] * makespan_s,
        "energy": -metrics["energy_kwh"],
        "makespan": -makespan_s,
    }


def random_episode_jobs(seed: int, kind: str) -> list[Job]:
    rng = random.Random(seed)
    sizes = (1, 1, 2, 2, 3, 4) if kind in ("select-host", "rank-hosts") else (1, 1, 2, 3, 4, 8)
    return random_jobs(rng, 12, sizes, cpus=True, grid_s=rng.choice((0.7, 1.0, 4.0)))


def base_of(kind: str) -> str:
    return "sjf+greedy" if kind in ("select-host", "rank-hosts") else "sjf+easy"


def of_term(term: str, jobs: Sequence[Job], cluster: Cluster, kind: str, seed: int, **settings: Any) -> Any:
    """An episode of random actions, the same whatever the term."""
    settings = {"base_policy": base_of(kind), "window": 5, "rewards": {term: 1.0}} | settings
    return play(make_env(jobs, cluster, kind, **settings), at_random(seed))


@pytest.mark.parametrize("per_job", [False, True])
@pytest.mark.parametrize(("kind", "mode"), KINDS_AND_MODES)
@pytest.mark.parametrize("cluster", [PLAIN, MIXED], ids=["speed 1", "mixed speeds"])
def test_terms_telescope_to_what_starts_and_ends_say(
    cluster: Cluster, kind: str, mode: dict[str, Any], per_job: bool
) -> None:
    seed = hash_of(kind, mode, per_job)
    jobs = random_episode_jobs(seed, kind)
    schedules = []
    for term in TELESCOPING:
        episode = of_term(term, jobs, cluster, kind, seed, per_job=per_job, **mode)
        assert episode.terminated
        assert not episode.truncated
        runs = runs_of(jobs, episode.schedule)
        divisor = len(jobs) if per_job and term in BY_JOB else 1
        assert episode.total == pytest.approx(
            expected_sums(runs, cluster)[term] / divisor, rel=1e-9, abs=1e-9
        )
        assert episode.metrics["return"] == pytest.approx(episode.total, rel=1e-12, abs=1e-12)
        assert episode.metrics["length"] == len(episode.rewards)
        reported = sums_by_metrics(episode.metrics, len(jobs))
        if term in reported:
            assert episode.total == pytest.approx(reported[term] / divisor, rel=1e-9, abs=1e-9)
        if term == "slowdown" and cluster is PLAIN:
            mean = episode.total / len(jobs) if not per_job else episode.total
            assert mean == pytest.approx(1 - episode.metrics["mean_bounded_slowdown"], rel=1e-9, abs=1e-9)
        schedules.append([(run.start_s, run.end_s, run.parts) for run in runs])
    assert all(schedule == schedules[0] for schedule in schedules)  # rewards do not change what happens


def hash_of(kind: str, mode: dict[str, Any], per_job: bool) -> int:
    """A seed of its own for each case, the same in every process."""
    return random.Random(f"{kind} {sorted(mode.items())} {per_job}").randrange(2**31)


@pytest.mark.parametrize("seed", range(40))
def test_all_terms_together_telescope_to_their_weighted_sum(seed: int) -> None:
    rng = random.Random(seed)
    kind, mode = rng.choice(KINDS_AND_MODES)
    cluster, jobs = rng.choice((PLAIN, MIXED)), random_episode_jobs(seed, kind)
    weights = {term: rng.choice((1.0, -2.0, 0.25)) for term in TELESCOPING}
    settings: dict[str, Any] = {
        "base_policy": base_of(kind),
        "window": 5,
        "rewards": weights,
        "per_job": False,
    }
    simulation = SimulationConfig(locality_penalty=rng.choice((0.0, 0.5)))
    episode = play(make_env(jobs, cluster, kind, simulation=simulation, **settings, **mode), at_random(seed))
    sums = expected_sums(runs_of(jobs, episode.schedule), cluster)
    total = sum(weight * sums[term] for term, weight in weights.items())
    scale = sum(abs(weight * sums[term]) for term, weight in weights.items())
    assert episode.total == pytest.approx(total, abs=1e-9 * scale)


@pytest.mark.parametrize("seed", range(12))
def test_terms_telescope_where_gpus_are_shared_and_jobs_have_none(seed: int) -> None:
    rng = random.Random(seed)
    kind, mode = rng.choice([pair for pair in KINDS_AND_MODES if pair[0] != "select-job-and-pool"])
    jobs = random_jobs(rng, 14, (0, 1, 1, 1, 2), cpus=True, shared=True)
    for term in ("utilization", "energy", "wait", "waiting_work", "cpu_utilization"):
        episode = of_term(term, jobs, MIXED, kind, seed, per_job=False, **mode)
        runs = runs_of(jobs, episode.schedule)
        work = sum(run.job.size * run.job.duration_s for run in runs)
        held = sum(run.job.size * run.length_s for run in runs) / 14
        sums = sums_by_metrics(episode.metrics, len(jobs))
        assert sums["utilization"] == pytest.approx(held)
        sums["waiting_work"] = -sum(run.job.size * run.job.duration_s / work * run.wait_s for run in runs)
        assert episode.total == pytest.approx(sums[term], rel=1e-9, abs=1e-9)


def test_cpu_jobs_alone_telescope_by_cpu_work() -> None:
    cluster = Cluster(nodes=(NodeGroup(count=2, gpus=0, cpus=4, type="cpu"),))
    jobs = random_jobs(random.Random(5), 12, (0,), cpus=True)
    jobs = [Job(job.submit_s, job.duration_s, 0, cpus=max(job.cpus, 1)) for job in jobs]
    work = sum(job.cpus * job.duration_s for job in jobs)
    for term in ("waiting_work", "completed_work", "cpu_utilization", "utilization"):
        episode = of_term(term, jobs, cluster, "select-job", 1, per_job=False)
        runs = runs_of(jobs, episode.schedule)
        expected = {
            "waiting_work": -sum(run.job.cpus * run.job.duration_s * run.wait_s for run in runs) / work,
            "completed_work": 1.0,
            "cpu_utilization": sum(run.job.cpus * run.length_s for run in runs) / 8,
            "utilization": 0.0,
        }
        assert episode.total == pytest.approx(expected[term])
