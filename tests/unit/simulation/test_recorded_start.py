"""Windows that begin with what was really running and waiting."""

import numpy as np
import polars as pl
import pytest

import gpuyard as gy
from gpuyard.config import SimulationConfig
from gpuyard.errors import InputError
from gpuyard.policies.grammar import parse_policy
from gpuyard.simulation.busy import find_margins
from gpuyard.simulation.recorded_start import RecordedCutter
from gpuyard.simulation.replays import jittered
from gpuyard.simulation.run import SimulationResult
from gpuyard.simulation.window_set import WindowSet
from gpuyard.simulation.windows import HeldOutWindow, Margins
from gpuyard.workload import Workload, make_workload
from gpuyard.workload.recorded import recorded_times_us
from support.evaluation_cases import CLUSTER, recorded_log, some_jobs

EXACT = SimulationConfig(estimates="exact")
MACHINES = gy.parse_cluster(CLUSTER)


def cutter(log: Workload, config: SimulationConfig = EXACT, placement: str = "consolidate") -> RecordedCutter:
    return RecordedCutter(log, MACHINES, config, placement)


def run(window: HeldOutWindow, policy: str = "fifo+easy") -> SimulationResult:
    return gy.simulate(window.jobs, MACHINES, policy, EXACT, beginning=window.beginning)


def test_what_ran_and_waited_at_the_moment_comes_before_the_own_jobs() -> None:
    log = recorded_log()
    start_us, end_us = recorded_times_us(log, np.arange(len(log)))
    submit_us = np.rint(log.frame["submit_s"].to_numpy() * 1e6)
    windows = cutter(log).cut("test", count=5, jobs=40, margins=Margins(0, 15))
    assert any(len(one.beginning.job) for one in windows)  # type: ignore[union-attr]
    assert any(one.own.start > len(one.beginning.job) for one in windows)  # type: ignore[union-attr]
    for one in windows:
        assert one.beginning is not None
        moment = submit_us[one.name]
        rows = one.jobs.frame["row"].to_numpy()
        ran = [r for r in range(one.name) if start_us[r] < moment < end_us[r]]
        waited = [r for r in range(one.name) if start_us[r] >= moment]
        assert rows[one.beginning.job].tolist() == ran
        assert rows.tolist() == sorted(ran + waited) + list(range(one.name, one.name + 55))
        assert one.own == range(len(ran) + len(waited), len(ran) + len(waited) + 40)
        zero = submit_us[rows[0]]
        assert one.beginning.decides_from_us == moment - zero
        assert one.beginning.start_us.tolist() == (start_us[ran] - zero).tolist()


@pytest.mark.parametrize("policy", ["fifo+easy", "sjf+greedy", "fifo"])
def test_the_policy_that_was_recorded_goes_on_as_it_did(policy: str) -> None:
    """From nodes and starts of the log alone, the rest of the log is what it was."""
    log = recorded_log(policy)
    for row in range(50, 600, 50):
        to_the_end = cutter(log)._at(row, len(log) - row, Margins())
        mine, recorded = run(to_the_end, policy).schedule, run(to_the_end, "recorded").schedule
        assert mine.start_us.tolist() == recorded.start_us.tolist()
        assert mine.hash() == recorded.hash()


def test_without_names_of_nodes_jobs_are_placed_as_they_fit_the_largest_first() -> None:
    one = cutter(recorded_log(nodes=False)).cut("test", count=1, jobs=None)[0]
    named = cutter(recorded_log()).cut("test", count=1, jobs=None)[0]
    assert one.beginning is not None
    assert named.beginning is not None
    assert one.beginning.job.tolist() == named.beginning.job.tolist()
    gpus = one.jobs.frame["gpus"].to_numpy()[one.beginning.job]
    assert [sum(count for _, count in nodes) for nodes in one.beginning.nodes] == gpus.tolist()
    frame = one.jobs.frame[one.beginning.job].with_columns(submit_s=0.0)
    at_once = gy.simulate(make_workload(frame), MACHINES, "largest+greedy", EXACT).schedule
    first = [
        tuple(zip(*(at_once.node[a:b].tolist(), at_once.node_gpus[a:b].tolist()), strict=True))
        for a, b in zip(at_once.node_offset[:-1], at_once.node_offset[1:], strict=True)
    ]
    assert list(one.beginning.nodes) == first


