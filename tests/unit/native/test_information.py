"""What a scheduler knows of run times where nobody says: requests, or predictions."""

import polars as pl
import pytest

import gpuyard as gy
from gpuyard.config import SimulationConfig
from gpuyard.env import SchedulingEnv
from gpuyard.errors import InputError
from gpuyard.native.information import informed, requested_share, why_chosen
from gpuyard.workload import SynthConfig, Workload, make_workload

AUTO = SimulationConfig()


def workload(*estimates: float | None) -> Workload:
    count = len(estimates)
    columns = {
        "submit_s": [float(i) for i in range(count)],
        "duration_s": [10.0] * count,
        "gpus": [1] * count,
    }
    given = pl.Series("estimate_s", estimates, pl.Float64)
    return make_workload(pl.DataFrame(columns).with_columns(given))


@pytest.mark.parametrize(
    ("estimates", "chosen", "reason"),
    [
        ((20.0, 30.0), "requested", "users asked for: 100% of the jobs have one."),
        ((20.0, None), "requested", "users asked for: 50% of the jobs have one."),
        ((20.0, None, None), "history", "from finished jobs, because only 33% have a requested one."),
        ((None, None), "history", "from finished jobs, because no job has a requested run time."),
    ],
)
def test_requests_are_known_from_half_of_the_jobs_on(
    estimates: tuple[float | None, ...], chosen: str, reason: str
) -> None:
    jobs = workload(*estimates)
    assert requested_share(jobs) == pytest.approx(sum(one is not None for one in estimates) / len(estimates))
    assert informed(AUTO, jobs).estimates == chosen
    said = why_chosen(AUTO, jobs)
    assert said.startswith(f"Estimates are {chosen}: policies know ")
    assert said.endswith(reason)
    assert gy.simulate(jobs, "1x1", "sjf+easy").config.estimates == chosen


@pytest.mark.parametrize("asked", ["exact", "noisy", "history", "none"])
def test_what_was_asked_for_stays(asked: str) -> None:
    config = SimulationConfig.model_validate({"estimates": asked})
    assert informed(config, workload(20.0, None)) is config
    said = why_chosen(config, workload(20.0, None))
    assert ("upper bound" in said) == (asked == "exact")
    assert bool(said) == (asked == "exact")


def test_the_choice_gives_the_schedule_of_what_it_chose() -> None:
    jobs = gy.synthesize(SynthConfig(jobs=200, cluster_gpus=16, load=1.1, seed=2, overestimation=3.0))
    by_name = {
        name: gy.simulate(jobs, "2x8", "sjf+easy", SimulationConfig.model_validate({"estimates": name}))
        for name in ("auto", "requested", "exact")
    }
    assert by_name["auto"].schedule.hash() == by_name["requested"].schedule.hash()
    assert by_name["auto"].schedule.hash() != by_name["exact"].schedule.hash()


def test_requests_that_are_not_there_are_refused_where_they_are_asked_for() -> None:
    with pytest.raises(InputError, match="has no estimate_s, so estimates = requested tells nothing"):
        gy.simulate(workload(None, None), "1x1", "sjf+easy", SimulationConfig(estimates="requested"))


def test_what_predictions_cannot_be_combined_with_is_refused_under_auto_too() -> None:
    jobs = workload(None, None, None)
    settings = {
        "workload": jobs,
        "cluster": "1x4",
        "jobs_per_episode": 2,
        "rewards": {"versus_baseline": 1.0},
    }
    with pytest.raises(InputError, match="cannot be combined with estimates history"):
        SchedulingEnv("select-job", **settings)
    assert SchedulingEnv("select-job", **settings, estimates="none").model.config.estimates == "none"
