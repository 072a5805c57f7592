"""What a comparison says: differences, who is best, ties, who loses."""

import io
import json
import re
from dataclasses import replace
from typing import Any

import numpy as np
import polars as pl
import pytest
from rich.console import Console

from gpuyard.errors import InputError
from gpuyard.evaluate import Comparison, Difference
from gpuyard.evaluate.findings import by_window, findings
from gpuyard.evaluate.wording import TERMINAL, who_loses_in_words
from gpuyard.terminal.evaluation import evaluation_document, evaluation_table
from support.evaluation_cases import comparison_of

RNG = np.random.default_rng(5)
BASE = RNG.uniform(2, 4, 40)
NOISE = np.exp(0.02 * RNG.normal(size=40))


def values(**factors: float) -> dict[str, list[float]]:
    return {"base": BASE.tolist()} | {
        name: (factor * BASE * NOISE).tolist() for name, factor in factors.items()
    }


def table_text(comparison: Comparison) -> str:
    """The table as a terminal with colours shows it."""
    console = Console(width=160, force_terminal=True, color_system="standard", file=io.StringIO())
    with console.capture() as shown:
        console.print(evaluation_table(console, comparison))
    return shown.get()


@pytest.mark.parametrize(
    ("ratio", "text"),
    [
        (0.0, "0 %"),
        (-0.421, "-42 %"),
        (0.0421, "+4.2 %"),
        (0.0004, "+0.04 %"),
        (1.3, "+130 %"),
        (16.5, "x 17.5"),
        (float("inf"), "+∞"),
        (float("-inf"), "-∞"),
    ],
)
def test_changes_are_told_with_as_many_digits_as_matter(ratio: float, text: str) -> None:
    assert TERMINAL.change(ratio) == text


def test_an_interval_of_one_window_is_no_text() -> None:
    nothing = float("nan")
    assert TERMINAL.interval(Difference(0.1, nothing, nothing, "tie", 1.0, 1.0)) == ""
    assert TERMINAL.interval(Difference(-0.1, -0.2, 0.05, "tie", 1.0, 1.0)) == "-20 % to +5.0 %"


def test_the_summary_says_what_to_do_by_how_much_and_how_sure() -> None:
    found = comparison_of(values(good=0.6, bad=1.5))
    text = found.summary()
    first = "good: better in windows, but limits on waits were not checked (none are set). "
    assert text.startswith(f"{first}Mean bounded slowdown is 40 % lower than base (better; ")
    span = TERMINAL.interval(found.difference("good"))
    assert f"40 % lower than base (better; 95 % interval {span})" in text
    assert "bad: not recommended. Mean bounded slowdown is 50 % higher than base (worse;" in text
    assert "mean JCT" in text
    assert "on 40 windows of 100 jobs of the test part of made-up." in text
    assert "tie" not in text


def test_a_tie_is_called_a_tie() -> None:
    found = comparison_of(values(same=1.0))
    assert found.difference("same").verdict == "tie"
    text = found.summary()
    assert text.startswith("same: not recommended, no clear gain. Mean bounded slowdown is a tie with base (")
    assert "better" not in text


def test_without_advice_the_best_is_named() -> None:
    found = comparison_of(values(good=0.6, bad=1.5), kind="episodes")
    text = found.summary()
    assert text.startswith("Best of 3 policies on 40 episodes of made-up: good, ")
    assert "bad: 50 % higher than base (worse;" in text
    tie = comparison_of(values(same=1.0), kind="episodes").summary()
    assert tie.startswith("Best mean of 2 policies")
    assert "Statistically a tie with the best" in tie
    assert "recommended" not in text + tie


def test_a_policy_is_not_compared_with_itself_in_hindsight() -> None:
    found = replace(comparison_of(values(good=0.6, bad=1.5)), hindsight="good")
    text = found.summary()
    assert "In hindsight good is the best fixed heuristic" in text
    assert "good is" not in text.split("Against that one, ")[1]


def test_a_mean_above_one_of_zero_is_told_without_a_multiple() -> None:
    found = comparison_of({"base": [0.0] * 12, "bad": [1.0] * 12})
    assert "is above the 0 of base (worse; " in found.summary()


@pytest.mark.parametrize(("part", "said"), [("test", False), ("train", True), ("all", True)])
def test_it_is_said_if_learned_policies_may_have_seen_the_jobs(part: str, said: bool) -> None:
    found = comparison_of(values(good=0.6), part=part)
    assert "may have been trained" not in found.summary()
    learned = tuple(replace(entry, kind="learned") for entry in found.policies)
    assert ("may have been trained" in replace(found, policies=learned).summary()) == said


