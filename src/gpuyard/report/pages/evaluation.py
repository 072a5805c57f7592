"""A comparison as a report: policies on the same windows, with intervals, or each once on a whole log."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import polars as pl

from gpuyard.cluster.model import Cluster
from gpuyard.errors import InputError
from gpuyard.evaluate.bootstrap import Difference, usable_block
from gpuyard.evaluate.comparison import Comparison, Loser
from gpuyard.evaluate.setting import PolicyEntry, Setting
from gpuyard.metrics.classes import LOSING, MEASURES, several_classes
from gpuyard.report.answer import answer_of_windows, chosen_pair, reference_text
from gpuyard.report.facts import information_text, read_cluster, setting_facts
from gpuyard.report.model import Report, Standing
from gpuyard.units import metric_label, plural

TOLD = (
    *("mean_wait_s", "p99_wait_s", "max_wait_s", "mean_jct_s", "mean_bounded_slowdown", "gpu_utilization"),
    *("jain_fairness", "finish_time_fairness_p95", "energy_kwh"),
)
"""Metrics for which differences are worked out."""
RISES = 0.01
"""Without intervals, smaller rises are not worth a line."""
FIRST_WINDOW = "The first window of the comparison."
_SAME = {
    "fingerprint": "workloads",
    "cluster": "clusters",
    "information": "information",
    "noise_draws": "draws of noise",
    "part": "parts of the workload",
    "windows": "windows",
    "jobs_per_window": "windows",
    "environment": "environments",
    "kind": "kinds of windows",
    "start": "starts of windows",
    "metric": "metrics",
}
"""Of settings that must be equal: what is said to differ."""


def merge(comparisons: Sequence[Comparison], names: Sequence[str]) -> Comparison:
    """All policies of comparisons over the same windows; a policy that several have is taken once.

    Raises:
        InputError: if they are not over the same windows, with the same information.
    """
    first = comparisons[0]
    merged = first
    for one, name in zip(comparisons[1:], names[1:], strict=True):
        for field, thing in _SAME.items():
            own, their = getattr(first.setting, field), getattr(one.setting, field)
            if own != their:
                raise InputError(
                    f"{names[0]} and {name} are over different {thing}{_first_difference(own, their)}: they "
                    "cannot be compared with each other"
                )
        merged = _joined(merged, one)
    return merged


def _first_difference(own: object, their: object) -> str:
    """Which of several settings differs first; empty if they are no settings."""
    if not isinstance(own, Mapping) or not isinstance(their, Mapping) or "estimates" not in own:
        return ""
    key = next(key for key in {**own, **their} if own.get(key) != their.get(key))
    return f" ({key} is {own.get(key)!r} in one and {their.get(key)!r} in the other)"


def _joined(one: Comparison, other: Comparison) -> Comparison:
    # What one has among its heuristics without a row, and the other with one, is taken from the other.
    told_more = {entry.name for entry in other.shown} - {entry.name for entry in one.shown}
    kept = tuple(_asked_in(other, entry) for entry in one.policies if entry.name not in told_more)
    known = {entry.name for entry in kept}
    added = tuple(_no_reference(entry) for entry in other.policies if entry.name not in known)
    names = [entry.name for entry in added]
    labels = {entry.label for entry in kept}
    added = tuple(replace(e, label=e.name) if e.label in labels else e for e in added)
    own, their = one.jobs, other.jobs
    fresh = pl.col("policy").is_in(names)
    windows = one.windows.filter(~pl.col("policy").is_in(list(told_more)))
    jobs = own if their is None else their if own is None else _stacked(own, their.filter(fresh))
    return replace(
        one,
        policies=(*kept, *added),
        reference=one.reference or other.reference,
        hindsight=one.hindsight or other.hindsight,
        windows=_stacked(windows, other.windows.filter(fresh)),
        classes=_stacked(one.classes, other.classes.filter(fresh)),
        jobs=jobs,
        schedules={**other.schedules, **one.schedules},
        executions={**other.executions, **one.executions},
        accounts={**other.accounts, **one.accounts},
    )


def _no_reference(entry: PolicyEntry) -> PolicyEntry:
    """The reference of one comparison is one of the policies of another."""
    return entry.beside() if entry.role == "reference" else entry


def _asked_in(comparison: Comparison, entry: PolicyEntry) -> PolicyEntry:
    """A policy that merely stands beside others in one comparison may have been asked for in another."""
    asked = any(one.name == entry.name and one.role == "given" for one in comparison.policies)
    return (
        replace(entry, role="given")
        if asked and entry.role in ("rival", "hindsight", "preempting")
        else entry
    )


def _stacked(one: pl.DataFrame, other: pl.DataFrame) -> pl.DataFrame:
    return pl.concat([one, other], how="diagonal_relaxed")


def evaluation_report(comparison: Comparison, directories: Sequence[str]) -> Report:
    """A comparison as a report."""
    setting = comparison.setting
    standings = _standings(comparison)
    if not standings:
        raise InputError(f"{', '.join(directories) or 'the comparison'}: holds no results")
    subject, other = chosen_pair(comparison, standings)
    where = directories[0] if directories else "the comparison"
    cluster = read_cluster(setting.cluster, where) if setting.cluster else None
    count = len(setting.windows)
    on = f"on {cluster.name}, " if cluster else ""
    told = _windows_text(setting.kind, count, setting.jobs_per_window, setting.part)
    told += " begun as recorded," if setting.start == "recorded" else ""
    schedules = dict(comparison.schedules)
    classes = _classes(comparison)
    losses, losses_text = _losses(comparison, classes, subject, other)
    return Report(
        title=f"{setting.workload}: {plural(len(standings), 'policy')} compared",
        subtitle=f"{told} {on}{information_text(setting.information)}",
        answer=answer_of_windows(comparison, standings, subject, other),
        metric=setting.metric,
        lower_is_better=setting.lower_is_better,
        standings=standings,
        best=next((one.name for one in standings if one.role != "recorded"), standings[0].name),
        subject=subject.name,
        reference=comparison.reference,
        reference_text=reference_text(comparison),
        outcomes=_outcomes(comparison, schedules),
        schedules=schedules,
        cluster=cluster,
        classes=classes,
        runs=comparison.executions,
        losses=losses,
        losses_text=losses_text,
        epoch_s=setting.epoch_s,
        other="" if other is subject else other.name,
        weak=setting.has_weak_intervals,
        windows=_window_values(comparison, standings),
        part_text=" ".join(filter(None, (FIRST_WINDOW if count > 1 else "", _draw_text(setting)))),
        outcomes_text=_draw_text(setting),
        facts=_facts(comparison, cluster, told, directories),
        training=[Path(one.source) for one in comparison.policies if one.source],
    )


def _facts(
    comparison: Comparison, cluster: Cluster | None, told: str, directories: Sequence[str]
) -> dict[str, str]:
    setting = comparison.setting
    facts = setting_facts(setting.workload, setting.jobs, cluster, setting.information, directories)
    if not setting.jobs:
        facts["jobs"] = "drawn anew"
    if setting.noise_draws > 1:
        facts["noise of estimates"] = f"means over {setting.noise_draws} draws"
    if setting.left_out:
        facts["left out"] = f"{plural(setting.left_out, 'job')} that can never run on the cluster"
    if comparison.evaluated_by is not None:
        facts["evaluated by"] = metric_label(comparison.evaluated_by)
    if setting.epoch_s is not None:
        facts["clock"] = "dates are those of the log, taken as UTC"
    facts["compared on"] = told.removesuffix(",")
    if (count := len(setting.windows)) > 1:
        block = usable_block(setting.block, count)
        facts["blocks of the bootstrap"] = f"{plural(block, 'window')} each"
    return facts


def _draw_text(setting: Setting) -> str:
    """That charts of jobs show one draw of the estimates' noise, while figures are means over several."""
    if setting.noise_draws < 2:
        return ""
    return f"Of the first of {setting.noise_draws} draws of noise; the figures compared are means over all."


