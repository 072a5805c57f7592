"""Intervals of paired differences: worked out by hand, and held against many simulated worlds."""

import math

import numpy as np
import pytest

from gpuyard.evaluate import bootstrap
from gpuyard.evaluate.bootstrap import (
    interval,
    paired_difference,
    resampled_differences,
    resampled_interval,
    usable_block,
    widening,
)


def test_all_resamples_of_two_windows_are_those_worked_out_by_hand() -> None:
    # Blocks of 1 out of (4, 8) against (5, 5): means of (4,4), (4,8), (8,4), (8,8) are 4, 6, 6, 8 of 5.
    samples = resampled_differences(np.array([4.0, 8.0]), np.array([5.0, 5.0]), 1)
    values, counts = np.unique(samples.round(12), return_counts=True)
    assert values == pytest.approx([-0.2, 0.2, 0.6])
    assert counts / len(samples) == pytest.approx([0.25, 0.5, 0.25], abs=0.03)


def test_blocks_keep_neighbours_together_and_go_round_the_end() -> None:
    # Blocks of 2 of (0, 0, 4, 4) begin at any of the four: sums 0, 4, 8 and, round the end, 4.
    samples = resampled_differences(np.array([0.0, 0.0, 4.0, 4.0]), np.full(4, 2.0), 2)
    values, counts = np.unique(samples, return_counts=True)
    assert values.tolist() == [-1.0, -0.5, 0.0, 0.5, 1.0]
    assert counts / len(samples) == pytest.approx([1 / 16, 4 / 16, 6 / 16, 4 / 16, 1 / 16], abs=0.03)


def test_the_difference_is_that_of_means_and_the_verdict_follows_the_direction() -> None:
    own, other = np.array([1.0, 2.0, 3.0]), np.array([2.0, 4.0, 6.0])
    found = paired_difference(own, other, lower_is_better=True)
    assert (found.ratio, found.own, found.other) == (-0.5, 2.0, 4.0)
    assert (found.low, found.high) == pytest.approx((-0.5, -0.5))
    assert found.verdict == "better"
    assert paired_difference(own, other, lower_is_better=False).verdict == "worse"
    assert paired_difference(other, own, lower_is_better=True).verdict == "worse"


@pytest.mark.parametrize("block", [1, 3, 50])
def test_identical_policies_differ_by_exactly_nothing_and_tie(block: int) -> None:
    values = np.random.default_rng(2).exponential(size=40)
    found = paired_difference(values, values.copy(), block=block, lower_is_better=True)
    assert (found.ratio, found.low, found.high, found.verdict) == (0.0, 0.0, 0.0, "tie")


def test_returns_below_zero_are_compared_by_which_is_larger() -> None:
    better, worse = np.array([-1.0, -1.5, -1.2]), np.array([-2.0, -3.0, -2.4])
    found = paired_difference(better, worse, lower_is_better=False)
    assert found.ratio == pytest.approx(0.5)
    assert found.verdict == "better"


def test_means_of_zero_give_no_warnings_and_no_nan() -> None:
    waits, nothing = np.array([0.0, 3.0, 1.0, 2.0]), np.zeros(4)
    with np.errstate(all="raise"):
        more = paired_difference(waits, nothing, lower_is_better=True)
        same = paired_difference(nothing, nothing, lower_is_better=True)
    assert more.ratio == math.inf
    assert not math.isnan(more.low + more.high)
    assert (same.ratio, same.verdict) == (0.0, "tie")


def test_one_window_tells_no_interval() -> None:
    found = paired_difference(np.array([1.0]), np.array([2.0]), lower_is_better=True)
    assert found.ratio == -0.5
    assert math.isnan(found.low)
    assert math.isnan(found.high)
    assert found.verdict == "one run"


def test_the_same_values_give_the_same_interval_every_time_however_many_windows() -> None:
    rng = np.random.default_rng(3)
    for count in (5, 1500):
        own, other = rng.exponential(size=(2, count))
        first, again = (paired_difference(own, other, block=3, lower_is_better=True) for _ in range(2))
        assert first == again


@pytest.mark.parametrize(
    ("block", "count", "used"), [(1, 40, 1), (7, 40, 7), (33, 40, 20), (5, 2, 1), (0, 9, 1)]
)
def test_blocks_are_at_most_half_of_the_windows(block: int, count: int, used: int) -> None:
    assert usable_block(block, count) == used


def overlapping_windows(rng: np.random.Generator, count: int, overlap: int) -> np.ndarray:
    """Window means over ``overlap`` neighbouring pieces each, as windows of a trace have them."""
    pieces = rng.exponential(size=count + overlap - 1)
    return np.convolve(pieces, np.ones(overlap) / overlap, mode="valid")


def coverage(block: int, overlap: int, count: int, worlds: int = 250) -> float:
    """How often the interval holds the truth, that the two policies are alike."""
    rng = np.random.default_rng(7)
    held = 0
    for _ in range(worlds):
        own, other = (1.0 + overlapping_windows(rng, count, overlap) for _ in range(2))
        low, high = interval(own, other, block)
        held += low <= 0.0 <= high
    return held / worlds


@pytest.mark.parametrize(("overlap", "count"), [(1, 40), (2, 40), (5, 40), (8, 64)])
def test_intervals_hold_the_truth_about_as_often_as_they_say(
    overlap: int, count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bootstrap, "RESAMPLES", 400)
    assert 0.91 <= coverage(block=overlap, overlap=overlap, count=count) <= 0.99


