"""``gpuyard train --dry-run``: what a run would be, before anything is written."""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any

from gpuyard.files import toml_text
from gpuyard.learn.algorithm import find_algorithm
from gpuyard.learn.config import TrainConfig
from gpuyard.units import duration, plural, rough

MEASURED_S = 3.0
"""How long training is tried out to say how long it would take."""


@dataclass(frozen=True)
class Outline:
    """What a run would be.

    Attributes:
        config: Its settings, with what follows from the jobs.
        remarks: On its settings, for people.
        parameters: Weights of the network that is trained; None if none is trained by gradients.
        samples_per_s: How fast one process learned when it was tried out; None like ``parameters``.
    """

    config: TrainConfig
    remarks: Sequence[str]
    parameters: int | None = None
    samples_per_s: float | None = None

    @property
    def seconds(self) -> float | None:
        """How long training would take, without validations; None if that is not known."""
        training = self.config.training
        if self.samples_per_s is None:
            return None
        needed = training.steps / (self.samples_per_s * (training.processes or 1))
        return needed if self.limit_s is None else min(needed, self.limit_s)

    @property
    def limit_s(self) -> float | None:
        """After how long it ends in any case; `search` has that among its own settings."""
        minutes = self.config.training.minutes
        own: float | None = getattr(self.config.settings, "seconds", None)
        return own if minutes is None else minutes * 60

    def document(self) -> dict[str, Any]:
        """As JSON-ready values."""
        return {
            "settings": self.config.to_document(),
            "remarks": list(self.remarks),
            "parameters": self.parameters,
            "samples_per_s": self.samples_per_s,
            "seconds": self.seconds,
        }


def outline_run(config: TrainConfig, seconds: float = MEASURED_S) -> Outline:
    """Do all that a run does before its first file, and try out how fast it learns.

    Raises:
        InputError: for what a run would be refused for.
    """
    config, remarks = find_algorithm(config.algorithm).prepare(config)
    if not _trains_by_gradients(config.algorithm):
        return Outline(config, remarks)
    parameters, rate = _measured(config, seconds)
    return Outline(config, remarks, parameters, rate)


def _trains_by_gradients(algorithm: str) -> bool:
    if find_spec("torch") is None:
        return False
    from gpuyard.learn.learner import Learner

    return issubclass(find_algorithm(algorithm), Learner)


def _measured(config: TrainConfig, seconds: float) -> tuple[int, float]:
    """Weights of the network, and samples per second of one process, updates included."""
    import torch

    from gpuyard.learn.learner import make_learner
    from gpuyard.learn.memory.collector import Collector
    from gpuyard.learn.memory.environments import Environments
    from gpuyard.learn.process.group import ProcessGroup
    from gpuyard.learn.start import make_policy_network

    torch.set_num_threads(1)
    share = max(1, config.environment.envs // (config.training.processes or 1))
    env = Environments(config.environment).training(share)
    network = make_policy_network(config, env.model)
    group = ProcessGroup(0, 1)
    learner = make_learner(config, 1, network, env, group)
    collector = Collector(env, list(range(share)))
    first = getattr(config.settings, "learning_starts", 0)
    samples, spent_s, updated, began = 0, 0.0, False, time.monotonic()
    # A whole number of rounds, each of which ends with an update.
    while spent_s < seconds or not updated:
        learner.observe(collector.step(learner.act(collector.observation, first + samples)))
        samples += share
        updated = learner.update(first + samples, group.average) is not None
        spent_s = time.monotonic() - began
    return sum(parameter.numel() for parameter in network.parameters()), samples / spent_s


def outline_in_words(outline: Outline, directory: str) -> str:
    """The settings as a file, and above them what they amount to."""
    config, training = outline.config, outline.config.training
    lines = [f"Nothing is trained (--dry-run). {config.algorithm} would write to {directory}."]
    lines += [f"{remark[:1].upper()}{remark[1:].rstrip('.')}." for remark in outline.remarks]
    if outline.parameters is not None:
        processes = "1 process" if training.processes == 1 else f"{training.processes} processes"
        lines.append(
            f"Network {config.network.kind} with {plural(outline.parameters, 'weight')}; "
            f"{training.steps:,} samples from {plural(config.environment.envs, 'environment')} in "
            f"{processes}."
        )
    lines.append(_time_in_words(outline))
    return "\n".join([*lines, "", toml_text(config.to_document()).rstrip()])


def _time_in_words(outline: Outline) -> str:
    limit_s = outline.limit_s
    limit = "" if limit_s is None else f" It ends after {duration(limit_s)} at the latest."
    if outline.seconds is None or outline.samples_per_s is None:
        return f"How long it takes is not known beforehand.{limit}"
    return (
        f"Tried out, one process learned from {rough(outline.samples_per_s)} samples per second: about "
        f"{duration(outline.seconds)} in all, and validations on top.{limit}"
    )
