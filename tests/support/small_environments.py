"""Small environments of every kind, and ways to drive and to compare them."""

import random
from collections.abc import Mapping
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gpuyard.env import KINDS, SchedulingEnv, SchedulingVectorEnv
from gpuyard.workload import Workload
from gpuyard.workload.generators import preset_workload

KIND_NAMES = tuple(KINDS.values())
ID_OF = {kind: env_id for env_id, kind in KINDS.items()}
HOST_KINDS = ("select-host", "rank-hosts")
JOB_KINDS = ("select-job", "select-job-and-pool")

CLUSTER = "1x4:p100,2x4:v100"
DRAWS: dict[str, Any] = {"generator": {"preset": "bursty-8gpu", "jobs": 9, "max_gpus": 4}, "cluster": CLUSTER}
"""Episodes that a generator draws."""
COLD: dict[str, Any] = {"warmup_jobs": 0, "cooldown_jobs": 0}
"""Episodes begin with an empty cluster."""


@cache
def workload() -> Workload:
    """60 jobs of at most 4 GPUs, which fit on one node of the cluster."""
    return preset_workload("bursty-8gpu", jobs=60, max_gpus=4, seed=1).workload


def windows(**settings: Any) -> dict[str, Any]:
    """Arguments for episodes of 9 jobs of the workload."""
    usual = {"workload": workload(), "cluster": CLUSTER, "jobs_per_episode": 9, "window": 4, **COLD}
    return usual | _exact(settings) | settings


def draws(**settings: Any) -> dict[str, Any]:
    """Arguments for episodes of 9 jobs of a generator."""
    return DRAWS | {"window": 4} | _exact(settings) | settings


def _exact(settings: dict[str, Any]) -> dict[str, Any]:
    """True run times are known, unless settings say otherwise."""
    return {} if "simulation" in settings else {"estimates": "exact"}


def single(kind: str, **settings: Any) -> SchedulingEnv:
    """An environment of windows, unless told otherwise."""
    return SchedulingEnv(kind, **windows(**settings))


def vector(kind: str, num_envs: int = 3, **settings: Any) -> SchedulingVectorEnv:
    """A vector of environments of windows, unless told otherwise."""
    return SchedulingVectorEnv(kind, num_envs, **{"threads": 1} | windows(**settings))


def some_action(kind: str, mask: NDArray[Any], rng: random.Random) -> Any:
    """A legal action, by chance."""
    if kind == "rank-hosts":
        return np.array([rng.uniform(-1, 1) for _ in mask], dtype=np.float32)
    return rng.choice(np.flatnonzero(mask).tolist())


def some_actions(kind: str, masks: NDArray[Any], rng: random.Random) -> NDArray[Any]:
    """A legal action for every environment of a vector, and anything where none is."""
    return np.array([some_action(kind, mask if mask.any() else mask + 1, rng) for mask in masks])


def as_bytes(value: Any) -> Any:
    """Something that is equal if and only if what was returned is equal to the last bit, NaN included."""
    if isinstance(value, Mapping):
        return {name: as_bytes(part) for name, part in value.items()}
    if isinstance(value, tuple | list):
        return [as_bytes(part) for part in value]
    if isinstance(value, np.ndarray) and value.dtype == object:
        return [as_bytes(part) for part in value]
    array = np.asarray(value)
    return array.dtype.str, array.shape, array.tobytes()


def rest_of_episode(env: SchedulingEnv, seed: int = 0) -> list[Any]:
    """All that random legal actions give until the end of the episode, and its schedule."""
    rng, seen = random.Random(seed), []
    while True:
        result = env.step(some_action(env.model.kind, env.action_masks(), rng))
        seen.append(as_bytes(result))
        if result[2] or result[3]:
            return [*seen, as_bytes(env.schedule())]


def steps_of(env: SchedulingVectorEnv, steps: int, seed: int = 0) -> list[Any]:
    """All that random legal actions give in so many steps of a vector."""
    rng = random.Random(seed)
    return [as_bytes(env.step(some_actions(env.model.kind, env.action_masks(), rng))) for _ in range(steps)]


def at(values: Any, i: int) -> Any:
    """What a vector's result holds for environment i; entries that begin with _ are left out."""
    if isinstance(values, Mapping):
        return {name: at(part, i) for name, part in values.items() if not name.startswith("_")}
    return values[i]
