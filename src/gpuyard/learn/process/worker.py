"""One process of a training run, started by ``gpuyard train``.

All processes of a run do the same on environments of their own; the first also validates, keeps the diary and
writes checkpoints and models.
"""

import argparse
import json
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import safetensors.torch
import torch

from gpuyard.errors import InputError
from gpuyard.files import atomic_write
from gpuyard.learn.config import TrainConfig, load_toml, read_config
from gpuyard.learn.factory import make_learner, make_policy_network, model_of
from gpuyard.learn.learner import Learner, NotFiniteError
from gpuyard.learn.memory.collector import Collector
from gpuyard.learn.memory.environments import Environments
from gpuyard.learn.process.checkpoint import (
    Checkpoint,
    add_learner,
    read_checkpoint,
    restore_learner,
    write_checkpoint,
)
from gpuyard.learn.process.evolve_worker import EvolveWorker
from gpuyard.learn.process.exit_codes import BAD_INPUT, DONE, INTERRUPTED, NOT_FINITE, PEER_LOST, REFUSED
from gpuyard.learn.process.group import PeerLostError, ProcessGroup
from gpuyard.learn.process.probe import action_record
from gpuyard.learn.process.tensorboard import open_board
from gpuyard.learn.process.validation import Validation
from gpuyard.network.model_file import write_model
from gpuyard.runs.directory import BEST, CHECKPOINT, CONFIG, DIAGNOSIS, LAST, PROGRESS, START
from gpuyard.runs.progress import ProgressWriter

CONTROL_EVERY = 32
"""Steps of the environments between two occasions to write, validate or stop, for algorithms that have no
rollouts."""
RECORD_EVERY_S = 0.5
COUNTERS = (
    "step",
    "vector_steps",
    "elapsed_s",
    "best_score",
    "without_improvement",
    "next_validation",
    "validated_at",
)
"""What a checkpoint keeps of a worker itself."""


