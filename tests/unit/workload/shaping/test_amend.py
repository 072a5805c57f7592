"""Changing durations, gangs, groups and estimates of workloads, against numbers worked out by hand."""

import numpy as np
import polars as pl
import pytest

from gpuyard import _core
from gpuyard.errors import InputError
from gpuyard.workload import Workload
from gpuyard.workload.shaping.shape import (
    ShapeConfig,
    between,
    clamp_durations,
    estimates_from,
    exact_estimates,
    noisy_estimates,
    relabel_groups,
    round_estimates,
    shape,
    widen_gangs,
)
from support.shape_cases import DAY_S, last_step, make_jobs, mixed_jobs


@pytest.fixture
def mixed() -> Workload:
    return mixed_jobs()


def test_durations_are_clamped_and_counted():
    clamped = clamp_durations(make_jobs([0.0] * 4, [1.0, 10.0, 100.0, 1000.0]), min_s=5.0, max_s=100.0)
    assert clamped.frame["duration_s"].to_list() == [5.0, 10.0, 100.0, 100.0]
    assert last_step(clamped)[1]["jobs_changed"] == 2
    for bounds in ({}, {"max_s": -1.0}, {"min_s": 10.0, "max_s": 5.0}):
        with pytest.raises(InputError):
            clamp_durations(clamped, **bounds)


def test_a_share_of_the_gangs_is_widened_and_their_work_stays():
    jobs = make_jobs([float(i) for i in range(4000)], [64.0] * 4000, gpus=[1, 2, 3, 64] * 1000)
    wide = widen_gangs(jobs, 0.25, 64, seed=3)
    before, after = jobs.frame["gpus"].to_numpy(), wide.frame["gpus"].to_numpy()
    factor = after / before
    assert set(factor.tolist()) == {1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0}
    assert after.max() == 64
    assert (factor[3::4] == 1).all()
    assert set(factor[2::4].tolist()) == {1.0, 2.0, 4.0, 8.0, 16.0}
    assert 0.2 < (factor[0::4] > 1).mean() < 0.3
    assert (after * wide.frame["duration_s"].to_numpy() == before * 64.0).all()
    assert last_step(wide)[1]["jobs_changed"] == (factor > 1).sum()
    part = between(jobs, 1000.0, 2000.0)
    assert widen_gangs(part, 0.25, 64, seed=3).frame["gpus"].to_list() == after[1000:2000].tolist()


def test_what_a_wider_job_asks_for_grows_with_it():
    asked = make_jobs([0.0], [80.0], gpus=[2], cpus=[3], memory_mib=[100], estimate_s=[160.0])
    wide = widen_gangs(asked, 1.0, 4).frame.row(0, named=True)
    names = ("gpus", "cpus", "memory_mib", "duration_s", "estimate_s")
    assert [wide[name] for name in names] == [4, 6, 200, 40.0, 80.0]


def test_gangs_that_cannot_be_widened_are_refused_or_stay():
    with pytest.raises(InputError, match="can be doubled without exceeding 7 GPUs"):
        widen_gangs(make_jobs([0.0], [1.0], gpus=[4]), 0.5, 7)
    with pytest.raises(InputError, match="draws none of the 1 jobs"):
        widen_gangs(make_jobs([0.0], [1.0], gpus=[4]), 1e-9, 8)
    with pytest.raises(InputError, match="the share to widen is 0"):
        widen_gangs(make_jobs([0.0], [1.0], gpus=[4]), 0.0, 8)
    shared = make_jobs([0.0, 0.0], [8.0, 8.0], gpus=[1, 1], gpu_milli=[500, 1000])
    assert widen_gangs(shared, 1.0, 2).frame["gpus"].to_list() == [1, 2]
    with pytest.raises(InputError, match="`widen`, `widen_to`"):
        shape(shared, ShapeConfig(widen=0.5))


def test_groups_are_renamed(mixed):
    assert relabel_groups(mixed, {"x": "y"}).frame["group"].to_list() == ["y", "y", "y", ""]
    assert relabel_groups(mixed, {"x": "a", "*": "b"}).frame["group"].to_list() == ["a", "b", "b", "b"]
    with pytest.raises(InputError, match="group 'z'"):
        relabel_groups(mixed, {"z": "a"})


def test_exact_estimates_are_the_durations(mixed):
    assert exact_estimates(mixed).frame["estimate_s"].to_list() == [10.0, 100.0, 1000.0, 100.0]


def test_noisy_estimates_are_those_of_the_simulator(mixed):
    duration_us = np.array([10, 100, 1000, 100]) * 1_000_000
    wanted = _core.noisy_estimates(duration_us, np.arange(4), 7, 0.5) / 1e6
    assert noisy_estimates(mixed, 0.5, seed=7).frame["estimate_s"].to_list() == wanted.tolist()
    with pytest.raises(InputError, match="sigma"):
        noisy_estimates(mixed, -1.0)


def test_round_estimates_are_round_and_never_too_short():
    jobs = make_jobs([float(k) for k in range(500)], [float(1 + 3000 * k) for k in range(500)])
    asked = round_estimates(jobs, 2.0, seed=1).frame
    assert (asked["estimate_s"] >= asked["duration_s"]).all()
    assert (asked["estimate_s"] % 300 == 0).all()
    barely = round_estimates(make_jobs([0.0, 1.0, 2.0], [299.0, 3601.0, 30 * DAY_S]), 1.0).frame["estimate_s"]
    assert barely.to_list() == [300.0, 7200.0, 35 * DAY_S]
    with pytest.raises(InputError, match="overestimation"):
        round_estimates(jobs, 0.5)


def test_estimates_come_from_another_table(mixed):
    table = pl.DataFrame({"row": [2, 0, 99], "estimate_s": [5.0, 7.0, 1.0]})
    assert estimates_from(mixed, table).frame["estimate_s"].to_list() == [7.0, None, 5.0, None]
    for wrong, words in (
        (pl.DataFrame({"estimate_s": [1.0]}), "row or source_id"),
        (pl.DataFrame({"row": [1, 1], "estimate_s": [1.0, 2.0]}), "several lines"),
        (pl.DataFrame({"row": [50], "estimate_s": [1.0]}), "none of the jobs"),
    ):
        with pytest.raises(InputError, match=words):
            estimates_from(mixed, wrong)
