"""From records of Slurm's accounting, as text columns named like sacct's fields, to jobs."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import polars as pl
from pydantic import BaseModel, ConfigDict, field_validator

from gpuyard.cluster.imports.listed import SLICE
from gpuyard.errors import InputError, setting
from gpuyard.units import plural
from gpuyard.workload.importing import ImportLog
from gpuyard.workload.node_lists import canonical_nodes
from gpuyard.workload.readers.asked_nodes import with_asked_nodes
from gpuyard.workload.readers.dependencies import (
    OTHER_DEPENDENCIES,
    slurm_dependency,
    submit_line_dependency,
)
from gpuyard.workload.readers.repeats import merge_repeats
from gpuyard.workload.readers.row_checks import (
    MAX_COUNT,
    TIME_CHECKS,
    Checks,
    count_or_null,
    keep_valid,
    start_or_null,
)
from gpuyard.workload.readers.slurm_arrays import MAX_ARRAY_TASKS, task_ids
from gpuyard.workload.readers.slurm_fields import (
    MAX_MEMORY_MIB,
    NO_LIMIT,
    NO_TIME,
    clock_seconds,
    gres_gpus,
    is_zone,
    requested_memory,
    tres_cpus,
    tres_gpu_types,
    tres_gpus,
    tres_memory_mib,
    tres_nodes,
    unix_seconds,
)
from gpuyard.workload.schema import MAX_TIME_S, Step, Where, Workload, make_workload

FIELDS = (
    "jobid", "cluster", "user", "partition", "account", "qos", "state", "submit", "start", "end", "elapsed",
    "elapsedraw", "timelimit", "timelimitraw", "nnodes", "reqnodes", "ncpus", "reqcpus", "reqmem",
    "alloctres", "reqtres", "allocgres", "reqgres", "nodelist", "jobname", "reservation", "constraints",
    "dependency", "licenses", "submitline",
)  # fmt: skip
"""The fields that are read, in lower case; all but jobid, submit and a run time may be absent."""

NOT_MODELLED = {
    "reservation": "reservations",
    "constraints": "features of nodes that jobs ask for (Constraints)",
    "licenses": "licenses",
}
"""Fields that a simulation does not use, and what they are."""

GPU_FIELDS = ("alloctres", "reqtres", "allocgres", "reqgres")

_JOB_ID = r"^\d+(_\d+|_\[[^\]]*\])?(\+\d+)?(\.[\w+-]+)?$"
_UNFINISHED = (
    "PENDING", "RUNNING", "SUSPENDED", "CONFIGURING", "COMPLETING", "RESIZING", "STOPPED", "SIGNALING",
    "STAGE_OUT", "REQUEUE_HOLD", "SPECIAL_EXIT",
)  # fmt: skip
_STATUSES = {
    "COMPLETED": "completed",
    "FAILED": "failed",
    "NODE_FAIL": "failed",
    "BOOT_FAIL": "failed",
    "OUT_OF_MEMORY": "failed",
    "LAUNCH_FAILED": "failed",
    "RECONFIG_FAIL": "failed",
    "CANCELLED": "cancelled",
    "PREEMPTED": "cancelled",  # neither the job's fault nor its end: it lost its nodes to another
    "REQUEUED": "cancelled",
    "REVOKED": "cancelled",
    "TIMEOUT": "timeout",
    "DEADLINE": "timeout",
}
_KEYS = ("cluster_name", "allocated_nodes")
_NO_GPU_FIELD = "no field says how many GPUs jobs had, so all have 0"
_LIST_GPU_FIELDS = "list AllocTRES and ReqTRES in sacct's --format (AllocGRES and ReqGRES before Slurm 20.11)"
_ADVICE = {
    "Submit is not a time": "run sacct with SLURM_TIME_FORMAT=standard (or %s); for zones whose short name "
    f"others have too, such as CST, give {setting('option.timezone')}",
    "still running or waiting: it has no end": "run sacct for a time that is over (-S START -E END)",
}


class SlurmOptions(BaseModel):
    """How Slurm's records become jobs."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    group: Literal["partition", "account", "qos"] = "partition"
    """What a job's group is."""
    gpu_types: Literal["ignore", "requested", "allocated"] = "ignore"
    """Whether jobs are bound to the GPU types they asked for, or got."""
    requeued: Literal["separate", "merge"] = "separate"
    """Runs of a requeued job: each a job, or together one job as long as all its runs."""
    timezone: str = "UTC"
    """Of times that state none, such as Europe/Berlin."""

    @field_validator("timezone")
    @classmethod
    def _check_zone(cls, name: str) -> str:
        if not is_zone(name):
            raise ValueError(f"{name!r} is no time zone; expected a name such as Europe/Berlin or UTC")
        return name


