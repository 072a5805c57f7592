"""The tables of Alibaba's PAI trace of 2020: their columns, how to tell them apart, and how to read them."""

import re
from collections.abc import Callable
from pathlib import Path

import polars as pl

from gpuyard.workload.chunks import csv_chunks, read_head
from gpuyard.workload.formats import JOBS
from gpuyard.workload.importing import ImportLog
from gpuyard.workload.readers.archive import head_inside, unpacked
from gpuyard.workload.readers.csv_jobs import Rule, without
from gpuyard.workload.readers.machines import check_all_read
from gpuyard.workload.readers.requests import rounded_up, whole_gpus, with_numbers

TASKS, TAGS, MACHINES = "tasks", "tags", "machines"

COLUMNS = {
    JOBS: ("job_name", "inst_id", "user", "status", "start_time", "end_time"),
    TASKS: (
        "job_name", "task_name", "inst_num", "status", "start_time", "end_time", "plan_cpu", "plan_mem",
        "plan_gpu", "gpu_type",
    ),
    TAGS: ("inst_id", "user", "gpu_type_spec", "group", "workload"),
    MACHINES: ("machine", "gpu_type", "cap_cpu", "cap_mem", "cap_gpu"),
}  # fmt: skip
"""By role, as the ``.header`` files beside the tables have them; the tables themselves have no header."""

TABLES = {
    JOBS: "pai_job_table",
    TASKS: "pai_task_table",
    TAGS: "pai_group_tag_table",
    MACHINES: "pai_machine_spec",
}

_NUMBER = r"(?:-?\d+(?:\.\d+)?(?:[eE][-+]?\d+)?)"
_STATUS = r"(?:Terminated|Failed|Running|Waiting)"
_FIRST_ROW = {
    JOBS: re.compile(rf"[^,]+,[^,]*,[^,]*,{_STATUS},{_NUMBER}?,{_NUMBER}?"),
    TASKS: re.compile(rf"[^,]+,[^,]+,{_NUMBER},{_STATUS},(?:{_NUMBER}?,){{5}}[^,]*"),
    TAGS: re.compile(r"[0-9a-f]{8,},[0-9a-f]{6,},[A-Za-z0-9]*,[0-9a-f]*,[^,]*"),
    MACHINES: re.compile(rf"[0-9a-f]{{8,}},[A-Z][A-Za-z0-9]*,{_NUMBER},{_NUMBER},{_NUMBER}"),
}
_MIB_OF_GB = 1024
"""plan_mem 29.296875 is 30,000 MiB to the last digit, so that its GB are of 1,024 MiB."""


def role_of_table(head: bytes) -> str | None:
    """Which table a file (or the file in a tar archive) is, by its header or its first row."""
    first = head_inside(head).lstrip().split(b"\n", 1)[0].decode("utf-8", errors="replace").strip()
    for role, columns in COLUMNS.items():
        if first == ",".join(columns) or _FIRST_ROW[role].fullmatch(first):
            return role
    return None


def read_table(
    path: Path, role: str, log: ImportLog, convert: Callable[[pl.DataFrame, Path], pl.DataFrame]
) -> pl.DataFrame:
    """A table, converted piece by piece from text fields and ``line``."""
    with unpacked(path) as table:
        first = read_head(table).split(b"\n", 1)[0].decode("utf-8", errors="replace").strip()
        names = None if first == ",".join(COLUMNS[role]) else COLUMNS[role]
        parts = [convert(piece, table) for piece in csv_chunks(table, log, names=names)]
    if not parts:
        empty = dict.fromkeys((*COLUMNS[role],), pl.String) | {"line": pl.Int64}
        parts = [convert(pl.DataFrame(schema=empty), path)]
    return pl.concat(parts)


def read_jobs(path: Path, log: ImportLog) -> pl.DataFrame:
    """``job``, ``inst_id``, ``user``, ``status``, ``submit_s`` and ``line`` of every job, finished or not."""

    def converted(piece: pl.DataFrame, table: Path) -> pl.DataFrame:
        jobs = with_numbers(piece, ("start_time",), table, log)
        rules: tuple[Rule, ...] = (
            ("no job_name", pl.col("job_name").is_null()),
            ("no start_time: when it was submitted is not known", pl.col("start_time").is_null()),
        )
        return without(jobs, rules, table, log).select(
            "inst_id", "user", "status", "line", job="job_name", submit_s="start_time"
        )

    jobs = read_table(path, JOBS, log, converted)
    again = [("job_name is that of an earlier row", ~pl.col("job").is_first_distinct())]
    return without(jobs, again, path, log)


