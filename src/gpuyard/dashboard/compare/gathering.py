"""Several directories of results as one comparison, on those windows and policies that are asked for."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import polars as pl

from gpuyard.errors import InputError
from gpuyard.evaluate.comparison import Comparison
from gpuyard.evaluate.storage import read_comparison, read_outline
from gpuyard.report.pages.evaluation import merge

MOST_ROWS = 3_000_000
"""Jobs of all schedules together that are read; beyond, charts of jobs and of time are left out."""


def gather(directories: Sequence[Path]) -> tuple[Comparison, list[str]]:
    """All policies of results over the same jobs, and what there is to know about that.

    Results on other clusters, or with other information, are taken too: their policies are named after both.

    Raises:
        InputError: if one cannot be read, or they are over different jobs or windows.
    """
    outlines = [read_outline(path) for path in directories]
    rows = sum(outline.setting.jobs_per_window * len(outline.schedules) for outline in outlines)
    read = [read_comparison(path, schedules=rows <= MOST_ROWS) for path in directories]
    notes = []
    if rows > MOST_ROWS:
        notes.append(
            f"These schedules have {rows:,} jobs in all: charts of jobs and of time are left out. The page "
            "Replay shows them."
        )
    first = read[0]
    beside = [first, *(_beside(first, one) for one in read[1:])]
    if any(one.setting.cluster != first.setting.cluster for one in read):
        notes.append(
            "These results are of different clusters: policies of the others are named after theirs. Shares "
            "of GPUs in use are of each one's own cluster in tables, and left out of the charts over time."
        )
    return merge(beside, [str(path) for path in directories]), notes


def differ_in_cluster(directories: Sequence[Path]) -> bool:
    """Whether results are of more than one cluster."""
    clusters = [read_outline(path).setting.cluster for path in directories]
    return any(cluster != clusters[0] for cluster in clusters)


def _beside(first: Comparison, other: Comparison) -> Comparison:
    """The other one, named after what differs, as if on the same cluster with the same information."""
    ours, theirs = first.setting, other.setting
    said = []
    if ours.cluster != theirs.cluster:
        said.append(str(theirs.cluster.get("name", "another cluster")))
    if ours.information != theirs.information:
        said.append(_information(ours.information, theirs.information))
    if not said:
        return other
    mark = f" on {said[0]}" if len(said) == 1 and ours.cluster != theirs.cluster else f" ({', '.join(said)})"
    setting = replace(theirs, cluster=ours.cluster, information=ours.information)
    return renamed(replace(other, setting=setting), mark)


def _information(ours: Mapping[str, object], theirs: Mapping[str, object]) -> str:
    other = [key for key in {**ours, **theirs} if ours.get(key) != theirs.get(key)]
    return ", ".join(f"{key} {theirs.get(key)}" for key in other[:2])


def renamed(comparison: Comparison, mark: str) -> Comparison:
    """The same with something added to the names of its policies."""

    def table(frame: pl.DataFrame) -> pl.DataFrame:
        return frame.with_columns(pl.col("policy") + mark)

    def name(policy: str | None) -> str | None:
        return None if policy is None else policy + mark

    return replace(
        comparison,
        policies=tuple(
            replace(entry, name=entry.name + mark, label=entry.label + mark) for entry in comparison.policies
        ),
        reference=name(comparison.reference),
        rival=name(comparison.rival),
        hindsight=name(comparison.hindsight),
        windows=table(comparison.windows),
        classes=table(comparison.classes) if len(comparison.classes) else comparison.classes,
        jobs=None if comparison.jobs is None else table(comparison.jobs),
        whole=None,
        schedules={policy + mark: frame for policy, frame in comparison.schedules.items()},
        executions={policy + mark: frame for policy, frame in comparison.executions.items()},
        accounts={policy + mark: account for policy, account in comparison.accounts.items()},
    )


def on_windows(comparison: Comparison, first: int, last: int) -> Comparison:
    """The same on some of its windows: from one to another, counted from 1.

    Raises:
        InputError: if there are no such windows.
    """
    every = comparison.setting.windows
    if not 1 <= first <= last <= len(every):
        raise InputError(f"windows {first} to {last}: there are windows 1 to {len(every)}")
    kept = every[first - 1 : last]
    if kept == every:
        return comparison
    setting = comparison.setting
    disjoint = setting.disjoint * len(kept) / len(every)
    own = pl.col("window").is_in(kept)
    keeps_first = kept[0] == every[0]
    return replace(
        comparison,
        setting=replace(setting, windows=kept, disjoint=disjoint),
        windows=comparison.windows.filter(own),
        classes=comparison.classes.filter(own),
        jobs=None if comparison.jobs is None else comparison.jobs.filter(own),
        schedules=comparison.schedules if keeps_first else {},
        executions=comparison.executions if keeps_first else {},
    )


def of_policies(comparison: Comparison, names: Sequence[str]) -> Comparison:
    """The same with some of its policies, by full name; the reference stays.

    Raises:
        InputError: for a policy that is not among them.
    """
    chosen = {comparison.policy(name).name for name in names}
    chosen.add(comparison.reference or "")
    chosen |= {entry.name for entry in comparison.policies if not entry.is_shown}
    kept = tuple(entry for entry in comparison.policies if entry.name in chosen)
    return replace(
        comparison,
        policies=kept,
        schedules={name: frame for name, frame in comparison.schedules.items() if name in chosen},
    )