@dataclass
class SlurmRecords:
    """Collects records piece by piece and makes a workload of them.

    Attributes:
        log: Where rows are counted.
        options: Of the format.
    """

    log: ImportLog
    options: SlurmOptions
    _jobs: list[pl.DataFrame] = field(default_factory=list)
    _steps: list[tuple[str, pl.DataFrame]] = field(default_factory=list)
    _sliced: int = 0

    def add(self, rows: pl.DataFrame, file: str) -> None:
        """Take records that are counted as read: columns of ``FIELDS``, null where empty, and ``line``."""
        absent = [pl.lit(None, pl.String).alias(name) for name in FIELDS if name not in rows.columns]
        known = set(rows.columns)
        if known.isdisjoint(GPU_FIELDS):
            self.log.warn("no-gpu-field", _NO_GPU_FIELD, _LIST_GPU_FIELDS)
        rows = rows.with_columns(absent)
        bad_id: Checks = (("JobID is not the id of a job", ~_matches("jobid", _JOB_ID)),)
        rows = keep_valid(rows, bad_id, file, self.log)
        is_step = rows["jobid"].str.contains(".", literal=True)
        jobs = self._checked(rows.filter(~is_step), known, file)
        steps = rows.filter(is_step).select(pl.col("jobid").str.extract(r"^([^.]+)").alias("job"), "line")
        self._jobs.append(jobs.drop("line"))
        if steps.height:
            here = steps["job"].is_in(jobs["source_id"].implode())
            self.log.merge(int(here.sum()), parts=True)
            self._steps.append((file, steps.filter(~here)))

    def workload(self, format_name: str, paths: list[Path]) -> Workload:
        """The jobs of all records.

        Raises:
            InputError: if there are none.
        """
        jobs = pl.concat(self._jobs) if self._jobs else pl.DataFrame({"source_id": []})
        self._settle_steps(jobs["source_id"])
        source = ", ".join(path.name for path in paths)
        if jobs.height == 0:
            raise self.log.nothing_left(", ".join(map(str, paths)), _ADVICE)
        run = ("cluster_name", "source_id", "submit_s", "recorded_start_s", "duration_s")
        jobs = merge_repeats(jobs, run, self.log)
        jobs = with_asked_nodes(self._settle_requeued(jobs)).drop(_KEYS)
        settings = {"format": format_name, "files": [path.name for path in paths]}
        step = Step(name="import", settings=settings | self.options.model_dump())
        name = paths[0].name.split(".")[0]
        return make_workload(jobs, name=name, source=source, history=(step,), where=Where(source))

    def _settle_steps(self, job_ids: pl.Series) -> None:
        """Steps whose job came in another piece are part of it; those of no job are rejected."""
        for file, steps in self._steps:
            has_job = steps["job"].is_in(job_ids.cast(pl.String).implode())
            self.log.merge(int(has_job.sum()), parts=True)
            reason = "a step of a job that is rejected or not in the file"
            self.log.reject(reason, file, steps.filter(~has_job)["line"], parts=True)

    def _settle_requeued(self, jobs: pl.DataFrame) -> pl.DataFrame:
        ids = ["cluster_name", "source_id"]
        again = jobs.height - jobs.select(pl.struct(ids).n_unique()).item()
        if not again:
            return jobs
        if self.options.requeued == "separate":
            self.log.assume(f"{again} runs of requeued jobs are jobs of their own (option requeued)")
            return jobs
        self.log.merge(again)
        summed = ("submit_s", "duration_s", "recorded_start_s")
        last = pl.all().exclude(*ids, *summed).last()
        runs = jobs.sort("submit_s", "recorded_start_s", maintain_order=True)
        merged = runs.group_by(ids, maintain_order=True).agg(
            pl.col("submit_s", "recorded_start_s").first(), pl.col("duration_s").sum(), last
        )
        return merged.select(jobs.columns)

    def _checked(self, rows: pl.DataFrame, known: set[str], file: str) -> pl.DataFrame:
        """The jobs among records without steps, in native columns, with ``line`` and the keys."""
        rows = _with_resources(self._with_times(rows))
        rows = keep_valid(rows, _checks(known), file, self.log)
        rows = self._expand_arrays(rows, file)
        self._note(rows, file)
        return rows.select(
            "submit_s",
            "duration_s",
            "line",
            gpus=pl.col("gpus").cast(pl.Int64),
            cpus=pl.col("cpus").fill_null(0),
            memory_mib=pl.col("memory_mib").fill_null(0).ceil().cast(pl.Int64),
            estimate_s="limit_s",
            gpu_types=self._gpu_types(rows),
            user="user",
            group=self.options.group,
            status=_state().replace_strict(_STATUSES, default="unknown", return_dtype=pl.String),
            source_id="jobid",
            recorded_start_s=start_or_null(pl.col("start_s")),
            recorded_nodes=canonical_nodes(rows["nodelist"]),
            nodes="asked_nodes",
            partition="partition",
            qos="qos",
            account="account",
            name="jobname",
            after=self._after(rows),
            cluster_name="cluster",
            allocated_nodes="nodes",
        )

    def _with_times(self, rows: pl.DataFrame) -> pl.DataFrame:
        for name in ("submit", "start", "end"):
            seconds, naive = unix_seconds(rows[name], self.options.timezone)
            rows = rows.with_columns(seconds.alias(f"{name}_s"))
            if naive and self.options.timezone == "UTC":
                self.log.assume("times without a zone are taken as UTC (option timezone)")
        return rows

    def _after(self, rows: pl.DataFrame) -> pl.Series:
        """The jobs that each waited for: of the field Dependency, or of the options of the submission."""
        if rows["dependency"].null_count() == rows["submitline"].null_count() == rows.height:
            return pl.Series([None], dtype=pl.String).new_from_index(0, rows.height)
        stated = zip(rows["dependency"], rows["submitline"], strict=True)
        found = [
            slurm_dependency(text) if text else submit_line_dependency(line or "") for text, line in stated
        ]
        if any(left_out for _, left_out in found):
            self.log.leave_out(OTHER_DEPENDENCIES)
        return pl.Series([ids for ids, _ in found], dtype=pl.String)

    def _gpu_types(self, rows: pl.DataFrame) -> pl.Series:
        if self.options.gpu_types == "ignore":
            return pl.Series([None], dtype=pl.List(pl.String)).new_from_index(0, rows.height)
        return tres_gpu_types(rows["reqtres" if self.options.gpu_types == "requested" else "alloctres"])

    def _expand_arrays(self, rows: pl.DataFrame, file: str) -> pl.DataFrame:
        """A record such as ``7_[1-3]`` stands for several tasks of an array, each a job."""
        is_array = rows["jobid"].str.contains("[", literal=True)
        if not is_array.any():
            return rows
        arrays = rows.filter(is_array)
        tasks = pl.Series("jobid", [task_ids(id) for id in arrays["jobid"]], dtype=pl.List(pl.String))
        arrays = arrays.with_columns(tasks)
        whole = f"a list of array tasks that is cut off, or of more than {MAX_ARRAY_TASKS}"
        arrays = keep_valid(arrays, ((whole, pl.col("jobid").is_null()),), file, self.log)
        expanded = arrays.explode("jobid")
        self.log.read(expanded.height - arrays.height)
        self.log.assume("records of several array tasks, such as 7_[1-3], count as one row a task")
        return pl.concat([rows.filter(~is_array), expanded]).sort("line", maintain_order=True)

    def _note(self, rows: pl.DataFrame, file: str) -> None:
        limit = pl.coalesce("timelimit", "timelimitraw")
        states_limit = limit.is_not_null() & ~limit.is_in([*NO_LIMIT, "00:00:00", "0"])
        states_memory = pl.col("reqmem").is_not_null() & (pl.col("reqmem") != "?")
        repairs: Checks = (
            ("state is not one of Slurm's: kept as unknown", ~_state().is_in(list(_STATUSES))),
            ("memory cannot be read: taken as 0", states_memory & pl.col("memory_mib").is_null()),
            ("CPUs cannot be read: taken as 0", pl.col("ncpus").is_not_null() & pl.col("cpus").is_null()),
            ("Timelimit cannot be read: taken as unknown", states_limit & pl.col("limit_s").is_null()),
        )
        for reason, condition in repairs:
            changed = rows.select(condition.fill_null(False)).to_series()
            self.log.repair(reason, file, rows.filter(changed)["line"])
        tres = pl.coalesce("alloctres", "reqtres")
        if rows.select(tres.str.contains("gres/shard", literal=True).any()).item():
            self.log.assume("shares of GPUs (gres/shard) are not read: such jobs count as without GPU")
        self._note_slices(rows)
        for name, what in NOT_MODELLED.items():
            if rows[name].is_in(["(null)", "None", "none", "0"]).not_().any():
                self.log.leave_out(what)
        if rows.select(pl.col("jobid").str.contains("+", literal=True).any()).item():
            self.log.assume("components of heterogeneous jobs, such as 7+0 and 7+1, are jobs of their own")

    def _note_slices(self, rows: pl.DataFrame) -> None:
        """Slices of a GPU (MIG), which Slurm counts as GPUs of a type such as a100_3g.20gb."""
        texts = pl.concat_str(GPU_FIELDS, separator=" ", ignore_nulls=True)
        self._sliced += int(rows.select(texts.str.contains(SLICE).sum()).item() or 0)
        if self._sliced:
            self.log.warn(
                "mig-slices",
                f"{plural(self._sliced, 'job')} had slices of GPUs (MIG), and each counts as a whole GPU",
                "give the cluster as many GPUs per node as it has slices, or leave such jobs out",
            )


