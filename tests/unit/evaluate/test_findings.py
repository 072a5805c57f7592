"""What to do about a policy: each answer, what leads the summary, and what the whole replay adds."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from gpuyard.config import GuardConfig
from gpuyard.evaluate import Comparison
from gpuyard.evaluate.findings import Advice, advice, findings
from gpuyard.evaluate.wording import who_loses_in_words
from gpuyard.report.pages.evaluation import evaluation_report
from gpuyard.terminal.evaluation import evaluation_document
from support.evaluation_cases import comparison_of, whole_of

BASE = np.linspace(2.0, 4.0, 40)
GUARDS = GuardConfig().model_dump(mode="json")
TODAY = {"mean_bounded_slowdown": 3.0, "p99_wait_s": 10_000.0, "max_wait_s": 50_000.0, "mean_jct_s": 900.0}


def compared(
    factor: float,
    whole: dict[str, float] | None = None,
    classes: list[dict[str, Any]] | None = None,
    **setting: Any,
) -> Comparison:
    """A policy ``new`` that multiplies slowdowns, with its metrics in the whole part."""
    rows = {"now": TODAY, "new": {**TODAY, "mean_bounded_slowdown": 3.0 * factor, **(whole or {})}}
    drawn = np.random.default_rng(5).normal(size=40)
    noise = np.exp(0.02 * (drawn - drawn.mean()))
    values = {"now": BASE.tolist(), "new": (factor * BASE * noise).tolist()}
    return comparison_of(values, whole=whole_of(rows, classes), guards=GUARDS, **setting)


STARVING = [
    {"policy": policy, "by": "gpus", "class": "5-8", "jobs": 400, "p99_wait_s": wait, "max_wait_s": wait,
     "mean_wait_s": wait, "mean_jct_s": wait, "mean_bounded_slowdown": 2.0}
    for policy, wait in (("now", 20_000.0), ("new", 12_000_000.0))
]  # fmt: skip

ANSWERS: dict[Advice, tuple[Comparison, str]] = {
    "recommended": (compared(0.6), "new: recommended. Mean bounded slowdown is 40 % lower than now (better;"),
    "limits": (
        compared(0.6, classes=STARVING),
        "new: not recommended: jobs of 5-8 GPUs would wait 138 d 21 h (",
    ),
    "disagrees": (
        compared(0.6, {"mean_bounded_slowdown": 6.9}),
        "new: unclear. Windows and the whole test part replayed in one go disagree (-40 % and +130 %).",
    ),
    "unknowable": (
        compared(0.6, information={"estimates": "exact"}),
        "new: an upper bound, no recommendation",
    ),
    "unchecked": (
        replace(compared(0.6), whole=None),
        "new: better in windows, but limits on waits were not checked (the whole test part was not",
    ),
    "worse": (compared(1.5), "new: not recommended. Mean bounded slowdown is 50 % higher"),
    "no gain": (
        compared(1.0),
        "new: not recommended, no clear gain. Mean bounded slowdown is a tie with now",
    ),
    "unclear": (compared(0.6, disjoint=2.2, block=33), "new: unclear. Mean bounded slowdown is 40 % lower"),
}


@pytest.mark.parametrize("answer", ANSWERS)
def test_each_answer_is_given_and_said_first(answer: Advice) -> None:
    found, words = ANSWERS[answer]
    assert advice(found, "new") == answer
    assert found.summary().startswith(words)


def test_nothing_is_recommended_whose_limits_were_not_checked() -> None:
    found = compared(0.6)
    without_limits = replace(found, setting=replace(found.setting, guards={}))
    draws = replace(found, setting=replace(found.setting, kind="draws"), whole=None)
    for one in (without_limits, draws, replace(found, whole=None)):
        assert advice(one, "new") == "unchecked"
        assert "recommended" not in one.summary()
    assert "limits on waits were not checked (fresh draws have no whole log)." in draws.summary()


def test_what_a_policy_that_breaks_limits_would_have_gained_is_said() -> None:
    found, _ = ANSWERS["limits"]
    first = found.summary().split("\n")[0]
    assert "Without that: Mean bounded slowdown is 40 % lower than now (better;" in first
    (p99, longest) = found.broken_limits("new")
    assert {p99.metric, longest.metric} == {"p99_wait_s", "max_wait_s"}
    assert "1 more limit on waits would be broken." in first
    assert found.broken_limits("now") == []
    assert replace(found, setting=replace(found.setting, guards={})).broken_limits("new") == []


def test_how_waits_are_counted_is_said_where_limits_are_broken_and_only_there() -> None:
    said = "Limits on waits count the median of 5 replays"
    assert said in ANSWERS["limits"][0].summary()
    assert said not in ANSWERS["recommended"][0].summary()


def test_the_pages_table_marks_policies_that_break_limits() -> None:
    breaking = {one.name: one.breaks_limits for one in evaluation_report(ANSWERS["limits"][0], []).standings}
    assert breaking == {"now": False, "new": True}
    assert not any(one.breaks_limits for one in evaluation_report(ANSWERS["recommended"][0], []).standings)


def test_figures_of_the_page_are_of_the_whole_part_where_windows_say_the_opposite() -> None:
    found = compared(0.6, {"mean_jct_s": 1800.0}, classes=STARVING)
    tile = next(one for one in evaluation_report(found, []).answer.figures if one.name == "mean JCT")
    assert (tile.value, tile.change, tile.verdict) == ("30 min", "+100.0 %", "worse")
    assert tile.remark.startswith("in one go, against 15 min; in windows ")


def test_a_policy_of_which_both_replays_disagree_leads_the_summary() -> None:
    values = {"now": BASE.tolist(), "good": (0.5 * BASE).tolist(), "odd": (0.9 * BASE).tolist()}
    rows = {"now": TODAY, "good": {**TODAY, "mean_bounded_slowdown": 1.5}}
    rows["odd"] = {**TODAY, "mean_bounded_slowdown": 5.0}
    found = comparison_of(values, whole=whole_of(rows), guards=GUARDS)
    lines = found.summary().split("\n")
    assert lines[0].startswith("odd: unclear. Windows and the whole test part")
    assert lines[1].startswith("good: recommended.")
    assert [one.policies[0] for one in findings(found)[:2]] == ["odd", "good"]


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        ("recommended", "new is recommended: 40.0 % lower mean bounded slowdown than now"),
        ("limits", "new is not recommended: jobs of 5-8 GPUs would wait 138 d 21 h"),
        ("disagrees", "It is unclear whether new is better: windows and the whole part replayed in one go"),
        ("unknowable", "new is an upper bound, no recommendation: 40.0 % lower"),
        ("unchecked", "new is best: 40.0 % lower"),
        ("worse", "new is worse: 50.0 % higher"),
    ],
)
def test_the_first_sentence_of_the_page_is_the_same_answer(answer: Advice, words: str) -> None:
    comparison, _ = ANSWERS[answer]
    told = evaluation_report(comparison, []).answer
    assert told.sentence.replace("\xa0", " ").startswith(words)
    whole = [tile.value for tile in told.figures if tile.name == "in one go"]
    assert len(whole) == (comparison.whole is not None)


@pytest.mark.parametrize(("whole", "answer"), [(3.02, "recommended"), (3.04, "disagrees")])
def test_nearly_nothing_in_the_whole_part_disagrees_with_nobody(whole: float, answer: str) -> None:
    assert advice(compared(0.6, {"mean_bounded_slowdown": whole}), "new") == answer


def test_a_tie_in_windows_disagrees_with_nothing() -> None:
    assert advice(compared(1.0, {"mean_bounded_slowdown": 30.0}), "new") == "no gain"


def test_weak_intervals_and_single_windows_recommend_nothing_and_condemn_nothing() -> None:
    assert advice(compared(1.5, disjoint=2.2), "new") == "unclear"
    one = comparison_of({"now": [2.0], "new": [1.0]}, disjoint=1.0)
    assert advice(one, "new") == "unclear"


def test_the_rival_is_what_policies_are_compared_with_second() -> None:
    values = {"now": BASE.tolist(), "new": (0.6 * BASE).tolist(), "best": (0.5 * BASE).tolist()}
    found = comparison_of(values)
    entries = tuple(replace(one, role="rival") if one.name == "best" else one for one in found.policies)
    found = replace(found, policies=entries, rival="best")
    text = found.summary()
    assert (
        "best was the best fixed heuristic on earlier windows: new is 20 % higher than best (worse;" in text
    )
    assert "best: " not in text, "nobody asked about it"


@pytest.mark.parametrize(
    ("setting", "words"),
    [
        ({"margins": (0, 0)}, "They begin with an empty cluster and end by draining it"),
        (
            {"margins": (2048, 256)},
            "2,048 jobs run before each under the same policy and 256 arrive after it",
        ),
        (
            {"starts": {"agrees": False, "gap": 0.4, "policy": "now", "jam": 9}},
            "Even so figures depend on how full the cluster begins (after a jam +40 %)",
        ),
        ({"not_tried": ("conservative",)}, "No fixed heuristic was tried with conservative"),
    ],
)
def test_how_windows_began_and_what_was_not_tried_is_said(setting: dict[str, Any], words: str) -> None:
    assert words in compared(0.6, **setting).summary()
    assert words not in compared(0.6).summary()


def test_the_document_has_the_advice_and_what_it_rests_on() -> None:
    found, _ = ANSWERS["limits"]
    told = evaluation_document(found)
    now, new = (next(one for one in told["results"] if one["name"] == name) for name in ("now", "new"))
    assert (now["advice"], new["advice"]) == (None, "limits")
    assert [one["metric"] for one in new["broken_limits"]] == [
        one.metric for one in found.broken_limits("new")
    ]
    assert new["whole"]["max_wait_s"] == TODAY["max_wait_s"]
    assert (told["rival"], told["setting"]["guards"]) == (None, GUARDS)
    assert told["findings"][0]["numbers"]["broken"][0]["name"] == "5-8"


def test_a_policy_that_stops_running_jobs_is_not_recommended_by_waits_for_the_first_start() -> None:
    values = {"fifo+easy/consolidate": BASE.tolist(), "srtf+greedy/consolidate": (0.6 * BASE).tolist()}
    rows = {
        name: {**TODAY, "mean_bounded_slowdown": 3.0 * (0.6 if "srtf" in name else 1.0)} for name in values
    }
    found = comparison_of(values, whole=whole_of(rows), guards=GUARDS)
    assert advice(found, "srtf+greedy/consolidate") == "unchecked"
    assert "it stops running jobs, and limits count waits for the first start alone" in found.summary()


def test_who_loses_names_the_limits_that_would_be_broken() -> None:
    (line,) = who_loses_in_words(ANSWERS["limits"][0])
    assert line.startswith("new: in the whole test part, jobs of 5-8 GPUs would wait 138 d 21 h (")
    assert who_loses_in_words(ANSWERS["recommended"][0]) == []  # of which no classes are known
