"""The model of Lublin and Feitelson, against its own formulas and a log made with its reference program."""

import math

import numpy as np
import pytest

from gpuyard.workload import describe, read_workload
from gpuyard.workload.generators import LublinConfig, preset_workload
from gpuyard.workload.generators.gamma import gamma_cdf, gammas, redrawn_up_to
from gpuyard.workload.generators.lublin import daily_cycle

POWERS = 2 ** np.arange(1, 9)


@pytest.mark.parametrize("shape", [1.0, 4.2, 312.0])
def test_gamma_draws_have_their_mean_variance_and_skewness(shape):
    drawn = gammas(5, 84, np.full(200_000, shape))
    error = math.sqrt(shape / 200_000)
    assert drawn.mean() == pytest.approx(shape, abs=4 * error)
    assert drawn.var() == pytest.approx(shape, rel=0.03)
    skewness = ((drawn - drawn.mean()) ** 3).mean() / drawn.std() ** 3
    assert skewness == pytest.approx(2 / math.sqrt(shape), abs=0.05)


def test_a_jobs_gamma_draw_does_not_depend_on_the_jobs_behind_it():
    assert np.array_equal(gammas(5, 84, np.full(1_000, 1.5))[:10], gammas(5, 84, np.full(10, 1.5)))


def test_the_gamma_distribution_function():
    for x in (0.1, 1.0, 2.0, 5.0, 20.0):
        assert gamma_cdf(x, 1.0, 2.0) == pytest.approx(1 - math.exp(-x / 2), rel=1e-12)
        erlang = 1 - math.exp(-x) * (1 + x + x * x / 2)
        assert gamma_cdf(x, 3.0, 1.0) == pytest.approx(erlang, rel=1e-11)
    assert gamma_cdf(0.0, 3.0, 1.0) == 0.0
    drawn = gammas(1, 84, np.full(100_000, 8.17))
    assert (drawn <= 7.0).mean() == pytest.approx(gamma_cdf(7.0, 8.17, 1.0), abs=0.006)


def test_what_exceeds_the_limit_is_drawn_again():
    tries = {
        0: np.array([1.0, 9.0, 9.0]),
        1 << 32: np.array([5.0, 2.0, 9.0]),
        2 << 32: np.array([5.0, 5.0, 3.0]),
    }
    assert redrawn_up_to(8.0, tries.__getitem__).tolist() == [1.0, 2.0, 3.0]


def test_sizes_are_serial_powers_of_two_or_anything_as_often_as_the_model_says():
    sizes = LublinConfig(jobs=50_000, kind="batch").generate().workload.frame["gpus"].to_numpy()
    assert (sizes == 1).mean() == pytest.approx(0.2927, abs=0.006)
    # 3.9 % are of any size; those are powers of two by chance now and then.
    assert np.isin(sizes, POWERS).mean() == pytest.approx(0.6686 + 0.006, abs=0.01)
    # First stage: log2 from 1.2 to 6 for 87.5 %; so 16 = 2^4 (width 1) has 0.6686 * 0.875 / 4.8, plus chance.
    assert (sizes == 16).mean() == pytest.approx(0.6686 * 0.875 / 4.8, abs=0.006)
    assert sizes.max() == 256


def test_large_jobs_run_longer_because_the_mixture_depends_on_size():
    frame = LublinConfig(jobs=50_000).generate().workload.frame
    runs, sizes = frame["duration_s"].to_numpy(), frame["gpus"].to_numpy()
    # The second gamma has mean 312 * 0.03 = 9.36 in logarithms (11,600 s), probability 1 - (0.78 - 0.0054 n).
    for size in (1, 32, 128):
        second = (runs[sizes == size] > 3_000).mean()
        assert second == pytest.approx(0.22 + 0.0054 * size, abs=0.03)
    assert runs.max() < math.exp(12)
    assert runs.min() >= 1


def test_arrivals_follow_the_daily_cycle():
    weights = daily_cycle(8.1737, 3.9631)
    assert weights.mean() == pytest.approx(1.0)
    assert 20 <= np.argmax(weights) <= 30  # between 10:00 and 15:00
    frame = LublinConfig(jobs=40_000, seed=3).generate().workload
    clock = frame.frame["submit_s"].to_numpy() + frame.metadata.epoch_s
    counts = np.bincount((clock // 1800 % 48).astype(int), minlength=48)
    assert np.abs(counts / counts.sum() - weights / 48).sum() / 2 < 0.05


def test_a_given_load_is_met_within_a_tenth():
    frame = LublinConfig(jobs=10_000, load=0.5).generate().workload.frame
    load = float((frame["gpus"] * frame["duration_s"]).sum()) / (256 * float(frame["submit_s"][-1]))
    assert load == pytest.approx(0.5, rel=0.1)


def test_batch_jobs_are_longer_than_interactive_ones():
    batch, interactive = (
        LublinConfig(jobs=5_000, kind=kind).generate().workload.frame for kind in ("batch", "interactive")
    )
    assert batch["duration_s"].median() > 20 * interactive["duration_s"].median()
    assert interactive["gpus"].max() <= 91  # 2^(8 - 1.5) = 90.5


def test_a_machine_too_small_for_the_sizes_is_refused():
    with pytest.raises(ValueError, match="too small"):
        LublinConfig(processors=8)


def kolmogorov_smirnov(a, b):
    """Largest distance of the two distribution functions."""
    at = np.concatenate([a, b])
    shares = [np.searchsorted(np.sort(x), at, side="right") / len(x) for x in (a, b)]
    return float(np.abs(shares[0] - shares[1]).max())


def test_the_preset_is_like_the_log_made_with_the_reference_program(shared_traces):
    log = read_workload(shared_traces / "swf" / "lublin_256.swf.gz")
    trace = preset_workload("lublin", seed=1)
    ours, theirs = trace.workload.frame, log.frame
    assert len(trace.workload) == len(log) == 10_000
    for q in (0.1, 0.25, 0.5, 0.75, 0.9, 0.99):
        a, b = (math.log(f["duration_s"].quantile(q, "linear")) for f in (ours, theirs))
        assert abs(a - b) < 0.2, q  # within a factor of 1.22; the densities are flat around the quartiles
    shares = [np.bincount(f["gpus"].to_numpy(), minlength=257) / 10_000 for f in (ours, theirs)]
    assert np.abs(shares[0] - shares[1]).sum() / 2 < 0.04
    distances = [
        kolmogorov_smirnov(*(f[name].to_numpy() for f in (ours, theirs))) for name in ("duration_s", "gpus")
    ]
    distances.append(kolmogorov_smirnov(*(np.diff(f["submit_s"].to_numpy()) for f in (ours, theirs))))
    assert max(distances) < 0.025  # two samples of 10,000 from one distribution: below 0.019 in 95 %
    loads = [describe(jobs, trace.cluster)["load"] for jobs in (trace.workload, log)]
    assert loads[0] == pytest.approx(loads[1], rel=0.25)
