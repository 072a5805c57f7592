"""The reduced table of Microsoft Philly jobs that Pollux' simulator carries."""

from pathlib import Path

import polars as pl

from gpuyard.registry import register
from gpuyard.workload.formats import JOBS, NoOptions, Trace, TraceFiles
from gpuyard.workload.importing import ImportLog
from gpuyard.workload.readers.csv_jobs import (
    bad_count,
    bad_duration,
    bad_submit,
    csv_header,
    csv_parts,
    file_names,
    imported,
    number,
    only_file,
    with_times,
    without,
)
from gpuyard.workload.readers.philly_machines import machine_role, philly_cluster

COLUMNS = ("timestamp", "duration", "num_gpus", "gpu_time", "cluster")


@register("workload-format", "philly-csv")
class PhillyCsvFormat:
    """Philly as CSV (Pollux): timestamp, duration, num_gpus, gpu_time, cluster; machine tables optional."""

    @staticmethod
    def role_of(head: bytes, name: str) -> str | None:
        """By the header, which has exactly these names."""
        return JOBS if sorted(csv_header(head)) == sorted(COLUMNS) else machine_role(head)

    @staticmethod
    def read(files: TraceFiles, log: ImportLog, options: NoOptions) -> Trace:
        """Read the table."""
        path = only_file(files)
        jobs = csv_parts(path, log, COLUMNS[:3] + COLUMNS[4:], lambda rows: _jobs(path, rows, log))
        log.assume("timestamp is the submit time; it carries no zone and is taken as UTC")
        log.assume("duration is in seconds and the sum over a job's attempts, as in the original log")
        workload = imported(jobs, path, {"format": "philly-csv", "files": file_names(files)})
        return Trace(workload, philly_cluster(files, workload, log))


def _jobs(path: Path, rows: pl.DataFrame, log: ImportLog) -> pl.DataFrame:
    """The jobs of a piece of the file."""
    frame = with_times(rows, "timestamp").with_columns(number("duration"), number("num_gpus"))
    rules = [*bad_submit("timestamp"), bad_count("num_gpus", 1), *bad_duration("duration", "duration")]
    frame = without(frame, rules, path, log)
    return frame.select(
        submit_s="timestamp_at",
        duration_s="duration",
        gpus=pl.col("num_gpus").cast(pl.Int32),
        group="cluster",
    )
