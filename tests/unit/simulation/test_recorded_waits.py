"""A log whose waits the modelled cluster does not explain: gains against it are no policy's."""

import json
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from gpuyard.cluster.model import parse_cluster
from gpuyard.config import SimulationConfig
from gpuyard.evaluate import Comparison, compare
from gpuyard.evaluate.findings import advice, findings
from gpuyard.evaluate.replay import replay_comparison, run_policies, waits_of
from gpuyard.report.sources import read_sources
from gpuyard.simulation.recorded_waits import RecordedWaits
from gpuyard.simulation.run import simulate
from gpuyard.workload import Workload, make_workload, write_workload
from support.command_line import Run

CLUSTER = "2x8"
SAID = "The modelled cluster does not explain the waits of the log: "
HELD_S = 36_000.0


def log(held_s: float = HELD_S, jobs: int = 600) -> Workload:
    """Jobs that fifo+easy started, or that something kept back for so much longer."""
    random = np.random.default_rng(7)
    columns = {
        "submit_s": np.cumsum(random.exponential(900.0, jobs)),
        "duration_s": random.uniform(600.0, 3_000.0, jobs),
        "gpus": random.choice([1, 2, 4, 8], jobs),
    }
    columns["estimate_s"] = columns["duration_s"]
    plain = make_workload(pl.DataFrame(columns), name="log", epoch_s=1.6e9)
    ran = simulate(plain, CLUSTER, "fifo+easy").schedule.start_us / 1e6
    frame = plain.frame.with_columns(recorded_start_s=pl.Series(ran + held_s))
    return make_workload(frame, name="log", epoch_s=1.6e9)


@pytest.mark.parametrize(
    ("recorded_s", "simulated_s", "unexplained"),
    [(1_300.0, 600.0, True), (1_100.0, 600.0, False), (590.0, 0.0, False), (9_000.0, 5_000.0, False)],
)
def test_waits_are_unexplained_from_twice_the_simulated_ones_and_ten_minutes_on(
    recorded_s: float, simulated_s: float, unexplained: bool
) -> None:
    found = RecordedWaits("fifo+easy/consolidate", "fifo+easy", 10, recorded_s, simulated_s)
    assert found.is_unexplained is unexplained


def test_the_same_jobs_are_compared() -> None:
    held = log()
    every_second = pl.when(pl.int_range(pl.len()) % 2 == 0).then("recorded_start_s")
    half = Workload(held.frame.with_columns(recorded_start_s=every_second), held.metadata)
    cluster = parse_cluster(CLUSTER)
    waits = waits_of(run_policies(half, cluster, ["sjf+easy"], SimulationConfig()))
    simulated = simulate(half, cluster, "fifo+easy")
    expected = (simulated.schedule.start_us / 1e6 - half.frame["submit_s"].to_numpy())[::2].mean()
    assert waits is not None
    assert (waits.jobs, waits.recorded_s) == (300, pytest.approx(HELD_S + expected))
    assert waits.simulated_s == pytest.approx(expected)


@pytest.mark.parametrize("flags", [(), ("--current", "sjf")], ids=["recorded", "another reference"])
def test_simulate_says_that_gains_are_no_policys(run: Run, tmp_path: Path, flags: tuple[str, ...]) -> None:
    write_workload(log(), tmp_path / "log.parquet")
    arguments = ("simulate", tmp_path / "log.parquet", "--cluster", CLUSTER, "--policy", "sjf+easy", *flags)
    _, out, _ = run(*arguments)
    assert SAID in " ".join(out.split())
    _, out, _ = run(*arguments, "--json")
    assert json.loads(out)["recorded_waits"]["is_unexplained"] is True


def test_waits_of_a_usual_scheduler_are_explained(run: Run, tmp_path: Path) -> None:
    write_workload(log(0.0), tmp_path / "log.parquet")
    arguments = ("simulate", tmp_path / "log.parquet", "--cluster", CLUSTER, "--policy", "sjf+easy")
    _, out, _ = run(*arguments)
    assert "does not explain" not in " ".join(out.split())


def test_the_page_of_a_replay_does_not_call_a_policy_best_by_waits_that_are_unexplained() -> None:
    runs = run_policies(log(), parse_cluster(CLUSTER), ["sjf+easy"], SimulationConfig())
    report, _ = read_sources([replay_comparison("log.parquet", runs)])
    assert report.answer.sentence.startswith("It is unclear whether sjf+easy is better: ")
    assert report.answer.sure.startswith(SAID)


def held_out(**settings: object) -> Comparison:
    few = {"windows": 8, "jobs_per_window": 60, "part": "all", "metric": "mean_wait_s"}
    return compare(["sjf+easy"], log(), CLUSTER, **few, **settings)  # type: ignore[arg-type]


@pytest.mark.parametrize("whole", [True, False])
def test_no_policy_is_recommended_by_a_gain_against_waits_that_are_unexplained(
    whole: bool, tmp_path: Path
) -> None:
    found = held_out(whole=whole)
    assert found.reference == "recorded"
    assert advice(found, "sjf+easy/consolidate") == "unexplained"
    first, second, *_ = found.summary().split("\n")
    assert first.startswith(SAID)
    assert second.startswith("sjf+easy: no recommendation, as the waits of the log are not explained.")
    found.write(tmp_path / "results")
    report, _ = read_sources([tmp_path / "results"])
    assert report.answer.sentence.startswith("It is unclear whether sjf+easy is better: ")


def test_a_policy_is_judged_against_another_reference_as_ever() -> None:
    found = held_out(current="fifo+easy")
    assert [one.kind for one in findings(found)][:1] == ["unexplained"], "the row is shown, and doubtful"
    assert advice(found, "sjf+easy/consolidate") != "unexplained"
