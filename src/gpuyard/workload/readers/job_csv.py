"""Reduced job tables with the columns job_id, arrival_s, service_sec, gpu_count."""

from pathlib import Path

import polars as pl

from gpuyard.registry import register
from gpuyard.workload.formats import JOBS, NoOptions, Trace, TraceFiles
from gpuyard.workload.importing import ImportLog
from gpuyard.workload.readers.csv_jobs import (
    bad_arrival,
    bad_count,
    bad_duration,
    csv_header,
    csv_parts,
    file_names,
    imported,
    number,
    only_file,
    without,
)

COLUMNS = ("job_id", "arrival_s", "service_sec", "gpu_count")

CLAMP_S = 172_800.0
"""Where the known tables of this form cut run times: 48 hours."""

_PAI_ID = "ali-"


@register("workload-format", "job-csv")
class JobCsvFormat:
    """Reduced traces as CSV: job_id, arrival_s, service_sec, gpu_count (GPU jobs of Helios Venus, PAI)."""

    @staticmethod
    def role_of(head: bytes, name: str) -> str | None:
        """By the header, which has exactly these names."""
        return JOBS if sorted(csv_header(head)) == sorted(COLUMNS) else None

    @staticmethod
    def read(files: TraceFiles, log: ImportLog, options: NoOptions) -> Trace:
        """Read the table."""
        path = only_file(files)
        jobs = csv_parts(path, log, COLUMNS, lambda rows: _jobs(path, rows, log))
        clamped = int((jobs["duration_s"] == CLAMP_S).sum())
        if clamped and jobs["duration_s"].max() == CLAMP_S:
            log.assume(
                f"run times are cut at {CLAMP_S:,.0f} s (48 h): {clamped:,} jobs have exactly that and none "
                "more, so that longer ones are too short here"
            )
        if jobs["source_id"].str.starts_with(_PAI_ID).any():
            log.assume(
                "ids starting with ali- are tasks of Alibaba PAI: arrival_s is when a task started, not when "
                "it was submitted, and a part of a GPU was rounded up to 1"
            )
        return Trace(imported(jobs, path, {"format": "job-csv", "files": file_names(files)}))


def _jobs(path: Path, rows: pl.DataFrame, log: ImportLog) -> pl.DataFrame:
    """The jobs of a piece of the file."""
    frame = rows.with_columns(number("arrival_s"), number("service_sec"), number("gpu_count"))
    rules = [*bad_arrival("arrival_s"), bad_count("gpu_count", 1)]
    rules += bad_duration("service_sec", "service_sec")
    frame = without(frame, rules, path, log)
    return frame.select(
        submit_s="arrival_s",
        duration_s="service_sec",
        gpus=pl.col("gpu_count").cast(pl.Int32),
        source_id="job_id",
    )
