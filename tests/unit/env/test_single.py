"""Environments one at a time: Gymnasium's rules, observations, wrappers, seeds, time limits."""

import subprocess
import sys
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.utils.env_checker import check_env
from gymnasium.wrappers import FlattenObservation, RecordEpisodeStatistics, TimeLimit

from gpuyard.env import KINDS, SchedulingEnv, SchedulingVectorEnv
from gpuyard.observation.presets import env_presets
from support.small_environments import COLD, ID_OF, KIND_NAMES, as_bytes, rest_of_episode, single, windows

SETTINGS: dict[str, dict[str, Any]] = {
    "default": {},
    "flatten": {"flatten": True},
    "classes": {"tokens": "classes"},
    "lookahead-off": {"lookahead": "off"},
    "lookahead-per-gpu": {"lookahead": "per_gpu"},
    "lookahead-cdf": {"lookahead": "cdf"},
    "no-globals": {"global_features": (), "job_features": ("wait", "gpus")},
}
PRESETS = [(name, kind) for name, preset in env_presets().items() for kind in preset.kinds]


# --- Gymnasium's rules: warnings are errors, and there are none ---


@pytest.mark.parametrize("settings", SETTINGS.values(), ids=SETTINGS)
@pytest.mark.parametrize("env_id", KINDS)
def test_gymnasiums_checker_finds_nothing_at_all(env_id: str, settings: dict[str, Any]) -> None:
    # The checker samples an action, then resets: a skip that was legal is not on the idle cluster it finds.
    lenient = {"invalid": "noop"} if env_id == "gpuyard/AcceptOrSkip-v0" else {}
    check_env(gymnasium.make(env_id, **COLD, **settings, **lenient).unwrapped)


@pytest.mark.parametrize("env_id", KINDS)
def test_gymnasiums_checker_finds_nothing_on_a_busy_cluster(env_id: str) -> None:
    # For the same reason: what was legal before the reset need not be after it.
    check_env(gymnasium.make(env_id, invalid="noop").unwrapped)


@pytest.mark.parametrize(("preset", "kind"), PRESETS)
def test_gymnasiums_checker_finds_nothing_in_any_preset(preset: str, kind: str) -> None:
    check_env(gymnasium.make(ID_OF[kind], preset=preset).unwrapped)


def test_importing_the_package_registers_the_ids() -> None:
    code = (
        "import gymnasium, gpuyard, gpuyard.env\n"
        "ids = {i for i in gymnasium.registry if i.startswith('gpuyard/')}\n"
        "assert ids == set(gpuyard.env.KINDS), ids\n"
        "gpuyard.env.register_environments()\n"  # a second call neither fails nor warns
    )
    subprocess.run([sys.executable, "-W", "error", "-c", code], check=True, timeout=60)


def test_an_id_that_names_its_module_needs_no_import() -> None:
    code = (
        "import gymnasium\nassert gymnasium.make('gpuyard.env:gpuyard/SelectJob-v0').unwrapped.reset(seed=0)"
    )
    subprocess.run([sys.executable, "-W", "error", "-c", code], check=True, timeout=60)


@pytest.mark.parametrize("env_id", KINDS)
def test_make_and_make_vec_give_the_native_environments(env_id: str) -> None:
    env = gymnasium.make(env_id, **windows())
    assert type(env.unwrapped) is SchedulingEnv
    assert env.unwrapped.model.kind == KINDS[env_id]
    assert env.spec is not None
    assert env.spec.max_episode_steps is None
    many = gymnasium.make_vec(env_id, num_envs=3, **windows())
    assert type(many) is SchedulingVectorEnv
    assert (many.num_envs, many.model.kind) == (3, KINDS[env_id])
    assert many.single_observation_space == env.observation_space
    assert many.single_action_space == env.action_space


# --- Observations ---


@pytest.mark.parametrize("kind", KIND_NAMES)
def test_the_flat_observation_is_the_parts_one_after_the_other(kind: str) -> None:
    parts, flat = single(kind), single(kind, flatten=True)
    seen, _ = parts.reset(seed=4)
    vector, _ = flat.reset(seed=4)
    while True:
        joined = np.concatenate([seen[name].ravel() for name in ("jobs", "nodes", "globals", "mask")])
        assert vector.dtype == np.float32
        assert np.array_equal(vector, joined)
        assert flat.observation_space.contains(vector)
        assert parts.observation_space.contains(seen)
        action = parts.random_action()
        seen, reward, *ended, info = parts.step(action)
        vector, same_reward, *ended_too, info_too = flat.step(action)
        assert (reward, ended) == (same_reward, ended_too)
        assert as_bytes(info) == as_bytes(info_too)
        if any(ended):
            return


def test_the_spaces_hold_the_shapes_of_the_page() -> None:
    env = single("select-job-and-pool", window=5)
    space = env.observation_space
    assert isinstance(space, spaces.Dict)
    nodes, pools, gpus = 3, 2, 12
    shapes = {name: part.shape for name, part in space.spaces.items()}
    assert shapes == {
        "jobs": (5, 21),
        "nodes": (nodes, 11),
        "globals": (2 * pools + 11 + gpus,),
        "mask": (5 * pools + 1,),
    }
    assert env.action_space == spaces.Discrete(5 * pools + 1)
    assert single("select-host").action_space == spaces.Discrete(nodes)
    assert single("rank-hosts").action_space == spaces.Box(-1.0, 1.0, (nodes,), dtype=np.float32)
    assert single("accept-or-skip").action_space == spaces.Discrete(2)


