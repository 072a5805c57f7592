"""Tables of a snapshot that come from what is remembered."""

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from gpuyard.serve.decision.memory import Memory


def usages(table: dict[str, Any], names: list[str]) -> dict[str, Any]:
    """Usage of users or groups, by number."""
    found = [table.get(name) for name in names]
    return {
        "name": names,
        "usage": [0.0 if usage is None else usage.gpu_s for usage in found],
        "updated_s": [0.0 if usage is None else usage.updated_us / 1e6 for usage in found],
    }


def mix(memory: Memory) -> dict[str, Any]:
    """Jobs that arrived, by gang size."""
    sizes = [(int(gpus), jobs) for gpus, jobs in memory.arrived.items() if int(gpus) > 0]
    return {"gpus": [gpus for gpus, _ in sizes], "jobs": [jobs for _, jobs in sizes]}


def reservations(memory: Memory, ids: list[str], number_of: Mapping[str, int]) -> dict[str, Any] | None:
    """The plan of the last round.

    Args:
        memory: That has it.
        ids: Of the jobs that may be decided on, by number.
        number_of: Nodes by name.
    """
    if not memory.reservations:
        return None
    numbers = {id: number for number, id in enumerate(ids)}
    plan = [entry for entry in memory.reservations if entry[0] in numbers]
    parts = [[(number_of[node], gpus) for node, gpus in nodes] for _, _, _, nodes in plan]
    return {
        "job": [numbers[job] for job, *_ in plan],
        "begin_s": [math.nan if begin_s is None else begin_s for _, begin_s, *_ in plan],
        "end_s": [math.nan if end_s is None else end_s for _, _, end_s, _ in plan],
        "node_offset": [0, *np.cumsum([len(some) for some in parts]).tolist()],
        "node": [node for some in parts for node, _ in some],
        "node_gpus": [gpus for some in parts for _, gpus in some],
    }
