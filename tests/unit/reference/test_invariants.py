"""The checks of tests/support/invariants.py notice a wrong schedule, whichever column is wrong."""

from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import polars as pl
import pytest

from conformance.policy_cases import legal, mixed_cluster
from gpuyard.native.schedule import RUN_ENDINGS, Downtime, Runs
from gpuyard.simulation.run import SimulationResult, simulate
from gpuyard.workload import make_workload
from support.invariants import check_result

STOPPED, FAILED = RUN_ENDINGS.index("stopped"), RUN_ENDINGS.index("failed")


@cache
def eventful() -> SimulationResult:
    """Jobs are stopped and fail; some of them go on with work that was kept."""
    how = legal("las+greedy", node_mtbf_s=40_000.0, node_mttr_s=3600.0, checkpoint_every_s=60.0)
    return simulate(how.workload, mixed_cluster(), "las+greedy/consolidate", how.config)


def runs() -> Runs:
    pieces = eventful().schedule.runs
    assert pieces is not None
    return pieces


def with_runs(**columns: Any) -> SimulationResult:
    return with_schedule(runs=replace(runs(), **columns))


def with_schedule(**columns: Any) -> SimulationResult:
    return replace(eventful(), schedule=replace(eventful().schedule, **columns))


def nudged(values: np.ndarray, at: int, by: int) -> np.ndarray:
    answer = values.copy()
    answer[at] += by
    return answer


def first(ending: int, *, restored: bool = False) -> int:
    """A run that ended so, other than the first of all."""
    pieces = runs()
    found = np.flatnonzero((pieces.ending == ending) & ((pieces.restore_us > 0) | (not restored)))
    return int(found[1])


def test_the_schedule_is_sound_as_it_is() -> None:
    check_result(eventful())
    assert (runs().ending == STOPPED).sum() > 100
    assert (runs().ending == FAILED).sum() > 5


@pytest.mark.parametrize("ending", [0, STOPPED, FAILED])
@pytest.mark.parametrize(
    ("column", "by"),
    [
        *(("taken_us", 1), ("taken_us", -1), ("begin_us", 1), ("begin_us", -1), ("stop_us", 1)),
        *(("stop_us", -1), ("released_us", 1), ("released_us", -1), ("restore_us", 1), ("restore_us", -1)),
        *(("lost_us", 1), ("gpu_index", 1), ("node", 1), ("node_gpus", 1), ("entry", 1)),
    ],
)
def test_a_run_that_is_off_by_one_is_noticed(ending: int, column: str, by: int) -> None:
    at = first(ending, restored=True)
    if column in ("node", "node_gpus"):
        at = int(runs().node_offset[at])
    with pytest.raises(AssertionError):
        check_result(with_runs(**{column: nudged(getattr(runs(), column), at, by)}))


@pytest.mark.parametrize("ending", RUN_ENDINGS)
def test_another_ending_is_noticed(ending: str) -> None:
    for was in (0, STOPPED, FAILED):
        if RUN_ENDINGS[was] != ending:
            changed = runs().ending.copy()
            changed[first(was)] = RUN_ENDINGS.index(ending)
            with pytest.raises(AssertionError):
                check_result(with_runs(ending=changed))


@pytest.mark.parametrize("column", ["start_us", "end_us", "status", "gpu_index", "node", "node_gpus"])
def test_a_job_that_is_not_as_its_runs_say_is_noticed(column: str) -> None:
    with pytest.raises(AssertionError):
        check_result(with_schedule(**{column: nudged(getattr(eventful().schedule, column), 7, 1)}))


def test_a_run_that_is_missing_is_noticed() -> None:
    pieces, keep = runs(), np.arange(len(runs())) != first(STOPPED)
    parts = np.repeat(keep, np.diff(pieces.node_offset))
    columns = {
        name: getattr(pieces, name)[keep]
        for name in ("entry", "taken_us", "begin_us", "stop_us", "released_us", "ending", "restore_us")
    }
    columns |= {name: getattr(pieces, name)[keep] for name in ("lost_us", "gpu_index")}
    columns |= {name: getattr(pieces, name)[parts] for name in ("node", "node_gpus")}
    sizes = np.diff(pieces.node_offset)[keep]
    with pytest.raises(AssertionError):
        check_result(with_runs(**columns, node_offset=np.concatenate([[0], np.cumsum(sizes)])))


@pytest.mark.parametrize("by_us", [-(10**9), -1, 1])
def test_a_failure_at_another_time_is_noticed(by_us: int) -> None:
    down, pieces = eventful().schedule.downtime, runs()
    assert down is not None
    at = first(FAILED)
    nodes = pieces.node[pieces.node_offset[at] : pieces.node_offset[at + 1]]
    hit = np.flatnonzero((down.from_us == pieces.released_us[at]) & np.isin(down.node, nodes))[0]
    other = Downtime(down.node, nudged(down.from_us, int(hit), by_us), down.to_us)
    with pytest.raises(AssertionError):
        check_result(with_schedule(downtime=other))


@pytest.mark.parametrize(
    "changes", [{"min_run_s": 61.0}, {"checkpoint_s": 3.0}, {"restore_s": 3.0}, {"checkpoint_every_s": 61.0}]
)
def test_runs_of_other_settings_are_noticed(changes: dict[str, float]) -> None:
    config = eventful().config.model_copy(update=changes)
    with pytest.raises(AssertionError):
        check_result(replace(eventful(), config=config))


@pytest.mark.parametrize(("gpus", "nodes"), [(8, 2), (5, 1), (0, 3)])
def test_another_number_of_nodes_than_was_asked_for_is_noticed(gpus: int, nodes: int) -> None:
    frame = pl.DataFrame({"submit_s": [0.0], "duration_s": [9.0], "gpus": [gpus]})
    asked = make_workload(frame.with_columns(nodes=pl.lit(nodes, pl.Int32)))
    check_result(simulate(asked, "3x8", "fifo"))
    other = simulate(make_workload(frame), "3x4" if nodes == 1 else "3x8", "fifo")
    with pytest.raises(AssertionError, match=f"not on {nodes} nodes"):
        check_result(replace(other, workload=asked))
