"""Schedules written out by hand."""

import numpy as np

from gpuyard.schedule import Schedule


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
