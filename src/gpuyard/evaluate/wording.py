"""A comparison in words: who is best, by how much, how sure that is, and who pays for it."""

import math
from collections.abc import Sequence

import numpy as np

from gpuyard.evaluate.bootstrap import Difference, usable_block
from gpuyard.evaluate.by_window import by_window
from gpuyard.evaluate.comparison import TOLD_BESIDE, Comparison, Loser
from gpuyard.evaluate.setting import UNFINISHED, Setting
from gpuyard.policies.grammar import DEFAULT_PLACEMENT
from gpuyard.units import metric_label, metric_text, number, plural

MOST_LOSERS = 5
FEW_POINTS = 0.0995
"""Changes below this are told with a digit after the point."""
MANY_TIMES = 9.995
CLASS_WORDS = {
    "priority": "jobs of priority {}",
    "group": "jobs of group {}",
    "gpus": "jobs of {} GPUs",
    "user": "jobs of user {}",
    "duration": "jobs that run {}",
}


def change(ratio: float) -> str:
    """A relative difference: ``-4.2 %``, ``+35 %``, and from ten times on ``x 17.5``."""
    if not math.isfinite(ratio):
        return "-" if math.isnan(ratio) else "+∞" if ratio > 0 else "-∞"
    if ratio >= MANY_TIMES:
        return f"x {number(1 + ratio)}"
    if ratio == 0.0:
        return "0 %"
    digits = 0 if abs(ratio) >= FEW_POINTS else 1 if abs(ratio) >= FEW_POINTS / 100 else 2
    return f"{100 * ratio:+.{digits}f} %"


def interval_text(difference: Difference) -> str:
    """Both ends of an interval; empty if there is none."""
    if math.isnan(difference.low):
        return ""
    return f"{change(difference.low)} to {change(difference.high)}"


def verdict_in_words(difference: Difference, setting: Setting) -> str:
    """``better``, ``worse`` or ``tie``; ``unclear`` where the interval is weak, and empty without one."""
    if math.isnan(difference.low):
        return ""
    same = difference.ratio == 0.0
    return "unclear" if setting.has_weak_intervals and not same else difference.verdict


def summary(comparison: Comparison) -> str:
    """A sentence a line."""
    judged = _judged(comparison)
    answer = [
        *_who_is_best(comparison),
        *(line for name in judged for line in _beside(comparison, name)),
        *(line for name in judged for line in _by_window(comparison, name)),
        *_hindsight(comparison),
        *_how_sure(comparison),
    ]
    return "\n".join(
        [
            *(_nothing_to_choose(comparison) or answer),
            *_placement(comparison),
            *_noise(comparison),
            *_what_was_seen(comparison),
            *_left_out(comparison),
            *unfinished_in_words(comparison),
        ]
    )


def _nothing_to_choose(comparison: Comparison) -> list[str]:
    if not _all_alike(comparison):
        return []
    return [
        f"All {len(comparison.shown)} policies did the same on {_where(comparison)}: there is nothing to "
        "choose. Compare on busier jobs or on a smaller cluster."
    ]


def _all_alike(comparison: Comparison) -> bool:
    """Whether no policy that is shown differs from another in any window."""
    metrics = (comparison.setting.metric, *TOLD_BESIDE)
    rows = [
        [comparison.values(entry.name, metric) for metric in metrics if comparison.knows(entry.name, metric)]
        for entry in comparison.shown
    ]
    return len(rows) > 1 and all(np.array_equal(row, rows[0], equal_nan=True) for row in rows[1:])


def who_loses_in_words(comparison: Comparison) -> list[str]:
    """For each policy that was asked about: which classes of jobs fare worse than under the reference."""
    return [_losers(comparison, name) for name in _judged(comparison) if len(comparison.classes)]


def _judged(comparison: Comparison) -> list[str]:
    """Policies that deserve a sentence of their own: those asked about, else the best one."""
    given = [entry.name for entry in comparison.shown if entry.role == "given"]
    best = [name for name in comparison.ranking() if comparison.policy(name).is_shown][:1]
    return [name for name in given or best if name != comparison.reference]


