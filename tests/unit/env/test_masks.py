"""Masks tell the truth: what is legal does what docs/contract/mdp.md says, what is not is refused."""

import random
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest

from differential.env_cases import EnvCase, env_case, reference_env_of
from differential.test_env_matches_reference import comparable, core_env_of
from gpuyard.env import InvalidActionError, SchedulingEnv
from gpuyard.observation.episodes import WindowedJobs
from gpuyard.workload.generators import preset_workload
from reference.env.settings import EnvSettings, cluster_parts
from reference.simulator.simulator import make_pools
from support.small_environments import HOST_KINDS, JOB_KINDS, KIND_NAMES, as_bytes, single, some_action

SEEDS = range(5000, 5050)
KINDS_AND_MODES = [
    (kind, mode)
    for kind in KIND_NAMES
    for mode in ("instant", "event", "tick", *(("blocking",) if kind in JOB_KINDS else ()))
]
STATES = 2
"""Of every case."""


@dataclass(frozen=True)
class Moment:
    """What is known of a state before an action."""

    now_us: int
    begin_us: int
    rows: list[int]
    mask: Any
    seen: Any
    schedule: dict[str, Any]


@dataclass(frozen=True)
class Outcome:
    """What an action led to."""

    now_us: int
    ended: bool
    started: dict[int, int]
    """Start times of jobs that had not started before."""
    schedule: dict[str, Any]

    def nodes(self, job: int) -> list[int]:
        offset = self.schedule["node_offset"]
        return self.schedule["node"][offset[job] : offset[job + 1]].tolist()

    def next_event_us(self, after_us: int) -> int:
        """The first finish or arrival after a time, of what had started by then."""
        start, end = self.schedule["start_us"], self.schedule["end_us"]
        submit = self.schedule["submit_us"]
        runs = (start >= 0) & (start <= after_us) & (end > after_us)
        return int(min([*end[runs], *submit[submit > after_us]]))


def strict(case: EnvCase) -> EnvCase:
    return replace(case, settings=replace(case.settings, invalid="error"))


def at_prefix(env: SchedulingEnv, case: EnvCase, prefix: list[Any]) -> Moment:
    """The environment after these actions."""
    seen, info = env.reset(seed=0, options={"episode": case.settings.warmup})
    for action in prefix:
        seen, _, _, _, info = env.step(action)
    schedule = env._core.record(0)
    begin_us = int(schedule["submit_us"][schedule["warmup"]])
    rows = env._core.window(0)
    return Moment(int(schedule["now_us"]), begin_us, rows, info["action_mask"], seen, schedule)


def outcome(env: SchedulingEnv, before: Moment, action: Any) -> Outcome:
    _, _, terminated, truncated, _ = env.step(action)
    schedule = env._core.record(0)
    new = np.flatnonzero((before.schedule["start_us"] < 0) & (schedule["start_us"] >= 0))
    started = {int(job): int(schedule["start_us"][job]) for job in new}
    return Outcome(int(schedule["now_us"]), terminated or truncated, started, schedule)


def states_of(case: EnvCase, make: Any) -> list[list[Any]]:
    """Sequences of legal actions that do not end the episode."""
    rng = random.Random(case.seed)
    prefixes = []
    for _ in range(STATES):
        env = make()
        env.reset(seed=0, options={"episode": case.settings.warmup})
        prefix: list[Any] = []
        for _ in range(rng.randrange(15)):
            action = some_action(case.kind, env.action_masks(), rng)
            if any(env.step(action)[2:4]):
                break
            prefix.append(action)
        prefixes.append(prefix)
    return prefixes


# --- What actions do ---


