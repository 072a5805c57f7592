"""Cutting and changing workloads, against numbers worked out by hand."""

import numpy as np
import pytest

from gpuyard import _core
from gpuyard.cluster.model import parse_cluster
from gpuyard.errors import InputError
from gpuyard.workload import Workload, read_workload, write_workload
from gpuyard.workload.shaping.draws import uniforms_by_row
from gpuyard.workload.shaping.shape import (
    ShapeConfig,
    area_load,
    between,
    compress_time,
    drop_duplicates,
    keep,
    merge,
    moment,
    shape,
    split_by_time,
    thin,
    window,
)
from support.shape_cases import DAY_S, SEPTEMBER_S, last_step, make_jobs, mixed_jobs, ten_jobs


@pytest.fixture
def ten() -> Workload:
    return ten_jobs()


# Slices


def test_a_slice_keeps_rows_and_knows_where_it_lies_in_the_trace(ten):
    part = between(ten, 25.0, 60.0)
    assert part.frame["submit_s"].to_list() == [0.0, 10.0, 20.0]
    assert part.frame["row"].to_list() == [3, 4, 5]
    assert part.metadata.origin_s == 1030.0
    assert part.metadata.epoch_s == SEPTEMBER_S + 30.0
    assert last_step(part) == ("between", {"start_s": 25.0, "end_s": 60.0})


def test_a_slice_of_a_slice_lies_where_one_slice_would(ten):
    twice = between(between(ten, 20.0), 30.0)
    once = between(ten, 50.0)
    assert twice.frame.equals(once.frame)
    assert twice.metadata.origin_s == once.metadata.origin_s == 1050.0


def test_the_start_of_a_slice_is_in_and_its_end_is_not(ten):
    assert between(ten, 10.0, 30.0).frame["row"].to_list() == [1, 2]
    assert len(between(ten, 0.0)) == len(between(ten)) == 10


@pytest.mark.parametrize(
    ("start_s", "end_s", "words"),
    [
        (50, 50, "no range"),
        (60, 20, "no range"),
        (91, None, "outside"),
        (-5, 0, "outside"),
        (11, 19, "no job"),
    ],
)
def test_a_slice_of_nothing_is_refused(ten, start_s, end_s, words):
    with pytest.raises(InputError, match=words):
        between(ten, start_s, end_s)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("86400", 86400), ("1.5h", 5400), ("14d", 14 * DAY_S), ("2w", 14 * DAY_S), ("20%", 18), ("90m", 5400)],
)
def test_moments_are_read_as_people_write_them(ten, text, seconds):
    assert moment(ten, text) == seconds


def test_a_date_is_a_moment_where_the_clock_tells_dates(ten):
    assert moment(ten, "2020-09-01T00:01") == 60.0
    assert moment(ten, "2020-09-02") == DAY_S
    with pytest.raises(InputError, match="tells none"):
        moment(make_jobs([0.0, 1.0]), "2020-09-02")
    with pytest.raises(InputError, match="tells none"):
        moment(compress_time(ten, 2.0), "2020-09-02")


@pytest.mark.parametrize("text", ["soon", "", "120%", "-5", "5 apples"])
def test_other_moments_are_refused(ten, text):
    with pytest.raises(InputError):
        moment(ten, text)


def test_a_window_is_so_many_jobs_from_a_position(ten):
    part = window(ten, 4, 3)
    assert part.frame["row"].to_list() == [4, 5, 6]
    assert part.metadata.origin_s == 1040.0
    for start, count in ((8, 3), (-1, 2), (0, 0), (10, 1)):
        with pytest.raises(InputError, match="does not lie within"):
            window(ten, start, count)


def test_deadlines_move_with_the_clock():
    jobs = make_jobs([0.0, 50.0], deadline_s=[100.0, 80.0])
    assert between(jobs, 40.0).frame["deadline_s"].to_list() == [30.0]