def _who_is_best(comparison: Comparison) -> list[str]:
    setting = comparison.setting
    label = metric_label(setting.metric)
    shown = [name for name in comparison.ranking() if comparison.policy(name).is_shown]
    if not shown:
        return []
    best, reference = shown[0], comparison.reference
    value = metric_text(setting.metric, comparison.mean(best))
    weak = setting.has_weak_intervals
    ties = [] if weak else [_label(comparison, name) for name in tied_with(comparison, best)]
    which = "Best mean" if ties or weak else "Best"  # of policies that are not told apart none is the best
    first = f"{which} of {plural(len(shown), 'policy')} on {_where(comparison)}: {_label(comparison, best)}, "
    first += f"{label} {value}"
    if reference is None:
        return [f"{first}."]
    role = reference_role(comparison)
    if best == reference:
        lines = [f"{first}. It is {role}."]
    else:
        lines = [f"{first}, {_against(comparison, best)}. {_label(comparison, reference)} is {role}."]
    if ties:
        how = "Statistically a tie with" if len(setting.windows) > 1 else "Exactly as good as"
        lines.append(f"{how} the best: {', '.join(ties)}.")
    return lines + [
        f"{_label(comparison, name)}: {_against(comparison, name)}."
        for name in _judged(comparison)
        if name != best
    ]


def tied_with(comparison: Comparison, best: str) -> list[str]:
    """Names of shown policies that the windows do not tell apart from the best one, the better first."""
    one_window = len(comparison.setting.windows) < 2
    shown = [name for name in comparison.ranking() if comparison.policy(name).is_shown and name != best]
    found = {name: comparison.difference(name, best) for name in shown}
    return [name for name, one in found.items() if (one.ratio == 0.0 if one_window else one.verdict == "tie")]


def where_chosen(comparison: Comparison) -> str:
    """Where the reference was chosen, and by which metric if it is not the one that is told."""
    setting, these = comparison.setting, _these(comparison.setting)
    where = f"{these} of the train part" if setting.part == "validation" else f"validation {these}"
    if setting.kind == "draws":
        where = "other draws"
    return f"{where} by {metric_label(comparison.evaluated_by)}" if comparison.evaluated_by else where


def reference_role(comparison: Comparison) -> str:
    """What the reference is."""
    match comparison.chosen_on:
        case "validation":
            return f"the best fixed heuristic on {where_chosen(comparison)}"
        case "first":
            return "the policy that was named first"
    return "the reference"


def _against(comparison: Comparison, policy: str, other: str | None = None) -> str:
    """``41 % lower than saf+strict (better; 95 % interval -54 % to -31 %)``, that it is a tie, or unclear."""
    difference = comparison.difference(policy, other)
    name = _label(comparison, other or comparison.reference or "")
    interval = interval_text(difference)
    if not interval:
        return f"{_apart(difference.ratio)} {name} (one {one_of(comparison.setting)} tells no interval)"
    verdict = verdict_in_words(difference, comparison.setting)
    span = f"{'weak ' if comparison.setting.has_weak_intervals else ''}95 % interval {interval}"
    if verdict == "tie":
        return f"a tie with {name} ({change(difference.ratio)}, {span})"
    return f"{_apart(difference.ratio)} {name} ({verdict}; {span})"


def _apart(ratio: float) -> str:
    if ratio == 0.0:
        return "the same as"
    if math.isinf(ratio):
        return f"{'above' if ratio > 0 else 'below'} the 0 of"
    if ratio >= MANY_TIMES:
        return f"{number(1 + ratio)} times that of"
    size = change(abs(ratio)).removeprefix("+")
    return f"{size} {'lower' if ratio < 0 else 'higher'} than"


