import polars as pl
import pytest

from experiments.fidelity.forecast import forecast
from gpuyard import InputError, SimulationConfig, Workload, make_workload

CONFIG = SimulationConfig(estimates="requested")


def recorded_jobs(starts: list[float], nodes: list[str]) -> Workload:
    """Jobs of 8 GPUs and 10 s that came at 0, 1, 2, ..., with real starts."""
    count = len(starts)
    return make_workload(
        pl.DataFrame(
            {
                "submit_s": [float(number) for number in range(count)],
                "duration_s": [10.0] * count,
                "gpus": [8] * count,
                "estimate_s": [60.0] * count,
                "recorded_start_s": starts,
                "recorded_nodes": nodes,
                "nodes": [1] * count,
                "source_id": [str(number + 1) for number in range(count)],
            }
        )
    )


def test_what_the_policy_itself_did_is_forecast_in_full() -> None:
    jobs = recorded_jobs([0.0, 1.0, 10.0, 11.0, 20.0], ["gn1", "gn2", "gn1", "gn2", "gn1"])
    found = forecast(jobs, "2x8", "fifo", CONFIG, 1.0, 10)
    assert (found.starts, found.close) == (3, 1.0)
    assert (found.waiting, found.close_of_waiting) == (3, 1.0)


def test_a_job_that_really_left_out_others_is_missed_and_its_successors_are_not() -> None:
    """The fourth job came last and went third; given that, the next forecast is right again."""
    jobs = recorded_jobs([0.0, 20.0, 30.0, 10.0], ["gn1"] * 4)
    found = forecast(jobs, "1x8", "fifo", CONFIG, 1.0, 10)
    assert (found.starts, found.close) == (3, 2 / 3)


def test_a_log_that_is_shorter_than_the_forecast_is_refused() -> None:
    with pytest.raises(InputError, match="ends before 60 s"):
        forecast(recorded_jobs([0.0, 10.0], ["gn1", "gn1"]), "1x8", "fifo", CONFIG, 1.0, 60)
