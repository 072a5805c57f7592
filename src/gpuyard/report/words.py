"""Differences and answers in words."""

from collections.abc import Mapping, Sequence

from gpuyard.quantities import metric_label, metric_text
from gpuyard.report.model import Answer, Change, Standing

SIDE_METRICS = ("mean_jct_s", "mean_wait_s", "p99_wait_s", "max_wait_s")
"""What stands beside every gain: an average may hide jobs that starve."""
MANY_TIMES = 2.0
"""Relative differences from here on are told as a multiple."""
MOST_TIES = 4


def percent(ratio: float | None) -> str:
    """A relative difference with its sign: ``−12.3 %``, ``+0.4 %``, ``×6.3``."""
    if ratio is None:
        return "-"
    if ratio >= MANY_TIMES:
        return f"×{1 + ratio:,.1f}" if ratio < 99 else f"×{1 + ratio:,.0f}"
    size = 100 * abs(ratio)
    digits = 1 if size < 99.5 or size >= 100 else 2
    text = f"{size:.{digits}f} %"
    return text if float(f"{size:.{digits}f}") == 0 else f"{'−' if ratio < 0 else '+'}{text}"


def interval(change: Change) -> str:
    """The interval of a difference: ``−15.0 % to −9.1 %``; empty without one."""
    if change.low is None or change.high is None:
        return ""
    return f"{percent(change.low)} to {percent(change.high)}"


def difference_words(ratio: float, metric: str) -> str:
    """``12.3 % lower mean wait``, ``6.3 times the mean wait``."""
    label = metric_label(metric)
    if ratio >= MANY_TIMES:
        return f"{percent(ratio).removeprefix('×')} times the {label}"
    return f"{percent(abs(ratio)).removeprefix('+')} {'lower' if ratio < 0 else 'higher'} {label}"


def answer_of_one_run(
    standings: Sequence[Standing], metric: str, reference: Standing, lower_is_better: bool
) -> Answer:
    """The answer where each policy ran once, on the same jobs.

    Args:
        standings: The policies, the best first.
        metric: The one that decides.
        reference: The policy that was named first.
        lower_is_better: Which way.
    """
    best = standings[0]
    figures = [(metric_label(metric), metric_text(metric, best.values.get(metric)), best.label)]
    if len(standings) == 1:
        sentence = f"{best.label} is the only policy here: there is nothing to compare it with."
        return Answer(sentence, "One run of one policy.", [*figures, *_side_figures(best, None, metric)])
    runner_up = standings[1]
    ahead = relative(best, runner_up, metric)
    if ahead == 0:
        sentence = f"{best.label} and {runner_up.label} are equally good: the same {metric_label(metric)}."
    elif ahead is None:
        sentence = f"{best.label} is best on {metric_label(metric)}."
    else:
        told = difference_words(ahead, metric)
        sentence = f"{best.label} is best: {told} than {runner_up.label}, the next."
    figures.append(("against the next", percent(ahead), runner_up.label))
    if reference.name not in (best.name, runner_up.name):
        change = percent(relative(best, reference, metric))
        figures.append(("against the first named", change, reference.label))
    sure = (
        "How sure? One run on one workload has no interval. gpuyard evaluate compares on many windows "
        "and says what is beyond chance."
    )
    other = runner_up if reference.name == best.name else reference
    return Answer(sentence, sure, [*figures, *_side_figures(best, other, metric)])


def answer_of_windows(
    best: Standing,
    other: Standing,
    change: Change,
    metric: str,
    what: str,
    words: Sequence[str],
    ties: Sequence[str] = (),
) -> Answer:
    """The answer where policies ran on the same many windows.

    Args:
        best: The best policy.
        other: The one that it is compared with.
        change: Between the two, with its interval.
        metric: The one that decides.
        what: What ``other`` is, in words.
        words: More to say.
        ties: Policies besides ``other`` that are not told apart from the best.
    """
    label, told = metric_label(metric), f"{other.label}, {what}" if what else other.label
    span = interval(change)
    if not span:
        sentence = f"{best.label} is best on {label}, beside {told}."
        if change.ratio == 0:
            sentence = f"{best.label} and {told}, are equally good: the same {label}."
        elif change.ratio is not None:
            sentence = f"{best.label} is best: {difference_words(change.ratio, metric)} than {told}."
        sure = "How sure? One window has no interval: more windows tell what is beyond chance."
    elif change.verdict == "tie" or change.ratio is None:
        sentence = f"{best.label} and {told}, are tied on {label}."
        sure = f"The difference is {percent(change.ratio)}; its 95 % interval, {span}, includes zero."
    else:
        place = "is among the best" if ties else "is best"
        sentence = f"{best.label} {place}: {difference_words(change.ratio, metric)} than {told}."
        sure = f"Beyond chance: the 95 % interval of the difference is {span} and excludes zero."
    sure += _ties_text(ties) if span else ""
    theirs = metric_text(metric, other.values.get(metric))
    sureness = f"95 % interval {span}; " if span else ""
    figures = [
        ("difference", percent(change.ratio), f"{sureness}of {label}, against {other.label}"),
        (label, metric_text(metric, best.values.get(metric)), f"{theirs} with {other.label}"),
        *_side_figures(best, other, metric),
    ]
    return Answer(sentence, sure, figures, words)


def _ties_text(ties: Sequence[str]) -> str:
    if not ties:
        return ""
    more = len(ties) - MOST_TIES
    named = ", ".join(ties[:MOST_TIES]) + (f" and {more} more" if more > 0 else "")
    return f" Statistically tied with the best: {named}."


def relative(one: Standing, other: Standing, metric: str) -> float | None:
    """The relative difference of two policies' values."""
    return ratio_of(one.values, other.values, metric)


def ratio_of(
    values: Mapping[str, float | None], others: Mapping[str, float | None], metric: str
) -> float | None:
    """The relative difference of a value to another; None where that is not defined."""
    own, other = values.get(metric), others.get(metric)
    if own is None or other is None:
        return None
    return 0.0 if own == other else (own - other) / abs(other) if other else None


def _side_figures(best: Standing, other: Standing | None, decisive: str) -> list[tuple[str, str, str]]:
    figures = []
    for metric in SIDE_METRICS:
        if metric != decisive and best.values.get(metric) is not None:
            beside = "" if other is None else _beside(best, other, metric)
            figures.append((metric_label(metric), metric_text(metric, best.values[metric]), beside))
    return figures


def _beside(best: Standing, other: Standing, metric: str) -> str:
    change = percent(relative(best, other, metric))
    own, theirs = best.changes.get(metric), other.changes.get(metric)
    span = interval(own) if own and theirs and theirs.verdict == "reference" else ""
    if span:
        change = f"{change} ({span})"
    return f"{change} against {metric_text(metric, other.values.get(metric))} with {other.label}"
