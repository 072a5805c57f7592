"""The Standard Workload Format of the Parallel Workloads Archive."""

import re
from collections.abc import Iterable
from pathlib import Path

import polars as pl

from gpuyard.cluster import Cluster, NodeGroup
from gpuyard.errors import InputError
from gpuyard.registry import register
from gpuyard.workload.chunks import line_chunks
from gpuyard.workload.formats import JOBS, NoOptions, Trace, TraceFiles
from gpuyard.workload.importing import ImportLog
from gpuyard.workload.schema import Step, Where, make_workload

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
            epoch_s=float(_number(header.get("UnixStartTime")) or 0),
            history=(step,),
            where=Where(str(path)),
        )
        return Trace(workload, _cluster(header, workload.metadata.name))


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
    numbers = ("submit", "run", "procs", "requested_procs", "requested_s", "requested_kb")
    frame = frame.with_columns(pl.col(*numbers).cast(pl.Float64, strict=False))
    size = pl.when(pl.col("requested_procs") > 0).then("requested_procs").otherwise("procs")
    frame = frame.with_columns(size=size)
    wrong: tuple[tuple[str, pl.Expr], ...] = (
        ("a field that should be a number is not", pl.any_horizontal(pl.col(*numbers).is_null())),
        ("submitted before the log's start", pl.col("submit") < 0),
        ("never ran: run time is not positive", pl.col("run") <= 0),
        ("no processors", pl.col("size") <= 0),
    )
    for reason, condition in wrong:
        bad = frame.select(condition.fill_null(False)).to_series()
        log.reject(reason, path.name, frame.filter(bad)["line"])
        frame = frame.filter(~bad)
    known = pl.col("user") != "-1"
    queue = pl.when(pl.col("queue") != "-1").then("queue").when(pl.col("partition") != "-1").then("partition")
    kib = pl.col("requested_kb") * pl.col("size")
    return frame.select(
        submit_s="submit",
        duration_s="run",
        gpus=pl.col("size").cast(pl.Int64),
        memory_mib=pl.when(kib > 0).then((kib / 1024).ceil()).otherwise(0.0).cast(pl.Int64),
        estimate_s=pl.when(pl.col("requested_s") > 0).then("requested_s"),
        user=pl.when(known).then(pl.lit("u") + pl.col("user")),
        group=pl.lit("q") + queue,
        status=pl.col("status").replace_strict(_STATUSES, default="unknown", return_dtype=pl.String),
        source_id="job",
    )


def _read_header(comments: Iterable[str], header: dict[str, str]) -> None:
    for comment in comments:
        if found := _HEADER.match(comment):
            header.setdefault(found[1], (found[2] or "").strip())


def _number(text: str | None) -> int | None:
    found = re.match(r"-?\d+", text or "")
    return int(found[0]) if found else None


def _cluster(header: dict[str, str], name: str) -> Cluster | None:
    """As many like nodes as the header states; one processor a node where it states no more."""
    nodes = _number(header.get("MaxNodes"))
    procs = _number(header.get("MaxProcs")) or nodes
    if not procs or procs < 1:
        return None
    if nodes and nodes > 0 and procs % nodes == 0:
        return Cluster(name=name, nodes=(NodeGroup(count=nodes, gpus=procs // nodes, type="gpu"),))
    return Cluster(name=name, nodes=(NodeGroup(count=procs, gpus=1, type="gpu"),))
