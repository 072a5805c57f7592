"""Tables of a comparison: a policy's jobs on a window, classes of jobs and metrics."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from gpuyard.config import SimulationConfig
from gpuyard.errors import InputError, setting
from gpuyard.metrics.classes import class_table
from gpuyard.metrics.outcomes import outcome_columns
from gpuyard.simulation.run import SimulationResult
from gpuyard.simulation.windows import HeldOutWindow

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
_KEYS = ("policy", "window", "by", "class")
_LARGEST_SEED = 2**63 - 1
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


def job_frame(result: SimulationResult, own: range | None = None) -> pl.DataFrame:
    """When each job ran, beside what it is; names that no job has are null.

    Args:
        result: What a policy did.
        own: Rows of the workload that are of interest; None: all.
    """
    schedule = result.schedule
    frame = result.workload.frame[schedule.job].select(JOB_COLUMNS)
    empty = [name for name in ("group", "user") if (frame[name] == "").all()]
    times = pl.DataFrame({"start_s": schedule.start_us / 1e6, "end_s": schedule.end_us / 1e6})
    jobs = pl.concat([frame, times], how="horizontal").with_columns(
        pl.lit(None, pl.String).alias(name) for name in empty
    )
    return jobs if own is None else jobs.filter(_is_own(schedule.job, own))


def _is_own(rows: NDArray[np.int64], own: range) -> NDArray[np.bool_]:
    return (rows >= own.start) & (rows < own.stop)


def class_frame(
    policy: str, window: int, result: SimulationResult, labels: pl.DataFrame, own: range | None = None
) -> pl.DataFrame:
    """Metrics of every class of jobs, by the formulas of docs/contract/metrics.md.

    Args:
        policy: Its name.
        window: The name of the window.
        result: What the policy did there.
        labels: Classes of all jobs of the window.
        own: Rows of the jobs that count; None: all.
    """
    jobs = result.schedule.job
    rows = jobs if own is None else jobs[_is_own(jobs, own)]
    table = class_table(job_frame(result, own), labels[rows])
    heads = {"policy": pl.lit(policy), "window": pl.lit(window, pl.Int64)}
    return table.with_columns(**heads).select(CLASS_SCHEMA.names())


def figures_of(
    jobs: pl.DataFrame, rows: NDArray[np.int64], window: HeldOutWindow, whole: HeldOutWindow
) -> dict[str, float]:
    """What the own jobs of a window met in the replay of the whole part that they lie in.

    Args:
        jobs: Of the replay, with when they ran.
        rows: Their rows in it, ascending: what was recorded lacks some.
        window: Some of them.
        whole: The replay's jobs.
    """
    first = window.name - whole.first
    begin, end = np.searchsorted(rows, (first, first + len(window.own)))
    part = jobs[int(begin) : int(end)].select(outcome_columns(), duration_s="duration_s")
    wait, jct = part["wait_s"].to_numpy(), part["jct_s"].to_numpy()
    return {
        "mean_bounded_slowdown": float(part["bounded_slowdown"].to_numpy().mean()),
        "mean_slowdown": float((jct / part["duration_s"].to_numpy()).mean()),
        "mean_wait_s": float(wait.mean()),
        "mean_jct_s": float(jct.mean()),
        "p99_wait_s": float(np.percentile(wait, 99)),
        "max_wait_s": float(wait.max()),
    }


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


# --- Noisy estimates drawn several times: figures of a window are means over the draws ---


def drawn_noise(simulation: SimulationConfig, count: int) -> tuple[SimulationConfig, ...]:
    """The settings with so many seeds of the noise, their own first.

    Raises:
        InputError: if estimates are not noisy, so that all draws would be the same.
    """
    if count > 1 and simulation.estimates != "noisy":
        raise InputError(
            f"noise is drawn {count} times, but estimates are {simulation.estimates}: use estimates noisy, "
            f"or leave {setting('noise_draws')} out"
        )
    seeds = [(simulation.seed + i) % _LARGEST_SEED for i in range(count)]
    return tuple(simulation.model_copy(update={"seed": seed}) for seed in seeds)


def mean_row(rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """One row of the table of windows out of those of all draws; what one of them lacks is not known."""
    if len(rows) == 1:
        return dict(rows[0])
    names = [name for name in rows[0] if name not in ("policy", "window")]
    known = {name: [row.get(name) for row in rows] for name in names}
    means = {
        name: None if None in values else float(np.mean(np.array(values, dtype=np.float64)))
        for name, values in known.items()
    }
    return {"policy": rows[0]["policy"], "window": rows[0]["window"], **means}


def mean_figures(found: Sequence[Mapping[str, Mapping[str, Any]]]) -> dict[str, dict[str, Any]]:
    """Metrics by policy, a value a window, out of those of all draws."""
    return {
        policy: {name: np.mean([draw[policy][name] for draw in found], axis=0) for name in figures}
        for policy, figures in found[0].items()
    }


def mean_classes(frames: Sequence[pl.DataFrame]) -> pl.DataFrame:
    """Metrics of classes of jobs out of those of all draws; their jobs are the same in all."""
    if len(frames) == 1:
        return frames[0]
    merged = pl.concat(frames).group_by(_KEYS, maintain_order=True)
    return merged.agg(pl.col("jobs").first(), pl.col(pl.Float64).mean()).select(CLASS_SCHEMA.names())
