"""Actions that cannot be executed: refused with nothing changed, or replaced at a price."""

import random
from typing import Any

import numpy as np
import pytest
from gymnasium.vector import AutoresetMode

from gpuyard.env import InvalidActionError, SchedulingEnv, SchedulingVectorEnv
from gpuyard.errors import InputError
from support.small_environments import (
    HOST_KINDS,
    JOB_KINDS,
    KIND_NAMES,
    as_bytes,
    rest_of_episode,
    single,
    some_action,
    some_actions,
    steps_of,
    vector,
)

DISCRETE = tuple(kind for kind in KIND_NAMES if kind != "rank-hosts")
HOSTS = 3  # of the cluster of these tests

NO_NUMBERS: dict[str, Any] = {
    "a float": 1.0,
    "a numpy float": np.float32(0.0),
    "NaN": float("nan"),
    "a bool": True,
    "a text": "0",
    "nothing": None,
    "two": [0, 0],
    "too deep": [[0]],
    "none": [],
    "too large for 64 bits": 2**70,
    "complex": 1j,
}
NO_PRIORITIES: dict[str, Any] = {
    "a number": 1.0,
    "too few": np.zeros(HOSTS - 1, np.float32),
    "too many": np.zeros(HOSTS + 1, np.float32),
    "too deep": np.zeros((1, HOSTS), np.float32),
    "bools": np.ones(HOSTS, bool),
    "texts": ["a"] * HOSTS,
    "nothing": None,
    "complex": np.zeros(HOSTS, np.complex64),
}


def walked(kind: str, steps: int = 3, seed: int = 2, **settings: Any) -> SchedulingEnv:
    """An environment after some steps."""
    env, rng = single(kind, **settings), random.Random(seed)
    env.reset(seed=seed)
    for _ in range(steps):
        env.step(some_action(kind, env.action_masks(), rng))
    return env


def check_refused_and_unchanged(kind: str, action: Any, error: type[Exception], word: str) -> None:
    touched, untouched = walked(kind), walked(kind)
    before = as_bytes([touched.schedule(), touched.action_masks(), touched.random_action()])
    for _ in range(2):
        with pytest.raises(error) as refusal:
            touched.step(action)
        assert word in str(refusal.value)
        assert as_bytes([touched.schedule(), touched.action_masks(), touched.random_action()]) == before
    assert rest_of_episode(touched) == rest_of_episode(untouched)


# --- Refused ---


@pytest.mark.parametrize("action", NO_NUMBERS.values(), ids=NO_NUMBERS)
@pytest.mark.parametrize("kind", DISCRETE)
def test_what_is_no_whole_number_is_refused_and_changes_nothing(kind: str, action: Any) -> None:
    check_refused_and_unchanged(kind, action, InputError, "is not a whole number between 0 and")


@pytest.mark.parametrize("action", NO_PRIORITIES.values(), ids=NO_PRIORITIES)
def test_what_is_no_priority_for_each_host_is_refused_and_changes_nothing(action: Any) -> None:
    check_refused_and_unchanged("rank-hosts", action, InputError, "expected 3 numbers, a priority for each")


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("host", range(HOSTS))
def test_priorities_that_are_not_finite_are_refused_and_change_nothing(host: int, value: float) -> None:
    action = np.zeros(HOSTS, np.float32)
    action[host] = value
    word = f"the priority of host {host} is not a finite number"
    check_refused_and_unchanged("rank-hosts", action, InvalidActionError, word)


@pytest.mark.parametrize("action", [-1, -(2**63), 2**31, 2**62, np.uint64(2**64 - 1)])
@pytest.mark.parametrize("kind", DISCRETE)
def test_numbers_out_of_range_are_refused_and_change_nothing(kind: str, action: Any) -> None:
    check_refused_and_unchanged(kind, action, InvalidActionError, "is not between 0 and")


@pytest.mark.parametrize("kind", DISCRETE)
def test_the_first_number_out_of_range_is_refused(kind: str) -> None:
    actions = walked(kind).model.actions
    word = f"action {actions} is not between 0 and {actions - 1}; legal are"
    check_refused_and_unchanged(kind, actions, InvalidActionError, word)


