"""Small training runs, in processes of their own or in that of the test."""

import json
import signal
import subprocess
import sys
import time
from contextlib import redirect_stderr
from pathlib import Path
from typing import Any

from gpuyard.learn.config import TrainConfig, merged, read_config
from gpuyard.learn.process import worker
from gpuyard.learn.process.checkpoint import read_checkpoint
from gpuyard.learn.process.launch import TrainingProcesses

TINY: dict[str, Any] = {
    "environment": {"workload": "demo", "jobs_per_episode": 16, "window": 8, "envs": 4},
    "network": {"width": 8},
    "training": {"steps": 1536, "processes": 1, "checkpoint_every_s": 0.0, "seed": 5},
    "validation": {"windows": 2, "every_steps": 512, "heuristics": ["fifo+easy"]},
}
OWN: dict[str, dict[str, Any]] = {
    "ppo": {"rollout_steps": 16, "minibatch": 32, "epochs": 2},
    "clone": {"rollout_steps": 16, "minibatch": 32},
    "d3qn": {"capacity": 512, "batch_size": 16, "learning_starts": 64, "train_every": 2},
    "sac": {"capacity": 512, "batch_size": 16, "learning_starts": 64, "train_every": 2},
    "evolve": {"generations": 40, "population": 8, "episodes": 8},
    "search": {
        "train_windows": 6,
        "validation_windows": 4,
        "jobs_per_window": 48,
        "exponents": [0.5, 1.0],
        "express_t0_s": [600.0],
        "express_k": [0.1],
        "first_windows": 2,
        "refinements": 1,
        "generations": 30,
        "population": 6,
        "windows_per_generation": 3,
    },
}
READ_BY_SEARCH = {"environment": {"workload"}, "training": {"checkpoint_every_s", "seed"}}


def tiny_config(algorithm: str, **tables: Any) -> TrainConfig:
    """A run of seconds."""
    usual: dict[str, Any] = {**TINY}
    if algorithm == "evolve":
        usual["rule"] = {"score": {"estimate": -1.0}}
    if algorithm == "search":
        usual = {
            name: {key: value for key, value in TINY[name].items() if key in keys}
            for name, keys in READ_BY_SEARCH.items()
        }
    return read_config(merged({"algorithm": algorithm, **usual, algorithm: OWN[algorithm]}, tables))


class TrainedHere(TrainingProcesses):
    """A run of one process that is over once it is made, as it is trained in the process of the test.

    For tests of what comes of a run, not of its process: to import torch in another one takes seconds.
    """

    def _start(
        self, rank: int, count: int, memory: int, sockets: list[int], resume: bool
    ) -> subprocess.Popen[bytes]:
        if count > 1:
            return super()._start(rank, count, memory, sockets, resume)
        numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1)
        before = [signal.getsignal(number) for number in numbers]
        try:
            with self._log(rank).open("w", encoding="utf-8") as log, redirect_stderr(log):
                code = worker.main([str(self._directory), *(["--resume"] if resume else [])])
        finally:
            for number, handler in zip(numbers, before, strict=True):
                signal.signal(number, handler)
        return _Ended(code)


class _Ended(subprocess.Popen[bytes]):
    """A process that has ended."""

    def __init__(self, code: int) -> None:
        self.args, self.pid, self.stdin, self.stdout, self.stderr = [sys.executable], 0, None, None, None
        self.returncode = code

    def poll(self) -> int:
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        return self.returncode

    def send_signal(self, sig: int) -> None:
        raise ProcessLookupError

    def __del__(self) -> None:
        pass


def begin(
    directory: Path,
    config: TrainConfig,
    *,
    resume: bool = False,
    made_by: type[TrainingProcesses] = TrainingProcesses,
) -> TrainingProcesses:
    """Start a run's processes."""
    directory.mkdir(exist_ok=True)
    (directory / "config.toml").write_text(config.to_toml(), encoding="utf-8")
    return made_by(directory, config.training.processes or 1, resume=resume)


def finish(processes: TrainingProcesses, within_s: float = 120.0) -> int:
    """Wait for the end."""
    until = time.monotonic() + within_s
    while (code := processes.poll()) is None:
        if time.monotonic() > until:
            processes.kill()
            raise TimeoutError("training takes too long")
        time.sleep(0.02)
    processes.check(code)
    return code


def train(directory: Path, config: TrainConfig, *, resume: bool = False) -> int:
    """Start a run, or resume it, and wait for its end; a run of one process is trained in this one."""
    return finish(begin(directory, config, resume=resume, made_by=TrainedHere))


def records(directory: Path) -> list[dict[str, Any]]:
    """The lines of a run's progress log."""
    lines = (directory / "progress.jsonl").read_text(encoding="utf-8").splitlines()
    return [json.loads(line) for line in lines]


def wait_for_step(directory: Path, processes: TrainingProcesses, step: int, within_s: float = 60.0) -> None:
    """Until the run has come so far, or has ended."""
    until = time.monotonic() + within_s
    while time.monotonic() < until and processes.poll() is None:
        path = directory / "progress.jsonl"
        if path.exists():
            lines = path.read_text(encoding="utf-8").split("\n")[:-1]
            if any(json.loads(line).get("step", 0) >= step for line in lines):
                return
        time.sleep(0.01)


def fingerprint(directory: Path) -> str:
    """Of everything that training computes: weights, optimizers, random draws, what environments did."""
    return str(read_checkpoint(directory / "checkpoint.safetensors").document["sha256"])
