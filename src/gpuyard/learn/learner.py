"""What algorithms that train by gradients share: what a run asks of them, and how they choose actions."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from gpuyard.env.vector import SchedulingVectorEnv
from gpuyard.errors import InputError
from gpuyard.learn.algorithm import Algorithm, NotFiniteError, find_algorithm
from gpuyard.learn.config import TrainConfig
from gpuyard.learn.memory.collector import Arrays, Transition
from gpuyard.learn.networks.heads import SchedulingNetwork
from gpuyard.learn.process.group import ProcessGroup
from gpuyard.learn.rates import Schedule
from gpuyard.network.sizes import NetworkSizes

if TYPE_CHECKING:
    from gpuyard.learn.process.loop import TrainingLoop

Average = Callable[[Iterable[nn.Parameter]], None]
Observation = dict[str, Tensor]
State = dict[str, Any]


@dataclass(frozen=True)
class Setup:
    """What an algorithm is given in addition to its own settings.

    Attributes:
        sizes: Of the environment.
        envs: Environments of this process.
        total_steps: Of the run, over all processes.
        learning_rate: In the course of the run.
        seed: Of this process's own random draws.
        device: Where tensors live.
        accumulate: Parts in which a minibatch's gradient is computed.
        group: The processes of the run.
    """

    sizes: NetworkSizes
    envs: int
    total_steps: int
    learning_rate: Schedule
    seed: int
    device: torch.device
    accumulate: int
    group: ProcessGroup

    def progress(self, step: int) -> float:
        """Share of training that is done after so many steps of all processes."""
        return step / self.total_steps


class Learner(Algorithm, ABC):
    """An algorithm that trains a network by gradients, in the middle of training."""

    networks: dict[str, nn.Module]
    """Everything with weights; ``policy`` is what acts in the end."""
    optimizers: dict[str, torch.optim.Optimizer]
    keep_steps: int = 0
    """Past steps that a resumed run must show again through ``observe``."""

    @classmethod
    def create(
        cls, network: SchedulingNetwork, settings: Any, setup: Setup, env: SchedulingVectorEnv
    ) -> "Learner":
        """A learner for a network that acts in these environments."""
        make: Any = cls
        learner: Learner = make(network, settings, setup)
        return learner

    @classmethod
    def loop(cls, directory: Path, config: TrainConfig, group: ProcessGroup) -> "TrainingLoop":
        """Trains in one of the processes of a run."""
        from gpuyard.learn.process.gradient_loop import GradientLoop

        torch.set_num_threads(1)  # a run has as many processes as processors
        return GradientLoop(directory, config, group)

    @property
    @abstractmethod
    def at_boundary(self) -> bool:
        """Whether a checkpoint may be taken now."""

    @abstractmethod
    def act(self, observation: Arrays, step: int) -> NDArray[Any]:
        """Actions to learn from, exploring."""

    @abstractmethod
    def observe(self, transition: Transition) -> None:
        """What came of them. After ``restore``, first the steps that are to be shown again."""

    @abstractmethod
    def update(self, step: int, average: Average) -> dict[str, float] | None:
        """Learn, if it is time; what happened, by name."""

    @abstractmethod
    def state(self) -> State:
        """Everything else that a resumed run needs, as arrays by name."""

    @abstractmethod
    def restore(self, state: Mapping[str, Any]) -> None:
        """Take ``state`` back."""


def make_learner(
    config: TrainConfig, phase: int, network: SchedulingNetwork, env: SchedulingVectorEnv, group: ProcessGroup
) -> Learner:
    """The algorithm; in a run with a warm start, phase 0 imitates first."""
    seeds = np.random.SeedSequence([config.training.seed, 2, phase, group.rank])
    device = torch.device(config.training.device)
    if device.type == "cuda" and not torch.cuda.is_available():
        raise InputError("training.device cuda: torch finds no GPU here; use cpu")
    network.to(device)
    warm = config.warm_start if phase == 0 else None
    setup = Setup(
        sizes=NetworkSizes.of(env.model),
        envs=env.num_envs,
        total_steps=warm.steps if warm else config.training.steps,
        learning_rate=Schedule(schedule="cosine", start=1e-3, end=1e-4) if warm else config.learning_rate,
        seed=int(seeds.generate_state(1, np.uint64)[0] >> np.uint64(1)),
        device=device,
        accumulate=config.training.accumulate,
        group=group,
    )
    if warm:
        from gpuyard.learn.algorithms.clone import Clone, CloneConfig

        return Clone.create(network, CloneConfig(policy=warm.policy), setup, env)
    return find_learner(config.algorithm).create(network, config.settings, setup, env)


def find_learner(algorithm: str) -> type[Learner]:
    """The algorithm of that name.

    Raises:
        InputError: if it does not train by gradients.
    """
    found = find_algorithm(algorithm)
    if not issubclass(found, Learner):
        raise InputError(
            f"this needs an algorithm that trains by gradients, such as ppo; {algorithm} does not"
        )
    return found


def to_tensors(observation: Arrays, device: torch.device) -> Observation:
    """Arrays of a batch as tensors, without a copy where they lie in main memory."""
    return {name: torch.from_numpy(array).to(device) for name, array in observation.items()}


def sample(log_probabilities: Tensor, generator: torch.Generator) -> Tensor:
    """One action per row, by the Gumbel trick: cheaper than a categorical distribution's own draws."""
    noise = torch.rand(log_probabilities.shape, generator=generator, dtype=log_probabilities.dtype)
    gumbel = -torch.log(-torch.log(noise.clamp_(1e-12, 1.0 - 1e-7)))
    return (log_probabilities + gumbel.to(log_probabilities.device)).argmax(dim=-1)


def set_learning_rate(optimizers: Mapping[str, torch.optim.Optimizer], rate: float) -> None:
    """Set every optimizer's learning rate."""
    for optimizer in optimizers.values():
        for group in optimizer.param_groups:
            group["lr"] = rate


def check_finite(what: str, number: Tensor | float, **known: Any) -> None:
    """Raise a NotFiniteError unless the number is finite."""
    if not np.isfinite(float(number)):
        raise NotFiniteError(what, known)


class RunningMoments:
    """Mean and standard deviation of all numbers seen, over all processes."""

    def __init__(self) -> None:
        self.count, self.mean, self.square = 0.0, 0.0, 0.0

    def add(self, values: Tensor, group: ProcessGroup) -> None:
        """Take numbers of every process into account."""
        numbers = values.double()
        sums = np.array([float(numbers.numel()), float(numbers.sum()), float((numbers * numbers).sum())])
        count, total, squares = group.sum_exactly(sums)
        everything = self.count + count
        self.mean += (total - count * self.mean) / everything
        self.square += (squares - count * self.square) / everything
        self.count = everything

    @property
    def deviation(self) -> float:
        """Never so small that dividing by it is a risk."""
        return float(max(np.sqrt(max(self.square - self.mean * self.mean, 0.0)), 1e-4)) if self.count else 1.0

    def state(self) -> NDArray[np.float64]:
        """As three numbers."""
        return np.array([self.count, self.mean, self.square])

    def restore(self, state: Any) -> None:
        """Take ``state`` back."""
        self.count, self.mean, self.square = (float(number) for number in state)
