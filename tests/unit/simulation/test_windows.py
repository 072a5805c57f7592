"""Windows on a busy cluster: which jobs run, and which of them count."""

import numpy as np
import pytest

import gpuyard as gy
from gpuyard.config import SimulationConfig
from gpuyard.evaluate import compare
from gpuyard.metrics.outcomes import bounded_slowdown
from gpuyard.simulation.windows import (
    COLD,
    HeldOutWindow,
    Margins,
    WindowCutter,
    cut_windows,
    drawn_windows,
    part_bounds,
)
from gpuyard.workload import SynthConfig, make_workload
from gpuyard.workload.shaping.slices import window
from support.evaluation_cases import CLUSTER, MIX, some_jobs

EXACT = SimulationConfig(estimates="exact")


def cut(margins: Margins, count: int = 4, jobs: int | None = 40) -> list[HeldOutWindow]:
    machines = gy.parse_cluster(CLUSTER)
    return cut_windows(some_jobs(), machines, EXACT, "test", count=count, jobs=jobs, margins=margins)


@pytest.mark.parametrize("margins", [COLD, Margins(0, 15), Margins(100, 0), Margins(100, 15)])
def test_a_window_is_its_own_jobs_between_those_before_and_after(margins: Margins) -> None:
    begin, end = part_bounds(some_jobs(), "test")
    windows = cut(margins)
    assert (windows[0].name, windows[-1].name) == (begin, end - 40 - margins.after)
    for one in windows:
        assert one.own == range(margins.before, margins.before + 40)
        rows = one.jobs.frame["row"].to_list()
        assert rows == list(range(one.name - margins.before, one.name + 40 + margins.after))
        assert one.jobs.frame["submit_s"][0] == 0.0
        assert one.first == one.name - margins.before


def test_where_there_are_fewer_jobs_before_a_window_all_of_them_run() -> None:
    machines = gy.parse_cluster(CLUSTER)
    settings = {"count": 3, "jobs": 40, "margins": Margins(100, 0)}
    first, *_, last = cut_windows(some_jobs(), machines, EXACT, "train", **settings)
    assert (first.name, first.own) == (0, range(40))
    assert last.own == range(100, 140)


def test_jobs_after_a_window_lie_in_its_part() -> None:
    begin, end = part_bounds(some_jobs(), "test")
    (alone,) = cut(Margins(50, 10_000), count=9)
    assert (alone.name, len(alone.jobs)) == (begin, 50 + end - begin)
    (whole,) = cut(Margins(50, 10_000), count=9, jobs=None)
    assert (whole.own, len(whole.jobs)) == (range(50, 50 + end - begin), 50 + end - begin)


def test_history_is_what_would_have_ended_before_the_first_job_of_the_warm_up() -> None:
    jobs = some_jobs().frame
    one = cut(Margins(100, 0))[0]
    history = one.history()
    assert history is not None
    begin_s = jobs["submit_s"][one.name - 100]
    ended = [
        row for row in range(one.name - 100) if jobs["submit_s"][row] + jobs["duration_s"][row] <= begin_s
    ]
    assert history.frame["row"].to_list() == ended


def test_after_a_jam_more_jobs_are_submitted_with_the_first_one() -> None:
    one = cut(Margins(20, 5))[1]
    jammed = one.saturated(30)
    assert jammed.own == range(50, 90)
    assert jammed.jobs.frame["row"].to_list() == list(range(one.first - 30, one.name + 45))
    submits = jammed.jobs.frame["submit_s"]
    assert (submits[:31] == 0.0).all()
    assert submits[30:].to_list() == pytest.approx(one.jobs.frame["submit_s"].to_list())
    assert one.saturated(10**6).first == 0
    assert len(one.shortened(5).jobs) == 60
    with pytest.raises(ValueError, match="no jobs before it"):
        drawn_windows(SynthConfig(cluster_gpus=16, jobs=5), 0, 1)[0].saturated(3)


def test_draws_have_their_own_jobs_between_drawn_ones() -> None:
    generator = SynthConfig(cluster_gpus=16, load=0.9, gang_mix=MIX, jobs=30)
    (one,) = drawn_windows(generator, 7, 1, Margins(20, 10))
    assert (one.name, one.own, len(one.jobs), one.history()) == (7, range(20, 50), 60, None)
    long = gy.synthesize(generator.model_copy(update={"jobs": 60, "seed": 7}))
    assert one.jobs.frame["submit_s"].to_list() == long.frame["submit_s"].to_list()


def test_figures_are_those_of_the_own_jobs_in_a_simulation_of_all_of_them() -> None:
    found = compare(
        ["sjf+easy"], some_jobs(), CLUSTER, EXACT, windows=3, jobs_per_window=40, current="fifo", whole=False
    )
    before, after = found.setting.margins
    assert min(before, after) > 0
    for i, row in enumerate(found.setting.windows):
        first = max(row - before, 0)
        around = window(some_jobs(), first, row - first + 40 + after)
        schedule = gy.simulate(around, CLUSTER, "sjf+easy", EXACT).schedule
        own = slice(row - first, row - first + 40)
        submit_us = np.rint(around.frame["submit_s"].to_numpy() * 1e6)[own]
        wait_s = (schedule.start_us[own] - submit_us) / 1e6
        jct_s = (schedule.end_us[own] - submit_us) / 1e6
        slowdown = bounded_slowdown(jct_s, around.frame["duration_s"].to_numpy()[own])
        expected = {
            "mean_wait_s": wait_s.mean(),
            "p99_wait_s": np.percentile(wait_s, 99),
            "max_wait_s": wait_s.max(),
            "mean_jct_s": jct_s.mean(),
            "mean_bounded_slowdown": slowdown.mean(),
            "completed_jobs": 40,
        }
        for name, value in expected.items():
            assert found.values("sjf+easy", name)[i] == pytest.approx(value), name


def test_jobs_that_can_never_run_are_neither_around_nor_in_windows() -> None:
    jobs = some_jobs()
    gpus = [64 if row % 50 == 7 else size for row, size in enumerate(jobs.frame["gpus"])]
    large = make_workload(jobs.frame.with_columns(gpus=np.array(gpus, np.int32)))
    machines, config = gy.parse_cluster(CLUSTER), EXACT.model_copy(update={"oversize": "drop"})
    cutter = WindowCutter(large, machines, config, "consolidate")
    for one in cutter.cut("test", count=3, jobs=40, margins=Margins(60, 10)):
        assert (len(one.jobs), one.jobs.frame["gpus"].max()) == (110, 4)
