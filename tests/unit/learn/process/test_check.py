"""``gpuyard train --check``: what it concludes from what it saw."""

from dataclasses import replace

import numpy as np
import pytest

from gpuyard.learn.process.check import CheckResult, GradientReport, _ends, report

LEARNS = CheckResult(
    first_return=-2.0,
    last_return=-1.0,
    change_error=0.1,
    base_return=-1.5,
    episodes=640,
    seconds=40.0,
    legal_share=0.5,
    illegal_probability=0.0,
    illegal_gradient=0.0,
    unused_columns=[],
    gradients=[GradientReport("head.weight", 8, 1.0, 0.5)],
    not_finite=[],
)


def test_return_that_rose_is_called_learning() -> None:
    assert LEARNS.verdict == "learns"
    assert LEARNS.passed
    assert "It learns" in report(LEARNS)


@pytest.mark.parametrize(
    "changes",
    [
        {"last_return": -2.0},
        {"last_return": -1.85},
        {"last_return": -2.15},
        {"last_return": -2.0, "change_error": 0.0},
        {"first_return": -1.0, "last_return": -1.3},
    ],
    ids=["equal", "up by chance", "down by chance", "equal without chance", "down but above the base"],
)
def test_return_that_did_not_rise_is_not_called_in_order(changes: dict[str, float]) -> None:
    result = replace(LEARNS, **changes)
    assert result.verdict == "did not move"
    assert not result.passed
    assert "Did not move" in report(result)
    assert result.document()["verdict"] == "did not move"


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"not_finite": ["head.weight"]}, "head.weight"),
        ({"stopped_by": "the policy's loss is not finite"}, "loss is not finite"),
        ({"illegal_probability": 0.1}, "not masked"),
        ({"illegal_gradient": 0.1}, "not masked"),
        ({"gradients": [GradientReport("head.weight", 8, 1.0, None)]}, "no gradient"),
        ({"last_return": -3.0}, "the return fell"),
    ],
)
def test_wrong_masks_gradients_and_numbers_are_called_broken(changes: dict[str, object], words: str) -> None:
    result = replace(LEARNS, **changes)  # type: ignore[arg-type]
    assert result.verdict == "broken"
    assert "Broken" in report(result)
    assert words in report(result)


def test_ends_are_compared_with_the_chance_that_is_in_them() -> None:
    chance = np.random.default_rng(3).normal(size=400)
    first, last, error = _ends(list(chance))
    assert abs(last - first) < 2 * error
    first, last, error = _ends(list(chance + np.linspace(0, 5, 400)))
    assert last - first > 2 * error
    assert _ends([1.0]) == (1.0, 1.0, 0.0)
    assert np.isnan(_ends([])).all()
