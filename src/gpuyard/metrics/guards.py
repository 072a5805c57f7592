"""Limits on waits: whether a policy makes some jobs wait much longer than they do today."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import polars as pl

from gpuyard.config import GuardConfig

GUARDED = ("gpus", "runtime", "group", "partition")
"""Kinds of classes that limits hold for; those of users are shown, but one user alone decides nothing."""
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


def broken_limits(
    own: Mapping[str, Any],
    other: Mapping[str, Any],
    classes: pl.DataFrame,
    other_classes: pl.DataFrame,
    config: GuardConfig,
) -> list[BrokenLimit]:
    """The limits that a policy breaks, the worst first.

    Args:
        own: Its metrics over all jobs, ``p99_wait_s`` and ``max_wait_s`` among them.
        other: Those of what runs today.
        classes: The same by class: columns ``by``, ``class``, ``jobs`` and metrics.
        other_classes: Those of what runs today.
        config: How much is too much.
    """
    longest = float(other["max_wait_s"]), float(own["max_wait_s"])
    found = [
        _broken(ALL, "", 0, "p99_wait_s", own["p99_wait_s"], other["p99_wait_s"], _p99(config), config),
        _broken(ALL, "", 0, "max_wait_s", longest[1], longest[0], 1.0 + config.max_longest_increase, config),
    ]
    today = {(row["by"], row["class"]): row for row in other_classes.iter_rows(named=True)}
    for row in classes.filter(pl.col("by").is_in(GUARDED)).iter_rows(named=True):
        before = today.get((row["by"], row["class"]))
        if before is None:
            continue
        place = (row["by"], row["class"], row["jobs"])
        if row["jobs"] >= config.least_jobs:
            p99 = row["p99_wait_s"], before["p99_wait_s"]
            found.append(_broken(*place, "p99_wait_s", *p99, _p99(config), config))
        # A class that hardly waits today may wait as long as others do.
        usual = max(before["max_wait_s"], longest[0] / config.longest_factor)
        found.append(_broken(*place, "max_wait_s", row["max_wait_s"], usual, config.longest_factor, config))
    return sorted((one for one in found if one is not None), key=lambda one: -one.excess)


def _p99(config: GuardConfig) -> float:
    return 1.0 + config.max_p99_increase


def _broken(
    by: str, name: str, jobs: int, metric: str, own: float, other: float, factor: float, config: GuardConfig
) -> BrokenLimit | None:
    limit = max(factor * other, other + config.least_rise_s)
    return BrokenLimit(by, name, jobs, metric, own, other, limit) if own > limit else None
