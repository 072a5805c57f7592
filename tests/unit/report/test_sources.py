"""Which results make a report, and which are refused, and why."""

import json
import re
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from gpuyard.cli import main
from gpuyard.config import SimulationConfig
from gpuyard.errors import InputError
from gpuyard.report import write_report
from gpuyard.report.document import page
from gpuyard.report.sources import read_sources
from support.evaluation_cases import comparison_of
from support.paths import model_path
from support.report_cases import compared, jobs_with_names, simulated
from support.sample_runs import write_run


@pytest.fixture(scope="module")
def simulation(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return simulated(tmp_path_factory.mktemp("simulation"))


@pytest.fixture(scope="module")
def evaluation(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("evaluation") / "of"
    compared().write(directory)
    return directory


@pytest.fixture
def copied(simulation: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(simulation, tmp_path / "copied"))


def refused(*sources: Path, match: str) -> None:
    with pytest.raises(InputError, match=match):
        read_sources(list(sources))


def test_the_best_policy_is_that_of_the_lowest_mean_bounded_slowdown(simulation: Path) -> None:
    report, _ = read_sources([simulation])
    policies = json.loads((simulation / "results.json").read_text())["policies"]
    values = {one["name"]: one["metrics"]["mean_bounded_slowdown"] for one in policies}
    assert report.best == min(values, key=lambda name: values[name])
    assert [one.name for one in report.standings] == sorted(values, key=lambda name: values[name])
    assert "One run on one workload has no interval" in report.answer.sure
    assert not report.has_intervals


def test_what_is_to_be_known_of_a_model_on_another_cluster_stands_in_the_report(tmp_path: Path) -> None:
    out, model = tmp_path / "out", model_path("philly-order")
    jobs = ["simulate", "demo", "--cluster", "16x8", "--policy", model, "--policy", "fifo+easy"]
    assert main([*jobs, "--out", str(out)]) == 0
    report, _ = read_sources([out])
    notes = {one.name: one.note for one in report.standings}
    assert "20x8" in notes[model]
    assert [note for name, note in notes.items() if name != model] == [""]


def test_a_comparison_brings_its_intervals_and_verdicts(evaluation: Path) -> None:
    from gpuyard.evaluate import Comparison

    comparison = Comparison.read(evaluation)
    report, _ = read_sources([evaluation])
    for one in report.standings:
        if one.name == comparison.reference:
            assert one.changes[report.metric].verdict == "reference"
            continue
        found, change = comparison.difference(one.name), one.changes[report.metric]
        assert (change.ratio, change.low, change.high) == (found.ratio, found.low, found.high)
        assert change.verdict == found.verdict
    assert [one.name for one in report.standings] == comparison.ranking()
    assert report.losses == sorted(report.losses, key=lambda loss: -loss.difference.ratio)


def test_a_tie_is_called_a_tie() -> None:
    base = np.linspace(2, 4, 40)
    noise = np.exp(0.02 * np.random.default_rng(1).normal(size=(2, 40)))
    report, _ = read_sources([comparison_of({"base": base.tolist(), "same": (base * noise[0]).tolist()})])
    assert "tied" in report.answer.sentence
    good = {"good": 0.6 * base * noise[0], "alike": 0.6 * base * noise[1]}
    made_up = comparison_of({"base": base.tolist()} | {name: v.tolist() for name, v in good.items()})
    report, _ = read_sources([made_up])
    best, tied = (one.label for one in report.standings[:2])
    assert report.answer.sentence.startswith(f"{best} is among the best: ")
    assert f"Statistically tied with the best: {tied}." in report.answer.sure


def test_a_single_window_with_the_same_values_has_no_best() -> None:
    report, _ = read_sources([comparison_of({"base": [2.0], "same": [2.0]})])
    assert "are equally good" in report.answer.sentence
    assert any("did the same" in line for line in report.answer.words)


def test_a_policy_that_is_behind_in_nearly_all_windows_is_not_named_among_the_best() -> None:
    base = np.full(40, 4.0)
    wild = np.where(np.arange(40) == 30, 0.45, 2.1)
    slow = comparison_of({"base": base.tolist(), "good": [2.0] * 40, "wild": wild.tolist()})
    assert slow.difference("wild", "good").verdict == "tie", "it is told apart, so this shows nothing"
    report, _ = read_sources([slow])
    assert report.answer.sentence.startswith("good is best: 50.0 % lower")
    assert "wild" not in report.answer.sure
    assert not any("a tie with the best" in line for line in report.answer.words)


def test_the_answer_is_about_what_was_asked_for_and_hindsight_comes_second() -> None:
    base = np.linspace(2, 4, 40)
    values = {"base": base, "asked": 0.8 * base, "poor": 1.5 * base, "lucky": 0.6 * base}
    found = comparison_of({name: column.tolist() for name, column in values.items()})
    others = tuple(replace(one, role="hindsight") if one.name == "lucky" else one for one in found.policies)
    found = replace(found, policies=others, hindsight="lucky")
    report, _ = read_sources([found])
    assert report.subject == "asked"
    assert report.best == "lucky"
    assert report.answer.sentence.startswith("asked is better: 20.0 % lower")
    assert "lucky, picked in hindsight on these very windows, is better still: −25.0 %" in report.answer.sure
    assert {one.name: one.role for one in report.standings} == {
        **{"base": "reference", "asked": "given", "poor": "given", "lucky": "hindsight"}
    }


def test_a_policy_that_was_asked_for_and_is_worse_is_said_to_be_worse() -> None:
    base = np.linspace(2, 4, 40)
    report, _ = read_sources([comparison_of({"base": base.tolist(), "poor": (4 * base).tolist()})])
    assert report.answer.sentence == (
        "poor is worse: 4.0 times the mean bounded slowdown of base, the given reference."
    )


def test_a_gain_names_its_price() -> None:
    base = np.linspace(2, 4, 40)
    found = comparison_of({"base": base.tolist(), "good": (0.5 * base).tolist()})
    assert "price" not in read_sources([found])[0].answer.sentence
    dearer = pl.when(pl.col("policy") == "good").then(170.0).otherwise(100.0)
    longest = pl.when(pl.col("policy") == "good").then(350.0).otherwise(100.0)
    windows = found.windows.with_columns(dearer.alias("p99_wait_s"), longest.alias("max_wait_s"))
    report, _ = read_sources([replace(found, windows=windows)])
    assert report.answer.sentence.endswith(
        ", at the price of 70 % longer 99th-percentile waits and 3.5 times as long maximum waits."
    )
    tile = next(one for one in report.answer.figures if one.name == "p99 wait")
    assert tile.verdict == "worse"
    assert '<dd class="change worse">+70.0&nbsp;%' in page(report, [])


def test_without_a_policy_that_was_asked_for_the_answer_is_about_the_best() -> None:
    base = np.linspace(2, 4, 40)
    found = comparison_of({"base": base.tolist(), "good": (0.5 * base).tolist()})
    found = replace(found, policies=tuple(replace(one, role="rival") for one in found.policies))
    report, _ = read_sources([found])
    assert report.answer.sentence.startswith("good is best")


def test_few_windows_are_not_said_to_overlap() -> None:
    few = comparison_of({"base": [2.0, 3.0, 2.5], "good": [1.0, 1.1, 1.2]}, disjoint=3.0)
    report, _ = read_sources([few])
    assert "so few windows hardly tell" in report.answer.sure


def test_weak_intervals_leave_the_answer_unclear_and_colour_nothing() -> None:
    values = {"base": [2.0, 3.0, 2.5, 2.6], "good": [1.0, 1.1, 1.2, 1.1]}
    sure, weak = (read_sources([comparison_of(values, disjoint=count)])[0] for count in (9.0, 3.0))
    assert "Beyond chance" in sure.answer.sure
    assert 'class="verdict better"' in page(sure, [])
    assert weak.answer.sentence.startswith("It is unclear whether good is better: ")
    assert "Beyond chance" not in weak.answer.sure
    assert "The intervals are weak" in weak.answer.sure
    text = page(weak, [])
    assert "> unclear</span>" in text
    assert "better" not in "".join(re.findall(r'<span class="verdict.*?</td>', text))
    assert not re.search(r'class="[^"]*\b(better|worse)\b', text)
    assert '"verdict":"weak"' in text


def test_charts_of_one_draw_of_noise_say_so() -> None:
    one = compared()
    several = replace(one, setting=replace(one.setting, noise_draws=5))
    told = "Of the first of 5 draws of noise"
    assert told not in page(read_sources([one])[0], [])
    (data,) = re.findall(r'id="data">(.*?)</script>', page(read_sources([several])[0], []))
    charts = json.loads(data)["charts"]
    assert {name for name, chart in charts.items() if told in chart.get("note", "")} == {
        *("cdf-wait", "cdf-jct", "cdf-bounded-slowdown", "utilisation", "queue")
    }
    gantt = page(read_sources([several])[0], []).split('id="gantt"')[1]
    assert told in gantt.split("</p>")[0]


def test_a_single_window_claims_no_interval() -> None:
    report, _ = read_sources([compared(jobs_per_window=None)])
    assert not report.has_intervals
    assert "Beyond chance" not in report.answer.sure


def test_policies_of_several_directories_are_shown_together(simulation: Path, tmp_path: Path) -> None:
    more = simulated(tmp_path / "more", ("fifo", "saf"))
    report, _ = read_sources([simulation, more])
    assert len(report.standings) == 4
    assert [one.role for one in report.standings].count("reference") == 1


def test_the_reference_of_a_simulation_is_the_policy_that_was_named_first(simulation: Path) -> None:
    report, _ = read_sources([simulation])
    assert report.reference == "fifo+strict/consolidate"
    assert report.subject == report.best
    assert report.answer.sentence.endswith("than fifo+strict, the policy that was named first.")


def test_a_reference_that_nobody_named_is_called_an_assumption(tmp_path: Path) -> None:
    made = simulated(tmp_path / "results", ("fifo", "lifo", "sjf+easy"), current="auto")
    report, _ = read_sources([made])
    assert (report.reference, report.subject) == ("fifo+easy/consolidate", "sjf+easy/consolidate")
    assert report.answer.sentence.endswith("than fifo+easy, taken for what runs today.")
    said = read_sources([made], current="lifo")[0]
    assert said.answer.sentence.endswith("than lifo+strict, the given reference.")


def test_a_first_policy_that_is_the_best_is_compared_with_the_next(tmp_path: Path) -> None:
    report, _ = read_sources([simulated(tmp_path / "results", ("wspt+easy", "fifo", "lifo"))])
    assert report.subject == report.reference == "wspt+easy/consolidate"
    assert report.answer.sentence.startswith("wspt+easy is best: ")
    assert ", the next" in report.answer.sentence


def test_a_policy_alone_is_shown_with_its_figures(tmp_path: Path) -> None:
    report, _ = read_sources([simulated(tmp_path / "results", ("sjf+easy",))])
    assert "nothing to compare it with" in report.answer.sentence
    names = [tile.name for tile in report.answer.figures]
    assert names == ["mean bounded slowdown", "mean JCT", "mean wait", "p99 wait", "max wait"]
    assert report.schedules.keys() == {"sjf+easy/consolidate"}


def test_a_simulation_is_decided_by_another_metric_on_request(simulation: Path) -> None:
    report, _ = read_sources([simulation], metric="p99_wait_s")
    values = [one.values["p99_wait_s"] or 0.0 for one in report.standings]
    assert values == sorted(values)
    assert report.metric == "p99_wait_s"


def test_comparisons_over_the_same_windows_are_shown_together() -> None:
    report, _ = read_sources([compared(), compared(("saf+easy",))])
    names = [one.name for one in report.standings]
    assert "saf+easy/consolidate" in names
    assert len(names) == len(set(names)) == 5


def test_a_policy_that_one_of_the_comparisons_asked_for_counts_as_asked_for() -> None:
    first = compared()
    beside = tuple(replace(one, role="rival") if one.label == "sjf+easy" else one for one in first.policies)
    alone, _ = read_sources([replace(first, policies=beside)])
    both, _ = read_sources([replace(first, policies=beside), first])
    roles = [next(one.role for one in of.standings if one.label == "sjf+easy") for of in (alone, both)]
    assert roles == ["rival", "given"]


def test_a_policy_without_a_row_of_its_own_in_the_first_comparison_is_shown_with_that_of_the_second() -> None:
    first = compared()
    family = replace(first.policy("wspt+easy"), role="family")
    others = tuple(entry for entry in first.policies if entry.name != family.name)
    first = replace(first, policies=(*others, family))
    report, _ = read_sources([first, compared()])
    assert [one.name for one in report.standings].count(family.name) == 1
    assert len(report.windows[family.name]) == 12


def test_curves_of_training_runs_are_shown_beside_results(simulation: Path, tmp_path: Path) -> None:
    run = write_run(tmp_path / "ppo-1")
    _, runs = read_sources([simulation, run])
    assert [one.directory for one in runs] == [run]


def test_a_directory_without_results_is_refused(tmp_path: Path) -> None:
    refused(tmp_path, match=r"holds no results \(no results.json\)")
    refused(tmp_path / "none", match="there is no such directory")


def test_a_training_run_without_results_is_refused(tmp_path: Path) -> None:
    refused(write_run(tmp_path / "ppo-1"), match="is a training run without results")


def test_different_jobs_are_refused(simulation: Path, tmp_path: Path) -> None:
    other = simulated(tmp_path / "other", jobs=jobs_with_names(seed=1))
    refused(simulation, other, match="over different workloads")


def test_different_clusters_are_refused(simulation: Path, tmp_path: Path) -> None:
    other = simulated(tmp_path / "other", cluster="8x4:v100")
    refused(simulation, other, match="over different clusters")


def test_different_information_is_refused(simulation: Path, tmp_path: Path) -> None:
    other = simulated(tmp_path / "other", config=SimulationConfig(estimates="none"))
    refused(simulation, other, match=r"different information \(estimates is 'exact' in one and 'none'")


def test_comparisons_over_different_windows_or_workloads_are_refused() -> None:
    with pytest.raises(InputError, match="over different windows"):
        read_sources([compared(), compared(windows=6)])
    with pytest.raises(InputError, match="over different workloads"):
        read_sources([compared(), compared(count=1100)])


def test_an_evaluation_and_a_simulation_are_not_mixed(simulation: Path, evaluation: Path) -> None:
    refused(evaluation, simulation, match="cannot be compared with each other")


def test_results_of_older_versions_are_refused_with_the_command_that_makes_them_again(
    copied: Path, evaluation: Path, tmp_path: Path
) -> None:
    (copied / "results.json").write_text(json.dumps({"workload": "jobs.csv", "results": []}))
    refused(copied, match=r"a simulation of an older gpuyard; gpuyard simulate --out .* gpuyard 0\.1\.0")
    old = Path(shutil.copytree(evaluation, tmp_path / "old"))
    (old / "results.json").rename(old / "evaluation.json")
    refused(old, match=r"an evaluation \(evaluation.json\) of an older gpuyard; gpuyard evaluate --out")


def test_results_of_another_format_are_refused(evaluation: Path, tmp_path: Path) -> None:
    copy = Path(shutil.copytree(evaluation, tmp_path / "copy"))
    document = json.loads((copy / "results.json").read_text())
    (copy / "results.json").write_text(json.dumps({**document, "format": 99}))
    refused(copy, match="format 99")


def test_a_schedule_of_another_version_is_refused(copied: Path) -> None:
    path = next(copied.glob("schedules/*.parquet"))
    pl.read_parquet(path).drop("node_gpus").write_parquet(path)
    refused(copied, match=r"another version of gpuyard, it lacks node_gpus")


def test_a_schedule_that_does_not_belong_to_its_metrics_is_refused(copied: Path) -> None:
    path = next(copied.glob("schedules/*.parquet"))
    pl.read_parquet(path).head(10).write_parquet(path)
    refused(copied, match="has 10 jobs, but results.json is about 300")


def test_unreadable_files_are_refused(copied: Path) -> None:
    next(copied.glob("schedules/*.parquet")).write_bytes(b"no parquet")
    refused(copied, match=r"schedules/.\.parquet: cannot be read")
    (copied / "results.json").write_text("{")
    refused(copied, match="is not valid JSON")
    (copied / "results.json").write_text("[]")
    refused(copied, match="has format None of results")


def test_a_missing_schedule_is_refused(copied: Path) -> None:
    next(copied.glob("schedules/*.parquet")).unlink()
    refused(copied, match=r"schedules/.\.parquet: cannot be read")


def test_a_refused_report_leaves_the_old_page_as_it_was(copied: Path, tmp_path: Path) -> None:
    page = tmp_path / "report.html"
    page.write_text("old")
    next(copied.glob("schedules/*.parquet")).write_bytes(b"no parquet")
    with pytest.raises(InputError):
        write_report(page, [copied])
    assert page.read_text() == "old"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["copied", "report.html"]


def test_the_command_says_what_is_wrong_and_exits_with_2(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["report", str(tmp_path), "--out", str(tmp_path / "report.html")]) == 2
    assert "holds no results" in capsys.readouterr().err
    assert main(["report", str(tmp_path), "--out", str(tmp_path / "report.txt")]) == 2
    assert main(["report", str(tmp_path), str(tmp_path), "--out", str(tmp_path / "report.html")]) == 2
    assert "is given twice" in capsys.readouterr().err


def test_the_command_writes_the_page_and_answers_as_json(
    simulation: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    page, trace = tmp_path / "report.html", tmp_path / "trace.json"
    arguments = ["report", str(simulation), "--out", str(page), "--perfetto", str(trace)]
    assert main([*arguments, "--policy", "fifo", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["perfetto_policy"] == "fifo+strict/consolidate"
    assert document["best"] == document["policies"][0]["policy"]
    assert page.read_text().startswith("<!DOCTYPE html>")
    assert main([*arguments, "--policy", "lifo"]) == 2
    assert "there is no schedule of it" in capsys.readouterr().err


def test_the_page_is_opened_when_asked_for(
    simulation: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[str] = []
    monkeypatch.setattr("webbrowser.open", opened.append)
    assert main(["report", str(simulation), "--out", str(tmp_path / "report.html"), "--open"]) == 0
    assert opened == [(tmp_path / "report.html").as_uri()]


def test_damaged_results_are_refused(copied: Path) -> None:
    path = copied / "results.json"
    document = json.loads(path.read_text())
    path.write_text(json.dumps({**document, "setting": {**document["setting"], "cluster": {"nodes": []}}}))
    refused(copied, match="no valid cluster")
    path.write_text(json.dumps({**document, "setting": {**document["setting"], "windows": "many"}}))
    refused(copied, match="is damaged")
