"""The loop of algorithms that train a network by gradients, in one or several processes.

All processes of a run do the same on environments of their own and average their gradients.
"""

import json
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import safetensors.numpy
import torch

from gpuyard.errors import InputError
from gpuyard.learn.config import TrainConfig
from gpuyard.learn.learner import Learner, make_learner
from gpuyard.learn.memory.collector import Collector
from gpuyard.learn.memory.environments import Environments
from gpuyard.learn.process.checkpoint import Checkpoint
from gpuyard.learn.process.group import ProcessGroup
from gpuyard.learn.process.loop import COUNTERS, Judged, TrainingLoop
from gpuyard.learn.process.probe import action_record
from gpuyard.learn.process.recommendation import recommendation
from gpuyard.learn.process.tensorboard import open_board
from gpuyard.learn.process.validation import Validation, model_of
from gpuyard.learn.start import load_weights, make_policy_network
from gpuyard.runs.directory import START

CONTROL_EVERY = 32
"""Steps of the environments between two occasions to write, validate or stop, for algorithms that have no
rollouts."""
RECORD_EVERY_S = 0.5
RECORDED = (
    "return",
    "length",
    "mean_bounded_slowdown",
    "mean_jct_s",
    "mean_wait_s",
    "gpu_utilization",
)
"""Means over episodes that the progress log has."""


class GradientLoop(TrainingLoop):
    """A run of PPO, D3QN, SAC or behaviour cloning."""

    counters = (*COUNTERS, "vector_steps")

    def __init__(self, directory: Path, config: TrainConfig, group: ProcessGroup | None = None) -> None:
        super().__init__(directory, config, group)
        self.environments = Environments(config.environment)
        envs = config.environment.envs
        local = envs // self.group.size
        seeds = np.random.SeedSequence([config.training.seed, 1]).generate_state(envs, np.uint64)
        mine = seeds[self.group.rank * local : (self.group.rank + 1) * local] >> np.uint64(1)
        env = self.environments.training(local)
        start = directory / START  # the run needs nothing from where that came from
        self.network = make_policy_network(config, env.model, start if start.is_file() else None)
        self.phase = 0
        self.learner: Learner = make_learner(config, self.phase, self.network, env, self.group)
        self.collector = Collector(env, [int(seed) for seed in mine], self.learner.keep_steps)
        self.vector_steps = 0
        self.meters: dict[str, list[float]] = {}

    # --- Resuming ---

    def begin(self) -> None:
        """Let environments begin at different moments."""
        self.collector.scatter()

    def restore(self, checkpoint: Checkpoint) -> None:
        """Go where the checkpoint was taken."""
        document = checkpoint.document
        if len(document["ranks"]) != self.group.size:
            raise InputError(
                f"the checkpoint was made by {len(document['ranks'])} processes, not {self.group.size}"
            )
        if document["phase"] != self.phase:
            self._enter_phase(document["phase"])
        restore_learner(checkpoint, self.learner)
        rank = self.group.rank
        self.learner.restore(checkpoint.part(f"rank/{rank}/learner"))
        again = min(self.learner.keep_steps, document["vector_steps"])
        arrays = checkpoint.part(f"rank/{rank}/collector")
        self.collector.restore(document["ranks"][rank]["collector"], arrays, again, self.learner.observe)

    def state(self) -> Checkpoint | None:
        """What all processes know, gathered by the first."""
        document, arrays = self.collector.state()
        own = Checkpoint({"collector": document})
        own.add("collector", arrays)
        own.add("learner", self.learner.state())
        parts = self.group.gather(safetensors.numpy.save(own.arrays, {"document": json.dumps(own.document)}))
        if not self.first:
            return None
        whole = Checkpoint({"ranks": [], "phase": self.phase})
        for rank, part in enumerate(parts):
            whole.document["ranks"].append(json.loads(_metadata(part)["document"]))
            whole.add(f"rank/{rank}", safetensors.numpy.load(part))
        add_learner(whole, self.learner)
        return whole

    def _enter_phase(self, phase: int) -> None:
        self.phase = phase
        self.learner = make_learner(self.config, phase, self.network, self.collector.env, self.group)

    # --- Training ---

    def open(self) -> None:
        """Run heuristics on the validation windows, open the board."""
        self._board = open_board(self.directory, self.step) if self.first else None
        self._validation = (
            Validation(self.environments, self.config.validation, self.config.network, self.group.size)
            if self.first
            else None
        )
        self._last_record, self._record_step = time.monotonic(), self.step

    def advance(self) -> None:
        """Act and learn until the next occasion to write."""
        while True:
            actions = self.learner.act(self.collector.observation, self._phase_step())
            self.learner.observe(self.collector.step(actions))
            self.step += self.config.environment.envs
            self.vector_steps += 1
            stats = self.learner.update(self._phase_step(), self.group.average)
            for name, value in (stats or {}).items():
                self.meters.setdefault(name, []).append(value)
            if self._may_control():
                break
        if self.config.warm_start and self.phase == 0 and self.step >= self._warm_steps:
            self._enter_phase(1)

    def _may_control(self) -> bool:
        if not self.learner.at_boundary:
            return False
        return self.learner.keep_steps == 0 or self.vector_steps % CONTROL_EVERY == 0 or self.is_over

    def _phase_step(self) -> int:
        """Steps since the present phase began: schedules run anew in each."""
        return self.step - (self._warm_steps if self.phase else 0)

    @property
    def _warm_steps(self) -> int:
        return self.config.warm_start.steps if self.config.warm_start else 0

    @property
    def total_steps(self) -> int:
        """Of the warm start and of training."""
        return self.config.training.steps + self._warm_steps

    @property
    def is_over(self) -> bool:
        """Whether all steps are done."""
        return self.step >= self.total_steps

    # --- What is written ---

    def judge(self) -> Judged:
        """The policy's likeliest actions on the validation windows."""
        assert self._validation is not None
        tensors = {name: t.detach().cpu().numpy() for name, t in self.network.state_dict().items()}
        judgement = self._validation.run(tensors)
        model = model_of(self.config, self.collector.env.model, tensors, self.step, judgement)
        return Judged(judgement.score, self._validation.record(judgement), model, judgement.broken)

    def recommendation(self) -> dict[str, Any] | None:
        """Whether the best model keeps the limits on waits in the whole validation part."""
        return recommendation(self.environments, self.config.validation, self.directory)

    def after_validation(self) -> None:
        """What the policy does in the states it is in."""
        self.write({"event": "actions", "step": self.step, **action_record(self.network, self.collector)})

    def report(self) -> dict[str, float]:
        """Means over the episodes that ended since the last report."""
        return self.collector.take_finished()

    def note(self, reports: Sequence[dict[str, float]]) -> None:
        """A record of what happened since the last one."""
        episodes = _pooled(reports)
        for name in RECORDED:
            if name in episodes:
                self.meters.setdefault(f"episode/{name}", []).append(episodes[name])
        now = time.monotonic()
        if not self.meters or (self.learner.keep_steps and now - self._last_record < RECORD_EVERY_S):
            return
        rate = (self.step - self._record_step) / max(now - self._last_record, 1e-9)
        self._last_record, self._record_step = now, self.step
        values = {name: float(np.mean(numbers)) for name, numbers in self.meters.items()}
        self.meters = {}
        record = {"event": "update", "step": self.step, "update": self.vector_steps}
        self.write({**record, "elapsed_s": self.elapsed_s, "samples_per_s": rate, "values": values})

    def write(self, record: dict[str, Any]) -> None:
        """To the progress log, and to the board if there is one."""
        super().write(record)
        if self._board is not None:
            self._board.write(record)

    def diagnosis(self) -> dict[str, Any]:
        """How large the weights are, and which of them are not finite."""
        weights = {
            name: {"finite": bool(torch.isfinite(t).all()), "largest": float(t.abs().nan_to_num().max())}
            for name, t in self.network.state_dict().items()
            if t.numel()
        }
        return {"weights": weights}


