"""Shanghai AI Laboratory's Acme traces (2023): the clusters Seren and Kalos."""

from pathlib import Path
from typing import Literal

import polars as pl
from pydantic import BaseModel, ConfigDict

from gpuyard.registry import register
from gpuyard.workload.chunks import read_head
from gpuyard.workload.formats import JOBS, Trace, TraceFiles
from gpuyard.workload.importing import ImportLog
from gpuyard.workload.readers.asked_nodes import with_asked_nodes
from gpuyard.workload.readers.csv_jobs import (
    Rule,
    StatusMap,
    bad_count,
    bad_duration,
    bad_submit,
    csv_header,
    csv_parts,
    file_names,
    imported,
    note_repairs,
    number,
    only_file,
    unreadable_times,
    with_times,
    without,
)
from gpuyard.workload.readers.helios import SLURM_STATES, bad_cpus, never_ended, node_count
from gpuyard.workload.readers.row_checks import start_or_null

COLUMNS = (
    "job_id", "user", "node_num", "gpu_num", "cpu_num", "state", "submit_time", "start_time", "end_time",
    "duration",
)  # fmt: skip
POD_MEMORY = "mem_per_pod_GB"
"""A column of trace_kalos.csv only."""

_MAX_MIB = 2.0**40


class AcmeOptions(BaseModel):
    """How to read an Acme trace."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    cpu_jobs: Literal["keep", "drop"] = "keep"
    """What to do with jobs of no GPU, about half of the log."""


@register("workload-format", "acme")
class AcmeFormat:
    """Acme (Shanghai AI Laboratory 2023): trace_seren.csv or trace_kalos.csv."""

    Options = AcmeOptions

    @staticmethod
    def role_of(head: bytes, name: str) -> str | None:
        """By the header, which differs from Helios' in ``type`` and ``gpu_time``, and has no ``vc``."""
        names = set(csv_header(head))
        return JOBS if {*COLUMNS, "type", "queue", "gpu_time"} <= names and "vc" not in names else None

    @staticmethod
    def read(files: TraceFiles, log: ImportLog, options: AcmeOptions) -> Trace:
        """Read the log of one cluster. The files do not describe the cluster."""
        path = only_file(files)
        has_memory = POD_MEMORY in csv_header(read_head(path))
        columns = (*COLUMNS, POD_MEMORY) if has_memory else COLUMNS
        statuses = StatusMap("state", SLURM_STATES)
        jobs = csv_parts(path, log, columns, lambda rows: _jobs(path, rows, statuses, log, options))
        statuses.report(log)
        log.assume("run time is end_time - start_time, as the column duration of Kalos is end - submit")
        if has_memory:
            log.assume(f"memory of a job is {POD_MEMORY} times node_num (a pod a node), GB read as GiB")
        settings = {"format": "acme", "files": file_names(files), **options.model_dump()}
        return Trace(imported(with_asked_nodes(jobs).drop("allocated_nodes"), path, settings))


def _jobs(
    path: Path, rows: pl.DataFrame, statuses: StatusMap, log: ImportLog, options: AcmeOptions
) -> pl.DataFrame:
    """The jobs of a piece of the file."""
    if POD_MEMORY not in rows.columns:
        rows = rows.with_columns(pl.lit(None, dtype=pl.String).alias(POD_MEMORY))
    _note_missing_offsets(rows["submit_time"], log)
    frame = with_times(rows, "submit_time", "start_time", "end_time")
    frame = frame.with_columns(nodes_got=node_count("node_num")).with_columns(
        number("gpu_num"), number("cpu_num"), number("node_num"), number("duration"), number(POD_MEMORY)
    )
    frame = frame.with_columns(
        run_s=pl.col("end_time_at") - pl.col("start_time_at"),
        memory_mib=(pl.col(POD_MEMORY) * pl.max_horizontal("node_num", pl.lit(1.0)) * 1024).ceil(),
    )
    frame = without(frame, _rules(options), path, log)
    repairs = [
        (
            "duration is not end_time - start_time: the difference is taken",
            (pl.col("duration") - pl.col("run_s")).abs() > 1,
        ),
        ("no cpu_num: 0 is taken", pl.col("cpu_num").is_null()),
    ]
    note_repairs(frame, repairs, path, log)
    return frame.select(
        submit_s="submit_time_at",
        duration_s="run_s",
        gpus=pl.col("gpu_num").cast(pl.Int32),
        cpus=pl.col("cpu_num").fill_null(0.0).ceil().cast(pl.Int32),
        memory_mib=pl.col("memory_mib").fill_null(0.0).cast(pl.Int64),
        user="user",
        status=statuses.read(frame["state"]),
        source_id="job_id",
        recorded_start_s=start_or_null(pl.col("start_time_at")),
        nodes=pl.lit(None, dtype=pl.Int32),
        allocated_nodes="nodes_got",
    )


def _rules(options: AcmeOptions) -> list[Rule]:
    """Why a row becomes no job."""
    memory = pl.col("memory_mib")
    rules = [
        *bad_submit("submit_time"),
        bad_count("gpu_num"),
        *unreadable_times("start_time", "end_time"),
        *never_ended("start_time", "end_time", "run_s"),
        *bad_duration("run_s", "end_time - start_time"),
        bad_cpus("cpu_num"),
        (f"{POD_MEMORY} is negative or more than 2^40 MiB", (memory < 0) | (memory > _MAX_MIB)),
    ]
    if options.cpu_jobs == "drop":
        rules.append(("a CPU job, which cpu_jobs = drop leaves out", pl.col("gpu_num") == 0))
    return rules


def _note_missing_offsets(times: pl.Series, log: ImportLog) -> None:
    if times.str.contains(r"^\S+ \d\d:\d\d:\d\d(\.\d+)?$").any():
        log.assume("times without an offset are taken as UTC")
