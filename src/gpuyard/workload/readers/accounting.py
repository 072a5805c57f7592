"""What accounting logs of PBS, LSF and Grid Engine have in common: one record per run of a job."""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import polars as pl
from pydantic import BaseModel

from gpuyard.workload.formats import Trace
from gpuyard.workload.importing import ImportLog
from gpuyard.workload.readers.asked_nodes import with_asked_nodes
from gpuyard.workload.readers.repeats import merge_repeats
from gpuyard.workload.readers.row_checks import MAX_COUNT, TIME_CHECKS, Checks, keep_valid, start_or_null
from gpuyard.workload.schema import Step, Where, make_workload

COLUMNS: Mapping[str, Any] = {
    "line": pl.Int64,
    "submit_s": pl.Float64,
    "duration_s": pl.Float64,
    "recorded_start_s": pl.Float64,
    "gpus": pl.Int64,
    "cpus": pl.Int64,
    "memory_mib": pl.Int64,
    "estimate_s": pl.Float64,
    "user": pl.String,
    "group": pl.String,
    "status": pl.String,
    "source_id": pl.String,
    "recorded_nodes": pl.String,
    "nodes": pl.Int64,
    "allocated_nodes": pl.Int64,
    "partition": pl.String,
    "account": pl.String,
    "name": pl.String,
    "after": pl.String,
}
"""What a record says, in the order of a row: its line in the file, then columns of jobs."""

CHECKS: Checks = (*TIME_CHECKS, ("the number of GPUs is out of range", pl.col("gpus") > MAX_COUNT))
"""What every record is held against."""


def valid_jobs(rows: Iterable[tuple[Any, ...]], checks: Checks, file: str, log: ImportLog) -> pl.DataFrame:
    """Rows of ``COLUMNS`` as jobs, without those to which a check applies."""
    jobs = keep_valid(pl.DataFrame(list(rows), schema=dict(COLUMNS), orient="row"), checks, file, log)
    return jobs.with_columns(recorded_start_s=start_or_null(pl.col("recorded_start_s")))


def all_jobs(parts: Sequence[pl.DataFrame]) -> pl.DataFrame:
    """The pieces of all files as one."""
    return pl.concat(parts) if parts else pl.DataFrame(schema=dict(COLUMNS))


def once_each(jobs: pl.DataFrame, paths: Sequence[Path], log: ImportLog) -> pl.DataFrame:
    """Every run once, also where files overlap.

    Raises:
        InputError: if there are no jobs, saying why.
    """
    if jobs.height == 0:
        raise log.nothing_left(", ".join(map(str, paths)))
    return merge_repeats(jobs, ("source_id", "submit_s", "recorded_start_s", "duration_s"), log)


def trace_of(jobs: pl.DataFrame, paths: Sequence[Path], kind: str, options: BaseModel) -> Trace:
    """A workload of these jobs, which says where it comes from.

    Args:
        jobs: Of ``COLUMNS``.
        paths: The files.
        kind: Name of the format.
        options: How records became jobs.
    """
    settings = {"format": kind, "files": [path.name for path in paths]} | options.model_dump()
    workload = make_workload(
        with_asked_nodes(jobs).drop("line", "allocated_nodes"),
        name=paths[0].name.removesuffix(".gz"),
        source=", ".join(path.name for path in paths),
        history=(Step(name="import", settings=settings),),
        where=Where(str(paths[0])),
    )
    return Trace(workload)
