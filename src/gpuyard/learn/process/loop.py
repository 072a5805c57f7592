"""The skeleton of every training run: start or resume, advance, write, validate, checkpoint, stop.

All processes of a run go through the same loop; the first also validates, keeps the progress log and writes
checkpoints and models. Needs no torch.
"""

import json
import os
import time
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, NamedTuple

from gpuyard.files import atomic_write
from gpuyard.learn.algorithm import NotFiniteError, find_algorithm
from gpuyard.learn.config import TrainConfig
from gpuyard.learn.process.checkpoint import Checkpoint, read_checkpoint, write_checkpoint
from gpuyard.learn.process.group import ProcessGroup
from gpuyard.metrics.guards import BrokenLimit
from gpuyard.network.model_file import ModelFile, write_model
from gpuyard.runs.directory import BEST, CHECKPOINT, DIAGNOSIS, LAST, PROGRESS
from gpuyard.runs.progress import ProgressWriter

COUNTERS = ("step", "elapsed_s", "best_score", "without_improvement", "validated_at")
"""What a checkpoint keeps of every loop."""


class Judged(NamedTuple):
    """What a validation found.

    Attributes:
        score: Larger is better.
        values: Metrics of the policy and of heuristics, as the progress log has them.
        model: The policy that was judged.
        broken: Limits on waits that it breaks on the windows, the worst first.
    """

    score: float
    values: Mapping[str, Any]
    model: ModelFile
    broken: Sequence[BrokenLimit] = ()


