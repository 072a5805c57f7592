"""Vectors of environments do what single environments do, to the last bit, into whosever arrays."""

import random
import subprocess
import sys
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from gymnasium.wrappers import vector as vector_wrappers

from gpuyard.env import KINDS, SchedulingEnv, SchedulingVectorEnv
from gpuyard.errors import InputError
from support.small_environments import (
    HOST_KINDS,
    KIND_NAMES,
    as_bytes,
    at,
    draws,
    some_actions,
    steps_of,
    vector,
    windows,
)

SEED, COUNT, STEPS = 21, 5, 40
MODES = tuple(AutoresetMode)
ALL_TERMS = {"wait": 1.0, "utilization": 0.5, "load_balance": 1.0, "fairness": -1.0, "makespan": 0.25}
SOURCES: dict[str, dict[str, Any]] = {
    "windows": windows(warmup_jobs=4, cooldown_jobs=3, rewards=ALL_TERMS),
    "draws": draws(max_steps=14, rewards={"slowdown": 1.0, "versus_baseline": 2.0}),
    "few-draws": draws(
        generator_seeds=(3, 5), horizon_factor=0.4, rewards={"finish_early": 1.0, "backlog": 1.0}
    ),
    "windows-flat-ticks": windows(step_mode="tick", tick_s=500.0, flatten=True, split="train"),
}
FARM: dict[str, Any] = {"generator": {"preset": "host-farm", "jobs": 12, "hosts": (2, 6)}, "window": 3}
"""Episodes that differ in their clusters."""


class Singles:
    """Single environments that are reset as the mode of the vector demands."""

    def __init__(self, kind: str, settings: dict[str, Any], mode: AutoresetMode) -> None:
        self.envs = [SchedulingEnv(kind, **settings) for _ in range(COUNT)]
        self.mode = mode
        self.over = [False] * COUNT

    def check_reset(self, results: Any, which: Any, seeds: Any) -> None:
        for i in np.flatnonzero(which):
            expected = self.envs[i].reset(seed=seeds[i])
            assert as_bytes(at(results[0], i)) == as_bytes(expected[0])
            assert as_bytes(at(results[1], i)) == as_bytes(expected[1])
            self.over[i] = False

    def check_step(self, actions: Any, results: Any) -> None:
        seen, rewards, terminated, truncated, infos = results
        for i, env in enumerate(self.envs):
            got = [at(seen, i), rewards[i], terminated[i], truncated[i]]
            if self.over[i] and self.mode is AutoresetMode.NEXT_STEP:
                first, info = env.reset()
                assert as_bytes(got) == as_bytes([first, 0.0, False, False])
                self.over[i] = False
            else:
                *expected, info = env.step(actions[i])
                self.over[i] = expected[2] or expected[3]
                if self.over[i] and self.mode is AutoresetMode.SAME_STEP:
                    assert infos["_final_obs"][i]
                    assert infos["_final_info"][i]
                    assert as_bytes(infos["final_obs"][i]) == as_bytes(expected[0])
                    self.check_info(infos["final_info"], info, i)
                    expected[0], info = env.reset()
                assert as_bytes(got) == as_bytes(expected)
            self.check_info(infos, info, i)
        for name in ("_final_obs", "_final_info") if self.mode is AutoresetMode.SAME_STEP else ():
            assert np.array_equal(infos.get(name, [False] * COUNT), self.over)

    def check_info(self, infos: Any, expected: dict[str, Any], i: int) -> None:
        assert np.array_equal(infos["action_mask"][i], expected["action_mask"])
        assert infos["_action_mask"][i]
        ended = "episode_metrics" in expected
        assert bool(infos.get("_episode_metrics", [False] * COUNT)[i]) == ended
        if ended:
            assert as_bytes(at(infos["episode_metrics"], i)) == as_bytes(expected["episode_metrics"])


@pytest.mark.parametrize("settings", SOURCES.values(), ids=SOURCES)
@pytest.mark.parametrize("mode", MODES, ids=lambda mode: mode.name)
@pytest.mark.parametrize("kind", KIND_NAMES)
def test_a_vector_does_what_single_environments_do(
    kind: str, mode: AutoresetMode, settings: dict[str, Any]
) -> None:
    singles = Singles(kind, settings, mode)
    env = SchedulingVectorEnv(kind, COUNT, threads=1, autoreset_mode=mode, **settings)
    rng, episodes = random.Random(SEED), 0
    seen, infos = env.reset(seed=SEED)
    singles.check_reset((seen, infos), np.ones(COUNT), range(SEED, SEED + COUNT))
    for _ in range(STEPS):
        actions = some_actions(kind, env.action_masks(), rng)
        singles.check_step(actions, env.step(actions))
        over = np.array(singles.over)
        episodes += int(over.sum())
        if mode is AutoresetMode.DISABLED and over.any():
            results = env.reset(options={"reset_mask": over})
            singles.check_reset(results, over, [None] * COUNT)
    assert episodes >= COUNT


