"""Workloads like a trace: gang sizes, durations, the shape of the week, users and estimates come back."""

import numpy as np
import polars as pl
import pytest

from gpuyard.errors import InputError
from gpuyard.workload import SynthConfig, make_workload, read_workload, synthesize
from gpuyard.workload.generators import FittedTrace, fit_trace, read_fitted, remake, workload_like
from gpuyard.workload.generators.fitted import PROBABILITIES, from_quantiles, quantiles_of
from gpuyard.workload.generators.fitting import fit_arrivals

MONDAY = 4 * 86_400.0
HOUR = 3600.0


def total_variation(a, b):
    return float(np.abs(a / a.sum() - b / b.sum()).sum() / 2)


def counts(workload, every_s, modulus):
    clock = workload.frame["submit_s"].to_numpy() + workload.metadata.epoch_s - MONDAY
    return np.bincount((clock // every_s % modulus).astype(int), minlength=modulus).astype(float)


def size_counts(workload, most):
    return np.bincount(workload.frame["gpus"].to_numpy(), minlength=most + 1).astype(float)


def assert_alike(trace, drawn):
    """The distances that docs/guide/generators.md states."""
    most = max(trace.frame["gpus"].max(), drawn.frame["gpus"].max())
    assert total_variation(size_counts(trace, most), size_counts(drawn, most)) <= 0.02
    for q in (0.1, 0.25, 0.5, 0.75, 0.9, 0.95, 0.99):
        a, b = (np.log(f["duration_s"].quantile(q, "linear")) for f in (trace.frame, drawn.frame))
        assert abs(b / a - 1) <= 0.05, q
    for every_s, modulus in ((HOUR, 24), (24 * HOUR, 7)):
        shapes = [counts(jobs, every_s, modulus) for jobs in (trace, drawn)]
        assert total_variation(*shapes) <= 0.05
        assert np.corrcoef(*shapes)[0, 1] >= 0.95


def dispersion(workload):
    hourly = np.bincount((workload.frame["submit_s"].to_numpy() // HOUR).astype(int))
    return hourly.var() / hourly.mean()


@pytest.fixture(scope="module")
def office():
    config = SynthConfig(
        name="office",
        seed=5,
        jobs=30_000,
        load=0.3,
        arrivals="diurnal",
        users=40,
        user_habits=0.5,
        duration_with_gpus=0.5,
        overestimation=3.0,
        underestimated_share=0.1,
        whole_seconds=True,
        priority_mix=((1, 3), (5, 1)),
    )
    return synthesize(config)


@pytest.fixture(scope="module")
def fitted(office):
    return fit_trace(office)


def test_a_generated_trace_comes_back(office, fitted):
    assert_alike(office, workload_like(fitted, seed=9))


@pytest.mark.parametrize(
    "file",
    ["philly/philly_pollux.csv.gz", "helios/venus_gpu_jobs_clamped48h.csv.gz", "swf/RICC-2010-2.swf.gz"],
)
def test_a_real_trace_comes_back(shared_traces, file):
    trace = read_workload(shared_traces / file)
    drawn = workload_like(trace, seed=3)
    assert_alike(trace, drawn)
    assert dispersion(drawn) == pytest.approx(dispersion(trace), rel=0.7)
    assert dispersion(drawn) > 20  # a Poisson process has about 1
    work = [float((f["gpus"] * f["duration_s"]).sum()) for f in (drawn.frame, trace.frame)]
    assert work[0] == pytest.approx(work[1], rel=0.15)
    assert drawn.frame["submit_s"][-1] == pytest.approx(trace.frame["submit_s"][-1], rel=0.02)


def test_durations_come_back_within_each_gang_size(office, fitted):
    drawn = workload_like(fitted, seed=2)
    for size in (1, 2, 4, 8):
        a, b = (f.filter(pl.col("gpus") == size)["duration_s"].median() for f in (office.frame, drawn.frame))
        assert b == pytest.approx(a, rel=0.1)


def test_users_groups_priorities_and_estimates_come_back(office, fitted):
    drawn = workload_like(fitted, seed=2).frame
    for name in ("user", "group"):
        a, b = (f[name].value_counts(sort=True)["count"].to_numpy()[:4] for f in (office.frame, drawn))
        assert b / len(drawn) == pytest.approx(a / len(office), abs=0.01)
    assert set(drawn["group"]) == set(office.frame["group"])
    assert (drawn["priority"] == 5).mean() == pytest.approx(0.25, abs=0.01)
    ratios = [f["estimate_s"] / f["duration_s"] for f in (office.frame, drawn)]
    assert [(ratio < 1).mean() for ratio in ratios] == pytest.approx([0.1, 0.1], abs=0.01)
    assert ratios[1].median() == pytest.approx(ratios[0].median(), rel=0.03)


def test_statuses_and_missing_estimates_come_back():
    jobs = 4_000
    frame = pl.DataFrame(
        {
            "submit_s": np.arange(jobs) * 60.5,
            "duration_s": np.arange(1, jobs + 1) * 1.0,
            "gpus": [1, 2] * (jobs // 2),
            "status": ["completed", "failed", "completed", "cancelled"] * (jobs // 4),
            "estimate_s": [None, 7200.0, 7200.0, 7200.0] * (jobs // 4),
        }
    )
    drawn = workload_like(make_workload(frame), seed=1).frame
    assert (drawn["status"] == "completed").mean() == pytest.approx(0.5, abs=0.03)
    assert (drawn["status"] == "failed").mean() == pytest.approx(0.25, abs=0.03)
    assert drawn["estimate_s"].null_count() / jobs == pytest.approx(0.25, abs=0.03)


def test_fractions_of_gpus_cpu_only_jobs_and_their_memory_come_back():
    jobs = 900
    frame = pl.DataFrame(
        {
            "submit_s": np.arange(jobs) * 60.0,
            "duration_s": [10.0, 100.0, 1000.0] * 300,
            "gpus": [0, 1, 1] * 300,
            "gpu_milli": [1000, 500, 1000] * 300,
            "cpus": [16, 4, 8] * 300,
            "memory_mib": [1024, 2048, 4096] * 300,
        }
    )
    drawn = workload_like(make_workload(frame), seed=1).frame
    seen = drawn.select("gpus", "gpu_milli", "cpus", "memory_mib", "duration_s").unique()
    assert set(seen.iter_rows()) == {
        (0, 1000, 16, 1024, 10.0),
        (1, 500, 4, 2048, 100.0),
        (1, 1000, 8, 4096, 1000.0),
    }


def test_habits_come_back(office, fitted):
    assert fitted.duration_habits == pytest.approx(0.5, abs=0.25)
    drawn = workload_like(fitted, seed=4)
    assert fit_trace(drawn).duration_habits == pytest.approx(fitted.duration_habits, abs=0.15)
    plain = synthesize(SynthConfig(jobs=5_000, users=40))
    assert fit_trace(plain).duration_habits < 0.02


def test_bursts_come_back_in_the_swings_of_the_rate():
    calm = synthesize(SynthConfig(jobs=20_000, load=0.2))
    wild = synthesize(SynthConfig(jobs=20_000, load=0.2, arrivals="markov:rates=1/20,holding_s=36000/7200"))
    assert fit_trace(calm).arrivals.swing_sigma < 0.15
    fitted = fit_trace(wild)
    assert fitted.arrivals.swing_sigma > 0.5
    assert fitted.arrivals.swing_memory > 0.3
    assert dispersion(workload_like(fitted, seed=1)) > 5 * dispersion(workload_like(calm, seed=1))


def test_any_length_and_rate_can_be_drawn(office, fitted):
    short = workload_like(fitted, jobs=500)
    fast = workload_like(fitted, jobs=500, rate=4.0)
    span = office.frame["submit_s"][-1]
    assert len(short) == 500
    assert short.frame["submit_s"][-1] == pytest.approx(span * 500 / 30_000, rel=0.3)
    assert fast.frame["submit_s"][-1] == pytest.approx(span * 500 / 30_000 / 4, rel=0.3)
    assert len(workload_like(fitted, jobs=1)) == 1


def test_the_same_seed_gives_the_same_jobs_and_another_seed_others(fitted):
    first, again, other = (workload_like(fitted, jobs=300, seed=seed) for seed in (1, 1, 2))
    assert first.frame.equals(again.frame)
    assert not first.frame["duration_s"].equals(other.frame["duration_s"])


def test_a_fitted_trace_is_small_and_survives_json(fitted, tmp_path):
    path = tmp_path / "office.json"
    path.write_text(fitted.model_dump_json())
    assert path.stat().st_size < 100_000
    assert read_fitted(path) == fitted
    assert isinstance(fitted, FittedTrace)


def test_a_file_that_is_no_fitted_trace_is_refused(tmp_path):
    (tmp_path / "x.json").write_text('{"name": "x"}')
    with pytest.raises(InputError, match=r"x\.json: jobs"):
        read_fitted(tmp_path / "x.json")
    with pytest.raises(InputError, match="absent"):
        read_fitted(tmp_path / "absent.json")


def test_the_history_holds_all_that_is_needed(fitted):
    drawn = workload_like(fitted, jobs=200, seed=6)
    assert remake(drawn).workload.frame.equals(drawn.frame)


def test_jobs_that_all_arrive_at_once_have_no_rate():
    with pytest.raises(InputError, match="at once"):
        fit_trace(synthesize(SynthConfig(jobs=10, arrivals="all-at-once")))


def test_rates_by_hour_are_jobs_over_time_and_not_just_jobs():
    # 36 hours from Monday 00:00, a job every 36 s: hours 0 to 11 are seen twice, at the same rate.
    fitted = fit_arrivals(np.arange(3600) * 36.0, 0.0)
    assert fitted.hours == pytest.approx([1.0] * 24, abs=0.02)
    assert fitted.jobs_per_h == pytest.approx(100, rel=0.01)


def test_quantiles_lead_back_to_the_values():
    values = np.arange(1001.0)
    quantiles = quantiles_of(values)
    assert quantiles == pytest.approx([1000 * p for p in PROBABILITIES])
    assert from_quantiles(np.array([0.0, 0.5, 0.999]), quantiles) == pytest.approx([0, 500, 999])
    assert list(PROBABILITIES) == sorted(set(PROBABILITIES))