class Worker:
    """One process of a run."""

    def __init__(self, directory: Path, config: TrainConfig, group: ProcessGroup) -> None:
        self.directory = directory
        self.group = group
        self.config = config
        self.first = group.rank == 0
        training = self.config.training
        self.environments = Environments(self.config.environment)
        self.local = self.config.environment.envs // group.size
        seeds = np.random.SeedSequence([training.seed, 1]).generate_state(
            self.config.environment.envs, np.uint64
        )
        mine = seeds[group.rank * self.local : (group.rank + 1) * self.local] >> np.uint64(1)
        env = self.environments.training(self.local)
        start = directory / START  # the run needs nothing from where that came from
        self.network = make_policy_network(self.config, env.model, start if start.is_file() else None)
        self.phase = 0
        self.learner: Learner = make_learner(self.config, self.phase, self.network, env, group)
        self.collector = Collector(env, [int(seed) for seed in mine], self.learner.keep_steps)
        self.step = self.vector_steps = 0
        self.elapsed_s = 0.0
        self.best_score: float | None = None
        self.without_improvement = 0
        self.next_validation = 0
        self.validated_at = -1
        self.meters: dict[str, list[float]] = {}
        self.stop_asked = False
        self.parent = 0  # who started this; if it is gone, nobody waits for the run any more

    # --- Resuming ---

    def begin(self, resume: bool) -> None:
        """Start anew, or where the last checkpoint was taken."""
        if not resume:
            self.collector.scatter()
            return
        checkpoint = read_checkpoint(self.directory / CHECKPOINT)
        document = checkpoint.document
        if len(document["ranks"]) != self.group.size:
            raise InputError(
                f"the checkpoint was made by {len(document['ranks'])} processes, not {self.group.size}"
            )
        if document["phase"] != self.phase:
            self._enter_phase(document["phase"])
        restore_learner(checkpoint, self.learner)
        own = document["ranks"][self.group.rank]
        arrays = {name: t.numpy() for name, t in checkpoint.part(f"rank/{self.group.rank}/collector").items()}
        self.learner.restore(checkpoint.part(f"rank/{self.group.rank}/learner"))
        again = min(self.learner.keep_steps, document["vector_steps"])
        self.collector.restore(own["collector"], arrays, again, self.learner.observe)
        for name in COUNTERS:
            setattr(self, name, document[name])

    def _enter_phase(self, phase: int) -> None:
        self.phase = phase
        self.learner = make_learner(self.config, phase, self.network, self.collector.env, self.group)

    def checkpoint(self) -> None:
        """Write everything that a resumed run needs."""
        document, arrays = self.collector.state()
        own = Checkpoint({"collector": document})
        own.add("collector", arrays)
        own.add("learner", self.learner.state())
        words = safetensors.torch.save(own.tensors, {"document": json.dumps(own.document)})
        parts = self.group.gather(words)
        if not self.first:
            return
        whole = Checkpoint({"ranks": [], "phase": self.phase})
        for name in COUNTERS:
            whole.document[name] = getattr(self, name)
        for rank, part in enumerate(parts):
            tensors = safetensors.torch.load(part)
            whole.document["ranks"].append(json.loads(_metadata(part)["document"]))
            whole.add(f"rank/{rank}", tensors)
        add_learner(whole, self.learner)
        write_checkpoint(self.directory / CHECKPOINT, whole)

    # --- The loop ---

    def run(self, diary: ProgressWriter | None) -> str:
        """Train to the end; the reason why it ended."""
        self._diary = diary
        self._board = open_board(self.directory, self.step) if self.first else None
        self._validation = (
            Validation(self.environments, self.config.validation, self.config.network, self.group.size)
            if self.first
            else None
        )
        self._began, self._before = time.monotonic(), self.elapsed_s
        self._last_checkpoint = self._last_record = time.monotonic()
        self._record_step = self.step
        reason = self._control()
        while reason is None:
            actions = self.learner.act(self.collector.observation, self._phase_step())
            self.learner.observe(self.collector.step(actions))
            self.step += self.config.environment.envs
            self.vector_steps += 1
            stats = self.learner.update(self._phase_step(), self.group.average)
            for name, value in (stats or {}).items():
                self.meters.setdefault(name, []).append(value)
            if self._may_control():
                reason = self._control()
        return reason

    def _may_control(self) -> bool:
        if not self.learner.at_boundary:
            return False
        return self.learner.keep_steps == 0 or self.vector_steps % CONTROL_EVERY == 0 or self._finished()

    def _phase_step(self) -> int:
        """Steps since the present phase began: schedules run anew in each."""
        return self.step - (self._warm_steps if self.phase else 0)

    @property
    def _warm_steps(self) -> int:
        return self.config.warm_start.steps if self.config.warm_start else 0

    def _finished(self) -> bool:
        return self.step >= self.config.training.steps + self._warm_steps

    def _control(self) -> str | None:
        """Between updates: write, validate, and agree with the others on whether to go on."""
        self.elapsed_s = self._before + time.monotonic() - self._began
        if self.config.warm_start and self.phase == 0 and self.step >= self._warm_steps:
            self._enter_phase(1)
        finished = self.collector.take_finished()
        parts = self.group.gather(json.dumps([finished, self.stop_asked]).encode())
        orders: dict[str, Any] = {}
        if self.first:
            said = [json.loads(part) for part in parts]
            self._record(_pooled([one[0] for one in said]))
            reason = self._reason(any(one[1] for one in said))
            due = time.monotonic() - self._last_checkpoint >= self.config.training.checkpoint_every_s
            orders = {"stop": reason, "checkpoint": due or reason is not None}
        orders = json.loads(self.group.broadcast(json.dumps(orders).encode()))
        if orders["checkpoint"]:
            self.checkpoint()
            self._last_checkpoint = time.monotonic()
        stop: str | None = orders["stop"]
        return stop

    def _reason(self, asked: bool) -> str | None:
        """Why training ends now, if it does; validates if it is time."""
        over = self._finished()
        minutes = self.config.training.minutes
        if minutes is not None and self.elapsed_s >= 60 * minutes:
            over = True
        early = False
        if self.step >= self.next_validation or (over and self.validated_at != self.step):
            early = self._validate()
            self.validated_at = self.step
            while self.next_validation <= self.step:
                self.next_validation += self.config.every_steps
        if over:
            return "finished"
        if early:
            return "early"
        deserted = self.parent not in (0, os.getppid())
        return "interrupted" if asked or deserted else None

    def _validate(self) -> bool:
        """Judge the policy, keep it if it is the best so far; whether to stop early."""
        assert self._validation is not None
        training = self.config.training
        judgement = self._validation.run(self.network.state_dict())
        best = self.best_score
        better = best is None or judgement.score > best
        clearly = best is None or judgement.score > best + training.least_improvement
        self.without_improvement = 0 if clearly else self.without_improvement + 1
        model = model_of(self.config, self.collector.env.model, self.network, self.step, judgement)
        write_model(self.directory / LAST, model)
        if better:
            self.best_score = judgement.score
            write_model(self.directory / BEST, model)
        self._write(
            {
                "event": "validation",
                "step": self.step,
                "elapsed_s": self.elapsed_s,
                "score": judgement.score,
                "better": better,
                "values": self._validation.record(judgement),
            }
        )
        self._write({"event": "actions", "step": self.step, **action_record(self.network, self.collector)})
        if training.target is not None and judgement.score >= training.target:
            return True
        return training.patience is not None and self.without_improvement >= training.patience

    def _record(self, episodes: dict[str, float]) -> None:
        """A line on what happened since the last one."""
        for name in (
            "return",
            "length",
            "mean_bounded_slowdown",
            "mean_jct_s",
            "mean_wait_s",
            "gpu_utilization",
        ):
            if name in episodes:
                self.meters.setdefault(f"episode/{name}", []).append(episodes[name])
        now = time.monotonic()
        if not self.meters or (self.learner.keep_steps and now - self._last_record < RECORD_EVERY_S):
            return
        rate = (self.step - self._record_step) / max(now - self._last_record, 1e-9)
        self._last_record, self._record_step = now, self.step
        values = {name: float(np.mean(numbers)) for name, numbers in self.meters.items()}
        self.meters = {}
        self._write(
            {
                "event": "update",
                "step": self.step,
                "update": self.vector_steps,
                "elapsed_s": self.elapsed_s,
                "samples_per_s": rate,
                "values": values,
            }
        )

    def _write(self, record: dict[str, Any]) -> None:
        assert self._diary is not None
        self._diary.write(record)
        if self._board is not None:
            self._board.write(record)


