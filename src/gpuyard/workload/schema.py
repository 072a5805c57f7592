"""The one job table that every reader, generator and simulation shares (docs/formats/job-table.md)."""

from collections.abc import Callable
from dataclasses import dataclass, field
from html import escape
from importlib import import_module
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, JsonValue

from gpuyard.errors import InputError

STATUSES = ("completed", "failed", "cancelled", "timeout", "unknown")

MAX_TIME_S = 2**32
"""Largest input time: up to here seconds in float64 and microseconds convert back and forth exactly."""

_INT32_MAX = 2**31 - 1
_MAX_MEMORY_MIB = 2**40


@dataclass(frozen=True)
class Column:
    """One column of the job table.

    Attributes:
        name: Name in files and frames; times end in ``_s`` (seconds).
        dtype: Type in a Workload's frame.
        meaning: One line for people.
        expected: What a valid value is, for error messages.
        required: Whether a file must have it, without nulls.
        default: Takes the place of null or of the whole column; None leaves nulls.
        low: Smallest valid number.
        high: Largest valid number.
        low_is_valid: Whether ``low`` itself is valid.
        sparse: Left out of a Workload's frame in which it holds nothing but its default, so that logs
            without it pay nothing for it.
    """

    name: str
    dtype: pl.DataType
    meaning: str
    expected: str
    required: bool = False
    default: Any = None
    low: float | None = None
    high: float | None = None
    low_is_valid: bool = True
    sparse: bool = False

    def is_default(self, values: pl.Series) -> bool:
        """Whether values of this column, in its type, say nothing."""
        if self.default is None:
            return values.null_count() == len(values)
        return bool((values == self.default).all())


def _seconds(name: str, meaning: str, **options: Any) -> Column:
    """A time or a length of time. A length (low bound 0 excluded) must be positive."""
    low = options.setdefault("low", 0)
    options.setdefault("high", MAX_TIME_S)
    kind = (
        "seconds" if low < 0 else "seconds, 0 or more" if options.get("low_is_valid", True) else "seconds > 0"
    )
    expected = f"a finite number of {kind} and at most {MAX_TIME_S:.0f}"
    return Column(name, pl.Float64(), meaning, expected, **options)


def _count(name: str, meaning: str, dtype: pl.DataType, low: int, high: int, **options: Any) -> Column:
    """A whole number within bounds, both of them valid."""
    expected = f"a whole number from {low} to {high}"
    return Column(name, dtype, meaning, expected, low=low, high=high, **options)


def _label(name: str, meaning: str) -> Column:
    """Text that most logs lack."""
    return Column(name, pl.String(), meaning, "text", default="", sparse=True)


COLUMNS: tuple[Column, ...] = (
    _seconds("submit_s", "when the job was submitted; shifted so that the first is 0", required=True),
    _seconds("duration_s", "true run time on a GPU of speed 1", required=True, low_is_valid=False),
    _count("gpus", "gang size; 0 = CPU-only job", pl.Int32(), 0, _INT32_MAX, required=True),
    _count(
        "gpu_milli", "thousandths of one GPU; below 1000 only if gpus = 1", pl.Int32(), 1, 1000, default=1000
    ),
    _count("cpus", "CPU cores of the whole job", pl.Int32(), 0, _INT32_MAX, default=0),
    _count("memory_mib", "memory of the whole job, MiB", pl.Int64(), 0, _MAX_MEMORY_MIB, default=0),
    _seconds("estimate_s", "run time that was asked for or predicted; empty = unknown", low_is_valid=False),
    Column(
        "gpu_types",
        pl.List(pl.String()),
        "GPU types it may use; empty = any",
        "names separated by '|', such as v100|a100, none of them empty; leave the field empty for any type",
    ),
    Column("priority", pl.Float64(), "larger is more important", "a finite number", default=1.0),
    Column("user", pl.String(), "who submitted it", "text", default=""),
    Column("group", pl.String(), "virtual cluster, queue or partition", "text", default=""),
    Column(
        "status",
        pl.Enum(STATUSES),
        f"how it ended in the log: {', '.join(STATUSES)}",
        f"one of {', '.join(STATUSES)}",
        default="unknown",
    ),
    _seconds("deadline_s", "due time on the clock of submit_s; empty = none", low=-MAX_TIME_S),
    Column("source_id", pl.String(), "the log's own id of the job", "text", default=""),
    _seconds(
        "recorded_start_s",
        "when it really started, on the clock of submit_s; empty = not known",
        low=-MAX_TIME_S,
        sparse=True,
    ),
    Column(
        "recorded_nodes",
        pl.String(),
        "the nodes that it really ran on, each once; empty = not known",
        "names separated by '|', such as node01|node02",
        sparse=True,
    ),
    _count(
        "nodes", "nodes that the user asked for; empty = any number", pl.Int32(), 1, _INT32_MAX, sparse=True
    ),
    _label("partition", "the log's partition or queue"),
    _label("qos", "the log's quality of service"),
    _label("account", "the log's account or project"),
    _label("name", "the log's name of the job"),
    Column(
        "after",
        pl.String(),
        "ids (source_id) of jobs that have to end before it may start; empty = none",
        "ids separated by '|', such as 1017|1018",
        sparse=True,
    ),
    _count("row", "original row in the trace, from 0; absent = position", pl.Int64(), 0, 2**63 - 1),
)

