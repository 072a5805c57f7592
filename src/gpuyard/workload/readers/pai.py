"""Alibaba's PAI trace of 2020 (cluster-trace-gpu-v2020): jobs of tasks of instances, with shared GPUs."""

from pathlib import Path
from typing import Literal

import polars as pl
from pydantic import BaseModel, ConfigDict

from gpuyard.errors import InputError
from gpuyard.registry import register
from gpuyard.workload.formats import JOBS, Trace, TraceFiles
from gpuyard.workload.importing import ImportLog
from gpuyard.workload.readers.csv_jobs import Rule, file_names, imported, note_repairs, only_file, without
from gpuyard.workload.readers.machines import cluster_of_machines
from gpuyard.workload.readers.pai_tables import (
    MACHINES,
    TABLES,
    TAGS,
    TASKS,
    read_jobs,
    read_machines,
    read_tags,
    read_tasks,
    role_of_table,
)
from gpuyard.workload.readers.requests import (
    CPUS_ROUNDED,
    MEMORY_ROUNDED,
    SHARES_ROUNDED,
    THOUSANDTHS_ROUNDED,
    is_rounded_up,
    rounded_up,
    within_bounds,
)
from gpuyard.workload.readers.row_checks import start_or_null

_STATUSES = {"Terminated": "completed", "Failed": "failed", "Running": "unknown", "Waiting": "unknown"}


