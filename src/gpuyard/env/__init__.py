"""The simulator as Gymnasium environments (docs/environments.md). Importing it registers their ids."""

from gpuyard._core import InvalidActionError
from gpuyard.env.config import EnvConfig
from gpuyard.env.registration import KINDS, register_environments
from gpuyard.env.single import SchedulingEnv
from gpuyard.env.vector import SchedulingVectorEnv

register_environments()

__all__ = [
    "KINDS",
    "EnvConfig",
    "InvalidActionError",
    "SchedulingEnv",
    "SchedulingVectorEnv",
]
