"""Training runs from the first line of the diary to the last, in processes of their own."""

import json
import math
from pathlib import Path

import pytest

from gpuyard.errors import InputError
from gpuyard.learn.checkpoint import read_checkpoint
from training_runs import begin, fingerprint, finish, records, tiny_config, train, wait_for_step

SLOWER = [("ppo", 1), ("clone", 1), ("d3qn", 2), ("sac", 2)]


@pytest.mark.parametrize(
    ("algorithm", "processes"),
    [("ppo", 2), ("d3qn", 1), ("sac", 1), *(pytest.param(*case, marks=pytest.mark.slow) for case in SLOWER)],
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


def test_diary_tells_the_whole_story(tmp_path: Path) -> None:
    config = tiny_config("ppo")
    train(tmp_path / "run", config)
    story = records(tmp_path / "run")
    assert story[0]["event"] == "start"
    assert story[0]["total_steps"] == config.training.steps
    assert story[-1] == {**story[-1], "event": "stop", "reason": "finished", "step": config.training.steps}
    validations = [r for r in story if r["event"] == "validation"]
    assert [r["step"] for r in validations] == [0, 512, 1024, 1536]
    assert {"policy/return", "fifo+easy/consolidate/return"} <= set(validations[0]["values"])
    update = next(r for r in story if r["event"] == "update")
    expected = {"loss/policy", "loss/value", "entropy", "kl", "gradient_norm", "learning_rate"}
    assert expected <= set(update["values"])
    assert all(math.isfinite(value) for value in update["values"].values())
    assert any(r["event"] == "actions" for r in story)


def test_best_model_is_that_of_the_best_validation(tmp_path: Path) -> None:
    from gpuyard.network.model_file import read_model

    train(tmp_path / "run", tiny_config("ppo"))
    validations = [r for r in records(tmp_path / "run") if r["event"] == "validation"]
    best = max(validations, key=lambda r: r["score"])
    model = read_model(tmp_path / "run" / "best.safetensors")
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


def test_training_can_start_from_another_runs_weights(tmp_path: Path) -> None:
    train(tmp_path / "first", tiny_config("clone"))
    config = tiny_config("ppo", init_from=str(tmp_path / "first"))
    assert train(tmp_path / "second", config) == 0
    ends = [r for r in records(tmp_path / "first") if r["event"] == "validation"]
    starts = [r for r in records(tmp_path / "second") if r["event"] == "validation"]
    best = max(ends, key=lambda r: r["score"])
    assert starts[0]["values"]["policy/return"] == best["values"]["policy/return"]


def test_weights_of_another_network_are_refused(tmp_path: Path) -> None:
    train(tmp_path / "first", tiny_config("clone", training={"steps": 64}))
    config = tiny_config("ppo", init_from=str(tmp_path / "first"), network={"width": 16})
    with pytest.raises(InputError, match="does not fit the network"):
        train(tmp_path / "second", config)


def test_checkpoint_of_another_number_of_processes_is_refused(tmp_path: Path) -> None:
    train(tmp_path / "run", tiny_config("ppo", training={"steps": 128}))
    config = tiny_config("ppo", training={"processes": 2})
    with pytest.raises(InputError, match="made by 1 processes, not 2"):
        train(tmp_path / "run", config, resume=True)


def test_damaged_checkpoint_is_refused_and_left_alone(tmp_path: Path) -> None:
    config = tiny_config("ppo", training={"steps": 128})
    train(tmp_path / "run", config)
    path = tmp_path / "run" / "checkpoint.safetensors"
    path.write_bytes(path.read_bytes()[:-100])
    with pytest.raises(InputError, match="damaged"):
        train(tmp_path / "run", config, resume=True)
    assert (tmp_path / "run" / "best.safetensors").exists()
