"""Stable-Baselines3 trains on native environments: spaces, masks, ends of episodes."""

import subprocess
import sys
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium.vector import AutoresetMode
from gymnasium.wrappers import TransformReward
from sb3_contrib import MaskablePPO
from sb3_contrib.common.maskable.evaluation import evaluate_policy as evaluate_masked
from sb3_contrib.common.maskable.utils import get_action_masks, is_masking_supported
from stable_baselines3 import PPO
from stable_baselines3.common.env_checker import check_env
from stable_baselines3.common.monitor import Monitor
from stable_baselines3.common.vec_env import DummyVecEnv, VecNormalize

import gpuyard.env
from gpuyard.env.stable_baselines import StableBaselinesVecEnv
from gpuyard.errors import InputError

IDS = sorted(gpuyard.env.KINDS)
SMALL: dict[str, Any] = {"jobs_per_episode": 12}
POLICY: dict[str, Any] = {"net_arch": [8]}


@pytest.fixture(autouse=True)
def one_torch_thread() -> None:
    torch.set_num_threads(1)


def vectors(env_id: str = "gpuyard/SelectJob-v0", count: int = 3, **settings: Any) -> StableBaselinesVecEnv:
    merged = {**SMALL, "threads": 1, **settings}
    return StableBaselinesVecEnv(gymnasium.make_vec(env_id, num_envs=count, **merged))


def run_to_an_end(env: StableBaselinesVecEnv) -> tuple[int, dict[str, Any], Any]:
    """Act at random until an episode ends: the environment, its info, and the observation after."""
    for _ in range(10_000):
        observation, _, dones, infos = env.step(np.array(env.env_method("random_action")))
        if dones.any():
            i = int(np.argmax(dones))
            return i, infos[i], observation
    raise AssertionError("no episode ended")


# --- Training ---


class MaskObeyed:
    """Counts the actions of a vector environment, and those that its masks forbade."""

    def __init__(self, env: StableBaselinesVecEnv) -> None:
        self.seen = self.forbidden = 0
        self._env, self._step_async = env, env.step_async
        env.step_async = self

    def __call__(self, actions: Any) -> None:
        masks = self._env.action_masks()
        self.seen += len(actions)
        self.forbidden += int((~masks[np.arange(len(actions)), actions]).sum())
        self._step_async(actions)


@pytest.mark.parametrize("flatten", [False, True])
def test_maskable_ppo_trains_and_obeys_the_masks(flatten: bool) -> None:
    env = vectors(flatten=flatten)
    watched = MaskObeyed(env)
    policy = "MlpPolicy" if flatten else "MultiInputPolicy"
    model = MaskablePPO(policy, env, n_steps=16, batch_size=24, n_epochs=1, seed=0, policy_kwargs=POLICY)
    model.learn(96)
    assert (watched.seen, watched.forbidden) == (96, 0)
    assert len(model.ep_info_buffer) > 0
    assert {"r", "l", "t"} <= set(model.ep_info_buffer[0])


def test_plain_ppo_trains_where_forbidden_actions_are_noops() -> None:
    env = vectors(flatten=True, invalid="noop")
    watched = MaskObeyed(env)
    PPO("MlpPolicy", env, n_steps=16, batch_size=24, n_epochs=1, seed=0, policy_kwargs=POLICY).learn(96)
    assert watched.seen == 96
    assert watched.forbidden > 0


def test_plain_ppo_is_told_about_forbidden_actions() -> None:
    env = vectors(flatten=True)
    model = PPO("MlpPolicy", env, n_steps=16, batch_size=24, n_epochs=1, seed=0, policy_kwargs=POLICY)
    with pytest.raises(gpuyard.env.InvalidActionError, match='invalid="noop"'):
        model.learn(96)


@pytest.mark.parametrize("env_id", IDS)
def test_every_environment_trains(env_id: str) -> None:
    env = vectors(env_id)
    algorithm = PPO if env_id == "gpuyard/RankHosts-v0" else MaskablePPO
    options: Any = {"n_steps": 8, "batch_size": 8, "n_epochs": 1, "policy_kwargs": POLICY}
    algorithm("MultiInputPolicy", env, seed=0, **options).learn(24)


def test_training_with_the_same_seed_twice_gives_the_same_policy() -> None:
    def weights() -> Any:
        options: Any = {"n_steps": 16, "batch_size": 24, "n_epochs": 1, "policy_kwargs": POLICY}
        model = MaskablePPO("MultiInputPolicy", vectors(), seed=3, **options).learn(48)
        return [value.clone() for value in model.policy.state_dict().values()]

    assert all(torch.equal(a, b) for a, b in zip(weights(), weights(), strict=True))