def test_jobs_that_share_gpus_find_room_in_the_order_in_which_they_started() -> None:
    rows = {
        "submit_s": [0.0] * 4 + [50.0],
        "duration_s": [100.0] * 5,
        "gpus": [1] * 5,
        "gpu_milli": [500, 400, 600, 500, 1000],
        "recorded_start_s": [1.0, 2.0, 3.0, 4.0, 200.0],
    }
    log, machines = make_workload(pl.DataFrame(rows)), gy.parse_cluster("2x2")
    one = RecordedCutter(log, machines, EXACT, "consolidate")._at(4, 1, Margins())
    schedule = gy.simulate(log, machines, "fifo", EXACT, beginning=one.beginning).schedule
    assert schedule.start_us.tolist() == [1e6, 2e6, 3e6, 4e6, 50e6]
    # The largest first, all would be on one node, where the last one to start would find no room.
    assert one.beginning is not None
    assert one.beginning.nodes == (((0, 1),), ((0, 1),), ((0, 1),), ((1, 1),))


def test_predictions_begin_with_the_jobs_that_really_had_ended() -> None:
    log = recorded_log()
    for one in cutter(log).cut("test", count=3, jobs=40):
        history = one.history()
        assert history is not None
        _, end_us = recorded_times_us(log, np.arange(one.name))
        moment_us = round(log.frame["submit_s"][one.name] * 1e6)
        assert history.frame["row"].to_list() == np.flatnonzero(end_us <= moment_us).tolist()


def test_jobs_without_a_recorded_start_are_in_no_beginning() -> None:
    silent = recorded_log().frame.with_columns(
        recorded_start_s=pl.when(pl.col("row") % 7 == 0).then(None).otherwise("recorded_start_s")
    )
    cutting = cutter(make_workload(silent, name="log"))
    assert cutting.silent == silent.filter(pl.col("row") % 7 == 0).height
    for one in cutting.cut("test", count=3, jobs=40):
        assert (one.jobs.frame["row"].to_numpy()[: one.own.start] % 7).all()


def test_later_submits_leave_what_ran_and_waited_as_it_was() -> None:
    one = cutter(recorded_log()).cut("test", count=2, jobs=40)[0]
    moved = jittered(one, 1)
    before = slice(0, one.own.start)
    assert moved.jobs.frame["submit_s"][before].to_list() == one.jobs.frame["submit_s"][before].to_list()
    assert (
        moved.jobs.frame["submit_s"][one.own.start :].to_list()
        != one.jobs.frame["submit_s"][one.own.start :].to_list()
    )
    assert run(moved).schedule.start_us[one.beginning.job].tolist() == one.beginning.start_us.tolist()  # type: ignore[union-attr]


def test_native_policies_on_many_windows_begin_so_too() -> None:
    windows = cutter(recorded_log()).cut("test", count=4, jobs=40, margins=Margins(0, 20))
    spec = parse_policy("sjf+easy")
    fast, slow = WindowSet(windows, MACHINES, EXACT), []
    for one in windows:
        schedule = run(one, "sjf+easy").schedule
        own = slice(one.own.start, one.own.stop)
        submit_s = one.jobs.frame["submit_s"].to_numpy()[own]
        slow.append((schedule.start_us[own] / 1e6 - submit_s).mean())
    assert fast.run([spec])[0]["mean_wait_s"] == pytest.approx(slow)
    assert fast.run_one(spec)["mean_wait_s"] == pytest.approx(slow)


def test_only_the_jobs_after_windows_are_found_out() -> None:
    test = find_margins(
        cutter(recorded_log()),
        MACHINES,
        EXACT,
        "test",
        [parse_policy("fifo+easy")],
        jobs=40,
        placement="consolidate",
    )
    assert test.margins.before == 0
    assert test.margins.after > 0
    assert test.agrees


def test_more_gpus_in_use_than_there_are_is_refused_with_moment_and_amount() -> None:
    log = recorded_log(nodes=False)
    with pytest.raises(
        InputError, match=r"impossible on 1x4: at .* jobs? ran on \d+ of 4 GPUs, and .* no room"
    ):
        RecordedCutter(
            log, gy.parse_cluster("1x4"), SimulationConfig(estimates="exact", oversize="drop"), "consolidate"
        ).cut("test", count=20, jobs=20)


def test_a_log_without_starts_is_refused_with_what_to_do() -> None:
    with pytest.raises(InputError, match=r"`window_start=recorded`.*recorded_start_s.*`window_start=busy`"):
        cutter(some_jobs())


def test_failures_are_refused_before_anything_runs() -> None:
    with pytest.raises(InputError, match="given beginning cannot be combined with failures"):
        cutter(recorded_log(), SimulationConfig(estimates="exact", node_mtbf_s=1e6))
