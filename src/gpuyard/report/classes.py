"""Classes of jobs: by priority, group, size, user and run time, and who fares worse under a policy."""

from collections.abc import Mapping
from typing import Any

import polars as pl

from gpuyard.metrics.catalogue import GPU_CLASSES, RUN_TIMES_S, class_names
from gpuyard.report.model import Change, Loss
from gpuyard.report.words import ratio_of

MOST_USERS = 20
OTHERS = "(others)"
MEASURES = ("mean_bounded_slowdown", "mean_wait_s", "p99_wait_s", "mean_jct_s")
LOSING = ("mean_bounded_slowdown", "mean_wait_s")
"""A class loses where one of these rises."""
RISES = 0.01
"""Without intervals, smaller rises are not worth a line."""
BOUND_S = 10.0


def outcome_columns() -> list[pl.Expr]:
    """Wait, completion time and bounded slowdown of jobs with submit_s, duration_s, start_s and end_s."""
    jct = pl.col("end_s") - pl.col("submit_s")
    bounded = pl.max_horizontal(jct / pl.max_horizontal(pl.col("duration_s"), BOUND_S), 1.0)
    wait = pl.col("start_s") - pl.col("submit_s")
    return [wait.alias("wait_s"), jct.alias("jct_s"), bounded.alias("bounded_slowdown")]


def class_table(schedules: Mapping[str, pl.DataFrame]) -> pl.DataFrame:
    """The measures of each class under each policy; what all jobs share is no class."""
    tables = [
        _measured(frame.with_columns(outcome_columns()), name, by, classes)
        for name, frame in schedules.items()
        for by, classes in _classes(frame)
    ]
    return pl.concat(tables) if tables else pl.DataFrame()


def _classes(frame: pl.DataFrame) -> list[tuple[str, pl.Series]]:
    users = frame["user"].value_counts(sort=True).head(MOST_USERS)["user"]
    user = frame.select(pl.when(pl.col("user").is_in(users.to_list())).then("user").otherwise(pl.lit(OTHERS)))
    found = {
        "priority": frame["priority"].cast(pl.String).str.replace(r"\.0$", ""),
        "group": frame["group"],
        "gpus": class_names(frame, "gpus"),
        "user": user.to_series(),
        "duration": class_names(frame, "duration"),
    }
    return [(by, classes.alias("class")) for by, classes in found.items() if classes.n_unique() > 1]


def _measured(frame: pl.DataFrame, policy: str, by: str, classes: pl.Series) -> pl.DataFrame:
    table = frame.with_columns(classes).group_by("class", maintain_order=True)
    return table.agg(
        pl.len().cast(pl.Int64).alias("jobs"),
        pl.col("wait_s").mean().alias("mean_wait_s"),
        pl.col("wait_s").quantile(0.99, "linear").alias("p99_wait_s"),
        pl.col("jct_s").mean().alias("mean_jct_s"),
        pl.col("bounded_slowdown").mean().alias("mean_bounded_slowdown"),
    ).select(pl.lit(policy).alias("policy"), pl.lit(by).alias("by"), pl.all())


def ordered_classes(table: pl.DataFrame, by: str) -> list[str]:
    """The classes of a kind: sizes and priorities in their order, names by how many jobs they have."""
    rows = table.filter(pl.col("by") == by).group_by("class").agg(pl.col("jobs").max())
    names: dict[str, int] = dict(rows.iter_rows())
    if by == "gpus":
        return [name for name in GPU_CLASSES if name in names]
    if by == "duration":
        return [name for name in RUN_TIMES_S if name in names]
    if by == "priority":
        return sorted(names, key=_number, reverse=True)
    return sorted(names, key=lambda name: (name == OTHERS, -names[name], name))


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return 0.0


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