def _beside(comparison: Comparison, policy: str) -> list[str]:
    """What stands beside the metric: completion time and the longest waits."""
    if comparison.reference is None:
        return []
    parts = []
    for metric in TOLD_BESIDE:
        if metric == comparison.setting.metric or not (
            comparison.knows(policy, metric) and comparison.knows(comparison.reference, metric)
        ):
            continue
        found = comparison.difference(policy, metric=metric)
        apart = [change(found.ratio), *([interval_text(found)] if interval_text(found) else [])]
        told = f" ({', '.join(apart)})" if math.isfinite(found.ratio) else ""
        parts.append(
            f"{metric_label(metric)} {metric_text(metric, found.own)} against "
            f"{metric_text(metric, found.other)}{told}"
        )
    return [f"Beside it, {_label(comparison, policy)}: {'; '.join(parts)}."] if parts else []


def by_window_in_words(comparison: Comparison, policies: Sequence[str]) -> str:
    """In how many windows policies beat the reference, by how much in the median one, and without the best.

    Args:
        comparison: Whose windows.
        policies: Names; of several the mean in every window is told.

    Returns:
        Sentences; empty if there are fewer than three windows, or nothing to compare with.
    """
    found = by_window(comparison, policies)
    if found is None:
        return ""
    return (
        f"ahead in {found.ahead:,} of {found.windows:,} {_these(comparison.setting)}, "
        f"behind in {found.behind:,}; {change(found.median)} in the median one; without the one that favours "
        f"it most, the means are {change(found.without_best)} apart"
    )


def _by_window(comparison: Comparison, policy: str) -> list[str]:
    told = by_window_in_words(comparison, [policy])
    one = _these(comparison.setting).removesuffix("s")
    return [f"{one.capitalize()} by {one}, {_label(comparison, policy)}: {told}."] if told else []


def _hindsight(comparison: Comparison) -> list[str]:
    best = comparison.hindsight
    if best is None:
        return []
    label = _label(comparison, best)
    these = _these(comparison.setting)
    if best == comparison.reference:
        return [f"In hindsight, too, {label} is the best fixed heuristic on these {these}."]
    value = metric_text(comparison.setting.metric, comparison.mean(best))
    line = (
        f"In hindsight {label} is the best fixed heuristic on these very {these} ({value}): "
        f"{_against(comparison, best)}."
    )
    own = [
        f"{_label(comparison, name)} is {_against(comparison, name, best)}"
        for name in _judged(comparison)
        if name != best
    ]
    return [line, *([f"Against that one, {'; '.join(own)}."] if own else [])]


def _how_sure(comparison: Comparison) -> list[str]:
    setting = comparison.setting
    count = len(setting.windows)
    if count < 2:
        return [f"One {one_of(setting)} tells no interval: what is better here may be worse on other jobs."]
    if setting.is_weak:
        return [_weak(setting)]
    if setting.block > 1:
        block = usable_block(setting.block, count)
        these = _these(setting).capitalize()
        return [f"{these} overlap; intervals are by a bootstrap over blocks of {block} of them."]
    return []


def _weak(setting: Setting) -> str:
    """That there are too few windows, and what helps: of windows that overlap, more do not."""
    these, overlap = _these(setting), setting.block > 1
    which = f"that overlap amount to {setting.disjoint:.1f} side by side," if overlap else "are"
    if setting.kind in ("draws", "episodes") and not overlap:
        more = f"more {'draws' if setting.kind == 'draws' else these}"
    elif setting.kind == "episodes":
        more = "episodes of fewer jobs or a longer trace"
    else:
        more = f"{'shorter' if overlap else 'more'} windows, fresh draws or a longer trace"
    return (
        f"The intervals are weak: {len(setting.windows)} {these} {which} too few to tell how {these} differ; "
        f"{more} tell more."
    )


def _these(setting: Setting) -> str:
    """What policies were compared on: windows, draws being windows too, or episodes."""
    return "episodes" if setting.kind == "episodes" else "windows"


def one_of(setting: Setting) -> str:
    """One of what policies were compared on: an episode, a run over all jobs, or a window."""
    return {"episodes": "episode", "whole": "run"}.get(setting.kind, "window")


def _what_was_seen(comparison: Comparison) -> list[str]:
    """That policies may have been trained, or chosen, on the very jobs that they are compared on."""
    setting = comparison.setting
    learned = any(entry.kind == "learned" for entry in comparison.shown)
    if not learned or setting.part == "test" or setting.kind == "draws":
        return []
    part = "the workload" if setting.part == "all" else f"the {setting.part} part"
    return [
        f"Learned policies may have been trained or chosen on jobs of {part}: what holds on jobs that they "
        "have not seen is told by the test part alone."
    ]


