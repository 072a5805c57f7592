"""Many environments as one Gymnasium vector environment, stepped natively."""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space
from numpy.typing import NDArray

from gpuyard import _core
from gpuyard.cluster.model import Cluster
from gpuyard.config import available_cores
from gpuyard.env.busy import busy_margins
from gpuyard.env.registration import checked_kind
from gpuyard.env.spaces import action_space, observation_space
from gpuyard.errors import InputError
from gpuyard.observation.buffers import make_buffers, observation_shapes
from gpuyard.observation.config import read_settings
from gpuyard.observation.episodes import find_source
from gpuyard.observation.presets import preset_settings
from gpuyard.observation.spec import EnvModel, acting_policy
from gpuyard.workload import Workload
from gpuyard.workload.generators.base import GeneratorConfig

_MODES = {
    AutoresetMode.SAME_STEP: "same-step",
    AutoresetMode.NEXT_STEP: "next-step",
    AutoresetMode.DISABLED: "off",
}
METRICS = tuple(_core.EPISODE_METRICS)


_IMPORTED_IN = os.getpid()


def _refuse_forks() -> None:
    if os.getpid() != _IMPORTED_IN:
        raise InputError(
            "an environment is being made in a forked process, in which the library that reads workloads "
            "hangs; use the native vector (gymnasium.make_vec without vectorization_mode), or start "
            'processes afresh (context="forkserver" or "spawn")'
        )


def make_model(
    kind: str,
    workload: Workload | str | Path | None,
    generator: GeneratorConfig | Mapping[str, Any] | str | None,
    cluster: Cluster | str | None,
    preset: str | None,
    settings: Mapping[str, Any],
) -> EnvModel:
    """What the arguments of an environment ask for."""
    kind = checked_kind(kind)
    _refuse_forks()
    sources = {"workload": workload, "generator": generator, "cluster": cluster}
    given: dict[str, Any] = {name: value for name, value in sources.items() if value is not None}
    given |= settings
    if preset is not None:
        given = preset_settings(preset, kind, given)
    jobs, drawn, machines = (given.pop(name, None) for name in ("workload", "generator", "cluster"))
    config = read_settings(given)
    return EnvModel(kind, config, find_source(kind, config, jobs, drawn, machines), busy_margins)


