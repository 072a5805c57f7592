"""What a policy sees is a function of a snapshot, and of nothing that a scheduler cannot know."""

import random
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from differential.env_cases import env_case
from differential.test_env_matches_reference import comparable, core_env_of
from gpuyard import _core
from gpuyard.cluster.model import Cluster, GpuType, NodeGroup
from gpuyard.config import SimulationConfig
from gpuyard.env import SchedulingEnv
from reference.env.settings import KINDS as KINDS_OF_CASES
from reference.simulator.simulator import Job
from support.env_runs import JOB_MODES, KINDS_AND_MODES, at_random, make_env, random_jobs

KINDS = ("select-job", "select-job-and-pool", "accept-or-skip")
"""Those whose observation is a function of the snapshot; elsewhere it also depends on the current job."""
LOOKAHEADS = ("off", "per_gpu", "sorted", "cdf")
CLUSTERS = {
    "mixed": Cluster(
        gpu_types=(
            GpuType(name="fast", speed=2.0, idle_w=40, peak_w=400),
            GpuType(name="slow", speed=0.7, idle_w=10, peak_w=70),
        ),
        nodes=(
            NodeGroup(count=2, gpus=4, type="slow", cpus=16, memory_mib=2000),
            NodeGroup(count=1, gpus=8, type="fast"),
            NodeGroup(count=1, gpus=2, type="fast", cpus=8),
            NodeGroup(count=1, gpus=0, cpus=6),
        ),
    ),
    "queues": Cluster(
        nodes=(
            NodeGroup(count=2, gpus=4, type="x"),
            NodeGroup(count=1, gpus=8, type="x", owner="red"),
            NodeGroup(count=2, gpus=4, type="y", owner="blue"),
        ),
        gpu_types=(GpuType(name="x"), GpuType(name="y", speed=1.5)),
    ),
    "crowd": Cluster(nodes=(NodeGroup(count=10, gpus=8, type="x"),), gpu_types=(GpuType(name="x"),)),
}


def bits(array: Any) -> Any:
    return np.ascontiguousarray(array, np.float32).view(np.uint32).ravel()


def check_observed(env: SchedulingEnv, seen: Any) -> None:
    """The encoder makes of a snapshot what the environment keeps up to date."""
    parts = _core.observe(env.snapshot(), env.model.spec)
    for name, part in zip(("jobs", "nodes", "globals"), parts, strict=True):
        own, made = bits(seen[name]), bits(part)
        assert len(own) == len(made)
        assert np.array_equal(own, made), f"{name} differs at {np.argwhere(own != made)[:4].ravel().tolist()}"


def states(env: SchedulingEnv, choose: Any, **reset: Any) -> Iterator[Any]:
    """The observations of an episode while nothing is held back, the last one included."""
    seen, info = env.reset(**reset)
    skips = env.model.kind == "accept-or-skip" and env.model.config.step_mode == "instant"
    held_at_us = None  # when a job was last held back: until time moves
    while True:
        now_us = env.schedule()["now_us"]
        if held_at_us != now_us:
            yield seen
        action = choose(env, info["action_mask"])
        if skips and action == 0:
            held_at_us = now_us
        seen, _, terminated, truncated, info = env.step(action)
        if terminated or truncated:
            break
    if held_at_us != env.schedule()["now_us"]:
        yield seen


def jobs_for(cluster: str, seed: int, count: int = 25) -> list[Job]:
    rng = random.Random(f"{cluster} {seed}")
    sizes = {"mixed": (0, 1, 1, 2, 3, 4, 8), "queues": (1, 1, 2, 3, 4, 8), "crowd": (1, 8, 16, 24, 40)}
    jobs = random_jobs(
        rng, count, sizes[cluster], cpus=cluster == "mixed", shared=cluster != "crowd", grid_s=3.0
    )
    groups = ("red", "blue", "green", "") if cluster == "queues" else ("red", "")
    jobs = [replace(job, group=rng.choice(groups)) for job in jobs]
    return [replace(job, estimate_s=None) if rng.random() < 0.2 else job for job in jobs]


@pytest.mark.parametrize("lookahead", LOOKAHEADS)
@pytest.mark.parametrize("tokens", ["nodes", "classes"])
@pytest.mark.parametrize("cluster", CLUSTERS)
@pytest.mark.parametrize("kind", KINDS)
def test_an_observation_is_that_of_the_snapshot(kind: str, cluster: str, tokens: str, lookahead: str) -> None:
    rng = random.Random(f"{kind} {cluster} {tokens} {lookahead}")
    compared = 0
    for seed in range(3):
        mode = rng.choice(JOB_MODES[:3] if kind == "accept-or-skip" else JOB_MODES)
        env = make_env(
            jobs_for(cluster, seed),
            CLUSTERS[cluster],
            kind,
            base_policy=rng.choice(
                ("wspt+easy", "fifo+easy", "sjf+greedy/worst-fit", "fair-share+easy-sjf", "wfp3")
            ),
            window=rng.choice((1, 3, 8, 64)),
            tokens=tokens,
            lookahead=lookahead,
            lookahead_horizon_s=rng.choice((5.0, 60.0)),
            estimates=rng.choice(("requested", "requested", "exact", "noisy", "none")),
            simulation=SimulationConfig(locality_penalty=rng.choice((0.0, 0.3))),
            **mode,
        )
        for seen in states(env, at_random(seed)):
            check_observed(env, seen)
            compared += 1
    assert compared > 30