def test_splits_hold_every_job_once_in_order(ten):
    train, validation, test = split_by_time(ten)
    assert [part.frame["row"].to_list() for part in (train, validation, test)] == [
        [0, 1, 2, 3, 4, 5],
        [6, 7],
        [8, 9],
    ]
    assert test.metadata.origin_s == 1080.0
    assert last_step(test) == ("split-by-time", {"part": "test", "shares": [0.6, 0.2, 0.2]})


def test_splits_that_make_no_sense_are_refused(ten):
    for shares in ((0.5, 0.5), (0.6, 0.2, 0.3), (1.0, 0.0, 0.0)):
        with pytest.raises(InputError, match="sum to 1"):
            split_by_time(ten, shares)
    with pytest.raises(InputError, match="train part"):
        split_by_time(make_jobs([0.0]), (0.6, 0.2, 0.2))


# Filters


@pytest.fixture
def mixed() -> Workload:
    return mixed_jobs()


@pytest.mark.parametrize(
    ("wanted", "rows"),
    [
        ({"statuses": ["completed"]}, [0, 2]),
        ({"groups": ["y"]}, [1, 2]),
        ({"users": ["ann", "eve"]}, [0, 2, 3]),
        ({"gpus": (8, None)}, [1, 2, 3]),
        ({"gpus": (None, 8)}, [0, 1, 3]),
        ({"duration_s": (50.0, 100.0)}, [1, 3]),
        ({"users": ["ann"], "groups": ["y"]}, [2]),
    ],
)
def test_filters_keep_jobs_that_are_all_of_what_is_asked(mixed, wanted, rows):
    assert keep(mixed, **wanted).frame["row"].to_list() == rows


@pytest.mark.parametrize(
    ("wanted", "words"),
    [
        ({"statuses": ["complete"]}, "did you mean 'completed'"),
        ({"groups": ["z"]}, "group 'z'"),
        ({"users": ["anne"]}, "did you mean 'ann'"),
        ({"gpus": (8, 1)}, "no range"),
        ({"gpus": (100, None)}, "leaves none of the 4 jobs"),
    ],
)
def test_filters_that_make_no_sense_are_refused(mixed, wanted, words):
    with pytest.raises(InputError, match=words):
        keep(mixed, **wanted)


def test_history_tells_only_what_was_asked_for(mixed):
    assert last_step(keep(mixed, gpus=(8, None))) == ("keep", {"gpus": [8, None]})


def test_duplicates_are_dropped_once():
    once = drop_duplicates(make_jobs([0.0, 0.0, 1.0, 1.0], gpus=[1, 1, 1, 2]))
    assert once.frame["row"].to_list() == [0, 2, 3]
    assert last_step(once) == ("drop-duplicates", {"jobs_dropped": 1})


def test_draws_by_row_are_the_core_s():
    rows = np.array([0, 7, 2**62])
    wanted = [(_core.draw(5, 8, row, 0) >> 11) * 2.0**-53 for row in rows.tolist()]
    assert uniforms_by_row(5, 8, rows).tolist() == wanted


def test_thinning_is_the_same_in_every_slice():
    jobs = make_jobs([float(k) for k in range(1000)])
    thinned = thin(jobs, 0.3, seed=1)
    assert 250 < len(thinned) < 350
    of_slice = thin(window(jobs, 400, 200), 0.3, seed=1)
    assert of_slice.frame["row"].to_list() == [row for row in thinned.frame["row"] if 400 <= row < 600]
    assert thin(jobs, 0.3, seed=2).frame["row"].to_list() != thinned.frame["row"].to_list()
    assert thin(jobs, 1.0).frame.equals(jobs.frame)


@pytest.mark.parametrize("share", [0.0, -0.1, 1.1, float("nan")])
def test_a_share_to_keep_is_above_0_and_at_most_1(ten, share):
    with pytest.raises(InputError, match="share to keep"):
        thin(ten, share)


# Merging


