"""The bursty workload on 8 GPUs: the formulas by hand, and what they give on average."""

import math

import numpy as np
import pytest

from gpuyard import _core
from gpuyard.workload.generators import BurstyConfig, preset_workload
from gpuyard.workload.generators.bursty import gpus_of, priority_of

D = 10_000.0


@pytest.fixture(scope="module")
def large():
    return BurstyConfig(jobs=100_000, seed=1).generate().workload.frame


def test_gpus_by_hand():
    # d = 0.01: 0.01^0.6 * 7 = 0.44, so 1; d = 0.5: 0.6598 * 7 = 4.62, so 5; d = 1: 7, so 8.
    d = np.array([0.01, 0.01, 0.5, 0.5, 1.0, 1.0])
    chance = np.array([1.0, 8.0, 1.0, 8.0, 1.0, 8.0])
    # 0.3*1+0.7*1 = 1; 2.4+0.7 = 3.1; 0.3+3.5 = 3.8; 2.4+3.5 = 5.9; 0.3+5.6 = 5.9; 2.4+5.6 = 8.
    assert gpus_of(d, chance, 8).tolist() == [1, 3, 4, 6, 6, 8]


def test_priority_by_hand():
    # d = 0.01: 0.99^0.8 * 9 = 8.93, so 9; d = 0.5: 0.574 * 9 = 5.17, so 6; d = 1: 0, so 1.
    d = np.array([0.01, 0.01, 0.5, 0.5, 1.0, 1.0])
    chance = np.array([1.0, 10.0, 1.0, 10.0, 1.0, 10.0])
    # 0.4+5.4 = 5.8; 4+5.4 = 9.4; 0.4+3.6 = 4; 4+3.6 = 7.6; 0.4+0.6 = 1; 4+0.6 = 4.6.
    assert priority_of(d, chance, 10).tolist() == [6, 9, 4, 8, 1, 5]


def test_the_preset_is_400_jobs_for_8_gpus():
    trace = preset_workload("bursty-8gpu", seed=7)
    frame = trace.workload.frame
    assert len(trace.workload) == 400
    assert trace.cluster.total_gpus == 8
    assert frame["gpus"].is_between(1, 8).all()
    assert frame["priority"].is_between(1, 10).all()
    assert set(frame["priority"].to_list()) == {round(p) for p in frame["priority"]}
    assert frame["duration_s"].is_between(0.01 * D, D).all()


def test_durations_are_short_uniform_or_long_log_uniform(large):
    d = large["duration_s"].to_numpy() / D
    long = d >= 0.08
    assert long.mean() == pytest.approx(0.15, abs=0.005)
    assert np.quantile(d[~long], [0.25, 0.5, 0.75]) == pytest.approx([0.0275, 0.045, 0.0625], abs=0.001)
    assert np.quantile(d[long], [0.25, 0.5, 0.75]) == pytest.approx(
        [0.08**0.75, 0.08**0.5, 0.08**0.25], rel=0.03
    )


