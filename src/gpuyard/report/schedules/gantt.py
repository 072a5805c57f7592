"""Schedules as packed columns, for the page's Gantt chart: what all policies share once, the rest a policy.

Times are in whole ``unit_s``. A policy's columns: ``wait`` (start - submit), ``extra`` (end - start - run),
``nodes`` (how many), ``node`` and ``held`` (of each node of each job: number, GPUs held), ``gpu`` (of jobs
that share one, else absent), ``backfilled``. Where jobs ran in several pieces, ``piece_job``, ``piece_from``
and ``piece_length`` are there too, and the nodes are those of pieces.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import polars as pl

from gpuyard.report.model import Report
from gpuyard.report.schedules.packing import LARGEST, Column, pack_columns, pack_json

MOST_BARS = 500_000
"""Bars of all policies together. Ten bytes each or so: this keeps a page below 5 MB."""
FEWEST_POLICIES = 3
SAME_JOBS = ("row", "submit_s", "duration_s", "gpus", "gpu_milli")
"""Columns by which a job of one schedule is that of another."""
UNITS_S = (0.001, 0.01, 0.1, 1.0, 10.0, 60.0, 3600.0)


def gantt_data(report: Report, policies: Sequence[str]) -> tuple[dict[str, Any], dict[str, str]] | None:
    """What the Gantt chart needs.

    Args:
        report: What is shown.
        policies: Names of those to show, the most important first.

    Returns:
        What is needed at once, as JSON, and the packed columns by name; None if there are no schedules.
    """
    frames = {name: report.schedules[name] for name in policies if name in report.schedules}
    frames = {name: frame for name, frame in frames.items() if len(frame)}
    if not frames:
        return None
    whole = len(frames), max(len(frame) for frame in frames.values())
    frames = _limited(frames)
    jobs, places = _shared_jobs(frames)
    end = max(float(frame["end_s"].max()) for frame in frames.values())  # type: ignore[arg-type]
    unit_s = next((unit for unit in UNITS_S if end / unit < LARGEST // 2), UNITS_S[-1])
    packed = {"jobs": pack_columns(_job_columns(jobs, unit_s))}
    shown = []
    for number, (name, frame) in enumerate(frames.items()):
        runs = report.runs.get(name)
        columns = _policy_columns(frame, places[name], jobs, runs, unit_s)
        packed[f"policy-{number}"] = pack_columns(columns)
        shown.append({"name": name, "label": report.label(name), "columns": f"policy-{number}"})
    about = {
        "unit_s": unit_s,
        "epoch_s": report.epoch_s,
        "jobs": len(jobs),
        "nodes": _node_groups(report, frames),
        "policies": shown,
        "layouts": {key: value["columns"] for key, value in packed.items()},
        "note": _cut_note(whole, len(frames), max(len(frame) for frame in frames.values())),
    }
    return about, {"names": _names(jobs)} | {key: value["data"] for key, value in packed.items()}


def _limited(frames: Mapping[str, pl.DataFrame]) -> dict[str, pl.DataFrame]:
    """So few policies, then so few jobs, that the page stays small."""
    bars = {name: int(frame["nodes"].list.len().sum()) for name, frame in frames.items()}
    kept: dict[str, pl.DataFrame] = {}
    total = 0
    for name, frame in frames.items():
        if total + bars[name] <= MOST_BARS or len(kept) < FEWEST_POLICIES:
            kept[name] = frame
            total += bars[name]
    if total <= MOST_BARS:
        return kept
    count = int(max(len(frame) for frame in kept.values()) * MOST_BARS / total)
    return {name: frame.sort("submit_s", maintain_order=True).head(count) for name, frame in kept.items()}


def _cut_note(whole: tuple[int, int], policies: int, jobs: int) -> str:
    notes = []
    if policies < whole[0]:
        notes.append(f"{policies} of {whole[0]} policies")
    if jobs < whole[1]:
        notes.append(f"the first {jobs:,} of {whole[1]:,} jobs")
    return f"To keep this page small: {', '.join(notes)}." if notes else ""


def _shared_jobs(frames: Mapping[str, pl.DataFrame]) -> tuple[pl.DataFrame, dict[str, Any]]:
    """The jobs of all policies, by submit time, and of each policy's jobs where they are among them."""
    first = next(iter(frames.values()))
    if all(frame.select(SAME_JOBS).equals(first.select(SAME_JOBS)) for frame in frames.values()):
        return first, dict.fromkeys(frames)
    own = [*SAME_JOBS, "priority", "user", "group", "source_id"]
    jobs = pl.concat([frame.select(own) for frame in frames.values()])
    jobs = jobs.unique(list(SAME_JOBS), keep="first", maintain_order=True).sort("submit_s", "row")
    place = jobs.select(*SAME_JOBS).with_row_index("place")
    return jobs, {
        name: frame.select(SAME_JOBS).join(place, on=SAME_JOBS, how="left", maintain_order="left")["place"]
        for name, frame in frames.items()
    }


