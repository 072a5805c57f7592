"""Findings of a comparison as sentences, in the notation of a terminal or of a page."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from gpuyard.evaluate.bootstrap import Difference
from gpuyard.evaluate.comparison import Comparison, Loser
from gpuyard.evaluate.findings import Finding, findings, who_loses
from gpuyard.evaluate.setting import Setting
from gpuyard.metrics.guards import ALL, BrokenLimit
from gpuyard.policies.calibrated import CalibrationFigures
from gpuyard.simulation.recorded_waits import RecordedWaits
from gpuyard.units import metric_label, metric_text, number, plural

MOST_LOSERS = 5
FEW_POINTS = 0.0995
"""Changes below this are told with a digit after the point."""
CLASS_WORDS = {
    "priority": "jobs of priority {}",
    "group": "jobs of group {}",
    "gpus": "jobs of {} GPUs",
    "user": "jobs of user {}",
    "partition": "jobs of partition {}",
    "runtime": "jobs that run {}",
}


@dataclass(frozen=True)
class Notation:
    """How numbers are written.

    Attributes:
        many_times: Relative differences from here on are told as a multiple.
        multiple: A multiple as text.
        times: What stands before a multiple.
        minus: The minus sign.
    """

    many_times: float
    multiple: Callable[[float], str]
    times: str
    minus: str

    def change(self, ratio: float) -> str:
        """A relative difference: ``-4.2 %``, ``+35 %``, or ``x 17.5``."""
        if not math.isfinite(ratio):
            return "-" if math.isnan(ratio) else "+∞" if ratio > 0 else f"{self.minus}∞"
        if ratio >= self.many_times:
            return f"{self.times}{self.multiple(1 + ratio)}"
        if ratio == 0.0:
            return "0 %"
        digits = 0 if abs(ratio) >= FEW_POINTS else 1 if abs(ratio) >= FEW_POINTS / 100 else 2
        return f"{100 * ratio:+.{digits}f} %".replace("-", self.minus)

    def interval(self, difference: Difference) -> str:
        """Both ends of an interval; empty if there is none."""
        if math.isnan(difference.low):
            return ""
        return f"{self.change(difference.low)} to {self.change(difference.high)}"

    def apart(self, ratio: float) -> str:
        """``41 % lower than``, ``17.5 times that of``."""
        if ratio == 0.0:
            return "the same as"
        if math.isinf(ratio):
            return f"{'above' if ratio > 0 else 'below'} the 0 of"
        if ratio >= self.many_times:
            return f"{self.multiple(1 + ratio)} times that of"
        size = self.change(abs(ratio)).removeprefix("+").removeprefix(self.times)
        return f"{size} {'lower' if ratio < 0 else 'higher'} than"

    def value(self, metric: str, value: float) -> str:
        """A metric's value."""
        text = metric_text(metric, value)
        return text.replace("-", self.minus, 1) if value < 0 else text


TERMINAL = Notation(9.995, number, "x ", "-")
PAGE = Notation(2.0, lambda times: f"{times:,.1f}" if times < 100 else f"{times:,.0f}", "×", "−")


def verdict_in_words(difference: Difference, setting: Setting) -> str:
    """``better``, ``worse`` or ``tie``; ``unclear`` where the interval is weak, and empty without one."""
    if math.isnan(difference.low):
        return ""
    same = difference.ratio == 0.0
    return "unclear" if setting.has_weak_intervals and not same else difference.verdict


def summary(comparison: Comparison) -> str:
    """A sentence per line."""
    return "\n".join(sentences(comparison, findings(comparison)))


def sentences(comparison: Comparison, found: Sequence[Finding], notation: Notation = TERMINAL) -> list[str]:
    """Findings of a comparison in words.

    Args:
        comparison: Whose.
        found: What is told.
        notation: How numbers are written.
    """
    words = _Words(comparison, notation)
    return [_SENTENCES[one.kind](words, one) for one in found]


def who_loses_in_words(comparison: Comparison) -> list[str]:
    """For each policy that was asked about: which classes of jobs fare worse than under the reference."""
    return sentences(comparison, who_loses(comparison))


