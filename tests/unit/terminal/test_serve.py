"""A live scheduler on a terminal of 100 columns."""

import io
from typing import Any

import pytest
from rich.console import Console

from gpuyard.serve.journal.replay import Difference, ReplayReport, Shift
from gpuyard.serve.journal.shadow import JobTimes, Pairs, PredictionError, ShadowReport
from gpuyard.terminal.console import output
from gpuyard.terminal.serve import (
    names,
    show_explanation,
    show_order,
    show_replay,
    show_shadow,
    show_status,
    watch_status,
)

STATUS: dict[str, Any] = {
    "mode": "shadow",
    "control": "order",
    "policy": "model:bursty-order",
    "model": "0123456789abcdef",
    "source": "slurm 22.05.8",
    "decider": "fallback",
    "cause": "deadline",
    "words": "the policy took 81 ms of 50 ms",
    "round": 12_345,
    "age_s": 0.4,
    "interval_s": 1.0,
    "pending": 1_002,
    "left": 7,
    "running": 120,
    "held": 3,
    "oldest_wait_s": 7_260.0,
    "gpus": 128,
    "gpus_in_use": 96,
    "agreement": 0.875,
    "baseline_agreement": 0.5,
    "fallbacks": 4,
    "would_start": 2,
    "refused": 1,
    "alarms": ["slurmctld has not answered for 12 s"],
    "timings_s": {"list": {"p50": 0.031, "p99": 0.1}, "decide": {"p50": 0.0021, "p99": 0.0049}},
}
REPLAY = ReplayReport(
    policy="sjf+easy",
    rounds=200,
    skipped=3,
    same=188,
    failed=1,
    differing=12,
    differences=[
        Difference(5, 1_790_000_005.25, "policy", True, ("11", "12"), ("13",)),
        Difference(6, 1_790_000_006.25, "fallback", False, (), (), ("14",)),
        Difference(7, 1_790_000_007.25, "policy", error="the score of job 5 is not a number"),
    ]
    * 4,
    shifts=[Shift("11", 10.0, 70.0), Shift("12", 80.0, 50.0), Shift("13", None, 5.0), Shift("14", 5.0, None)],
    notes=["The states are those that really were."],
)
EXPLANATION: dict[str, Any] = {
    "job": "4711",
    "sentence": "it asks for 8 GPUs, and 5 are free.",
    "at_s": 1000.0,
    "asks": {"gpus": 8, "nodes": 1, "cpus": 64, "memory_mib": 1},
    "free": {"gpus": 5, "nodes": 2, "most_on_one_node": 4},
    "waited_s": 600.0,
    "place": 9,
    "queue_length": 30,
    "ahead": [{"job": str(job), "gpus": 2} for job in range(8)],
    "ahead_gpus": 16,
    "blocking": [{"job": "77", "gpus": 4, "ends_by_s": 1300.0}, {"job": "78", "gpus": 4, "ends_by_s": None}],
    "forecast": {"eta": {"low_s": 1060.0, "mid_s": 1300.0, "high_s": 4600.0}, "reason": ""},
}
SHADOW = ShadowReport(
    policies=["sjf+easy"],
    first_s=0.0,
    last_s=3600.0,
    rounds=3600,
    decided=3590,
    jobs=200,
    starts=180,
    compared=170,
    agreed=136,
    baseline_agreed=150,
    wanted=190,
    wanted_soon=140,
    wanted_later=40,
    wanted_never=10,
    order=Pairs(900, 100),
    order_same_size=Pairs(99, 1),
    times=[JobTimes("1", 10.0, 70.0), JobTimes("2", 75.0, 70.0), JobTimes("3", None, 80.0)],
    predictions={"policy": PredictionError(170, 12.0, 90.0, -3.0, 0.8)},
    missing=["10 rounds were not decided by the policy and are not compared."],
)


def console() -> Console:
    return output(file=io.StringIO(), width=100)


def text_of(shown: Console) -> str:
    assert isinstance(shown.file, io.StringIO)
    text = shown.file.getvalue()
    assert max(map(len, text.splitlines())) <= 100
    return text


def shown_status(**changes: Any) -> str:
    shown = console()
    show_status(shown, STATUS | changes)
    return text_of(shown)


def test_status_shows_who_decides_why_and_what_is_alarming() -> None:
    text = shown_status()
    for words in (
        *("shadow", "model:bursty-order (0123456789ab)", "the fallback: the policy took 81 ms of 50 ms"),
        *("number 12,345, 0.40 s ago", "1,002 jobs waiting, 7 of them left to the scheduler", "3 jobs"),
        *(
            "87.5 % (the fallback: 50.0 %)",
            "! slurmctld has not answered for 12 s",
            "2 jobs, 1 action refused by the guard",
        ),
        *("96 of 128 (75 %)", "31.0 ms", "2.10 ms"),
    ):
        assert words in text


def test_status_of_an_agent_that_has_just_begun() -> None:
    shown = console()
    show_status(shown, {"mode": "shadow", "policy": "fifo+easy"})
    text = text_of(shown)
    assert "not observed yet" in text
    assert "none yet" in text


