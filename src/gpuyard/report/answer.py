"""The answer of an evaluation: about which policy it is, beside which other, and how sure that is."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from gpuyard.evaluate.bootstrap import Difference, Verdict
from gpuyard.evaluate.findings import advice, calibrated, findings, tied_with
from gpuyard.evaluate.wording import PAGE, limit_in_words, one_of, reference_role, sentences
from gpuyard.metrics.classes import is_far_above
from gpuyard.policies.base import RECORDED
from gpuyard.report.losers import far_losers
from gpuyard.report.model import Answer, Standing, Tile
from gpuyard.report.words import (
    ALARMED,
    SIDE_METRICS,
    difference_words,
    interval,
    percent,
    side_figures,
)
from gpuyard.units import duration, metric_label, metric_text

if TYPE_CHECKING:
    from gpuyard.evaluate.comparison import Comparison
    from gpuyard.evaluate.setting import Setting

NEARLY_ALL = 0.9
"""A policy that is behind in such a share of the windows is not named among the best."""
MOST_TIES = 4
WHOLE_PERCENT = 0.1
"""Prices from here on are told without a digit after the point."""
PRICES = {
    "p99_wait_s": "99th-percentile waits",
    "max_wait_s": "maximum waits",
    "mean_jct_s": "mean completion times",
}
"""What a gain may have been bought with."""


@dataclass(frozen=True)
class Pair:
    """Two policies, one beside the other.

    Attributes:
        subject: The one that the answer is about.
        other: The one that it is compared with.
        what: What the other is, in words.
        change: From the other to the subject, with its interval.
        leads: Whether the subject has the best mean of all policies.
        weak: Why the interval is likely to be too narrow; empty if it is not.
        these: What they ran on: windows or episodes.
        one: One of these; a run if that is over all jobs.
    """

    subject: Standing
    other: Standing
    what: str
    change: Difference
    leads: bool
    weak: str = ""
    these: str = "windows"
    one: str = "window"

    @property
    def told(self) -> str:
        """The other, and what it is."""
        return f"{self.other.label}, {self.what}"


def chosen_pair(comparison: "Comparison", standings: Sequence[Standing]) -> tuple[Standing, Standing]:
    """Which policy the answer is about, and beside which: the same one if there is no other.

    It is the best of those that were asked for, beside the reference. What was best among others was picked
    on these very windows, so it is no answer to what was asked. Where the reference is merely the policy that
    was named first, it is asked for like the others.

    Args:
        comparison: The policies' windows.
        standings: The policies, the best first.
    """
    reference = next((one for one in standings if one.name == comparison.reference), None)
    first = comparison.chosen_on == "first"
    asked = [one for one in standings if first or (one.role == "given" and one is not reference)]
    chosen = [one for one in standings if one.role != "recorded"]
    subject = (asked or chosen or standings)[0]
    if reference is not None and reference is not subject:
        return subject, reference
    return subject, next((one for one in standings if one is not subject), subject)


def reference_text(comparison: "Comparison") -> str:
    """What the reference is, in words; empty without one."""
    if comparison.reference is None:
        return ""
    if comparison.reference == RECORDED:
        return "what the scheduler of the log did"
    assumed = comparison.policy(comparison.reference).is_assumed
    given = comparison.chosen_on == "given" and not assumed
    return "the given reference" if given else reference_role(comparison)


def answer_of_windows(
    comparison: "Comparison", standings: Sequence[Standing], subject: Standing, other: Standing
) -> Answer:
    """The answer where policies ran on the same windows.

    Args:
        comparison: What they reached on each.
        standings: The policies, the best first.
        subject: The one that the answer is about.
        other: The one that it is compared with.
    """
    words, metric = _words(comparison), comparison.setting.metric
    if subject is other:
        sentence = f"{subject.label} is the only policy here: there is nothing to compare it with."
        value = metric_text(metric, subject.values.get(metric))
        alone = [Tile(metric_label(metric), value, subject.label), *side_figures(subject, None, metric)]
        return Answer(sentence, "", alone, words)
    change = comparison.difference(subject.name, against=other.name)
    what = reference_text(comparison) if other.name == comparison.reference else "the next"
    weak, these = _weakness(comparison.setting), _these(comparison.setting)
    one = one_of(comparison.setting)
    # What was recorded beside another reference is no policy that could be chosen.
    standings = [standing for standing in standings if standing.role != "recorded"]
    pair = Pair(subject, other, what, change, subject is standings[0], weak, these, one)
    ties = _ties(comparison, standings, pair)
    sentence = _sentence(comparison, pair, bool(ties))
    ahead, chosen = _ahead(comparison, standings, pair), _otherwise_chosen(comparison)
    fitted = " ".join(sentences(comparison, calibrated(comparison), PAGE))
    said = (_doubt(comparison), _sureness(pair), _ties_text(ties), ahead, chosen, fitted)
    sure = " ".join(filter(None, said))
    is_asked = comparison.whole is not None and other.name == comparison.reference
    asked = dict.fromkeys((metric, *SIDE_METRICS)) if is_asked else {}
    wholes = {name: found for name in asked if (found := comparison.in_whole(subject.name, name)) is not None}
    return Answer(sentence, sure, _figures(pair, metric, wholes), words)


def _these(setting: "Setting") -> str:
    return "episodes" if setting.kind == "episodes" else "windows"


def _weakness(setting: "Setting") -> str:
    if not setting.has_weak_intervals:
        return ""
    these = _these(setting)
    if setting.block > 1:
        return f"{these} that overlap so much amount to only {setting.disjoint:.1f} side by side"
    return f"so few {these} hardly tell how {these} differ"


def _words(comparison: "Comparison") -> list[str]:
    """More in words, without what stands above: ties, doubts, and how closely the reference fits a log."""
    above = ("ties", "unexplained", "calibrated")
    return sentences(comparison, [one for one in findings(comparison) if one.kind not in above], PAGE)


def _doubt(comparison: "Comparison") -> str:
    """That the waits of the log are not those of the modelled cluster, if so."""
    return "" if comparison.unexplained is None else comparison.unexplained.in_words()


def _sentence(comparison: "Comparison", pair: Pair, tied: bool) -> str:
    metric, lower_is_better = comparison.setting.metric, comparison.setting.lower_is_better
    name, label, change = pair.subject.label, metric_label(metric), pair.change
    if change.ratio == 0:
        return f"{name} and {pair.told}, are equally good: the same {label}."
    if change.verdict == "tie" and not pair.weak:
        return f"{name} and {pair.told}, are tied on {label}."
    if not change.is_known:
        return f"{name} is {'best' if pair.leads else 'not the best'} on {label}, beside {pair.told}."
    told = difference_words(change.ratio, metric, pair.told)
    better = (change.ratio < 0) == lower_is_better
    if pair.weak:
        way = "better" if better else "worse"
        return f"It is unclear whether {name} is {way}: {told}, on too few {pair.these} to tell."
    if better and comparison.misleads(pair.other.name):
        return (
            f"It is unclear whether {name} is better: {told}, but the modelled cluster does not explain the "
            "waits of the log."
        )
    price = _price(comparison, pair) if better else ""
    best = "among the best" if tied else "best"
    place = "worse" if not better else best if pair.leads else "better"
    return _advised(comparison, pair, told, price) or f"{name} is {place}: {told}{price}."


def _advised(comparison: "Comparison", pair: Pair, told: str, price: str) -> str:
    """The sentence where the whole part was replayed, too: whether to use the policy comes first."""
    whole, name = comparison.in_whole(pair.subject.name), pair.subject.label
    if comparison.whole is None or whole is None or pair.other.name != comparison.reference:
        return ""
    match advice(comparison, pair.subject.name):
        case "recommended":
            return f"{name} is recommended: {told}{price}."
        case "limits":
            limit = limit_in_words(comparison.broken_limits(pair.subject.name)[0])
            return f"{name} is not recommended: {limit}. But for that: {told}."
        case "disagrees":
            windows, replay = percent(pair.change.ratio), percent(whole.ratio)
            return (
                f"It is unclear whether {name} is better: windows and the whole part replayed in one go "
                f"disagree ({windows} and {replay} {metric_label(comparison.setting.metric)})."
            )
        case "unknowable":
            return f"{name} is an upper bound, no recommendation: {told}, knowing what no scheduler knows."
        case _:
            return ""


def _price(comparison: "Comparison", pair: Pair) -> str:
    """What is clearly worse than with the reference: differences to other policies have no intervals."""
    metric, told = comparison.setting.metric, []
    if pair.one == "run":
        return _price_of_one_run(comparison, pair)
    for beside, name in PRICES.items():
        own, theirs = pair.subject.changes.get(beside), pair.other.changes.get(beside)
        if beside == metric or own is None or theirs is None or theirs.verdict != "reference":
            continue
        if own.verdict == "worse" and own.is_known:
            told.append(f"{_longer(own.ratio)} {name}")
    named = " and ".join(filter(None, (", ".join(told[:-1]), *told[-1:])))
    return f", at the price of {named}" if named else ""


def _price_of_one_run(comparison: "Comparison", pair: Pair) -> str:
    """What is much worse, without intervals: the longest waits, and the class that pays most."""
    told = []
    for metric in ("max_wait_s", "p99_wait_s"):
        own, theirs = pair.subject.values.get(metric), pair.other.values.get(metric)
        if metric != comparison.setting.metric and own and theirs and is_far_above(own, theirs):
            told.append(f"{_longer(own / theirs - 1)} {PRICES[metric]} ({metric_text(metric, own)})")
    losers = far_losers(comparison.classes, pair.subject.name, pair.other.name)
    if losers:
        first = losers[0]
        jobs = f"jobs of {first.short}".replace("jobs of runs", "jobs that run")
        waits = f"{duration(first.p99_wait_s)} instead of {duration(first.other_s or 0.0)} (p99)"
        told.append(f"{jobs} waiting {waits}")
    return f", at the price of {' and '.join(told)}" if told else ""


def _longer(ratio: float) -> str:
    if ratio >= PAGE.many_times:
        return f"{percent(ratio).removeprefix('×')} times as long"
    size = f"{100 * ratio:.0f} %" if ratio >= WHOLE_PERCENT else percent(ratio).removeprefix("+")
    return f"{size} longer"


def _sureness(pair: Pair) -> str:
    span = interval(pair.change)
    if not span:
        if pair.one == "run":
            return (
                "How sure? One run on one workload has no interval. gpuyard evaluate compares on many "
                "windows and says what is beyond chance."
            )
        return f"How sure? One {pair.one} has no interval: more {pair.these} tell what is beyond chance."
    if pair.weak:
        told = f"The 95 % interval of the difference, {span}, is likely to be too narrow."
        return f"The intervals are weak: {pair.weak}. {told}"
    if pair.change.verdict == "tie":
        return f"The difference is {percent(pair.change.ratio)}; its 95 % interval, {span}, includes zero."
    return f"Beyond chance: the 95 % interval of the difference is {span} and excludes zero."


def _ties(comparison: "Comparison", standings: Sequence[Standing], pair: Pair) -> list[str]:
    """Who else may be called best: not told apart from the best, and not behind nearly everywhere."""
    if pair.weak or not pair.leads or len(comparison.setting.windows) < 2:
        return []
    tied = tied_with(comparison, pair.subject.name)
    return [
        one.label
        for one in standings
        if one.name in tied and one is not pair.other and _behind(comparison, one, pair.subject) < NEARLY_ALL
    ]


def _behind(comparison: "Comparison", one: Standing, other: Standing) -> float:
    """The share of windows in which a policy is worse than another."""
    sign = 1.0 if comparison.setting.lower_is_better else -1.0
    return float(np.mean(sign * comparison.values(one.name) > sign * comparison.values(other.name)))


def _ties_text(ties: Sequence[str]) -> str:
    if not ties:
        return ""
    more = len(ties) - MOST_TIES
    named = ", ".join(ties[:MOST_TIES]) + (f" and {more} more" if more > 0 else "")
    return f"Statistically tied with the best: {named}."


def _ahead(comparison: "Comparison", standings: Sequence[Standing], pair: Pair) -> str:
    """That a policy which nobody asked for has a better mean still, if so."""
    first = standings[0]
    if first in (pair.subject, pair.other):
        return ""
    change = comparison.difference(first.name, against=pair.subject.name)
    found = (
        f"picked in hindsight on these very {pair.these}" if first.role == "hindsight" else "not asked for"
    )
    if pair.weak:
        return f"{first.label}, {found}, has a better mean still; that is just as unclear."
    how = "has the best mean but is tied with it" if change.verdict == "tie" else "is better still"
    how += " but breaks limits on waits" if comparison.broken_limits(first.name) else ""
    return f"{first.label}, {found}, {how}: {percent(change.ratio)} against {pair.subject.label}."


def _otherwise_chosen(comparison: "Comparison") -> str:
    """That the reference was chosen by another metric than the one that decides here, if so."""
    if (
        comparison.evaluated_by is None
        or comparison.reference is None
        or comparison.chosen_on != "validation"
    ):
        return ""
    return (
        f"The reference was chosen by {metric_label(comparison.evaluated_by)}, the metric of the evaluation: "
        f"by {metric_label(comparison.setting.metric)} another heuristic may be better."
    )


def _figures(pair: Pair, metric: str, wholes: Mapping[str, Difference]) -> list[Tile]:
    span, label = interval(pair.change), metric_label(metric)
    sureness = f"95 % interval {span}; " if span else ""
    theirs = metric_text(metric, pair.other.values.get(metric))
    own = metric_text(metric, pair.subject.values.get(metric))
    remark = f"{sureness}of {label}, against {pair.other.label}"
    return [
        Tile("difference", percent(pair.change.ratio), remark, verdict=pair.change.verdict),
        Tile(label, own, f"{theirs} with {pair.other.label}"),
        *_whole_figure(wholes.get(metric), metric, pair.other.label),
        *(_in_one_go(tile, wholes) for tile in side_figures(pair.subject, pair.other, metric)),
    ]


def _in_one_go(tile: Tile, wholes: Mapping[str, Difference]) -> Tile:
    """A price as the whole part has it: a mean over windows hides the longest waits, and who waits then."""
    metric = next((one for one in SIDE_METRICS if metric_label(one) == tile.name), "")
    if metric not in wholes:
        return tile
    whole = wholes[metric]
    own, theirs = (metric_text(metric, one) for one in (whole.own, whole.other))
    verdict: Verdict = "worse" if is_far_above(whole.own, whole.other) else "one run"
    remark = f"in one go, against {theirs}"
    if metric not in ALARMED:
        remark += f"; in windows {tile.change}"
    return replace(tile, value=own, remark=remark, change=percent(whole.ratio), verdict=verdict)


def _whole_figure(whole: Difference | None, metric: str, other: str) -> list[Tile]:
    """The same in a replay of the whole part, where there is one."""
    if whole is None:
        return []
    own, theirs = (metric_text(metric, one) for one in (whole.own, whole.other))
    return [
        Tile(
            "in one go", percent(whole.ratio), f"the whole part replayed: {own} against {theirs} with {other}"
        )
    ]
