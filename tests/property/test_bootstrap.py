"""What must hold of every paired interval."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from gpuyard.evaluate.bootstrap import paired_difference, resampled_differences

VALUES = arrays(np.float64, st.integers(2, 30), elements=st.floats(1.0, 1e6))


@given(VALUES, st.integers(1, 40), st.floats(0.1, 10.0))
def test_a_policy_that_is_always_so_many_times_as_bad_is_told_exactly(
    other: np.ndarray, block: int, factor: float
) -> None:
    found = paired_difference(factor * other, other, block=block, lower_is_better=True)
    np.testing.assert_allclose([found.ratio, found.low, found.high], factor - 1.0, atol=1e-9)


@given(VALUES, st.integers(1, 40), st.integers(0, 2**32))
def test_the_interval_does_not_depend_on_units_and_holds_the_estimate(
    other: np.ndarray, block: int, seed: int
) -> None:
    own = np.random.default_rng(seed).permutation(other)
    found = paired_difference(own, other, block=block, lower_is_better=True)
    in_hours = paired_difference(own / 3600, other / 3600, block=block, lower_is_better=True)
    np.testing.assert_allclose([found.low, found.high], [in_hours.low, in_hours.high], atol=1e-9)
    assert found.low <= found.ratio + 1e-9
    assert found.high >= found.ratio - 1e-9


@given(VALUES, st.integers(1, 40))
def test_every_window_is_as_likely_as_any_other(values: np.ndarray, block: int) -> None:
    """The mean of resampled means is that of the windows, but for chance."""
    samples = resampled_differences(values, np.ones(len(values)), block)
    error = samples.std() / np.sqrt(len(samples))
    assert abs(samples.mean() - (values.mean() - 1.0)) <= 6 * error + 1e-9 * values.max()
