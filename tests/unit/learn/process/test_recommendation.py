"""Limits on waits in training: what checkpoints are charged, and whether the best one is recommended."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gpuyard.errors import InputError
from gpuyard.learn.algorithm import find_algorithm
from gpuyard.learn.config import read_config
from gpuyard.learn.memory.environments import Environments
from gpuyard.learn.process.evolve_loop import EvolveLoop
from gpuyard.learn.process.validation import Measure, Validation
from gpuyard.network.rollout import EpisodeResults
from gpuyard.runs.directory import open_run
from gpuyard.terminal.runs import limits_in_words
from support.training_runs import records

TABLES: dict[str, Any] = {
    "algorithm": "evolve",
    "environment": {"workload": "surges", "jobs_per_episode": 96, "window": 16, "base_policy": "fifo+greedy"},
    "rule": {"score": {"estimate": 1.0}},  # the longest first
    "validation": {"windows": 4, "metric": "mean_bounded_slowdown", "heuristics": ["fifo+greedy"]},
    "evolve": {"generations": 1, "population": 4, "episodes": 2},
}
DRAWS = {"generator": {"preset": "demo", "jobs": 64}, "cluster": "8x8"}
ANY_WAIT = {"max_p99_increase": 1000, "max_longest_increase": 1000, "longest_factor": 1000}
TODAY = {"p99_wait_s": 4000.0, "max_wait_s": 9000.0}


def validation_of(**tables: Any) -> Validation:
    config = read_config({**TABLES, **tables})
    return Validation(Environments(config.environment), config.validation, config.network, threads=1)


def results(p99_s: list[float], longest_s: list[float]) -> EpisodeResults:
    metrics = {
        "p99_wait_s": np.array(p99_s),
        "max_wait_s": np.array(longest_s),
        "mean_bounded_slowdown": np.full(len(p99_s), 2.0),
    }
    count = len(p99_s)
    return EpisodeResults(tuple(range(count)), np.zeros(count), np.zeros(count, np.int64), metrics)


@pytest.mark.parametrize(
    ("p99_s", "longest_s", "charge"),
    [
        ([4000.0, 6000.0], [9000.0, 13_500.0], 0.0),  # up to +25 % on average, up to +50 % at most
        ([4000.0, 8000.0], [9000.0, 9000.0], 10 * np.log(6000 / 5000)),
        ([4000.0, 4000.0], [100.0, 27_000.0], 10 * np.log(2)),
        ([8000.0, 12_000.0], [9000.0, 27_000.0], 10 * np.log(4)),
    ],
)
def test_a_policy_is_charged_for_waits_above_their_limits(
    p99_s: list[float], longest_s: list[float], charge: float
) -> None:
    found = validation_of().loss(results(p99_s, longest_s), Measure(waits=TODAY))
    assert found == pytest.approx(2.0 * np.exp(charge))


def test_limits_are_counted_from_what_runs_today() -> None:
    validation = validation_of()
    assert validation.current == "fifo+easy/consolidate"
    assert not validation.heuristics["fifo+easy/consolidate"].broken
    blind = {**TABLES["environment"], "estimates": "none"}
    rule = {"score": {"gpus": 1.0}}
    assert validation_of(environment=blind, rule=rule).current == "fifo+greedy/consolidate"
    asked = {**TABLES["validation"], "current": "sjf+easy"}
    assert validation_of(validation=asked).current == "sjf+easy/consolidate"
    asked = {**TABLES["validation"], "current": "recorded"}
    assert validation_of(validation=asked).current == "fifo+easy/consolidate"


def test_there_are_no_limits_on_draws_and_in_other_step_modes() -> None:
    assert validation_of(environment=DRAWS).current is None
    events = {**TABLES["environment"], "step_mode": "event"}
    assert validation_of(environment=events).current is None
    longest = results([1e9], [1e9])
    validation = validation_of(environment=DRAWS)
    assert validation.loss(longest, validation.measure(lambda _: longest)) == pytest.approx(2.0)


def ended(directory: Path, **tables: Any) -> EvolveLoop:
    loop = EvolveLoop(directory, read_config({**TABLES, **tables}))
    assert loop.run() == "finished"
    return loop


def test_a_run_ends_with_whether_its_best_model_is_recommended(tmp_path: Path) -> None:
    ended(tmp_path)
    last, stop = records(tmp_path)[-2:]
    assert (last["event"], stop["event"]) == ("recommendation", "stop")
    assert last["kind"] == "not-recommended"
    assert last["current"] == "fifo+easy/consolidate"
    worst = last["broken"][0]
    assert worst["own"] > worst["limit"] > worst["other"]
    run = open_run(tmp_path)
    assert run.recommendation is not None
    assert run.recommendation.broken[0].own == worst["own"]
    (line,) = limits_in_words(run)
    assert line.startswith("Not recommended: ")
    assert "would wait" in line


def test_the_progress_log_has_the_limits_that_a_checkpoint_breaks_on_windows(tmp_path: Path) -> None:
    none = {"max_p99_increase": 0, "max_longest_increase": 0, "least_rise_s": 0}
    ended(tmp_path, validation={**TABLES["validation"], **none})
    first = next(record for record in records(tmp_path) if record["event"] == "validation")
    assert {one["metric"] for one in first["broken"]} <= {"p99_wait_s", "max_wait_s"}
    assert first["broken"]
    assert all(one["own"] > one["other"] for one in first["broken"])
    with (tmp_path / "progress.jsonl").open("a", encoding="utf-8") as log:
        log.write('{"event":"resume","step":8}\n')  # as of a run that has not ended
    assert limits_in_words(open_run(tmp_path))[0].startswith("It breaks a limit on held-out windows: jobs ")


def test_a_model_that_keeps_the_limits_is_recommended_for_a_check(tmp_path: Path) -> None:
    ended(tmp_path, validation={**TABLES["validation"], **ANY_WAIT})
    run = open_run(tmp_path)
    assert run.recommendation is not None
    assert run.recommendation.kind == "recommended"
    assert not run.recommendation.broken
    assert limits_in_words(run)[0].startswith("Recommended for a check on held-out jobs")


def test_nothing_is_said_of_draws(tmp_path: Path) -> None:
    ended(tmp_path, environment=DRAWS)
    assert open_run(tmp_path).recommendation is None


def test_a_resumed_run_is_not_recommended_by_what_was_found_before(tmp_path: Path) -> None:
    ended(tmp_path)
    with (tmp_path / "progress.jsonl").open("a", encoding="utf-8") as log:
        log.write('{"event":"resume","step":8}\n')
    assert open_run(tmp_path).recommendation is None


def test_settings_of_a_run_hold_the_jobs_around_windows_and_remarks_name_them() -> None:
    config = read_config(TABLES)
    assert "warmup_jobs" not in config.environment.settings
    prepared, remarks = find_algorithm("evolve").prepare(config)
    settings = prepared.environment.settings
    around = Environments(config.environment).around
    assert (settings["warmup_jobs"], settings["cooldown_jobs"]) == around
    assert all(around)
    assert remarks[0].startswith("Estimates are ")
    assert remarks[1].startswith(f"Episodes begin on a busy cluster: {around[0]:,} jobs before, ")
    model, _ = Environments(prepared.environment).held_out(prepared.validation)
    assert model.config.around == around


def test_an_unknown_policy_of_today_is_refused_before_anything_is_run() -> None:
    with pytest.raises(InputError, match="nonesuch"):
        find_algorithm("evolve").prepare(
            read_config({**TABLES, "validation": {**TABLES["validation"], "current": "nonesuch"}})
        )