def test_merged_workloads_share_a_clock_of_dates():
    a = make_jobs([0.0, 100.0], epoch_s=SEPTEMBER_S + 50, name="a", user=["u1", "u2"], source_id=["1", "2"])
    b = make_jobs([0.0, 20.0], epoch_s=SEPTEMBER_S, name="b", user=["u1", ""], source_id=["1", "2"])
    both = merge([a, b])
    assert both.frame["submit_s"].to_list() == [0.0, 20.0, 50.0, 150.0]
    assert both.frame["row"].to_list() == [2, 3, 0, 1]
    assert both.metadata.epoch_s == SEPTEMBER_S
    assert both.frame["user"].to_list() == ["u1", "", "u1", "u2"]
    apart = merge([a, b], keep_apart=True)
    assert apart.frame["user"].to_list() == ["b/u1", "", "a/u1", "a/u2"]
    assert apart.frame["source_id"].to_list() == ["b/1", "b/2", "a/1", "a/2"]
    parts = both.metadata.history[0].settings["parts"]
    assert [(part["name"], part["row_offset"]) for part in parts] == [("a", 0), ("b", 2)]


def test_merging_from_zero_starts_all_together():
    both = merge([make_jobs([0.0, 5.0]), make_jobs([0.0, 3.0])], clock="zero")
    assert both.frame["submit_s"].to_list() == [0.0, 0.0, 3.0, 5.0]
    assert sorted(both.frame["row"].to_list()) == [0, 1, 2, 3]


def test_merging_what_does_not_fit_is_refused(ten):
    with pytest.raises(InputError, match="at least two"):
        merge([ten])
    with pytest.raises(InputError, match="no dates"):
        merge([ten, make_jobs([0.0])])
    with pytest.raises(InputError, match="distinct names"):
        merge([ten, ten], keep_apart=True)


# All together


def test_steps_are_taken_in_the_documented_order(mixed):
    config = ShapeConfig(
        start="0",
        end="100%",
        gpus=(8, None),
        job_count=2,
        clamp_max_s=500.0,
        widen=0.5,
        widen_to=64,
        relabel_groups={"*": "all"},
        compress=2.0,
        load=0.5,
        estimates="round:2",
        thin=1.0,
    )
    shaped = shape(mixed, config, parse_cluster("2x8"))
    assert [step.name for step in shaped.metadata.history] == [
        "between",
        "keep",
        "window",
        "thin",
        "clamp-durations",
        "widen-gangs",
        "relabel-groups",
        "compress-time",
        "compress-time",
        "round-estimates",
    ]
    assert shaped.frame["row"].to_list() == [1, 2]
    assert area_load(shaped, parse_cluster("2x8")) == pytest.approx(0.5, rel=1e-6)


def test_shaping_with_nothing_to_do_changes_nothing(mixed):
    assert shape(mixed, ShapeConfig()) is mixed
    with pytest.raises(InputError, match="`cluster`"):
        shape(mixed, ShapeConfig(load=0.5))
    with pytest.raises(InputError, match="no such file"):
        shape(mixed, ShapeConfig(estimates="nonsense"))
    with pytest.raises(InputError, match="expected exact"):
        shape(mixed, ShapeConfig(estimates="noisy:x"))


def test_the_input_is_left_as_it_was(mixed):
    before = mixed.frame.clone()
    shape(mixed, ShapeConfig(compress=3.0, clamp_max_s=50.0, estimates="noisy", thin=0.9))
    assert mixed.frame.equals(before)
    assert mixed.metadata.history == ()


def test_a_parquet_file_tells_how_it_was_made(tmp_path, ten):
    shaped = thin(compress_time(between(ten, 20.0), 2.0), 0.9, seed=5)
    write_workload(shaped, tmp_path / "a.parquet")
    back = read_workload(tmp_path / "a.parquet")
    assert [(step.name, step.settings) for step in back.metadata.history] == [
        ("between", {"start_s": 20.0, "end_s": None}),
        ("compress-time", {"factor": 2.0}),
        ("thin", {"share": 0.9, "seed": 5}),
    ]
    assert back.metadata == shaped.metadata
    assert back.frame.equals(shaped.frame)
