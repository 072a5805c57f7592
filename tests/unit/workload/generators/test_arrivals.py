"""Arrivals: each shape has the rate it is said to have."""

import math

import numpy as np
import pytest
from pydantic import ValidationError

from gpuyard.errors import InputError
from gpuyard.workload import SynthConfig, synthesize
from gpuyard.workload.generators.arrivals import arrival_times, burst_times
from gpuyard.workload.generators.shapes import AllAtOnce, Bursty, Diurnal, MarkovModulated, Poisson, Uniform

DAY = 86_400.0
WEEK = 7 * DAY
SHAPES = [AllAtOnce(), Uniform(), Poisson(), Bursty(), Diurnal(), MarkovModulated()]


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_times_rise_within_the_span(shape):
    times = arrival_times(shape, seed=3, jobs=5_000, span_s=2 * WEEK)
    assert len(times) == 5_000
    assert (np.diff(times) >= 0).all()
    assert times[0] >= 0
    assert times[-1] <= 2 * WEEK


@pytest.mark.parametrize("shape", SHAPES[2:], ids=str)
def test_another_seed_gives_other_times(shape):
    first, again, other = (arrival_times(shape, seed, 500, WEEK) for seed in (1, 1, 2))
    assert np.array_equal(first, again)
    assert not np.array_equal(first, other)


def test_all_at_once_is_time_zero():
    assert not arrival_times(AllAtOnce(), 0, 10, 100.0).any()


def test_uniform_gaps_are_equal():
    assert arrival_times(Uniform(), 0, 4, 100.0).tolist() == [0.0, 25.0, 50.0, 75.0]