SCHEMA = pl.Schema({column.name: column.dtype for column in COLUMNS})
"""All columns there are. A frame lacks those ``sparse`` ones that would hold nothing but their default."""

COLUMN = {column.name: column for column in COLUMNS}
"""Columns by name."""

SPARSE = tuple(column.name for column in COLUMNS if column.sparse)
CLOCK = ("submit_s", "deadline_s", "recorded_start_s")
"""Columns that hold moments on the workload's clock, not lengths of time."""


class Step(BaseModel):
    """Something that was done to make a workload: a generator, a filter, a slice."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str
    settings: dict[str, JsonValue] = {}


class WorkloadMetadata(BaseModel):
    """Where a workload comes from. Kept in parquet files; CSV has no room for it."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    name: str = "workload"
    origin_s: float = 0.0
    """Offset of a slice from the start of its trace, seconds; 0 for a whole trace."""
    epoch_s: float = 0.0
    """What the source's own clock showed at the first submit, seconds."""
    source: str = ""
    """The file it was read from, or the generator."""
    history: tuple[Step, ...] = ()
    """What was done to it, oldest first."""


@dataclass(frozen=True, eq=False)
class Workload:
    """Jobs sorted by submit time, the first at 0. Make one with ``make_workload`` or ``read_workload``.

    Attributes:
        frame: The columns of ``SCHEMA`` in its order, defaults filled in; without ``SPARSE`` ones that no
            job has a value of (``column`` gives those too).
        metadata: Where it comes from.
    """

    frame: pl.DataFrame
    metadata: WorkloadMetadata = field(default_factory=WorkloadMetadata)

    def __post_init__(self) -> None:
        present = self.frame.schema
        wanted = {name: dtype for name, dtype in SCHEMA.items() if name in present or name not in SPARSE}
        if present != pl.Schema(wanted):
            raise ValueError("a Workload's frame must have the native schema; use make_workload(frame)")

    def has(self, name: str) -> bool:
        """Whether any job says something in a column; always true for those that are not sparse."""
        return name in self.frame.columns

    def column(self, name: str) -> pl.Series:
        """A column of ``SCHEMA``, also one that the frame leaves out because it holds only its default."""
        if name in self.frame.columns:
            return self.frame[name]
        column = COLUMN[name]
        return pl.Series(name, [column.default], dtype=column.dtype).new_from_index(0, len(self))

    def __len__(self) -> int:
        return self.frame.height

    def __repr__(self) -> str:
        span_days = float(self.frame["submit_s"][-1]) / 86400
        largest = self.frame["gpus"].max()
        size = f"{len(self):,} jobs, up to {largest!r} GPUs, {span_days:.3g} days"
        return f"Workload({self.metadata.name!r}: {size})"

    def _repr_html_(self) -> str:
        """For notebooks: what it is, and its first jobs."""
        return f"<p>{escape(repr(self))}</p>{self.frame.head()._repr_html_()}"

    def to_pandas(self) -> Any:
        """The jobs as a frame of pandas; ``make_workload`` takes one back."""
        return to_pandas(self.frame)


@dataclass(frozen=True)
class Where:
    """How error messages name a place in the input.

    Attributes:
        source: File or other origin.
        place: From a row's position (from 0) to what a person looks up, such as ``line 17``.
    """

    source: str
    place: Callable[[int], str] = lambda position: f"row {position + 1} (the first is 1)"


