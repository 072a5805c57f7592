"""The native environments agree with the reference.

States, masks, observations, experts and schedules to the last bit, rewards but for the rounding of sums.
"""

import random
from dataclasses import replace
from typing import Any

import numpy as np
import polars as pl
import pytest

from differential.env_cases import EnvCase, env_case, reference_env_of
from differential.priority_cases import priority_case
from gpuyard import _core
from gpuyard.config import SimulationConfig
from gpuyard.env import SchedulingEnv
from gpuyard.policies.support import tells_watts
from gpuyard.workload import make_workload
from reference.env.environment import ReferenceEnv

FAST_SEEDS = range(200)
SLOW_SEEDS = range(200, 12_000)
FAST_PRIORITY_SEEDS = range(60)
SLOW_PRIORITY_SEEDS = range(100, 3_100)
STEPS = 400


def comparable(case: EnvCase) -> EnvCase:
    """Without padding, which the core has only where clusters differ, and what it refuses."""
    settings = replace(case.settings, max_nodes=None, max_classes=None, max_pools=None, lookahead_length=None)
    settings = replace(settings, asked_columns=case.seed % 3 == 0)
    if case.seed % 8 == 7:
        settings = replace(settings, estimates="history")
    if settings.step_mode != "blocking":
        settings = replace(settings, blocking_backfill=False)
    compares_badly = settings.warmup or settings.cooldown or settings.estimates == "history"
    refused = {"versus_baseline"} if compares_badly else set()
    refused |= set() if tells_watts(case.cluster) else {"energy"}
    rewards = {name: weight for name, weight in settings.rewards.items() if name not in refused}
    rewards = rewards if any(rewards.values()) else {"makespan": 1.0}
    return replace(case, settings=replace(settings, rewards=rewards))


def core_env_of(case: EnvCase) -> SchedulingEnv:
    settings = case.settings
    workload = make_workload(
        pl.DataFrame(case.jobs, infer_schema_length=None, strict=False),
        epoch_s=settings.epoch_s,
        origin_s=settings.origin_s,
    )
    same = (
        "window",
        "step_mode",
        "tick_s",
        "blocking_backfill",
        "tokens",
        "lookahead",
        "lookahead_horizon_s",
    )
    same += (
        "rewards",
        "per_job",
        "horizon_factor",
        "max_steps",
        "invalid_penalty",
        "baseline",
        "baseline_metric",
    )
    simulation = (
        "estimates",
        "noise_sigma",
        "seed",
        "kill_at_estimate",
        "locality_penalty",
        "usage_half_life_s",
    )
    features = asked_features() if settings.asked_columns else {}
    return SchedulingEnv(
        case.kind,
        **features,
        workload=workload,
        cluster=case.cluster,
        base_policy=case.base_policy,
        jobs_per_episode=len(workload) - settings.warmup - settings.cooldown,
        warmup_jobs=settings.warmup,
        cooldown_jobs=settings.cooldown,
        invalid="noop" if settings.invalid == "noop" else "raise",
        simulation=SimulationConfig(
            **{name: getattr(settings, name) for name in simulation}, **settings.priorities
        ),
        **{name: getattr(settings, name) for name in same},
    )


def asked_features() -> dict[str, list[str]]:
    """All columns, those on request behind the others."""
    jobs = _core.JOB_COLUMNS + _core.ASKED_JOB_COLUMNS
    overall = _core.GLOBAL_COLUMNS + _core.ASKED_GLOBAL_COLUMNS
    return {"job_features": [name for name, *_ in jobs], "global_features": [name for name, *_ in overall]}


def check_state(core: SchedulingEnv, reference: ReferenceEnv, seen: Any) -> None:
    assert core.schedule()["now_us"] - begin_us(core) == reference.now_us
    expected = reference.observation()
    for part in ("mask", "jobs", "nodes", "globals"):
        same = seen[part] == expected[part]
        assert same.all(), f"{part} differs at {np.argwhere(~same)[:4].tolist()}"


def begin_us(core: SchedulingEnv) -> int:
    schedule = core.schedule()
    return int(schedule["submit_us"][schedule["warmup"]])


def starts_of(core: SchedulingEnv) -> list[Any]:
    schedule, shift_us = core.schedule(), begin_us(core)
    starts: list[Any] = []
    for job, (start, end) in enumerate(zip(schedule["start_us"], schedule["end_us"], strict=True)):
        part = slice(schedule["node_offset"][job], schedule["node_offset"][job + 1])
        nodes = zip(schedule["node"][part].tolist(), schedule["node_gpus"][part].tolist(), strict=True)
        ended = int(end) - shift_us if end >= 0 else None
        starts.append((int(start) - shift_us, ended, tuple(nodes)) if start >= 0 else None)
    return starts


def choose(rng: random.Random, mask: Any, case: EnvCase, expert: Any, hosts: int) -> Any:
    draw = rng.random()
    if draw < 0.3:
        return expert
    if case.kind == "rank-hosts":
        return [rng.choice((-1.0, -0.25, 0.0, 0.5, 1.0)) for _ in range(hosts)]
    if draw < 0.35 and case.settings.invalid == "noop":
        return rng.randrange(len(mask))
    return rng.choice([action for action, legal in enumerate(mask) if legal])


def check(case: EnvCase) -> None:
    seed, case = case.seed, comparable(case)
    reference, core = reference_env_of(case), core_env_of(case)
    reference.reset()
    if reference.is_over:  # other estimates than the case was drawn for may end it before its first state
        return
    seen, info = core.reset(seed=seed, options={"episode": case.settings.warmup})
    rng = random.Random(seed)
    for _ in range(STEPS):
        check_state(core, reference, seen)
        assert (info["action_mask"] == seen["mask"]).all()
        expert = reference.expert_action(case.expert)
        assert np.array_equal(core.expert_action(case.expert), expert)
        action = choose(rng, seen["mask"], case, expert, core.model.hosts)
        expected, *ended = reference.step(action)
        seen, reward, terminated, truncated, info = core.step(np.array(action))
        assert [terminated, truncated] == ended
        assert reward == pytest.approx(expected, rel=1e-9, abs=1e-9)
        if terminated or truncated:
            break
    check_state(core, reference, seen)
    assert starts_of(core) == reference.starts()


@pytest.mark.parametrize("seed", FAST_SEEDS)
def test_environments_agree_with_the_reference_to_the_last_bit(seed: int) -> None:
    check(env_case(seed))


@pytest.mark.parametrize("seed", FAST_PRIORITY_SEEDS)
def test_environments_go_by_slurms_priorities_as_the_reference_does(seed: int) -> None:
    check(priority_case(seed))


@pytest.mark.slow
@pytest.mark.parametrize("first", range(SLOW_SEEDS.start, SLOW_SEEDS.stop, 100))
def test_environments_agree_with_the_reference_in_many_more_cases(first: int) -> None:
    for seed in range(first, first + 100):
        check(env_case(seed))


@pytest.mark.slow
@pytest.mark.parametrize("first", range(SLOW_PRIORITY_SEEDS.start, SLOW_PRIORITY_SEEDS.stop, 100))
def test_environments_go_by_slurms_priorities_in_many_more_cases(first: int) -> None:
    for seed in range(first, first + 100):
        check(priority_case(seed))