@pytest.mark.parametrize("step_mode", ["instant", "event", "tick", "blocking"])
@pytest.mark.parametrize("kind", DISCRETE)
def test_what_is_illegal_now_is_refused_and_changes_nothing(kind: str, step_mode: str) -> None:
    if step_mode == "blocking" and kind not in JOB_KINDS:
        pytest.skip("not offered")
    rng, refused = random.Random(1), 0
    # A skip is illegal only while nothing runs: with the one job of an episode always.
    settings = {
        "step_mode": step_mode,
        "tick_s": 300.0,
        "jobs_per_episode": 1 if kind == "accept-or-skip" else 9,
    }
    touched, untouched = (single(kind, **settings) for _ in range(2))
    assert as_bytes(touched.reset(seed=5)) == as_bytes(untouched.reset(seed=5))
    ended = False
    while not ended:
        mask = touched.action_masks()
        legal = ", ".join(map(str, np.flatnonzero(mask)))
        for action in np.flatnonzero(~mask):
            with pytest.raises(InvalidActionError) as refusal:
                touched.step(action)
            message = str(refusal.value)
            assert f"action {action} cannot be executed now; legal are {legal}" in message
            assert "action_mask" in message  # what to do
            refused += 1
        action = some_action(kind, mask, rng)
        result = touched.step(action)
        assert as_bytes(result) == as_bytes(untouched.step(action))
        ended = result[2] or result[3]
    assert as_bytes(touched.schedule()) == as_bytes(untouched.schedule())
    assert refused > 0


@pytest.mark.parametrize("kind", KIND_NAMES)
def test_whole_numbers_and_numbers_of_any_type_are_taken(kind: str) -> None:
    def results(change: Any) -> Any:
        env = walked(kind)
        return as_bytes(env.step(change(env.random_action())))

    if kind == "rank-hosts":
        changes = [list, tuple, np.float64, lambda action: action.astype(np.int8)]
    else:
        changes = [np.int8, np.uint64, lambda action: np.array([action]), lambda action: [action]]
    expected = results(lambda action: action)
    assert all(results(change) == expected for change in changes)


def test_any_finite_priorities_are_taken() -> None:
    env = walked("rank-hosts")
    space = np.array([1e300, -1e300, 0.0])  # finite, if not as 32-bit numbers
    job, mask = env._core.window(0)[0], env.action_masks()
    env.step(space)
    schedule = env.schedule()
    assert schedule["node"][schedule["node_offset"][job]] == max(np.flatnonzero(mask), key=lambda h: space[h])


# --- In vectors ---


def vectors(kind: str, **settings: Any) -> list[SchedulingVectorEnv]:
    made = [vector(kind, 5, **settings) for _ in range(2)]
    for env in made:
        env.reset(seed=2)
        steps_of(env, 3)
    return made


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("place", range(5))
@pytest.mark.parametrize("kind", KIND_NAMES)
def test_one_bad_action_leaves_all_environments_of_a_vector_unchanged(
    kind: str, place: int, threads: int
) -> None:
    touched, untouched = vectors(kind, threads=threads)
    actions = touched.random_actions()
    actions[place] = np.nan if kind == "rank-hosts" else -1
    before = as_bytes([touched._core.record(i) for i in range(5)])
    with pytest.raises(InvalidActionError, match=f"environment {place}: "):
        touched.step(actions)
    assert as_bytes([touched._core.record(i) for i in range(5)]) == before
    assert np.array_equal(touched.action_masks(), untouched.action_masks())
    assert steps_of(touched, 30) == steps_of(untouched, 30)


@pytest.mark.parametrize("kind", KIND_NAMES)
def test_actions_of_a_wrong_shape_or_type_leave_a_vector_unchanged(kind: str) -> None:
    touched, untouched = vectors(kind)
    right = touched.random_actions()
    wrong: list[Any] = [
        right[:-1],
        np.concatenate([right, right]),
        right[:, None],
        right[0],
        right.tolist()[0],
    ]
    wrong += [right.astype(complex), right.astype(bool), [None] * 5, "01234", None, []]
    wrong += [right.ravel() if kind == "rank-hosts" else right.astype(np.float64)]
    for actions in wrong:
        with pytest.raises(InputError, match=r"actions have shape .* and type .*; expected"):
            touched.step(actions)
    assert steps_of(touched, 30) == steps_of(untouched, 30)


