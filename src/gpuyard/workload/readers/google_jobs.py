"""From folded events of Google's traces to jobs and clusters: options, sizes, invented GPUs."""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Annotated

import polars as pl
from pydantic import BaseModel, ConfigDict, Field

from gpuyard.cluster.model import Cluster
from gpuyard.errors import InputError
from gpuyard.workload.importing import ImportLog
from gpuyard.workload.readers.csv_jobs import Rule
from gpuyard.workload.readers.google_events import FAIL, FINISH, KILL, EventFold
from gpuyard.workload.readers.machines import check_all_read, cluster_of_machines
from gpuyard.workload.readers.requests import rounded_up, with_numbers
from gpuyard.workload.readers.row_checks import start_or_null
from gpuyard.workload.schema import COLUMNS, Step, Where, Workload, make_workload

SYNTHETIC = "synthetic-gpu"
_STATUSES = {FINISH: "completed", FAIL: "failed", KILL: "cancelled"}
_MAX_COUNT = 2**31 - 1


class GoogleOptions(BaseModel):
    """How large machines are, which the traces do not tell, and whether to invent GPUs."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    machine_cpus: Annotated[int, Field(ge=1, le=100_000)] = 64
    """CPUs of the largest machine, of which all CPU figures are parts."""
    machine_memory_gib: Annotated[int, Field(ge=1, le=1_000_000)] = 256
    """Memory of the largest machine, GiB, of which all memory figures are parts."""
    gpus_per_cpu: Annotated[float, Field(gt=0, le=1000)] | None = None
    """Invent GPUs, this many for each CPU a task asks for, rounded up a task. None: jobs use CPUs only."""


def make_google_workload(
    fold: EventFold, log: ImportLog, options: GoogleOptions, path: Path, format: str, files: list[str]
) -> Workload:
    """The workload of folded events; jobs outside the trace's window are rejected."""
    jobs = fold.jobs(options.machine_cpus * (options.gpus_per_cpu or 0.0))
    log.merge(int(jobs["rows"].sum()) - jobs.height)
    jobs = _sized(_kept(jobs, fold, log), fold, log, options)
    if jobs.height == 0:
        raise log.nothing_left(str(path))
    _assume(jobs, log, options)
    step = Step(name="import", settings={"format": format, "files": [*files], **options.model_dump()})
    label = format if options.gpus_per_cpu is None else f"{format}-{SYNTHETIC}"
    source = (
        path.name if options.gpus_per_cpu is None else f"{path.name} ({SYNTHETIC}: its GPUs are invented)"
    )
    native = jobs.select(column.name for column in COLUMNS if column.name in jobs.columns)
    return make_workload(native, name=label, source=source, history=(step,), where=Where(str(path)))


def _without(jobs: pl.DataFrame, rules: tuple[Rule, ...], fold: EventFold, log: ImportLog) -> pl.DataFrame:
    for reason, condition in rules:
        bad = jobs.select(condition.fill_null(False)).to_series()
        if bad.any():
            fold.reject(jobs.filter(bad), reason, log)
            jobs = jobs.filter(~bad)
    return jobs


def _kept(jobs: pl.DataFrame, fold: EventFold, log: ImportLog) -> pl.DataFrame:
    start, end = pl.col("start_us"), pl.col("end_us")
    rules: tuple[Rule, ...] = (
        ("an alloc set: it holds resources for jobs and is none itself", pl.col("reserves")),
        ("no event of a task of it", pl.col("width").is_null()),
        ("was there before the trace's start (time 0)", pl.col("before")),
        ("no SUBMIT within the trace", pl.col("submit_us").is_null()),
        ("never ran: no task of it was scheduled within the trace", start.is_null()),
        ("still running at the trace's end: a task of it does not stop", pl.col("unstopped") > 0),
        ("run time is not positive", end.is_null() | (end <= start)),
    )
    return _without(jobs, rules, fold, log)