def _windows_text(kind: str, count: int, jobs: int, part: str) -> str:
    if kind == "whole":
        over = f"all {plural(jobs, 'job')}" if part == "all" else f"the {part} part"
        return f"one run over {over},"
    thing = {"draws": "draw", "episodes": "episode"}.get(kind, "window")
    size = f" of {plural(jobs, 'job')}" if jobs else ""
    span = "" if kind != "windows" else " from the whole trace" if part == "all" else f" from the {part} part"
    return f"{plural(count, thing)}{size}{span},"


def _standings(comparison: Comparison) -> list[Standing]:
    entries = {entry.name: entry for entry in comparison.shown}
    standings = []
    for name in comparison.ranking():
        if name not in entries:
            continue
        values = _means(comparison.windows.filter(pl.col("policy") == name))
        changes = {
            metric: change
            for metric in dict.fromkeys((comparison.setting.metric, *TOLD))
            if metric in values and (change := _change(comparison, name, metric))
        }
        entry = entries[name]
        told = (entry.label, entry.kind, values, changes, entry.note)
        breaks = bool(comparison.broken_limits(name))
        standings.append(Standing(name, *told, role=_role(comparison, entry), breaks_limits=breaks))
    return standings


def _role(comparison: Comparison, entry: PolicyEntry) -> str:
    """Why a policy is there."""
    if entry.name == comparison.reference:
        return "reference"
    return entry.role


