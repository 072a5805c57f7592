"""Durations, what they go together with, users' habits, and estimates."""

import math

import numpy as np
import pytest
from pydantic import ValidationError

from gpuyard.workload import SynthConfig, synthesize
from gpuyard.workload.generators.durations import bounded_pareto, log_uniform
from gpuyard.workload.generators.estimates import ROUND_TIMES_S, rounded_down, rounded_up

JOBS = 20_000


def columns(**settings):
    frame = synthesize(SynthConfig(jobs=JOBS, seed=11, **settings)).frame
    return {name: frame[name].to_numpy() for name in ("duration_s", "gpus", "priority", "user")}


def rank_correlation(x, y):
    """Spearman's, with ties in the order in which they stand."""
    ranks = [np.argsort(np.argsort(values, kind="stable")) for values in (x, y)]
    return float(np.corrcoef(*ranks)[0, 1])


def test_uniform_durations_fill_the_range():
    d = columns(durations="uniform", duration_min_s=100, duration_max_s=300)["duration_s"]
    assert np.quantile(d, [0, 0.25, 0.5, 0.75, 1]) == pytest.approx([100, 150, 200, 250, 300], abs=3)


def test_the_bounded_pareto_has_its_quantiles():
    # P(X > x) = ((low/x)^a - (low/high)^a) / (1 - (low/high)^a); a = 1, low 1, high 4: P(X > 2) = 1/3.
    assert bounded_pareto(np.array([0.0, 2 / 3, 1.0]), 1.0, 1.0, 4.0) == pytest.approx([1, 2, 4])
    d = columns(durations="pareto:alpha=1", duration_min_s=10, duration_max_s=40)["duration_s"]
    assert (d > 20).mean() == pytest.approx(1 / 3, abs=0.01)


def test_log_uniform_is_uniform_in_the_logarithm():
    assert log_uniform(np.array([0.0, 0.5, 1.0]), 1.0, 100.0) == pytest.approx([1, 10, 100])


def test_a_heavy_tail_begins_where_it_should_and_holds_most_of_the_work():
    tail = "heavy-tail:tail_share=0.1,tail_from_s=3600,alpha=0.9"
    d = columns(durations=tail, duration_median_s=60, duration_sigma=1, duration_max_s=1e6)["duration_s"]
    assert (d >= 3600).mean() == pytest.approx(0.1, abs=0.01)  # 3,600 s is 4.1 sigma from the body
    assert np.median(d[d < 3600]) == pytest.approx(60, rel=0.05)
    assert d[d >= 3600].sum() / d.sum() > 0.9


@pytest.mark.parametrize("kind", ["lognormal", "uniform", "pareto", "heavy-tail"])
@pytest.mark.parametrize("wanted", [-0.7, 0.7])
def test_duration_goes_with_gang_size_as_asked(kind, wanted):
    mix = tuple((size, 1.0) for size in range(1, 65))
    drawn = columns(durations=kind, duration_with_gpus=wanted, gang_mix=mix)
    # Normal scores of correlation r have ranks of correlation 6/pi asin(r/2).
    expected = 6 / math.pi * math.asin(wanted / 2)
    assert rank_correlation(drawn["duration_s"], drawn["gpus"]) == pytest.approx(expected, abs=0.03)


def test_duration_goes_with_priority_as_asked():
    mix = tuple((float(level), 1.0) for level in range(1, 65))
    drawn = columns(duration_with_priority=-0.5, duration_with_gpus=0.4, priority_mix=mix)
    found = rank_correlation(drawn["duration_s"], drawn["priority"])
    assert found == pytest.approx(6 / math.pi * math.asin(-0.25), abs=0.03)


def test_without_links_nothing_goes_together():
    drawn = columns(priority_mix=((1, 1), (2, 1)))
    assert abs(np.corrcoef(np.log(drawn["duration_s"]), drawn["gpus"])[0, 1]) < 0.02
    assert abs(np.corrcoef(np.log(drawn["duration_s"]), drawn["priority"])[0, 1]) < 0.02


