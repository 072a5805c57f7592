"""Waiting and running jobs as the core takes them: in its units, with every column checked."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gpuyard import _core
from gpuyard.cluster.model import Cluster
from gpuyard.errors import InputError
from gpuyard.native.columns import QUEUE, RUNNING, Table

STATES = ("starting", "running", "stopping")
"""What a job that holds GPUs may be doing."""


class TypeSets:
    """Distinct lists of GPU types, as numbers of the cluster's.

    Args:
        cluster: Which types there are.
    """

    def __init__(self, cluster: Cluster) -> None:
        self.sets: list[list[int]] = []
        self._known = {gpu_type.name: number for number, gpu_type in enumerate(cluster.gpu_types)}
        self._numbers: dict[tuple[str, ...] | None, int] = {None: -1}

    def number(self, names: Sequence[str] | None) -> int:
        """Of a list, -1 for None; one without a type of the cluster fits nowhere."""
        key = None if names is None else tuple(names)
        if key not in self._numbers:
            self._numbers[key] = len(self.sets)
            self.sets.append([self._known[name] for name in key or () if name in self._known] or [-1])
        return self._numbers[key]


@dataclass(frozen=True)
class CheckedJobs:
    """Tables ``queue`` and ``running`` whose rows ``check_jobs`` has passed, all at once or some at a time.

    Attributes:
        queue: Columns of the waiting jobs.
        running: Columns of the jobs that hold GPUs.
        users: Names by number.
        groups: The same of groups.
        types: Lists of GPU types by number.
    """

    queue: dict[str, NDArray[Any]]
    running: dict[str, NDArray[Any]]
    users: list[str]
    groups: list[str]
    types: TypeSets


def check_jobs(
    cluster: Cluster,
    queue: Mapping[str, Any] | None,
    running: Mapping[str, Any] | None,
    users: list[str],
    groups: list[str],
    types: TypeSets | None = None,
) -> CheckedJobs:
    """Tables as the core takes them.

    Args:
        cluster: What jobs wait for.
        queue: Waiting jobs, as ``make_snapshot`` takes them.
        running: Jobs that hold GPUs.
        users: Names by number.
        groups: The same of groups.
        types: Lists of GPU types that have numbers already; None: none has.

    Raises:
        InputError: naming table, row and column of what is missing or out of range.
    """
    types = types or TypeSets(cluster)
    waiting, held = (
        table.columns(cluster, users=users, groups=groups, type_set=types.number)
        for table in (Table("queue", QUEUE, queue), Table("running", RUNNING, running))
    )
    _check_states(held)
    return CheckedJobs(waiting, held, users, groups, types)


def _check_states(running: dict[str, NDArray[Any]]) -> None:
    stopping = running["state"] == STATES.index("stopping")
    for row in np.flatnonzero(stopping & (running["stop_us"] == _core.ENDLESS)):
        raise InputError(f"running row {row}, column stop_s: missing for a job whose state is stopping")