def test_windows_resampled_one_by_one_would_be_far_too_sure(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bootstrap, "RESAMPLES", 400)
    assert coverage(block=1, overlap=8, count=64) <= 0.7


@pytest.mark.parametrize(
    ("freedom", "quantile"),
    [(1, 12.706), (2, 4.3027), (4, 2.7764), (7, 2.3646), (39, 2.0227), (1e9, 1.95996)],
)
def test_the_quantiles_of_students_t_are_those_of_tables(freedom: float, quantile: float) -> None:
    assert bootstrap.student_quantile(freedom) == pytest.approx(quantile, rel=4e-3)


def test_many_independent_windows_need_no_widening_and_few_or_overlapping_ones_do() -> None:
    assert widening(1, 1000) == pytest.approx(1.0, abs=2e-3)
    # Two windows overlap half: (1 + 2 * 0.5 * 0.5) / (1 + 2 * 0.5) of the variance is seen.
    assert widening(2, 10**6) == pytest.approx(math.sqrt(4 / 3), abs=1e-3)
    assert widening(1, 5) == pytest.approx(2.7764 / 1.95996 * math.sqrt(5 / 4), rel=4e-3)
    assert widening(32, 40, 2.2) == widening(32, 40, 4.9)


def test_resampling_alone_is_narrower_on_both_sides() -> None:
    rng = np.random.default_rng(3)
    other = rng.lognormal(1.0, 1.0, 40)
    own = other * rng.lognormal(-0.3, 0.5, 40)
    low, high = interval(own, other, 6, 8.0)
    narrow = resampled_interval(own, other, 6)
    assert low < narrow[0] < own.mean() / other.mean() - 1 < narrow[1] < high


def test_nothing_is_less_than_nothing() -> None:
    own, other = np.array([0.0, 0.0, 0.0, 9.0]), np.array([3.0, 5.0, 4.0, 6.0])
    low, _ = interval(own, other, 1)
    assert low == -1.0


# --- Geometric means of ratios ---


NOISE = 1.5


def holds_of(offset: float | None, truth: float, worlds: int = 300, count: int = 40) -> float:
    """How often the interval holds the truth, over windows of which a few have very long queues."""
    rng, held = np.random.default_rng(11), 0
    for _ in range(worlds):
        other = np.exp(2.5 * rng.standard_normal(count))
        own = other * np.exp(NOISE * rng.standard_normal(count))
        found = paired_difference(own, other, lower_is_better=True, offset=offset)
        held += found.low <= truth <= found.high
    return held / worlds


def test_with_heavy_tails_geometric_intervals_hold_the_truth_and_arithmetic_ones_do_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(bootstrap, "RESAMPLES", 400)
    assert 0.92 <= holds_of(0.0, truth=0.0) <= 0.98
    assert holds_of(None, truth=math.exp(NOISE**2 / 2) - 1.0) < 0.8


def test_the_geometric_difference_is_that_worked_out_by_hand() -> None:
    own, other = np.array([1.0, 8.0]), np.array([2.0, 4.0])
    found = paired_difference(own, other, lower_is_better=True, offset=0.0)
    assert found.ratio == pytest.approx(0.0)  # half and double
    assert found.ratio_of_means == pytest.approx(4.5 / 3.0 - 1.0)
    assert (found.own, found.other) == (4.5, 3.0)
    less = paired_difference(own, 4.0 * own, lower_is_better=True, offset=0.0)
    assert (less.ratio, less.low, less.high) == pytest.approx((-0.75, -0.75, -0.75))
    assert less.verdict == "better"
    assert paired_difference(own, 4.0 * own, lower_is_better=False, offset=0.0).verdict == "worse"
    more = paired_difference(4.0 * own, own, lower_is_better=True, offset=0.0)
    assert (more.ratio, more.verdict) == (pytest.approx(3.0), "worse")


def test_one_window_with_a_long_queue_does_not_rule() -> None:
    own, other = np.array([1.0] * 19 + [900.0]), np.array([2.0] * 19 + [300.0])
    found = paired_difference(own, other, lower_is_better=True, offset=0.0)
    assert found.ratio < -0.4
    assert found.ratio_of_means > 1.0


def test_where_a_value_is_0_the_offset_is_added_to_all() -> None:
    own, other = np.array([0.0, 3.0]), np.array([1.0, 1.0])
    found = paired_difference(own, other, lower_is_better=True, offset=1.0)
    assert found.ratio == pytest.approx(np.sqrt(1.0 / 2.0 * 4.0 / 2.0) - 1.0)
    apart = paired_difference(own + 1e-3, other, lower_is_better=True, offset=1.0)
    assert apart.ratio == pytest.approx(np.sqrt(0.001 * 3.001) - 1.0), "no offset without a 0"
    none = paired_difference(own, other, lower_is_better=True, offset=0.0)
    assert none.ratio == pytest.approx(0.5), "a 0 that nothing may be added to: the ratio of means"
    same = paired_difference(np.zeros(3), np.zeros(3), lower_is_better=True, offset=1.0)
    assert (same.ratio, same.verdict) == (0.0, "tie")


def test_values_below_0_are_compared_by_their_means() -> None:
    own, other = np.array([-1.0, 2.0, 3.0]), np.array([2.0, 2.0, 2.0])
    found = paired_difference(own, other, lower_is_better=False, offset=0.0)
    assert found.ratio == pytest.approx((4.0 / 3.0 - 2.0) / 2.0) == found.ratio_of_means