def check_time(case: EnvCase, before: Moment, after: Outcome, waited: bool) -> None:
    """Time has moved by the step mode, and on to a state that is offered."""
    mode, now = case.settings.step_mode, before.now_us
    offers_all = case.kind in JOB_KINDS
    assert after.now_us >= now
    if mode == "tick" and (waited or case.kind not in HOST_KINDS):
        tick_us = max(1, round(case.settings.tick_s * 1e6))
        next_us = before.begin_us + ((now - before.begin_us) // tick_us + 1) * tick_us
        if offers_all and not after.ended:
            assert after.now_us == next_us
        assert after.now_us >= next_us or after.ended
        assert (after.now_us - before.begin_us) % tick_us == 0 or after.ended
    elif mode == "event" or (mode == "instant" and waited and case.kind != "accept-or-skip"):
        next_us = after.next_event_us(now)
        assert after.now_us == next_us if offers_all and mode == "event" else after.now_us >= next_us


def check_start(case: EnvCase, before: Moment, after: Outcome, job: int) -> None:
    if case.settings.step_mode == "blocking":
        if job in after.started:  # else the horizon has passed
            assert after.started[job] >= before.now_us
        assert job in after.started or after.ended
        assert set(after.started) <= {job} or case.settings.blocking_backfill
        return
    assert after.started == {job: before.now_us}
    check_time(case, before, after, waited=False)


def check_wait(case: EnvCase, before: Moment, after: Outcome) -> None:
    assert after.started == {}
    check_time(case, before, after, waited=True)


def check_legal(case: EnvCase, before: Moment, after: Outcome, action: int, pools: list[Any]) -> None:
    if case.kind == "accept-or-skip":
        if action == 0:
            return check_wait(case, before, after)
        row = np.flatnonzero(before.seen["jobs"][:, 19])  # base_choice
        assert len(row) == 1
        return check_start(case, before, after, before.rows[row[0]])
    if case.kind in HOST_KINDS:
        check_start(case, before, after, before.rows[0])
        assert after.nodes(before.rows[0]) == [action]
        return None
    if action == len(before.mask) - 1:
        return check_wait(case, before, after)
    row, pool = divmod(action, len(pools) if case.kind == "select-job-and-pool" else 1)
    check_start(case, before, after, before.rows[row])
    if case.kind == "select-job-and-pool":
        assert set(after.nodes(before.rows[row])) <= set(pools[pool].nodes)
    return None


def check_refused(env: SchedulingEnv, before: Moment, action: int) -> None:
    with pytest.raises(InvalidActionError, match=f"action {action} cannot be executed now"):
        env.step(action)
    assert as_bytes(env._core.record(0)) == as_bytes(before.schedule)
    assert np.array_equal(env.action_masks(), before.mask)


def check_ranks(env: SchedulingEnv, case: EnvCase, prefix: list[Any], host: int) -> None:
    """The largest priority among legal hosts wins, ties go to the lowest id."""
    before = at_prefix(env, case, prefix)
    legal = np.flatnonzero(before.mask).tolist()
    priorities = np.zeros(len(before.mask), np.float32)
    priorities[host] = 0.5
    expected = host if host in legal else legal[0]
    after = outcome(env, before, priorities)
    check_start(case, before, after, before.rows[0])
    assert after.nodes(before.rows[0]) == [expected]


def may_wait(schedule: dict[str, Any], others: Any) -> bool:
    """A job runs, or nothing else is legal."""
    now, start, end = (schedule[name] for name in ("now_us", "start_us", "end_us"))
    return bool(((start >= 0) & (end > now)).any() or not others.any())


def check_mask(case: EnvCase, before: Moment) -> None:
    """What can be said of the mask without trying."""
    waiting = np.flatnonzero(
        (before.schedule["start_us"] < 0) & (before.schedule["submit_us"] <= before.now_us)
    )
    assert set(before.rows) <= set(waiting.tolist())
    assert len(before.rows) == min(len(waiting), case.settings.window)
    blocking = case.settings.step_mode == "blocking"
    if case.kind in JOB_KINDS:
        per_row = before.mask[:-1].reshape(case.settings.window, -1)
        assert not per_row[len(before.rows) :].any()
        assert before.mask[-1] == (may_wait(before.schedule, per_row) and not blocking)
    elif case.kind == "accept-or-skip":
        assert before.mask[0] == may_wait(before.schedule, before.mask[1:])
    if case.kind == "select-job":
        fits = before.seen["jobs"][: len(before.rows), 12]
        assert np.array_equal(before.mask[: len(before.rows)], np.ones_like(fits) if blocking else fits)
    if case.settings.step_mode == "instant" or case.kind not in JOB_KINDS:
        waits = {"accept-or-skip": 0}.get(case.kind, len(before.mask) - 1)
        others = before.mask if case.kind in HOST_KINDS else np.delete(before.mask, waits)
        assert others.any()  # states in which nothing can be decided are not offered


def check_every_action(case: EnvCase, prefix: list[Any], pools: list[Any], make: Any) -> None:
    """Take each legal action after the prefix, in an environment of its own, and try all others."""
    env = make()
    before = at_prefix(env, case, prefix)
    check_mask(case, before)
    if case.kind == "rank-hosts":
        for host in range(len(before.mask)):
            check_ranks(make(), case, prefix, host)
        return
    for action in np.flatnonzero(before.mask == 0).tolist():
        check_refused(env, before, action)
    for action in np.flatnonzero(before.mask).tolist():
        fresh = make()
        same = at_prefix(fresh, case, prefix)
        assert as_bytes(same.seen) == as_bytes(before.seen)
        check_legal(case, same, outcome(fresh, same, action), action, pools)


@pytest.mark.parametrize("seed", SEEDS)
def test_legal_actions_do_what_the_page_says_and_all_others_are_refused(seed: int) -> None:
    case = strict(comparable(env_case(seed)))
    reference = reference_env_of(case)
    pools = make_pools(reference.nodes, reference.speeds)
    for prefix in states_of(case, lambda: core_env_of(case)):
        check_every_action(case, prefix, pools, lambda: core_env_of(case))


@pytest.mark.parametrize(("kind", "step_mode"), KINDS_AND_MODES)
def test_legal_actions_of_the_default_environments_do_what_the_page_says(kind: str, step_mode: str) -> None:
    env = SchedulingEnv(kind, step_mode=step_mode, jobs_per_episode=40)
    source = env.model.source
    assert isinstance(source, WindowedJobs)
    rows = 1 if kind in HOST_KINDS else 64
    settings = EnvSettings(window=rows, step_mode=step_mode, tick_s=60.0)
    case = EnvCase(0, kind, {}, source.cluster, "", settings, "")
    nodes, speeds, *_ = cluster_parts(source.cluster)
    for prefix in states_of(case, lambda: env):
        check_every_action(case, prefix, make_pools(nodes, speeds), lambda: env)


def test_the_cases_are_of_every_kind_and_step_mode() -> None:
    cases = [comparable(env_case(seed)) for seed in SEEDS]
    assert {(case.kind, case.settings.step_mode) for case in cases} == set(KINDS_AND_MODES)


# --- Room on nodes, counted by hand ---


@pytest.mark.parametrize("kind", HOST_KINDS)
def test_a_host_is_legal_if_and_only_if_it_has_the_cpus_and_memory_free(kind: str) -> None:
    trace = preset_workload("host-farm", jobs=150, hosts=(4, 4), seed=2)
    jobs, cluster = trace.workload.frame, trace.cluster
    assert cluster is not None
    columns = cluster.node_columns()
    env = SchedulingEnv(kind, workload=trace.workload, cluster=cluster, jobs_per_episode=120, window=3)
    env.reset(seed=0)
    rng, refused, ended = random.Random(0), 0, False
    while not ended:
        schedule = env._core.record(0)
        free = {name: np.array(columns[name], dtype=np.int64) for name in ("cpus", "memory_mib")}
        for job in np.flatnonzero((schedule["start_us"] >= 0) & (schedule["end_us"] > schedule["now_us"])):
            node, row = schedule["node"][schedule["node_offset"][job]], int(schedule["row"][job])
            for name in free:
                free[name][node] -= jobs[name][row]
        current = int(schedule["row"][env._core.window(0)[0]])
        room = np.all([free[name] >= jobs[name][current] for name in free], axis=0)
        assert np.array_equal(env.action_masks(), room)
        refused += int((~room).sum())
        ended = any(env.step(some_action(kind, env.action_masks(), rng))[2:4])
    assert refused > 0


@pytest.mark.parametrize("kind", HOST_KINDS)
def test_a_host_is_legal_if_and_only_if_it_has_the_gpus_free(kind: str) -> None:
    env = single(kind, jobs_per_episode=30)
    gpus = np.array(env.model.source.workload.frame["gpus"])
    env.reset(seed=0)
    rng, refused, ended = random.Random(0), 0, False
    while not ended:
        schedule = env._core.record(0)
        free = np.full(3, 4)
        for job in np.flatnonzero((schedule["start_us"] >= 0) & (schedule["end_us"] > schedule["now_us"])):
            free[schedule["node"][schedule["node_offset"][job]]] -= gpus[schedule["row"][job]]
        room = free >= gpus[schedule["row"][env._core.window(0)[0]]]
        assert np.array_equal(env.action_masks(), room)
        refused += int((~room).sum())
        ended = any(env.step(some_action(kind, env.action_masks(), rng))[2:4])
    assert refused > 0


def test_a_held_back_job_is_not_offered_again_until_time_moves() -> None:
    env = single("accept-or-skip", jobs_per_episode=30)
    seen, _ = env.reset(seed=1)
    held: set[int] = set()
    now, skips, ended = 0, 0, False
    while not ended:
        if env._core.record(0)["now_us"] > now:
            now, held = env._core.record(0)["now_us"], set()
        offered = env._core.window(0)[int(np.flatnonzero(seen["jobs"][:, 19])[0])]
        assert offered not in held
        skip = env.action_masks()[0] and skips % 3 < 2
        if skip:
            held.add(offered)
        skips += 1
        seen, _, terminated, truncated, _ = env.step(0 if skip else 1)
        ended = terminated or truncated