@pytest.mark.parametrize("kind", HOST_KINDS)
def test_a_vector_does_what_single_environments_do_if_clusters_differ(kind: str) -> None:
    singles = Singles(kind, FARM, AutoresetMode.SAME_STEP)
    env = SchedulingVectorEnv(kind, COUNT, **FARM)
    rng = random.Random(SEED)
    singles.check_reset(env.reset(seed=SEED), np.ones(COUNT), range(SEED, SEED + COUNT))
    hosts = set()
    for _ in range(STEPS):
        actions = some_actions(kind, env.action_masks(), rng)
        results = env.step(actions)
        singles.check_step(actions, results)
        hosts |= set(results[0]["nodes"].any(axis=2).sum(axis=1).tolist())
    assert len(hosts) > 1


@pytest.mark.parametrize(
    "mode", [AutoresetMode.SAME_STEP, AutoresetMode.NEXT_STEP], ids=lambda mode: mode.name
)
@pytest.mark.parametrize("source", ["windows", "draws"])
@pytest.mark.parametrize("env_id", KINDS)
def test_the_native_vector_reports_as_gymnasiums_own_vector_does(
    env_id: str, source: str, mode: AutoresetMode
) -> None:
    native = gymnasium.make_vec(env_id, COUNT, autoreset_mode=mode, **SOURCES[source])
    theirs = SyncVectorEnv([lambda: gymnasium.make(env_id, **SOURCES[source])] * COUNT, autoreset_mode=mode)
    assert native.observation_space == theirs.observation_space
    assert native.action_space == theirs.action_space
    assert native.metadata["autoreset_mode"] is theirs.metadata["autoreset_mode"]
    rng = random.Random(3)
    assert as_bytes(native.reset(seed=3)) == as_bytes(theirs.reset(seed=3))
    for _ in range(30):
        actions = some_actions(KINDS[env_id], native.action_masks(), rng)
        *results, infos = native.step(actions)
        *expected, their_infos = theirs.step(actions)
        assert as_bytes(results) == as_bytes(expected)
        assert infos.keys() == their_infos.keys()
        assert as_bytes(infos.get("final_obs", ())) == as_bytes(their_infos.get("final_obs", ()))
        assert as_bytes(infos["action_mask"]) == as_bytes(their_infos["action_mask"])
        for name in (name for name in infos if name.startswith("_")):
            assert np.array_equal(infos[name], their_infos[name])
        assert infos.get("final_info", {}).keys() == their_infos.get("final_info", {}).keys()


# --- Threads, copies and layouts ---


@pytest.mark.parametrize("threads", [2, 3])
@pytest.mark.parametrize("kind", KIND_NAMES)
def test_results_do_not_depend_on_the_number_of_threads(kind: str, threads: int) -> None:
    for source in ("windows", "draws"):
        one, many = (
            SchedulingVectorEnv(kind, 7, threads=number, **SOURCES[source]) for number in (1, threads)
        )
        assert as_bytes(one.reset(seed=2)) == as_bytes(many.reset(seed=2))
        assert steps_of(one, 20) == steps_of(many, 20)


@pytest.mark.parametrize("flatten", [False, True])
@pytest.mark.parametrize("kind", KIND_NAMES)
def test_views_hold_what_copies_hold(kind: str, flatten: bool) -> None:
    copies = vector(kind, flatten=flatten, autoreset_mode="NextStep")
    views = vector(kind, flatten=flatten, autoreset_mode="NextStep", copy=False)
    assert as_bytes(copies.reset(seed=6)) == as_bytes(views.reset(seed=6))
    assert steps_of(copies, 50) == steps_of(views, 50)


def test_without_copies_the_same_arrays_are_returned_every_time() -> None:
    env = vector("select-job", copy=False)
    first, first_info = env.reset(seed=6)
    kept = as_bytes(first)
    rewards = None
    for _ in range(9):
        seen, reward, *_, info = env.step(env.random_actions())
        assert all(np.shares_memory(seen[name], first[name]) for name in first)
        assert np.shares_memory(info["action_mask"], first_info["action_mask"])
        assert rewards is None or np.shares_memory(reward, rewards)
        rewards = reward
    assert as_bytes(first) != kept  # written over


