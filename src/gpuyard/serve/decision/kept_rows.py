"""Checked rows of jobs, kept from round to round: only what is new or changed is checked and converted."""

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import chain
from operator import attrgetter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gpuyard.cluster.model import Cluster
from gpuyard.native.checked import CheckedJobs, TypeSets, check_jobs
from gpuyard.serve.decision.job_rows import QUEUE, RUNNING, Known, Owners

Ints = NDArray[np.int64]
Columns = dict[str, NDArray[Any]]
_PARTS = ("node", "node_gpus", "cpus", "memory_mib")
_GARBAGE = 1_000
"""So many rows that nobody needs are not worth the time to drop them."""


class Rows:
    """Columns that grow at their end.

    Args:
        first: Their first rows, which may be none.
    """

    def __init__(self, first: Columns) -> None:
        self._columns = dict(first)
        self.size = len(next(iter(first.values())))

    def add(self, rows: Columns) -> int:
        """Add rows behind the others; the number of the first of them."""
        first = self.size
        self.size += len(next(iter(rows.values())))
        for name, values in rows.items():
            if len(self._columns[name]) < self.size:
                room = np.zeros(2 * self.size, self._columns[name].dtype)
                room[:first] = self._columns[name][:first]
                self._columns[name] = room
            self._columns[name][first : self.size] = values
        return first

    def take(self, rows: Ints) -> Columns:
        """Some rows, in this order."""
        return {name: values.take(rows) for name, values in self._columns.items()}


def spans(first: Ints, count: Ints) -> Ints:
    """Numbers ``first`` to ``first + count``, one span behind the other."""
    ends = np.cumsum(count)
    total = int(ends[-1]) if len(ends) else 0
    return np.repeat(first - (ends - count), count) + np.arange(total)


@dataclass(frozen=True)
class HeldJobs:
    """Jobs that hold nodes: their rows, parts and ids, nothing for parts of jobs."""

    rows: Columns
    parts: Columns
    ids: list[str]

    def followed_by(self, others: "HeldJobs") -> "HeldJobs":
        """These jobs and then others."""
        rows, parts = (
            {name: np.concatenate((values, more[name])) for name, values in some.items()}
            for some, more in ((self.rows, others.rows), (self.parts, others.parts))
        )
        return HeldJobs(rows, parts, [*self.ids, *others.ids])


