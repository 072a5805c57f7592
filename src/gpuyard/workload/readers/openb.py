"""Alibaba's openb trace of 2023 (cluster-trace-gpu-v2023): pods and nodes of a Kubernetes cluster."""

from collections.abc import Sequence
from pathlib import Path
from typing import Literal

import polars as pl
from pydantic import BaseModel, ConfigDict

from gpuyard.cluster.model import Cluster
from gpuyard.errors import InputError, setting
from gpuyard.registry import register
from gpuyard.workload.chunks import read_head
from gpuyard.workload.formats import JOBS, Trace, TraceFiles
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
    MEMORY_ROUNDED,
    is_rounded_up,
    rounded_up,
    with_numbers,
    within_bounds,
)
from gpuyard.workload.readers.row_checks import start_or_null

_NODES = "nodes"
_NODE_COLUMNS = ("sn", "cpu_milli", "memory_mib", "gpu", "model")
_REQUEST_COLUMNS = ("name", "cpu_milli", "memory_mib", "num_gpu", "gpu_milli")
_TIME_COLUMNS = ("pod_phase", "creation_time", "deletion_time", "scheduled_time")
_LABEL_COLUMNS = ("gpu_spec", "qos")

_STATUSES = {"Succeeded": "completed", "Failed": "failed"}