def test_a_model_is_saved_loaded_and_evaluated_without_a_warning(tmp_path: Any) -> None:
    options: Any = {"n_steps": 16, "batch_size": 24, "n_epochs": 1, "policy_kwargs": POLICY}
    MaskablePPO("MultiInputPolicy", vectors(), seed=0, **options).learn(48).save(tmp_path / "model")
    model = MaskablePPO.load(tmp_path / "model", env=vectors(split="test"))
    env = model.get_env()
    assert env is not None
    returns, lengths = evaluate_masked(model, env, n_eval_episodes=3, return_episode_rewards=True)
    assert len(returns) == 3
    assert min(lengths) >= SMALL["jobs_per_episode"]


# --- Ends of episodes ---


@pytest.mark.parametrize("flatten", [False, True])
def test_the_end_of_an_episode_is_reported_as_stable_baselines_wants_it(flatten: bool) -> None:
    env = vectors(flatten=flatten)
    env.seed(5)
    env.reset()
    i, info, observation = run_to_an_end(env)
    assert info["TimeLimit.truncated"] is False
    assert env.observation_space.contains(info["terminal_observation"])
    assert info["episode"]["l"] == info["episode_metrics"]["length"] >= SMALL["jobs_per_episode"]
    assert info["episode"]["r"] == info["episode_metrics"]["return"]
    assert info["episode"]["t"] >= 0
    assert info["episode_metrics"]["completed_jobs"] == SMALL["jobs_per_episode"]
    assert np.flatnonzero(info["action_mask"]).tolist() == [len(info["action_mask"]) - 1]
    assert np.array_equal(env.reset_infos[i]["action_mask"], env.action_masks()[i])
    if not flatten:
        assert not np.array_equal(observation["jobs"][i], info["terminal_observation"]["jobs"])


def test_truncation_is_told_from_termination() -> None:
    env = vectors(max_steps=5)
    env.reset()
    _, info, _ = run_to_an_end(env)
    assert info["TimeLimit.truncated"] is True
    assert info["episode"]["l"] == 5
    assert info["episode_metrics"]["unfinished_jobs"] > 0


def test_infos_agree_with_a_single_environment_step_by_step() -> None:
    """The adapter, and SB3's own vector of the single environments, tell the same story."""
    native = vectors(count=2)
    own = DummyVecEnv([lambda: Monitor(gymnasium.make("gpuyard/SelectJob-v0", **SMALL))] * 2)
    for env in (native, own):
        env.seed(11)
    first, second = native.reset(), own.reset()
    ends = 0
    for _ in range(60):
        assert all(np.array_equal(first[name], second[name]) for name in first)
        masks = get_action_masks(native)
        assert np.array_equal(masks, get_action_masks(own))
        actions = np.array([np.flatnonzero(mask)[0] for mask in masks])
        first, rewards, dones, infos = native.step(actions)
        second, own_rewards, own_dones, own_infos = own.step(actions)
        assert np.array_equal(rewards, own_rewards)
        assert np.array_equal(dones, own_dones)
        for info, other in zip(infos, own_infos, strict=True):
            assert info.keys() == other.keys()
            assert np.array_equal(info["action_mask"], other["action_mask"])
            assert info["TimeLimit.truncated"] == other["TimeLimit.truncated"]
            if "episode" in info:
                ends += 1
                assert info["episode"]["l"] == other["episode"]["l"]
                assert info["episode"]["r"] == pytest.approx(other["episode"]["r"], abs=1e-6)
                assert info["episode_metrics"] == pytest.approx(other["episode_metrics"], nan_ok=True)
                last, other_last = info["terminal_observation"], other["terminal_observation"]
                assert all(np.array_equal(last[name], other_last[name]) for name in last)
    assert ends >= 4


def test_observations_outlive_the_next_step_whatever_the_vector_does() -> None:
    env = vectors(copy=False)
    env.seed(0)
    observation = env.reset()
    before = {name: part.copy() for name, part in observation.items()}
    _, _, _, infos = env.step(np.array(env.env_method("random_action")))
    mask = infos[0]["action_mask"].copy()
    env.step(np.array(env.env_method("random_action")))
    assert all(np.array_equal(observation[name], before[name]) for name in before)
    assert np.array_equal(infos[0]["action_mask"], mask)


# --- Seeds, options, attributes ---


