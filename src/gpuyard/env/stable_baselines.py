"""Train with Stable-Baselines3 and sb3-contrib on native vector environments (docs/guide/environments.md).

    from gpuyard.env.stable_baselines import StableBaselinesVecEnv
    from sb3_contrib import MaskablePPO

    env = StableBaselinesVecEnv(gymnasium.make_vec("gpuyard/SelectJob-v0", num_envs=8))
    MaskablePPO("MultiInputPolicy", env).learn(100_000)

Nothing else in the package imports this module: Stable-Baselines3 is optional.
"""

import time
from collections.abc import Iterable, Sequence
from functools import partial
from typing import Any

import gymnasium
import numpy as np
from gymnasium.vector import AutoresetMode
from numpy.typing import NDArray

from gpuyard.env.vector import SchedulingVectorEnv
from gpuyard.errors import InputError

try:
    from stable_baselines3.common.monitor import Monitor
    from stable_baselines3.common.vec_env import VecEnv
except ImportError as error:
    raise InputError(
        "Stable-Baselines3 is not installed, which gpuyard.env.stable_baselines needs; "
        "pip install 'gpuyard[sb3]' brings it"
    ) from error

Indices = int | Iterable[int] | None
Info = dict[str, Any]

_BY_ENVIRONMENT = {
    "action_masks": "action_masks",
    "expert_action": "expert_actions",
    "random_action": "random_actions",
}
"""Methods of a single environment, and those of the vector that answer for all environments at once."""


