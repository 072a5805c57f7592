"""One environment with Gymnasium's single API."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
from numpy.typing import NDArray

from gpuyard import _core
from gpuyard.cluster.model import Cluster
from gpuyard.env.rendering.text import draw_text, paint
from gpuyard.env.spaces import action_space, observation_space
from gpuyard.env.vector import METRICS, as_array, as_priorities, check_seed, make_model
from gpuyard.errors import InputError
from gpuyard.observation.buffers import make_buffers, observation_shapes
from gpuyard.observation.spec import acting_policy
from gpuyard.workload import Workload
from gpuyard.workload.generators.base import GeneratorConfig


class LegalActions(gymnasium.spaces.Discrete):
    """All actions; what is sampled without a mask can be executed now.

    So the usual loop with ``env.action_space.sample()`` runs, and ``check_env`` passes.
    """

    def __init__(self, n: int, mask: NDArray[np.int8]) -> None:
        super().__init__(n)
        self._legal_now = mask

    def sample(self, mask: Any = None, probability: Any = None) -> np.int64:
        """One action."""
        if mask is None and probability is None and self._legal_now.any():
            mask = self._legal_now
        return super().sample(mask, probability)


class SchedulingEnv(gymnasium.Env[Any, Any]):
    """A scheduling environment (docs/contract/mdp.md). Arguments as for ``SchedulingVectorEnv``."""

    metadata: dict[str, Any] = {"render_modes": ["ansi", "rgb_array"], "render_fps": 8}  # noqa: RUF012

    def __init__(
        self,
        kind: str,
        *,
        workload: Workload | str | Path | None = None,
        generator: GeneratorConfig | Mapping[str, Any] | str | None = None,
        cluster: Cluster | str | None = None,
        preset: str | None = None,
        render_mode: str | None = None,
        **settings: Any,
    ) -> None:
        if render_mode not in (None, *self.metadata["render_modes"]):
            raise InputError(f"render_mode {render_mode!r}: expected ansi or rgb_array")
        self.render_mode = render_mode
        self.model = make_model(kind, workload, generator, cluster, preset, settings)
        self.observation_space = observation_space(self.model)
        self._ranks = self.model.kind == "rank-hosts"
        self._buffers = make_buffers(self.model, 1)
        self.action_space = (
            action_space(self.model)
            if self._ranks
            else LegalActions(self.model.actions, self._buffers["mask"][0])
        )
        self._parts = tuple(observation_shapes(self.model))
        self._core = _core.VectorEnv(self.model.spec, 1, 1, "off")
        self._core.attach(self._buffers)
        self.model.supply(self._core)
        self._seed = 0
        self._episodes = 0
        self._begun = False

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """Begin an episode.

        Args:
            seed: Starts the draws of episodes again; without one at the first call, the seed is drawn.
            options: ``episode``: which one, by first row or by the generator's seed.
        """
        check_seed(seed)
        options = dict(options or {})
        episode = options.pop("episode", None)
        if options:
            raise InputError(f"unknown option {next(iter(options))!r} of reset; known: episode")
        name = None if episode is None else self.model.check_name(episode)
        super().reset(seed=seed)
        if seed is None and not self._begun:
            seed = int(self.np_random.integers(2**31))
        if seed is not None:
            self._seed, self._episodes = seed, 0
        if name is not None:
            self.model.give_named(self._core, 0, name)
        elif self.model.draws:
            self.model.give(self._core, 0, self._seed, self._episodes)
            self._episodes += 1
        self._core.reset(None if seed is None else np.array([seed], np.uint64), None)
        self._begun = True
        return self._observation(), self._info()

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Act.

        Raises:
            InvalidActionError: for an action that cannot be executed; then nothing has changed.
        """
        if self._ranks:
            self._core.step_ranked(self._priorities(action))
        else:
            self._core.step(self._number(action))
        info = self._info()
        if self._buffers["ended"][0]:
            values = dict(zip(METRICS, self._buffers["metrics"][0].tolist(), strict=True))
            length = int(self._buffers["episode_length"][0])
            info["episode_metrics"] = {
                "return": float(self._buffers["episode_return"][0]),
                "length": length,
                **values,
            }
        reward, ended = float(self._buffers["reward"][0]), bool(self._buffers["terminated"][0])
        return self._observation(), reward, ended, bool(self._buffers["truncated"][0]), info

    def _number(self, action: Any) -> NDArray[np.int64]:
        array = as_array(action)
        if array.shape not in ((), (1,)) or array.dtype.kind not in "iu":
            raise InputError(
                f"action {action!r} is not a whole number between 0 and {self.model.actions - 1}"
            )
        return array.reshape(1).astype(np.int64)

    def _priorities(self, action: Any) -> NDArray[np.float32]:
        array = as_array(action)
        if array.shape != (self.model.hosts,) or array.dtype.kind not in "fiu":
            raise InputError(
                f"action has shape {array.shape} and type {array.dtype}; expected {self.model.hosts} "
                "numbers, a priority for each host"
            )
        return as_priorities(array)

    def _observation(self) -> Any:
        if self.model.config.flatten:
            return self._buffers["flat"][0].copy()
        return {name: self._buffers[name][0].copy() for name in self._parts}

    def _info(self) -> dict[str, Any]:
        return {"action_mask": self._buffers["mask"][0].copy()}

    def action_masks(self) -> NDArray[np.bool_]:
        """Which actions can be executed now; what sb3-contrib's MaskablePPO asks for."""
        mask: NDArray[np.bool_] = self._buffers["mask"][0].astype(np.bool_)
        return mask

    def expert_action(self, policy: str) -> Any:
        """What a policy would do now (docs/contract/mdp.md, "Experts")."""
        return self._as_action(self._core.expert_actions(acting_policy(policy, self.model.kind).compile())[0])

    def random_action(self) -> Any:
        """One of the legal actions, all equally likely, by seed, episode and step."""
        self._check_begun()
        return self._as_action(self._core.random_actions()[0])

    def _as_action(self, number: Any) -> Any:
        """Where hosts are ranked, 1 for the host of that number and 0 for the others."""
        if not self._ranks:
            return int(number)
        return np.eye(1, self.model.hosts, int(number), dtype=np.float32)[0]

    def snapshot(self) -> _core.Snapshot:
        """What a scheduler could know now."""
        self._check_begun()
        return self._core.snapshot(0)

    def schedule(self) -> dict[str, Any]:
        """What has happened in the episode so far: when and where its jobs ran, microseconds.

        A start or end that has not happened is -1. The first ``warmup`` and the last ``cooldown`` of the jobs
        are not those of the window.
        """
        self._check_begun()
        record = self._core.record(0)
        end_us = record["end_us"]
        return {**record, "end_us": np.where(end_us <= record["now_us"], end_us, -1)}

    def _check_begun(self) -> None:
        if not self._begun:
            raise InputError("no episode has begun; call reset() first")

    def render(self) -> Any:
        """The cluster and the queue: text (``ansi``) or a picture (``rgb_array``)."""
        if self.render_mode is None or not self._begun:
            return None
        snapshot, clock_s = self._core.snapshot(0), self._core.clock_s(0)
        window = self._core.window(0)
        draw = draw_text if self.render_mode == "ansi" else paint
        return draw(snapshot, clock_s, window)
