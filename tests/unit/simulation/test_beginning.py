"""``simulate(..., beginning=...)``: jobs that ran before the policy decides."""

from typing import Any

import numpy as np
import polars as pl
import pytest

from gpuyard import _core
from gpuyard.config import SimulationConfig
from gpuyard.errors import InputError
from gpuyard.native.beginning import Beginning
from gpuyard.simulation.run import simulate
from gpuyard.workload import Workload, make_workload

SECOND = 1_000_000


def jobs_of(*rows: tuple[float, float, int]) -> Workload:
    """Jobs by submit, duration and GPUs."""
    return make_workload(pl.DataFrame(rows, schema=["submit_s", "duration_s", "gpus"], orient="row"))


def begun(moment_s: float, *starts: tuple[int, float, tuple[tuple[int, int], ...]]) -> Beginning:
    jobs, start_s, nodes = zip(*starts, strict=True) if starts else ((), (), ())
    start_us = np.array([round(time * SECOND) for time in start_s], np.int64)
    return Beginning(round(moment_s * SECOND), np.array(jobs, np.int64), start_us, tuple(nodes))


def starts_of(
    workload: Workload, beginning: Beginning, policy: Any = "fifo+easy", **settings: Any
) -> list[float]:
    config = SimulationConfig(estimates="exact").model_copy(update=settings)
    schedule = simulate(workload, "2x4", policy, config, beginning=beginning).schedule
    return (schedule.start_us / SECOND).tolist()


def test_what_ran_holds_its_gpus_for_the_rest_of_its_run_time_and_what_waited_waits_on() -> None:
    jobs = jobs_of((0, 100, 4), (0, 100, 4), (20, 10, 4), (60, 10, 4))
    given = begun(60, (0, 5, ((1, 4),)), (1, 30, ((0, 4),)))
    schedule = simulate(jobs, "2x4", "fifo", SimulationConfig(estimates="exact"), beginning=given).schedule
    assert (schedule.start_us / SECOND).tolist() == [5, 30, 105, 115]
    assert schedule.node.tolist() == [1, 0, 1, 1]
    assert not schedule.backfilled.any()


def test_the_policy_decides_at_the_moment_even_if_nothing_happens_then() -> None:
    assert starts_of(jobs_of((0, 100, 4), (10, 5, 4)), begun(33)) == [33, 33]


def test_a_policy_sees_expected_ends_counted_from_the_real_start() -> None:
    class Watching:
        def __init__(self) -> None:
            self.seen: list[dict[str, Any]] = []

        def decide(self, snapshot: _core.Snapshot) -> _core.Decision:
            self.seen.append({name: values.tolist() for name, values in snapshot.running.items()})
            return _core.decide(snapshot, _core.Policy("fifo", "strict", "consolidate"))

    watching = Watching()
    starts_of(jobs_of((0, 100, 8), (50, 10, 8)), begun(50, (0, 20, ((0, 4), (1, 4)))), watching)
    first = watching.seen[0]
    assert first["attained_s"] == [30]
    assert first["expected_end_s"] == [120]


def test_usage_of_users_counts_from_the_real_start() -> None:
    rows = {
        "submit_s": [0.0, 40, 41],
        "duration_s": [100.0, 10, 10],
        "gpus": [8, 8, 8],
        "user": ["a", "a", "b"],
    }
    given = begun(50, (0, 10, ((0, 4), (1, 4))))
    assert starts_of(make_workload(pl.DataFrame(rows)), given, "fair-share") == [10, 120, 110]


def test_a_policy_that_preempts_may_stop_what_ran_once_it_has_run_long_enough() -> None:
    jobs, given = jobs_of((0, 10_000, 8), (1000, 10, 8)), begun(1000, (0, 900, ((0, 4), (1, 4))))
    schedule = simulate(jobs, "2x4", "srtf", SimulationConfig(estimates="exact"), beginning=given).schedule
    assert schedule.start_us[1] / SECOND == pytest.approx(
        1200 + 3.5
    )  # min_run_s is 300 s, a checkpoint 3.5 s


def test_ticks_before_the_moment_cost_nothing() -> None:
    month_s = 30 * 86400.0
    jobs = jobs_of((0, 10, 8), (12 * month_s, 10, 8))
    schedule = simulate(
        jobs,
        "2x4",
        "srtf",
        SimulationConfig(estimates="exact", reschedule_s=1e-3),
        beginning=begun(12 * month_s),
    ).schedule
    assert schedule.start_us[0] == 12 * month_s * SECOND


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (
            begun(60, (0, 10, ((0, 5),))),
            r"job 0 cannot have started at 10\.0+ s: node 0 has too few empty GPUs",
        ),
        (begun(60, (0, 10, ((0, 4),)), (1, 12, ((0, 4),))), "job 1 .* node 0 has too few empty GPUs"),
        (begun(60, (0, 10, ((0, 3),))), "a gang starts whole or not at all"),
        (begun(60, (0, 10, ((2, 4),))), "nodes must exist and ascend"),
        (begun(60, (2, 10, ((0, 4),))), "job 2 .* it is submitted later"),
        (begun(60, (0, 60, ((0, 4),))), "by then the policy decides"),
        (begun(60, (0, 10, ((0, 4),)), (0, 10, ((1, 4),))), "it is given twice"),
        (begun(60, (7, 10, ((0, 4),))), "row 7 was running .* can never run"),
    ],
)
@pytest.mark.parametrize("policy", ["fifo+easy", "fifo+conservative"])
def test_what_cannot_have_been_is_refused(given: Beginning, message: str, policy: str) -> None:
    jobs = jobs_of((0, 100, 4), (5, 100, 4), (20, 10, 4))
    with pytest.raises(InputError, match=message):
        starts_of(jobs, given, policy)


@pytest.mark.parametrize("settings", [{"node_mtbf_s": 1e6}, {"sleep_after_s": 10.0}])
def test_failures_and_sleep_do_not_go_with_a_given_beginning(settings: dict[str, float]) -> None:
    with pytest.raises(InputError, match=f"given beginning cannot be combined with .*{next(iter(settings))}"):
        starts_of(jobs_of((0, 100, 4)), begun(5), **settings)


def test_what_was_recorded_is_as_it_was_whatever_is_given() -> None:
    frame = jobs_of((0, 100, 4), (50, 10, 4)).frame.with_columns(recorded_start_s=pl.Series([7.0, 90.0]))
    assert starts_of(make_workload(frame), begun(50, (0, 7, ((0, 4),))), "recorded") == [7, 90]