def _placement(comparison: Comparison) -> list[str]:
    """Where jobs go, if that is the same for all and not what names of policies leave out."""
    placements = {entry.placement for entry in comparison.shown}
    if len(placements) != 1 or placements == {DEFAULT_PLACEMENT}:
        return []
    return [f"All policies place jobs by {placements.pop()}."]


def _noise(comparison: Comparison) -> list[str]:
    draws = comparison.setting.noise_draws
    return [f"Figures of a window are means over {draws} draws of the estimates' noise."] if draws > 1 else []


def _left_out(comparison: Comparison) -> list[str]:
    count = comparison.setting.left_out
    return [f"Left out, as they can never run on the cluster: {plural(count, 'job')}."] if count else []


def unfinished_in_words(comparison: Comparison) -> list[str]:
    """That episodes were cut off: means over finished jobs favour a policy that leaves the worst undone."""
    if UNFINISHED not in comparison.windows.columns:
        return []
    means = {
        entry.label: comparison.mean(entry.name, UNFINISHED)
        for entry in comparison.shown
        if comparison.knows(entry.name, UNFINISHED)
    }
    if not any(means.values()):
        return []
    most = sorted(means.items(), key=lambda one: -one[1])
    told = ", ".join(f"{label} {number(mean)}" for label, mean in most[:MOST_LOSERS])
    return [
        "Episodes were cut off before all jobs had ended, and metrics of jobs are of those that had; jobs "
        f"left unfinished, on average: {told}."
    ]


def _where(comparison: Comparison) -> str:
    setting = comparison.setting
    count, jobs = len(setting.windows), plural(setting.jobs_per_window, "job")
    match setting.kind:
        case "windows":
            return f"{plural(count, 'window')} of {jobs} of the {setting.part} part of {setting.workload}"
        case "whole":
            part = "all" if setting.part == "all" else f"the {setting.part} part"
            return f"{part} of {setting.workload} ({jobs})"
        case "draws":
            return f"{count} fresh draws of {setting.workload} ({jobs} each)"
    return f"{count} episodes of {setting.workload}"


def _label(comparison: Comparison, name: str) -> str:
    return comparison.policy(name).label


def class_words(loser: Loser) -> str:
    """A class of jobs in words: ``jobs of 9-16 GPUs``."""
    words = CLASS_WORDS[loser.by].format(loser.name or "(none)")
    return words.removesuffix("s") if (loser.by, loser.name) == ("gpus", "1") else words


def _losers(comparison: Comparison, policy: str) -> str:
    label, other = _label(comparison, policy), _label(comparison, comparison.reference or policy)
    if len(comparison.setting.windows) < 2:
        return f"{label}: one window does not tell which jobs are worse off than under {other}."
    losers = comparison.who_loses(policy)
    if not losers:
        return f"{label}: no class of jobs is clearly worse off than under {other}."
    worst = worst_of_each_class(losers)
    parts = [
        f"{class_words(one)} ({metric_label(one.metric)} "
        f"{metric_text(one.metric, one.difference.own)} against "
        f"{metric_text(one.metric, one.difference.other)}, {change(one.difference.ratio)})"
        for one in worst[:MOST_LOSERS]
    ]
    if len(worst) > MOST_LOSERS:
        parts.append(f"and {len(worst) - MOST_LOSERS} more")
    weak = ", by weak intervals," if comparison.setting.has_weak_intervals else ""
    return f"{label}: worse off than under {other}{weak} are {', '.join(parts)}."


def worst_of_each_class(losers: Sequence[Loser]) -> list[Loser]:
    """One entry a class, those with the largest rise first."""
    found: dict[tuple[str, str], Loser] = {}
    for one in sorted(losers, key=lambda loser: -loser.difference.ratio):
        found.setdefault((one.by, one.name), one)
    return list(found.values())