def read_tasks(path: Path, log: ImportLog, *, with_types: bool) -> pl.DataFrame:
    """What the tasks of each job ask for together, and from when to when they ran.

    Args:
        path: The table.
        log: Where rows are counted.
        with_types: Whether to tell the GPU types they ran on, which takes a while.
    """

    def converted(piece: pl.DataFrame, table: Path) -> pl.DataFrame:
        return _summed(_task_rows(piece, table, log), with_types)

    return _summed(read_table(path, TASKS, log, converted), with_types)


def _task_rows(piece: pl.DataFrame, table: Path, log: ImportLog) -> pl.DataFrame:
    numbers = ("inst_num", "start_time", "end_time", "plan_cpu", "plan_mem", "plan_gpu")
    plans = pl.col("plan_cpu", "plan_mem", "plan_gpu")
    inst = pl.col("inst_num")
    rules: tuple[Rule, ...] = (
        ("task of no job_name", pl.col("job_name").is_null()),
        ("inst_num is no whole number above 0", inst.is_null() | (inst < 1) | (inst != inst.floor())),
        ("a plan is negative", pl.any_horizontal(plans < 0)),
    )
    tasks = without(with_numbers(piece, numbers, table, log), rules, table, log)
    # The trace's own analysis takes times of 0 as absent too.
    times = pl.col("start_time", "end_time")
    tasks = tasks.with_columns(plans.fill_null(0.0), pl.when(times > 0).then(times).name.keep())
    gpus, uses_gpu = pl.col("plan_gpu") / 100, pl.col("plan_gpu") > 0
    return tasks.select(
        job="job_name",
        line="line",
        rows=pl.lit(1, dtype=pl.Int64),
        start_s="start_time",
        end_s="end_time",
        unended=(pl.col("start_time").is_not_null() & pl.col("end_time").is_null()).cast(pl.Int64),
        instances=pl.when(uses_gpu).then(inst).otherwise(0.0),
        gpus=inst * whole_gpus(gpus),
        share=gpus,
        fraction=gpus != rounded_up(gpus),
        cpus=inst * pl.col("plan_cpu") / 100,
        memory_mib=inst * pl.col("plan_mem") * _MIB_OF_GB,
        gpu_type=pl.when(uses_gpu & (pl.col("gpu_type") != "CPU")).then(pl.col("gpu_type")),
    )


def _summed(tasks: pl.DataFrame, with_types: bool) -> pl.DataFrame:
    """One row a job; ``gpu_type`` are the types its tasks ran on, joined by ``|``."""
    sums = tasks.group_by("job").agg(
        pl.col("rows", "unended", "instances", "gpus", "share", "cpus", "memory_mib").sum(),
        pl.col("line", "start_s").min(),
        pl.col("end_s", "fraction").max(),
    )
    if not with_types:
        return sums.with_columns(gpu_type=pl.lit(None, dtype=pl.String))
    types = tasks.select("job", "gpu_type").drop_nulls().unique().sort("job", "gpu_type")
    types = types.group_by("job").agg(pl.col("gpu_type").str.join("|"))
    return sums.join(types, on="job", how="left")


def read_tags(path: Path, log: ImportLog) -> pl.DataFrame:
    """``inst_id``, ``gpu_type_spec``, ``group`` and ``line`` of every tag."""

    def converted(piece: pl.DataFrame, table: Path) -> pl.DataFrame:
        return piece.select("inst_id", "gpu_type_spec", "group", "line")

    tags = read_table(path, TAGS, log, converted)
    rules: tuple[Rule, ...] = (
        ("tag of no inst_id", pl.col("inst_id").is_null()),
        ("tag of an inst_id that has one already", ~pl.col("inst_id").is_first_distinct()),
    )
    return without(tags, rules, path, log)


def read_machines(path: Path) -> pl.DataFrame:
    """One row a machine: ``type``, ``gpus``, ``cpus``, ``memory_mib``."""
    rows = ImportLog()
    sizes = ("cap_cpu", "cap_mem", "cap_gpu")

    def converted(piece: pl.DataFrame, table: Path) -> pl.DataFrame:
        machines = with_numbers(piece, sizes, table, rows)
        bad = [
            (f"{name} is empty or negative", pl.col(name).is_null() | (pl.col(name) < 0)) for name in sizes
        ]
        rules = [*bad, ("has GPUs of no type", (pl.col("cap_gpu") > 0) & pl.col("gpu_type").is_null())]
        return without(machines, rules, table, rows).select(
            type="gpu_type",
            gpus=pl.col("cap_gpu").floor().cast(pl.Int64, strict=False),
            cpus=pl.col("cap_cpu").floor().cast(pl.Int64, strict=False),
            memory_mib=(pl.col("cap_mem") * _MIB_OF_GB).floor().cast(pl.Int64, strict=False),
        )

    machines = read_table(path, MACHINES, rows, converted)
    check_all_read(path, rows, machines.height)
    return machines
