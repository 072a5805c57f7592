"""A run of ``gpuyard train evolve``: the one process that plays, validates, keeps diary and models."""

import os
import time
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from gpuyard.errors import InputError
from gpuyard.learn.config import TrainConfig
from gpuyard.learn.evolve import (
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
from gpuyard.learn.factory import make_policy_network, model_of_weights
from gpuyard.learn.memory.environments import Environments
from gpuyard.learn.process.checkpoint import Checkpoint, read_checkpoint, write_checkpoint
from gpuyard.learn.process.validation import Validation
from gpuyard.network.config import RULE_KINDS
from gpuyard.network.model_file import write_model
from gpuyard.network.rollout import EpisodeRunner, native_network
from gpuyard.network.sizes import NetworkSizes
from gpuyard.runs.directory import BEST, CHECKPOINT, LAST, START
from gpuyard.runs.progress import ProgressWriter

LARGEST_DRAW = 2**40
"""Seeds of draws to learn from are below this; those of validation and test draws are far above."""


class EvolveWorker:
    """Evolution of a rule or network in the middle of a run.

    Attributes:
        stop_asked: Set from outside to end the run after the present generation.
    """

    def __init__(self, directory: Path, config: TrainConfig) -> None:
        self.directory, self.config = directory, config
        self.settings: EvolveConfig = config.settings
        threads = len(os.sched_getaffinity(0))
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
        self.elapsed_s = 0.0
        self.best_score: float | None = None
        self.without_improvement = 0
        self.stop_asked = False
        self.parent = 0

    @property
    def generation(self) -> int:
        """How many were played."""
        return len(self._evolution.losses)

    @property
    def step(self) -> int:
        """Episodes played."""
        return self.generation * self.settings.population * self.settings.episodes

    def begin(self, resume: bool) -> None:
        """Start anew, or where the last checkpoint was taken."""
        if not resume:
            return
        checkpoint = read_checkpoint(self.directory / CHECKPOINT)
        self._evolution.repeat(checkpoint.tensors["evolve/losses"].tolist())
        for name in ("elapsed_s", "best_score", "without_improvement"):
            setattr(self, name, checkpoint.document[name])

    def run(self, diary: ProgressWriter | None) -> str:
        """Evolve to the end; the reason why it ended."""
        assert diary is not None  # there is one process
        began, before, last_checkpoint = time.monotonic(), self.elapsed_s, time.monotonic()
        reason = None
        if self.generation == 0:
            self._validate(diary)
        while reason is None:
            values = self._generation()
            self.elapsed_s = before + time.monotonic() - began
            record = {"event": "update", "step": self.step, "update": self.generation}
            diary.write({**record, "elapsed_s": self.elapsed_s, "values": values})
            reason = self._reason()
            early = False
            if reason == "finished" or self.generation % self.settings.check_every == 0:
                early = self._validate(diary)
            reason = reason or ("early" if early else None)
            due = time.monotonic() - last_checkpoint >= self.config.training.checkpoint_every_s
            if reason is not None or due:
                self._checkpoint()
                last_checkpoint = time.monotonic()
        return reason

    def _generation(self) -> dict[str, float]:
        population = self._evolution.ask()
        names = self._episodes()
        results = self._runner.run_many(names, [self._native(point.tensors) for point in population])
        jct = None
        if self.config.validation.max_jct_increase is not None:
            jct = self._runner.run(names, self._validation.reference).metrics["mean_jct_s"]
        losses = [self._validation.loss(result, jct) for result in results]
        self._check_finite(losses)
        self._evolution.tell(population, losses)
        return {
            "loss/best": min(losses),
            "loss/median": float(np.median(losses)),
            "sigma": self._evolution.sigma,
            "episode/return": float(np.mean([result.returns.mean() for result in results])),
        }

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

    def _validate(self, diary: ProgressWriter) -> bool:
        """Judge the middle of the distribution, keep it if it is the best so far; whether to stop early."""
        training, mean = self.config.training, self._evolution.mean()
        judgement = self._validation.run_tensors(mean)
        self._check_finite([judgement.score])
        best = self.best_score
        clearly = best is None or judgement.score > best + training.least_improvement
        better = best is None or judgement.score > best
        self.without_improvement = 0 if clearly else self.without_improvement + 1
        model = model_of_weights(self.config, self._model, mean, self.step, judgement)
        write_model(self.directory / LAST, model)
        if better:
            self.best_score = judgement.score
            write_model(self.directory / BEST, model)
        record = {"event": "validation", "step": self.step, "elapsed_s": self.elapsed_s}
        record |= {"score": judgement.score, "better": better, "values": self._validation.record(judgement)}
        diary.write(record)
        if training.target is not None and judgement.score >= training.target:
            return True
        return training.patience is not None and self.without_improvement >= training.patience

    def _reason(self) -> str | None:
        minutes = self.config.training.minutes
        over = minutes is not None and self.elapsed_s >= 60 * minutes
        if over or self.generation >= self.settings.generations:
            return "finished"
        deserted = self.parent not in (0, os.getppid())
        return "interrupted" if self.stop_asked or deserted else None

    def _checkpoint(self) -> None:
        counters = ("step", "elapsed_s", "best_score", "without_improvement")
        checkpoint = Checkpoint({name: getattr(self, name) for name in counters})
        checkpoint.add("evolve", {"losses": np.asarray(self._evolution.losses, dtype=np.float64)})
        write_checkpoint(self.directory / CHECKPOINT, checkpoint)
