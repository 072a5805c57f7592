"""Training runs from the first line of the progress log to the last.

What is interrupted, killed or of several processes runs in processes of its own.
"""

import json
import math
import shutil
from pathlib import Path
from typing import Any

import pytest

from gpuyard.errors import InputError
from gpuyard.learn import run as training
from gpuyard.learn.process.checkpoint import read_checkpoint
from gpuyard.learn.process.exit_codes import FAILED
from gpuyard.learn.process.launch import TrainingFailedError
from gpuyard.learn.run import resume_run, start_run
from gpuyard.learn.settings import assemble
from support.training_runs import (
    TrainedHere,
    begin,
    fingerprint,
    finish,
    records,
    tiny_config,
    train,
    wait_for_step,
)

SLOWER = [("ppo", 1), ("clone", 1), ("d3qn", 2), ("sac", 1), ("sac", 2)]


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of PPO that was left alone."""
    run = tmp_path_factory.mktemp("finished") / "run"
    assert train(run, tiny_config("ppo")) == 0
    return run


@pytest.fixture(scope="module")
def short_runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two runs of a few updates, ``ppo`` and ``clone``."""
    home = tmp_path_factory.mktemp("short")
    for algorithm in ("ppo", "clone"):
        train(home / algorithm, tiny_config(algorithm, training={"steps": 128}))
    return home


@pytest.mark.parametrize(
    ("algorithm", "processes"),
    [("ppo", 2), ("d3qn", 1), *(pytest.param(*case, marks=pytest.mark.slow) for case in SLOWER)],
)
def test_resumed_run_equals_a_straight_one(algorithm: str, processes: int, tmp_path: Path) -> None:
    config = tiny_config(algorithm, training={"processes": processes})
    straight, broken = tmp_path / "straight", tmp_path / "broken"
    assert train(straight, config) == 0
    running = begin(broken, config)
    wait_for_step(broken, running, 600)
    running.interrupt()
    assert finish(running) == 130, "it was to be interrupted before its end"
    step = read_checkpoint(broken / "checkpoint.safetensors").document["step"]
    assert 0 < step < config.training.steps
    assert train(broken, config, resume=True) == 0
    assert fingerprint(broken) == fingerprint(straight)
    scores = [[r["score"] for r in records(run) if r["event"] == "validation"] for run in (straight, broken)]
    assert scores[0] == scores[1]