def check_fields(known: set[str], options: SlurmOptions, where: str) -> None:
    """Refuse records that lack what a job needs.

    Raises:
        InputError: naming the missing fields and how to ask for them.
    """
    missing = [name for name in ("JobID", "Submit") if name.lower() not in known]
    if not known & {"elapsed", "elapsedraw"} and not {"start", "end"} <= known:
        missing.append("Elapsed")
    if options.group not in known and options.group != "partition":
        missing.append(options.group.capitalize())
    if missing:
        raise InputError(
            f"{where}: no field {', '.join(missing)}; list them with sacct --parsable2 --duplicates --format="
            "JobID,User,Account,Partition,State,Submit,Start,End,Elapsed,Timelimit,NNodes,NodeList,"
            "NCPUS,ReqMem,ReqTRES,AllocTRES"
        )


def _checks(known: set[str]) -> Checks:
    ended = ~_state().is_in(_UNFINISHED) if "state" in known else pl.lit(True)
    if "end" in known:
        ended &= pl.col("end").is_not_null() & ~pl.col("end").is_in(NO_TIME)
    started = pl.col("start").is_not_null() & ~pl.col("start").is_in(NO_TIME)
    return (
        ("Submit is not a time", pl.col("submit_s").is_null()),
        ("still running or waiting: it has no end", ~ended),
        ("never started", ~started if "start" in known else pl.lit(False)),
        (
            "Start or End is not a time",
            pl.any_horizontal(
                pl.col(name).is_not_null() & pl.col(f"{name}_s").is_null() for name in ("start", "end")
            ),
        ),
        ("Elapsed is not [D-]HH:MM:SS", pl.col("duration_s").is_null()),
        *TIME_CHECKS,
        ("the number of GPUs is out of range", ~pl.col("gpus").is_between(0, MAX_COUNT)),
    )