def reference_role(comparison: Comparison) -> str:
    """What the reference is."""
    if comparison.reference is not None and comparison.policy(comparison.reference).is_assumed:
        return "taken for what runs today"
    match comparison.chosen_on:
        case "validation":
            return f"the best fixed heuristic on {where_chosen(comparison)}"
        case "first":
            return "the policy that was named first"
    return "the reference"


def where_chosen(comparison: Comparison) -> str:
    """Where the reference was chosen, and by which metric if it is not the one that is told."""
    setting, these = comparison.setting, _these(comparison.setting)
    where = f"earlier {these}" if setting.part == "test" else f"{these} of another part"
    if setting.kind == "episodes":
        where = f"{these} of the train part" if setting.part == "validation" else f"validation {these}"
    if setting.kind == "draws":
        where = "other draws"
    return f"{where} by {metric_label(comparison.evaluated_by)}" if comparison.evaluated_by else where


def class_words(by: str, name: str) -> str:
    """A class of jobs in words: ``jobs of 9-16 GPUs``."""
    words = CLASS_WORDS[by].format(name or "(none)")
    return words.removesuffix("s") if (by, name) == ("gpus", "1") else words


def limit_in_words(broken: BrokenLimit) -> str:
    """``jobs of 5-8 GPUs would wait 144 d (99th percentile), 6 d 3 h today``."""
    who = "jobs" if broken.by == ALL else class_words(broken.by, broken.name)
    which = "99th percentile" if broken.metric == "p99_wait_s" else "at most"
    own, today = (metric_text(broken.metric, one) for one in (broken.own, broken.other))
    return f"{who} would wait {own} ({which}), {today} today"


def one_of(setting: Setting) -> str:
    """One of what policies were compared on: an episode, a run over all jobs, or a window."""
    return {"episodes": "episode", "whole": "run"}.get(setting.kind, "window")


def _these(setting: Setting) -> str:
    """What policies were compared on: windows, draws being windows too, or episodes."""
    return "episodes" if setting.kind == "episodes" else "windows"


def _where(setting: Setting) -> str:
    count, jobs = len(setting.windows), plural(setting.jobs_per_window, "job")
    match setting.kind:
        case "windows":
            part = "" if setting.part == "all" else f"the {setting.part} part of "
            return f"{plural(count, 'window')} of {jobs} of {part}{setting.workload}"
        case "whole":
            part = "all" if setting.part == "all" else f"the {setting.part} part"
            return f"{part} of {setting.workload} ({jobs})"
        case "draws":
            return f"{count} fresh draws of {setting.workload} ({jobs} each)"
    return f"{count} episodes of {setting.workload}"


