"""What all algorithms have in common: what a training run asks of them, and how they choose actions."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from gpuyard.learn.memory.collector import Arrays, Transition
from gpuyard.learn.process.group import ProcessGroup
from gpuyard.learn.rates import Schedule
from gpuyard.network.sizes import NetworkSizes

Average = Callable[[Iterable[nn.Parameter]], None]
Observation = dict[str, Tensor]
State = dict[str, Any]


class NotFiniteError(RuntimeError):
    """Training has left the numbers: a loss or a gradient is not finite.

    Attributes:
        diagnosis: What is known of it, by name.
    """

    def __init__(self, what: str, diagnosis: Mapping[str, Any]) -> None:
        super().__init__(f"{what} is not a finite number")
        self.diagnosis = {"what": what, **diagnosis}


@dataclass(frozen=True)
class Setup:
    """What an algorithm is given beside its own settings.

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


class Learner(Protocol):
    """An algorithm in the middle of training."""

    networks: dict[str, nn.Module]
    """Everything with weights; ``policy`` is what acts in the end."""
    optimizers: dict[str, torch.optim.Optimizer]
    keep_steps: int
    """Past steps that a resumed run must show again through ``observe``."""

    @property
    def at_boundary(self) -> bool:
        """Whether a checkpoint may be taken now."""

    def act(self, observation: Arrays, step: int) -> NDArray[Any]:
        """Actions to learn from, exploring."""

    def observe(self, transition: Transition) -> None:
        """What came of them. After ``restore``, first the steps that are to be shown again."""

    def update(self, step: int, average: Average) -> dict[str, float] | None:
        """Learn, if it is time; what happened, by name."""

    def state(self) -> State:
        """Everything else that a resumed run needs, as arrays by name."""

    def restore(self, state: Mapping[str, Any]) -> None:
        """Take ``state`` back."""


def to_tensors(observation: Arrays, device: torch.device) -> Observation:
    """Arrays of a batch as tensors, without a copy where they lie in main memory."""
    return {name: torch.from_numpy(array).to(device) for name, array in observation.items()}


def sample(log_probabilities: Tensor, generator: torch.Generator) -> Tensor:
    """One action a row, by the Gumbel trick: cheaper than a categorical distribution's own draws."""
    noise = torch.rand(log_probabilities.shape, generator=generator, dtype=log_probabilities.dtype)
    gumbel = -torch.log(-torch.log(noise.clamp_(1e-12, 1.0 - 1e-7)))
    return (log_probabilities + gumbel.to(log_probabilities.device)).argmax(dim=-1)


def set_learning_rate(optimizers: Mapping[str, torch.optim.Optimizer], rate: float) -> None:
    """For the next updates."""
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
