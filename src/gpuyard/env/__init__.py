"""The simulator as Gymnasium environments (docs/guide/environments.md). Importing it registers their ids."""

from gpuyard._core import InvalidActionError
from gpuyard.env.registration import KINDS, register_environments
from gpuyard.env.single import SchedulingEnv
from gpuyard.env.vector import SchedulingVectorEnv
from gpuyard.observation.config import EnvConfig

register_environments()

__all__ = [
    "KINDS",
    "EnvConfig",
    "InvalidActionError",
    "SchedulingEnv",
    "SchedulingVectorEnv",
]
