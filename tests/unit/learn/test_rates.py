"""Numbers that change in the course of training."""

import math

import pytest
from pydantic import ValidationError

from gpuyard.learn.rates import Schedule


@pytest.mark.parametrize(
    ("schedule", "values"),
    [
        ("constant", (0.8, 0.8, 0.8, 0.8)),
        ("linear", (0.8, 0.65, 0.5, 0.2)),
        ("exponential", (0.8, 0.8 * 0.25**0.25, 0.4, 0.2)),
        ("cosine", (0.8, 0.2 + 0.6 * 0.5 * (1 + math.cos(math.pi / 4)), 0.5, 0.2)),
    ],
)
def test_schedule_goes_from_start_to_end(schedule: str, values: tuple[float, ...]) -> None:
    made = Schedule(schedule=schedule, start=0.8, end=0.2)
    assert [made.at(x) for x in (0.0, 0.25, 0.5, 1.0)] == pytest.approx(values)


def test_warmup_rises_to_the_start_and_falls_to_the_end() -> None:
    made = Schedule(schedule="warmup-cosine", start=1.0, end=0.1, warmup=0.2)
    assert [made.at(x) for x in (0.0, 0.1, 0.2, 0.6, 1.0)] == pytest.approx([0.0, 0.5, 1.0, 0.55, 0.1])


def test_progress_outside_training_counts_as_its_ends() -> None:
    made = Schedule(schedule="linear", start=1.0, end=0.5)
    assert (made.at(-1.0), made.at(2.0)) == (1.0, 0.5)


def test_exponential_schedule_to_zero_is_refused() -> None:
    with pytest.raises(ValidationError, match="above 0"):
        Schedule(schedule="exponential", start=1.0)
