"""SenseTime's Helios traces (2020): Slurm logs of four clusters and their virtual clusters' sizes."""

import re
from pathlib import Path
from typing import Annotated, Literal

import polars as pl
from pydantic import BaseModel, ConfigDict, Field

from gpuyard.cluster.model import Cluster
from gpuyard.errors import InputError
from gpuyard.registry import register
from gpuyard.workload.formats import JOBS, Trace, TraceFiles
from gpuyard.workload.importing import ImportLog
from gpuyard.workload.readers.asked_nodes import with_asked_nodes
from gpuyard.workload.readers.csv_jobs import (
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
    with_times,
    without,
)
from gpuyard.workload.readers.row_checks import count_or_null, start_or_null
from gpuyard.workload.readers.virtual_clusters import (
    make_cluster,
    node_group,
    report_homeless,
    small_table,
    whole_cell,
)

GPU_NUMBERS = "gpu-numbers"
"""The role of cluster_gpu_number.csv: GPUs of every virtual cluster, day by day."""

COLUMNS = (
    "job_id", "user", "vc", "gpu_num", "cpu_num", "node_num", "state", "submit_time", "start_time",
    "end_time", "duration",
)  # fmt: skip
GPUS_PER_NODE = 8
"""In all four clusters (SC'21, table 1); the sizes of virtual clusters are multiples of it."""

SLURM_STATES = {
    "COMPLETED": "completed",
    "CANCELLED": "cancelled",
    "FAILED": "failed",
    "NODE_FAIL": "failed",
    "TIMEOUT": "timeout",
}
_PEERS_DAY = "2020-09-01"
"""The day whose sizes of virtual clusters the trace's authors simulate (QSSF, Lucid)."""

_DAY = re.compile(r"\d{4}-\d\d-\d\d")


class HeliosOptions(BaseModel):
    """How to read a Helios trace."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    cpu_jobs: Literal["keep", "drop"] = "keep"
    """What to do with jobs of no GPU, about half of the log."""
    date: Annotated[str, Field(pattern=r"^\d{4}-\d\d-\d\d$")] | None = None
    """Day of the virtual clusters' sizes; by default 2020-09-01, or the last day if that is not listed."""
    vcs: Literal["own", "share"] = "own"
    """Whether a virtual cluster's nodes are for its jobs only, or all nodes for all jobs."""


@register("workload-format", "helios")
class HeliosFormat:
    """Helios (SenseTime 2020): cluster_log.csv, optionally with cluster_gpu_number.csv."""

    Options = HeliosOptions

    @staticmethod
    def role_of(head: bytes, name: str) -> str | None:
        """By the header; the table of GPU numbers also by a date in its second line."""
        names = csv_header(head)
        if {*COLUMNS, "queue"} <= set(names):
            return JOBS
        second = head.split(b"\n", 2)[1:2]
        dated = bool(second) and _DAY.match(second[0].decode("utf-8", errors="replace")) is not None
        return (
            GPU_NUMBERS if dated and len(names) > 2 and (names[0], names[-1]) == ("date", "total") else None
        )

    @staticmethod
    def read(files: TraceFiles, log: ImportLog, options: HeliosOptions) -> Trace:
        """Read the log of one cluster."""
        path = only_file(files)
        statuses = StatusMap("state", SLURM_STATES)
        jobs = csv_parts(path, log, COLUMNS, lambda rows: _jobs(path, rows, statuses, log, options))
        statuses.report(log)
        log.assume("times carry no zone and are taken as UTC (the clusters are in UTC+8)")
        settings = {"format": "helios", "files": file_names(files), **options.model_dump(exclude_none=True)}
        workload = imported(with_asked_nodes(jobs).drop("allocated_nodes"), path, settings)
        if GPU_NUMBERS not in files:
            return Trace(workload)
        cluster = _cluster(only_file(files, GPU_NUMBERS), workload.metadata.name, log, options)
        report_homeless(
            workload.frame["group"], cluster, log, "choose another day with date, or share all nodes with vcs"
        )
        return Trace(workload, cluster)