def test_links_and_habits_leave_every_distribution_as_it_is():
    mix = ((1, 3), (10, 1))
    plain = columns(priority_mix=mix)
    linked = columns(priority_mix=mix, duration_with_gpus=0.8, duration_with_priority=-0.4, user_habits=0.6)
    for name in ("duration_s", "gpus", "priority"):
        assert np.array_equal(np.sort(plain[name]), np.sort(linked[name]))
        assert not np.array_equal(plain[name], linked[name])


def errors_of_predictions(user, values):
    """Mean absolute error of the mean of all earlier jobs, and of the user's own earlier jobs."""
    overall, own, errors = [0.0, 0], {}, []
    for who, value in zip(user, values, strict=True):
        mine = own.setdefault(who, [0.0, 0])
        if mine[1]:
            errors.append((abs(value - overall[0] / overall[1]), abs(value - mine[0] / mine[1])))
        for total in (overall, mine):
            total[0] += value
            total[1] += 1
    return np.mean(errors, axis=0)


def test_with_habits_a_users_past_predicts_better_than_everybodys():
    drawn = columns(user_habits=0.6, users=50)
    for values in (np.log(drawn["duration_s"]), drawn["gpus"]):
        everybody, own = errors_of_predictions(drawn["user"], values)
        assert own < 0.85 * everybody


def test_without_habits_a_users_past_is_no_better():
    drawn = columns(users=50)
    everybody, own = errors_of_predictions(drawn["user"], np.log(drawn["duration_s"]))
    assert own > 0.99 * everybody


def test_habits_are_the_share_of_variance_between_users():
    drawn = columns(user_habits=0.5, users=500, user_activity="uniform")
    logs = np.log(drawn["duration_s"])
    _, user = np.unique(drawn["user"], return_inverse=True)
    within = logs - (np.bincount(user, logs) / np.bincount(user))[user]
    assert 1 - within.var() / logs.var() == pytest.approx(0.5, abs=0.06)


def test_round_times():
    assert rounded_up(np.array([1, 60, 61, 899, 3601, 86_401, 31 * 86_400])).tolist() == [
        60, 60, 300, 900, 7200, 2 * 86_400, 60 * 86_400,
    ]  # fmt: skip
    assert rounded_down(np.array([1, 60, 61, 899, 3601, 86_401, 61 * 86_400])).tolist() == [
        1, 60, 60, 600, 3600, 86_400, 60 * 86_400,
    ]  # fmt: skip


def test_estimates_are_round_and_only_the_given_share_is_too_short():
    config = SynthConfig(
        jobs=JOBS, seed=5, overestimation=3.0, underestimated_share=0.1, round_estimates=True
    )
    frame = synthesize(config).frame
    estimate, duration = frame["estimate_s"].to_numpy(), frame["duration_s"].to_numpy()
    too_short = estimate < duration
    assert too_short.mean() == pytest.approx(0.1, abs=0.01)
    assert (estimate[too_short] / duration[too_short]).min() > 0.05
    round_ones = np.isin(estimate, ROUND_TIMES_S) | (estimate % (30 * 86_400) == 0)
    assert round_ones[~too_short].all()
    assert (round_ones | (estimate < 60)).all()
    assert np.median(estimate / duration) > 1.5


@pytest.mark.parametrize(
    "settings",
    [
        {"underestimated_share": 0.1},
        {"round_estimates": True},
        {"user_habits": 1.0},
        {"duration_with_gpus": 1.1},
        {"durations": "pareto:alpha=0"},
        {"durations": "weibull"},
        {"durations": "heavy-tail:tail_share=2"},
    ],
)
def test_settings_that_make_no_sense_are_refused(settings):
    with pytest.raises(ValidationError):
        SynthConfig(**settings)
