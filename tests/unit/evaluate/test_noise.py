"""Noisy estimates drawn several times: figures of windows are means over the draws."""

from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from gpuyard.config import SimulationConfig
from gpuyard.errors import InputError
from gpuyard.evaluate import Comparison, compare
from gpuyard.evaluate.tables import mean_row
from gpuyard.evaluate.wording import summary
from gpuyard.report.pages.evaluation import merge
from support.evaluation_cases import CLUSTER, some_jobs

NOISY = SimulationConfig(estimates="noisy", noise_sigma=1.0, seed=5)
SMALL: dict[str, Any] = {"windows": 3, "jobs_per_window": 60, "choosing_windows": 2}
COLD: dict[str, Any] = {"cold": True, "whole": False, "all_heuristics": True}


def compared(simulation: SimulationConfig = NOISY, **settings: Any) -> Comparison:
    return compare(["sjf+easy", "wspt"], some_jobs(), CLUSTER, simulation, **{**SMALL, **COLD, **settings})


@pytest.fixture(scope="module")
def threefold() -> Comparison:
    return compared(noise_draws=3)


def test_figures_of_a_window_are_means_over_draws_of_the_noise(threefold: Comparison) -> None:
    alone = [
        compared(NOISY.model_copy(update={"seed": seed}), current="wspt", all_heuristics=False)
        for seed in (5, 6, 7)
    ]
    name = "sjf+easy/consolidate"
    for metric in ("mean_bounded_slowdown", "mean_jct_s", "p99_wait_s"):
        values = np.array([one.values(name, metric) for one in alone])
        assert np.ptp(values, axis=0).max() > 0  # the draws differ
        assert threefold.values(name, metric) == pytest.approx(values.mean(axis=0))
    key = ["policy", "window", "by", "class"]
    classes = pl.concat([one.classes for one in alone]).group_by(key).agg(pl.col("mean_wait_s").mean())
    both = threefold.classes.join(classes, on=key, suffix="_alone")
    assert len(both) > 10
    assert both["mean_wait_s"].to_numpy() == pytest.approx(both["mean_wait_s_alone"].to_numpy())


def test_the_reference_is_chosen_by_means_over_draws_too(threefold: Comparison) -> None:
    family = [entry for entry in threefold.policies if entry.role == "family"]
    alone = compared()
    differ = [
        entry.name
        for entry in family
        if alone.knows(entry.name, "mean_wait_s")
        and (alone.values(entry.name, "mean_wait_s") != threefold.values(entry.name, "mean_wait_s")).any()
    ]
    assert len(differ) > len(family) / 2


def test_the_number_of_draws_is_told_and_kept(threefold: Comparison, tmp_path: Path) -> None:
    assert "means over 3 draws of the estimates' noise" in summary(threefold)
    assert "noise" not in summary(compared())
    threefold.write(tmp_path / "out")
    assert Comparison.read(tmp_path / "out").setting.noise_draws == 3


def test_comparisons_over_other_draws_are_not_put_into_one_report(threefold: Comparison) -> None:
    with pytest.raises(InputError, match="different draws of noise"):
        merge([threefold, compared()], ["a", "b"])


def test_draws_of_noise_that_is_not_there_are_refused() -> None:
    with pytest.raises(InputError, match="estimates are history: use estimates noisy"):
        compare(["sjf"], some_jobs(), CLUSTER, noise_draws=2, **SMALL)


def test_what_is_unknown_in_one_draw_is_unknown() -> None:
    rows = [
        {"policy": "a", "window": 1, "x": 1.0, "y": 2.0},
        {"policy": "a", "window": 1, "x": 2.0, "y": None},
    ]
    assert mean_row(rows) == {"policy": "a", "window": 1, "x": 1.5, "y": None}
