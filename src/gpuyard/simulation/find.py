"""Policies by name: heuristics by their grammar, learned ones by the path or name of a model."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gpuyard.errors import InputError
from gpuyard.policies.grammar import PolicySpec, parse_policy
from gpuyard.runs.directory import FOLDER

if TYPE_CHECKING:
    from gpuyard import _core
    from gpuyard.cluster.model import Cluster
    from gpuyard.config import SimulationConfig
    from gpuyard.native.inputs import CoreInputs
    from gpuyard.workload import Workload

SHIPPED = "model:"
"""What names of models begin with that come with gpuyard."""


class ReplayingPolicy(ABC):
    """A policy that is not made of rules, and runs a whole workload in the core.

    Attributes:
        name: As it was asked for.
    """

    name: str

    @abstractmethod
    def check_supported(self, workload: "Workload", cluster: "Cluster", config: "SimulationConfig") -> None:
        """Raise an InputError unless the policy can run these jobs on this cluster."""

    @abstractmethod
    def replay(
        self,
        workload: "Workload",
        cluster: "Cluster",
        config: "SimulationConfig",
        history: "Workload | None" = None,
        progress: Callable[[int], None] | None = None,
    ) -> "tuple[CoreInputs, dict[str, Any]]":
        """Run all jobs to their end: the simulation as the core took it, and the arrays of the schedule."""

    @abstractmethod
    def notes(self, cluster: "Cluster", config: "SimulationConfig") -> tuple[str, ...]:
        """What to know about a run of it on this cluster under these settings."""

    @abstractmethod
    def decide(self, snapshot: "_core.Snapshot") -> "_core.Decision":
        """What to start now."""


def find_policy(text: str) -> PolicySpec | ReplayingPolicy:
    """The policy of a name: a heuristic, else a learned one if there is such a path or model.

    Raises:
        InputError: naming the part of the name that is wrong, or what is wrong with the model.
    """
    if text.startswith(SHIPPED):
        return _learned(text)
    try:
        return parse_policy(text)
    except InputError as error:
        if Path(text).exists():
            return _learned(text)
        if text.endswith(".safetensors") or text.startswith((".", "/", "~")):
            raise InputError(f"policy {text!r}: there is no such run directory or model file") from None
        if "/" in text:
            raise InputError(f"{error}; nor is there a run directory or model file {text}") from None
        run = Path(FOLDER) / text
        if text and run.is_dir():
            raise InputError(f"policy {text!r}: did you mean the training run {run}?") from None
        raise


def _learned(text: str) -> ReplayingPolicy:
    from gpuyard.network.policy import LearnedPolicy  # what learned policies need takes time to load

    return LearnedPolicy.open(text)
