"""The first screen: who gains, who loses, the price of a gain, and dates where the log has a clock."""

from pathlib import Path

import pytest

from gpuyard.cluster.model import parse_cluster
from gpuyard.report.document import page
from gpuyard.report.figures import Palette, class_charts, time_charts
from gpuyard.report.losers import Shift, extremes, far_losers
from gpuyard.report.model import Report
from gpuyard.report.pages.workload import card_page
from gpuyard.report.schedules.gantt import gantt_data
from gpuyard.report.sources import read_sources
from gpuyard.workload import SynthConfig, Workload, make_workload, synthesize
from gpuyard.workload.auditing.audit import audit
from gpuyard.workload.auditing.demand import demand_series
from support.report_cases import jobs_with_names, simulated

EPOCH_S = 1482356580.0  # 2016-12-21 21:43
MANY = ("fifo+easy", "sjf+greedy", "saf+greedy", "lifo+greedy", "largest+easy")


def busy_jobs() -> Workload:
    jobs = synthesize(SynthConfig(jobs=1500, cluster_gpus=32, load=1.05, seed=3, overestimation=3.0))
    return make_workload(jobs.frame, name="busy", epoch_s=EPOCH_S)


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Report:
    home = tmp_path_factory.mktemp("busy")
    return read_sources([simulated(home / "results", MANY, jobs=busy_jobs(), cluster="4x8")])[0]


def test_the_headline_of_one_run_names_its_price(report: Report) -> None:
    sentence = report.answer.sentence
    assert "lower mean bounded slowdown than fifo+easy" in sentence
    assert "at the price of" in sentence
    assert "maximum waits (" in sentence
    assert "(p99)" in sentence


def test_a_longest_wait_far_above_the_references_is_marked(report: Report) -> None:
    tiles = {tile.name: tile for tile in report.answer.figures}
    assert tiles["max wait"].verdict == "worse"
    assert tiles["mean wait"].verdict == "one run"


def test_the_first_screen_shows_who_gains_and_who_loses(report: Report) -> None:
    rows = extremes(report.classes, report.subject, report.other)
    assert [title for title, _, _ in rows] == ["size in GPUs", "run time", "group", "user"]
    for _, gain, loss in rows:
        assert gain is None or gain.now < gain.before
        assert loss is None or loss.now > loss.before
    text = page(report, [])
    first = text[text.index('id="answer"') : text.index('id="comparison"')]
    assert "Who gains, who loses" in first
    assert "gains most" in first
    assert "loses most" in first


def test_the_class_that_pays_most_is_the_one_whose_waits_rise_most(report: Report) -> None:
    losers = far_losers(report.classes, report.subject, report.other)
    ratios = [one.p99_wait_s / max(one.other_s, 1.0) for one in losers]
    assert ratios == sorted(ratios, reverse=True)
    assert ratios[-1] > 1.5
    assert far_losers(report.classes, report.other, report.other) == []


def test_small_changes_have_no_name() -> None:
    assert not Shift("user", "a", "mean_wait_s", 1000.0, 1040.0).is_told
    assert not Shift("user", "a", "mean_wait_s", 10.0, 60.0).is_told
    assert Shift("user", "a", "mean_wait_s", 0.0, 120.0).ratio == 120.0


def test_times_are_dates_where_the_log_has_a_clock(report: Report, tmp_path: Path) -> None:
    assert report.epoch_s == EPOCH_S
    assert report.facts["clock"] == "dates are those of the log, taken as UTC"
    charts = time_charts(report, Palette.of(report))
    assert {(chart["x"]["label"], chart["x"]["epoch"]) for chart in charts} == {("time (UTC)", EPOCH_S)}
    drawn = gantt_data(report, [report.subject])
    assert drawn is not None
    assert drawn[0]["epoch_s"] == EPOCH_S
    undated = read_sources([simulated(tmp_path / "results", MANY[:2])])[0]
    assert undated.epoch_s is None
    chart = time_charts(undated, Palette.of(undated))[0]
    assert (chart["x"]["label"], chart["x"]["epoch"]) == ("time since the first submit", None)


def test_of_many_policies_over_time_two_show_at_first(report: Report, tmp_path: Path) -> None:
    chart = time_charts(report, Palette.of(report))[0]
    shown = [one["name"] for one in chart["series"] if one["name"] not in chart["hidden"]]
    assert sorted(shown) == sorted([report.label(report.subject), "fifo+easy"])
    few = read_sources([simulated(tmp_path / "results", MANY[:3])])[0]
    assert time_charts(few, Palette.of(few))[0]["hidden"] == []


def test_cards_of_workloads_show_dates_too() -> None:
    dated = demand_series(busy_jobs(), 32)
    assert dated.epoch_s == EPOCH_S
    assert demand_series(jobs_with_names(), 16).epoch_s is None
    text = card_page(audit(busy_jobs(), parse_cluster("4x8")))
    assert '"label":"time (UTC)","unit":"moment"' in text


@pytest.mark.parametrize("by", ["user", "gpus"])
def test_charts_of_classes_begin_with_the_one_that_loses_most(report: Report, by: str) -> None:
    (chart,) = [one for one in class_charts(report, Palette.of(report)) if one["id"] == f"by-{by}"]
    shown = [row["name"] for row in chart["choices"]["mean wait"]["rows"] if row["name"] != "(others)"]
    table = report.classes.filter(by=by)
    wait_s = {
        (policy, name): wait for policy, name, wait in table.select("policy", "class", "mean_wait_s").rows()
    }
    others = {policy for policy, _ in wait_s} - {report.reference}
    today = {name: wait_s[report.reference, name] for name in shown}
    rises = [
        max((wait_s[policy, name] - today[name]) / max(today[name], 60.0) for policy in others)
        for name in shown
    ]
    assert rises == sorted(rises, reverse=True)
    assert rises[0] > rises[-1]