class OpenbOptions(BaseModel):
    """How to read openb."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    times: Literal["trace", "order"] = "trace"
    """``trace``: as logged. ``order``: one pod a second in the order of the file, all of them staying until
    the last has come. The trace's authors replay it so, to see how full the cluster gets; by its times it
    loads the cluster by 0.2 %."""


@register("workload-format", "openb")
class OpenbFormat:
    """Alibaba openb 2023: pod list and node list, with shared GPUs."""

    Options = OpenbOptions

    @staticmethod
    def role_of(head: bytes, name: str) -> str | None:
        """By the header; some pod lists have no columns behind ``gpu_milli``."""
        names = csv_header(head)
        if tuple(names[:5]) == _REQUEST_COLUMNS:
            return JOBS
        return _NODES if tuple(names) == _NODE_COLUMNS else None

    @staticmethod
    def read(files: TraceFiles, log: ImportLog, options: OpenbOptions) -> Trace:
        """Read one pod list and, if given, one node list."""
        path = only_file(files)
        jobs = _pods(path, log, options)
        cluster = _cluster(only_file(files, _NODES)) if _NODES in files else None
        settings = {"format": "openb", "files": file_names(files), "times": options.times}
        return Trace(imported(jobs, path, settings), cluster)


def _pods(path: Path, log: ImportLog, options: OpenbOptions) -> pl.DataFrame:
    names = csv_header(read_head(path))
    if (
        options.times == "trace"
        and not set(names) & set(_TIME_COLUMNS)
        and tuple(names[:5]) == _REQUEST_COLUMNS
    ):
        raise InputError(
            f"{path}, line 1: this pod list has no times (creation_time, scheduled_time, deletion_time); "
            f"import it with {setting('option.times', 'order')}, one pod a second in the order of the file"
        )
    timed = _TIME_COLUMNS if options.times == "trace" else ()
    columns = [*_REQUEST_COLUMNS, *timed, *(name for name in _LABEL_COLUMNS if name in names)]
    still_running = 0

    def converted(piece: pl.DataFrame) -> pl.DataFrame:
        nonlocal still_running
        pods = _requests(_labelled(piece), path, log)
        pods = _timed(pods, path, log) if timed else pods
        still_running += pods.select((pl.col("pod_phase") == "Running").sum()).item() if timed else 0
        return _native(pods, path, log)

    jobs = csv_parts(path, log, columns, converted)
    if timed:
        log.assume("times are seconds from the trace's start; what the clock showed then is not published")
        if still_running:
            log.assume(f"{still_running} pods were Running when last seen: their run times are lower bounds")
        return jobs
    log.assume("times of the trace are not used: one pod a second, each staying until the last has come")
    return jobs.with_columns(
        submit_s=pl.int_range(pl.len()).cast(pl.Float64), duration_s=pl.lit(float(jobs.height))
    )


def _labelled(piece: pl.DataFrame) -> pl.DataFrame:
    absent = [name for name in (*_LABEL_COLUMNS, "pod_phase") if name not in piece.columns]
    return piece.with_columns(pl.lit(None, dtype=pl.String).alias(name) for name in absent)


def _requests(piece: pl.DataFrame, path: Path, log: ImportLog) -> pl.DataFrame:
    pods = with_numbers(piece, ("cpu_milli", "memory_mib", "num_gpu", "gpu_milli"), path, log)
    gpus, milli = pl.col("num_gpu"), pl.col("gpu_milli")
    cpu, memory = pl.col("cpu_milli"), pl.col("memory_mib")
    rules: tuple[Rule, ...] = (
        ("num_gpu is empty or no whole number of 0 or more", ~_is_count(gpus)),
        ("cpu_milli is empty or negative", cpu.is_null() | (cpu < 0)),
        ("memory_mib is empty or negative", memory.is_null() | (memory < 0)),
        (
            "gpu_milli is no whole number from 1 to 1000",
            (gpus > 0) & ~(_is_count(milli) & milli.is_between(1, 1000)),
        ),
        ("asks for a part of a GPU with num_gpu = 0", (gpus == 0) & (milli > 0)),
        ("asks for neither GPUs nor CPUs", (gpus == 0) & (cpu == 0)),
    )
    return without(pods, rules, path, log)


def _is_count(number: pl.Expr) -> pl.Expr:
    return ((number >= 0) & (number == number.floor())).fill_null(False)


def _timed(pods: pl.DataFrame, path: Path, log: ImportLog) -> pl.DataFrame:
    pods = with_numbers(pods, ("creation_time", "deletion_time", "scheduled_time"), path, log)
    created, scheduled, deleted = pl.col("creation_time"), pl.col("scheduled_time"), pl.col("deletion_time")
    rules: tuple[Rule, ...] = (
        ("Pending: never scheduled", scheduled.is_null()),
        ("no creation_time", created.is_null()),
        ("no deletion_time: no end", deleted.is_null()),
        ("created before the trace's start", created < 0),
        ("run time (deletion_time - scheduled_time) is not positive", deleted <= scheduled),
    )
    return without(pods, rules, path, log).with_columns(
        submit_s=created, duration_s=deleted - scheduled, recorded_start_s=start_or_null(scheduled)
    )


def _native(pods: pl.DataFrame, path: Path, log: ImportLog) -> pl.DataFrame:
    cpus, memory = pl.col("cpu_milli") / 1000, pl.col("memory_mib")
    gpus, milli = pl.col("num_gpu"), pl.col("gpu_milli")
    stated = pl.col("gpu_spec").str.split("|").list.eval(pl.element().str.strip_chars())
    named = stated.list.eval(pl.element().filter(pl.element() != ""))
    types = named.list.unique(maintain_order=True)
    rules: tuple[Rule, ...] = (
        (CPUS_ROUNDED, is_rounded_up(cpus)),
        (MEMORY_ROUNDED, is_rounded_up(memory)),
        ("a part of each of several GPUs: rounded up to whole GPUs", (gpus > 1) & (milli < 1000)),
        ("gpu_spec repeats a type or holds an empty one", stated.list.len() > types.list.len()),
    )
    note_repairs(pods, rules, path, log)
    times = [name for name in ("submit_s", "duration_s", "recorded_start_s") if name in pods.columns]
    jobs = pods.select(
        *times,
        gpus=gpus,
        gpu_milli=pl.when(gpus == 1).then(milli).otherwise(1000.0),
        cpus=rounded_up(cpus),
        memory_mib=rounded_up(memory),
        gpu_types=pl.when((gpus > 0) & (types.list.len() > 0)).then(types),
        group="qos",
        qos="qos",
        status=pl.col("pod_phase").replace_strict(_STATUSES, default="unknown", return_dtype=pl.String),
        source_id="name",
        line="line",
    )
    return within_bounds(jobs, path, log).drop("line")


def _cluster(path: Path) -> Cluster:
    rows = ImportLog()

    def machines(piece: pl.DataFrame) -> pl.DataFrame:
        nodes = with_numbers(piece, ("cpu_milli", "memory_mib", "gpu"), path, rows)
        rules: Sequence[Rule] = [
            (f"{name} is empty, negative or no whole number", ~_is_count(pl.col(name)))
            for name in ("cpu_milli", "memory_mib", "gpu")
        ]
        rules = [*rules, ("has GPUs of no model", (pl.col("gpu") > 0) & pl.col("model").is_null())]
        return without(nodes, rules, path, rows).select(
            type="model",
            gpus=pl.col("gpu").cast(pl.Int64, strict=False),
            cpus=(pl.col("cpu_milli") / 1000).floor().cast(pl.Int64, strict=False),
            memory_mib=pl.col("memory_mib").cast(pl.Int64, strict=False),
        )

    nodes = csv_parts(path, rows, _NODE_COLUMNS, machines)
    check_all_read(path, rows, nodes.height)
    return cluster_of_machines(nodes, path)
