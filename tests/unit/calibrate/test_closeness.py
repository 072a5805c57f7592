"""Figures of how close simulated waits come to recorded ones, worked out by hand."""

import math

import numpy as np
import pytest

from gpuyard.calibrate.closeness import (
    closeness,
    correlation,
    grain_of,
    least_difference,
    means_by_step,
    misfit,
    share_near,
    step_of,
    verdict,
)
from gpuyard.policies.calibrated import Verdict


def floats(*values: float) -> np.ndarray:
    return np.array(values, dtype=np.float64)


def test_the_grain_is_a_tenth_of_the_mean_wait_from_3_to_60_s() -> None:
    assert grain_of(floats(100.0, 300.0)) == 20.0
    assert grain_of(floats(0.0, 1.0)) == 3.0
    assert grain_of(floats(1e5)) == 60.0


def test_the_misfit_is_that_of_jobs_and_that_of_means() -> None:
    # log(20 + 10) - log(0 + 10) = log 3, and twice 90 s against 40 s: log(100 / 50) = log 2.
    found = misfit(floats(0.0, 40.0, 90.0), floats(20.0, 90.0, 40.0), 10.0)
    by_job = (math.log(3) + 2 * math.log(2)) / 3
    of_mean = math.sqrt((math.log(3) ** 2 + 2 * math.log(2) ** 2) / 3)
    assert found.value == pytest.approx(by_job + of_mean)
    # Of twenty jobs, two make a tenth: one waits too long, the other as much too short.
    swapped = misfit(floats(*[40.0, 90.0] * 10), floats(*[90.0, 40.0] * 10), 10.0)
    assert swapped.of_mean.tolist() == [0.0] * 10
    assert swapped.value == pytest.approx(math.log(2))


def test_a_policy_fits_better_only_beyond_chance() -> None:
    recorded = floats(*[100.0] * 20)
    same = misfit(recorded, recorded, 10.0)
    clearly = misfit(recorded, floats(*[200.0] * 20), 10.0)
    mixed = misfit(recorded, floats(100.0, 100.0, *[200.0] * 16, 2000.0, 2000.0), 10.0)
    assert same.is_below(clearly, 0.0)
    assert not clearly.is_below(same, 0.0)
    assert clearly.value < mixed.value
    assert not clearly.is_below(mixed, 0.0)  # better in one tenth, worse in another


def test_waits_are_near_within_a_tenth_or_some_seconds() -> None:
    recorded = floats(0.0, 0.0, 1000.0, 1000.0)
    simulated = floats(60.0, 61.0, 1100.0, 899.0)
    assert share_near(recorded, simulated, 60.0) == 0.5
    assert share_near(recorded, simulated, 101.0) == 1.0


def test_mean_waits_are_by_hour_and_by_less_on_short_logs() -> None:
    assert step_of(floats(0.0, 12 * 3600.0)) == 3600.0
    assert step_of(floats(0.0, 12 * 3600.0 - 1)) == 600.0
    assert step_of(floats(0.0, 150.0)) == 10.0
    assert step_of(floats(0.0, 1.0)) == 1.0
    begin, means = means_by_step(floats(10.0, 20.0, 7300.0), floats(2.0, 4.0, 9.0), 3600.0)
    assert begin.tolist() == [0.0, 7200.0]
    assert means.tolist() == [3.0, 9.0]


def test_correlation_is_unknown_where_the_record_hardly_changes() -> None:
    assert correlation(floats(0.0, 100.0, 200.0), floats(5.0, 6.0, 7.0), 10.0) == pytest.approx(1.0)
    assert correlation(floats(0.0, 100.0, 200.0), floats(7.0, 7.0, 7.0), 10.0) == 0.0
    assert correlation(floats(0.0, 1.0, 2.0), floats(5.0, 60.0, 7.0), 10.0) is None
    assert correlation(floats(0.0, 100.0), floats(5.0, 60.0), 10.0) is None


def test_the_least_difference_is_the_typical_error_of_quarters() -> None:
    recorded = floats(90.0, 90.0, 90.0, 90.0)
    # (190 + 10) / (90 + 10) = 2 in two of four quarters: the root of the mean square is log 2 / sqrt 2.
    found = least_difference(recorded, floats(190.0, 90.0, 190.0, 90.0), 10.0)
    assert found == pytest.approx(math.exp(math.log(2) / math.sqrt(2)) - 1)
    assert least_difference(recorded, recorded, 10.0) == 0.0


@pytest.mark.parametrize(
    ("near", "factor", "correlated", "expected"),
    [
        (0.7, 1.25, 0.8, "good"),
        (0.7, 1.25, None, "good"),
        (0.69, 1.0, 1.0, "fair"),
        (1.0, 1.26, 1.0, "fair"),
        (1.0, 1.0, 0.79, "fair"),
        (0.4, 2.0, 0.5, "fair"),
        (0.39, 1.0, 1.0, "poor"),
        (1.0, 2.1, 1.0, "poor"),
        (1.0, 1.0, 0.49, "poor"),
    ],
)
def test_a_verdict_keeps_all_of_its_bounds(
    near: float, factor: float, correlated: float | None, expected: Verdict
) -> None:
    assert verdict(near, factor, correlated) == expected


def test_all_figures_of_a_few_jobs() -> None:
    submit = floats(0.0, 30.0, 3600.0, 7200.0)
    found = closeness(submit, floats(0.0, 100.0, 400.0, 700.0), floats(10.0, 110.0, 400.0, 400.0), 30.0)
    assert (found.jobs, found.step_s) == (4, 600.0)
    assert found.median_error_s == 10.0
    assert found.p90_error_s == pytest.approx(10.0 + 0.7 * 290.0)
    assert (found.mean_recorded_s, found.mean_simulated_s) == (300.0, 230.0)
    assert found.wait_ratio == pytest.approx(230 / 300)
    assert found.share_within == found.share_near == 0.75
    assert found.verdict == "fair"  # (300 + 30) / (230 + 30) = 1.27


def test_nobody_waits_and_nobody_did() -> None:
    nothing = floats(*[0.0] * 8)
    found = closeness(np.arange(8.0), nothing, nothing, 3.0)
    assert (found.wait_ratio, found.correlation, found.least_difference) == (None, None, 0.0)
    assert found.verdict == "good"
