"""Tables of a comparison: a policy's jobs on a window, classes of jobs and metrics."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import polars as pl

from gpuyard.metrics.classes import class_table
from gpuyard.simulation.run import SimulationResult

MOST_JOB_ROWS = 1_000_000
"""Rows of the table of jobs, at most: beyond, some windows stand for all."""
CLASS_SCHEMA = pl.Schema(
    {
        "policy": pl.String(),
        "window": pl.Int64(),
        "by": pl.String(),
        "class": pl.String(),
        "jobs": pl.Int64(),
        "mean_wait_s": pl.Float64(),
        "p99_wait_s": pl.Float64(),
        "max_wait_s": pl.Float64(),
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
    table = class_table(job_frame(result), labels[result.schedule.job])
    heads = {"policy": pl.lit(policy), "window": pl.lit(window, pl.Int64)}
    return table.with_columns(**heads).select(CLASS_SCHEMA.names())


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