def _matches(name: str, pattern: str) -> pl.Expr:
    return pl.col(name).str.contains(pattern).fill_null(False)


def _state() -> pl.Expr:
    """``CANCELLED by 1001`` and a cut-off ``CANCELLED+`` are CANCELLED."""
    return pl.col("state").str.extract(r"^([A-Za-z_]+)").str.to_uppercase()


def _with_resources(rows: pl.DataFrame) -> pl.DataFrame:
    """Adds numbers, null where they cannot be read: duration_s, limit_s, cpus, memory_mib and gpus."""
    allocated, requested = rows["alloctres"], rows["reqtres"]
    cpus = pl.coalesce("ncpus", "reqcpus", tres_cpus(allocated), tres_cpus(requested))
    rows = rows.with_columns(
        clock_seconds(rows["elapsed"]).alias("elapsed_s"),
        clock_seconds(rows["timelimit"]).alias("limit_s"),
        requested_memory(rows["reqmem"]).alias("asked"),
        count_or_null(pl.col("nnodes")).fill_null(1).alias("nodes"),
        count_or_null(cpus).alias("cpus"),
        count_or_null(pl.coalesce("reqnodes", tres_nodes(requested))).alias("asked_nodes"),
    )
    minutes = count_or_null(pl.col("timelimitraw")).cast(pl.Float64)
    limit = pl.coalesce("limit_s", minutes * 60)
    on_each = pl.coalesce(gres_gpus(rows["allocgres"]), gres_gpus(rows["reqgres"]))
    return rows.with_columns(
        _duration_s().alias("duration_s"),
        pl.when(limit.is_between(0, MAX_TIME_S, closed="right")).then(limit).alias("limit_s"),
        pl.coalesce(tres_memory_mib(allocated), tres_memory_mib(requested), _asked_memory_mib()).alias(
            "memory_mib"
        ),
        pl.coalesce(tres_gpus(allocated), tres_gpus(requested), on_each * pl.col("nodes"), 0.0).alias("gpus"),
    )


def _duration_s() -> pl.Expr:
    """Elapsed, which leaves out suspensions; end - start where the log has none."""
    stated = pl.col("elapsed").is_not_null() | pl.col("elapsedraw").is_not_null()
    elapsed = pl.coalesce("elapsed_s", count_or_null(pl.col("elapsedraw")))
    return pl.when(stated).then(elapsed).otherwise(pl.col("end_s") - pl.col("start_s"))


def _asked_memory_mib() -> pl.Expr:
    mib, per = pl.col("asked").struct.field("mib"), pl.col("asked").struct.field("per")
    cpus = pl.col("cpus").fill_null(1)
    total = mib * pl.when(per == "c").then(cpus).when(per == "n").then("nodes").otherwise(1)
    return pl.when(total <= MAX_MEMORY_MIB).then(total)