def _jobs(
    path: Path, rows: pl.DataFrame, statuses: StatusMap, log: ImportLog, options: HeliosOptions
) -> pl.DataFrame:
    """The jobs of a piece of the file."""
    frame = with_times(rows, "submit_time", "start_time", "end_time").with_columns(
        number("gpu_num"), number("cpu_num"), node_count("node_num"), stated_s=number("duration")
    )
    ran_s = pl.col("end_time_at") - pl.col("start_time_at")
    frame = frame.with_columns(run_s=pl.coalesce("stated_s", ran_s))
    rules = [
        *bad_submit("submit_time"),
        bad_count("gpu_num"),
        *never_ended("start_time", "end_time", "run_s"),
    ]
    rules += [*bad_duration("run_s", "duration"), bad_cpus("cpu_num")]
    if options.cpu_jobs == "drop":
        rules.append(("a CPU job, which cpu_jobs = drop leaves out", pl.col("gpu_num") == 0))
    frame = without(frame, rules, path, log)
    repairs = [
        ("duration is empty or no number: end_time - start_time is taken", pl.col("stated_s").is_null()),
        ("duration is not end_time - start_time: duration is taken", (pl.col("stated_s") - ran_s).abs() > 1),
        ("no cpu_num: 0 is taken", pl.col("cpu_num").is_null()),
    ]
    note_repairs(frame, repairs, path, log)
    return frame.select(
        submit_s="submit_time_at",
        duration_s="run_s",
        gpus=pl.col("gpu_num").cast(pl.Int32),
        cpus=pl.col("cpu_num").fill_null(0.0).ceil().cast(pl.Int32),
        user="user",
        group="vc",
        status=statuses.read(frame["state"]),
        source_id="job_id",
        recorded_start_s=start_or_null(pl.col("start_time_at")),
        nodes=pl.lit(None, dtype=pl.Int32),
        allocated_nodes="node_num",
    )


def node_count(name: str) -> pl.Expr:
    """How many nodes a job got, null if the field does not say."""
    return count_or_null(pl.col(name)).cast(pl.Int32)


def never_ended(start: str, end: str, run_s: str) -> list[tuple[str, pl.Expr]]:
    """Rows of jobs without a run time because they did not start, or did not end."""
    unknown = pl.col(run_s).is_null()
    return [
        (f"never ran: no {start}", unknown & pl.col(f"{start}_at").is_null()),
        (f"still running: no {end}", unknown & pl.col(f"{end}_at").is_null()),
    ]


def bad_cpus(name: str) -> tuple[str, pl.Expr]:
    """Rows whose number of CPUs is stated and impossible; a missing one or a fraction can be repaired."""
    reason, _ = bad_count(name)
    return reason.replace("whole number", "number"), (pl.col(name) < 0) | (pl.col(name) > 2**31 - 1)


def _cluster(path: Path, name: str, log: ImportLog, options: HeliosOptions) -> Cluster:
    """The nodes of one day, as many as GPUs / 8 for each virtual cluster."""
    rows = small_table(path)
    header = rows[0][1] if rows else []
    if len(header) < 3 or (header[0], header[-1]) != ("date", "total") or len(set(header)) < len(header):
        raise InputError(
            f"{path}, line 1: expected date, one column a virtual cluster, and total, each of them once; "
            "check the file"
        )
    line, fields = _day(path, rows[1:], log, options.date)
    if len(fields) != len(header):
        raise InputError(f"{path}, line {line}: has {len(fields)} fields, expected {len(header)}; correct it")
    groups = []
    for vc, text in zip(header[1:-1], fields[1:-1], strict=True):
        gpus = whole_cell(path, line, vc, text)
        owner = vc if options.vcs == "own" else None
        groups.append(node_group(path, line, gpus // GPUS_PER_NODE, GPUS_PER_NODE, owner))
        groups.append(node_group(path, line, 1, gpus % GPUS_PER_NODE, owner))
        if gpus % GPUS_PER_NODE:
            log.assume(f"{vc} has {gpus} GPUs, no multiple of {GPUS_PER_NODE}: the rest is one smaller node")
    log.assume(f"virtual clusters are as large as on {fields[0]}, nodes have {GPUS_PER_NODE} GPUs")
    return make_cluster(path, f"{name} {fields[0]}", groups)


def _day(
    path: Path, rows: list[tuple[int, list[str]]], log: ImportLog, wanted: str | None
) -> tuple[int, list[str]]:
    """The row of the wanted day."""
    days = {fields[0]: (line, fields) for line, fields in rows if _DAY.fullmatch(fields[0])}
    if not days:
        raise InputError(f"{path}: lists no day (YYYY-MM-DD); leave the file out or correct it")
    day = wanted or (_PEERS_DAY if _PEERS_DAY in days else max(days))
    if day not in days:
        raise InputError(
            f"{path}: lists no day {day}; choose a date from {min(days)} to {max(days)} that it lists"
        )
    return days[day]
