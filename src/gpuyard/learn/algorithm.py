"""What an algorithm is to a training run, and how one is found by its name.

A file of ``gpuyard.learn.algorithms`` registers its algorithm under the file's own name:
``@register("algorithm", "ppo")``. Packages of others can register theirs too. Needs no torch.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from importlib import import_module
from importlib.util import find_spec
from inspect import isabstract
from pkgutil import iter_modules
from typing import TYPE_CHECKING, Any, ClassVar

from pydantic import BaseModel

from gpuyard.config import AUTO
from gpuyard.errors import InputError
from gpuyard.learn import algorithms
from gpuyard.registry import lookup, registered

if TYPE_CHECKING:
    from pathlib import Path

    from gpuyard.learn.config import TrainConfig
    from gpuyard.learn.process.group import ProcessGroup
    from gpuyard.learn.process.loop import TrainingLoop

KIND = "algorithm"


class NotFiniteError(RuntimeError):
    """Training has left the numbers: a loss or a gradient is not finite.

    Attributes:
        diagnosis: What is known of it, by name.
    """

    def __init__(self, what: str, diagnosis: Mapping[str, Any]) -> None:
        super().__init__(f"{what} is not a finite number")
        self.diagnosis = {"what": what, **diagnosis}


class Algorithm(ABC):
    """Base of all algorithms: its traits, and how its runs are prepared and made."""

    summary: ClassVar[str]
    """One line for people."""
    settings: ClassVar[type[BaseModel]]
    """Its hyperparameters; in a file their table is called after the algorithm."""
    unit: ClassVar[str] = "sample"
    """What a step of its runs is."""
    defaults: ClassVar[Mapping[str, Mapping[str, Any]]] = {}
    """Settings of other tables that it needs unless they are given."""
    reads: ClassVar[Mapping[str, frozenset[str]] | None] = None
    """Other tables that it reads, and their keys; None: all of them."""
    takes_warm_start: ClassVar[bool] = False
    """Whether it can imitate a policy before its own training."""
    moves_rules: ClassVar[bool] = False
    """Whether it moves the weights of a rule itself, rather than of a network that starts from one."""

    @classmethod
    def resolve(cls, config: "TrainConfig") -> "TrainConfig":
        """Settings with what follows from others written down."""
        return config

    @classmethod
    def prepare(cls, config: "TrainConfig") -> tuple["TrainConfig", list[str]]:
        """Look at the jobs before anything is written.

        Returns:
            Settings with what follows from the jobs, and remarks for people.

        Raises:
            InputError: for what cannot be trained.
        """
        from gpuyard.learn.memory.environments import Environments
        from gpuyard.policies.grammar import parse_policy
        from gpuyard.simulation.find import find_policy

        environments = Environments(config.environment)
        warm = (config.warm_start.policy,) if config.warm_start else ()
        for policy in (*config.validation.heuristics, *warm):
            parse_policy(policy)
        if config.validation.current != AUTO:
            find_policy(config.validation.current)
        config = config.model_copy(update={"environment": environments.written_down()})
        return config, environments.remarks()

    @classmethod
    @abstractmethod
    def loop(cls, directory: "Path", config: "TrainConfig", group: "ProcessGroup") -> "TrainingLoop":
        """What trains, in one of the processes of a run."""


def need_torch(algorithm: str) -> None:
    """Refuse what cannot be trained without torch where it is not installed.

    Raises:
        InputError: if it is not.
    """
    if find_spec("torch") is None:
        raise InputError(f"train {algorithm} needs torch: pip install 'gpuyard[learn]' (search needs none)")


def algorithm_names() -> dict[str, None]:
    """Names of all algorithms, those of other packages last; nothing is imported for it."""
    own = (module.name for module in iter_modules(algorithms.__path__))
    return dict.fromkeys((*own, *registered(KIND)))


def find_algorithm(name: str) -> type[Algorithm]:
    """The algorithm of that name.

    Raises:
        InputError: for an unknown name, with the closest known ones, or an algorithm that cannot train.
    """
    names = algorithm_names()
    if name in names and name not in registered(KIND):
        try:
            import_module(f"{algorithms.__name__}.{name}")
        except ModuleNotFoundError:
            need_torch(name)
            raise
    found: type[Algorithm] = lookup(KIND, name, known={**names, **registered(KIND)})
    if isabstract(found):
        raise InputError(f"algorithm {name}: {found.__name__} has no loop; define its class method loop")
    return found