@pytest.mark.parametrize("left", [0.0, 3.0])
def test_jobs_that_episodes_leave_unfinished_are_told(left: float) -> None:
    found = comparison_of(values(good=0.6), kind="episodes")
    unfinished = pl.when(pl.col("policy") == "good").then(left).otherwise(0.0)
    found = replace(found, windows=found.windows.with_columns(unfinished_jobs=unfinished))
    assert ("unfinished, on average: good 3.00, base 0" in found.summary()) == (left > 0)


def test_weak_intervals_are_called_weak() -> None:
    assert "weak" not in comparison_of(values(good=0.6)).summary()
    weak = comparison_of(values(good=0.6), disjoint=2.2, block=33)
    assert "The intervals are weak: 40 windows that overlap amount to 2.2 side by side" in weak.summary()
    strong, wide = comparison_of(values(good=0.6)).difference("good"), weak.difference("good")
    assert wide.high - wide.low > strong.high - strong.low


def test_weak_intervals_make_no_policy_better_worse_or_tied() -> None:
    found = comparison_of(values(good=0.6, bad=1.5, alike=1.0), disjoint=2.2, block=33)
    text = found.summary()
    assert text.startswith("good: unclear. Mean bounded slowdown is 40 % lower than base (unclear; weak")
    span = TERMINAL.interval(found.difference("good"))
    assert f"40 % lower than base (unclear; weak 95 % interval {span})" in text
    assert "bad: unclear. Mean bounded slowdown is 50 % higher than base (unclear; weak 95 % interval" in text
    assert re.search(r"alike: unclear\. .* 0\.\d+ % (lower|higher) than base \(unclear;", text)
    assert re.search(r"\b(better|worse|tie|recommended)\b", text) is None


def test_weak_intervals_leave_verdicts_of_tables_unclear_and_uncoloured_and_json_as_it_is() -> None:
    given = values(good=0.6, bad=1.5) | {"same": BASE.tolist()}
    sure, weak = table_text(comparison_of(given)), table_text(comparison_of(given, disjoint=2.2))
    for word, colour in (("better", "32"), ("worse", "31")):
        assert f"\x1b[{colour}m{word} " in sure
        assert word not in weak
    assert weak.count("unclear ") == 2
    assert "\x1b[3" not in weak
    assert "tie 0 %" in weak, "the same mean is the same, however few the windows"
    told = {one["name"]: one for one in evaluation_document(comparison_of(given, disjoint=2.2))["results"]}
    assert told["good"]["differences"]["mean_bounded_slowdown"]["verdict"] == "better"
    assert told["bad"]["differences"]["mean_bounded_slowdown"]["verdict"] == "worse"


def test_one_window_has_no_weak_interval() -> None:
    found = comparison_of({"base": [2.0], "good": [1.0]}, disjoint=1.0)
    text = found.summary()
    assert text.startswith("good: unclear. Mean bounded slowdown is 50 % lower than base (one window tells")
    assert not re.search("weak|recommended", text + table_text(found))


@pytest.mark.parametrize(
    ("setting", "advice"),
    [
        ({"block": 33}, "windows differ; shorter windows, fresh draws or a longer trace tell more."),
        ({"block": 1}, "windows differ; more windows, fresh draws or a longer trace tell more."),
        ({"kind": "draws"}, "windows differ; more draws tell more."),
        ({"kind": "episodes"}, "episodes differ; more episodes tell more."),
        ({"kind": "episodes", "block": 9}, "episodes differ; episodes of fewer jobs or a longer trace tell"),
    ],
)
def test_what_would_make_weak_intervals_stronger_is_said(setting: dict[str, Any], advice: str) -> None:
    assert advice in comparison_of(values(good=0.6), disjoint=2.2, **setting).summary()


def test_episodes_are_not_called_windows() -> None:
    found = comparison_of(values(good=0.6), disjoint=2.2, block=9, kind="episodes")
    assert "40 episodes that overlap amount to 2.2 side by side" in found.summary()
    one = comparison_of({"base": [2.0], "good": [1.0]}, kind="episodes")
    for text in (found.summary(), one.summary()):
        assert "window" not in text.lower()


