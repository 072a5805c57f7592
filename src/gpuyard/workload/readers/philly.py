"""Microsoft Philly's job log (2017): a JSON list of jobs and their attempts."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

import polars as pl
from pydantic import BaseModel, ConfigDict

from gpuyard.registry import register
from gpuyard.workload.formats import JOBS, Trace, TraceFiles
from gpuyard.workload.importing import ImportLog
from gpuyard.workload.node_lists import SEPARATOR
from gpuyard.workload.readers.csv_jobs import (
    NO_VALUE,
    Rule,
    StatusMap,
    bad_count,
    bad_duration,
    bad_submit,
    file_names,
    imported,
    note_repairs,
    only_file,
    with_times,
    without,
)
from gpuyard.workload.readers.json_records import json_records
from gpuyard.workload.readers.philly_machines import machine_role, philly_cluster
from gpuyard.workload.readers.row_checks import start_or_null

_BATCH_RECORDS = 20_000
_STATUSES = {"Pass": "completed", "Killed": "cancelled", "Failed": "failed"}
_START = re.compile(rb'\s*(\xef\xbb\xbf)?\s*\[\s*\{\s*"')
_KEYS = (re.compile(rb'"attempts"\s*:'), re.compile(rb'"(jobid|submitted_time|num_gpus)"\s*:'))

_JOB_COLUMNS = {
    "job": pl.Int64, "line": pl.Int64, "id": pl.String, "vc": pl.String, "user": pl.String,
    "status": pl.String, "submitted_time": pl.String, "num_gpus": pl.Float64,
}  # fmt: skip
_ATTEMPT_COLUMNS = {
    "job": pl.Int64, "start": pl.String, "end": pl.String, "gpus": pl.Int64, "machines": pl.String,
}  # fmt: skip


class PhillyOptions(BaseModel):
    """How to read the log."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    duration: Literal["sum", "span"] = "sum"
    """Run time of several attempts: their sum, or from the first start to the last end."""


@register("workload-format", "philly")
class PhillyFormat:
    """Microsoft Philly (2017): cluster_job_log (JSON), optionally with one of the machine tables."""

    Options = PhillyOptions

    @staticmethod
    def role_of(head: bytes, name: str) -> str | None:
        """A JSON list of objects with ``attempts`` and another key of the log."""
        if _START.match(head) and all(key.search(head) for key in _KEYS):
            return JOBS
        return machine_role(head)

    @staticmethod
    def read(files: TraceFiles, log: ImportLog, options: PhillyOptions) -> Trace:
        """Read the log, or the shorter form with ``id`` and ``num_gpus`` and no ``detail``."""
        path = only_file(files)
        statuses = StatusMap("status", _STATUSES)
        parts = [_jobs(path, batch, statuses, log, options) for batch in _batches(path, log)]
        jobs = pl.concat(parts) if parts else pl.DataFrame()
        if jobs.height == 0:
            raise log.nothing_left(str(path))
        statuses.report(log)
        log.assume("times carry no zone and are taken as UTC (the cluster's are US Pacific)")
        log.assume("GPUs of a job are those of its first attempt that lists some")
        settings = {"format": "philly", "files": file_names(files), **options.model_dump()}
        workload = imported(jobs, path, settings)
        return Trace(workload, philly_cluster(files, workload, log))


class _Batch:
    """Some records as columns: one row a job, and one row an attempt."""

    def __init__(self) -> None:
        self._jobs: list[tuple[Any, ...]] = []
        self._attempts: list[tuple[Any, ...]] = []

    def __len__(self) -> int:
        return len(self._jobs)

    def add(self, line: int, record: dict[str, Any]) -> None:
        """Take a record, or raise UnicodeEncodeError and leave the batch as it is."""
        job = len(self._jobs)
        identity = _text(record.get("jobid", record.get("id")))
        names = [_text(record.get(key)) for key in ("vc", "user", "status", "submitted_time")]
        attempts = [
            (
                job,
                _text(attempt.get("start_time")),
                _text(attempt.get("end_time")),
                *_machines(attempt),
            )
            for attempt in _dicts(record.get("attempts"))
        ]
        self._jobs.append((job, line, identity, *names, _count(record.get("num_gpus"))))
        self._attempts += attempts

    def jobs(self) -> pl.DataFrame:
        return pl.DataFrame(self._jobs, schema=_JOB_COLUMNS, orient="row")

    def attempts(self) -> pl.DataFrame:
        return pl.DataFrame(self._attempts, schema=_ATTEMPT_COLUMNS, orient="row")


