"""What a job is called, and which job a name means: the log's own id first, then the row of the trace."""

from dataclasses import dataclass

import polars as pl

from gpuyard.errors import InputError
from gpuyard.units import plural
from gpuyard.workload.schema import Workload

ROW = "row:"
"""What stands before a number that is a row in any case."""
MOST_CHOICES = 8
MOST_DIGITS = 18


@dataclass(frozen=True)
class JobName:
    """What a job is called everywhere: in messages, schedules, explanations and on pages.

    Attributes:
        row: Its original row in the trace.
        source_id: The log's own id; empty if the log has none.
    """

    row: int
    source_id: str = ""

    def __str__(self) -> str:
        return f"job {self.source_id} (row {self.row})" if self.source_id else f"row {self.row}"


def name_of(workload: Workload, position: int) -> JobName:
    """What the job at that position of the workload's frame is called."""
    frame = workload.frame
    return JobName(int(frame["row"][position]), str(frame["source_id"][position]))


def find_job(workload: Workload, name: str | int) -> int:
    """The position, in the workload's frame, of the job that a name means.

    Args:
        workload: The jobs.
        name: The log's own id of a job, else its row; ``row:16`` is a row in any case. The id of an array
            or of a requeued job is taken if it has one job.

    Raises:
        InputError: if there is no such job, or there are several: then they are named.
    """
    text, frame = str(name).strip(), workload.frame
    if not text.startswith(ROW):
        found = _positions(frame, pl.col("source_id") == text) if text else []
        found = found or (_positions(frame, _is_part_of(text)) if text else [])
        if found:
            return _only(workload, text, found)
    digits = text.removeprefix(ROW)
    is_row = digits.isdecimal() and len(digits) <= MOST_DIGITS
    found = _positions(frame, pl.col("row") == int(digits)) if is_row else []
    if found:
        return _only(workload, text, found)
    raise InputError(f"there is no job {text}; {_what_there_is(workload)}")


def _is_part_of(id: str) -> pl.Expr:
    """Whether a job is one of an array, a set or a requeue: 123_4, 123[4], 123+1 or 123.2 of 123."""
    return pl.any_horizontal(pl.col("source_id").str.starts_with(f"{id}{sign}") for sign in "_[+.")


def _positions(frame: pl.DataFrame, condition: pl.Expr) -> list[int]:
    return frame.select(condition.fill_null(False).arg_true()).to_series().to_list()


def _only(workload: Workload, text: str, found: list[int]) -> int:
    if len(found) == 1:
        return found[0]
    named = ", ".join(_choice(workload, text, position) for position in found[:MOST_CHOICES])
    more = f" and {len(found) - MOST_CHOICES:,} more" if len(found) > MOST_CHOICES else ""
    raise InputError(f"{text} names {plural(len(found), 'job')}: {named}{more}; give one of these")


def _choice(workload: Workload, text: str, position: int) -> str:
    job = name_of(workload, position)
    return f"{ROW}{job.row}" if job.source_id in ("", text) else f"{job.source_id} ({ROW}{job.row})"


def _what_there_is(workload: Workload) -> str:
    frame = workload.frame
    ids = frame["source_id"]
    known = f"ids such as {ids[0]} and " if ids[0] else ""
    rows = frame["row"].to_numpy()
    return f"workload {workload.metadata.name} has {known}rows {rows.min()} to {rows.max()}"