def test_features_are_picked_by_name_in_the_order_given() -> None:
    everything = single("select-job")
    some = single(
        "select-job",
        job_features=("gpus", "wait"),
        node_features=("gpu_use",),
        global_features=("queue", "free"),
    )
    all_seen, some_seen = everything.reset(seed=1)[0], some.reset(seed=1)[0]
    names = {name: part.names for name, part in everything.model.parts.items()}
    wanted = [names["jobs"].index("gpus"), names["jobs"].index("wait")]
    assert np.array_equal(some_seen["jobs"], all_seen["jobs"][:, wanted])
    assert np.array_equal(some_seen["nodes"][:, 0], all_seen["nodes"][:, names["nodes"].index("gpu_use")])
    wanted = [names["globals"].index("queue"), 0, 1]  # "free" stands for a column a pool
    assert np.array_equal(some_seen["globals"], all_seen["globals"][wanted])


@pytest.mark.parametrize("kind", KIND_NAMES)
def test_all_three_masks_say_the_same_throughout(kind: str) -> None:
    env = single(kind)
    seen, info = env.reset(seed=9)
    ended = False
    while not ended:
        assert info["action_mask"].dtype == seen["mask"].dtype == np.int8
        assert np.array_equal(info["action_mask"], seen["mask"])
        assert np.array_equal(env.action_masks(), seen["mask"].astype(bool))
        assert seen["mask"].any()
        seen, _, terminated, truncated, info = env.step(env.random_action())
        ended = terminated or truncated


def test_what_is_returned_is_the_callers_own() -> None:
    ours, theirs = single("select-job"), single("select-job")
    ours.reset(seed=3)
    seen, info = theirs.reset(seed=3)
    for _ in range(8):
        action = ours.random_action()
        assert action == theirs.random_action()
        expected = as_bytes(ours.step(action))
        result = theirs.step(action)
        assert as_bytes(result) == expected
        for part in (*seen.values(), *result[0].values(), info["action_mask"], result[4]["action_mask"]):
            part[...] = 1
        seen, info = result[0], result[4]


# --- Actions that are given ---


@pytest.mark.parametrize("kind", KIND_NAMES)
def test_random_actions_are_legal_and_follow_from_the_seed(kind: str) -> None:
    def actions(seed: int) -> list[Any]:
        env = single(kind)
        env.reset(seed=seed)
        taken = []
        ended = False
        while not ended:
            taken.append(as_bytes(env.random_action()))
            assert as_bytes(env.random_action()) == taken[-1]  # asking changes nothing
            _, _, terminated, truncated, _ = env.step(env.random_action())
            ended = terminated or truncated
        return taken

    assert actions(5) == actions(5)
    assert actions(5) != actions(6)


@pytest.mark.parametrize(
    "source",
    [
        {"workload": "all-at-once", "jobs_per_episode": 12},
        {"generator": {"preset": "all-at-once", "jobs": 12}},
    ],
    ids=["windows", "draws"],
)
def test_random_actions_differ_between_episodes_of_one_seed(source: dict[str, Any]) -> None:
    # All jobs wait from the start and any can be chosen, so that masks are the same in every episode.
    env = SchedulingEnv("select-job", window=12, step_mode="blocking", **source)
    episodes = []
    for seed in (8, None, None):
        env.reset(seed=seed)
        actions, ended = [], False
        while not ended:
            actions.append(env.random_action())
            ended = any(env.step(actions[-1])[2:4])
        episodes.append(tuple(actions))
    assert len(set(episodes)) == 3


@pytest.mark.parametrize("kind", KIND_NAMES)
def test_the_same_seed_and_actions_give_the_same_episode_to_the_last_bit(kind: str) -> None:
    def run(env: SchedulingEnv, seed: int) -> list[Any]:
        return [as_bytes(env.reset(seed=seed)), *rest_of_episode(env)]

    env = single(kind)
    first = run(env, 11)
    assert run(env, 12) != first
    assert run(env, 11) == first
    assert run(single(kind), 11) == first


# --- Wrappers ---


@pytest.mark.parametrize("env_id", KINDS)
def test_wrappers_of_single_environments_work(env_id: str) -> None:
    env = FlattenObservation(RecordEpisodeStatistics(gymnasium.make(env_id, **windows())))
    seen, _ = env.reset(seed=0)
    total, length, ended = 0.0, 0, False
    while not ended:
        assert env.observation_space.contains(seen)
        assert seen.shape == (single(KINDS[env_id], flatten=True).observation_space.shape)
        seen, reward, terminated, truncated, info = env.step(env.unwrapped.random_action())
        total, length, ended = total + float(reward), length + 1, terminated or truncated
    assert info["episode"]["l"] == info["episode_metrics"]["length"] == length
    assert info["episode"]["r"] == pytest.approx(info["episode_metrics"]["return"])
    assert info["episode_metrics"]["return"] == pytest.approx(total)


def test_gymnasiums_time_limit_truncates() -> None:
    env = gymnasium.make("gpuyard/SelectJob-v0", max_episode_steps=3, **windows())
    assert isinstance(env, TimeLimit)
    env.reset(seed=0)
    ended = [env.step(env.unwrapped.random_action())[2:4] for _ in range(3)]
    assert ended == [(False, False), (False, False), (False, True)]


def test_methods_are_reached_through_wrappers() -> None:
    env = gymnasium.make("gpuyard/SelectJob-v0", **windows())
    env.reset(seed=0)
    assert env.get_wrapper_attr("action_masks")().any()
    assert env.get_wrapper_attr("expert_action")("sjf+easy") == env.unwrapped.expert_action("sjf+easy")