class TrainingLoop(ABC):
    """A run of an algorithm, in one of its processes.

    Attributes:
        step: Samples, episodes or generations so far, over all processes.
        elapsed_s: Time of training so far, over all sessions.
        best_score: Of the validations so far.
        stop_asked: Set from outside to end the run at the next occasion; it can be resumed.
        finish_asked: Set in the first process to end training as if its time were up: with a last
            validation, and for good.
        parent: The process that started this one; if it is gone, the run is stopped.
    """

    counters: tuple[str, ...] = COUNTERS
    step: int

    def __init__(self, directory: Path, config: TrainConfig, group: ProcessGroup | None = None) -> None:
        self.directory, self.config = directory, config
        self.group = group or ProcessGroup(0, 1)
        self.first = self.group.rank == 0
        self.step = 0
        self.elapsed_s = 0.0
        self.best_score: float | None = None
        self.without_improvement = 0
        self.validated_at = -1
        self.stop_asked = self.finish_asked = False
        self.parent = 0

    # --- What an algorithm supplies ---

    @abstractmethod
    def advance(self) -> None:
        """Train until the next moment at which the run may be written, validated and stopped."""

    @abstractmethod
    def judge(self) -> Judged:
        """Validate the present policy; of the first process alone."""

    @abstractmethod
    def state(self) -> Checkpoint | None:
        """Everything that a resumed run needs but the counters; None in all processes but the first."""

    @abstractmethod
    def restore(self, checkpoint: Checkpoint) -> None:
        """Take ``state`` back."""

    @property
    @abstractmethod
    def is_over(self) -> bool:
        """Whether nothing is left to train."""

    @property
    def metric(self) -> str:
        """What policies are judged by."""
        return self.config.validation.metric

    @property
    def total_steps(self) -> int:
        """Steps of the whole run."""
        return self.config.training.steps

    @property
    def validates_every(self) -> int | None:
        """Steps between validations; None: there is one at the end."""
        return self.config.every_steps

    def begin(self) -> None:  # noqa: B027
        """Start anew."""

    def open(self) -> None:  # noqa: B027
        """Make ready what is needed to train, in a new run or a resumed one."""

    def report(self) -> Any:
        """What this process has to say to the first one, as JSON."""
        return None

    def note(self, reports: Sequence[Any]) -> None:  # noqa: B027
        """Write down what happened, given the reports of all processes; of the first process alone."""

    def after_validation(self) -> None:  # noqa: B027
        """Write down what else is worth knowing of the policy that was judged."""

    def recommendation(self) -> dict[str, Any] | None:
        """Whether the best model is recommended for a check on held-out jobs, as the progress log has it.

        Asked of the first process when training is over; None: nothing can be said.
        """
        return None

    def diagnosis(self) -> dict[str, Any]:
        """What is known of the run when a number stopped being finite."""
        return {}

    # --- The loop ---

    def run(self, *, resume: bool = False) -> str:
        """Train to the end; the reason why it ended."""
        if resume:
            self._resume()
        else:
            self.begin()
        self._log = self._open_log(resume) if self.first else None
        self.open()
        self._began, self._before = time.monotonic(), self.elapsed_s
        self._last_checkpoint = time.monotonic()
        try:
            reason = self._control()
            while reason is None:
                self.advance()
                reason = self._control()
        except NotFiniteError as error:
            reason = "nan"
            if self.first:
                self._write_diagnosis(error)
        if self._log is not None:
            if reason in ("finished", "early") and (said := self.recommendation()) is not None:
                self.write({"event": "recommendation", "step": self.step, **said})
            self.write({"event": "stop", "reason": reason, "step": self.step, "elapsed_s": self.elapsed_s})
            self._log.close()
        return reason

    def write(self, record: dict[str, Any]) -> None:
        """Append a record to the progress log; of the first process alone."""
        assert self._log is not None
        self._log.write(record)

    @property
    def is_to_stop(self) -> bool:
        """Whether someone asked this process to stop, or the process that started it is gone."""
        return self.stop_asked or self.parent not in (0, os.getppid())

    def _resume(self) -> None:
        checkpoint = read_checkpoint(self.directory / CHECKPOINT)
        self.restore(checkpoint)
        for name in self.counters:
            setattr(self, name, checkpoint.document[name])

    def _open_log(self, resume: bool) -> ProgressWriter:
        path = self.directory / PROGRESS
        if resume:
            return ProgressWriter.resume(path, self.step)
        log = ProgressWriter(path)
        log.write(
            {
                "event": "start",
                "algorithm": self.config.algorithm,
                "name": self.directory.resolve().name,
                "metric": self.metric,
                "higher_is_better": True,
                "unit": find_algorithm(self.config.algorithm).unit,
                "total_steps": self.total_steps,
                "time": time.time(),
            }
        )
        return log

    def _control(self) -> str | None:
        """Write, validate, and agree with the other processes on whether to stop, and why."""
        self.elapsed_s = self._before + time.monotonic() - self._began
        parts = self.group.gather(json.dumps([self.report(), self.is_to_stop]).encode())
        orders: dict[str, Any] = {}
        if self.first:
            said = [json.loads(part) for part in parts]
            self.note([report for report, _ in said])
            reason = self._reason(any(asked for _, asked in said))
            due = time.monotonic() - self._last_checkpoint >= self.config.training.checkpoint_every_s
            orders = {"stop": reason, "checkpoint": due or reason is not None}
        orders = json.loads(self.group.broadcast(json.dumps(orders).encode()))
        if orders["checkpoint"]:
            self._checkpoint()
            self._last_checkpoint = time.monotonic()
        stop: str | None = orders["stop"]
        return stop

    def _reason(self, asked: bool) -> str | None:
        """Why training ends now, if it does; validates if it is time."""
        minutes = self.config.training.minutes
        spent = minutes is not None and self.elapsed_s >= 60 * minutes
        over = self.is_over or spent or self.finish_asked
        early = False
        if self._validation_is_due() or (over and self.validated_at != self.step):
            early = self.validate()
        if over:
            return "finished"
        if early:
            return "early"
        return "interrupted" if asked else None

    def _validation_is_due(self) -> bool:
        every = self.validates_every
        if every is None:
            return False
        return self.validated_at < 0 or self.step // every > self.validated_at // every

    def validate(self) -> bool:
        """Judge the policy, keep it if it is the best so far; whether to stop early."""
        training = self.config.training
        judged = self.judge()
        best = self.best_score
        better = best is None or judged.score > best
        clearly = best is None or judged.score > best + training.least_improvement
        self.without_improvement = 0 if clearly else self.without_improvement + 1
        write_model(self.directory / LAST, judged.model)
        if better:
            self.best_score = judged.score
            write_model(self.directory / BEST, judged.model)
        record = {"event": "validation", "step": self.step, "elapsed_s": self.elapsed_s}
        broken = [asdict(one) for one in judged.broken]
        found = {"score": judged.score, "better": better, "broken": broken, "values": judged.values}
        self.write({**record, **found})
        self.after_validation()
        self.validated_at = self.step
        if training.target is not None and judged.score >= training.target:
            return True
        return training.patience is not None and self.without_improvement >= training.patience

    def _checkpoint(self) -> None:
        checkpoint = self.state()
        if checkpoint is not None:
            checkpoint.document |= {name: getattr(self, name) for name in self.counters}
            write_checkpoint(self.directory / CHECKPOINT, checkpoint)

    def _write_diagnosis(self, error: NotFiniteError) -> None:
        document = {
            "error": str(error),
            "step": self.step,
            "known": {name: str(value) for name, value in error.diagnosis.items()},
            **self.diagnosis(),
            "advice": "try a smaller learning_rate.start; the last good state is in checkpoint.safetensors",
        }
        with atomic_write(self.directory / DIAGNOSIS) as temporary:
            temporary.write_text(json.dumps(document, indent=2), encoding="utf-8")
