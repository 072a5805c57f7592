"""Classes of jobs: by priority, group, size, user and run time, and who fares worse under a policy."""

from typing import Any

import polars as pl

from gpuyard.metrics.classes import LOSING
from gpuyard.report.model import Change, Loss
from gpuyard.report.words import ratio_of

RISES = 0.01
"""Without intervals, smaller rises are not worth a line."""


def losses_without_intervals(table: pl.DataFrame, policy: str, against: str) -> list[Loss]:
    """Classes whose measures rise from one policy to another, the largest rise first."""
    if table.is_empty():
        return []
    keys = ("by", "class")
    own = {tuple(row[key] for key in keys): row for row in _rows(table, policy)}
    losses = []
    for row in _rows(table, against):
        mine = own.get(tuple(row[key] for key in keys), {})
        for metric in LOSING:
            ratio = ratio_of(mine, row, metric)
            if ratio is not None and ratio > RISES:
                values = (float(mine[metric]), float(row[metric]))
                losses.append(Loss(row["by"], row["class"], int(row["jobs"]), metric, *values, Change(ratio)))
    return sorted(losses, key=lambda loss: -(loss.change.ratio or 0.0))


def _rows(table: pl.DataFrame, policy: str) -> list[dict[str, Any]]:
    return table.filter(pl.col("policy") == policy).to_dicts()