@pytest.mark.parametrize("kind", KIND_NAMES)
def test_next_step_ignores_the_actions_of_episodes_that_are_over(kind: str) -> None:
    touched, untouched = vectors(kind, autoreset_mode=AutoresetMode.NEXT_STEP)
    rng, ignored = random.Random(0), 0
    over = np.zeros(5, dtype=bool)
    for _ in range(60):
        actions = some_actions(kind, touched.action_masks(), rng)
        anything = actions.copy()
        anything[over] = -7
        result = touched.step(anything)
        assert as_bytes(result) == as_bytes(untouched.step(actions))
        ignored += int(over.sum())
        over = result[2] | result[3]
    assert ignored > 0


# --- Replaced ---


def substitute(env: SchedulingEnv, step_mode: str) -> int:
    """What docs/contract/mdp.md says takes the place of an action that is not legal."""
    mask = env.action_masks()
    kind = env.model.kind
    first = int(np.flatnonzero(mask)[0])
    if kind == "accept-or-skip":
        return 0 if mask[0] else 1
    if kind == "select-host" or step_mode == "blocking":
        return first  # of blocking: row 0, in the first pool that could ever hold the job
    return len(mask) - 1 if mask[-1] else first


@pytest.mark.parametrize("step_mode", ["instant", "event", "tick", "blocking"])
@pytest.mark.parametrize("kind", DISCRETE)
def test_an_illegal_action_is_replaced_as_documented_and_costs_the_penalty(kind: str, step_mode: str) -> None:
    if step_mode == "blocking" and kind not in JOB_KINDS:
        pytest.skip("not offered")
    settings = {"step_mode": step_mode, "tick_s": 300.0, "jobs_per_episode": 20}
    rng, replaced = random.Random(1), 0
    charged = single(kind, invalid="noop", invalid_penalty=0.375, **settings)
    free, strict = single(kind, invalid="noop", invalid_penalty=0.0, **settings), single(kind, **settings)
    for env in (charged, free, strict):
        env.reset(seed=5)
    total, ended = 0.0, False
    while not ended:
        illegal = [*np.flatnonzero(~charged.action_masks()).tolist(), -1, charged.model.actions, 2**40]
        is_bad = rng.random() < 0.7
        legal = some_action(kind, charged.action_masks(), rng)
        action = rng.choice(illegal) if is_bad else legal
        seen, reward, *flags, info = charged.step(action)
        expected = strict.step(substitute(strict, step_mode) if is_bad else legal)
        assert as_bytes(free.step(action)) == as_bytes(expected)
        assert as_bytes([seen, *flags]) == as_bytes([expected[0], *expected[2:4]])
        assert reward == expected[1] - (0.375 if is_bad else 0.0)
        total, ended, replaced = total + reward, any(flags), replaced + is_bad
    assert as_bytes(charged.schedule()) == as_bytes(strict.schedule())
    assert info["episode_metrics"]["return"] == pytest.approx(total)
    assert replaced > 0


@pytest.mark.parametrize(
    ("kind", "waiting"), [("select-job", 4), ("select-job-and-pool", 8), ("accept-or-skip", 0)]
)
def test_waiting_for_nothing_is_replaced_by_a_start(kind: str, waiting: int) -> None:
    env = single(kind, jobs_per_episode=1, invalid="noop", invalid_penalty=2.0, rewards={"wait": 1.0})
    env.reset(seed=0)
    assert not env.action_masks()[waiting]
    _, reward, terminated, _, _ = env.step(waiting)
    assert (reward, terminated) == (-2.0, True)
    assert env.schedule()["start_us"].tolist() == [0]


@pytest.mark.parametrize("kind", KIND_NAMES)
def test_what_is_no_action_at_all_is_refused_whatever_the_setting(kind: str) -> None:
    env = walked(kind, invalid="noop")
    bad: list[Any] = [None, "0", [0] * 9] + ([] if kind == "rank-hosts" else [0.5])
    for action in bad:
        with pytest.raises(InputError):
            env.step(action)
    if kind == "rank-hosts":
        with pytest.raises(InvalidActionError, match="not a finite number"):
            env.step(np.full(HOSTS, np.nan))
    assert rest_of_episode(env) == rest_of_episode(walked(kind, invalid="noop"))


@pytest.mark.parametrize("kind", HOST_KINDS)
def test_where_hosts_are_chosen_some_host_is_always_legal(kind: str) -> None:
    env = single(kind)
    for seed in range(5):
        env.reset(seed=seed)
        ended = False
        while not ended:
            assert env.action_masks().any()
            ended = any(env.step(env.random_action())[2:4])