def _means(windows: pl.DataFrame) -> dict[str, float]:
    """Of the metrics that are known on every window."""
    metrics = windows.select(pl.exclude("policy", "window").cast(pl.Float64, strict=False))
    means = {column.name: column.mean() for column in metrics if not column.null_count()}
    return {name: mean for name, mean in means.items() if isinstance(mean, float) and math.isfinite(mean)}


def _change(comparison: Comparison, policy: str, metric: str) -> Difference | None:
    reference = comparison.reference
    if policy == reference:
        return Difference.of_reference(comparison.mean(policy, metric))
    if reference is None or not comparison.knows(reference, metric):
        return None
    return comparison.difference(policy, metric=metric)


def _outcomes(comparison: Comparison, schedules: Mapping[str, pl.DataFrame]) -> Mapping[str, pl.DataFrame]:
    if comparison.jobs is None:
        return schedules
    parts = comparison.jobs.partition_by("policy", as_dict=True)
    return {str(name): part for (name,), part in parts.items()}


def _classes(comparison: Comparison) -> pl.DataFrame:
    """Means over windows, each counted by its jobs; of the longest wait the longest."""
    classes = comparison.classes
    if classes.is_empty():
        return classes
    weighed = [
        ((pl.col(metric) * pl.col("jobs")).sum() / pl.col("jobs").sum()).alias(metric)
        for metric in MEASURES
        if metric in classes.columns and not metric.startswith("max_")
    ] + [pl.col(metric).max() for metric in MEASURES if metric.startswith("max_")]
    table = classes.group_by("policy", "by", "class", maintain_order=True).agg(pl.col("jobs").sum(), *weighed)
    return several_classes(table)


def _losses(
    comparison: Comparison, classes: pl.DataFrame, subject: Standing, other: Standing
) -> tuple[list[Loser], str]:
    """Who fares worse under the policy that the answer is about, and what that means in words."""
    if subject is other:
        return [], ""
    said = f"under {subject.label} than under {other.label}"
    if len(comparison.setting.windows) < 2:
        found = losses_without_intervals(classes, subject.name, other.name)
        return found, f"{said}, in this one run (no intervals)"
    losses = comparison.who_loses(subject.name, other.name)
    losses.sort(key=lambda loss: -loss.difference.ratio)
    weak = "; the intervals are weak" if comparison.setting.has_weak_intervals else ""
    return losses, f"{said}, by an interval that excludes zero{weak}"


def losses_without_intervals(table: pl.DataFrame, policy: str, against: str) -> list[Loser]:
    """Classes whose measures rise from one policy to another, the largest rise first."""
    if table.is_empty():
        return []
    own = {(row["by"], row["class"]): row for row in _rows(table, policy)}
    losses = []
    for row in _rows(table, against):
        mine = own.get((row["by"], row["class"]), {})
        for metric in LOSING:
            if metric not in mine:
                continue
            found = Difference.without_interval(float(mine[metric]), float(row[metric]))
            if found.is_known and found.ratio > RISES:
                losses.append(Loser(row["by"], row["class"], int(row["jobs"]), metric, found))
    return sorted(losses, key=lambda loss: -loss.difference.ratio)


def _rows(table: pl.DataFrame, policy: str) -> list[dict[str, Any]]:
    return table.filter(pl.col("policy") == policy).to_dicts()


def _window_values(
    comparison: Comparison, standings: Sequence[Standing]
) -> dict[str, list[tuple[str, float]]]:
    if len(comparison.setting.windows) < 2:
        return {}
    names = [str(window) for window in comparison.setting.windows]
    return {
        one.name: [
            (name, float(value)) for name, value in zip(names, comparison.values(one.name), strict=True)
        ]
        for one in standings
    }
