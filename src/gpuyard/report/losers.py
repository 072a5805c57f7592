"""Who gains most and who loses most from one policy to another: a line for each kind of class."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import polars as pl

from gpuyard.metrics.classes import FEWEST_JOBS, OTHERS, class_waits

SHOWN = {
    "gpus": "size in GPUs",
    "runtime": "run time",
    "group": "group",
    "user": "user",
    "partition": "partition",
}
"""Kinds of classes on the first screen, and what they are called."""
TOLD = ("mean_wait_s", "p99_wait_s")
"""Waits whose changes are looked at."""
LEAST_CHANGE, LEAST_S = 0.05, 60.0
"""Smaller changes of a wait are not worth a name."""


@dataclass(frozen=True)
class Shift:
    """How a wait of a class of jobs differs under two policies."""

    by: str
    name: str
    metric: str
    before: float
    now: float

    @property
    def ratio(self) -> float:
        """The relative difference; from nothing it counts as from a second."""
        return (self.now - self.before) / max(self.before, 1.0)

    @property
    def is_told(self) -> bool:
        """Whether it is worth a name."""
        return abs(self.ratio) >= LEAST_CHANGE and abs(self.now - self.before) >= LEAST_S


def extremes(classes: pl.DataFrame, policy: str, other: str) -> list[tuple[str, Shift | None, Shift | None]]:
    """For each kind of class: the class that gains most and the one that loses most, if any does.

    Args:
        classes: The table of classes of a report.
        policy: The policy that the answer is about.
        other: The one that it is compared with.
    """
    found = []
    for by, title in SHOWN.items():
        shifts = [one for one in _shifts(classes, by, policy, other) if one.is_told]
        gain = min((one for one in shifts if one.ratio < 0), key=lambda one: one.ratio, default=None)
        loss = max((one for one in shifts if one.ratio > 0), key=lambda one: one.ratio, default=None)
        if gain or loss:
            found.append((title, gain, loss))
    return found


def _shifts(classes: pl.DataFrame, by: str, policy: str, other: str) -> list[Shift]:
    if classes.is_empty():
        return []
    table = classes.filter(pl.col("by") == by, pl.col("jobs") >= FEWEST_JOBS, pl.col("class") != OTHERS)
    theirs = {row["class"]: row for row in table.filter(pl.col("policy") == other).to_dicts()}
    return [
        Shift(by, row["class"], metric, float(theirs[row["class"]][metric]), float(row[metric]))
        for row in table.filter(pl.col("policy") == policy).to_dicts()
        if row["class"] in theirs
        for metric in TOLD
        if row[metric] is not None and theirs[row["class"]][metric] is not None
    ]


def far_losers(classes: pl.DataFrame, policy: str, other: str) -> Sequence[Any]:
    """Classes whose 99th-percentile waits are far above those under the other policy, largest rise first."""
    if classes.is_empty():
        return []
    own, theirs = (classes.filter(pl.col("policy") == name) for name in (policy, other))
    found = [one for one in class_waits(own, theirs) if one.is_far_above]
    return sorted(found, key=lambda one: -one.p99_wait_s / max(one.other_s or 0.0, 1.0))