def test_arrivals_lie_in_the_span_and_four_fifths_of_them_in_bursts():
    offsets = []
    for seed in range(20):
        workload = BurstyConfig(seed=seed, jobs=4_000).generate().workload
        times = workload.frame["submit_s"].to_numpy() + workload.metadata.epoch_s
        assert times.min() >= 0
        assert times.max() <= D
        bins = np.sort(np.bincount(np.minimum(times // 100, 99).astype(int), minlength=100))
        offsets.append(bins[:40].sum() / bins.sum())
    # The emptiest 40 % of the time holds a little more than 40 % of the jobs outside bursts, 8 %.
    assert np.mean(offsets) == pytest.approx(0.08, abs=0.03)


def test_the_first_arrival_is_kept_on_the_clock():
    workload = BurstyConfig(seed=3).generate().workload
    assert workload.frame["submit_s"][0] == 0
    assert 0 <= workload.metadata.epoch_s < D


def test_long_jobs_are_wide_and_short_jobs_important(large):
    d, gpus, priority = (large[name].to_numpy() for name in ("duration_s", "gpus", "priority"))
    short, long = d < 0.08 * D, d > 0.5 * D
    # Short: d^0.6 * 7 crosses 1 at d = 0.0390, so 1 + floor is 1 or 2; chance adds 0.3 * 4.5 on average.
    assert gpus[short].mean() == pytest.approx(2.5, abs=0.15)
    assert gpus[long].mean() == pytest.approx(0.3 * 4.5 + 0.7 * 6.3, abs=0.25)
    assert priority[short].mean() == pytest.approx(0.4 * 5.5 + 0.6 * 9, abs=0.15)
    assert priority[long].mean() < 5


def test_sizes_and_priorities_on_average_over_60_episodes():
    frames = [BurstyConfig(seed=seed).generate().workload.frame for seed in range(60)]
    assert np.mean([f["gpus"].mean() for f in frames]) == pytest.approx(2.765, abs=0.03)
    assert np.mean([f["priority"].mean() for f in frames]) == pytest.approx(7.386, abs=0.03)


def test_the_work_of_an_episode_is_what_the_formulas_expect(large):
    # Averages over a grid of the draws: 85 % short, 15 % long, gangs given the duration.
    u = (np.arange(2_000) + 0.5) / 2_000
    expected = 0.0
    for share, d in ((0.85, 0.01 + 0.07 * u), (0.15, 0.08 ** (1 - u))):
        gpus = np.mean([gpus_of(d, np.full(2_000, float(c)), 8) for c in range(1, 9)], axis=0)
        expected += share * float((gpus * d).mean())
    found = float((large["gpus"] * large["duration_s"]).mean()) / D
    assert found == pytest.approx(expected, rel=0.02)
    assert 400 * expected / 8 == pytest.approx(18.53, abs=0.02)


def uniform(seed, stream, i, b=0):
    return (_core.draw(seed, stream, i, b) >> 11) * 2.0**-53


def normal(seed, stream, i):
    u1 = ((_core.draw(seed, stream, i, 0) >> 11) + 1) * 2.0**-53
    return math.sqrt(-2.0 * math.log(u1)) * math.cos(6.283185307179586 * uniform(seed, stream, i, 1))


def job_by_the_documentation(seed, i):
    """Submit time, duration, GPUs and priority of job i, as docs/guide/generators.md has them."""
    if uniform(seed, 49, i) < 0.8:
        centre = uniform(seed, 48, math.floor(6 * uniform(seed, 50, i))) * D
        submit = min(max(centre + normal(seed, 51, i) * (0.03 * D), 0.0), D)
    else:
        submit = uniform(seed, 52, i) * D
    v = uniform(seed, 65, i)
    d = 0.01 + 0.07 * v if uniform(seed, 64, i) < 0.85 else math.exp(math.log(0.08) - v * math.log(0.08))
    gpus = round(0.3 * (1 + math.floor(8 * uniform(seed, 66, i))) + 0.7 * (1 + math.floor(d**0.6 * 7)))
    chance = 1 + math.floor(10 * uniform(seed, 67, i))
    priority = round(0.4 * chance + 0.6 * (1 + math.floor((1 - d) ** 0.8 * 9)))
    return submit, d * D, min(max(gpus, 1), 8), min(max(priority, 1), 10)


def test_the_draws_are_those_of_the_documentation():
    workload = BurstyConfig(seed=17).generate().workload
    jobs = [job_by_the_documentation(17, i) for i in range(400)]
    expected = np.array(sorted(jobs, key=lambda job: job[0]))
    found = workload.frame.select("submit_s", "duration_s", "gpus", "priority").to_numpy()
    found[:, 0] += workload.metadata.epoch_s
    assert found == pytest.approx(expected, abs=2e-6)
