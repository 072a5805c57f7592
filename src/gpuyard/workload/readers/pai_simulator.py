"""The job table of the simulator that comes with Alibaba's PAI trace of 2020 (simulator/traces/pai)."""

from pathlib import Path
from typing import Literal

import polars as pl
from pydantic import BaseModel, ConfigDict

from gpuyard.errors import setting
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
from gpuyard.workload.readers.requests import (
    CPUS_ROUNDED,
    gpus_and_share,
    is_rounded_up,
    note_gpu_rounding,
    rounded_up,
    with_numbers,
    within_bounds,
)

_REQUIRED = ("job_id", "submit_time", "duration", "num_cpu", "num_gpu", "num_inst", "user", "gpu_type")
_ESTIMATES = ("group_gpu_dur", "group_dur", "user_gpu_dur", "user_dur")
"""Mean run times of like jobs, from the most to the least specific."""

_SURELY_GPUS = 5
"""Nobody asks for less than 5 % of a GPU, so a smaller number must count GPUs."""


class PaiSimulatorOptions(BaseModel):
    """How to read the simulator's table."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    unit: Literal["gpus", "percent"] | None = None
    """Of ``num_gpu`` and ``num_cpu``: 0.5 or 50 is half a GPU. None tells by the numbers."""
    request: Literal["job", "instance"] | None = None
    """Whose ``num_gpu`` and ``num_cpu`` are: the whole job's, as the simulator has it, or each instance's."""
    gpu_type: Literal["assigned", "ignore"] = "assigned"
    """Whether jobs are bound to ``gpu_type``, the type they ran on."""


@register("workload-format", "pai-simulator")
class PaiSimulatorFormat:
    """Alibaba PAI 2020 simulator: pai_job_*_100K.csv."""

    Options = PaiSimulatorOptions

    @staticmethod
    def role_of(head: bytes, name: str) -> str | None:
        """By the columns of the header, in any order."""
        return JOBS if set(_REQUIRED) <= set(csv_header(head)) else None

    @staticmethod
    def read(files: TraceFiles, log: ImportLog, options: PaiSimulatorOptions) -> Trace:
        """Read one table."""
        path = only_file(files)
        header = csv_header(read_head(path))
        columns = [*_REQUIRED, *(name for name in ("group", *_ESTIMATES) if name in header)]
        rows = csv_parts(path, log, columns, lambda piece: _rows(piece, path, log))
        per_gpu = {"gpus": 1.0, "percent": 100.0}[_unit(rows, path, log, options)]
        rows = rows.with_columns(pl.col("num_gpu", "num_cpu") / per_gpu)
        if _request(rows, path, log, options) == "job":
            rows = rows.with_columns(num_inst=pl.lit(1.0))
        jobs = _jobs(rows, path, log, options)
        if jobs.height == 0:
            raise log.nothing_left(str(path))
        log.assume("times are seconds on the trace's own clock; how jobs ended is not told")
        settings = {"format": "pai-simulator", "files": file_names(files), **options.model_dump()}
        return Trace(imported(jobs, path, settings))


def _rows(piece: pl.DataFrame, path: Path, log: ImportLog) -> pl.DataFrame:
    """Rows that can become jobs, with numbers as numbers."""
    estimates = [name for name in _ESTIMATES if name in piece.columns]
    numbers = ("submit_time", "duration", "num_cpu", "num_gpu", "num_inst")
    rows = with_numbers(piece, numbers, path, log)
    inst = pl.col("num_inst").fill_null(1.0)
    rules: tuple[Rule, ...] = (
        ("no submit_time", pl.col("submit_time").is_null()),
        ("submitted before the trace's start", pl.col("submit_time") < 0),
        ("no duration", pl.col("duration").is_null()),
        ("num_gpu or num_cpu is negative", (pl.col("num_gpu") < 0) | (pl.col("num_cpu") < 0)),
        ("num_inst is no whole number above 0", (inst < 1) | (inst != inst.floor())),
    )
    rows = without(rows, rules, path, log).with_columns(
        pl.col("num_gpu", "num_cpu").fill_null(0.0),
        num_inst=inst,
        estimate_s=_first_positive(estimates),
        group=pl.col("group") if "group" in piece.columns else pl.lit(None, dtype=pl.String),
    )
    rules = (("asks for neither GPUs nor CPUs", (pl.col("num_gpu") == 0) & (pl.col("num_cpu") == 0)),)
    return without(rows, rules, path, log).select(
        "job_id", *numbers, "estimate_s", "user", "group", "gpu_type", "line"
    )


def _first_positive(estimates: list[str]) -> pl.Expr:
    """The first estimate that is a positive number; the simulator passes over text too."""
    numbers = [pl.col(name).cast(pl.Float64, strict=False) for name in estimates]
    usable = [pl.when(number.is_finite() & (number > 0)).then(number) for number in numbers]
    return pl.coalesce(*usable) if usable else pl.lit(None, dtype=pl.Float64)


def _unit(rows: pl.DataFrame, path: Path, log: ImportLog, options: PaiSimulatorOptions) -> str:
    smallest = rows.filter(pl.col("num_gpu") > 0)["num_gpu"].min()
    if options.unit is not None:
        return options.unit
    if smallest is None or float(smallest) < _SURELY_GPUS:  # type: ignore[arg-type]
        log.assume(
            "num_gpu and num_cpu count GPUs and CPUs, 0.5 = a half; the simulator multiplies them by 100"
        )
        return "gpus"
    log.ambiguous(
        f"{path}: the smallest num_gpu is {smallest!r}, which can be GPUs or percent of one",
        "it counts GPUs",
        f"say which with {setting('option.unit', 'gpus')} or {setting('option.unit', 'percent')}",
    )
    return "gpus"


def _request(rows: pl.DataFrame, path: Path, log: ImportLog, options: PaiSimulatorOptions) -> str:
    if options.request is not None or not (rows["num_inst"] > 1).any():
        return options.request or "job"
    log.ambiguous(
        f"{path}: jobs have num_inst > 1, and num_gpu can be that of the job or of each instance",
        "it is that of the job, as the simulator reads it",
        f"say which with {setting('option.request', 'job')} or {setting('option.request', 'instance')}",
    )
    return "job"


def _jobs(rows: pl.DataFrame, path: Path, log: ImportLog, options: PaiSimulatorOptions) -> pl.DataFrame:
    inst, each, cpus = pl.col("num_inst"), pl.col("num_gpu"), pl.col("num_inst") * pl.col("num_cpu")
    duration = pl.col("duration")
    note_gpu_rounding(rows, inst, each, path, log)
    rules: tuple[Rule, ...] = (
        ("duration is not positive: 1 s, as the simulator takes it", duration <= 0),
        (CPUS_ROUNDED, is_rounded_up(cpus)),
    )
    note_repairs(rows, rules, path, log)
    bound = (each > 0) & (pl.col("gpu_type") != "CPU") & (options.gpu_type == "assigned")
    jobs = rows.select(
        submit_s="submit_time",
        duration_s=pl.when(duration > 0).then(duration).otherwise(1.0),
        **gpus_and_share(inst, each),
        cpus=rounded_up(cpus),
        estimate_s="estimate_s",
        gpu_types=pl.when(bound).then(pl.concat_list("gpu_type")),
        user="user",
        group="group",
        source_id="job_id",
        line="line",
    )
    return within_bounds(jobs, path, log).drop("line")
