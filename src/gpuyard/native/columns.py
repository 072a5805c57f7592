"""Columns of the tables that a snapshot is made of: types, ranges, defaults (docs/contract/snapshot.md)."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gpuyard import _core
from gpuyard.cluster.model import Cluster
from gpuyard.errors import InputError

LATEST_S = 2.0**51 / 1e6
"""Times in seconds up to here are exact to the microsecond; later ones are refused."""
UNKNOWN_RUN_S = 3600.0
"""A prediction from no finished jobs at all (docs/contract/simulator.md, section 19)."""


@dataclass(frozen=True, eq=False)
class Column:
    """One column. Each is itself only: to compare and to hash all it says would cost time.

    Attributes:
        name: As people write it; times end in ``_s``.
        dtype: As the core takes it.
        default: What rows have if the column is left out: a number, the name of another column, ``now`` or
            None if it must be given.
        low: The smallest number that is legal.
        high: The largest.
        endless: Whether NaN or None is legal, and means unknown or never.
        per_part: Whether there is one entry per node of a job, not per job.
        optional: Whether the core does without it.
    """

    name: str
    dtype: type
    default: float | str | None = None
    low: float | None = None
    high: float | None = None
    endless: bool = False
    per_part: bool = False
    optional: bool = False

    @cached_property
    def is_time(self) -> bool:
        """Whether it is a time in seconds, which the core counts in microseconds."""
        return self.name.endswith("_s") and self.dtype is np.int64 and self.name != "gpu_s"

    @cached_property
    def is_count(self) -> bool:
        """Whether it takes whole numbers only."""
        return np.issubdtype(self.dtype, np.integer) and not self.is_time

    @cached_property
    def core_name(self) -> str:
        """As the core calls it."""
        return f"{self.name.removesuffix('_s')}_us" if self.is_time else self.name


def _time(name: str, default: float | str | None = 0.0, **more: Any) -> Column:
    return Column(name, np.int64, default, **({"low": -LATEST_S, "high": LATEST_S} | more))


_MOST = 2**31 - 1
_NEEDS = (
    Column("gpus", np.int32, None, 0, _MOST),
    Column("gpu_milli", np.int32, 1000, 1, 1000),
    Column("cpus", np.int64, 0, 0, _core.UNLIMITED),
    Column("memory_mib", np.int64, 0, 0, _core.UNLIMITED),
    Column("nodes", np.int32, 0, 0, _MOST),
)
_PARTS = (
    Column("node", np.int32, None, per_part=True),
    Column("node_gpus", np.int32, None, 0, _MOST, per_part=True),
    Column("gpu_mask", np.uint64, None, per_part=True, optional=True),
)
_EARLIER_RUNS = (_time("done_s", low=0.0), _time("attained_s", low=0.0), _time("promoted_s", low=0.0))
_ESTIMATE = _time("estimate_s", np.nan, low=1e-6, endless=True)

QUEUE = (
    Column("job", np.int64, None, 0),
    _time("submit_s", None),
    _ESTIMATE,
    *_NEEDS,
    Column("priority", np.float64, 1.0),
    _time("deadline_s", np.nan, endless=True),
    Column("row", np.int64, "job"),
    _time("queued_s", "submit_s"),
    _time("prediction_s", UNKNOWN_RUN_S, low=0.0),
    Column("fair_factor", np.float64, 1.0, 0.0, 1.0),
    *_EARLIER_RUNS,
)
RUNNING = (
    Column("job", np.int64, None, 0),
    _time("begin_s", None),
    _ESTIMATE,
    *_NEEDS,
    _time("expected_end_s", None, endless=True, optional=True),
    _time("restore_s", low=0.0),
    _time("stop_s", np.nan, endless=True),
    Column("row", np.int64, "job"),
    *_EARLIER_RUNS,
    *_PARTS,
)
NODES = (
    Column("down", np.uint8, 0, 0, 1),
    Column("promised", np.int32, 0, 0, 65_000),
    _time("idle_since_s", "now"),
    _time("awake_at_s", "now"),
)
USERS = (Column("usage", np.float64, 0.0, 0.0), _time("updated_s", "now"))
GROUPS = USERS
FINISHED = (Column("gpu_s", np.int64, None, 0), Column("jobs", np.int64, 1, 1))
MIX = (
    Column("gpus", np.int32, None, 1, _MOST),
    Column("gpu_milli", np.int32, 1000, 1, 1000),
    Column("jobs", np.int64, 1, 1),
)
RESERVATIONS = (
    Column("job", np.int64, None),
    _time("begin_s", None, endless=True),
    _time("end_s", np.nan, endless=True),
    *_PARTS,
)
_BESIDE = {
    "queue": ("user", "group", "owner", "partition", "qos", "gpu_types"),
    "running": ("user", "group", "owner", "partition", "qos", "gpu_types", "state", "node_offset"),
    "users": ("name",),
    "groups": ("name",),
    "reservations": ("node_offset",),
}
"""Columns that are more than a number."""
_STATES = {"starting": 0, "running": 1, "stopping": 2}
_DEFAULTS: dict[Column, Any] = {}


class Table:
    """A table as it was given, and as the core takes it.

    Args:
        name: Of the table.
        known: Its columns.
        raw: What was given; None for a table without rows.
        rows: How many rows it must have, if that is known.
    """

    def __init__(
        self,
        name: str,
        known: Sequence[Column],
        raw: Mapping[str, Any] | None,
        rows: int | None = None,
    ) -> None:
        self.name, self.raw = name, dict(raw or {})
        self._known = known
        names = [column.name for column in known] + list(_BESIDE.get(name, ()))
        for column in self.raw:
            if column not in names:
                raise InputError(f"table {name} has no column {column!r}; it has {', '.join(names)}")
        self.rows = self._count_rows() if rows is None else rows
        self._plain: set[str] = set()

    def _count_rows(self) -> int:
        per_part = {column.name for column in self._known if column.per_part}
        for column in [name for name in self.raw if name not in per_part]:
            return len(self.raw[column]) - (column == "node_offset")
        return 0

    def names(self) -> list[str] | None:
        """Its column ``name``, if there is one."""
        if "name" not in self.raw:
            return None
        names = [str(name) for name in self.raw["name"]]
        for row, name in enumerate(names):
            if name in names[:row]:
                raise InputError(f"{self.name} row {row}, column name: {name!r} is there twice")
        return names

    def columns(
        self,
        cluster: Cluster | None = None,
        now_us: int = 0,
        users: Sequence[str] = (),
        groups: Sequence[str] = (),
        type_set: Callable[[Sequence[str] | None], int] | None = None,
    ) -> dict[str, NDArray[Any]]:
        """All columns as the core takes them, checked one by one."""
        made: dict[str, NDArray[Any]] = {}
        self._plain = self._plain_columns()
        parts = self._add_offset(made) if "node_offset" in _BESIDE.get(self.name, ()) else 0
        for column in self._known:
            values = self._values(column, made, now_us, parts if column.per_part else self.rows)
            if values is not None:
                made[column.core_name] = values
        if cluster is None:
            return made
        self._check_shares(made)
        made["user"], made["group"] = self._numbers("user", users), self._numbers("group", groups)
        made["queue"] = self._queues(cluster, groups, made["group"])
        made["partition"], made["qos"] = self._partitions(cluster), self._qos(cluster)
        if type_set is not None:
            types = self._list("gpu_types", None) if "gpu_types" in self.raw else None
            made["type_set"] = (
                np.full(self.rows, type_set(None), np.int32)
                if types is None
                else np.array([type_set(names) for names in types], np.int32)
            )
        if self.name == "running":
            made["state"] = self._states()
        return made

    # --- one column

    def _error(self, row: int, column: str, what: str) -> InputError:
        return InputError(f"{self.name} row {row}, column {column}: {what}")

    def _values(
        self, column: Column, made: dict[str, NDArray[Any]], now_us: int, rows: int
    ) -> NDArray[Any] | None:
        name = column.name
        if name in self.raw:
            return self._converted(column, self._numeric(name, rows))
        if column.optional:
            return None
        if column.default is None:
            if rows:
                raise InputError(f"table {self.name} needs a column {name}")
            return np.zeros(0, column.dtype)
        if column.default == "now":
            return np.full(rows, now_us, np.int64)
        if isinstance(column.default, str):
            return made[next(known.core_name for known in self._known if known.name == column.default)]
        return np.full(rows, self._default(column))

    def _default(self, column: Column) -> Any:
        """What rows have by default, as the core takes it: worked out once."""
        if column not in _DEFAULTS:
            _DEFAULTS[column] = self._checked(column, np.full(1, column.default))[0]
        return _DEFAULTS[column]

    def _numeric(self, name: str, rows: int) -> NDArray[Any]:
        given = self.raw[name]
        try:
            values = np.asarray(given)
            values = values.astype(np.float64) if values.dtype == object else values
            valid = values.ndim == 1 and (values.dtype.kind in "iufb" or not len(values))
        except (TypeError, ValueError):
            valid = False
        if not valid:
            raise InputError(
                f"table {self.name}, column {name}: expected one number per row, in one dimension"
            )
        if len(values) != rows:
            raise InputError(f"table {self.name}, column {name}: {len(values)} entries for {rows} rows")
        return values

    def _plain_columns(self) -> set[str]:
        """Columns of floats with which all is well, found in one go: a live cluster is asked every second."""
        columns = [column for column in self._known if _is_floats(self.raw.get(column.name), self.rows)]
        if not columns:
            return set()
        plain = _are_plain(columns, np.stack([self.raw[column.name] for column in columns]))
        return {column.name for column, well in zip(columns, plain, strict=True) if well}

    def _converted(self, column: Column, values: NDArray[Any]) -> NDArray[Any]:
        if column.name in self._plain or (values.dtype.kind != "f" and _are_plain([column], values[None])[0]):
            return _plainly(column, values)
        return self._checked(column, values)

    def _checked(self, column: Column, values: NDArray[Any]) -> NDArray[Any]:
        missing = np.isnan(values) if values.dtype.kind == "f" else np.zeros(len(values), bool)
        bad = np.isinf(values) if values.dtype.kind == "f" else np.zeros(len(values), bool)
        if not column.endless:
            bad = bad | missing
        for limit, outside in (
            (column.low, values < (column.low or 0)),
            (column.high, values > (column.high or 0)),
        ):
            bad = bad | (outside & ~missing if limit is not None else False)
        if column.is_count and values.dtype.kind == "f":
            bad = bad | (~missing & (values != np.floor(values)))
        if bad.any():
            row = int(np.argmax(bad))
            raise self._error(row, column.name, f"{values[row]}; expected {_range_of(column)}")
        if column.is_time:
            us = np.rint(np.where(missing, 0.0, values) * 1e6).astype(np.int64)
            return np.where(missing, _core.ENDLESS, us)
        return np.ascontiguousarray(values, dtype=column.dtype)

    def _list(self, name: str, default: Any) -> list[Any]:
        values = self.raw.get(name)
        if values is None:
            return [default] * self.rows
        found = list(values)
        if len(found) != self.rows:
            raise InputError(f"table {self.name}, column {name}: {len(found)} entries for {self.rows} rows")
        return found

    # --- columns that are more than a number

    def _add_offset(self, made: dict[str, NDArray[Any]]) -> int:
        """Where each row's nodes begin; how many there are in all."""
        parts = len(self.raw.get("node", ()))
        if "node_offset" in self.raw:
            offset = self._numeric("node_offset", self.rows + 1).astype(np.int64)
        elif parts == self.rows:
            offset = np.arange(self.rows + 1, dtype=np.int64)  # one node each
        else:
            raise InputError(
                f"table {self.name} needs a column node_offset: {parts} nodes for {self.rows} rows, of "
                "which row i's are node_offset[i] to node_offset[i + 1]"
            )
        bad = np.flatnonzero(np.diff(offset) < 0)
        if offset[0] != 0 or offset[-1] != parts or len(bad):
            row = int(bad[0]) if len(bad) else 0
            raise self._error(
                row, "node_offset", f"expected numbers that ascend from 0 to {parts}, the nodes"
            )
        made["node_offset"] = offset
        return parts

    def _numbers(self, name: str, names: Sequence[str]) -> NDArray[np.int32]:
        given = self.raw.get(name)
        if isinstance(given, np.ndarray) and given.dtype.kind in "iu" and given.shape == (self.rows,):
            inside = (given >= 0) & (given < len(names))
            if inside.all():
                return np.asarray(given, np.int32)
        known = {text: number for number, text in enumerate(names)}
        numbers = np.zeros(self.rows, np.int32)
        for row, value in enumerate(self._list(name, 0)):
            is_name = isinstance(value, str)
            number = known.get(value, -1) if is_name else int(value)
            if not 0 <= number < len(names):
                raise self._error(row, name, f"{value!r} is not in table {name}s; add a row for it there")
            numbers[row] = number
        return numbers

    def _queues(self, cluster: Cluster, groups: Sequence[str], group: NDArray[np.int32]) -> NDArray[np.int32]:
        """Whose nodes each job may use: an owner's number + 1, or 0 for nodes that nobody owns."""
        owners = {name: number for number, name in enumerate(cluster.owners, start=1)}
        if "owner" not in self.raw:
            by_group = np.array([owners.get(name, 0) for name in groups], np.int32)
            return by_group[group] if len(group) else group
        queues = np.zeros(self.rows, np.int32)
        for row, owner in enumerate(self._list("owner", None)):
            if owner is not None and owner not in owners:
                raise self._error(
                    row, "owner", f"{owner!r} owns no nodes of cluster {cluster.name}; use None"
                )
            queues[row] = owners.get(owner, 0)
        return queues

    def _partitions(self, cluster: Cluster) -> NDArray[np.int32]:
        """Numbers of partitions, by name; -1 in a cluster without any."""
        known = {entry.name: number for number, entry in enumerate(cluster.partitions)}
        default = next((entry.name for entry in cluster.partitions if entry.default), None)
        numbers = np.full(self.rows, -1, np.int32)
        if not cluster.partitions and "partition" not in self.raw:
            return numbers
        for row, name in enumerate(self._list("partition", default)):
            if (cluster.partitions or name is not None) and name not in known:
                raise self._error(
                    row, "partition", f"{name!r}; cluster {cluster.name} has {', '.join(known) or 'none'}"
                )
            numbers[row] = known.get(name, -1)
        return numbers

    def _qos(self, cluster: Cluster) -> NDArray[np.int32]:
        """Numbers of qualities of service, by name; -1 for none and for those that are not listed."""
        known = {entry.name: number for number, entry in enumerate(cluster.qos)}
        if "qos" not in self.raw:
            return np.full(self.rows, -1, np.int32)
        return np.array([known.get(name, -1) for name in self._list("qos", None)], np.int32)

    def _states(self) -> NDArray[np.uint8]:
        if "state" not in self.raw:
            return np.full(self.rows, _STATES["running"], np.uint8)
        states = self._list("state", "running")
        for row, state in enumerate(states):
            if state not in _STATES:
                raise self._error(row, "state", f"{state!r}; expected {', '.join(_STATES)}")
        return np.array([_STATES[state] for state in states], np.uint8)

    def _check_shares(self, made: dict[str, NDArray[Any]]) -> None:
        shared = (made["gpu_milli"] < 1000) & (made["gpus"] != 1)
        if shared.any():
            row = int(np.argmax(shared))
            raise self._error(
                row,
                "gpu_milli",
                f"{made['gpu_milli'][row]} with {made['gpus'][row]} GPUs; only a job of one GPU "
                "shares it, others have 1000",
            )


