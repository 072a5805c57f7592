"""Alibaba's trace of high-priority and spot jobs of 2026 (cluster-trace-v2026-spot-gpu)."""

from pathlib import Path

import polars as pl

from gpuyard.cluster.model import Cluster
from gpuyard.registry import register
from gpuyard.workload.formats import JOBS, NoOptions, Trace, TraceFiles
from gpuyard.workload.importing import ImportLog
from gpuyard.workload.readers.csv_jobs import (
    Rule,
    csv_header,
    csv_parts,
    file_names,
    imported,
    note_repairs,
    only_file,
    without,
)
from gpuyard.workload.readers.machines import check_all_read, cluster_of_machines
from gpuyard.workload.readers.requests import (
    CPUS_ROUNDED,
    gpus_and_share,
    is_rounded_up,
    note_gpu_rounding,
    rounded_up,
    with_numbers,
    within_bounds,
)

_NODES = "nodes"
_JOB_COLUMNS = (
    "job_name", "organization", "gpu_model", "cpu_request", "gpu_request", "worker_num", "submit_time",
    "duration", "job_type",
)  # fmt: skip
_NODE_COLUMNS = ("node_name", "gpu_model", "gpu_capacity_num", "cpu_num")

_PRIORITIES = {"HP": 2.0, "Spot": 1.0}


@register("workload-format", "spot-gpu-2026")
class SpotGpuFormat:
    """Alibaba spot-GPU trace 2026: job_info_df.csv and node_info_df.csv."""

    @staticmethod
    def role_of(head: bytes, name: str) -> str | None:
        """By the columns of the header, in any order; an index column without a name may come first."""
        names = {name for name in csv_header(head) if name}
        if names == set(_JOB_COLUMNS):
            return JOBS
        return _NODES if names == set(_NODE_COLUMNS) else None

    @staticmethod
    def read(files: TraceFiles, log: ImportLog, options: NoOptions) -> Trace:
        """Read one table of jobs and, if given, one of nodes."""
        path = only_file(files)
        jobs = csv_parts(path, log, _JOB_COLUMNS, lambda piece: _jobs(piece, path, log))
        log.assume("CPUs and GPUs are asked for by each worker; times are seconds from the first submission")
        log.assume("job_type HP has priority 2, Spot 1; how jobs ended is not told")
        cluster = _cluster(only_file(files, _NODES)) if _NODES in files else None
        return Trace(imported(jobs, path, {"format": "spot-gpu-2026", "files": file_names(files)}), cluster)


def _jobs(piece: pl.DataFrame, path: Path, log: ImportLog) -> pl.DataFrame:
    numbers = ("cpu_request", "gpu_request", "worker_num", "submit_time", "duration")
    workers, each, cpus = pl.col("worker_num"), pl.col("gpu_request"), pl.col("cpu_request").fill_null(0.0)
    rules: tuple[Rule, ...] = (
        ("no submit_time", pl.col("submit_time").is_null()),
        ("submitted before the trace's start", pl.col("submit_time") < 0),
        ("no duration", pl.col("duration").is_null()),
        ("never ran: duration is not positive", pl.col("duration") <= 0),
        (
            "worker_num is no whole number above 0",
            workers.is_null() | (workers < 1) | (workers != workers.floor()),
        ),
        ("gpu_request or cpu_request is negative", (each < 0) | (cpus < 0)),
        ("asks for neither GPUs nor CPUs", (each.fill_null(0.0) == 0) & (cpus == 0)),
        ("job_type is neither HP nor Spot", ~pl.col("job_type").is_in(list(_PRIORITIES)).fill_null(False)),
    )
    jobs = without(with_numbers(piece, numbers, path, log), rules, path, log)
    jobs = jobs.with_columns(pl.col("gpu_request").fill_null(0.0))
    note_gpu_rounding(jobs, workers, each, path, log)
    note_repairs(jobs, [(CPUS_ROUNDED, is_rounded_up(workers * cpus))], path, log)
    jobs = jobs.select(
        submit_s="submit_time",
        duration_s="duration",
        **gpus_and_share(workers, each),
        cpus=rounded_up(workers * cpus),
        gpu_types=pl.when((each > 0) & pl.col("gpu_model").is_not_null()).then(pl.concat_list("gpu_model")),
        priority=pl.col("job_type").replace_strict(_PRIORITIES, return_dtype=pl.Float64),
        user="organization",
        group="job_type",
        source_id="job_name",
        line="line",
    )
    return within_bounds(jobs, path, log).drop("line")


def _cluster(path: Path) -> Cluster:
    rows = ImportLog()

    def machines(piece: pl.DataFrame) -> pl.DataFrame:
        nodes = with_numbers(piece, ("gpu_capacity_num", "cpu_num"), path, rows)
        gpus, cpus = pl.col("gpu_capacity_num"), pl.col("cpu_num")
        rules: tuple[Rule, ...] = (
            ("gpu_capacity_num is no whole number", gpus.is_null() | (gpus < 0) | (gpus != gpus.floor())),
            ("cpu_num is no number above 0", cpus.is_null() | (cpus < 1)),
            ("has GPUs of no model", (gpus > 0) & pl.col("gpu_model").is_null()),
        )
        return without(nodes, rules, path, rows).select(
            type="gpu_model",
            gpus=gpus.cast(pl.Int64, strict=False),
            cpus=cpus.floor().cast(pl.Int64, strict=False),
            memory_mib=pl.lit(None, dtype=pl.Int64),
        )

    nodes = csv_parts(path, rows, _NODE_COLUMNS, machines)
    check_all_read(path, rows, nodes.height)
    return cluster_of_machines(nodes, path)
