from pathlib import Path

import polars as pl
import pytest

from experiments.fidelity.comparison import compare, compare_again, measure, read_log
from gpuyard import InputError, SimulationConfig

HEADER = "JobID|User|Account|Partition|State|Submit|Start|End|Timelimit|NNodes|NodeList|ReqTRES|AllocTRES"


def log_line(job: int, submit: int, start: int, end: int, nodes: str, gpus: int) -> str:
    day = "2026-03-01T00:00:"
    tres = f"billing={gpus},cpu=1,gres/gpu={gpus},node=1"
    times = f"{day}{submit:02}|{day}{start:02}|{day}{end:02}"
    return f"{job}|ada|physics|batch|COMPLETED|{times}|00:01:00|1|{nodes}|{tres}|{tres}"


def table(start_s: list[float], wait_s: list[float], nodes: list[list[int]]) -> pl.DataFrame:
    return pl.DataFrame({"start_s": start_s, "wait_s": wait_s, "nodes": nodes})


REAL = table([0.0, 10.0, 20.0, 30.0], [0.0, 10.0, 10.0, 0.0], [[0], [1], [0, 1], [2]])
OTHER = table([0.0, 13.0, 40.0, 31.0], [0.0, 13.0, 30.0, 1.0], [[0], [0], [0, 1], [2]])


def test_figures_are_those_worked_out_by_hand() -> None:
    found = measure(REAL, OTHER, "fifo", 1.2)
    assert found.close == 3 / 4  # errors 0, 3, 20, 1
    assert found.rank_correlation == pytest.approx(0.8)  # ranks 1 2 4 3: 1 - 6 * 2 / (4 * 15)
    assert (found.real_mean_wait_s, found.simulated_mean_wait_s) == (5.0, 11.0)
    assert found.wait_ratio == pytest.approx(2.2)
    assert found.median_error_s == 2.0
    assert (found.waited, found.close_of_waited) == (2, 0.5)
    assert found.same_nodes == 3 / 4


def test_a_log_in_which_nobody_waited_has_no_ratio_of_waits() -> None:
    at_once = REAL.with_columns(wait_s=pl.lit(0.0))
    found = measure(at_once, at_once, "fifo", 0.1)
    assert found.wait_ratio is None
    assert found.close_of_waited is None
    assert found.close == found.rank_correlation == found.same_nodes == 1.0


def test_a_log_that_a_policy_made_is_reproduced_to_the_second(tmp_path: Path) -> None:
    path = tmp_path / "sacct.txt"
    lines = [log_line(1, 0, 0, 20, "gn1", 8), log_line(2, 1, 1, 9, "gn2", 8), log_line(3, 2, 9, 30, "gn2", 5)]
    path.write_text("\n".join([HEADER, *lines]) + "\n")
    found = compare(read_log(path), "2x8", "fifo", SimulationConfig(estimates="requested"), 1.0)
    assert (found.close, found.wait_ratio, found.same_nodes) == (1.0, 1.0, 1.0)


def test_a_log_with_a_job_that_never_started_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "sacct.txt"
    never = log_line(2, 1, 1, 9, "None assigned", 8).replace("COMPLETED", "PENDING")
    path.write_text("\n".join([HEADER, log_line(1, 0, 0, 20, "gn1", 8), never]) + "\n")
    with pytest.raises(InputError, match="1 of 2 jobs"):
        read_log(path)


def test_a_run_is_compared_with_its_repetition_by_the_numbers_of_jobs(tmp_path: Path) -> None:
    logs = []
    for name, second in (("a", log_line(2, 1, 9, 15, "gn1", 8)), ("b", log_line(2, 2, 14, 20, "gn2", 8))):
        path = tmp_path / f"{name}.txt"
        path.write_text("\n".join([HEADER, log_line(1, 0, 0, 9, "gn1", 8), second]) + "\n")
        logs.append(read_log(path))
    found = compare_again(*logs, 1.0)
    assert (found.jobs, found.close, found.same_nodes) == (2, 0.5, 0.5)
    assert (found.real_mean_wait_s, found.simulated_mean_wait_s) == (4.0, 6.0)