def test_status_takes_timings_of_the_last_round_alone() -> None:
    text = shown_status(timings_s={"list": 0.5, "apply": 0.0})
    assert "last" in text
    assert "p99" not in text


def test_names_of_the_cluster_cannot_move_the_cursor_or_be_markup() -> None:
    text = shown_status(source="\x1b[2J[bold]1[/bold]", alarms=["[red]\x07\n"])
    assert "\x1b" not in text
    assert "[2J[bold]1[/bold]" in text
    assert "! [red]" in text


@pytest.mark.parametrize(
    ("report", "headline"),
    [
        (ReplayReport(), "No round to decide again."),
        (ReplayReport(rounds=5, same=5), "All of 5 rounds are decided as recorded, to the last bit."),
        (ReplayReport(rounds=5, same=4, differing=1), "1 of 5 rounds differ from what is recorded."),
        (REPLAY, "sjf+easy starts the same jobs in 94.0 % of 200 rounds; 1 could not be decided."),
    ],
)
def test_a_replay_says_first_whether_it_agrees(report: ReplayReport, headline: str) -> None:
    shown = console()
    show_replay(shown, report)
    assert text_of(shown).startswith(headline)


def test_a_replay_lists_what_differs() -> None:
    shown = console()
    show_replay(shown, REPLAY)
    text = text_of(shown)
    for words in (
        *("1 job, median 1 min", "1 job, median 30.0 s", "11, 12", "order or scores"),
        *("other nodes: 14", "and 2 rounds more", "The states are those that really were."),
    ):
        assert words in text


def test_an_explanation_says_behind_whom_and_when() -> None:
    shown = console()
    show_explanation(shown, EXPLANATION)
    text = text_of(shown)
    for words in (
        *("Job 4711: it asks for 8 GPUs, and 5 are free.", "8 GPUs on 1 node", "9 of 30", "10 min"),
        *("0, 1, 2, 3, 4, 5 and 2 more (16 GPUs)", "in 5 min (between 1 min and 1 h)", "77", "unknown"),
    ):
        assert words in text


def test_an_explanation_without_a_forecast_gives_its_reason() -> None:
    shown = console()
    show_explanation(shown, EXPLANATION | {"forecast": {"eta": None, "reason": "it is held by its user"}})
    assert "unknown: it is held by its user" in text_of(shown)


def test_the_shadow_report_shows_agreement_order_times_and_what_is_missing() -> None:
    shown = console()
    show_shadow(shown, SHADOW.to_json())
    text = text_of(shown)
    for words in (
        *("3,600 over 1 h, 3,590 decided by the policy", "80.0 % of 170 starts", "88.2 % of 170 starts"),
        *("rank correlation 0.800 (1,000 pairs)", "rank correlation 0.980 (100 pairs)", "1 min earlier"),
        *("5.0 s later", "140 started soon, 40 later, 10 not yet", "80 %", "-3.0 s"),
        *("What this cannot tell", "- 10 rounds were not decided by the policy"),
    ):
        assert words in text


def test_an_empty_shadow_report_can_be_shown() -> None:
    shown = console()
    show_shadow(shown, ShadowReport().to_json())
    assert "nothing to compare" in text_of(shown)


def test_long_lists_of_names_are_cut() -> None:
    assert names(list("abcdefgh")) == "a, b, c, d, e, f and 2 more"
    assert names(["a"], total=3) == "a and 2 more"
    assert names([]) == ""


def test_status_of_a_dead_agent_says_why_and_that_it_is_halted() -> None:
    shown = console()
    show_status(shown, {"alive": False, "why_not": "the agent does not answer", "halted": True, "round": 7})
    text = text_of(shown)
    assert "! the agent does not answer" in text
    assert "! halted" in text


def test_watching_asks_again_until_it_is_interrupted() -> None:
    asked = []

    def ask() -> dict[str, Any]:
        asked.append(1)
        if len(asked) == 3:
            raise KeyboardInterrupt
        return STATUS

    watch_status(console(), ask, every_s=0.0)
    assert len(asked) == 3


def test_the_order_shows_ranks_starts_and_what_is_left() -> None:
    ranked = [
        {
            "place": place,
            "job": str(place),
            "score": None if place == 2 else place / 3,
            "gpus": 8,
            "waited_s": 60.0,
        }
        for place in range(1, 41)
    ]
    found = {"round": 9, "policy": "sjf", "decider": "policy", "order": ranked, "starts": [{"job": "1"}]}
    shown = console()
    show_order(shown, found | {"left": [{"job": "7_1", "why": "licences"}] * 12})
    text = text_of(shown)
    for words in (
        "Round 9: 40 jobs ranked by sjf",
        "0.333333  would start now",
        "and 10 jobs more",
        "(licences)",
    ):
        assert words in text
    assert text.count("would start now") == 1
    assert "and 2 more" in text
    nothing = console()
    show_order(nothing, {"round": None, "order": [], "starts": [], "left": []})
    assert text_of(nothing) == "No round yet.\n"
