"""Limits on waits: broken just above their edge and kept at it, of all jobs and by class."""

from typing import Any

import polars as pl
import pytest

from gpuyard.config import GuardConfig
from gpuyard.metrics.guards import BrokenLimit, broken_limits, typical_waits, wait_row

PLAIN = GuardConfig(least_rise_s=0.0)


def waits(p99: float, longest: float) -> dict[str, float]:
    return {"p99_wait_s": p99, "max_wait_s": longest}


def classes(*rows: tuple[str, str, int, float, float]) -> pl.DataFrame:
    schema = ["by", "class", "jobs", "p99_wait_s", "max_wait_s"]
    dtypes = dict(zip(schema, (pl.String, pl.String, pl.Int64, pl.Float64, pl.Float64), strict=True))
    return pl.DataFrame(list(rows), schema=dtypes, orient="row")


def broken(
    own: dict[str, float],
    other: dict[str, float],
    mine: pl.DataFrame | None = None,
    theirs: pl.DataFrame | None = None,
    config: GuardConfig = PLAIN,
) -> list[BrokenLimit]:
    return broken_limits(wait_row(own, mine), wait_row(other, theirs), config)


@pytest.mark.parametrize(
    ("own", "metrics"),
    [
        (waits(12_500.0, 30_000.0), []),
        (waits(12_501.0, 30_000.0), ["p99_wait_s"]),
        (waits(12_500.0, 30_001.0), ["max_wait_s"]),
        (waits(20_000.0, 90_000.0), ["max_wait_s", "p99_wait_s"]),
        (waits(0.0, 0.0), []),
    ],
)
def test_waits_of_all_jobs_may_rise_up_to_the_limits(own: dict[str, float], metrics: list[str]) -> None:
    found = broken(own, waits(10_000.0, 20_000.0))
    assert [one.metric for one in found] == metrics, "the worst first"
    assert all((one.by, one.name) == ("all", "") for one in found)


@pytest.mark.parametrize(("p99", "is_broken"), [(1_250.0, False), (1_251.0, True)])
@pytest.mark.parametrize("by", ["gpus", "runtime", "group", "partition"])
def test_no_class_may_wait_much_longer(by: str, p99: float, is_broken: bool) -> None:
    mine, theirs = classes((by, "x", 100, p99, p99)), classes((by, "x", 100, 1_000.0, 1_000.0))
    found = broken(waits(5_000.0, 9_000.0), waits(5_000.0, 9_000.0), mine, theirs)
    assert bool(found) == is_broken
    if is_broken:
        assert (found[0].by, found[0].name, found[0].jobs, found[0].metric) == (by, "x", 100, "p99_wait_s")
        assert (found[0].own, found[0].other, found[0].limit) == (p99, 1_000.0, 1_250.0)
        assert found[0].excess == p99 / 1_250.0


def test_users_alone_and_classes_that_are_new_decide_nothing() -> None:
    today = waits(5_000.0, 9_000.0)
    mine, theirs = classes(("user", "x", 500, 9e6, 9e6)), classes(("user", "x", 500, 1.0, 1.0))
    assert broken(today, today, mine, theirs) == []
    assert broken(today, today, classes(("gpus", "8", 500, 9e6, 9e6)), classes()) == []


@pytest.mark.parametrize(("longest", "is_broken"), [(30_000.0, False), (30_001.0, True)])
def test_the_longest_wait_of_a_class_is_at_most_a_multiple_of_todays(longest: float, is_broken: bool) -> None:
    mine, theirs = classes(("gpus", "8", 5, 9e9, longest)), classes(("gpus", "8", 5, 1.0, 10_000.0))
    found = broken(waits(5_000.0, 25_000.0), waits(5_000.0, 25_000.0), mine, theirs)
    assert [one.metric for one in found] == (["max_wait_s"] if is_broken else [])


@pytest.mark.parametrize(("longest", "is_broken"), [(24_000.0, False), (24_001.0, True)])
def test_a_class_that_hardly_waits_today_may_wait_as_long_as_others(longest: float, is_broken: bool) -> None:
    mine, theirs = classes(("gpus", "1", 5, 0.0, longest)), classes(("gpus", "1", 5, 0.0, 0.0))
    assert bool(broken(waits(1.0, 24_000.0), waits(1.0, 24_000.0), mine, theirs)) == is_broken


@pytest.mark.parametrize(("jobs", "is_broken"), [(99, False), (100, True)])
def test_classes_of_few_jobs_have_no_99th_percentile(jobs: int, is_broken: bool) -> None:
    mine, theirs = (
        classes(("group", "g", jobs, 2_000.0, 2_000.0)),
        classes(("group", "g", jobs, 1.0, 2_000.0)),
    )
    assert bool(broken(waits(1.0, 9_000.0), waits(1.0, 9_000.0), mine, theirs)) == is_broken


@pytest.mark.parametrize(("rise", "is_broken"), [(600.0, False), (601.0, True)])
def test_small_rises_do_not_count(rise: float, is_broken: bool) -> None:
    found = broken(waits(10.0 + rise, 5_000.0), waits(10.0, 5_000.0), config=GuardConfig())
    assert bool(found) == is_broken


@pytest.mark.parametrize(
    ("changes", "own"),
    [
        ({"max_p99_increase": 1.0}, waits(20_000.0, 20_000.0)),
        ({"max_longest_increase": 2.0}, waits(10_000.0, 60_000.0)),
    ],
)
def test_limits_can_be_others(changes: dict[str, Any], own: dict[str, float]) -> None:
    today = waits(10_000.0, 20_000.0)
    assert broken(own, today)
    assert not broken(own, today, config=PLAIN.model_copy(update=changes))


def test_medians_over_replays_decide_and_against_what_was_recorded_the_least() -> None:
    replays = [wait_row(waits(p99, 20_000.0)) for p99 in (9_000.0, 13_000.0, 14_000.0)]
    own, today = typical_waits(replays), wait_row(waits(10_000.0, 20_000.0))
    assert [one.own for one in broken_limits(own, today, PLAIN)] == [13_000.0]
    assert broken_limits(own, today, PLAIN, recorded=True) == []
