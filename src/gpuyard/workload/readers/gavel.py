"""Gavel's traces: training jobs as a number of steps, with a table of steps a second by GPU type."""

import re
from collections.abc import Mapping
from pathlib import Path

import polars as pl
from pydantic import BaseModel, ConfigDict

from gpuyard.errors import InputError, setting
from gpuyard.files import parse_json
from gpuyard.registry import register, suggest
from gpuyard.workload.chunks import line_chunks, open_bytes
from gpuyard.workload.formats import JOBS, Trace, TraceFiles
from gpuyard.workload.importing import ImportLog
from gpuyard.workload.readers.row_checks import MAX_COUNT, Checks, finite_or_null, keep_valid
from gpuyard.workload.schema import MAX_TIME_S, Step, Where, make_workload

THROUGHPUTS = "throughputs"
"""The role of the table of steps a second."""

LAYOUTS = {
    7: ("job_type", "command", "steps_argument", "data_dir", "steps", "arrival", "gpus"),
    9: ("job_type", "command", "steps_argument", "data_dir", "steps", "gpus", "priority", "slo", "arrival"),
    10: (
        "job_type", "command", "directory", "steps_argument", "data_dir", "steps", "gpus", "priority", "slo",
        "arrival",
    ),
    12: (
        "job_type", "command", "directory", "steps_argument", "data_dir", "steps", "gpus", "mode", "priority",
        "slo", "duration", "arrival",
    ),
}  # fmt: skip
"""Fields by their number: the first release's traces have 7, later ones 9 and 10, Shockwave's have 12."""

_NUMBERS = ("steps", "gpus", "priority", "slo", "duration", "arrival")
_DEFAULTS = {"priority": "1", "slo": "-1", "duration": "-1"}
_TABLE_START = re.compile(rb"""\s*\{\s*"[^"]+"\s*:\s*\{\s*"\('""")
_TABLE_KEY = re.compile(r"\('(.*)', (\d{1,9})\)")

_CHECKS: Checks = (
    ("a field that should be a number is not", pl.any_horizontal(pl.col(*_NUMBERS).is_null())),
    ("arrives before the trace's start", pl.col("arrival") < 0),
    ("arrives more than 136 years after the trace's start", pl.col("arrival") > MAX_TIME_S),
    (
        "the scale factor is not a number of GPUs",
        ~(pl.col("gpus").is_between(1, MAX_COUNT) & (pl.col("gpus") == pl.col("gpus").round())),
    ),
    ("the number of steps is not positive", pl.col("steps") <= 0),
)


