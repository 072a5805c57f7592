"""What the policy wanted against what the scheduler did, on journals small enough to count by hand."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gpuyard.serve.journal import Journal, Prediction
from gpuyard.serve.journal.shadow import JobTimes, Pairs, ShadowReport, shadow_report
from gpuyard.serve.records import Happened, Planned, Ranked, RoundRecord
from gpuyard.serve.state import ClusterState, Job
from gpuyard.units import json_text

GPUS = {"a": 1, "b": 8, "c": 1, "d": 1}


@pytest.fixture
def journal(tmp_path: Path) -> Iterator[Journal]:
    with Journal.open(tmp_path / "journal") as opened:
        yield opened


def write(
    journal: Journal, number: int, order: str = "", wants: str = "", started: str = "", **values: Any
) -> None:
    """A round every 10 s; jobs are letters, and start 5 s before the round that sees it."""
    at_s = values.pop("at_s", 10.0 * number)
    record = RoundRecord(
        number,
        at_s,
        1e9,
        "shadow",
        "order",
        "sjf",
        decider="policy",
        order=tuple(map(Ranked, order)),
        starts=tuple(Planned(job, ()) for job in wants),
        happened=tuple(Happened(job, "started", at_s - 5.0) for job in started),
    )
    jobs = tuple(Job(job, "waiting", 0.0, gpus=GPUS.get(job, 1)) for job in order)
    journal.write(replace(record, **values), ClusterState("test", at_s, jobs), "{}")


def missing(report: ShadowReport, words: str) -> list[str]:
    return [sentence for sentence in report.missing if words in sentence]


def test_agreement_is_with_the_last_round_before_a_start(journal: Journal) -> None:
    baseline = (Planned("c", ()),)
    write(journal, 1, "abcd", wants="a")
    write(journal, 2, "bcd", wants="b", started="a", baseline=baseline)
    write(journal, 3, "bd", wants="b", started="cx")
    write(journal, 4, "d", wants="d", started="b")
    report = shadow_report(journal)
    assert (report.rounds, report.decided, report.jobs, report.starts) == (4, 4, 5, 4)
    assert (report.compared, report.agreed, report.baseline_agreed) == (3, 2, 1)
    assert report.agreement == 2 / 3
    assert missing(report, "1 starts were of jobs that the round before did not rank")
    assert (report.wanted, report.wanted_soon, report.wanted_never) == (3, 2, 1)
    assert missing(report, "1 jobs that the policy would have started had not started")


def test_times_compare_first_wanted_with_the_real_start(journal: Journal) -> None:
    write(journal, 1, "ab", wants="a")
    write(journal, 2, "ab", wants="a")
    write(journal, 3, "b", started="a")
    write(journal, 4, "", started="b")
    report = shadow_report(journal)
    assert report.times == [JobTimes("a", 10.0, 25.0), JobTimes("b", None, 35.0)]
    assert [one.change_s for one in report.times] == [-15.0, None]


def test_order_counts_pairs_that_waited_together(journal: Journal) -> None:
    write(journal, 1, "abcd")
    write(journal, 2, "abd", started="c")  # before d, but after a and b
    write(journal, 3, "", started="abd")  # all at once: no pairs
    report = shadow_report(journal)
    assert report.order == Pairs(agree=1, disagree=2)
    assert report.order.correlation == pytest.approx(-1 / 3)
    assert report.order_same_size == Pairs(agree=1, disagree=1)  # b is larger
    assert report.order_same_size.correlation == 0.0


def test_a_scheduler_that_follows_the_ranking_has_correlation_one(journal: Journal) -> None:
    write(journal, 1, "abcd", wants="a")
    write(journal, 2, "bcd", wants="b", started="a")
    write(journal, 3, "cd", wants="c", started="b")
    report = shadow_report(journal)
    assert report.order == Pairs(agree=5)
    assert report.order.correlation == 1.0
    assert report.agreement == 1.0


def test_rounds_that_the_policy_did_not_decide_are_counted_and_left_out(journal: Journal) -> None:
    write(journal, 1, "ab", wants="a", decider="fallback", cause="deadline")
    write(journal, 2, "b", wants="b", started="a")
    write(journal, 3, "", started="b", mode="active")
    report = shadow_report(journal)
    assert (report.decided, report.starts, report.compared, report.agreed) == (2, 2, 1, 1)
    assert [one.job for one in report.times if one.wanted_s is not None] == ["b"]
    assert missing(report, "1 rounds were not decided by the policy")
    assert missing(report, "In 1 rounds the agent acted")


def test_wanted_starts_are_made_soon_or_later(journal: Journal) -> None:
    write(journal, 1, "ab", wants="ab")
    for number in range(2, 12):
        write(journal, number, "ab" if number < 11 else "b", wants="b", started="a" if number == 11 else "")
    write(journal, 12, "", started="b")
    report = shadow_report(journal)
    assert (report.wanted, report.wanted_soon, report.wanted_later, report.wanted_never) == (2, 1, 1, 0)


def test_the_first_predictions_are_held_against_real_starts(journal: Journal) -> None:
    write(journal, 1, "abc")
    write(journal, 2, "abc")
    first = [("a", 20.0, 30.0, 40.0), ("b", 20.0, 95.0, 99.0), ("c", 0.0, 0.0, 0.0)]
    journal.write_predictions(1, [Prediction(job, 1, "policy", *times) for job, *times in first])
    journal.write_predictions(2, [Prediction("a", 2, "policy", 25.0, 25.0, 25.0)])
    journal.write_predictions(2, [Prediction("b", 2, "current", None, 15.0, None)])
    write(journal, 3, "c", started="ab")  # at 25 s
    report = shadow_report(journal)
    assert set(report.predictions) == {"policy", "current"}
    policy, current = report.predictions["policy"], report.predictions["current"]
    assert (policy.jobs, policy.median_s, policy.bias_s, policy.inside) == (2, 37.5, 37.5, 1.0)
    assert policy.p90_s == pytest.approx(5 + 0.9 * 65)
    assert (current.jobs, current.median_s, current.bias_s, current.inside) == (1, 10.0, -10.0, None)
    assert not missing(report, "No start times were predicted")


def test_pauses_and_clocks_that_jump_back_are_told(journal: Journal) -> None:
    for number, at_s in enumerate((10.0, 20.0, 30.0, 500.0, 510.0, 100.0, 110.0), 1):
        write(journal, number, "a", at_s=at_s, left=3)
    report = shadow_report(journal)
    assert missing(report, "The agent paused 1 times")
    assert missing(report, "clock went back 1 times")
    assert missing(report, "Up to 3 jobs at a time were left")


def test_only_rounds_since_a_time_count(journal: Journal) -> None:
    write(journal, 1, "ab", wants="a")
    write(journal, 2, "b", started="a")
    write(journal, 3, "", started="b")
    report = shadow_report(journal, since_s=20.0)
    assert (report.rounds, report.first_s, report.last_s, report.starts) == (2, 20.0, 30.0, 1)


def test_an_empty_journal_says_that_there_is_nothing(journal: Journal) -> None:
    report = shadow_report(journal)
    assert (report.rounds, report.agreement, report.order.correlation) == (0, None, None)
    assert missing(report, "no rounds")


def test_the_report_is_ready_for_json(journal: Journal) -> None:
    write(journal, 1, "ab", wants="a")
    write(journal, 2, "b", started="a")
    document = shadow_report(journal).to_json()
    assert document["agreement"] == 1.0
    assert document["order"] == {"agree": 1, "disagree": 0, "correlation": 1.0}
    assert document["times"] == [{"job": "a", "wanted_s": 10.0, "started_s": 15.0, "change_s": -5.0}]
    assert json_text(document)
