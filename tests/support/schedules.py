"""Schedules written out by hand."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from gpuyard.native.schedule import RUN_ENDINGS, Downtime, Runs, Schedule


def make_schedule(*runs: tuple[float, float, dict[int, int]], **columns: list[int]) -> Schedule:
    """From (start_s, end_s, {node: GPUs}) of each job; the other columns by name, or plain defaults."""
    entries = [entry for _, _, nodes in runs for entry in sorted(nodes.items())]
    return Schedule(
        job=np.array(columns.get("job", list(range(len(runs)))), np.int64),
        start_us=np.array([round(start_s * 1e6) for start_s, _, _ in runs], np.int64),
        end_us=np.array([round(end_s * 1e6) for _, end_s, _ in runs], np.int64),
        status=np.array(columns.get("status", [0] * len(runs)), np.uint8),
        backfilled=np.array(columns.get("backfilled", [0] * len(runs)), np.bool_),
        gpu_index=np.array(columns.get("gpu_index", [-1] * len(runs)), np.int32),
        node_offset=np.cumsum([0, *(len(nodes) for _, _, nodes in runs)], dtype=np.int64),
        node=np.array([node for node, _ in entries], np.int32),
        node_gpus=np.array([gpus for _, gpus in entries], np.int32),
    )


@dataclass(frozen=True)
class Run:
    """One run of a job; times in seconds, the allocation as {node: GPUs}."""

    entry: int
    taken_s: float
    begin_s: float
    stop_s: float
    released_s: float
    nodes: Mapping[int, int]
    ending: str = "completed"
    restore_s: float = 0.0
    lost_s: float = 0.0
    gpu_index: int = -1


def make_runs(*runs: Run) -> Runs:
    """The table of these runs, which must be in order of (begin, job)."""
    assert list(runs) == sorted(runs, key=lambda run: (run.begin_s, run.entry))
    held = [pair for run in runs for pair in sorted(run.nodes.items())]

    def microseconds(name: str) -> np.ndarray:
        return np.array([round(getattr(run, name) * 1e6) for run in runs], np.int64)

    return Runs(
        entry=np.array([run.entry for run in runs], np.int64),
        taken_us=microseconds("taken_s"),
        begin_us=microseconds("begin_s"),
        stop_us=microseconds("stop_s"),
        released_us=microseconds("released_s"),
        ending=np.array([RUN_ENDINGS.index(run.ending) for run in runs], np.uint8),
        restore_us=microseconds("restore_s"),
        lost_us=microseconds("lost_s"),
        gpu_index=np.array([run.gpu_index for run in runs], np.int32),
        node_offset=np.cumsum([0, *(len(run.nodes) for run in runs)], dtype=np.int64),
        node=np.array([node for node, _ in held], np.int32),
        node_gpus=np.array([gpus for _, gpus in held], np.int32),
    )


def make_downtime(*failures: tuple[int, float, float]) -> Downtime:
    """From (node, from_s, to_s) of each failure."""
    return Downtime(
        node=np.array([node for node, _, _ in failures], np.int32),
        from_us=np.array([round(from_s * 1e6) for _, from_s, _ in failures], np.int64),
        to_us=np.array([round(to_s * 1e6) for _, _, to_s in failures], np.int64),
    )