class _Words:
    """Sentences about one comparison: a method per kind of finding."""

    def __init__(self, comparison: Comparison, notation: Notation) -> None:
        self._comparison, self._setting, self._notation = comparison, comparison.setting, notation
        self._these, self._one = _these(self._setting), one_of(self._setting)

    def _label(self, name: str) -> str:
        return self._comparison.policy(name).label

    def _labels(self, names: Sequence[str]) -> str:
        return ", ".join(map(self._label, names))

    def _against(self, difference: Difference, other: str) -> str:
        """``41 % lower than saf+strict (better; 95 % interval -54 % to -31 %)``, a tie, or unclear."""
        notation, name = self._notation, self._label(other)
        interval = notation.interval(difference)
        if not interval:
            return f"{notation.apart(difference.ratio)} {name} (one {self._one} tells no interval)"
        verdict = verdict_in_words(difference, self._setting)
        span = f"{'weak ' if self._setting.has_weak_intervals else ''}95 % interval {interval}"
        if verdict == "tie":
            return f"a tie with {name} ({notation.change(difference.ratio)}, {span})"
        return f"{notation.apart(difference.ratio)} {name} ({verdict}; {span})"

    def all_alike(self, found: Finding) -> str:
        return (
            f"All {len(found.policies)} policies did the same on {_where(self._setting)}: there is nothing "
            "to choose. Compare on busier jobs or on a smaller cluster."
        )

    def best(self, found: Finding) -> str:
        numbers, (best, *reference) = found.numbers, found.policies
        metric = self._setting.metric
        # Of policies that are not told apart none is the best.
        which = "Best" if numbers["is_alone"] else "Best mean"
        first = (
            f"{which} of {plural(numbers['policies'], 'policy')} on {_where(self._setting)}: "
            f"{self._label(best)}, {metric_label(metric)} {self._notation.value(metric, numbers['value'])}"
        )
        if not reference:
            return f"{first}."
        role = reference_role(self._comparison)
        if numbers["difference"] is None:
            return f"{first}. It is {role}."
        against = self._against(numbers["difference"], reference[0])
        return f"{first}, {against}. {self._label(reference[0])} is {role}."

    def ties(self, found: Finding) -> str:
        how = "Statistically a tie with" if len(self._setting.windows) > 1 else "Exactly as good as"
        return f"{how} the best: {self._labels(found.policies[1:])}."

    def compared(self, found: Finding) -> str:
        policy, other = found.policies
        return f"{self._label(policy)}: {self._against(found.numbers['difference'], other)}."

    def beside(self, found: Finding) -> str:
        parts = [self._beside_one(metric, one) for metric, one in found.numbers.items()]
        where = f" in the whole {self._part()}" if self._comparison.whole is not None else ""
        return f"Other metrics{where}, {self._label(found.policies[0])}: {'; '.join(parts)}."

    def _beside_one(self, metric: str, found: Difference) -> str:
        notation, interval = self._notation, self._notation.interval(found)
        apart = [notation.change(found.ratio), *([interval] if interval else [])]
        told = f" ({', '.join(apart)})" if math.isfinite(found.ratio) else ""
        own, other = notation.value(metric, found.own), notation.value(metric, found.other)
        return f"{metric_label(metric)} {own} against {other}{told}"

    def verdict(self, found: Finding) -> str:
        """Whether to use a policy, in the first words."""
        numbers, (policy, other) = found.numbers, found.policies
        label, reason = self._label(policy), _REASONS[numbers["advice"]](self, found)
        gain = self._gain(numbers["difference"], other)
        whole = numbers["whole"]
        beside = "" if whole is None else f"; {self._in_one_go(whole)}"
        return f"{label}: {reason} {gain}{beside}."

    def _gain(self, difference: Difference, other: str) -> str:
        metric = metric_label(self._setting.metric)
        notation = self._notation
        means = " against ".join(
            notation.value(self._setting.metric, one) for one in (difference.own, difference.other)
        )
        return f"{metric.capitalize()} is {self._against(difference, other)}, mean {means}"

    def _in_one_go(self, whole: Difference) -> str:
        metric, notation = self._setting.metric, self._notation
        own, other = (notation.value(metric, one) for one in (whole.own, whole.other))
        change = notation.change(whole.ratio)
        return f"the whole {self._part()} replayed in one go: {own} against {other} ({change})"

    def _part(self) -> str:
        return "log" if self._setting.part == "all" else f"{self._setting.part} part"

    def _disagrees(self, found: Finding) -> str:
        whole = found.numbers["whole"]
        return (
            f"unclear. Windows and the whole {self._part()} replayed in one go disagree "
            f"({self._notation.change(found.numbers['difference'].ratio)} and "
            f"{self._notation.change(whole.ratio)})."
        )

    def _limits(self, found: Finding) -> str:
        worst: BrokenLimit = found.numbers["broken"][0]
        more = len(found.numbers["broken"]) - 1
        others = f" {plural(more, 'more limit')} on waits would be broken." if more else ""
        return f"not recommended: {limit_in_words(worst)}.{others} Without that:"

    def _unknowable(self, found: Finding) -> str:
        return (
            f"an upper bound, no recommendation: policies knew run times as no scheduler does "
            f"(estimates {self._setting.estimates})."
        )

    def _unchecked(self, found: Finding) -> str:
        why = f"the whole {self._part()} was not replayed"
        if self._comparison.preempts(found.policies[0]):
            why = "it stops running jobs, and limits count waits for the first start alone"
        elif self._setting.kind == "draws":
            why = "fresh draws have no whole log"
        elif not self._setting.guards:
            why = "none are set"
        return f"better in windows, but limits on waits were not checked ({why})."

    def unexplained(self, found: Finding) -> str:
        waits: RecordedWaits = found.numbers["waits"]
        return waits.in_words()

    def rival(self, found: Finding) -> str:
        rival = found.policies[-1]
        own = [f"{self._label(name)} is {self._against(one, rival)}" for name, one in found.numbers.items()]
        said = f": {'; '.join(own)}" if own else ""
        return f"{self._label(rival)} was the best fixed heuristic on {where_chosen(self._comparison)}{said}."

    def starts(self, found: Finding) -> str:
        numbers = found.numbers
        text = (
            f"Compared on {_where(self._setting)}. They begin on a busy cluster: {numbers['before']:,} jobs "
            f"run before each under the same policy and {numbers['after']:,} arrive after it; neither count."
        )
        if numbers.get("agrees", True):
            return text
        gap = self._notation.change(numbers["gap"])
        return (
            f"{text} Even so figures depend on how full the cluster begins (after a jam {gap}): it hardly "
            "catches up with these jobs. Go by the replay of the whole part."
        )

    def recorded_start(self, found: Finding) -> str:
        numbers = found.numbers
        after = f", and {plural(numbers['after'], 'job')} may arrive after" if numbers["after"] else ""
        text = (
            f"Compared on {_where(self._setting)}. The cluster begins as the log recorded it: jobs that ran "
            f"run on, jobs that waited wait{after}; they do not count."
        )
        if not numbers["silent"]:
            return text
        are = "is" if numbers["silent"] == 1 else "are"
        return f"{text} {plural(numbers['silent'], 'job')} without a recorded start {are} in no beginning."

    def not_tried(self, found: Finding) -> str:
        names = " and ".join(found.numbers["backfills"])
        return (
            f"No fixed heuristic was tried with {names}, which would take minutes on windows of so many "
            "jobs; name such a policy to see it."
        )

    def cold(self, found: Finding) -> str:
        return (
            f"Compared on {_where(self._setting)}. They begin with an empty cluster and end by draining it, "
            "as was asked for: on a running cluster waits are longer."
        )

    def hindsight(self, found: Finding) -> str:
        best, reference = found.policies
        label = self._label(best)
        if best == reference:
            return f"In hindsight, too, {label} is the best fixed heuristic on these {self._these}."
        value = self._notation.value(self._setting.metric, found.numbers["value"])
        return (
            f"In hindsight {label} is the best fixed heuristic on these very {self._these} ({value}): "
            f"{self._against(found.numbers['difference'], reference)}."
        )

    def against_hindsight(self, found: Finding) -> str:
        best = found.policies[-1]
        own = [f"{self._label(name)} is {self._against(one, best)}" for name, one in found.numbers.items()]
        return f"Against that one, {'; '.join(own)}."

    def one_window(self, found: Finding) -> str:
        return f"One {self._one} tells no interval: what is better here may be worse on other jobs."

    def weak(self, found: Finding) -> str:
        """That there are too few windows, and what helps: of windows that overlap, more do not."""
        setting, these, overlap = self._setting, self._these, self._setting.block > 1
        which = f"that overlap amount to {setting.disjoint:.1f} side by side," if overlap else "are"
        if setting.kind in ("draws", "episodes") and not overlap:
            more = f"more {'draws' if setting.kind == 'draws' else these}"
        elif setting.kind == "episodes":
            more = "episodes of fewer jobs or a longer trace"
        else:
            more = f"{'shorter' if overlap else 'more'} windows, fresh draws or a longer trace"
        return (
            f"The intervals are weak: {found.numbers['windows']} {these} {which} too few to tell how {these} "
            f"differ; {more} tell more."
        )

    def overlap(self, found: Finding) -> str:
        block = found.numbers["block"]
        these = self._these.capitalize()
        return f"{these} overlap; intervals are by a bootstrap over blocks of {block} of them."

    def replays(self, found: Finding) -> str:
        which = "the least" if found.numbers["recorded"] else "the median"
        return (
            f"Limits on waits count {which} of {found.numbers['replays']} replays with submits up to a "
            "minute later, because waits in one replay are partly chance."
        )

    def placement(self, found: Finding) -> str:
        return f"All policies place jobs by {found.numbers['placement']}."

    def noise(self, found: Finding) -> str:
        return f"Figures of a window are means over {found.numbers['draws']} draws of the estimates' noise."

    def seen(self, found: Finding) -> str:
        part = "the workload" if self._setting.part == "all" else f"the {self._setting.part} part"
        return (
            f"Learned policies may have been trained or chosen on jobs of {part}: what holds on jobs that "
            "they have not seen is told by the test part alone."
        )

    def left_out(self, found: Finding) -> str:
        return f"Left out, as they can never run on the cluster: {plural(found.numbers['jobs'], 'job')}."

    def unfinished(self, found: Finding) -> str:
        most = list(found.numbers.items())[:MOST_LOSERS]
        told = ", ".join(f"{self._label(name)} {number(mean)}" for name, mean in most)
        return (
            "Episodes were cut off before all jobs had ended, and metrics of jobs are of those that had; "
            f"jobs left unfinished, on average: {told}."
        )

    def calibrated(self, found: Finding) -> str:
        figures = CalibrationFigures.model_validate(dict(found.numbers))
        return figures.sentence(self._label(found.policies[0]))

    def losers(self, found: Finding) -> str:
        policy = found.policies[0]
        label, other = self._label(policy), self._label(found.policies[-1])
        if len(self._setting.windows) < 2:
            return f"{label}: one window does not tell which jobs are worse off than under {other}."
        worst: Sequence[Loser] = found.numbers["losers"]
        broken = self._broken(found.numbers["broken"])
        if not worst:
            return f"{label}: {broken or f'no class of jobs is clearly worse off than under {other}'}."
        parts = [self._loser(one) for one in worst[:MOST_LOSERS]]
        if len(worst) > MOST_LOSERS:
            parts.append(f"and {len(worst) - MOST_LOSERS} more")
        weak = ", by weak intervals," if self._setting.has_weak_intervals else ""
        more = f" {broken[:1].upper()}{broken[1:]}." if broken else ""
        return f"{label}: worse off than under {other}{weak} are {', '.join(parts)}.{more}"

    def _broken(self, limits: Sequence[BrokenLimit]) -> str:
        """All limits on waits that would be broken, one entry per class, as far as there is room."""
        worst = {(one.by, one.name): one for one in reversed(limits)}
        told = [limit_in_words(one) for one in reversed(worst.values())]
        if not told:
            return ""
        more = len(told) - MOST_LOSERS
        named = "; ".join([*told[:MOST_LOSERS], *([f"and {more} more"] if more > 0 else [])])
        return f"in the whole {self._part()}, {named}"

    def _loser(self, one: Loser) -> str:
        own, other = (metric_text(one.metric, each) for each in (one.difference.own, one.difference.other))
        rise = self._notation.change(one.difference.ratio)
        return f"{class_words(one.by, one.name)} ({metric_label(one.metric)} {own} against {other}, {rise})"