def test_seeds_and_episodes_are_those_of_the_next_reset_alone() -> None:
    env = vectors()
    assert env.seed(7) == [7, 8, 9]
    first = env.reset()
    env.seed(7)
    assert np.array_equal(first["jobs"], env.reset()["jobs"])
    env.set_options({"episode": 40})
    same = env.reset()["nodes"]
    assert np.array_equal(same[0], same[1])
    env.set_options([{"episode": 1}, {}, {}])
    with pytest.raises(InputError, match="episode for every environment"):
        env.reset()


def test_environments_without_a_seed_differ() -> None:
    env = vectors(count=4, warmup_jobs=8)
    jobs = env.reset()["jobs"]
    assert any(not np.array_equal(jobs[0], other) for other in jobs[1:])


def test_methods_and_attributes_of_single_environments() -> None:
    env = vectors()
    env.seed(1)
    env.reset()
    masks = get_action_masks(env)
    assert masks.dtype == np.bool_
    assert masks.shape == (3, 65)
    assert is_masking_supported(env)
    assert np.array_equal(env.get_attr("action_masks", indices=2)[0](), masks[2])
    experts = env.env_method("expert_action", "sjf+easy", indices=[0, 2])
    assert all(masks[i, action] for i, action in zip((0, 2), experts, strict=True))
    assert env.get_attr("render_mode") == [None] * 3
    assert env.get_attr("num_envs", indices=0) == [3]
    assert not env.has_attr("nonsense")
    with pytest.raises(AttributeError, match="known: action_masks"):
        env.env_method("nonsense")
    env.set_attr("label", "x", indices=1)
    assert env.get_attr("label", indices=1) == ["x"]
    assert not env.has_attr("label")  # the others have none
    with pytest.raises(InputError, match="fixed when it is made"):
        env.set_attr("num_envs", 4)
    assert env.env_is_wrapped(Monitor) == [True] * 3
    assert env.env_is_wrapped(TransformReward, indices=0) == [False]
    env.close()


def test_wrappers_of_vectors_go_on_top() -> None:
    env = VecNormalize(vectors(flatten=True), norm_obs=False)
    options: Any = {"n_steps": 16, "batch_size": 24, "n_epochs": 1, "policy_kwargs": POLICY}
    MaskablePPO("MlpPolicy", env, seed=0, **options).learn(48)
    assert get_action_masks(env).shape == (3, 65)


@pytest.mark.parametrize("mode", [AutoresetMode.NEXT_STEP, AutoresetMode.DISABLED])
def test_other_ways_of_resetting_are_refused(mode: AutoresetMode) -> None:
    with pytest.raises(InputError, match="expected SameStep"):
        vectors(autoreset_mode=mode)


def test_other_environments_are_refused() -> None:
    with pytest.raises(InputError, match="SyncVectorEnv is not a native"):
        StableBaselinesVecEnv(
            gymnasium.make_vec("gpuyard/SelectJob-v0", num_envs=1, vectorization_mode="sync")
        )


# --- Single environments ---


def test_maskable_ppo_trains_on_the_single_environment_through_its_wrappers() -> None:
    env = gymnasium.make("gpuyard/SelectJob-v0", max_episode_steps=50, **SMALL)
    wrapped = TransformReward(env, lambda reward: 2.0 * reward)
    assert is_masking_supported(wrapped)
    wrapped.reset(seed=0)
    assert get_action_masks(wrapped).dtype == np.bool_
    options: Any = {"n_steps": 16, "batch_size": 8, "n_epochs": 1, "policy_kwargs": POLICY}
    MaskablePPO("MultiInputPolicy", wrapped, seed=0, **options).learn(32)


@pytest.mark.parametrize("env_id", IDS)
@pytest.mark.parametrize("flatten", [False, True])
def test_stable_baselines_finds_nothing_wrong_with_the_single_environments(
    env_id: str, flatten: bool
) -> None:
    settings = {**SMALL, "invalid": "noop", "flatten": flatten}
    check_env(gymnasium.make(env_id, **settings).unwrapped, warn=False, skip_render_check=True)


# --- The import ---


def test_environments_do_not_need_stable_baselines() -> None:
    code = "import sys, gpuyard.env; assert not {'torch', 'stable_baselines3'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_a_missing_stable_baselines_is_named_with_what_to_install() -> None:
    code = "import sys; sys.modules['stable_baselines3'] = None; import gpuyard.env.stable_baselines"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode != 0
    assert "InputError: Stable-Baselines3 is not installed" in done.stderr
    assert "pip install 'gpuyard[sb3]'" in done.stderr
