"""Training killed at random moments loses nothing but the work since its last checkpoint."""

import random
import time
from pathlib import Path

import pytest

from gpuyard.learn.process.checkpoint import read_checkpoint
from gpuyard.network.model_file import read_model
from support.training_runs import begin, fingerprint, finish, records, tiny_config, train


def kill_and_resume(tmp_path: Path, kills: int, seed: int, processes: int) -> None:
    config = tiny_config("ppo", training={"steps": 3072, "processes": processes})
    straight, killed = tmp_path / "straight", tmp_path / "killed"
    began = time.monotonic()
    assert finish(begin(straight, config)) == 0
    took = time.monotonic() - began
    chance = random.Random(seed)
    reached = 0
    for _ in range(kills):
        running = begin(killed, config, resume=(killed / "checkpoint.safetensors").exists())
        time.sleep(chance.uniform(0.3, 0.9) * took)
        running.kill()
        if (killed / "checkpoint.safetensors").exists():
            step = read_checkpoint(killed / "checkpoint.safetensors").document["step"]
            assert step >= reached, "what a checkpoint held was lost"
            reached = step
            assert read_model(killed / "last.safetensors").training["steps"] <= config.training.steps
    train(killed, config, resume=(killed / "checkpoint.safetensors").exists())
    assert fingerprint(killed) == fingerprint(straight)
    steps = [r["step"] for r in records(killed) if r["event"] == "update"]
    assert steps == sorted(set(steps)), "a step stands in the progress log twice or not in order"


def test_run_killed_once_ends_as_a_straight_one(tmp_path: Path) -> None:
    kill_and_resume(tmp_path, kills=1, seed=1, processes=1)


@pytest.mark.slow
def test_run_killed_twenty_times_ends_as_a_straight_one(tmp_path: Path) -> None:
    kill_and_resume(tmp_path, kills=20, seed=2, processes=2)