def _batches(path: Path, log: ImportLog) -> Iterator[_Batch]:
    batch = _Batch()
    for line, record in json_records(path):
        log.read(1)
        if not isinstance(record, dict):
            log.reject("not an object with the keys of a job", path.name, [line])
            continue
        try:
            batch.add(line, record)
        except UnicodeEncodeError:
            log.reject("holds half of a UTF-16 pair, which is no text", path.name, [line])
            continue
        if len(batch) == _BATCH_RECORDS:
            yield batch
            batch = _Batch()
    if len(batch):
        yield batch


def _jobs(
    path: Path, batch: _Batch, statuses: StatusMap, log: ImportLog, options: PhillyOptions
) -> pl.DataFrame:
    """The jobs of some records."""
    frame = with_times(batch.jobs(), "submitted_time")
    frame = frame.join(_summaries(batch.attempts()), on="job", how="left", maintain_order="left")
    frame = frame.with_columns(
        run_s=pl.col("sum_s" if options.duration == "sum" else "span_s"),
        gpus=pl.coalesce("num_gpus", "first_gpus").cast(pl.Float64),
    )
    frame = without(frame, _rules(), path, log)
    left_out = (pl.col("attempts") - pl.col("ended") - pl.col("backward")) > pl.col("running").cast(pl.Int64)
    repairs = [
        ("still running: only the attempts that ended count", pl.col("running")),
        ("attempts without a start or an end are left out", left_out),
        ("attempts that end before they start are left out", pl.col("backward") > 0),
        (
            "attempts differ in their number of GPUs: the first that lists some is taken",
            pl.col("gpus_differ"),
        ),
    ]
    note_repairs(frame, repairs, path, log)
    return frame.select(
        submit_s="submitted_time_at",
        duration_s="run_s",
        gpus=pl.col("gpus").cast(pl.Int32),
        user="user",
        group="vc",
        status=statuses.read(frame["status"]),
        source_id="id",
        recorded_start_s=start_or_null(pl.col("first_start")),
        recorded_nodes="first_machines",
    )


def _rules() -> list[Rule]:
    no_run = pl.col("ended") == 0
    return [
        *bad_submit("submitted_time"),
        ("never scheduled: no attempts", pl.col("attempts").is_null()),
        ("still running: its last attempt has no end", no_run & pl.col("running")),
        ("no attempt has both a start and an end behind it", no_run),
        *bad_duration("run_s", "the time of its attempts"),
        ("no attempt lists GPUs", pl.col("gpus").is_null()),
        bad_count("gpus", 1),
    ]


def _summaries(attempts: pl.DataFrame) -> pl.DataFrame:
    """One row a job: how many attempts, their times, their GPUs."""
    start, end = pl.col("start_at"), pl.col("end_at")
    ended = (end >= start).fill_null(False)
    has_gpus = pl.col("gpus") > 0
    counted = pl.col("gpus").filter(ended & has_gpus)
    return (
        with_times(attempts, "start", "end")
        .group_by("job", maintain_order=True)
        .agg(
            attempts=pl.len().cast(pl.Int64),
            ended=ended.sum().cast(pl.Int64),
            backward=(end < start).sum().cast(pl.Int64),
            # Philly's README: no end of the last attempt means that the job runs at the snapshot.
            running=(start.is_not_null() & pl.col("end").is_null()).last(),
            sum_s=(end - start).filter(ended).sum(),
            span_s=end.filter(ended).max() - start.filter(ended).min(),
            first_start=start.filter(ended).min(),
            first_machines=pl.col("machines").filter(ended).first(),
            first_gpus=pl.coalesce(counted.first(), pl.col("gpus").filter(has_gpus).first()),
            gpus_differ=counted.n_unique() > 1,
        )
    )


def _machines(attempt: dict[str, Any]) -> tuple[int, str | None]:
    """GPUs of an attempt and the machines that it lists, each once."""
    detail = _dicts(attempt.get("detail"))
    names = dict.fromkeys(name for name in (_text(machine.get("ip")) for machine in detail) if name)
    return sum(_length(machine.get("gpus")) for machine in detail), SEPARATOR.join(names) or None


def _text(value: Any) -> str | None:
    """Text of a record; None for null, "None" and other kinds of values.

    Raises:
        UnicodeEncodeError: if it holds half of a UTF-16 pair, as JSON can, which no table can keep.
    """
    if not isinstance(value, str) or value in NO_VALUE:
        return None
    if not value.isascii():
        value.encode()
    return value


def _count(value: Any) -> float | None:
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    return float(value) if is_number and abs(value) < 2**53 else None


def _length(value: Any) -> int:
    return len(value) if isinstance(value, list) else 0


def _dicts(values: Any) -> list[dict[str, Any]]:
    return [value for value in values if isinstance(value, dict)] if isinstance(values, list) else []