def test_where_more_is_better_more_wins() -> None:
    found = comparison_of(
        {"base": [1.0, 1.1, 1.2, 1.3], "good": [2.0, 2.1, 2.3, 2.4]},
        metric="gpu_utilization",
        lower_is_better=False,
    )
    assert found.ranking() == ["good", "base"]
    assert found.difference("good").verdict == "better"
    assert found.difference("good", metric="mean_jct_s").verdict == "worse"


def test_policies_and_metrics_that_are_not_there_are_refused() -> None:
    found = comparison_of(values(good=0.6))
    with pytest.raises(InputError, match="policy 'god' was not compared; did you mean 'good'"):
        found.difference("god")
    with pytest.raises(InputError, match="metric 'mean_wait_s' was not computed"):
        found.difference("good", metric="mean_wait_s")


def classes(losses: dict[str, float]) -> list[dict[str, Any]]:
    """Two classes by gang size in each of the windows; policy ``good`` multiplies the waits of each."""
    rows = []
    for window in range(0, 4000, 100):
        for name, factor in losses.items():
            for policy in ("base", "good"):
                wait = (100.0 + window % 700) * (factor if policy == "good" else 1.0)
                metrics = {"mean_wait_s": wait, "p99_wait_s": wait, "mean_jct_s": wait + 50.0}
                rows.append(
                    {"policy": policy, "window": window, "by": "gpus", "class": name, "jobs": 50}
                    | metrics
                    | {"mean_bounded_slowdown": 1.0 + wait / 100.0}
                )
    return rows


def test_classes_that_fare_clearly_worse_lose_and_no_others() -> None:
    found = comparison_of(values(good=0.6), classes=classes({"1": 0.5, "5-8": 2.0}))
    losers = found.who_loses("good")
    assert {(one.by, one.name, one.metric) for one in losers} == {
        ("gpus", "5-8", "mean_wait_s"),
        ("gpus", "5-8", "mean_bounded_slowdown"),
    }
    wait = next(one for one in losers if one.metric == "mean_wait_s")
    assert wait.difference.ratio == pytest.approx(1.0)
    assert wait.jobs == 2000
    assert wait.difference.own == pytest.approx(2 * wait.difference.other)
    assert found.who_loses("base", "good")[0].name == "1"
    [line] = who_loses_in_words(found)
    assert line.startswith("good: worse off than under base are jobs of 5-8 GPUs (mean wait")
    weak = replace(found, setting=replace(found.setting, disjoint=3.0))
    assert who_loses_in_words(weak)[0].startswith("good: worse off than under base, by weak intervals, are")


def test_nobody_loses_if_no_class_does() -> None:
    found = comparison_of(values(good=0.6), classes=classes({"1": 0.5, "5-8": 1.0}))
    assert found.who_loses("good") == []
    assert who_loses_in_words(found) == ["good: no class of jobs is clearly worse off than under base."]


def test_a_class_that_is_in_few_windows_is_weighed_by_its_jobs() -> None:
    rows = [row for row in classes({"1": 0.5, "5-8": 3.0}) if row["class"] == "1" or row["window"] == 0]
    assert comparison_of(values(good=0.6), classes=rows).who_loses("good") == []


def test_it_is_known_whether_a_few_windows_carry_the_difference() -> None:
    base = [2.0, 2.0, 2.0, 100.0]
    found = comparison_of({"base": base, "mine": [2.0, 2.5, 1.0, 10.0]})
    one = by_window(found, ["mine"])
    assert one is not None
    assert (one.ahead, one.behind, one.windows, one.median) == (2, 1, 4, -0.25)
    assert one.without_best == pytest.approx(5.5 / 6.0 - 1.0)
    assert by_window(found, ["base"]) is None


def test_where_nobody_differs_nobody_is_called_the_best() -> None:
    same = {"base": [1.0] * 5, "mine": [1.0] * 5}
    text = comparison_of(same).summary()
    assert text.startswith("All 2 policies did the same on 5 windows")
    assert "nothing to choose" in text
    assert "Best" not in text


def test_findings_are_records_that_json_holds() -> None:
    found = findings(comparison_of(values(good=0.6, bad=1.5)))
    kinds = [one.kind for one in found]
    assert kinds == ["verdict", "verdict", "beside", "beside", "starts"]
    first = json.loads(json.dumps(found[0].to_json()))
    assert first["policies"] == ["good", "base"]
    assert first["numbers"]["difference"]["ratio"] == pytest.approx(-0.4, abs=0.02)
    assert first["numbers"]["advice"] == "unchecked"
    assert first["numbers"]["broken"] == []