class StableBaselinesVecEnv(VecEnv):
    """A native vector environment as Stable-Baselines3 wants it.

    Episodes begin again by themselves. The step that ends one reports ``terminal_observation``,
    ``TimeLimit.truncated``, ``episode`` (return ``r``, length ``l``, seconds since the environment was made
    ``t``) and ``episode_metrics`` in the environment's info: no Monitor is needed.

    Args:
        env: Such as ``gymnasium.make_vec("gpuyard/SelectJob-v0", num_envs=8)``.

    Raises:
        InputError: for another kind of environment, or another autoreset mode than ``SAME_STEP``.
    """

    def __init__(self, env: gymnasium.vector.VectorEnv[Any, Any, Any]) -> None:
        if not isinstance(env, SchedulingVectorEnv):
            raise InputError(
                f"{type(env).__name__} is not a native vector environment; expected one such as "
                "gymnasium.make_vec('gpuyard/SelectJob-v0', num_envs=8) (single ones need no adapter)"
            )
        if env.autoreset_mode is not AutoresetMode.SAME_STEP:
            raise InputError(
                f"Stable-Baselines3 wants episodes to begin in the step that ends the last: autoreset_mode "
                f"{env.autoreset_mode.value}, expected {AutoresetMode.SAME_STEP.value}"
            )
        self.env = env
        self._own: list[dict[str, Any]] = [{} for _ in range(env.num_envs)]
        self._actions: Any = None
        self._begun = False
        self._made_at = time.monotonic()
        super().__init__(env.num_envs, env.single_observation_space, env.single_action_space)

    # --- Episodes ---

    def reset(self) -> Any:
        """Begin an episode in every environment, with the seeds and options set since the last call."""
        if not self._begun and all(seed is None for seed in self._seeds):
            self.seed()
        seeded = any(seed is not None for seed in self._seeds)
        observation, info = self.env.reset(
            seed=list(self._seeds) if seeded else None, options=self._reset_option()
        )
        self._begun = True
        self._reset_seeds()
        self._reset_options()
        self.reset_infos = [{"action_mask": mask.copy()} for mask in info["action_mask"]]
        return _copied(observation)

    def _reset_option(self) -> dict[str, Any] | None:
        """The options of all environments in one."""
        if not any(self._options):
            return None
        names = {name for options in self._options for name in options}
        if names != {"episode"} or not all(self._options):
            raise InputError(
                "set_options takes an episode for every environment, such as {'episode': 0}, and nothing else"
            )
        return {"episode": [options["episode"] for options in self._options]}

    def step_async(self, actions: NDArray[Any]) -> None:
        """Note the actions of the next step."""
        self._actions = actions

    def step_wait(self) -> tuple[Any, NDArray[np.float32], NDArray[np.bool_], list[Info]]:
        """Act in every environment."""
        observation, rewards, terminated, truncated, info = self.env.step(self._actions)
        dones = terminated | truncated
        masks = info["action_mask"].copy()
        infos: list[Info] = [{"action_mask": mask, "TimeLimit.truncated": False} for mask in masks]
        for i in np.flatnonzero(dones):
            infos[i] = self._last_info(int(i), info, truncated=bool(truncated[i] and not terminated[i]))
            self.reset_infos[i] = {"action_mask": masks[i]}
        return _copied(observation), rewards.astype(np.float32), dones, infos

    def _last_info(self, i: int, info: Info, *, truncated: bool) -> Info:
        """What the step that ended the episode of an environment tells about it."""
        last = info["final_info"]
        metrics = {name: values[i].item() for name, values in last["episode_metrics"].items()}
        return {
            "action_mask": last["action_mask"][i].copy(),
            "TimeLimit.truncated": truncated,
            "terminal_observation": info["final_obs"][i],
            "episode": {
                "r": metrics["return"],
                "l": metrics["length"],
                "t": round(time.monotonic() - self._made_at, 6),
            },
            "episode_metrics": metrics,
        }

    def close(self) -> None:
        """Close the vector environment."""
        self.env.close()

    def get_images(self) -> Sequence[NDArray[Any] | None]:
        """None: vectors are not rendered."""
        return [None] * self.num_envs

    # --- Single environments ---

    def action_masks(self) -> NDArray[np.bool_]:
        """Which actions can be executed now, a row an environment."""
        return self.env.action_masks()

    def get_attr(self, attr_name: str, indices: Indices = None) -> list[Any]:
        """An attribute of single environments: one that was set, a method, or what they have in common."""
        return [self._attribute(attr_name, i) for i in self._get_indices(indices)]

    def _attribute(self, name: str, i: int) -> Any:
        if name in self._own[i]:
            return self._own[i][name]
        if name in _BY_ENVIRONMENT:
            return partial(self._ask_one, name, i)
        return getattr(self.env, name)

    def _ask_one(self, name: str, i: int, *arguments: Any, **named: Any) -> Any:
        return self.env_method(name, *arguments, indices=i, **named)[0]

    def set_attr(self, attr_name: str, value: Any, indices: Indices = None) -> None:
        """Note something about single environments, for ``get_attr``.

        Raises:
            InputError: for what environments have by themselves; it is fixed when they are made.
        """
        if attr_name in _BY_ENVIRONMENT or hasattr(self.env, attr_name):
            raise InputError(f"{attr_name} of an environment is fixed when it is made and cannot be set")
        for i in self._get_indices(indices):
            self._own[i][attr_name] = value

    def env_method(
        self, method_name: str, *method_args: Any, indices: Indices = None, **method_kwargs: Any
    ) -> list[Any]:
        """Call ``action_masks``, ``expert_action`` or ``random_action`` of single environments."""
        if method_name not in _BY_ENVIRONMENT:
            raise AttributeError(f"no method {method_name!r}; known: {', '.join(_BY_ENVIRONMENT)}")
        answers = getattr(self.env, _BY_ENVIRONMENT[method_name])(*method_args, **method_kwargs)
        return [answers[i] for i in self._get_indices(indices)]

    def env_is_wrapped(
        self, wrapper_class: type[gymnasium.Wrapper[Any, Any, Any, Any]], indices: Indices = None
    ) -> list[bool]:
        """Whether single environments do what a wrapper does: they report episodes as a Monitor does."""
        return [issubclass(wrapper_class, Monitor) for _ in self._get_indices(indices)]


def _copied(observation: Any) -> Any:
    """Stable-Baselines3 stores observations after the next step: with ``copy=False`` they would be gone."""
    if isinstance(observation, dict):
        return {name: part.copy() for name, part in observation.items()}
    return observation.copy()