def test_bursts_hold_their_share_of_the_jobs_within_two_spreads():
    shape = Bursty(centres=3, share=0.7, spread=0.001)
    times = burst_times(shape, seed=5, jobs=20_000, span_s=1e6)
    bins = np.bincount((times // 5_000).astype(int), minlength=200)
    # 6 of 200 bins can touch a burst; uniform jobs put 0.3 * 6/200 = 0.9 % there besides.
    assert np.sort(bins)[-6:].sum() / 20_000 == pytest.approx(0.7, abs=0.02)


def test_no_spread_puts_bursts_on_their_centres():
    times = burst_times(Bursty(centres=4, share=1.0, spread=0.0), seed=1, jobs=1_000, span_s=100.0)
    assert len(np.unique(times)) == 4


def test_diurnal_rates_follow_hours_and_weekdays():
    hours = tuple(3.0 if 8 <= hour < 20 else 1.0 for hour in range(24))
    shape = Diurnal(hours=hours, weekdays=(1, 1, 1, 1, 1, 0.5, 0))
    times = arrival_times(shape, seed=2, jobs=50_000, span_s=8 * WEEK)
    of_day, weekday = times // 3600 % 24, times // DAY % 7
    assert ((of_day >= 8) & (of_day < 20)).mean() == pytest.approx(0.75, abs=0.01)
    assert (weekday == 5).mean() == pytest.approx(0.5 / 5.5, abs=0.006)
    assert not (weekday == 6).any()


def test_a_diurnal_workload_may_start_in_the_middle_of_the_week():
    hours = tuple(1.0 if hour == 6 else 0.0 for hour in range(24))
    shape = Diurnal(hours=hours, weekdays=(1,) * 7, start_s=2 * DAY + 5.5 * 3600)
    times = arrival_times(shape, seed=2, jobs=1_000, span_s=3 * DAY)
    assert set(((times + shape.start_s) // 3600 % 24).tolist()) == {6.0}
    assert times[0] >= 1800


def test_the_workloads_clock_tells_hour_and_weekday():
    hours = tuple(1.0 if hour == 9 else 0.0 for hour in range(24))
    jobs = synthesize(
        SynthConfig(jobs=2_000, load=0.02, arrivals=Diurnal(hours=hours, weekdays=(0, 1, 0, 0, 0, 0, 0)))
    )
    clock = jobs.frame["submit_s"].to_numpy() + jobs.metadata.epoch_s - 4 * DAY  # from a Monday
    assert set((clock // 3600 % 24).tolist()) == {9.0}
    assert set((clock // DAY % 7).tolist()) == {1.0}


def test_markov_states_hold_as_long_and_arrive_as_fast_as_asked():
    # In the long run the busy state lasts 1/5 of the time. With 1 job in 100 s on average, 100 s bring 0.385
    # jobs in the quiet state and 3.46 in the busy one: more than 2 with probability 0.0072 and 0.672.
    shape = MarkovModulated(rates=(1, 9), holding_s=(4_000, 1_000))
    times = arrival_times(shape, seed=4, jobs=200_000, span_s=2e7)
    counts = np.bincount((times // 100).astype(int), minlength=200_000)
    assert (counts > 2).mean() == pytest.approx(0.8 * 0.0072 + 0.2 * 0.672, abs=0.01)
    gaps = np.diff(times)
    # A mixture of 69.2 % exponential gaps of mean 28.9 s and 30.8 % of mean 260 s; a Poisson process has 1.
    assert gaps.std() / gaps.mean() == pytest.approx(1.81, abs=0.1)


def test_a_state_without_arrivals_is_silent():
    shape = MarkovModulated(rates=(0, 1, 1), holding_s=(5_000, 100, 100))
    gaps = np.diff(arrival_times(shape, seed=4, jobs=2_000, span_s=1e6))
    assert gaps.max() > 5_000
    assert np.median(gaps) < 100


def test_holding_times_too_short_for_the_span_are_refused():
    with pytest.raises(InputError, match="holding times are too short"):
        arrival_times(MarkovModulated(holding_s=(1e-6, 1e-6)), 0, 10, 1e6)


def test_a_span_without_any_rate_is_refused():
    with pytest.raises(InputError, match="rate of arrivals is 0"):
        arrival_times(Diurnal(weekdays=(0, 0, 0, 0, 0, 0, 1)), 0, 10, DAY)


@pytest.mark.parametrize("kind", ["uniform", "poisson", "bursty", "diurnal", "markov"])
def test_every_shape_keeps_the_load(kind):
    config = SynthConfig(jobs=3_000, arrivals=kind, load=0.7, cluster_gpus=64)
    frame = synthesize(config).frame
    work = float((frame["gpus"] * frame["duration_s"]).sum())
    span = float(frame["submit_s"][-1])
    assert work / (64 * span) == pytest.approx(0.7, rel=0.1)


def test_a_shape_can_be_written_as_text():
    config = SynthConfig(arrivals="bursty:centres=4,spread=0.1", durations="pareto:alpha=1.5")
    assert config.arrivals == Bursty(centres=4, spread=0.1)
    assert str(config.arrivals) == "bursty:centres=4,spread=0.1"
    assert SynthConfig(arrivals="markov:rates=1/5,holding_s=60/10").arrivals.rates == (1.0, 5.0)
    assert SynthConfig(arrivals=str(config.arrivals), durations=str(config.durations)) == config


@pytest.mark.parametrize(
    "text",
    ["burst", "bursty:centres", "bursty:centers=3", "bursty:centres=0", "diurnal:hours=1/2", "Bursty!"],
)
def test_texts_that_mean_nothing_are_refused(text):
    with pytest.raises(ValidationError):
        SynthConfig(arrivals=text)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("burst", "did you mean 'bursty'"),
        ("bursty:centers=3", "unknown setting 'centers'; did you mean 'centres'"),
        ("poisson:rate=3", "there are none"),
    ],
)
def test_a_misspelt_shape_is_answered_with_the_closest(text, words):
    with pytest.raises(ValidationError, match=words):
        SynthConfig(arrivals=text)


def test_poisson_gaps_are_exponential():
    gaps = np.diff(arrival_times(Poisson(), 0, 50_000, 1e6))
    assert np.median(gaps) / gaps.mean() == pytest.approx(math.log(2), abs=0.02)