@pytest.mark.parametrize("algorithm", ["evolve", "search"])
def test_resumed_run_without_gradients_equals_a_straight_one(algorithm: str, tmp_path: Path) -> None:
    config = tiny_config(algorithm)
    straight, broken = tmp_path / "straight", tmp_path / "broken"
    assert train(straight, config) == 0
    running = begin(broken, config)
    wait_for_step(broken, running, config.training.steps // 3)
    running.interrupt()
    assert finish(running) == 130, "it was to be interrupted before its end"
    assert records(broken)[-1] == {**records(broken)[-1], "event": "stop", "reason": "interrupted"}
    step = read_checkpoint(broken / "checkpoint.safetensors").document["step"]
    assert 0 < step < config.training.steps
    assert train(broken, config, resume=True) == 0
    assert fingerprint(broken) == fingerprint(straight)
    assert (broken / "best.safetensors").read_bytes() == (straight / "best.safetensors").read_bytes()
    for event in ("validation", "update"):
        seen = [[r["values"] for r in records(run) if r["event"] == event] for run in (straight, broken)]
        assert seen[0] == seen[1]


def test_search_interrupted_in_its_grid_is_resumed_from_the_start(tmp_path: Path) -> None:
    config = tiny_config("search", search={"train_windows": 400, "first_windows": 400})
    running = begin(tmp_path / "run", config)
    while not any(record["event"] == "stage" for record in _written(tmp_path / "run")):
        assert running.poll() is None
    running.interrupt()
    assert finish(running) == 130
    assert read_checkpoint(tmp_path / "run" / "checkpoint.safetensors").document["step"] == 0
    assert not (tmp_path / "run" / "best.safetensors").exists()


def _written(directory: Path) -> list[dict[str, Any]]:
    return records(directory) if (directory / "progress.jsonl").exists() else []


@pytest.mark.slow
def test_warm_start_imitates_first_and_resumes_within(tmp_path: Path) -> None:
    config = tiny_config("ppo", warm_start={"policy": "sjf+easy", "steps": 512})
    straight, broken = tmp_path / "straight", tmp_path / "broken"
    assert train(straight, config) == 0
    updates = [r["values"] for r in records(straight) if r["event"] == "update"]
    assert "loss/clone" in updates[0]
    assert "loss/policy" in updates[-1]
    for step in (200, 900):
        running = begin(broken, config, resume=(broken / "checkpoint.safetensors").exists())
        wait_for_step(broken, running, step)
        running.interrupt()
        finish(running)
    assert train(broken, config, resume=True) == 0
    assert fingerprint(broken) == fingerprint(straight)


def test_progress_log_holds_the_whole_story(finished: Path) -> None:
    config = tiny_config("ppo")
    story = records(finished)
    assert story[0]["event"] == "start"
    assert story[0]["total_steps"] == config.training.steps
    assert (story[0]["metric"], story[0]["higher_is_better"]) == ("return", True)
    assert story[-1] == {**story[-1], "event": "stop", "reason": "finished", "step": config.training.steps}
    validations = [r for r in story if r["event"] == "validation"]
    assert [r["step"] for r in validations] == [0, 512, 1024, 1536]
    assert {"policy/return", "fifo+easy/consolidate/return"} <= set(validations[0]["values"])
    update = next(r for r in story if r["event"] == "update")
    expected = {"loss/policy", "loss/value", "entropy", "kl", "gradient_norm", "learning_rate"}
    assert expected <= set(update["values"])
    assert all(math.isfinite(value) for value in update["values"].values())
    assert any(r["event"] == "actions" for r in story)


def test_best_model_is_that_of_the_best_validation(finished: Path) -> None:
    from gpuyard.network.model_file import read_model

    validations = [r for r in records(finished) if r["event"] == "validation"]
    best = max(validations, key=lambda r: r["score"])
    model = read_model(finished / "best.safetensors")
    assert model.training["validation"]["score"] == best["score"]
    assert model.training["steps"] == best["step"]


def test_run_without_improvement_stops_early(tmp_path: Path) -> None:
    config = tiny_config(
        "ppo",
        training={"patience": 1, "least_improvement": 1e9},
        validation={"every_steps": 128},
    )
    assert train(tmp_path / "run", config) == 0
    assert records(tmp_path / "run")[-1]["reason"] == "early"
    assert records(tmp_path / "run")[-1]["step"] < config.training.steps


def test_run_that_reaches_its_target_stops_early(tmp_path: Path) -> None:
    config = tiny_config("ppo", training={"target": -1e9})
    train(tmp_path / "run", config)
    assert records(tmp_path / "run")[-1] == {**records(tmp_path / "run")[-1], "reason": "early", "step": 0}


def test_numbers_that_are_not_finite_stop_the_run_with_a_diagnosis(tmp_path: Path) -> None:
    config = tiny_config("ppo", learning_rate={"schedule": "constant", "start": 1e30})
    assert train(tmp_path / "run", config) == 3
    diagnosis = json.loads((tmp_path / "run" / "diagnosis.json").read_text())
    assert "finite" in diagnosis["error"]
    assert diagnosis["step"] > 0
    assert "learning_rate" in diagnosis["advice"]
    assert records(tmp_path / "run")[-1]["reason"] == "nan"


def test_training_can_start_from_another_runs_weights(short_runs: Path, tmp_path: Path) -> None:
    first = short_runs / "clone"
    config = tiny_config("ppo", init_from=str(first), training={"steps": 128})
    assert train(tmp_path / "second", config) == 0
    ends = [r for r in records(first) if r["event"] == "validation"]
    starts = [r for r in records(tmp_path / "second") if r["event"] == "validation"]
    best = max(ends, key=lambda r: r["score"])
    assert starts[0]["values"]["policy/return"] == best["values"]["policy/return"]


def test_weights_of_another_network_are_refused(short_runs: Path, tmp_path: Path) -> None:
    config = tiny_config("ppo", init_from=str(short_runs / "clone"), network={"width": 16})
    with pytest.raises(InputError, match="does not fit the network"):
        train(tmp_path / "second", config)


def test_checkpoint_of_another_number_of_processes_is_refused(short_runs: Path, tmp_path: Path) -> None:
    shutil.copytree(short_runs / "ppo", tmp_path / "run")
    config = tiny_config("ppo", training={"processes": 2})
    with pytest.raises(InputError, match="made by 1 processes, not 2"):
        train(tmp_path / "run", config, resume=True)


def test_damaged_checkpoint_is_refused_and_left_alone(short_runs: Path, tmp_path: Path) -> None:
    config = tiny_config("ppo", training={"steps": 128})
    shutil.copytree(short_runs / "ppo", tmp_path / "run")
    path = tmp_path / "run" / "checkpoint.safetensors"
    path.write_bytes(path.read_bytes()[:-100])
    with pytest.raises(InputError, match="damaged"):
        train(tmp_path / "run", config, resume=True)
    assert (tmp_path / "run" / "best.safetensors").exists()


def test_run_that_started_from_a_model_is_resumed_without_that_model(
    short_runs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(training, "TrainingProcesses", TrainedHere)
    first, second, straight = tmp_path / "first", tmp_path / "second", tmp_path / "straight"
    shutil.copytree(short_runs / "clone", first)
    config = tiny_config("ppo", init_from=str(first), training={"steps": 512})
    assert start_run(straight, config) == 0
    shortly = tiny_config("ppo", init_from=str(first), training={"steps": 512, "minutes": 1e-6})
    assert start_run(second, shortly) == 0
    shutil.rmtree(first)
    assert resume_run(second, minutes=5) == 0
    assert fingerprint(second) == fingerprint(straight)
    again = assemble("ppo", {}, file=second / "config.toml")
    assert again.init_from == str(second / "start.safetensors")
    assert start_run(tmp_path / "third", again) == 0
    assert fingerprint(tmp_path / "third") == fingerprint(straight)


@pytest.mark.parametrize("rank", [pytest.param(0, marks=pytest.mark.slow), 1])
def test_crashed_process_is_a_failure_that_names_its_own_log(
    rank: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    crash = f"""
import sys
if "gpuyard.learn.process.worker" in " ".join(sys.orig_argv) and "--rank {rank} " in " ".join(sys.orig_argv):
    import gpuyard.learn.memory.collector
    def break_down(*_):
        raise RuntimeError("the floor is gone")
    gpuyard.learn.memory.collector.Collector.step = break_down
"""
    (tmp_path / "sitecustomize.py").write_text(crash)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    running = begin(tmp_path / "run", tiny_config("ppo", training={"processes": 2}))
    with pytest.raises(TrainingFailedError, match="the floor is gone") as error:
        finish(running)
    assert running.poll() == FAILED
    assert f"process-{rank}.log" in str(error.value)
    assert f"--resume {tmp_path / 'run'}" in str(error.value)


def test_killed_process_is_a_failure_that_names_the_signal(tmp_path: Path) -> None:
    running = begin(tmp_path / "run", tiny_config("ppo", training={"processes": 2, "steps": 10**6}))
    wait_for_step(tmp_path / "run", running, 64)
    running._processes[1].kill()
    with pytest.raises(TrainingFailedError, match=r"process 1: it was ended by signal SIGKILL"):
        finish(running)
