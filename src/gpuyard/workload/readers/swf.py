"""The Standard Workload Format of the Parallel Workloads Archive."""

import re
from collections.abc import Iterable
from pathlib import Path

import polars as pl
from pydantic import ValidationError

from gpuyard.cluster.model import Cluster, NodeGroup
from gpuyard.config import refusal
from gpuyard.errors import InputError
from gpuyard.registry import register
from gpuyard.workload.chunks import line_chunks
from gpuyard.workload.formats import JOBS, NoOptions, Trace, TraceFiles
from gpuyard.workload.importing import ImportLog
from gpuyard.workload.readers.csv_jobs import (
    Rule,
    bad_arrival,
    bad_count,
    bad_duration,
    note_repairs,
    number,
    without,
)
from gpuyard.workload.readers.row_checks import start_or_null
from gpuyard.workload.schema import MAX_TIME_S, Step, Where, make_workload

FIELDS = (
    "job", "submit", "wait", "run", "procs", "cpu_s", "used_kb", "requested_procs", "requested_s",
    "requested_kb", "status", "user", "unix_group", "executable", "queue", "partition", "preceding",
    "think_s",
)  # fmt: skip
WIDTHS = (18, 19, 21)
"""18 fields in the standard; some logs carry one or three more behind them, which are not read."""

_STATUSES = {
    "0": "failed",
    "1": "completed",
    "2": "completed",  # parts of a job that was checkpointed
    "3": "completed",
    "4": "failed",
    "5": "cancelled",
}
_NUMBERS = ("submit", "wait", "run", "procs", "requested_procs")
_RULES: tuple[Rule, ...] = (
    *bad_arrival("submit"),
    *bad_duration("run", "run time"),
    ("no processors", pl.col("processors") <= 0),
    bad_count("processors", low=1),
)
_MAX_MIB = 2**40
_BEYOND = 1e18
"""More than any count or time can be."""
_HEADER = re.compile(r";\s*(\w+):\s*(\S.*)?$")
_DATA_LINE = re.compile(rb"\s*\d+(\s+-?[\d.]+){10}[^,|]*\s*$")


@register("workload-format", "swf")
class SwfFormat:
    """Standard Workload Format (Parallel Workloads Archive), 18, 19 or 21 columns; processors as GPUs."""

    @staticmethod
    def role_of(head: bytes, name: str) -> str | None:
        """Lines of blank-separated numbers behind a header of ``;`` lines."""
        lines = (line for line in head.split(b"\n") if line.strip() and not line.lstrip().startswith(b";"))
        first = next(lines, b"")
        return JOBS if len(first.split()) in WIDTHS and _DATA_LINE.match(first) else None

    @staticmethod
    def read(files: TraceFiles, log: ImportLog, options: NoOptions) -> Trace:
        """Read one log."""
        if len(files[JOBS]) > 1:
            raise InputError(f"{files[JOBS][1]}: import one SWF file at a time and merge them afterwards")
        path = files[JOBS][0]
        header: dict[str, str] = {}
        parts = [_jobs(path, lines, header, log) for lines in line_chunks(path)]
        jobs = pl.concat(parts) if parts else pl.DataFrame()
        if jobs.height == 0:
            raise log.nothing_left(str(path))
        log.assume("processors are taken as GPUs; memory is per processor and in KB")
        step = Step(name="import", settings={"format": "swf", "file": path.name})
        workload = make_workload(
            jobs,
            name=path.name.split(".")[0],
            source=path.name,
            epoch_s=_epoch_s(header, log),
            history=(step,),
            where=Where(str(path)),
        )
        return Trace(workload, _cluster(header, workload.metadata.name, log))


def _jobs(path: Path, lines: pl.DataFrame, header: dict[str, str], log: ImportLog) -> pl.DataFrame:
    """The jobs of a piece of the file."""
    is_comment = lines["text"].str.starts_with(";")
    _read_header(lines.filter(is_comment)["text"], header)
    rows = lines.filter(~is_comment)
    log.read(rows.height)
    fields = rows["text"].str.replace_all(r"\s+", " ")
    width = fields.str.count_matches(" ", literal=True) + 1
    kept = width.is_in(WIDTHS)
    log.reject("not 18, 19 or 21 fields", path.name, rows.filter(~kept)["line"])
    if (width == 21).any():
        log.assume("21 columns: submit times are taken as they are, fields 19 to 21 are not read")
    if (width == 19).any():
        log.assume("19 columns: field 19 is not read")
    values = fields.filter(kept).str.splitn(" ", len(FIELDS) + 1).struct.rename_fields([*FIELDS, "more"])
    frame = values.struct.unnest().with_columns(line=rows.filter(kept)["line"])
    return _checked(path, frame, log)


