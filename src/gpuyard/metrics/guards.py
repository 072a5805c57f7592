"""Limits on waits: whether a policy makes some jobs wait much longer than they do today."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import polars as pl

from gpuyard.config import GuardConfig
from gpuyard.metrics.classes import class_labels, class_table

GUARDED = ("gpus", "runtime", "group", "partition")
"""Kinds of classes that limits hold for; those of users are shown, but one user alone decides nothing."""
WAITS = pl.Schema(
    {
        "by": pl.String(),
        "class": pl.String(),
        "jobs": pl.Int64(),
        "p99_wait_s": pl.Float64(),
        "max_wait_s": pl.Float64(),
    }
)
LOW = "_low"
ALL = "all"
"""What classes are made by: all jobs together."""


@dataclass(frozen=True)
class BrokenLimit:
    """A limit on waits that a policy breaks.

    Attributes:
        by: What the class is made by; ``all``: of all jobs.
        name: Of the class; empty for all jobs.
        jobs: In it.
        metric: ``p99_wait_s`` or ``max_wait_s``.
        own: Under the policy.
        other: Today.
        limit: Most that it may be.
    """

    by: str
    name: str
    jobs: int
    metric: str
    own: float
    other: float
    limit: float

    @property
    def excess(self) -> float:
        """How many times the limit it is."""
        return self.own / max(self.limit, 1.0)


def guarded_labels(frame: pl.DataFrame) -> pl.DataFrame:
    """The classes of each job that limits hold for, one column per kind of class."""
    return class_labels(frame, (), GUARDED)


def wait_table(jobs: pl.DataFrame, labels: pl.DataFrame) -> pl.DataFrame:
    """99th percentile and longest of waits, of all jobs and by class.

    Args:
        jobs: With ``submit_s``, ``duration_s``, ``start_s`` and ``end_s``.
        labels: Their classes, as in ``class_labels``.
    """
    everyone = pl.DataFrame({ALL: [""] * jobs.height}, schema={ALL: pl.String})
    guarded = [everyone, *(labels.select(by) for by in GUARDED if by in labels.columns)]
    return class_table(jobs, pl.concat(guarded, how="horizontal")).select(WAITS.names())


def wait_row(metrics: Mapping[str, Any], classes: pl.DataFrame | None = None) -> pl.DataFrame:
    """The same out of metrics of all jobs, and metrics by class where there are some."""
    jobs = 0 if classes is None else int(classes.filter(pl.col("by") == "gpus")["jobs"].sum())
    own = {"by": ALL, "class": "", "jobs": jobs}
    own |= {name: metrics[name] for name in ("p99_wait_s", "max_wait_s")}
    rows = pl.DataFrame([own], schema=WAITS)
    return rows if classes is None else pl.concat([rows, classes.select(WAITS.names())])


def typical_waits(tables: Sequence[pl.DataFrame]) -> pl.DataFrame:
    """Medians over several replays of the same jobs: one replay alone is one draw of what might happen.

    Columns that end in ``_low`` have the least of them.
    """
    waits = pl.col("p99_wait_s", "max_wait_s")
    return (
        pl.concat(tables)
        .group_by("by", "class", maintain_order=True)
        .agg(
            pl.col("jobs").first(),
            waits.median(),
            waits.min().name.suffix(LOW),
        )
    )


def broken_limits(
    own: pl.DataFrame, other: pl.DataFrame, config: GuardConfig, *, recorded: bool = False
) -> list[BrokenLimit]:
    """The limits that a policy breaks, the worst first.

    Args:
        own: Its waits, as in ``wait_table`` or ``typical_waits``.
        other: Those of what runs today.
        config: How much is too much.
        recorded: What runs today is known from what happened once, which may have been luck: limits are then
            broken if they are in every replay.
    """
    suffix = LOW if recorded and f"p99_wait_s{LOW}" in own.columns else ""
    today = {(row["by"], row["class"]): row for row in other.iter_rows(named=True)}
    longest = float(today[(ALL, "")]["max_wait_s"])
    found = []
    for row in own.filter(pl.col("by").is_in([ALL, *GUARDED])).iter_rows(named=True):
        before = today.get((row["by"], row["class"]))
        if before is None:
            continue
        place = (row["by"], row["class"], row["jobs"])
        if row["by"] == ALL or row["jobs"] >= config.least_jobs:
            p99 = row[f"p99_wait_s{suffix}"], before["p99_wait_s"]
            found.append(_broken(*place, "p99_wait_s", *p99, 1.0 + config.max_p99_increase, config))
        if row["by"] == ALL:
            most, usual = 1.0 + config.max_longest_increase, longest
        else:  # a class that hardly waits today may wait as long as others do
            most, usual = config.longest_factor, max(before["max_wait_s"], longest / config.longest_factor)
        found.append(_broken(*place, "max_wait_s", row[f"max_wait_s{suffix}"], usual, most, config))
    return sorted((one for one in found if one is not None), key=lambda one: -one.excess)


def _broken(
    by: str, name: str, jobs: int, metric: str, own: float, other: float, factor: float, config: GuardConfig
) -> BrokenLimit | None:
    limit = max(factor * other, other + config.least_rise_s)
    return BrokenLimit(by, name, jobs, metric, own, other, limit) if own > limit else None