_SENTENCES: Mapping[str, Callable[[_Words, Finding], str]] = {
    "all-alike": _Words.all_alike,
    "best": _Words.best,
    "ties": _Words.ties,
    "compared": _Words.compared,
    "beside": _Words.beside,
    "verdict": _Words.verdict,
    "rival": _Words.rival,
    "starts": _Words.starts,
    "cold": _Words.cold,
    "recorded-start": _Words.recorded_start,
    "not-tried": _Words.not_tried,
    "hindsight": _Words.hindsight,
    "against-hindsight": _Words.against_hindsight,
    "one-window": _Words.one_window,
    "weak": _Words.weak,
    "overlap": _Words.overlap,
    "replays": _Words.replays,
    "placement": _Words.placement,
    "noise": _Words.noise,
    "seen": _Words.seen,
    "left-out": _Words.left_out,
    "unfinished": _Words.unfinished,
    "losers": _Words.losers,
    "unexplained": _Words.unexplained,
    "calibrated": _Words.calibrated,
}

_REASONS: Mapping[str, Callable[[_Words, Finding], str]] = {
    "recommended": lambda words, found: "recommended.",
    "limits": _Words._limits,
    "disagrees": _Words._disagrees,
    "unexplained": lambda words, found: "no recommendation, as the waits of the log are not explained.",
    "unknowable": _Words._unknowable,
    "unchecked": _Words._unchecked,
    "worse": lambda words, found: "not recommended.",
    "no gain": lambda words, found: "not recommended, no clear gain.",
    "unclear": lambda words, found: "unclear.",
}
