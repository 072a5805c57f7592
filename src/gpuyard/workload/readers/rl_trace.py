"""The headerless CSV of RLTune's GPU traces: SWF with one column removed and two or three added."""

import re
from pathlib import Path
from typing import Literal

import polars as pl
from pydantic import BaseModel, ConfigDict

from gpuyard.errors import InputError
from gpuyard.registry import register
from gpuyard.workload.chunks import line_chunks
from gpuyard.workload.formats import JOBS, Trace, TraceFiles
from gpuyard.workload.importing import ImportLog
from gpuyard.workload.readers.row_checks import MAX_COUNT, Checks, finite_or_null, keep_valid, start_or_null
from gpuyard.workload.schema import MAX_TIME_S, Step, Where, make_workload

_COMMON = (
    "job", "submit", "wait", "run", "gpus", "cpu_time", "used_memory", "cpus", "requested", "memory",
    "status", "user", "unix_group", "executable", "queue", "partition", "preceding",
)  # fmt: skip
LAYOUTS = {19: (*_COMMON, "vc", "type"), 20: (*_COMMON, "think", "vc", "type")}
"""Names by width. The README has 19 columns; the code for two of the traces reads 20, with a think time."""

GPU_TYPES = {"0": "T4", "1": "MISC", "2": "P100", "3": "V100", "4": "V100M32"}
"""Types by number, named as in the preset cluster of the trace they come from (pai)."""

_STATUSES = {"0": "failed", "1": "completed", "5": "cancelled"}
_NUMBERS = ("submit", "run", "gpus", "cpus", "requested", "memory")
_READ = ("job", *_NUMBERS, "wait", "status", "user", "queue", "partition", "vc", "type")
_FIRST_LINE = re.compile(rb"[^,]+(,\s*-?\d+(\.\d*)?\s*){4}(,[^,]*){14,15}")


def _is_whole(name: str) -> pl.Expr:
    return pl.col(name).is_between(-MAX_COUNT, MAX_COUNT) & (pl.col(name) == pl.col(name).round())


_CHECKS: Checks = (
    ("a field that should be a number is not", pl.any_horizontal(pl.col(*_NUMBERS).is_null())),
    ("submitted before the trace's start", pl.col("submit") < 0),
    ("submitted more than 136 years after the trace's start", pl.col("submit") > MAX_TIME_S),
    ("never ran: run time is not positive", pl.col("run") <= 0),
    ("runs for more than 136 years", pl.col("run") > MAX_TIME_S),
    ("no number of GPUs", pl.col("gpus") < 0),
    ("a number of GPUs or CPUs is not whole or too large", ~(_is_whole("gpus") & _is_whole("cpus"))),
)


class RlTraceOptions(BaseModel):
    """How rows become jobs."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    group: Literal["vc", "queue", "partition"] = "vc"
    """What a job's group is."""
    gpu_types: Literal["trace", "ignore"] = "trace"
    """Whether jobs are bound to the GPU type that their row names."""


@register("workload-format", "rl-trace")
class RlTrace:
    """RLTune's GPU traces: headerless CSV of 19 or 20 columns, -1 = absent."""

    Options = RlTraceOptions

    @staticmethod
    def role_of(head: bytes, name: str) -> str | None:
        """A first line of 19 or 20 fields between commas, the second to the fifth of them numbers."""
        first = head.lstrip().split(b"\n", 1)[0]
        return JOBS if _FIRST_LINE.fullmatch(first) else None

    @staticmethod
    def read(files: TraceFiles, log: ImportLog, options: RlTraceOptions) -> Trace:
        """Read one trace; rows may be of both widths and in any order."""
        if len(files[JOBS]) > 1:
            raise InputError(f"{files[JOBS][1]}: import one RLTune trace at a time and merge them afterwards")
        path = files[JOBS][0]
        parts = [_jobs(path, lines, log, options) for lines in line_chunks(path)]
        jobs = pl.concat(parts) if parts else pl.DataFrame()
        if jobs.height == 0:
            raise log.nothing_left(str(path))
        log.assume("times are in seconds; status is 0 failed, 1 completed, 5 cancelled as in SWF")
        settings = {"format": "rl-trace", "files": [path.name]} | options.model_dump()
        workload = make_workload(
            jobs,
            name=path.name.split(".")[0],
            source=path.name,
            history=(Step(name="import", settings=settings),),
            where=Where(str(path)),
        )
        return Trace(workload)


def _jobs(path: Path, lines: pl.DataFrame, log: ImportLog, options: RlTraceOptions) -> pl.DataFrame:
    """The jobs of a piece of the file."""
    log.read(lines.height)
    width = lines["text"].str.count_matches(",", literal=True) + 1
    strange = lines.filter(~width.is_in(list(LAYOUTS)))
    log.reject("not 19 or 20 fields", path.name, strange["line"])
    rows = pl.concat(_fields(lines.filter(width == n), names) for n, names in LAYOUTS.items()).sort("line")
    rows = rows.with_columns(finite_or_null(pl.col(name)).alias(name) for name in _NUMBERS)
    rows = keep_valid(rows, _CHECKS, path.name, log)
    if (rows["memory"] > 0).any():
        log.assume("the unit of the requested memory is not stated: it is not read")
    return _native(rows, path, log, options)


def _fields(lines: pl.DataFrame, names: tuple[str, ...]) -> pl.DataFrame:
    split = lines["text"].str.splitn(",", len(names)).struct.rename_fields(list(names)).struct.unnest()
    return split.select(pl.col(_READ).str.strip_chars()).with_columns(lines["line"])


def _native(rows: pl.DataFrame, path: Path, log: ImportLog, options: RlTraceOptions) -> pl.DataFrame:
    known_type = pl.col("type").is_in(list(GPU_TYPES)) | pl.col("type").is_in(["-1", "-1.0", ""])
    if options.gpu_types == "trace":
        strange = rows.filter(~known_type)
        log.repair("a GPU type that is not 0 to 4: taken as any", path.name, strange["line"])
    types = pl.col("type").replace_strict(GPU_TYPES, default=None, return_dtype=pl.String)
    wait = finite_or_null(pl.col("wait"))
    has_type = types.is_not_null() & (options.gpu_types == "trace")
    return rows.select(
        submit_s="submit",
        duration_s="run",
        gpus=pl.col("gpus").cast(pl.Int64),
        cpus=pl.max_horizontal("cpus", 0).cast(pl.Int64),
        estimate_s=pl.when(pl.col("requested").is_between(0, MAX_TIME_S, closed="right")).then("requested"),
        gpu_types=pl.when(has_type).then(pl.concat_list(types)),
        user=_named("u", "user"),
        group=_named("", options.group),
        status=pl.col("status").replace_strict(_STATUSES, default="unknown", return_dtype=pl.String),
        source_id="job",
        recorded_start_s=pl.when(wait >= 0).then(start_or_null(pl.col("submit") + wait)),
        partition=_named("", "partition"),
    )


def _named(prefix: str, column: str) -> pl.Expr:
    absent = pl.col(column).is_in(["-1", "-1.0", ""])
    return pl.when(~absent).then(pl.lit(prefix) + pl.col(column))