class KeptRows:
    """Rows of the jobs of one cluster.

    Args:
        cluster: Which.
        users: Numbers of users.
        groups: The same of groups.
    """

    def __init__(self, cluster: Cluster, users: Owners, groups: Owners) -> None:
        self._cluster, self._users, self._groups = cluster, users, groups
        self.types = TypeSets(cluster)
        empty = self._checked([], [])
        self._queue, self._parts = Rows(empty.queue), Rows(_no_parts())
        self._running = Rows(self._split(empty.running, 0))
        self._most = _GARBAGE

    # --- keeping

    def keep(self, waiting: list[Known], running: list[Known]) -> None:
        """Check the rows of jobs and keep them.

        Args:
            waiting: Jobs that may be decided on.
            running: Jobs that hold nodes.

        Raises:
            InputError: naming table, row and column of what is out of range.
        """
        if not waiting and not running:
            return
        checked = self._checked(waiting, running)
        row = self._queue.add(checked.queue)
        for known in waiting:
            known.row, row = row, row + 1
        held = [part for known in running for part in known.held]
        places = np.array(held, np.int64).reshape(-1, 3)
        parts = {"node": checked.running["node"], "node_gpus": checked.running["node_gpus"]}
        first = self._parts.add(parts | {"cpus": places[:, 1], "memory_mib": places[:, 2]})
        row = self._running.add(self._split(checked.running, first))
        for known in running:
            known.row, row = row, row + known.count
        for known in chain(waiting, running):
            known.rows = []

    def _checked(self, waiting: list[Known], running: list[Known]) -> CheckedJobs:
        return check_jobs(
            self._cluster,
            self._queue_table(waiting),
            self._running_table(running),
            self._users.names,
            self._groups.names,
            self.types,
        )

    def _split(self, running: Columns, first: int) -> Columns:
        """Columns of rows; those of parts, which begin with this one, lie elsewhere."""
        offset = running["node_offset"]
        own = {name: values for name, values in running.items() if name not in ("node_offset", *_PARTS[:2])}
        return own | {"first_part": first + offset[:-1], "parts": np.diff(offset)}

    def _queue_table(self, waiting: list[Known]) -> dict[str, Any]:
        table = _table(QUEUE, [known.rows[0] for known in waiting])
        self._add_places(table, waiting)
        if any(known.job.gpu_types is not None for known in waiting):
            table["gpu_types"] = [known.job.gpu_types for known in waiting]
        return table

    def _running_table(self, running: list[Known]) -> dict[str, Any]:
        table = _table(RUNNING, [row for known in running for row in known.rows])
        parts = [count for known in running for count in known.parts]
        table["node_offset"] = np.concatenate(([0], np.cumsum(parts))).astype(np.int64)
        table["node"] = np.array([node for known in running for node in known.node], np.int32)
        table["node_gpus"] = np.array([part[0] for known in running for part in known.held], np.int32)
        self._add_places(table, [known for known in running for _ in known.rows])
        return table

    def _add_places(self, table: dict[str, Any], jobs: list[Known]) -> None:
        """Partitions and QOS, where there are any."""
        if self._cluster.partitions:
            table["partition"] = [known.partition for known in jobs]
        if self._cluster.qos:
            table["qos"] = [known.job.qos for known in jobs]

    # --- what is kept

    def waiting(self, rows: Ints) -> Columns:
        """Rows of waiting jobs."""
        return self._queue.take(rows)

    def running(self, first: Ints, count: Ints) -> tuple[Columns, Columns]:
        """Rows of jobs that hold nodes, and their parts."""
        rows = self._running.take(spans(first, count))
        return rows, self._parts.take(spans(rows["first_part"], rows["parts"]))

    def tidy(self, known: Iterable[Known]) -> bool:
        """Drop what belongs to none of these jobs, if it is much; whether rows were moved."""
        if self._queue.size + self._running.size <= self._most:
            return False
        there = [one for one in known if one.row >= 0]
        self._drop_waiting([one for one in there if one.waits])
        self._drop_running([one for one in there if not one.waits])
        self._most = 2 * (self._queue.size + self._running.size) + _GARBAGE
        return True

    def _drop_waiting(self, known: list[Known]) -> None:
        self._queue = Rows(self.waiting(numbers_of(known, "row")))
        for row, one in enumerate(known):
            one.row = row

    def _drop_running(self, known: list[Known]) -> None:
        rows, parts = self.running(numbers_of(known, "row"), numbers_of(known, "count"))
        rows["first_part"] = np.cumsum(rows["parts"]) - rows["parts"]
        self._running, self._parts = Rows(rows), Rows(parts)
        row = 0
        for one in known:
            one.row, row = row, row + one.count


def _table(names: tuple[str, ...], rows: list[tuple[float, ...]]) -> dict[str, Any]:
    numbers = np.array(rows, np.float64).reshape(-1, len(names))
    table: dict[str, Any] = {name: numbers[:, place] for place, name in enumerate(names)}
    for kind in ("user", "group"):
        table[kind] = table[kind].astype(np.int32)
    return table | {"job": np.zeros(len(rows), np.int64)}


def _no_parts() -> Columns:
    return {name: np.zeros(0, np.int32 if name.startswith("node") else np.int64) for name in _PARTS}


def numbers_of(jobs: list[Known], name: str) -> Ints:
    """One attribute of jobs."""
    return np.fromiter(map(attrgetter(name), jobs), np.int64, len(jobs))
