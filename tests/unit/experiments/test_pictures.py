"""Scales of the pictures in the documentation."""

import pytest

from experiments.pictures import range_axis, tick_text


@pytest.mark.parametrize("low", [-100.0, -0.03, 0.0, 0.2, 5000.0])
@pytest.mark.parametrize("span", [0.0, 1e-5, 0.7, 33.0, 1e7])
def test_a_scale_between_any_values_has_a_few_round_ticks_that_enclose_them(low: float, span: float) -> None:
    axis = range_axis(low, low + span)
    slack = 1e-9 * max(abs(low), span, 1)
    assert axis.low <= low + slack
    assert axis.high >= low + span - slack
    assert 3 <= len(axis.ticks) <= 12
    assert axis.ticks[0][0] == axis.low
    assert axis.ticks[-1][0] == axis.high


@pytest.mark.parametrize(
    ("value", "text"), [(0.0, "0"), (2.5, "2.5"), (1200.0, "1,200"), (40_000.0, "40k"), (3e6, "3M")]
)
def test_ticks_are_short(value: float, text: str) -> None:
    assert tick_text(value) == text
