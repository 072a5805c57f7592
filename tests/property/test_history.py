"""Predictions from finished jobs: docs/contract/simulator.md, section 19."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from differential.cases import Case
from differential.core_runs import config_of
from differential.lifecycle_cases import random_history
from gpuyard import _core, cli
from gpuyard.config import SimulationConfig
from gpuyard.simulation.run import simulate
from gpuyard.workload import SynthConfig, Workload, make_workload, synthesize
from property.lifecycle import decisions, result

SEEDS = range(60)
HOUR_US = 3_600_000_000
Told = tuple[str, str, int, int]
"""User, group, GPUs and run time of a finished job."""


def predicted_us(finished: list[Told], user: str, group: str, gpus: int) -> int:
    """The page, read aloud."""
    alike: tuple[Callable[[Told], bool], ...] = (
        lambda job: job[:3] == (user, group, gpus),
        lambda job: (job[0], job[2]) == (user, gpus),
        lambda job: job[0] == user,
        lambda job: job[2] == gpus,
        lambda _: True,
    )
    for is_alike in alike:
        times_us = [job[3] for job in finished if is_alike(job)]
        if times_us:
            return max(1, round(float(sum(times_us)) / float(len(times_us))))
    return HOUR_US


def known_when_it_came(case: Case, ends_us: list[int], job: int) -> list[Told]:
    """The history, and what had finished when the job arrived, that instant included."""
    came_us = round(case.jobs[job].submit_s * 1e6)
    known = [(old.user, old.group, old.gpus, max(1, round(old.duration_s * 1e6))) for old in case.history]
    for other in range(len(case.jobs)):
        if ends_us[other] <= came_us:
            old = case.jobs[other]
            known.append((old.user, old.group, old.gpus, max(1, round(old.duration_s * 1e6))))
    return known


def test_estimates_from_history_are_means_of_what_has_finished() -> None:
    compared = usual = 0
    for seed in SEEDS:
        case = random_history(seed)
        how = replace(case.settings, estimates="history", kill_at_estimate=False)
        case = replace(case, settings=how)
        seen: dict[int, float] = {}
        for snapshot, _ in decisions(case):
            for job, estimate_s in zip(
                snapshot.queue["job"].tolist(), snapshot.queue["estimate_s"], strict=True
            ):
                assert seen.setdefault(job, estimate_s) == estimate_s, "fixed when the job arrives"
        ends_us = result(case).schedule.end_us.tolist()
        for job, estimate_s in seen.items():
            asks = case.jobs[job]
            expected_us = predicted_us(
                known_when_it_came(case, ends_us, job), asks.user, asks.group, asks.gpus
            )
            assert estimate_s == expected_us / 1e6, (seed, job)
            compared += 1
            usual += expected_us == HOUR_US
    assert compared > 500
    assert 20 < usual < compared / 2


def test_a_case_without_history_is_told_an_hour_at_first() -> None:
    case = random_history(1)
    case = replace(case, history=[], settings=replace(case.settings, estimates="history"))
    assert config_of(case).estimates == "history"
    snapshot, _ = next(iter(decisions(case)))
    assert set(snapshot.queue["estimate_s"].tolist()) == {3600.0}


# --- by hand


def jobs(*rows: tuple[float, float, int, str], group: str = "g") -> Workload:
    """From (submit_s, duration_s, gpus, user) of each job."""
    frame = pl.DataFrame(rows, schema=["submit_s", "duration_s", "gpus", "user"], orient="row")
    return make_workload(frame.with_columns(group=pl.lit(group)))


def starts_s(
    workload: Workload, policy: str, history: Workload | None = None, **settings: Any
) -> list[float]:
    schedule = simulate(workload, "1x4", policy, SimulationConfig(**settings), history=history).schedule
    return (schedule.start_us / 1e6).tolist()


# `ada` runs long jobs and `bo` short ones; then both ask for the whole node while it is busy.
LEARNED = jobs(
    (0, 100, 4, "ada"), (1, 10, 4, "bo"), (120, 50, 4, "cy"), (121, 1, 4, "ada"), (122, 99, 4, "bo")
)


def test_qssf_puts_the_user_first_whose_jobs_were_short() -> None:
    assert starts_s(LEARNED, "qssf") == [0.0, 100.0, 120.0, 269.0, 170.0]
    assert starts_s(LEARNED, "fifo") == [0.0, 100.0, 120.0, 170.0, 171.0]


def test_qssf_learns_whatever_the_estimates() -> None:
    for estimates in ("exact", "none", "history", "noisy"):
        assert starts_s(LEARNED, "qssf", estimates=estimates) == [0.0, 100.0, 120.0, 269.0, 170.0]


def test_sjf_with_estimates_from_history_does_the_same() -> None:
    assert starts_s(LEARNED, "sjf", estimates="history") == starts_s(LEARNED, "qssf")


# All wait behind the first; nothing has finished when they come.
UNLEARNED = jobs((0, 50, 4, "cy"), (1, 1, 4, "ada"), (2, 99, 4, "bo"))
PAST = jobs((0, 100, 4, "ada"), (1, 10, 4, "bo"))


def test_jobs_of_an_earlier_part_of_the_trace_count_as_finished() -> None:
    assert starts_s(UNLEARNED, "qssf") == [0.0, 50.0, 51.0]
    assert starts_s(UNLEARNED, "qssf", PAST) == [0.0, 149.0, 50.0]
    assert starts_s(UNLEARNED, "sjf", PAST, estimates="history") == [0.0, 149.0, 50.0]


def test_history_does_not_matter_to_those_who_do_not_look_at_it() -> None:
    assert starts_s(UNLEARNED, "fifo", PAST) == starts_s(UNLEARNED, "fifo")
    exact = {"estimates": "exact"}
    assert starts_s(UNLEARNED, "sjf", PAST, **exact) == starts_s(UNLEARNED, "sjf", **exact)


@pytest.mark.parametrize("policy", ["qssf", "gittins+greedy", "qssf+easy/spread"])
def test_the_past_of_a_window_changes_its_schedule(policy: str) -> None:
    trace = synthesize(SynthConfig(jobs=240, cluster_gpus=8, load=1.5, users=4, user_habits=0.9, seed=5))
    past, window = (make_workload(part) for part in (trace.frame.head(120), trace.frame.tail(120)))
    alone, informed = (
        simulate(window, "2x4", policy, SimulationConfig(min_run_s=30), history=history).schedule
        for history in (None, past)
    )
    assert alone.hash() != informed.hash()
    again = simulate(window, "2x4", policy, SimulationConfig(min_run_s=30), history=past).schedule
    assert again.hash() == informed.hash()


def test_the_mean_is_taken_over_the_closest_jobs_there_are() -> None:
    """Same user, group and GPUs before same user and GPUs before same user before same GPUs before all."""
    past = [("u", "g", 2, 10), ("u", "g", 2, 13), ("u", "h", 2, 100), ("u", "h", 4, 1000), ("v", "h", 1, 7)]
    frame = pl.DataFrame(
        [(0.0, float(s), gpus, user, group) for user, group, gpus, s in past],
        schema=["submit_s", "duration_s", "gpus", "user", "group"],
        orient="row",
    )
    asked = [("u", "g", 2), ("u", "x", 2), ("u", "x", 1), ("w", "x", 1), ("w", "x", 3)]
    expected_s = [11.5, 41.0, 280.75, 7.0, 226.0]
    rows = [(float(i), 500.0, gpus, user, group) for i, (user, group, gpus) in enumerate(asked)]
    window = make_workload(pl.DataFrame(rows, schema=frame.columns, orient="row"))
    told: dict[int, float] = {}

    class Listener:
        """Keeps what it is told, and starts one job at a time."""

        def decide(self, snapshot: Any) -> Any:
            told.update(
                zip(snapshot.queue["job"].tolist(), snapshot.queue["estimate_s"].tolist(), strict=True)
            )
            decision = _core.Decision()
            if not len(snapshot.running["job"]):
                decision.start(int(snapshot.queue["job"][0]), [(0, int(snapshot.queue["gpus"][0]))])
            return decision

    config = SimulationConfig(estimates="history")
    simulate(window, "1x4", Listener(), config, history=make_workload(frame))
    assert [told[job] for job in range(len(asked))] == expected_s


def test_the_command_line_takes_history(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    header = "submit_s,duration_s,gpus,user,group\n"
    for name, workload in (("now.csv", UNLEARNED), ("past.csv", PAST)):
        rows = workload.frame.select("submit_s", "duration_s", "gpus", "user", "group").rows()
        Path(name).write_text(header + "".join(",".join(map(str, row)) + "\n" for row in rows))
    hashes = []
    for options in ([], ["--history", "past.csv"]):
        assert (
            cli.main(["simulate", "now.csv", "--cluster", "1x4", "--policy", "qssf", "--json", *options]) == 0
        )
        hashes.append(json.loads(capfd.readouterr().out)["results"][0]["schedule_hash"])
    informed = simulate(UNLEARNED, "1x4", "qssf", history=PAST).schedule.hash()
    assert hashes == [simulate(UNLEARNED, "1x4", "qssf").schedule.hash(), informed]
    assert cli.main(["simulate", "now.csv", "--cluster", "1x4", "--history", "none.csv"]) == cli.BAD_INPUT
    assert "none.csv" in capfd.readouterr().err
