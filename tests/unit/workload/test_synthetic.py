"""The synthetic generator: the load, the mixes, and the same bits for the same seed."""

import math

import numpy as np
import pytest
from pydantic import ValidationError

from gpuyard.cluster.model import parse_cluster
from gpuyard.workload import SynthConfig, demo_workload, describe, synthesize

pytest.importorskip("gpuyard._core")


@pytest.fixture(scope="module")
def large():
    return synthesize(SynthConfig(jobs=50_000, seed=7, overestimation=3.0, priority_mix=((1, 3), (10, 1))))


def test_the_same_seed_gives_the_same_jobs_and_another_seed_others():
    first, again, other = (synthesize(SynthConfig(jobs=500, seed=seed)) for seed in (1, 1, 2))
    assert first.frame.equals(again.frame)
    assert not first.frame["duration_s"].equals(other.frame["duration_s"])


@pytest.mark.parametrize("load", [0.3, 0.9, 2.0])
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_the_realised_load_is_the_one_asked_for(load, seed):
    jobs = synthesize(SynthConfig(jobs=5_000, seed=seed, load=load, cluster_gpus=512))
    assert describe(jobs, parse_cluster("64x8"))["load"] == pytest.approx(load, rel=0.005)


def test_gaps_between_arrivals_are_exponential(large):
    gaps = np.diff(large.frame["submit_s"].to_numpy())
    assert gaps.std() / gaps.mean() == pytest.approx(1.0, abs=0.02)
    assert np.median(gaps) / gaps.mean() == pytest.approx(math.log(2), abs=0.02)


def test_gang_sizes_follow_the_mix(large):
    shares = large.frame["gpus"].value_counts(normalize=True).sort("gpus")
    assert shares["gpus"].to_list() == [1, 2, 4, 8]
    assert shares["proportion"].to_list() == pytest.approx([0.70, 0.10, 0.15, 0.05], abs=0.01)


def test_durations_are_lognormal_between_their_bounds(large):
    durations = large.frame["duration_s"].to_numpy()
    assert np.median(durations) == pytest.approx(600, rel=0.05)
    assert np.quantile(durations, 0.8413) == pytest.approx(600 * math.exp(1.8), rel=0.07)
    assert durations.min() == 10.0
    assert durations.max() == 86_400.0


def test_estimates_never_fall_short_and_have_the_mean_asked_for(large):
    ratio = (large.frame["estimate_s"] / large.frame["duration_s"]).to_numpy()
    assert ratio.min() >= 1 - 1e-6
    assert ratio.mean() == pytest.approx(3.0, rel=0.03)


def test_priorities_follow_the_weights(large):
    assert (large.frame["priority"] == 10).mean() == pytest.approx(0.25, abs=0.01)


def test_zipf_users_differ_in_activity_and_uniform_ones_do_not(large):
    zipf = large.frame["user"].value_counts(normalize=True, sort=True)["proportion"].to_list()
    assert zipf[0] / zipf[1] == pytest.approx(2.0, rel=0.1)
    uniform = synthesize(SynthConfig(jobs=50_000, users=10, user_activity="uniform"))
    shares = uniform.frame["user"].value_counts(normalize=True)["proportion"].to_list()
    assert shares == pytest.approx([0.1] * 10, abs=0.01)


def test_a_user_belongs_to_one_group(large):
    assert large.frame.group_by("user").agg(groups=large.frame["group"].n_unique()).height == 20
    assert large.frame.select("user", "group").unique().height == 20
    assert large.frame["group"].n_unique() == 4


def test_without_groups_and_estimates_the_columns_stay_empty():
    jobs = synthesize(SynthConfig(jobs=50, groups=0))
    assert jobs.frame["group"].unique().to_list() == [""]
    assert jobs.frame["estimate_s"].null_count() == 50


def test_whole_seconds_are_whole():
    jobs = synthesize(SynthConfig(jobs=2_000, whole_seconds=True, overestimation=1.5))
    for column in ("submit_s", "duration_s", "estimate_s"):
        values = jobs.frame[column].to_numpy()
        assert np.array_equal(values, np.floor(values))
    assert jobs.frame["duration_s"].min() >= 1


def test_one_job_is_a_workload():
    assert synthesize(SynthConfig(jobs=1)).frame["submit_s"].to_list() == [0.0]


def test_weights_of_zero_are_never_drawn():
    jobs = synthesize(SynthConfig(jobs=5_000, gang_mix=((2, 0), (4, 1), (8, 0))))
    assert jobs.frame["gpus"].unique().to_list() == [4]


def test_the_history_holds_the_whole_config():
    config = SynthConfig(jobs=10, seed=5, load=0.5)
    (step,) = synthesize(config).metadata.history
    assert step.name == "synthesize"
    assert SynthConfig.model_validate(step.settings) == config


@pytest.mark.parametrize(
    "settings",
    [
        {"jobs": 0},
        {"load": 0},
        {"load": math.nan},
        {"gang_mix": ()},
        {"gang_mix": ((1, 0),)},
        {"gang_mix": ((16, 1),), "cluster_gpus": 8},
        {"duration_min_s": 100, "duration_max_s": 10},
        {"priority_mix": ()},
        {"overestimation": 0.5},
        {"user_activity": "lively"},
        {"seeds": 3},
    ],
)
def test_settings_that_make_no_sense_are_refused(settings):
    with pytest.raises(ValidationError):
        SynthConfig(**settings)


def test_the_demo_fits_its_cluster_and_keeps_it_busy():
    jobs = demo_workload()
    summary = describe(jobs, parse_cluster("demo"))
    assert summary["jobs"] == 2_000
    assert summary["load"] == pytest.approx(0.95, rel=0.01)
    assert summary["estimates"]["jobs"] == 2_000