class PaiOptions(BaseModel):
    """How to read PAI's tables."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    gpu_type: Literal["asked", "assigned", "ignore"] = "asked"
    """Which GPU types a job may use: the one in its tag (``pai_group_tag_table``), any if there is none;
    those its tasks ran on; or any."""


@register("workload-format", "pai")
class PaiFormat:
    """Alibaba PAI 2020: pai_job_table, pai_task_table; optionally pai_group_tag_table, pai_machine_spec."""

    Options = PaiOptions

    @staticmethod
    def role_of(head: bytes, name: str) -> str | None:
        """By the header or, as the tables are published without one, by the first row."""
        return role_of_table(head)

    @staticmethod
    def read(files: TraceFiles, log: ImportLog, options: PaiOptions) -> Trace:
        """Read the tables and join them."""
        path = only_file(files)
        if TASKS not in files:
            raise InputError(
                f"{path}: what jobs ask for and when they ran is in {TABLES[TASKS]}; give that table too"
            )
        tags = _tags(files, log, options)
        tasks = read_tasks(only_file(files, TASKS), log, with_types=options.gpu_type == "assigned")
        jobs = _joined(read_jobs(path, log), tasks, files, log)
        jobs = _finished(_tagged(jobs, tags, files, log), path, log)
        jobs = _native(jobs, path, log, options)
        if jobs.height == 0:
            raise log.nothing_left(str(path))
        log.assume("times are seconds on the trace's own clock (its day and week are those of UTC+8)")
        log.assume(
            "start_time of a job is its submission; its tasks run as one gang, from first start to last end"
        )
        log.assume("GB of memory are of 1,024 MiB")
        settings = {"format": "pai", "files": file_names(files), **options.model_dump()}
        cluster = None
        if MACHINES in files:
            machines = only_file(files, MACHINES)
            cluster = cluster_of_machines(read_machines(machines), machines)
        return Trace(imported(jobs, path, settings), cluster)


def _tags(files: TraceFiles, log: ImportLog, options: PaiOptions) -> pl.DataFrame | None:
    if TAGS in files:
        return read_tags(only_file(files, TAGS), log)
    if options.gpu_type == "asked":
        if "gpu_type" in options.model_fields_set:
            raise InputError(
                f"gpu_type = asked: the types jobs asked for are in {TABLES[TAGS]}; give that table too, "
                "or choose gpu_type = assigned or ignore"
            )
        log.assume(f"without {TABLES[TAGS]} jobs may use GPUs of any type")
    return None


def _joined(jobs: pl.DataFrame, tasks: pl.DataFrame, files: TraceFiles, log: ImportLog) -> pl.DataFrame:
    """Jobs with the sums over their tasks. A task is merged into its job, whatever becomes of that."""
    orphans = tasks.join(jobs, on="job", how="anti")
    log.merge(int(tasks["rows"].sum()) - orphans.height)
    log.reject(f"tasks of a job that is not in {TABLES[JOBS]}", only_file(files, TASKS).name, orphans["line"])
    return jobs.join(tasks.drop("line"), on="job", how="left", maintain_order="left")


def _tagged(jobs: pl.DataFrame, tags: pl.DataFrame | None, files: TraceFiles, log: ImportLog) -> pl.DataFrame:
    if tags is None:
        absent = pl.lit(None, dtype=pl.String)
        return jobs.with_columns(gpu_type_spec=absent, group=absent)
    orphans = tags.join(jobs, on="inst_id", how="anti")
    log.merge(tags.height - orphans.height)
    log.reject(f"tag of a job that is not in {TABLES[JOBS]}", only_file(files, TAGS).name, orphans["line"])
    return jobs.join(tags.drop("line"), on="inst_id", how="left", maintain_order="left")


def _finished(jobs: pl.DataFrame, path: Path, log: ImportLog) -> pl.DataFrame:
    status = pl.col("status")
    rules: tuple[Rule, ...] = (
        ("Waiting: never started", status == "Waiting"),
        ("Running: no end", status == "Running"),
        (
            "status is none of Terminated, Failed, Running, Waiting",
            ~status.is_in(list(_STATUSES)).fill_null(False),
        ),
        (f"no task of it in {TABLES[TASKS]}", pl.col("rows").is_null()),
        ("never ran: no task of it started", pl.col("start_s").is_null()),
        ("no end: no task of it ended", pl.col("end_s").is_null()),
        ("run time is not positive", pl.col("end_s") <= pl.col("start_s")),
        ("asks for neither GPUs nor CPUs", (pl.col("gpus") == 0) & (pl.col("cpus") == 0)),
    )
    return without(jobs, rules, path, log)


def _native(jobs: pl.DataFrame, path: Path, log: ImportLog, options: PaiOptions) -> pl.DataFrame:
    shares = (pl.col("instances") == 1) & (pl.col("share") < 1)
    thousandths = pl.col("share") * 1000
    rules: tuple[Rule, ...] = (
        (SHARES_ROUNDED, pl.col("fraction") & ~shares),
        (THOUSANDTHS_ROUNDED, shares & is_rounded_up(thousandths)),
        (CPUS_ROUNDED, is_rounded_up(pl.col("cpus"))),
        (MEMORY_ROUNDED, is_rounded_up(pl.col("memory_mib"))),
        ("a task of it has no end: run time is that of its other tasks", pl.col("unended") > 0),
    )
    note_repairs(jobs, rules, path, log)
    native = jobs.select(
        submit_s="submit_s",
        duration_s=pl.col("end_s") - pl.col("start_s"),
        gpus="gpus",
        gpu_milli=pl.when(shares).then(rounded_up(thousandths).clip(1, 1000)).otherwise(1000.0),
        cpus=rounded_up(pl.col("cpus")),
        memory_mib=rounded_up(pl.col("memory_mib")),
        gpu_types=_gpu_types(options),
        user="user",
        group="group",
        status=pl.col("status").replace_strict(_STATUSES, return_dtype=pl.String),
        source_id="job",
        recorded_start_s=start_or_null(pl.col("start_s")),
        line="line",
    )
    return within_bounds(native, path, log).drop("line")


def _gpu_types(options: PaiOptions) -> pl.Expr:
    column = {"asked": "gpu_type_spec", "assigned": "gpu_type"}.get(options.gpu_type)
    if column is None:
        return pl.lit(None, dtype=pl.List(pl.String))
    names = pl.col(column).str.split("|").list.unique(maintain_order=True)
    names = names.list.eval(pl.element().filter(pl.element() != ""))
    return pl.when((pl.col("gpus") > 0) & (names.list.len() > 0)).then(names)