def _pooled(parts: Sequence[dict[str, float]]) -> dict[str, float]:
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


def add_learner(checkpoint: Checkpoint, learner: Learner) -> None:
    """Enter weights and the states of optimizers: the same in every process."""
    for name, network in learner.networks.items():
        checkpoint.add(f"networks/{name}", network.state_dict())
    for name, optimizer in learner.optimizers.items():
        for number, values in optimizer.state_dict()["state"].items():
            checkpoint.add(f"optimizers/{name}/{number}", values)


def restore_learner(checkpoint: Checkpoint, learner: Learner) -> None:
    """Take weights and the states of optimizers back.

    Raises:
        InputError: if the checkpoint is of another network.
    """
    for name, network in learner.networks.items():
        arrays = checkpoint.part(f"networks/{name}")
        weights = {key: torch.from_numpy(array) for key, array in arrays.items()}
        load_weights(network, weights, "the checkpoint")
    for name, optimizer in learner.optimizers.items():
        states: dict[int, dict[str, torch.Tensor]] = {}
        for key, array in checkpoint.part(f"optimizers/{name}").items():
            number, _, field_name = key.partition("/")
            states.setdefault(int(number), {})[field_name] = torch.from_numpy(array)
        optimizer.load_state_dict({"state": states, "param_groups": optimizer.state_dict()["param_groups"]})