def _is_floats(values: Any, rows: int) -> bool:
    return isinstance(values, np.ndarray) and values.dtype == np.float64 and values.shape == (rows,)


def _are_plain(columns: Sequence[Column], values: NDArray[Any]) -> list[bool]:
    """Whether all is well with each column, one per row of values, by few passes over all."""
    if not values.shape[1]:
        return [False] * len(columns)
    low, high = values.min(axis=1), values.max(axis=1)  # NaN if there is any
    well = np.isfinite(low) & np.isfinite(high)
    well &= low >= [-np.inf if column.low is None else column.low for column in columns]
    well &= high <= [np.inf if column.high is None else column.high for column in columns]
    if values.dtype.kind == "f":
        well &= ~np.array([column.is_count for column in columns]) | (values == np.floor(values)).all(axis=1)
    found: list[bool] = well.tolist()
    return found


def _plainly(column: Column, values: NDArray[Any]) -> NDArray[Any]:
    if column.is_time:
        return np.rint(values * 1e6).astype(np.int64)
    return np.ascontiguousarray(values, dtype=column.dtype)


def _range_of(column: Column) -> str:
    kind = (
        "a time in seconds"
        if column.is_time
        else "a number"
        if column.dtype is np.float64
        else "a whole number"
    )
    low = "" if column.low is None else f" from {column.low:g}"
    high = "" if column.high is None else f" to {column.high:g}"
    return f"{kind}{low}{high}" + (", or NaN if unknown" if column.endless else "")
