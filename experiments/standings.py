"""What a comparison says of its policies, a row each; seeds of one kind of training are one row."""

import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Literal

import numpy as np

from experiments.published import Apart, Differences, Row, finite
from gpuyard.errors import InputError
from gpuyard.evaluate import Comparison, Difference, PolicyEntry
from gpuyard.evaluate.bootstrap import Floats, paired_difference, resampled_interval
from gpuyard.evaluate.findings import advice
from gpuyard.evaluate.setting import lower_is_better, offset_of
from gpuyard.evaluate.wording import limit_in_words
from gpuyard.runs.directory import BEST

JCT = "mean_jct_s"
_NUMBERED = re.compile(r"^(.+)-\d+$")


def standings(comparison: Comparison) -> list[Row]:
    """Every policy that is shown, the best first; seeds of one kind of training are merged."""
    return ranked(comparison, [standing(comparison, entries) for entries in _groups(comparison.shown)])


def ranked(comparison: Comparison, rows: Iterable[Row]) -> list[Row]:
    """Rows of a comparison, the best first."""
    sign = 1.0 if comparison.setting.lower_is_better else -1.0
    return sorted(rows, key=lambda row: (sign * row.value, row.label))


def standing(
    comparison: Comparison, entries: Sequence[PolicyEntry], differences: Differences = "geometric"
) -> Row:
    """How policies that differ in their seed alone did: means over them in every window."""
    setting, first = comparison.setting, entries[0]
    several, numbered = len(entries) > 1, _NUMBERED.match(first.label)
    policies = tuple(entry.name for entry in entries)
    difference = _difference(comparison, entries, setting.metric, differences)
    alone = [_difference(comparison, [entry], setting.metric, differences) for entry in entries if several]
    seeds = [comparison.mean(name) for name in policies]
    kind: Literal["tuned", "heuristic"] = "tuned" if first.role == "given" else "heuristic"
    jct = None if setting.metric == JCT else _difference(comparison, entries, JCT, differences)
    whole = None if several or comparison.whole is None else comparison.whole_rows().get(first.name)
    in_whole = None if whole is None or difference is None else comparison.in_whole(first.name)
    return Row(
        label=numbered[1] if several and numbered else first.label,
        policies=policies,
        kind="learned" if first.kind == "learned" else kind,
        is_reference=comparison.reference in policies,
        is_best_in_hindsight=comparison.hindsight in policies,
        is_best_beforehand=comparison.rival in policies and comparison.reference not in policies,
        preempts=first.role == "preempting",
        seeds=len(entries),
        value=float(np.mean(seeds)),
        lowest=min(seeds) if several else None,
        highest=max(seeds) if several else None,
        difference=Apart.of(difference, setting),
        better=sum(one.verdict == "better" for one in alone if one) if several and difference else None,
        jct=Apart.of(jct, setting),
        mean_wait_s=_mean(comparison, entries, "mean_wait_s"),
        p99_wait_s=_mean(comparison, entries, "p99_wait_s"),
        max_wait_s=_mean(comparison, entries, "max_wait_s"),
        whole=None if whole is None else whole.get(setting.metric),
        whole_change=None if in_whole is None else finite(in_whole.ratio),
        advice=_advice(comparison, first.name) if in_whole is not None else "",
    )


def _advice(comparison: Comparison, policy: str) -> str:
    """What to do about a policy, in few words."""
    found = advice(comparison, policy)
    if found == "limits":
        return f"not recommended: {limit_in_words(comparison.broken_limits(policy)[0])}"
    return {
        "disagrees": "unclear: windows and the whole part disagree",
        "unknowable": "an upper bound",
        "unchecked": "limits were not checked",
    }.get(found, found)


def resampled_interval_of(comparison: Comparison, policies: Sequence[str]) -> tuple[float, float] | None:
    """The interval of the difference to the reference before it is widened; None if there is none."""
    reference = comparison.reference
    if reference is None or len(comparison.setting.windows) < 2:
        return None
    own, other = (
        _values(comparison, [comparison.policy(name) for name in names], comparison.setting.metric)
        for names in (policies, [reference])
    )
    if own is None or other is None:
        return None
    return resampled_interval(
        own, other, comparison.setting.block, offset=offset_of(comparison.setting.metric)
    )


def _groups(entries: Iterable[PolicyEntry]) -> list[list[PolicyEntry]]:
    """Learned policies whose labels differ in the number at their end alone, and every other by itself."""
    groups: dict[str, list[PolicyEntry]] = {}
    for entry in entries:
        numbered = _NUMBERED.match(entry.label)
        is_seed = numbered is not None and entry.kind == "learned" and entry.role == "given"
        groups.setdefault(f"{numbered[1]}-N" if is_seed and numbered else entry.name, []).append(entry)
    return list(groups.values())


def _values(comparison: Comparison, entries: Sequence[PolicyEntry], metric: str) -> Floats | None:
    """A metric of every window, the mean over policies; None where one is unknown."""
    if not all(comparison.knows(entry.name, metric) for entry in entries):
        return None
    return np.asarray(
        np.mean([comparison.values(entry.name, metric) for entry in entries], axis=0), np.float64
    )


def _mean(comparison: Comparison, entries: Sequence[PolicyEntry], metric: str) -> float | None:
    values = _values(comparison, entries, metric)
    return None if values is None else float(values.mean())


def _difference(
    comparison: Comparison, entries: Sequence[PolicyEntry], metric: str, differences: Differences
) -> Difference | None:
    setting, reference = comparison.setting, comparison.reference
    if reference is None or entries[0].name == reference:
        return None
    own, other = (_values(comparison, who, metric) for who in (entries, [comparison.policy(reference)]))
    if own is None or other is None:
        return None
    known = tuple(comparison.windows.columns[2:])
    lower = setting.lower_is_better if metric == setting.metric else lower_is_better(metric, known)
    return paired_difference(
        own,
        other,
        block=setting.block,
        disjoint=setting.disjoint,
        lower_is_better=lower,
        offset=offset_of(metric) if differences == "geometric" else None,
    )


def entry_of_run(comparison: Comparison, run: str) -> PolicyEntry:
    """The policy that comes from a run's best model.

    Raises:
        InputError: if it was not compared.
    """
    for entry in comparison.policies:
        path = Path(entry.source) if entry.source else None
        if path is not None and (path.name == run or (path.name == BEST and path.parent.name == run)):
            return entry
    there = ", ".join(entry.label for entry in comparison.policies if entry.kind == "learned") or "none"
    raise InputError(f"the run {run} was not compared; learned policies that were: {there}")
