"""Tables of a comparison: a policy's jobs on a window, classes of jobs and metrics."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import polars as pl

from gpuyard.metrics.catalogue import class_names
from gpuyard.simulation.run import SimulationResult
from gpuyard.simulation.windows import HeldOutWindow

OTHERS = "(others)"
MOST_USERS = 20
MOST_JOB_ROWS = 1_000_000
"""Rows of the table of jobs, at most: beyond, some windows stand for all."""
BREAKDOWNS = ("priority", "group", "gpus", "user", "duration")
CLASS_SCHEMA = pl.Schema(
    {
        "policy": pl.String(),
        "window": pl.Int64(),
        "by": pl.String(),
        "class": pl.String(),
        "jobs": pl.Int64(),
        "mean_wait_s": pl.Float64(),
        "p99_wait_s": pl.Float64(),
        "mean_jct_s": pl.Float64(),
        "mean_bounded_slowdown": pl.Float64(),
    }
)
JOB_COLUMNS = ("row", "submit_s", "duration_s", "gpus", "priority", "group", "user")


def window_row(policy: str, window: int, values: Mapping[str, Any]) -> dict[str, Any]:
    """One row of the table of windows."""
    return {"policy": policy, "window": window, **values}


def window_frame(rows: Sequence[Mapping[str, Any]]) -> pl.DataFrame:
    """The table of windows; metrics that a row lacks are null."""
    names = dict.fromkeys(name for row in rows for name in row)
    dtypes = {"policy": pl.String(), "window": pl.Int64()}
    schema = pl.Schema({name: dtypes.get(name, pl.Float64()) for name in names})
    columns = {name: [_number(row.get(name), name) for row in rows] for name in names}
    return pl.DataFrame(columns, schema=schema).with_columns(pl.selectors.float().fill_nan(None))


def _number(value: Any, name: str) -> Any:
    return value if value is None or name in ("policy", "window") else float(value)


def common_users(windows: Sequence[HeldOutWindow]) -> list[str]:
    """The users with most jobs, over all windows."""
    users = pl.concat([window.jobs.frame.select("user") for window in windows])["user"]
    counts = users.value_counts().sort(["count", "user"], descending=[True, False])
    return counts["user"].head(MOST_USERS).to_list()


def class_labels(window: HeldOutWindow, users: Sequence[str]) -> pl.DataFrame:
    """The classes that each job of a window belongs to."""
    frame = window.jobs.frame
    columns = {}
    for by in ("priority", "group", "gpus", "duration"):
        columns[by] = class_names(frame, by)
    others = pl.when(pl.col("user").is_in(list(users))).then("user").otherwise(pl.lit(OTHERS))
    columns["user"] = frame.select(others.alias("user"))["user"]
    return pl.DataFrame(columns)


def job_frame(result: SimulationResult) -> pl.DataFrame:
    """When each job ran, beside what it is; names that no job has are null."""
    schedule = result.schedule
    frame = result.workload.frame[schedule.job].select(JOB_COLUMNS)
    empty = [name for name in ("group", "user") if (frame[name] == "").all()]
    times = pl.DataFrame({"start_s": schedule.start_us / 1e6, "end_s": schedule.end_us / 1e6})
    return pl.concat([frame, times], how="horizontal").with_columns(
        pl.lit(None, pl.String).alias(name) for name in empty
    )


def class_frame(policy: str, window: int, result: SimulationResult, labels: pl.DataFrame) -> pl.DataFrame:
    """Metrics of every class of jobs, by the formulas of docs/contract/metrics.md."""
    jobs = job_frame(result)
    submit, duration = pl.col("submit_s"), pl.col("duration_s")
    outcomes = jobs.select(
        wait_s=pl.col("start_s") - submit,
        jct_s=pl.col("end_s") - submit,
        bounded_slowdown=((pl.col("end_s") - submit) / pl.max_horizontal(duration, pl.lit(10.0))).clip(1.0),
    )
    both = pl.concat([outcomes, labels[result.schedule.job]], how="horizontal")
    parts = [
        both.group_by(pl.col(by).alias("class")).agg(
            jobs=pl.len().cast(pl.Int64),
            mean_wait_s=pl.col("wait_s").mean(),
            p99_wait_s=pl.col("wait_s").quantile(0.99, "linear"),
            mean_jct_s=pl.col("jct_s").mean(),
            mean_bounded_slowdown=pl.col("bounded_slowdown").mean(),
            by=pl.lit(by),
        )
        for by in labels.columns
    ]
    heads = {"policy": pl.lit(policy), "window": pl.lit(window, pl.Int64)}
    return pl.concat(parts).sort("by", "class").with_columns(**heads).select(CLASS_SCHEMA.names())


def told_classes(classes: pl.DataFrame) -> pl.DataFrame:
    """Without kinds of classes of which there is one alone: they tell nothing."""
    kinds = classes.group_by("by").agg(pl.col("class").n_unique().alias("count"))
    several = kinds.filter(pl.col("count") > 1)["by"].to_list()
    return classes.filter(pl.col("by").is_in(several))


def kept_windows(names: Sequence[int], rows: int) -> set[int]:
    """Windows of which jobs are kept: all, or as many as the table has room for, evenly spaced.

    Args:
        names: Of all windows.
        rows: That a window takes up in the table.
    """
    room = max(1, MOST_JOB_ROWS // rows)
    places = np.linspace(0, len(names) - 1, min(room, len(names))).round()
    return {names[int(place)] for place in places}


def with_names(policy: str, window: int, jobs: pl.DataFrame) -> pl.DataFrame:
    """The table of jobs, with policy and window before it."""
    heads = [pl.lit(policy).alias("policy"), pl.lit(window, pl.Int64).alias("window")]
    return jobs.select(*heads, pl.all())