class SchedulingVectorEnv(VectorEnv[Any, Any, Any]):
    """``num_envs`` environments (docs/contract/mdp.md), stepped by ``threads`` threads.

    Args:
        kind: Such as ``select-job``.
        num_envs: How many there are.
        workload: Jobs to draw windows from: a workload, a file, or the name of a built-in one.
        generator: Draws the jobs of every episode anew, instead of a workload.
        cluster: What they run on.
        preset: Settings by name (``gpuyard env list``); what is given beside it takes precedence.
        threads: None: one a processor.
        autoreset_mode: ``SAME_STEP`` (the default), ``NEXT_STEP`` or ``DISABLED``.
        copy: Return copies of the arrays. Without, they are overwritten by the next step.
        buffers: Arrays to write into, by name, such as ``jobs`` or ``reward``; what is missing is allocated.
        max_episode_steps: The same as the setting ``max_steps``.
        settings: Fields of ``EnvConfig``.
    """

    metadata: dict[str, Any] = {"render_modes": [], "autoreset_mode": AutoresetMode.SAME_STEP}  # noqa: RUF012

    def __init__(
        self,
        kind: str,
        num_envs: int = 1,
        *,
        workload: Workload | str | Path | None = None,
        generator: GeneratorConfig | Mapping[str, Any] | str | None = None,
        cluster: Cluster | str | None = None,
        preset: str | None = None,
        threads: int | None = None,
        autoreset_mode: AutoresetMode | str = AutoresetMode.SAME_STEP,
        copy: bool = True,
        buffers: Mapping[str, NDArray[Any]] | None = None,
        max_episode_steps: int | None = None,
        render_mode: str | None = None,
        **settings: Any,
    ) -> None:
        if render_mode is not None:
            raise InputError(
                "a vector of environments is not rendered; make a single one with gymnasium.make"
            )
        if num_envs < 1 or (threads is not None and threads < 1):
            raise InputError("num_envs and threads must be at least 1")
        if max_episode_steps is not None:
            settings.setdefault("max_steps", max_episode_steps)
        self.model = make_model(kind, workload, generator, cluster, preset, settings)
        self.num_envs = num_envs
        self.autoreset_mode = _autoreset(autoreset_mode)
        self.metadata = {**self.metadata, "autoreset_mode": self.autoreset_mode}
        self.single_observation_space = observation_space(self.model)
        self.single_action_space = action_space(self.model)
        self.observation_space = batch_space(self.single_observation_space, num_envs)
        self.action_space = batch_space(self.single_action_space, num_envs)
        self._copy = copy
        self._ranks = self.model.kind == "rank-hosts"
        self._buffers = make_buffers(self.model, num_envs, buffers)
        self._parts = tuple(observation_shapes(self.model))
        workers = min(threads or available_cores(), num_envs)
        self._core = _core.VectorEnv(self.model.spec, num_envs, workers, _MODES[self.autoreset_mode])
        self._core.attach(self._buffers)
        self.model.supply(self._core)
        self._seeds = np.zeros(num_envs, dtype=np.uint64)
        self._drawn = np.zeros(num_envs, dtype=np.int64)  # episodes, since the seed was set
        self._awaiting = np.zeros(num_envs, dtype=np.bool_)  # begin anew in the next step
        self._all = np.ones(num_envs, dtype=np.bool_)
        self._begun = False

    # --- Gymnasium ---

    def reset(
        self,
        *,
        seed: int | list[int | None] | None = None,
        options: dict[str, Any] | None = None,
    ) -> tuple[Any, dict[str, Any]]:
        """Begin episodes: in all environments, or in those that ``options["reset_mask"]`` marks.

        Args:
            seed: Environment i gets seed + i; or one seed an environment. None: their draws go on.
            options: ``reset_mask``; ``episode``: which episode, a number or one an environment.
        """
        options = dict(options or {})
        which = self._which(options.pop("reset_mask", None))
        episode = options.pop("episode", None)
        if options:
            raise InputError(f"unknown option {next(iter(options))!r} of reset; known: episode, reset_mask")
        names = None if episode is None else self._episode_names(episode)
        if seed is None and not self._begun:
            seed = int(self.np_random.integers(2**31))
        seeded = self._set_seeds(seed, which)  # from here on nothing can be wrong with the arguments
        self._begun = True
        for i in np.flatnonzero(which):
            if names is not None:
                self.model.give_named(self._core, int(i), names[i])
            elif self.model.draws:
                self.model.give(self._core, int(i), int(self._seeds[i]), int(self._drawn[i]))
        if seeded.any():
            self._core.reset(self._seeds, seeded.view(np.uint8))
        if (which & ~seeded).any():
            self._core.reset(None, (which & ~seeded).view(np.uint8))
        self._awaiting[which] = False
        self._have_begun(which, drawn=names is None)
        return self._observation(), {**self._masks()}

    def resume(self, seeds: Sequence[int], drawn: Sequence[int], actions: Sequence[NDArray[Any]]) -> Any:
        """Put every environment back where it was, and return the observation.

        Args:
            seeds: Of each environment.
            drawn: Which episode of its seed each one is in, from 0.
            actions: What it did since that episode began, in order.

        Raises:
            InvalidActionError: if an action cannot be repeated: it was taken in another environment.
        """
        for i, (seed, number, done) in enumerate(zip(seeds, drawn, actions, strict=True)):
            if self.model.draws:
                self.model.give(self._core, i, seed, number)
            chosen = None if self._ranks else np.ascontiguousarray(done, dtype=np.int64)
            ranked = np.ascontiguousarray(done, dtype=np.float32).reshape(-1) if self._ranks else None
            self._core.resume(i, seed, number, chosen, ranked)
        self._seeds[:] = seeds
        self._drawn[:] = drawn
        self._begun = True
        self._awaiting[:] = False
        self._have_begun(self._all)
        return self._observation()

    def _which(self, mask: Any) -> NDArray[np.bool_]:
        if mask is None:
            return self._all
        if not isinstance(mask, np.ndarray) or mask.dtype != np.bool_ or mask.shape != (self.num_envs,):
            raise InputError(f"reset_mask must be a numpy array of bool, shape ({self.num_envs},)")
        return mask

    def _episode_names(self, episode: Any) -> list[int]:
        names = [episode] * self.num_envs if np.ndim(episode) == 0 else list(episode)
        if len(names) != self.num_envs:
            raise InputError(f"{len(names)} episodes for {self.num_envs} environments; give one, or one each")
        return [self.model.check_name(name) for name in names]

    def _set_seeds(self, seed: Any, which: NDArray[np.bool_]) -> NDArray[np.bool_]:
        """Take new seeds, and say which environments have one."""
        if seed is None:
            return np.zeros(self.num_envs, dtype=np.bool_)
        if isinstance(seed, list | tuple | np.ndarray):
            given = list(seed)
        else:
            check_seed(seed)
            super().reset(seed=int(seed))
            given = [seed + i for i in range(self.num_envs)]
        if len(given) != self.num_envs:
            raise InputError(f"{len(given)} seeds for {self.num_envs} environments")
        for value in given:
            check_seed(value)
        seeded = np.array([value is not None for value in given]) & which
        for i in np.flatnonzero(seeded):
            self._seeds[i] = given[i]
            self._drawn[i] = 0
        return seeded

    def step(self, actions: Any) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        """Act in every environment.

        Raises:
            InvalidActionError: for an action that cannot be executed; then nothing has changed.
        """
        if self._ranks:
            self._core.step_ranked(self._ranked(actions))
        else:
            self._core.step(self._discrete(actions))
        b = self._buffers
        infos = self._masks()
        ended = b["ended"].view(np.bool_).copy()
        if self._awaiting.any():
            self._have_begun(self._awaiting)
            self._awaiting[:] = False
        if ended.any():
            self._report(infos, ended)
        rewards, terminated, truncated = b["reward"], b["terminated"], b["truncated"]
        if self._copy:
            rewards, terminated, truncated = rewards.copy(), terminated.copy(), truncated.copy()
        return self._observation(), rewards, terminated.view(np.bool_), truncated.view(np.bool_), infos

    def _discrete(self, actions: Any) -> NDArray[np.int64]:
        array = as_array(actions)
        if array.shape != (self.num_envs,) or array.dtype.kind not in "iu":
            raise InputError(
                f"actions have shape {array.shape} and type {array.dtype}; expected one whole number for "
                f"each of the {self.num_envs} environments"
            )
        return np.ascontiguousarray(array, dtype=np.int64)

    def _ranked(self, actions: Any) -> NDArray[np.float32]:
        array = as_array(actions)
        if array.shape != (self.num_envs, self.model.hosts) or array.dtype.kind not in "fiu":
            raise InputError(
                f"actions have shape {array.shape} and type {array.dtype}; expected numbers of shape "
                f"{(self.num_envs, self.model.hosts)}, a priority for each host"
            )
        return as_priorities(array).reshape(-1)

    def _observation(self) -> Any:
        if self.model.config.flatten:
            return self._buffers["flat"].copy() if self._copy else self._buffers["flat"]
        return {
            name: self._buffers[name].copy() if self._copy else self._buffers[name] for name in self._parts
        }

    def _masks(self) -> dict[str, Any]:
        mask = self._buffers["mask"]
        return {"action_mask": mask.copy() if self._copy else mask, "_action_mask": self._all.copy()}

    def _report(self, infos: dict[str, Any], ended: NDArray[np.bool_]) -> None:
        """Metrics of the episodes that have ended, and the next ones where they must be given."""
        b = self._buffers
        values = {"return": b["episode_return"].copy(), "length": b["episode_length"].copy()}
        values |= dict(zip(METRICS, b["metrics"].T.copy(), strict=True))
        metrics = {"episode_metrics": values, "_episode_metrics": ended}
        if self.autoreset_mode is not AutoresetMode.SAME_STEP:
            infos |= metrics
            self._awaiting[:] = ended if self.autoreset_mode is AutoresetMode.NEXT_STEP else False
            return
        final = np.full(self.num_envs, None, dtype=object)
        for i in np.flatnonzero(ended):
            parts = {name: b[f"last_{name}"][i].copy() for name in self._parts}
            final[i] = parts["flat"] if self.model.config.flatten else parts
        masks = {"action_mask": b["last_mask"].copy(), "_action_mask": ended}
        infos |= {
            "final_obs": final,
            "_final_obs": ended,
            "final_info": {**masks, **metrics},
            "_final_info": ended,
        }
        self._have_begun(ended)

    def _have_begun(self, which: NDArray[np.bool_], *, drawn: bool = True) -> None:
        """Episodes have begun; give those that will begin by themselves when these end."""
        if not self.model.draws:
            return
        self._drawn[which] += int(drawn)
        if self.autoreset_mode is not AutoresetMode.DISABLED:
            for i in np.flatnonzero(which):
                self.model.give(self._core, int(i), int(self._seeds[i]), int(self._drawn[i]))

    # --- Beyond Gymnasium ---

    def action_masks(self) -> NDArray[np.bool_]:
        """Which actions can be executed now, a row an environment."""
        return self._buffers["mask"].astype(np.bool_)

    def expert_actions(self, policy: str) -> NDArray[Any]:
        """What a policy would do in every environment (docs/contract/mdp.md, "Experts")."""
        numbers = self._core.expert_actions(acting_policy(policy, self.model.kind).compile())
        return self._as_actions(numbers)

    def random_actions(self) -> NDArray[Any]:
        """An action for every environment, all legal ones equally likely, by seed, episode and step."""
        return self._as_actions(self._core.random_actions())

    def _as_actions(self, numbers: NDArray[np.int64]) -> NDArray[Any]:
        """Where hosts are ranked, 1 for the host of that number and 0 for the others."""
        if not self._ranks:
            return numbers
        ranks = np.zeros((self.num_envs, self.model.hosts), dtype=np.float32)
        ranks[np.arange(self.num_envs), numbers] = 1.0
        return ranks


def _autoreset(mode: AutoresetMode | str) -> AutoresetMode:
    for known in AutoresetMode:
        if mode in (known, known.name, known.value):
            return known
    raise InputError(f"autoreset_mode {mode!r}: expected {', '.join(known.name for known in AutoresetMode)}")


def check_seed(seed: Any) -> None:
    """Raise an InputError unless it is a seed or None."""
    if seed is not None and not (isinstance(seed, int | np.integer) and 0 <= seed < 2**63):
        raise InputError(f"seed {seed!r} is not a whole number from 0 to 2^63 - 1")


def as_array(actions: Any) -> NDArray[Any]:
    """Actions as an array."""
    try:
        return np.asarray(actions)
    except ValueError as error:
        raise InputError(f"actions are no array: {error}") from None


def as_priorities(array: NDArray[Any]) -> NDArray[np.float32]:
    """Priorities of hosts as the core takes them; what float32 cannot hold becomes the largest it can."""
    largest = float(np.finfo(np.float32).max)
    clipped = np.where(np.isfinite(array), np.clip(array, -largest, largest), array)
    return np.ascontiguousarray(clipped, dtype=np.float32)
