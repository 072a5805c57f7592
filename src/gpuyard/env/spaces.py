"""Gymnasium's spaces of an environment, from the description of its observations."""

from typing import Any

import numpy as np
from gymnasium import spaces

from gpuyard.observation.spec import EnvModel


def observation_space(model: EnvModel) -> spaces.Space[Any]:
    """What one environment observes."""
    bounds = {name: part.bounds() for name, part in model.parts.items()}
    if model.config.flatten:
        mask = np.ones(model.actions, dtype=np.float32)
        low = np.concatenate([*(low.ravel() for low, _ in bounds.values()), 0 * mask])
        high = np.concatenate([*(high.ravel() for _, high in bounds.values()), mask])
        return spaces.Box(low, high, dtype=np.float32)
    parts: dict[str, spaces.Space[Any]] = {
        name: spaces.Box(low, high, dtype=np.float32) for name, (low, high) in bounds.items()
    }
    return spaces.Dict({**parts, "mask": spaces.MultiBinary(model.actions)})


def action_space(model: EnvModel) -> spaces.Space[Any]:
    """What one environment can be asked to do."""
    if model.kind == "rank-hosts":
        return spaces.Box(-1.0, 1.0, (model.hosts,), dtype=np.float32)
    return spaces.Discrete(model.actions)
