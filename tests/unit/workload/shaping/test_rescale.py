"""Load, compressed time and new days, against numbers worked out by hand."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from gpuyard.cluster.model import Cluster, NodeGroup, parse_cluster
from gpuyard.cluster.scaling import apportion, shrink_cluster
from gpuyard.errors import InputError
from gpuyard.workload import Workload
from gpuyard.workload.shaping.derive import has_dates
from gpuyard.workload.shaping.shape import (
    ShapeConfig,
    area_load,
    compress_time,
    demand_in_span,
    level_load,
    resample_days,
    shape,
    shrink_to_load,
    to_load,
)
from support.shape_cases import DAY_S, SEPTEMBER_S, last_step, make_jobs, ten_jobs


@pytest.fixture
def ten() -> Workload:
    return ten_jobs()


# Load


def test_loads_are_work_over_gpu_time():
    # 4 GPUs for 100 s = 400 GPU s; the jobs bring 10 + 2 * 100 + 400, the last of which starts at the end.
    jobs = make_jobs([0.0, 50.0, 100.0], [10.0, 100.0, 100.0], [1, 2, 4])
    cluster = parse_cluster("1x4")
    assert area_load(jobs, cluster) == pytest.approx(610 / 400)
    assert demand_in_span(jobs, cluster) == pytest.approx((10 + 100 + 0) / 400)
    assert area_load(jobs, parse_cluster("farm-small")) is None


def test_compressed_time_keeps_durations_and_slack(ten):
    jobs = make_jobs([0.0, 50.0, 100.0], deadline_s=[30.0, None, 150.0], origin_s=500.0)
    dense = compress_time(jobs, 5.0)
    assert dense.frame["submit_s"].to_list() == [0.0, 10.0, 20.0]
    assert dense.frame["duration_s"].to_list() == [10.0] * 3
    assert dense.frame["deadline_s"].to_list() == [30.0, None, 70.0]
    assert dense.metadata.origin_s == 100.0
    for factor in (0.0, -2.0, float("nan")):
        with pytest.raises(InputError, match="factor"):
            compress_time(jobs, factor)


def test_a_wanted_load_is_reached(ten):
    cluster = parse_cluster("1x4")
    assert area_load(ten, cluster) == pytest.approx(100 / 360)
    dense = to_load(ten, cluster, 0.9)
    assert area_load(dense, cluster) == pytest.approx(0.9, rel=1e-6)
    assert last_step(dense)[1]["factor"] == pytest.approx(0.9 * 3.6)


def test_a_level_load_holds_in_every_stretch_and_keeps_order_and_bursts():
    day = DAY_S
    # Three stretches of two days: little work, much, and one that the last submit cuts short.
    submit = [0.0, 0.5 * day, 2.0 * day, 2.1 * day, 2.2 * day, 3.9 * day, 4.5 * day, 5.0 * day]
    jobs = make_jobs(
        submit, duration_s=[day, day, *[4 * day] * 4, day, day], gpus=2, epoch_s=SEPTEMBER_S, origin_s=100.0
    )
    cluster = parse_cluster("1x4")
    level = level_load(jobs, cluster, 0.8, 2.0)
    now = level.frame["submit_s"].to_numpy()
    # Work over (load x 4 GPUs): 4 GPU days, 32, 4.
    ends = np.cumsum([0.0, 4 / 3.2, 32 / 3.2, 4 / 3.2]) * day
    assert now[[0, 2, 7]] == pytest.approx([ends[0], ends[1], ends[3]])
    assert now[6] == pytest.approx(ends[2] + 0.5 * (ends[3] - ends[2]))
    assert np.diff(now[2:6]) == pytest.approx(np.diff(submit[2:6]) * 5)
    assert area_load(level, cluster) == pytest.approx(0.8, rel=1e-9)
    assert last_step(level) == ("level-load", {"load": 0.8, "days": 2.0, "gpus": 4})
    assert not has_dates(level)
    assert level.metadata.origin_s == pytest.approx(100.0 * 12.5 / 5)


def test_a_level_load_keeps_the_time_to_deadlines_and_closes_stretches_without_gpu_work():
    submit = [0.0, 1.0 * DAY_S, 1.5 * DAY_S, 2.0 * DAY_S, 3.0 * DAY_S]
    jobs = make_jobs(
        submit,
        duration_s=DAY_S,
        gpus=[1, 0, 0, 2, 1],
        cpus=[0.0, 1.0, 1.0, 0.0, 0.0],
        deadline_s=[at + 5 * DAY_S for at in submit],
    )
    level = level_load(jobs, parse_cluster("1x1"), 0.5, 1.0).frame
    assert level["submit_s"].to_list() == pytest.approx([0.0, 2 * DAY_S, 2 * DAY_S, 2 * DAY_S, 8 * DAY_S])
    assert (level["deadline_s"] - level["submit_s"]).to_list() == pytest.approx([5 * DAY_S] * 5)


@pytest.mark.parametrize(("span_days", "lengths"), [(7.1, [7.1]), (10.5, [7, 3.5]), (17.4, [7, 10.4])])
def test_what_is_left_at_the_end_of_a_level_load_is_a_stretch_if_it_is_half_as_long(span_days, lengths):
    submit = np.arange(round(span_days * 10) + 1) * 8640.0
    jobs = make_jobs(submit, duration_s=[100.0 * (1 + k % 3 + k // 50) for k in range(len(submit))])
    cluster = parse_cluster("1x4")
    now = level_load(jobs, cluster, 0.7, 7.0).frame["submit_s"].to_numpy()
    ends = np.round(np.cumsum([0.0, *lengths]) * DAY_S)
    for first_s, last_s in pairwise(ends):
        inside = (submit >= first_s) & ((submit < last_s) | (last_s == ends[-1]))
        work = jobs.frame["duration_s"].to_numpy()[inside].sum()
        moved = np.interp([first_s, last_s], submit, now)
        assert work / (moved[1] - moved[0]) / 4 == pytest.approx(0.7, rel=1e-6)


@given(
    gaps=st.lists(st.sampled_from([0.0, 60.0, 3600.0, 90000.0, 400000.0]), min_size=2, max_size=40),
    days=st.sampled_from([0.01, 0.5, 1.0, 7.0, 1000.0]),
)
def test_a_level_load_loses_no_job_and_turns_no_order(gaps, days):
    assume(sum(gaps) > 0)
    submit = np.cumsum([0.0, *gaps])
    jobs = make_jobs(submit, duration_s=[100.0 + 50.0 * (k % 7) for k in range(len(submit))])
    cluster = parse_cluster("2x4")
    level = level_load(jobs, cluster, 0.9, days)
    now = level.frame["submit_s"].to_numpy()
    assert level.frame["row"].to_list() == jobs.frame["row"].to_list()
    assert area_load(level, cluster) == pytest.approx(0.9, rel=1e-6)
    if days * 86400 > submit[-1]:
        assert now == pytest.approx(to_load(jobs, cluster, 0.9).frame["submit_s"].to_numpy())


def test_a_level_load_is_refused_where_it_makes_no_sense(ten):
    cluster = parse_cluster("1x4")
    for days in (0.0, -1.0, 1e-9, float("nan")):
        with pytest.raises(InputError, match="`level_days`"):
            level_load(ten, cluster, 0.9, days)
    with pytest.raises(InputError, match="no GPUs"):
        level_load(ten, parse_cluster("farm-small"), 0.9, 1.0)
    with pytest.raises(InputError, match="`level_days` needs `load`"):
        shape(ten, ShapeConfig(level_days=7.0), cluster)


@pytest.mark.parametrize("load", [0.0, -1.0, float("nan")])
def test_a_load_is_above_0(ten, load):
    with pytest.raises(InputError, match="load"):
        to_load(ten, parse_cluster("1x4"), load)


def test_a_load_that_is_not_there_cannot_be_changed(ten):
    with pytest.raises(InputError, match="no GPUs"):
        to_load(ten, parse_cluster("farm-small"), 0.9)
    with pytest.raises(InputError, match="no load"):
        to_load(make_jobs([0.0]), parse_cluster("1x4"), 0.9)


def test_a_shrunk_cluster_keeps_proportions_and_one_node_of_each_pool():
    cluster = Cluster(
        name="c",
        nodes=(
            NodeGroup(count=60, gpus=8, type="v100"),
            NodeGroup(count=30, gpus=8, type="v100", owner="vision"),
            NodeGroup(count=9, gpus=2, type="t4"),
            NodeGroup(count=1, gpus=0, type="cpu", cpus=64),
        ),
    )
    small = shrink_cluster(cluster, 0.1)
    assert [(g.count, g.gpus, g.owner) for g in small.nodes] == [
        (5, 8, None),
        (3, 8, "vision"),
        (1, 2, None),
        (1, 0, None),
    ]
    assert [g.count for g in shrink_cluster(cluster, 1e-6).nodes] == [1, 1, 1, 1]
    assert shrink_cluster(cluster, 1.0).nodes == cluster.nodes
    for factor in (0.0, 1.5, -1.0):
        with pytest.raises(InputError, match="factor"):
            shrink_cluster(cluster, factor)


def test_kinds_of_nodes_within_a_pool_may_vanish():
    racks = tuple(NodeGroup(count=2, gpus=8, type="v100", rack=f"r{k}") for k in range(10))
    small = shrink_cluster(Cluster(name="c", nodes=racks), 0.25)
    assert small.node_count == 5
    assert all(group.count == 1 for group in small.nodes)


def test_apportioning_is_by_largest_remainder():
    assert apportion([50, 30, 20], 10, least=0) == [5, 3, 2]
    assert apportion([47, 16, 37], 10, least=0) == [5, 1, 4]
    assert apportion([98, 1, 1], 10, least=1) == [8, 1, 1]


def test_a_cluster_is_shrunk_to_a_load_but_never_grown(ten):
    # 100 GPU s of work in 90 s, on 4 of 40 nodes: 100 / (90 * 4) is nearest to 0.25.
    cluster = parse_cluster("40x1")
    assert shrink_to_load(ten, cluster, 0.25).node_count == round(100 / 90 / 0.25)
    with pytest.raises(InputError, match="already"):
        shrink_to_load(ten, parse_cluster("1x1"), 0.9)


# Days


def test_resampled_days_keep_times_of_day_and_distinct_rows():
    # Days 0 to 4 from midnight; day d has d + 1 jobs, at d:00, d:01, ... h; the last job ends day 4.
    submits = [day * DAY_S + day * 3600 + k * 60 for day in range(5) for k in range(day + 1)] + [5 * DAY_S]
    jobs = make_jobs(submits, epoch_s=SEPTEMBER_S)
    drawn = resample_days(jobs, 12, seed=3)
    clock_s = drawn.frame["submit_s"].to_numpy() + drawn.metadata.epoch_s - SEPTEMBER_S
    day, within = np.divmod(clock_s, DAY_S)
    hour = (within // 3600).astype(int)
    for new in range(12):
        hours = set(hour[day == new].tolist())
        assert len(hours) == 1, "a new day is one old day"
        assert int((day == new).sum()) == hours.pop() + 1, "and has all of its jobs"
    rows = drawn.frame["row"].to_list()
    assert len(set(rows)) == len(rows)
    stride = len(jobs)
    first_copies = [row for row in rows if row < stride]
    assert {row % stride for row in rows} == set(first_copies)
    assert drawn.metadata.origin_s == 0.0
    assert resample_days(jobs, 12, seed=3).frame.equals(drawn.frame)
    assert not resample_days(jobs, 12, seed=4).frame.equals(drawn.frame)


def test_weekdays_stand_for_themselves_if_asked():
    jobs = make_jobs([hour * 3600.0 for hour in range(24 * 21 + 1)], epoch_s=SEPTEMBER_S)
    drawn = resample_days(jobs, 14, seed=1, keep_weekdays=True)
    new_day = (drawn.frame["submit_s"].to_numpy() // DAY_S).astype(int)
    old_day = (drawn.frame["row"].to_numpy() % len(jobs)) // 24
    assert (new_day % 7 == old_day % 7).all()
    with pytest.raises(InputError, match="no dates"):
        resample_days(make_jobs([0.0, 30 * DAY_S]), keep_weekdays=True)


def test_days_that_are_not_whole_are_not_drawn():
    noon = make_jobs([0.0, 1.0, 1.9 * DAY_S], epoch_s=SEPTEMBER_S + DAY_S / 2)
    with pytest.raises(InputError, match="1 whole days"):
        resample_days(noon)
