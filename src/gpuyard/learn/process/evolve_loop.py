"""The loop of ``gpuyard train evolve``: one process, a generation at a time."""

from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from gpuyard.config import available_cores
from gpuyard.errors import InputError
from gpuyard.learn.algorithms.evolve import (
    LONG_LOOK_STEPS,
    LOOK_ENVS,
    LOOK_STEPS,
    Evolution,
    EvolveConfig,
    Tensors,
    spread_of_columns,
    steps_of_network,
    steps_of_rule,
)
from gpuyard.learn.config import TrainConfig
from gpuyard.learn.memory.environments import Environments
from gpuyard.learn.process.checkpoint import Checkpoint
from gpuyard.learn.process.group import ProcessGroup
from gpuyard.learn.process.loop import Judged, TrainingLoop
from gpuyard.learn.process.recommendation import recommendation
from gpuyard.learn.process.validation import Validation, model_of
from gpuyard.learn.start import make_policy_network
from gpuyard.network.config import RULE_KINDS
from gpuyard.network.rollout import EpisodeRunner, native_network
from gpuyard.network.sizes import NetworkSizes
from gpuyard.runs.directory import START

LARGEST_DRAW = 2**40
"""Seeds of draws to learn from are below this; those of validation and test draws are far above."""


class EvolveLoop(TrainingLoop):
    """Evolution of a rule or network in the middle of a run."""

    def __init__(self, directory: Path, config: TrainConfig, group: ProcessGroup | None = None) -> None:
        super().__init__(directory, config, group)
        self.settings: EvolveConfig = config.settings
        threads = available_cores()
        self._environments = Environments(config.environment)
        env = self._environments.training(LOOK_ENVS)
        self._model, self._sizes = env.model, NetworkSizes.of(env.model)
        start_file = directory / START
        network = make_policy_network(config, env.model, start_file if start_file.is_file() else None)
        start: Tensors = {name: t.numpy().copy() for name, t in network.state_dict().items()}
        kind, middle = config.network.kind, None
        if kind in RULE_KINDS:
            leans = kind == "state-rule"
            spread = spread_of_columns(env, self._native(start), LONG_LOOK_STEPS if leans else LOOK_STEPS)
            steps = steps_of_rule(env.model, self.settings, spread, leans=leans)
            middle = spread.middle if leans else None
        else:
            trained = [name for name, p in network.named_parameters() if p.requires_grad]
            steps = steps_of_network(start, [name for name in trained if not name.startswith("value")])
        self._evolution = Evolution(start, steps, self.settings, config.training.seed, middle)
        self._runner = EpisodeRunner(env.model, threads)
        self._validation = Validation(self._environments, config.validation, config.network, threads)
        self._values: dict[str, float] = {}  # of the last generation, until they are written

    @property
    def generation(self) -> int:
        """How many were played."""
        return len(self._evolution.losses)

    @property
    def is_over(self) -> bool:
        """Whether all generations were played."""
        return self.generation >= self.settings.generations

    @property
    def validates_every(self) -> int:
        """Every few generations, in episodes."""
        return self.settings.check_every * self.settings.population * self.settings.episodes

    def advance(self) -> None:
        """Play one generation."""
        population = self._evolution.ask()
        names = self._episodes()
        results = self._runner.run_many(names, [self._native(point.tensors) for point in population])
        measure = self._validation.measure(lambda policy: self._runner.run(names, policy))
        losses = [self._validation.loss(result, measure) for result in results]
        self._check_finite(losses)
        self._evolution.tell(population, losses)
        self.step = self.generation * self.settings.population * self.settings.episodes
        self._values = {
            "loss/best": min(losses),
            "loss/median": float(np.median(losses)),
            "sigma": self._evolution.sigma,
            "episode/return": float(np.mean([result.returns.mean() for result in results])),
        }

    def note(self, reports: Sequence[Any]) -> None:
        """A record of the generation."""
        if self._values:
            record = {"event": "update", "step": self.step, "update": self.generation}
            self.write({**record, "elapsed_s": self.elapsed_s, "values": self._values})
            self._values = {}

    def _check_finite(self, losses: Sequence[float]) -> None:
        if not np.isfinite(losses).all():
            raise InputError(
                f"{self.config.validation.metric} of an episode is not a finite number; use another "
                "validation.metric"
            )

    def _episodes(self) -> list[int]:
        """New ones each generation, by the run's seed alone: draws of a generator, or windows of training."""
        rng = np.random.default_rng([self.config.training.seed, 3, self.generation])
        count = self.settings.episodes
        if self._environments.draws:
            return [int(seed) for seed in rng.integers(LARGEST_DRAW, size=count)]
        rows = self._model.episode_rows
        edges = np.linspace(rows[0], rows[-1] + 1, count + 1)
        return [int(low + (high - low) * rng.random()) for low, high in pairwise(edges)]

    def _native(self, tensors: Tensors) -> Any:
        return native_network(self.config.network, self._sizes, tensors)

    def judge(self) -> Judged:
        """The middle of the distribution on the validation windows."""
        mean = self._evolution.mean()
        judgement = self._validation.run(mean)
        self._check_finite([judgement.score])
        model = model_of(self.config, self._model, mean, self.step, judgement)
        return Judged(judgement.score, self._validation.record(judgement), model, judgement.broken)

    def recommendation(self) -> dict[str, Any] | None:
        """Whether the best model keeps the limits on waits in the whole validation part."""
        return recommendation(self._environments, self.config.validation, self.directory)

    def state(self) -> Checkpoint:
        """The losses: everything else follows from them and the seed."""
        checkpoint = Checkpoint({})
        checkpoint.add("evolve", {"losses": np.asarray(self._evolution.losses, dtype=np.float64)})
        return checkpoint

    def restore(self, checkpoint: Checkpoint) -> None:
        """Go through the same generations again."""
        self._evolution.repeat(checkpoint.arrays["evolve/losses"].tolist())
