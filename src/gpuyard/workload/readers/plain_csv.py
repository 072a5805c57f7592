"""Job tables with the columns arrival_time, runtime, gpus, priority."""

from pathlib import Path
from typing import Literal

import polars as pl
from pydantic import BaseModel, ConfigDict

from gpuyard.errors import setting
from gpuyard.registry import register
from gpuyard.workload.formats import JOBS, Trace, TraceFiles
from gpuyard.workload.importing import ImportLog
from gpuyard.workload.readers.csv_jobs import (
    bad_arrival,
    bad_count,
    bad_duration,
    csv_header,
    csv_parts,
    file_names,
    imported,
    note_repairs,
    number,
    only_file,
    without,
)

COLUMNS = ("arrival_time", "runtime", "gpus", "priority")


class PlainCsvOptions(BaseModel):
    """How to read such a table."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    zero_gpus: Literal["cpu", "one", "reject"] | None = None
    """What gpus = 0 means: a CPU-only job, a part of a GPU (taken as one), or a row to leave out."""


@register("workload-format", "plain-csv")
class PlainCsvFormat:
    """Reduced traces as CSV: arrival_time, runtime, gpus, priority (Alibaba spot GPU 2026)."""

    Options = PlainCsvOptions

    @staticmethod
    def role_of(head: bytes, name: str) -> str | None:
        """By the header, which has exactly these names."""
        return JOBS if sorted(csv_header(head)) == sorted(COLUMNS) else None

    @staticmethod
    def read(files: TraceFiles, log: ImportLog, options: PlainCsvOptions) -> Trace:
        """Read the table."""
        path = only_file(files)
        jobs = csv_parts(path, log, COLUMNS, lambda rows: _jobs(path, rows, log, options.zero_gpus))
        log.assume("arrival_time and runtime are in seconds")
        log.assume(
            "gpus is the whole job's and priority as stated; in the reduced copy of Alibaba's spot trace of "
            "2026 gpus is one worker's and priority was made from it"
        )
        settings = {
            "format": "plain-csv",
            "files": file_names(files),
            **options.model_dump(exclude_none=True),
        }
        return Trace(imported(jobs, path, settings))


def _jobs(path: Path, rows: pl.DataFrame, log: ImportLog, zero_gpus: str | None) -> pl.DataFrame:
    """The jobs of a piece of the file."""
    frame = rows.with_columns(
        number("arrival_time"), number("runtime"), number("gpus"), stated=pl.col("priority"),
        priority=number("priority"),
    )  # fmt: skip
    rules = [*bad_arrival("arrival_time"), bad_count("gpus"), *bad_duration("runtime", "runtime")]
    rules.append(("priority is not a number", pl.col("priority").is_null() & pl.col("stated").is_not_null()))
    if zero_gpus == "reject":
        rules.append(("gpus = 0, which zero_gpus = reject leaves out", pl.col("gpus") == 0))
    frame = without(frame, rules, path, log)
    if zero_gpus is None:
        zero_gpus = _assumed(path, frame, log)
    if zero_gpus == "one":
        note_repairs(frame, [("gpus = 0: taken as 1", pl.col("gpus") == 0)], path, log)
        frame = frame.with_columns(pl.col("gpus").clip(1))
    return frame.select(
        submit_s="arrival_time",
        duration_s="runtime",
        gpus=pl.col("gpus").cast(pl.Int32),
        priority="priority",
    )


def _assumed(path: Path, frame: pl.DataFrame, log: ImportLog) -> str:
    """What gpus = 0 means where nobody said it; only asked if a row has it."""
    zeros = frame.filter(pl.col("gpus") == 0)["line"]
    if len(zeros):
        log.ambiguous(
            f"{path}, line {zeros[0]}, column gpus: is 0, which can be a CPU-only job or a part of a GPU "
            "that was rounded down",
            "it is a part of a GPU, taken as one GPU",
            f"say which with {setting('option.zero_gpus')} (cpu, one or reject)",
        )
    return "one"