def _sized(jobs: pl.DataFrame, fold: EventFold, log: ImportLog, options: GoogleOptions) -> pl.DataFrame:
    memory_mib = options.machine_memory_gib * 1024
    jobs = jobs.with_columns(
        submit_s=pl.col("submit_us") / 1e6,
        recorded_start_s=start_or_null(pl.col("start_us") / 1e6),
        duration_s=(pl.col("end_us") - pl.col("start_us")) / 1e6,
        gpus=pl.col("gpus").fill_null(0.0),
        cpus=rounded_up(pl.col("cpu") * options.machine_cpus),
        memory_mib=rounded_up(pl.col("memory") * memory_mib),
        group=pl.format("class-{}", "scheduling_class"),
        status=pl.col("outcome").replace_strict(_STATUSES, default="unknown", return_dtype=pl.String),
        source_id=pl.col("job").cast(pl.String),
    )
    large = pl.any_horizontal(pl.col("gpus", "cpus", "memory_mib") > _MAX_COUNT)
    rules: tuple[Rule, ...] = (
        ("asks for no CPU", (pl.col("cpus") == 0) & (pl.col("gpus") == 0)),
        (f"asks for more than {_MAX_COUNT} CPUs, GPUs or MiB", large),
    )
    return _without(jobs, rules, fold, log)


def _assume(jobs: pl.DataFrame, log: ImportLog, options: GoogleOptions) -> None:
    size = f"{options.machine_cpus} CPUs and {options.machine_memory_gib} GiB"
    log.assume(f"sizes are parts of the largest machine, of {size} (machine_cpus, machine_memory_gib)")
    log.assume("times are microseconds from the trace's start")
    log.assume(
        "a job runs from the first schedule of a task to the last stop of one; waits after evictions count"
    )
    evictions = int(jobs["evictions"].sum())
    if evictions:
        evicted = jobs.filter(pl.col("evictions") > 0).height
        log.assume(f"{evictions} evictions in {evicted} jobs are part of their run times")
    if options.gpus_per_cpu is None:
        log.assume("the trace knows no GPUs: jobs use CPUs only (gpus_per_cpu invents GPUs)")
    else:
        log.assume(
            f"{SYNTHETIC}: GPUs are invented, {options.gpus_per_cpu:g} for each CPU, rounded up a task"
        )


def read_machines(
    pieces: Iterable[pl.DataFrame], path: Path, rows: ImportLog, gone: Sequence[str]
) -> pl.DataFrame:
    """``time``, ``machine``, ``cpu`` and ``memory`` of every event that adds or updates a machine.

    Args:
        pieces: Text columns of these names, ``type`` and ``line``.
        path: The file they are from.
        rows: Where the rows of the file are counted.
        gone: Types of the events that remove a machine.

    Raises:
        InputError: if a row cannot be read.
    """
    numbers, names = ("time", "cpu", "memory"), ("machine", "type")
    parts = [with_numbers(piece, numbers, path, rows).select(*numbers, *names) for piece in pieces]
    events = pl.concat(parts) if parts else pl.DataFrame(schema=dict.fromkeys((*numbers, *names), pl.String))
    check_all_read(path, rows, events.height)
    return events.filter(~pl.col("type").is_in(list(gone)).fill_null(True))


def google_cluster(machines: pl.DataFrame, path: Path, log: ImportLog, options: GoogleOptions) -> Cluster:
    """Every machine that was ever added, with its last known size.

    Args:
        machines: From ``read_machines``; ``cpu`` and ``memory`` are parts of the largest, null = not told.
        path: The file they are from.
        log: Where assumptions go.
        options: How large the largest machine is.

    Raises:
        InputError: if no machine tells its size.
    """
    sized = machines.filter(pl.col("cpu") > 0, pl.col("memory") > 0)
    left_out = machines.join(sized, on="machine", how="anti")["machine"].n_unique()
    if sized.height == 0:
        raise InputError(f"{path}: no machine tells its size; import without this file")
    if left_out:
        log.assume(f"{left_out} machines of unknown size are left out of the cluster")
    log.assume("the cluster holds every machine that was ever there, with its last known size")
    last = sized.sort("time", maintain_order=True).unique("machine", keep="last", maintain_order=True)
    cpus = (pl.col("cpu") * options.machine_cpus).round(6).floor().clip(1)
    nodes = last.select(
        cpus=cpus.cast(pl.Int64, strict=False),
        memory_mib=(pl.col("memory") * options.machine_memory_gib * 1024)
        .floor()
        .clip(1)
        .cast(pl.Int64, strict=False),
        gpus=(cpus * (options.gpus_per_cpu or 0.0)).round(6).floor().cast(pl.Int64, strict=False),
        type=pl.lit(SYNTHETIC),
    )
    return cluster_of_machines(nodes.sort("cpus", "memory_mib", descending=True), path)