def _checked(path: Path, frame: pl.DataFrame, log: ImportLog) -> pl.DataFrame:
    frame = frame.with_columns(number(name).alias(name) for name in _NUMBERS)
    requested = pl.col("requested_procs")
    # A request that cannot be read is not replaced by what was allocated.
    processors = pl.when(requested <= 0).then("procs").otherwise(requested)
    frame = frame.with_columns(processors=processors)
    frame = without(frame, _RULES, path, log)
    limit = number("requested_s")
    frame = frame.with_columns(mib=(number("requested_kb") * pl.col("processors") / 1024).ceil(), limit=limit)
    no_mib = pl.col("mib").is_null() | (pl.col("mib") > _MAX_MIB)
    no_limit = pl.col("limit").is_null() | (pl.col("limit") > MAX_TIME_S)
    repairs = (
        (f"requested time is no number of at most {MAX_TIME_S} s: taken as unknown", no_limit),
        (f"requested memory is no number or more than {_MAX_MIB} MiB: taken as unknown", no_mib),
    )
    note_repairs(frame, repairs, path, log)
    known = pl.col("user") != "-1"
    if (frame["think_s"].str.contains(r"^0*[1-9]")).any():
        log.leave_out("think times between a job and the one before it (field 18)")
    queue = pl.when(pl.col("queue") != "-1").then("queue").when(pl.col("partition") != "-1").then("partition")
    return frame.select(
        submit_s="submit",
        duration_s="run",
        gpus=pl.col("processors").cast(pl.Int64),
        memory_mib=pl.when(~no_mib & (pl.col("mib") > 0)).then("mib").otherwise(0.0).cast(pl.Int64),
        estimate_s=pl.when(~no_limit & (pl.col("limit") > 0)).then("limit"),
        user=pl.when(known).then(pl.lit("u") + pl.col("user")),
        group=pl.lit("q") + queue,
        status=pl.col("status").replace_strict(_STATUSES, default="unknown", return_dtype=pl.String),
        source_id="job",
        recorded_start_s=pl.when(pl.col("wait") >= 0).then(start_or_null(pl.col("submit") + pl.col("wait"))),
        partition=pl.when(pl.col("partition") != "-1").then(pl.lit("p") + pl.col("partition")),
        after=pl.when(pl.col("preceding").str.contains(r"^[1-9]\d*$")).then("preceding"),
    )


def _read_header(comments: Iterable[str], header: dict[str, str]) -> None:
    for comment in comments:
        if found := _HEADER.match(comment):
            header.setdefault(found[1], (found[2] or "").strip())


def _stated(header: dict[str, str], key: str) -> int | None:
    """The number a header line starts with, such as 1024 of ``1024 (8 processors each)``."""
    found = re.match(r"-?[0-9]+", header.get(key, ""))
    return int(max(-_BEYOND, min(float(found[0]), _BEYOND))) if found else None


def _epoch_s(header: dict[str, str], log: ImportLog) -> float:
    """Unix seconds at time 0 of the log; 0 if the header does not tell."""
    start = _stated(header, "UnixStartTime") or 0
    if 0 <= start <= MAX_TIME_S:
        return float(start)
    log.assume(
        f"UnixStartTime {header['UnixStartTime'][:40]} is no time from 1970 to 2105: not known when it began"
    )
    return 0.0


def _cluster(header: dict[str, str], name: str, log: ImportLog) -> Cluster | None:
    """As many like nodes as the header states; one processor a node where it states no more."""
    nodes = _stated(header, "MaxNodes")
    procs = _stated(header, "MaxProcs") or nodes
    if not procs or procs < 1:
        return None
    count = nodes if nodes and nodes > 0 and procs % nodes == 0 else procs
    try:
        group = NodeGroup(count=count, gpus=procs // count, type="gpu")
        return Cluster(name=name[:200] or "cluster", nodes=(group,))
    except ValidationError as error:
        log.assume(
            f"the header's cluster of {count} nodes with {procs // count} processors each is left out, as "
            f"{refusal(error, 'no cluster can have them')}"
        )
        return None
