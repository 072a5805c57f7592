"""Reports that are decided by another metric than the evaluation was made with."""

import json
import re
from dataclasses import replace
from pathlib import Path

import polars as pl
import pytest

from gpuyard.cli import main
from gpuyard.errors import InputError
from gpuyard.evaluate import Comparison
from gpuyard.report.document import page
from gpuyard.report.sources import read_sources
from support.report_cases import compared, simulated

BY_ANOTHER = "The reference was chosen by mean bounded slowdown, the metric of the evaluation"


@pytest.fixture(scope="module")
def evaluation() -> Comparison:
    """Three policies on 12 windows; say that their reference was chosen and one is the best in hindsight."""
    found = compared()
    policies = tuple(
        replace(entry, role="hindsight") if entry.label == "wspt+easy" else entry for entry in found.policies
    )
    hindsight = found.policy("wspt+easy").name
    return replace(found, policies=policies, chosen_on="validation", hindsight=hindsight)


def test_another_metric_decides_with_its_own_order_and_intervals(evaluation: Comparison) -> None:
    report, _ = read_sources([evaluation], metric="max_wait_s")
    assert report.metric == "max_wait_s"
    assert [one.name for one in report.standings] == evaluation.ranking("max_wait_s")
    assert [one.name for one in report.standings] != evaluation.ranking(), "else this shows nothing"
    for one in report.standings:
        if one.name != evaluation.reference:
            found, change = evaluation.difference(one.name, metric="max_wait_s"), one.changes["max_wait_s"]
            assert (change.ratio, change.low, change.high) == (found.ratio, found.low, found.high)
        values = [value for _, value in report.windows[one.name]]
        assert values == evaluation.values(one.name, "max_wait_s").tolist()
    assert "max wait" in report.answer.sentence


def test_the_page_says_by_what_the_reference_was_chosen(evaluation: Comparison) -> None:
    report, _ = read_sources([evaluation], metric="mean_wait_s")
    assert report.reference == evaluation.reference
    assert BY_ANOTHER in report.answer.sure
    text = page(report, [])
    after = re.findall(r"the best fixed heuristic on windows of another part(.{25})", text)
    assert set(after) == {" by mean bounded slowdown"}
    assert len(after) >= 2, "the answer and the setting name the reference"
    assert "<dt>evaluated by</dt><dd>mean bounded slowdown</dd>" in text
    usual, _ = read_sources([evaluation])
    same, _ = read_sources([evaluation], metric="mean_bounded_slowdown")
    assert page(same, []) == page(usual, [])
    assert BY_ANOTHER not in usual.answer.sure
    assert "evaluated by" not in page(usual, [])


def test_a_reference_that_was_given_was_chosen_by_no_metric(evaluation: Comparison) -> None:
    report, _ = read_sources([replace(evaluation, chosen_on="given")], metric="mean_wait_s")
    assert BY_ANOTHER not in report.answer.sure
    assert report.reference_text == "the given reference"


def test_what_was_best_in_hindsight_by_one_metric_is_not_called_so_by_another(evaluation: Comparison) -> None:
    before, _ = read_sources([evaluation])
    report, _ = read_sources([evaluation], metric="max_wait_s")
    assert "hindsight" in {one.role for one in before.standings}
    assert "hindsight" not in {one.role for one in report.standings}
    assert "In hindsight" not in " ".join(report.answer.words)
    [noted] = [one for one in report.standings if one.note]
    assert (noted.name, noted.note) == (evaluation.hindsight, "best in hindsight by mean bounded slowdown")


def test_where_more_is_better_the_table_falls(evaluation: Comparison) -> None:
    report, _ = read_sources([evaluation], metric="gpu_utilization")
    means = [one.values["gpu_utilization"] or 0.0 for one in report.standings]
    assert not report.lower_is_better
    assert means == sorted(means, reverse=True)
    assert re.findall(r'<th [^>]*aria-sort="(\w+)"', page(report, [])) == ["descending"]


def test_metrics_that_do_not_decide_are_refused_with_those_that_do(evaluation: Comparison) -> None:
    with pytest.raises(InputError, match=r"'p99_wait' is not known.*did you mean 'p99_wait_s'"):
        read_sources([evaluation], metric="p99_wait")
    with pytest.raises(InputError, match=r"'beauty' is not known.*; known: mean_wait_s, .*gpu_utilization"):
        read_sources([evaluation], metric="beauty")
    with pytest.raises(InputError, match="backfilled_jobs: neither more nor less"):
        read_sources([evaluation], metric="backfilled_jobs")
    one_lacks_it = pl.when(pl.col("policy") != evaluation.reference).then(pl.col("mean_wait_s"))
    part = replace(evaluation, windows=evaluation.windows.with_columns(mean_wait_s=one_lacks_it))
    with pytest.raises(InputError, match="'mean_wait_s' is not known for every policy") as refused:
        read_sources([part], metric="mean_wait_s")
    assert "mean_wait_s'" not in str(refused.value).split("did you mean")[1]


def test_a_comparison_by_another_metric_is_not_written_as_an_evaluation(
    evaluation: Comparison, tmp_path: Path
) -> None:
    with pytest.raises(InputError, match="by mean_bounded_slowdown"):
        evaluation.by_metric("mean_wait_s").write(tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_the_command_decides_by_another_metric_of_evaluations_and_simulations(
    evaluation: Comparison, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    evaluation.write(tmp_path / "evaluated")
    out = ["--out", str(tmp_path / "report.html"), "--metric", "max_wait_s"]
    assert main(["report", str(tmp_path / "evaluated"), *out, "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["metric"] == "max_wait_s"
    assert document["best"] == evaluation.ranking("max_wait_s")[0]
    assert BY_ANOTHER in document["sure"]
    assert main(["report", str(simulated(tmp_path / "simulated")), *out, "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["metric"] == "max_wait_s"
    values = [one["value"] for one in document["policies"]]
    assert values == sorted(values)
    assert BY_ANOTHER not in document["sure"], "the reference was not chosen by a metric"
