"""The arrays that the core writes into."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gpuyard import _core
from gpuyard.errors import InputError
from gpuyard.observation.spec import EnvModel
from gpuyard.registry import suggest

Arrays = dict[str, NDArray[Any]]


def observation_shapes(model: EnvModel) -> dict[str, tuple[tuple[int, ...], Any]]:
    """Shape and type of the parts of one environment's observation, by name."""
    mask = {"mask": ((model.actions,), np.int8)}
    if model.config.flatten:
        width = sum(int(np.prod(part.shape)) for part in model.parts.values()) + model.actions
        return {"flat": ((width,), np.float32), **mask}
    return {**{name: (part.shape, np.float32) for name, part in model.parts.items()}, **mask}


def make_buffers(model: EnvModel, count: int, given: Mapping[str, Any] | None = None) -> Arrays:
    """Arrays for ``count`` environments; those that the caller owns are taken as they are.

    Raises:
        InputError: for a given array of another name, type, shape or layout than is written into it.
    """
    observations = observation_shapes(model)
    step = {
        "reward": ((), np.float64),
        "terminated": ((), np.uint8),
        "truncated": ((), np.uint8),
        "ended": ((), np.uint8),
        "episode_return": ((), np.float64),
        "episode_length": ((), np.int64),
        "metrics": ((len(_core.EPISODE_METRICS),), np.float64),
    }
    wanted = {**observations, **{f"last_{name}": what for name, what in observations.items()}, **step}
    for name in given or {}:
        if name not in wanted:
            raise InputError(f"unknown buffer {name!r}{suggest(name, wanted)}")
    return {
        name: _checked(name, (given or {})[name], (count, *shape), dtype)
        if name in (given or {})
        else np.zeros((count, *shape), dtype)
        for name, (shape, dtype) in wanted.items()
    }


def _checked(name: str, array: Any, shape: tuple[int, ...], dtype: Any) -> NDArray[Any]:
    expected = f"expected a writeable C-contiguous numpy array of {np.dtype(dtype)}, shape {shape}"
    if not isinstance(array, np.ndarray):
        raise InputError(f"buffer {name} is a {type(array).__name__}; {expected}")
    if array.dtype != dtype or array.shape != shape:
        raise InputError(f"buffer {name} has type {array.dtype} and shape {array.shape}; {expected}")
    if not (array.flags.c_contiguous and array.flags.writeable):
        raise InputError(f"buffer {name} is not contiguous or cannot be written; {expected}")
    return array