@pytest.mark.parametrize(
    "base", ["drf+easy", "multifactor+easy", "qssf+greedy", "group-fair-share", "random+easy", "edf"]
)
@pytest.mark.parametrize("placement", ["spread", "anywhere", "tier", "fgd", "tetris", "first-available"])
def test_an_observation_is_that_of_the_snapshot_under_any_base_policy(base: str, placement: str) -> None:
    jobs = jobs_for("mixed", 7, count=18)
    env = make_env(jobs, CLUSTERS["mixed"], base_policy=f"{base}/{placement}", window=6, lookahead="per_gpu")
    for seen in states(env, at_random(7)):
        check_observed(env, seen)


CASES = [seed for seed in range(200) if KINDS_OF_CASES[seed % len(KINDS_OF_CASES)] in KINDS]


@pytest.mark.parametrize("seed", CASES)
def test_an_observation_is_that_of_the_snapshot_in_random_cases(seed: int) -> None:
    case = comparable(env_case(seed))
    assert case.kind in KINDS
    case = replace(
        case, settings=replace(case.settings, rewards={"wait": 1.0})
    )  # not seen, and never refused
    env = core_env_of(case)
    for seen in states(env, at_random(seed), seed=seed, options={"episode": case.settings.warmup}):
        check_observed(env, seen)


def test_chosen_columns_of_a_snapshot_are_those_of_the_observation() -> None:
    env = make_env(
        jobs_for("mixed", 3),
        CLUSTERS["mixed"],
        window=4,
        job_features=("slowdown", "present", "holds_up", "fits", "starts_in"),
        node_features=("release", "count"),
        global_features=("lookahead", "drain", "shadow", "free"),
    )
    waits = set()
    for seen in states(env, at_random(3)):
        assert seen["jobs"].shape == (4, 5)
        check_observed(env, seen)
        waits |= set(seen["jobs"][:, 4].tolist())
    assert len(waits) > 2  # some fit, others could start at one time or another


def test_a_snapshot_does_not_change_while_the_episode_goes_on() -> None:
    env = make_env(jobs_for("mixed", 4), CLUSTERS["mixed"], window=8)
    kept = [(env.snapshot(), seen) for seen in states(env, at_random(4))]
    for snapshot, seen in kept:
        parts = _core.observe(snapshot, env.model.spec)
        for name, part in zip(("jobs", "nodes", "globals"), parts, strict=True):
            assert np.array_equal(bits(seen[name]), bits(part))
    assert len(kept) > 10


# --- true durations


def told_apart(jobs: Sequence[Job], other: Sequence[Job], seed: int, kind: str, **settings: Any) -> int:
    """Compare all states before the first finish of two workloads under the same actions; how many."""
    cluster = settings.pop("cluster")
    first, second = (make_env(these, cluster, kind, **settings) for these in (jobs, other))
    choose = at_random(seed)
    (seen, info), (same, other_info) = (env.reset(seed=0) for env in (first, second))
    count = 0
    while not any(has_finished(env) for env in (first, second)):
        assert seen.keys() == same.keys()
        for name in seen:
            assert seen[name].tobytes() == same[name].tobytes(), name
        assert (info["action_mask"] == other_info["action_mask"]).all()
        for policy in ("sjf+greedy/worst-fit", "fifo", "wspt+greedy"):
            assert np.array_equal(first.expert_action(policy), second.expert_action(policy))
        count += 1
        action = choose(first, info["action_mask"])
        (seen, *_, info), (same, *_, other_info) = (env.step(np.array(action)) for env in (first, second))
    return count


def has_finished(env: SchedulingEnv) -> bool:
    """Whether some job has."""
    schedule = env.schedule()
    started = schedule["start_us"] >= 0
    return bool((started & (schedule["end_us"] >= 0)).any())


def with_other_durations(jobs: Sequence[Job], rng: random.Random) -> list[Job]:
    """Longer and shorter ones, none so short that it ends before the others have arrived."""
    return [replace(job, duration_s=job.duration_s * rng.choice((0.5, 0.9, 1.0, 1.7, 20.0))) for job in jobs]


@pytest.mark.parametrize("estimates", ["requested", "none", "history"])
@pytest.mark.parametrize(
    ("kind", "mode"), [pair for pair in KINDS_AND_MODES if pair[1]["step_mode"] != "blocking"]
)
def test_true_durations_are_not_seen_before_the_first_finish(
    kind: str, mode: dict[str, Any], estimates: str
) -> None:
    rng = random.Random(f"{kind} {mode} {estimates}")
    hosts = kind in ("select-host", "rank-hosts")
    compared = 0
    for seed in range(3):
        jobs = random_jobs(rng, 25, (1, 1, 2, 3, 4) if hosts else (1, 2, 4, 8), grid_s=2.0)
        # Run times of minutes, asked for as seconds or hours, while jobs come every few seconds.
        jobs = [replace(job, duration_s=200 + 10 * job.duration_s) for job in jobs]
        compared += told_apart(
            jobs,
            with_other_durations(jobs, rng),
            seed,
            kind,
            cluster="4x4:x@1,2x4:y@2",
            base_policy="sjf+greedy"
            if hosts
            else rng.choice(("wspt+easy", "fifo+easy-sjf", "fair-share+easy")),
            estimates=estimates,
            lookahead=rng.choice(LOOKAHEADS),
            lookahead_horizon_s=30.0,
            window=6,
            **mode,
        )
    assert compared > 25


def test_true_durations_are_seen_where_estimates_are_exact() -> None:
    """So the test above can fail."""
    jobs = [Job(0, 100, 1), Job(0, 200, 1), Job(0, 300, 1)]
    other = [replace(job, duration_s=job.duration_s + 50) for job in jobs]
    with pytest.raises(AssertionError, match="jobs"):
        told_apart(
            jobs, other, 0, "select-job", cluster="1x4", base_policy="fifo+easy", window=3, estimates="exact"
        )