def _pooled(parts: list[dict[str, float]]) -> dict[str, float]:
    """Means over the episodes of all processes."""
    counts = [part["count"] for part in parts]
    names = {name for part in parts for name in part if name != "count"}
    pooled = {}
    for name in sorted(names):
        pairs = [(part[name], count) for part, count in zip(parts, counts, strict=True) if name in part]
        pooled[name] = sum(v * c for v, c in pairs) / sum(c for _, c in pairs)
    return pooled


def _metadata(part: bytes) -> dict[str, str]:
    length = int.from_bytes(part[:8], "little")
    metadata: dict[str, str] = json.loads(part[8 : 8 + length])["__metadata__"]
    return metadata


def _open_diary(worker: Worker | EvolveWorker, resume: bool) -> ProgressWriter:
    path = worker.directory / PROGRESS
    if resume:
        return ProgressWriter.resume(path, worker.step)
    diary = ProgressWriter(path)
    start = {"event": "start", "algorithm": worker.config.algorithm, "name": worker.directory.resolve().name}
    warm = worker.config.warm_start
    total = worker.config.training.steps + (warm.steps if warm else 0)
    judged = {"metric": worker.config.validation.metric, "higher_is_better": True}
    diary.write({**start, **judged, "total_steps": total, "time": time.time()})
    return diary


def main(arguments: list[str] | None = None) -> int:
    """Run one process of a training run and return its exit code."""
    parser = argparse.ArgumentParser(prog="gpuyard.learn.process.worker")
    parser.add_argument("directory", type=Path)
    parser.add_argument("--rank", type=int, default=0)
    parser.add_argument("--size", type=int, default=1)
    parser.add_argument("--memory", type=int, default=-1)
    parser.add_argument("--sockets", default="")
    parser.add_argument("--parent", type=int, default=0)
    parser.add_argument("--resume", action="store_true")
    given = parser.parse_args(arguments)
    torch.set_num_threads(1)
    sockets = [int(number) for number in given.sockets.split(",") if number]
    group = ProcessGroup(given.rank, given.size, given.memory, sockets)
    try:
        return _train(given.directory, group, given.resume, given.parent)
    except InputError as error:
        print(f"{REFUSED}{error}", file=sys.stderr)
        return BAD_INPUT
    except PeerLostError:
        return PEER_LOST


def _train(directory: Path, group: ProcessGroup, resume: bool, parent: int) -> int:
    config = read_config(load_toml(directory / CONFIG), str(directory / CONFIG))
    evolves = config.algorithm == "evolve"
    worker = EvolveWorker(directory, config) if evolves else Worker(directory, config, group)
    worker.parent = parent

    def ask(*_: Any) -> None:
        worker.stop_asked = True

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, ask)
    worker.begin(resume)
    diary = _open_diary(worker, resume) if group.rank == 0 else None
    try:
        reason = worker.run(diary)
    except NotFiniteError as error:
        reason = "nan"
        if group.rank == 0 and isinstance(worker, Worker):
            _save_diagnosis(directory, worker, error)
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)  # asked again, it is ending already
    if diary is not None:
        diary.write({"event": "stop", "reason": reason, "step": worker.step, "elapsed_s": worker.elapsed_s})
    return {"interrupted": INTERRUPTED, "nan": NOT_FINITE}.get(reason, DONE)


def _save_diagnosis(directory: Path, worker: Worker, error: NotFiniteError) -> None:
    """What was known when a number stopped being finite."""
    weights = {
        name: {"finite": bool(torch.isfinite(t).all()), "largest": float(t.abs().nan_to_num().max())}
        for name, t in worker.network.state_dict().items()
        if t.numel()
    }
    document = {
        "error": str(error),
        "step": worker.step,
        "known": {name: str(value) for name, value in error.diagnosis.items()},
        "weights": weights,
        "advice": "try a smaller learning_rate.start; the last good state is in checkpoint.safetensors",
    }
    with atomic_write(directory / DIAGNOSIS) as temporary:
        temporary.write_text(json.dumps(document, indent=2), encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main())