@pytest.mark.parametrize("mode", MODES, ids=lambda mode: mode.name)
def test_what_a_vector_returns_is_the_callers_own(mode: AutoresetMode) -> None:
    def spoil(value: Any) -> None:
        if isinstance(value, dict):
            for part in value.values():
                spoil(part)
        elif isinstance(value, np.ndarray) and value.dtype != object:
            value[...] = 0

    ours = vector("select-job", autoreset_mode=mode)
    theirs = vector("select-job", autoreset_mode=mode)
    assert as_bytes(ours.reset(seed=6)) == as_bytes(theirs.reset(seed=6))
    rng = random.Random(1)
    over = np.zeros(3, dtype=bool)
    for _ in range(30):
        if mode is AutoresetMode.DISABLED and over.any():
            options = {"reset_mask": over}
            assert as_bytes(ours.reset(options=options)) == as_bytes(theirs.reset(options=options))
        actions = some_actions("select-job", ours.action_masks(), rng)
        expected = as_bytes(ours.step(actions))
        results = theirs.step(actions)
        assert as_bytes(results) == expected
        over = results[2] | results[3]
        for part in results:
            spoil(part)


def test_what_a_vector_returned_is_not_changed_by_later_steps() -> None:
    env = vector("select-job")
    env.reset(seed=6)
    kept = [env.step(env.random_actions()) for _ in range(30)]
    before = [as_bytes(result) for result in kept]
    env.step(env.random_actions())
    env.reset(seed=1)
    assert [as_bytes(result) for result in kept] == before


# --- Arrays of the caller ---


def shapes(env: SchedulingVectorEnv) -> dict[str, tuple[tuple[int, ...], Any]]:
    return {name: (array.shape, array.dtype) for name, array in env._buffers.items()}


@pytest.mark.parametrize("copy", [True, False])
@pytest.mark.parametrize("flatten", [True, False])
def test_the_callers_arrays_are_written_in_place(flatten: bool, copy: bool) -> None:
    plain = vector("select-job-and-pool", flatten=flatten)
    mine = {name: np.zeros(shape, dtype) for name, (shape, dtype) in shapes(plain).items()}
    addresses = {name: array.ctypes.data for name, array in mine.items()}
    env = vector("select-job-and-pool", flatten=flatten, buffers=mine, copy=copy)
    parts = ("flat",) if flatten else ("jobs", "nodes", "globals", "mask")
    assert as_bytes(plain.reset(seed=1)) == as_bytes(env.reset(seed=1))
    finals = 0
    for _ in range(40):
        actions = plain.random_actions()
        expected = plain.step(actions)
        results = env.step(actions)
        assert as_bytes(results) == as_bytes(expected)
        seen = {"flat": expected[0]} if flatten else expected[0]
        assert all(np.array_equal(mine[name], seen[name]) for name in parts)
        for name, value in zip(("reward", "terminated", "truncated"), expected[1:4], strict=True):
            assert np.array_equal(mine[name], value)
        assert np.array_equal(mine["mask"], expected[4]["action_mask"])
        assert np.shares_memory(results[1], mine["reward"]) is not copy
        returned = results[0] if flatten else results[0]["jobs"]
        assert np.shares_memory(returned, mine[parts[0]]) is not copy
        for i in np.flatnonzero(expected[2]):
            final = {"flat": expected[4]["final_obs"][i]} if flatten else expected[4]["final_obs"][i]
            assert all(np.array_equal(mine[f"last_{name}"][i], final[name]) for name in parts)
            finals += 1
    assert finals > 0
    assert {name: array.ctypes.data for name, array in mine.items()} == addresses


def test_arrays_that_are_not_given_are_allocated() -> None:
    mine = {"reward": np.full(3, np.nan)}
    env = vector("select-job", buffers=mine)
    env.reset(seed=1)
    rewards = env.step(env.random_actions())[1]
    assert np.array_equal(mine["reward"], rewards)


WRONG: dict[str, tuple[Any, str]] = {
    "type": (lambda right: right.astype(np.float16), "float16"),
    "byte order": (lambda right: right.astype(right.dtype.newbyteorder(">")), "type >"),
    "too few": (lambda right: right[1:].copy(), "shape"),
    "too many axes": (lambda right: right[..., None].copy(), "shape"),
    "flat": (lambda right: right.ravel(), "shape"),
    "not contiguous": (lambda right: np.repeat(right, 2, axis=-1)[..., ::2], "contiguous"),
    "column by column": (np.asfortranarray, "contiguous"),
    "read-only": (lambda right: np.broadcast_to(right, right.shape), "written"),
    "a list": (lambda right: right.tolist(), "list"),
    "nothing": (lambda right: None, "NoneType"),
}