class GavelOptions(BaseModel):
    """How steps become run times."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    gpu_type: str = "v100"
    """The GPU type of the throughput table on which jobs take the durations of the workload."""


@register("workload-format", "gavel")
class GavelTrace:
    """Gavel's and Shockwave's .trace files, with simulation_throughputs.json for the run times."""

    Options = GavelOptions

    @staticmethod
    def role_of(head: bytes, name: str) -> str | None:
        """Tab-separated job types, commands and numbers; or JSON of GPU types and ('job type', scale)."""
        if _TABLE_START.match(head):
            return THROUGHPUTS
        first = next((line for line in head.split(b"\n") if line.strip()), b"")
        values = first.decode("utf-8", errors="replace").rstrip("\r").split("\t")
        names = LAYOUTS.get(len(values))
        if names is None:
            return None
        fields = dict(zip(names, values, strict=True))
        numeric = all(_is_number(fields.get(name, "0")) for name in ("data_dir", *_NUMBERS))
        return JOBS if numeric and fields["steps_argument"].startswith("-") else None

    @staticmethod
    def read(files: TraceFiles, log: ImportLog, options: GavelOptions) -> Trace:
        """Read one trace with its table; without, only traces that state durations."""
        path = _only(files, JOBS)
        table = _throughputs(_only(files, THROUGHPUTS), options) if THROUGHPUTS in files else None
        parts = [_jobs(path, lines, table, log, options) for lines in line_chunks(path)]
        jobs = pl.concat(parts) if parts else pl.DataFrame()
        if jobs.height == 0:
            raise log.nothing_left(str(path))
        stated = table is None
        kind = "as the trace states them" if stated else f"steps at the throughput of a {options.gpu_type}"
        log.assume(f"times are in seconds; durations are {kind}")
        names = [file.name for role in sorted(files) for file in files[role]]
        step = Step(name="import", settings={"format": "gavel", "files": names} | options.model_dump())
        name = path.name.split(".")[0]
        workload = make_workload(jobs, name=name, source=path.name, history=(step,), where=Where(str(path)))
        return Trace(workload)


def _is_number(text: str) -> bool:
    return re.fullmatch(r"-?\d+(\.\d*)?", text.strip()) is not None


def _only(files: TraceFiles, role: str) -> Path:
    if len(files[role]) > 1:
        raise InputError(f"{files[role][1]}: is a second file of {role}; import one Gavel trace at a time")
    return files[role][0]


def _throughputs(path: Path, options: GavelOptions) -> pl.DataFrame:
    """Steps a second of one GPU type: ``job_type``, ``gpus``, ``rate``."""
    with open_bytes(path) as file:
        try:
            table = parse_json(file.read())
        except ValueError as error:
            raise InputError(f"{path}: is no JSON ({str(error)[:100]}); fetch it again") from None
    if not isinstance(table, Mapping) or not isinstance(table.get(options.gpu_type), Mapping):
        types = dict.fromkeys(table) if isinstance(table, Mapping) else {}
        raise InputError(
            f"{path}, key {options.gpu_type!r}: no throughputs of this GPU type"
            f"{suggest(options.gpu_type, types)}; give another with {setting('option.gpu_type')}"
        )
    rows = []
    for key, entry in table[options.gpu_type].items():
        found = _TABLE_KEY.fullmatch(key)
        rate = entry.get("null") if isinstance(entry, Mapping) else None
        if not found or isinstance(rate, bool) or not isinstance(rate, (int, float)) or not abs(rate) < 1e300:
            raise InputError(
                f"{path}, key {options.gpu_type}.{key[:80]}: expected ('job type', scale factor) with "
                "a number under 'null', the steps a second of the job alone; fetch the table again"
            )
        rows.append((found[1], float(found[2]), float(rate)))
    schema = {"job_type": pl.String, "gpus": pl.Float64, "rate": pl.Float64}
    return pl.DataFrame(rows, schema=schema, orient="row").unique(["job_type", "gpus"], keep="first")


def _jobs(
    path: Path, lines: pl.DataFrame, table: pl.DataFrame | None, log: ImportLog, options: GavelOptions
) -> pl.DataFrame:
    """The jobs of a piece of the trace."""
    log.read(lines.height)
    width = lines["text"].str.count_matches("\t", literal=True) + 1
    log.reject("not 7, 9, 10 or 12 fields", path.name, lines.filter(~width.is_in(list(LAYOUTS)))["line"])
    rows = pl.concat(_fields(lines.filter(width == n), names) for n, names in LAYOUTS.items()).sort("line")
    rows = rows.with_columns(finite_or_null(pl.col(name)).alias(name) for name in _NUMBERS)
    rows = keep_valid(rows, _CHECKS, path.name, log)
    rows = keep_valid(*_with_durations(path, rows, table, options), path.name, log)
    due = pl.col("arrival") + pl.col("slo") * pl.col("duration")
    return rows.select(
        submit_s="arrival",
        duration_s="duration",
        gpus=pl.col("gpus").cast(pl.Int64),
        priority="priority",
        deadline_s=pl.when((pl.col("slo") > 0) & (due <= MAX_TIME_S)).then(due),
        source_id=(pl.col("line") - 1).cast(pl.String),
    )


def _fields(lines: pl.DataFrame, names: tuple[str, ...]) -> pl.DataFrame:
    split = lines["text"].str.splitn("\t", len(names)).struct.rename_fields(list(names)).struct.unnest()
    absent = [pl.lit(value).alias(name) for name, value in _DEFAULTS.items() if name not in names]
    wanted = ("job_type", *_NUMBERS)
    return split.with_columns(absent).select(pl.col(wanted).str.strip_chars()).with_columns(lines["line"])


def _with_durations(
    path: Path, rows: pl.DataFrame, table: pl.DataFrame | None, options: GavelOptions
) -> tuple[pl.DataFrame, Checks]:
    """Rows with run times, and what makes one unusable."""
    too_long = ("runs for more than 136 years", pl.col("duration") > MAX_TIME_S)
    if table is None:
        if rows.height and (rows["duration"] < 0).all():
            raise InputError(
                f"{path}, line {rows['line'][0]}: the trace states steps but no durations; "
                "add simulation_throughputs.json, which lies beside Gavel's traces, as a second file"
            )
        return rows, (("states no positive duration", pl.col("duration") <= 0), too_long)
    joined = rows.join(table, on=["job_type", "gpus"], how="left", maintain_order="left")
    joined = joined.with_columns(duration=pl.col("steps") / pl.col("rate"))
    where = f"on a {options.gpu_type}"
    return joined, (
        (f"no throughput of its job type and scale factor {where}", pl.col("rate").is_null()),
        (f"cannot run {where}: its throughput is 0", pl.col("rate") <= 0),
        too_long,
    )
