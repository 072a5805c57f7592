"""Comparisons whose windows begin with what was really running and waiting."""

from pathlib import Path
from typing import Any

import polars as pl
import pytest

from gpuyard.cli import main
from gpuyard.config import SimulationConfig
from gpuyard.errors import InputError
from gpuyard.evaluate import Comparison, compare
from gpuyard.evaluate.storage import read_comparison
from gpuyard.network.policy import LearnedPolicy
from gpuyard.report.pages.evaluation import evaluation_report, merge
from gpuyard.workload import write_workload
from support.evaluation_cases import CLUSTER, like_its_base, recorded_log, some_jobs, written

EXACT = SimulationConfig(estimates="exact")
SMALL = {"windows": 5, "jobs_per_window": 40, "choosing_windows": 3}
FIFO = "fifo+easy/consolidate"


def begun(policies: list[str], **settings: Any) -> Comparison:
    options = {"window_start": "recorded", **SMALL, **settings}
    return compare(policies, recorded_log(), CLUSTER, EXACT, **options)


@pytest.fixture(scope="module")
def found() -> Comparison:
    return begun(["fifo+easy", "sjf+easy"], all_heuristics=True)


def wait_of(table: pl.DataFrame, policy: str) -> list[float]:
    return table.filter(policy=policy)["mean_wait_s"].to_list()


def test_the_policy_that_was_recorded_has_the_figures_of_the_record(found: Comparison) -> None:
    assert found.whole is not None
    metrics = found.whole.metrics
    assert wait_of(metrics, FIFO) == wait_of(metrics, "recorded")
    empty = compare(["fifo+easy"], recorded_log(), CLUSTER, EXACT, **SMALL, window_start="empty")
    record = wait_of(found.windows, "recorded")
    off = [abs(a - b) for a, b in zip(wait_of(found.windows, FIFO), record, strict=True)]
    cold_off = [abs(a - b) for a, b in zip(wait_of(empty.windows, FIFO), record, strict=True)]
    assert sum(off) < 0.1 * sum(cold_off)


def test_jobs_after_windows_arrive_and_jobs_before_do_not_count(found: Comparison) -> None:
    before, after = found.setting.margins
    assert before == 0
    assert after > 0
    assert not found.setting.is_cold
    assert found.jobs is not None
    assert found.jobs.filter(policy=FIFO).group_by("window").len()["len"].to_list() == [40] * 5


def test_results_store_the_start_and_say_it(found: Comparison, tmp_path: Path) -> None:
    found.write(tmp_path / "results")
    again = read_comparison(tmp_path / "results")
    assert again.setting.start == "recorded"
    assert "The cluster begins as the log recorded it: jobs that ran run on" in again.summary()
    assert "begun as recorded" in evaluation_report(again, []).subtitle


def test_comparisons_that_begin_otherwise_are_not_put_on_one_page(found: Comparison) -> None:
    busy = compare(["saf"], recorded_log(), CLUSTER, EXACT, **SMALL, current="recorded")
    with pytest.raises(InputError, match="different starts of windows"):
        merge([found, busy], ["a", "b"])


def test_jobs_without_a_start_are_counted_in_words() -> None:
    log = recorded_log()
    frame = log.frame.with_columns(
        recorded_start_s=pl.when(pl.col("row") == 3).then(None).otherwise("recorded_start_s")
    )
    told = compare(["sjf"], type(log)(frame, log.metadata), CLUSTER, EXACT, window_start="recorded", **SMALL)
    assert "1 job without a recorded start is in no beginning." in told.summary()


def test_the_whole_part_as_one_window_begins_so_too() -> None:
    one = begun(["fifo+easy"], jobs_per_window=0)
    assert wait_of(one.windows, FIFO) == wait_of(one.windows, "recorded")


@pytest.mark.parametrize(
    "policy", ["srtf", "fifo+conservative", "fair-share+easy", "sjf+easy+express:60:0.1"]
)
def test_policies_of_every_kind_begin_so(policy: str) -> None:
    assert len(begun([policy], whole=False).windows.filter(pl.col("policy").str.starts_with(policy))) == 5


def test_a_model_begins_so_and_one_that_needs_a_whole_simulation_is_refused(tmp_path: Path) -> None:
    learned = written(tmp_path, like_its_base())
    base = LearnedPolicy.open(learned).base.name
    both = begun([learned, base], whole=False, transfer=True)
    assert wait_of(both.windows, learned) == wait_of(both.windows, base)
    ticking = written(tmp_path, like_its_base(step_mode="tick"), "ticking")
    with pytest.raises(InputError, match="simulate with it from an empty cluster"):
        begun([ticking], whole=False, transfer=True)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"cold": True, "window_start": "recorded"}, "`cold` begins windows with an empty cluster"),
        ({"draws": True, "window_start": "recorded"}, "draws of a generator have no record"),
        ({"window_start": "full"}, "window_start"),
    ],
)
def test_contradictions_are_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        compare(["sjf"], recorded_log(), CLUSTER, EXACT, **SMALL, **settings)


def test_cold_is_short_for_an_empty_start() -> None:
    found = [
        compare(["sjf"], some_jobs(), CLUSTER, EXACT, whole=False, **SMALL, **how)
        for how in ({"cold": True}, {"window_start": "empty"})
    ]
    assert found[0].windows.equals(found[1].windows)
    assert {one.setting.start for one in found} == {"empty"}


def test_the_command_line_spells_it_start(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name, jobs in (("log", recorded_log()), ("plain", some_jobs())):
        write_workload(jobs, tmp_path / f"{name}.parquet")
    arguments = ["--cluster", CLUSTER, "--windows", "3", "--jobs-per-window", "40", "--start", "recorded"]
    assert main(["evaluate", "sjf+easy", "--on", str(tmp_path / "log.parquet"), *arguments]) == 0
    assert "The cluster begins as the log recorded it" in " ".join(capsys.readouterr().out.split())
    assert main(["evaluate", "sjf+easy", "--on", str(tmp_path / "plain.parquet"), *arguments]) == 2
    refusal = " ".join(capsys.readouterr().err.split())
    assert "--start recorded: workload" in refusal
    assert "or use --start busy" in refusal
