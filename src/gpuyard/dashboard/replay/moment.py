"""A moment of a schedule: what runs where, who waits, and one job of it."""

import base64
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from gpuyard.dashboard.replay.colours import Colouring
from gpuyard.dashboard.replay.index import ReplayIndex
from gpuyard.errors import InputError
from gpuyard.workload.identity import JobName

MOST_QUEUED = 60
"""Jobs of the queue that are listed; the rest are counted."""
MOST_LANES = 65_536
"""GPUs that are drawn one by one; of larger clusters each square is several."""
US = 1e6


def moment(index: ReplayIndex, colours: Colouring, at_s: float, chosen: int | None = None) -> dict[str, Any]:
    """What the cluster and the queue were like, ready for JSON.

    Args:
        index: The schedule.
        colours: Of its jobs.
        at_s: When.
        chosen: A job whose GPUs are named.
    """
    lanes = index.bars.at(_us(at_s))
    keys = np.concatenate([colours.keys, np.zeros(1, np.uint8)])[lanes]  # -1, nobody, is the last: 0
    holds = (index.held_from_s <= at_s) & (at_s < index.held_to_s)
    waits = _waiting(index, at_s)
    return {
        "at_s": at_s,
        "lanes": base64.b64encode(_drawable(keys).tobytes()).decode("ascii"),
        "own": [] if chosen is None else (np.flatnonzero(lanes == chosen) // _every(lanes)).tolist(),
        "busy_gpus": round(float(index.held_gpus[holds].sum()), 3),
        "running": int(holds.sum()),
        "waiting": len(waits),
        "waiting_gpus": round(float(_gpus(index, waits).sum()), 3),
        "queue": [_queued(index, int(job), at_s) for job in waits[:MOST_QUEUED]],
    }


def _us(at_s: float) -> int:
    return int(np.clip(np.rint(at_s * US), -(2.0**62), 2.0**62))


def _drawable(keys: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """The same, or the first GPU of each so many: nobody can see more squares."""
    return keys[:: _every(keys)]


def _every(lanes: NDArray[Any]) -> int:
    return -(-len(lanes) // MOST_LANES)


def lanes_per_square(index: ReplayIndex) -> int:
    """How many GPUs a square of ``moment`` stands for."""
    return _every(index.bars.at(0))


def _waiting(index: ReplayIndex, at_s: float) -> NDArray[np.int64]:
    """The jobs that have come and not yet started, those that wait longest first."""
    order = index.by_submit
    come = int(np.searchsorted(index.submit_s, at_s, side="right", sorter=order))
    came = order[:come]
    return came[index.start_s[came] > at_s]


def _gpus(index: ReplayIndex, jobs: NDArray[np.int64]) -> NDArray[np.float64]:
    rows = index.jobs.select("gpus", "gpu_milli")[jobs]
    return (rows["gpus"] * rows["gpu_milli"] / 1000).to_numpy()


def _queued(index: ReplayIndex, job: int, at_s: float) -> dict[str, Any]:
    row = index.jobs.row(job, named=True)
    return {
        "row": row["row"],
        "id": row["source_id"],
        "name": job_name(row),
        "user": row["user"],
        "gpus": row["gpus"] * row["gpu_milli"] / 1000,
        "waited_s": at_s - row["submit_s"],
        "starts_in_s": row["start_s"] - at_s,
    }


def job_name(row: dict[str, Any]) -> str:
    """What a job is called everywhere."""
    return str(JobName(row["row"], row["source_id"]))


def job_on(index: ReplayIndex, lane: int, at_s: float) -> int | None:
    """The job on a GPU at a moment; None if it is idle.

    Raises:
        InputError: if there is no such GPU.
    """
    lanes = index.bars.at(_us(at_s))
    if not 0 <= lane < len(lanes):
        raise InputError(f"GPU {lane}: this cluster has GPUs 0 to {len(lanes) - 1}")
    job = int(lanes[lane])
    return job if job >= 0 else None


def find(index: ReplayIndex, name: str) -> int:
    """The job with this id of the log, else with this row.

    Raises:
        InputError: if there is none.
    """
    jobs = index.jobs
    found = _places(jobs, pl.col("source_id") == name) if name else []
    digits = name.removeprefix("row:")
    if not found and digits.isdecimal() and len(digits) < 19:
        found = _places(jobs, pl.col("row") == int(digits))
    if not found:
        rows = jobs["row"].to_numpy()
        raise InputError(
            f"there is no job {name} in this schedule; it has rows {rows.min()} to {rows.max()} of the log"
        )
    return found[0]


def _places(jobs: pl.DataFrame, condition: pl.Expr) -> list[int]:
    return jobs.select(condition.arg_true()).to_series().to_list()


def job_facts(index: ReplayIndex, job: int) -> dict[str, Any]:
    """What is known of a job, ready for JSON."""
    row = index.jobs.row(job, named=True)
    return {
        "row": row["row"],
        "name": job_name(row),
        **{
            key: row[key]
            for key in ("user", "group", "priority", "submit_s", "start_s", "end_s", "backfilled")
        },
        "gpus": row["gpus"] * row["gpu_milli"] / 1000,
        "wait_s": row["start_s"] - row["submit_s"],
        "duration_s": row["duration_s"],
    }
