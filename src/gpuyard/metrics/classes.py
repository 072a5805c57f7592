"""Classes of jobs: by user, group, partition, size, run time and priority, and the metrics of each."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from gpuyard.errors import InputError
from gpuyard.metrics.outcomes import Ints, outcome_columns
from gpuyard.registry import suggest

KINDS = ("user", "group", "partition", "gpus", "runtime", "priority")
"""What classes are made by: the names of ``--by``, ``SimulationResult.breakdown`` and the page."""
MOST_USERS = 20
"""Users with a class of their own, those with most jobs."""
OTHERS = "(others)"
"""The class of all other users."""
RUN_TIMES_S = {
    "up to a minute": 60.0,
    "1 to 20 minutes": 1_200.0,
    "20 to 60 minutes": 3_600.0,
    "1 to 6 hours": 21_600.0,
    "6 to 24 hours": 86_400.0,
    "longer than a day": None,
}
"""Classes of jobs by run time: their longest."""
GPU_CLASSES = {
    "0": 0,
    "<1": 999,
    "1": 1000,
    "2-4": 4000,
    "5-8": 8000,
    "9-16": 16_000,
    "17-64": 64_000,
    ">64": None,
}
"""Classes of gang size, each with the most thousandths of GPUs that a job of it asks for."""
MEASURES = ("mean_bounded_slowdown", "mean_wait_s", "p99_wait_s", "max_wait_s", "mean_jct_s")
"""Metrics of a class in ``class_table``."""
WATCHED = ("gpus", "runtime", "group", "partition")
"""Kinds among which the worst class is looked for."""
FEWEST_JOBS = 20
"""Smaller classes have no 99th percentile to speak of."""
FAR_ABOVE, WORTH_S = 1.5, 600.0
"""A wait is far above another from this factor, and this difference, on."""
LEAST_WAIT_S = 60.0
"""Rises of shorter waits count as from this one: from 1 s to 10 s nobody loses much."""
SHORT_WORDS = {"gpus": "{} GPUs", "runtime": "runs {}", "group": "group {}", "partition": "partition {}"}
_SHORT_RUN_TIMES = ("< 1 min", "1-20 min", "20-60 min", "1-6 h", "6-24 h", "> 1 d")
LOSING = ("mean_bounded_slowdown", "mean_wait_s")
"""A class loses where one of these, of which less is better, rises."""


def classify(frame: pl.DataFrame, by: str, users: Sequence[str] | None = None) -> tuple[list[str], Ints]:
    """The classes that occur, in order, and the number of each job's class.

    Args:
        frame: The jobs.
        by: One of ``KINDS``.
        users: Those with a class of their own; None: the ones with most of these jobs.

    Raises:
        InputError: for another ``by``, or a column that these jobs lack.
    """
    if by not in KINDS:
        raise InputError(f"no breakdown by {by!r}{_meant(by)}")
    if by == "priority":
        values, code = np.unique(frame["priority"].to_numpy(), return_inverse=True)
        return [str(int(value)) if value.is_integer() else str(value) for value in values.tolist()], code
    if by == "gpus":
        milli = frame["gpus"].to_numpy().astype(np.int64) * frame["gpu_milli"].to_numpy()
        return _between(GPU_CLASSES, milli)
    if by == "runtime":
        return _between(RUN_TIMES_S, frame["duration_s"].to_numpy())
    if by not in frame.columns:
        raise InputError(f"no breakdown by {by}: these jobs have no column {by}")
    if by == "user":
        own = common_users([frame]) if users is None else list(users)
        frame = frame.select(pl.when(pl.col("user").is_in(own)).then("user").otherwise(pl.lit(OTHERS)))
    return _named(frame[by].fill_null(""))


def _meant(by: str) -> str:
    return "; did you mean 'runtime'?" if by == "duration" else suggest(by, dict.fromkeys(KINDS))


def _named(column: pl.Series) -> tuple[list[str], Ints]:
    """Names that occur, by how many jobs they have, the rest of them last."""
    counts = column.value_counts(name="jobs").sort(
        pl.col(column.name) == OTHERS, pl.col("jobs"), pl.col(column.name), descending=[False, True, False]
    )
    names = counts[column.name]
    return names.to_list(), column.cast(pl.Enum(names)).to_physical().to_numpy().astype(np.int64)


def _between(classes: Mapping[str, float | None], values: NDArray[Any]) -> tuple[list[str], Ints]:
    """Classes by the largest value that they hold; the last holds all others."""
    bounds = [bound for bound in classes.values() if bound is not None]
    present, code = np.unique(np.searchsorted(bounds, values), return_inverse=True)
    return [list(classes)[number] for number in present], code


def common_users(frames: Iterable[pl.DataFrame]) -> list[str]:
    """The users with most jobs over all tables of jobs: those with a class of their own."""
    users = pl.concat([frame.select("user") for frame in frames])["user"]
    counts = users.value_counts().sort(["count", "user"], descending=[True, False])
    return counts["user"].head(MOST_USERS).to_list()


def class_labels(frame: pl.DataFrame, users: Sequence[str], kinds: Sequence[str] = KINDS) -> pl.DataFrame:
    """The class of each job, one column per kind of class.

    Args:
        frame: The jobs.
        users: Those with a class of their own.
        kinds: Of classes, some of ``KINDS``; one that these jobs lack is left out.
    """
    present = [by for by in kinds if by != "partition" or by in frame.columns]
    return pl.DataFrame({by: _labels(frame, by, users) for by in present})


def _labels(frame: pl.DataFrame, by: str, users: Sequence[str]) -> pl.Series:
    labels, code = classify(frame, by, users)
    return pl.Series(by, labels, dtype=pl.String).gather(code)


def class_table(jobs: pl.DataFrame, labels: pl.DataFrame) -> pl.DataFrame:
    """Metrics of every class: columns ``by``, ``class``, ``jobs`` and ``MEASURES``.

    Args:
        jobs: With ``submit_s``, ``duration_s``, ``start_s`` and ``end_s``.
        labels: Their classes, as in ``class_labels``.
    """
    both = pl.concat([jobs.select(outcome_columns()), labels], how="horizontal")
    parts = [
        both.group_by(pl.col(by).alias("class")).agg(
            jobs=pl.len().cast(pl.Int64),
            mean_wait_s=pl.col("wait_s").mean(),
            p99_wait_s=pl.col("wait_s").quantile(0.99, "linear"),
            max_wait_s=pl.col("wait_s").max(),
            mean_jct_s=pl.col("jct_s").mean(),
            mean_bounded_slowdown=pl.col("bounded_slowdown").mean(),
            by=pl.lit(by),
        )
        for by in labels.columns
    ]
    return pl.concat(parts).sort("by", "class")


def several_classes(table: pl.DataFrame) -> pl.DataFrame:
    """A table without kinds of classes of which there is one alone: they say nothing."""
    kinds = table.group_by("by").agg(pl.col("class").n_unique().alias("count"))
    several = kinds.filter(pl.col("count") > 1)["by"].to_list()
    return table.filter(pl.col("by").is_in(several))


def ordered_classes(table: pl.DataFrame, by: str) -> list[str]:
    """The classes of a kind: sizes and priorities in their order, names by how many jobs they have."""
    rows = table.filter(pl.col("by") == by).group_by("class").agg(pl.col("jobs").max())
    names: dict[str, int] = dict(rows.iter_rows())
    if by == "gpus":
        return [name for name in GPU_CLASSES if name in names]
    if by == "runtime":
        return [name for name in RUN_TIMES_S if name in names]
    if by == "priority":
        return sorted(names, key=_number, reverse=True)
    return sorted(names, key=lambda name: (name == OTHERS, -names[name], name))


def losers_first(
    names: Sequence[str],
    waits: Mapping[str, Mapping[str, float | None]],
    reference: str | None,
    others: Sequence[str],
) -> list[str]:
    """Classes of a kind by how much longer they wait than today, the greatest rise under any policy first.

    Args:
        names: The classes, in the order that they keep where nobody's waits are known.
        waits: Mean waits in seconds, by policy and class.
        reference: What runs today.
        others: Policies that may take its place.
    """
    today = waits.get(reference or "", {})

    def rise(name: str) -> float:
        before = today.get(name)
        if before is None:
            return -np.inf
        found = [waits.get(policy, {}).get(name) for policy in others if policy != reference]
        rises = [(now - before) / max(before, LEAST_WAIT_S) for now in found if now is not None]
        return max(rises, default=-np.inf)

    return sorted(names, key=lambda name: (name == OTHERS, -rise(name)))


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return 0.0


@dataclass(frozen=True)
class ClassWait:
    """The 99th-percentile wait of a class of jobs, and that under the policy it is compared with."""

    by: str
    name: str
    p99_wait_s: float
    other_s: float | None = None

    @property
    def is_far_above(self) -> bool:
        """Whether it is much longer than under the other policy."""
        return is_far_above(self.p99_wait_s, self.other_s)

    @property
    def short(self) -> str:
        """What the class is called in a narrow column: ``5-8 GPUs``."""
        if self.by == "gpus" and self.name == "1":
            return "1 GPU"
        name = self.name
        if self.by == "runtime":
            name = _SHORT_RUN_TIMES[list(RUN_TIMES_S).index(name)]
        return SHORT_WORDS.get(self.by, f"{self.by} {{}}").format(name or "(none)")


def is_far_above(wait_s: float | None, other_s: float | None) -> bool:
    """Whether a wait is much longer than another one."""
    if wait_s is None or other_s is None:
        return False
    return wait_s > FAR_ABOVE * other_s and wait_s - other_s > WORTH_S


def class_waits(table: pl.DataFrame, other: pl.DataFrame | None = None) -> list[ClassWait]:
    """Classes by their 99th-percentile waits, the longest first.

    Args:
        table: A policy's ``class_table``.
        other: That of the policy which it is compared with.
    """
    found = table.filter(pl.col("by").is_in(WATCHED), pl.col("jobs") >= FEWEST_JOBS)
    theirs = (
        {} if other is None else {(row["by"], row["class"]): row["p99_wait_s"] for row in other.to_dicts()}
    )
    waits = [
        ClassWait(row["by"], row["class"], row["p99_wait_s"], theirs.get((row["by"], row["class"])))
        for row in found.to_dicts()
        if row["p99_wait_s"] is not None
    ]
    return sorted(waits, key=lambda one: (-one.p99_wait_s, WATCHED.index(one.by)))