def _whole(seconds: pl.Series, unit_s: float) -> Any:
    return np.rint(seconds.to_numpy() / unit_s).astype(np.int64)


def _codes(values: pl.Series) -> Any:
    return values.rank("dense").to_numpy().astype(np.int64) - 1


def _job_columns(jobs: pl.DataFrame, unit_s: float) -> dict[str, Column]:
    columns = {
        "row": Column((jobs["row"] % LARGEST).to_numpy(), differences=True),
        "submit": Column(_whole(jobs["submit_s"], unit_s), differences=True),
        "duration": Column(_whole(jobs["duration_s"], unit_s).clip(max=LARGEST // 2)),
        "gpus": Column(jobs["gpus"].to_numpy()),
    }
    if (jobs["gpu_milli"] < 1000).any():
        columns["milli"] = Column(jobs["gpu_milli"].to_numpy())
    for name in ("user", "group", "priority"):
        columns[name] = Column(_codes(jobs[name]))
    return columns


def _names(jobs: pl.DataFrame) -> str:
    """Names that the codes of jobs stand for, and the log's own ids if it has any."""
    lists = {name: jobs[name].unique().sort().to_list() for name in ("user", "group", "priority")}
    ids = jobs["source_id"].to_list()
    return pack_json({**lists, "id": ids if any(ids) else None})


def _policy_columns(
    frame: pl.DataFrame, place: Any, jobs: pl.DataFrame, runs: pl.DataFrame | None, unit_s: float
) -> dict[str, Column]:
    start, end = _whole(frame["start_s"], unit_s), _whole(frame["end_s"], unit_s)
    job = frame if place is None else jobs[place]
    duration = _whole(job["duration_s"], unit_s).clip(max=LARGEST // 2)
    columns = {
        "wait": Column(start - _whole(job["submit_s"], unit_s)),
        "extra": Column(end - start - duration),
        "backfilled": Column(frame["backfilled"].cast(pl.Int64).to_numpy()),
    }
    if place is not None:
        columns["job"] = Column(place.to_numpy(), differences=True)
    held = frame
    if runs is not None:
        held = runs.filter(pl.col("entry") < len(frame))
        begin = _whole(held["taken_s"], unit_s)
        columns["piece_job"] = Column(held["entry"].to_numpy())
        columns["piece_from"] = Column(begin, differences=True)
        columns["piece_length"] = Column(_whole(held["released_s"], unit_s) - begin)
    columns["nodes"] = Column(held["nodes"].list.len().to_numpy())
    columns["node"] = Column(held["nodes"].explode().drop_nulls().to_numpy(), differences=True)
    columns["held"] = Column(held["node_gpus"].explode().drop_nulls().to_numpy())
    if (held["gpu_index"] >= 0).any():
        columns["gpu"] = Column(held["gpu_index"].to_numpy())
    return columns


def _node_groups(report: Report, frames: Mapping[str, pl.DataFrame]) -> list[list[Any]]:
    """Count, GPUs and type of each group of nodes."""
    if report.cluster is not None:
        return [[group.count, group.gpus, group.type] for group in report.cluster.nodes]
    last, most = (
        max(int(frame[name].explode().drop_nulls().to_numpy().max(initial=0)) for frame in frames.values())
        for name in ("nodes", "node_gpus")
    )
    return [[last + 1, max(most, 1), "gpu"]]