@pytest.mark.parametrize(("change", "word"), WRONG.values(), ids=WRONG)
@pytest.mark.parametrize("name", ["jobs", "nodes", "last_jobs", "metrics"])
def test_arrays_that_cannot_be_written_into_are_refused_by_name(name: str, change: Any, word: str) -> None:
    shape, dtype = shapes(vector("select-job"))[name]
    with pytest.raises(InputError) as refusal:
        vector("select-job", buffers={name: change(np.zeros(shape, dtype))})
    message = str(refusal.value)
    assert f"buffer {name} " in message
    assert word in message
    assert f"{dtype}, shape {shape}" in message  # what is expected


@pytest.mark.parametrize("name", ["reward", "terminated", "truncated", "ended", "mask", "episode_length"])
def test_every_array_of_a_step_is_checked(name: str) -> None:
    shape, _ = shapes(vector("select-job"))[name]
    with pytest.raises(InputError, match=f"buffer {name} has type complex64"):
        vector("select-job", buffers={name: np.zeros(shape, np.complex64)})


def test_an_unknown_array_is_refused_with_the_closest_name() -> None:
    with pytest.raises(InputError, match="unknown buffer 'rewards'; did you mean 'reward'"):
        vector("select-job", buffers={"rewards": np.zeros(3)})
    with pytest.raises(InputError, match=r"unknown buffer 'jobs'.*known: flat, mask"):
        vector("select-job", buffers={"jobs": np.zeros((3, 4, 21), np.float32)}, flatten=True)


# --- Wrappers ---


@pytest.mark.parametrize(
    "mode", [AutoresetMode.SAME_STEP, AutoresetMode.NEXT_STEP], ids=lambda mode: mode.name
)
@pytest.mark.parametrize("env_id", KINDS)
def test_gymnasiums_episode_statistics_agree_with_the_episodes_metrics(
    env_id: str, mode: AutoresetMode
) -> None:
    native = gymnasium.make_vec(env_id, COUNT, autoreset_mode=mode, **SOURCES["windows"])
    env = vector_wrappers.RecordEpisodeStatistics(native)
    env.reset(seed=0)
    episodes = 0
    for _ in range(STEPS):
        _, _, terminated, truncated, infos = env.step(native.random_actions())
        ended = terminated | truncated
        if not ended.any():
            continue
        metrics = (infos if mode is AutoresetMode.NEXT_STEP else infos["final_info"])["episode_metrics"]
        assert np.array_equal(infos["_episode"], ended)
        assert infos["episode"]["l"][ended].tolist() == metrics["length"][ended].tolist()
        assert infos["episode"]["r"][ended] == pytest.approx(metrics["return"][ended])
        episodes += int(ended.sum())
    assert episodes >= COUNT


def test_wrappers_that_need_next_step_run() -> None:
    native = gymnasium.make_vec(
        "gpuyard/SelectJob-v0", COUNT, autoreset_mode="NextStep", **windows(flatten=True)
    )
    env = vector_wrappers.NormalizeObservation(vector_wrappers.NormalizeReward(native))
    env.reset(seed=0)
    for _ in range(STEPS):
        seen, rewards, *_ = env.step(native.random_actions())
        assert np.isfinite(seen).all()
        assert np.isfinite(rewards).all()


def test_a_vectors_time_limit_is_max_steps() -> None:
    env = gymnasium.make_vec("gpuyard/SelectJob-v0", 2, max_episode_steps=3, **windows())
    env.reset(seed=0)
    truncated = [env.step(env.random_actions())[3].tolist() for _ in range(3)]
    assert truncated == [[False] * 2, [False] * 2, [True] * 2]


def test_an_environment_made_in_a_forked_process_is_refused_not_left_hanging() -> None:
    code = (
        "import os, gpuyard.env\n"
        "pid = os.fork()\n"
        "if pid == 0:\n"
        "    try:\n"
        "        gpuyard.env.SchedulingEnv('select-job')\n"
        "    except gpuyard.InputError as error:\n"
        "        os._exit(7 if 'forkserver' in str(error) else 1)\n"
        "    os._exit(2)\n"
        "assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 7\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


@pytest.mark.parametrize("mode", ["NEXT_STEP", "NextStep", AutoresetMode.NEXT_STEP])
def test_autoreset_modes_may_be_named_as_in_the_documents(mode: object) -> None:
    env = SchedulingVectorEnv("select-job", 1, autoreset_mode=mode)
    assert env.metadata["autoreset_mode"] is AutoresetMode.NEXT_STEP