def make_workload(
    frame: Any,
    *,
    name: str = "workload",
    origin_s: float = 0.0,
    epoch_s: float = 0.0,
    source: str = "",
    history: tuple[Step, ...] = (),
    where: Where | str = "workload",
) -> Workload:
    """Check a table of jobs and bring it into the native form.

    Times are rounded to whole microseconds, rows sorted by ``submit_s`` (stable) and all times of the clock
    shifted so that the first submit is 0; ``epoch_s`` grows by the shift.

    Args:
        frame: Columns of ``SCHEMA``, at least the required ones, in any order and type that converts; of
            polars or pandas.
        name: Name of the workload.
        origin_s: Offset of the first submit from the start of the trace, if the jobs are a slice of one.
        epoch_s: What the source's clock showed at time 0 of the frame, seconds.
        source: The file or generator it comes from.
        history: What was done so far.
        where: How to name the input in error messages.

    Raises:
        InputError: naming the first offending row and column, what was expected and what to do.
    """
    # Imported here because the checks are written in terms of the table above.
    from gpuyard.workload.validation import checked_frame

    where = Where(where) if isinstance(where, str) else where
    frame = from_pandas(frame) if is_pandas(frame) else frame
    jobs, shift_s = _on_own_clock(checked_frame(frame, where), where)
    if not jobs["submit_s"].is_sorted():
        jobs = jobs.sort("submit_s", maintain_order=True)
    metadata = WorkloadMetadata(
        name=name, origin_s=origin_s, epoch_s=epoch_s + shift_s, source=source, history=history
    )
    return Workload(jobs, metadata)


def _on_own_clock(jobs: pl.DataFrame, where: Where) -> tuple[pl.DataFrame, float]:
    """Times on whole microseconds with the first submit at 0, and the seconds that were subtracted."""
    moments = [name for name in CLOCK if name in jobs.columns]
    first_us = float(_microseconds(jobs["submit_s"]).min())
    jobs = jobs.with_columns(
        *(_in_seconds(name, _microseconds(jobs[name]) - first_us) for name in moments),
        *(
            _in_seconds(name, np.maximum(_microseconds(jobs[name]), 1.0))
            for name in ("duration_s", "estimate_s")
        ),
    )
    for name in moments[1:]:
        if float(jobs[name].min() or 0.0) < -MAX_TIME_S:  # type: ignore[arg-type]
            raise InputError(
                f"{where.source}, column {name}: a moment lies more than {MAX_TIME_S:.0f} s before "
                "the first submit; correct it or leave it empty"
            )
    return jobs, first_us / 1e6


def microseconds(seconds: pl.Series) -> NDArray[np.int64]:
    """Seconds as int64 microseconds, rounded half to even."""
    return _microseconds(seconds).astype(np.int64)


def _microseconds(seconds: pl.Series) -> NDArray[np.float64]:
    """Whole microseconds, still as float64, rounded half to even; NaN for null."""
    rounded: NDArray[np.float64] = np.rint(seconds.to_numpy() * 1e6)
    return rounded


def _in_seconds(name: str, microseconds: NDArray[np.float64]) -> pl.Series:
    """Seconds as docs/contract/simulator.md, section 1, has them: the quotient, correctly rounded.

    The division is numpy's: polars divides by a number through its reciprocal, off in the last bit.
    """
    return pl.Series(name, microseconds / 1e6, nan_to_null=True)


def is_pandas(table: object) -> bool:
    """Whether this is a frame of pandas, without loading pandas."""
    return any(kind.__module__.partition(".")[0] == "pandas" for kind in type(table).__mro__)


def from_pandas(table: Any) -> pl.DataFrame:
    """A frame of pandas as one of polars; missing values become null, the index is left out."""
    columns = {}
    for name in table.columns:
        column = table[name].astype(object)
        columns[str(name)] = column.where(column.notna(), None).tolist()
    try:
        return pl.DataFrame(columns, infer_schema_length=None)
    except (TypeError, pl.exceptions.PolarsError) as error:
        raise InputError(f"a column of the frame of pandas mixes types: {error}") from None


def to_pandas(frame: pl.DataFrame) -> Any:
    """A frame of polars as one of pandas, without pyarrow, which polars' own conversion asks for.

    Raises:
        InputError: if pandas is not installed.
    """
    try:
        pandas = import_module("pandas")
    except ModuleNotFoundError:
        raise InputError("needs the package pandas; install it with: pip install pandas") from None
    return pandas.DataFrame({name: frame[name].to_list() for name in frame.columns})
