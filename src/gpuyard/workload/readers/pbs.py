"""Accounting logs of PBS (OpenPBS, PBS Professional) and Torque."""

import re
from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import polars as pl
from pydantic import BaseModel, ConfigDict

from gpuyard.errors import InputError
from gpuyard.registry import register
from gpuyard.workload.chunks import line_chunks, read_head
from gpuyard.workload.formats import JOBS, Trace, TraceFiles
from gpuyard.workload.importing import ImportLog
from gpuyard.workload.node_lists import SEPARATOR
from gpuyard.workload.readers.accounting import CHECKS, all_jobs, once_each, trace_of, valid_jobs
from gpuyard.workload.readers.dependencies import LEFT_OUT, pbs_dependency
from gpuyard.workload.readers.pbs_records import RECORD, Message, allocation, pairs, seconds
from gpuyard.workload.readers.row_checks import MAX_COUNT, Checks

_FIRST_RECORD = re.compile(rb"\s*\d\d/\d\d/\d{4} \d\d:\d\d:\d\d;[A-Za-z]{1,2};")
_SERVER_LOG = re.compile(rb"\s*\d\d/\d\d/\d{4} \d\d:\d\d:\d\d(?:\.\d+)?;[0-9a-f]{4};")
_QSTAT = re.compile(rb"\s*(Job [Ii][Dd]\s+(Name|Username)\s|Job Id: )")

_ABOUT_JOBS = set("QSERDACHKMTUYZ") | {"a", "c", "e", "p", "r", "s", "u"}
"""Types of records that carry the id of a job; E is its end, R its return to the queue."""
_WALLTIME = {-29, -11}  # killed by the limit on run time: PBS, Torque
_KILLED = {271, 265, 143, 137}  # by SIGTERM or SIGKILL: qdel, or a limit that is not stated

_CHECKS: Checks = (
    ("has no time of its submission (ctime, qtime)", pl.col("submit_s").is_null()),
    (
        "never started: it has no start",
        pl.col("recorded_start_s").is_null() | (pl.col("recorded_start_s") <= 0),
    ),
    ("has no end", pl.col("duration_s").is_null()),
    *CHECKS,
)


class PbsOptions(BaseModel):
    """How PBS's records become jobs."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    group: Literal["queue", "account", "project", "group"] = "queue"
    """What a job's group is."""


@dataclass
class _Others:
    """Records of jobs that are no ends: where they are, by the id of their job."""

    places: dict[str, dict[str, list[int]]] = field(default_factory=lambda: defaultdict(dict))

    def add(self, job: str, file: str, line: int) -> None:
        self.places[file].setdefault(job, []).append(line)

    def settle(self, ended: set[str], log: ImportLog) -> None:
        """Those of an ended job are part of it."""
        for file, jobs in self.places.items():
            log.merge(sum(len(lines) for job, lines in jobs.items() if job in ended))
            without = [line for job, lines in jobs.items() if job not in ended for line in lines]
            log.reject("a record of a job whose end is rejected or not in the file", file, without)


@register("workload-format", "pbs")
class PbsAccounting:
    """Accounting logs of PBS and Torque: MM/DD/YYYY HH:MM:SS;E;jobid;user=... Resource_List..."""

    Options = PbsOptions

    @staticmethod
    def role_of(head: bytes, name: str) -> str | None:
        """Lines of a date, a type and an id between semicolons; also what is to be refused clearly."""
        known = _FIRST_RECORD.match(head) or _SERVER_LOG.match(head) or _QSTAT.match(head)
        return JOBS if known else None

    @staticmethod
    def read(files: TraceFiles, log: ImportLog, options: PbsOptions) -> Trace:
        """Read one or several days; records other than ends are merged into the job that ended."""
        paths = list(files[JOBS])
        others = _Others()
        for path in paths:
            _check_kind(path)
        parts = [_jobs(lines, path, log, options, others) for path in paths for lines in line_chunks(path)]
        jobs = all_jobs(parts)
        others.settle(set(jobs["source_id"]), log)
        jobs = once_each(jobs, paths, log)
        again = jobs.height - jobs["source_id"].n_unique()
        if again:
            log.assume(f"{again} runs of jobs that were queued again are jobs of their own")
        log.assume("run times are end - start, with suspensions; the submission is ctime")
        return trace_of(jobs, paths, "pbs", options)


def _check_kind(path: Path) -> None:
    """Refuse other outputs of PBS.

    Raises:
        InputError: saying which file to take.
    """
    head = read_head(path)
    what = "a log of the server" if _SERVER_LOG.match(head) else "output of qstat"
    if _SERVER_LOG.match(head) or _QSTAT.match(head):
        raise InputError(
            f"{path}, line 1: is {what}, expected accounting records such as "
            "'03/01/2024 09:00:10;E;7.server;user=...'; import the files of the directory "
            "server_priv/accounting of PBS_HOME (one per day; give all of them at once)"
        )


def _jobs(
    lines: pl.DataFrame, path: Path, log: ImportLog, options: PbsOptions, others: _Others
) -> pl.DataFrame:
    """The jobs of a piece of the file."""
    log.read(lines.height)
    rejected: dict[str, list[int]] = defaultdict(list)
    repaired: dict[str, list[int]] = defaultdict(list)
    rows = []
    for line, text in lines.select("line", "text").iter_rows():
        found = RECORD.fullmatch(text)
        if not found:
            rejected["is no record: expected MM/DD/YYYY HH:MM:SS;TYPE;ID;..."].append(line)
            continue
        kind, job_id, message = found.groups()
        ran = kind == "E" or (kind == "R" and " start=" in message and " end=" in message)
        if kind not in _ABOUT_JOBS or not job_id[:1].isdecimal():
            rejected[f"a record of type {kind}, which is about no job"].append(line)
        elif "[]" in job_id:
            rejected["a record of a whole array, whose tasks have records of their own"].append(line)
        elif not ran:
            others.add(_source_id(job_id), path.name, line)
        else:
            values = pairs(message)
            rows.append((line, *_values(values, job_id, kind == "R", options, line, repaired)))
    for reason, places in rejected.items():
        log.reject(reason, path.name, places)
    for reason, places in repaired.items():
        log.repair(reason, path.name, places)
    return valid_jobs(rows, _CHECKS, path.name, log)


def _source_id(job_id: str) -> str:
    """Without the server's name, which all jobs have in common."""
    return job_id.split(".", 1)[0]


def _values(
    message: Message,
    job_id: str,
    requeued: bool,
    options: PbsOptions,
    line: int,
    repaired: dict[str, list[int]],
) -> tuple[float | int | str | None, ...]:
    """A job's values in the order of ``accounting.COLUMNS``, without the line."""
    submit_s = _clock(message, "ctime") or _clock(message, "qtime")
    start_s, end_s = _clock(message, "start"), _clock(message, "end")
    duration_s = None if start_s is None or end_s is None else end_s - start_s
    asked = message.get("Resource_List.walltime", "")
    limit_s = seconds(asked)
    if asked and limit_s is None:
        repaired["walltime cannot be read: taken as unknown"].append(line)
    limit_s = limit_s if limit_s and limit_s <= MAX_COUNT else None
    had = allocation(message)
    status = "cancelled" if requeued else _status(message.get("Exit_status", ""), duration_s, limit_s)
    memory_mib, cpus = min(had.memory_mib, 2**40), min(had.cpus, MAX_COUNT)
    who = (message.get("user", ""), message.get(options.group, ""), status, _source_id(job_id))
    nodes = (SEPARATOR.join(had.hosts) or None, had.asked_nodes, len(had.hosts) or None)
    labels = (message.get(name, "") for name in ("queue", "account", "jobname"))
    times = (submit_s, duration_s, start_s)
    after, left_out = pbs_dependency(message.get("depend") or message.get("Resource_List.depend", ""))
    if left_out:
        repaired[LEFT_OUT].append(line)
    return (*times, had.gpus, cpus, memory_mib, limit_s, *who, *nodes, *labels, after)


def _clock(message: Message, key: str) -> float | None:
    """Seconds since 1970; Torque may write a fraction."""
    text = message.get(key, "")
    return float(text) if re.fullmatch(r"\d{1,12}(\.\d{1,9})?", text) else None


def _status(exit_status: str, duration_s: float | None, limit_s: float | None) -> str:
    if not re.fullmatch(r"-?\d{1,9}", exit_status):
        return "unknown"
    code = int(exit_status)
    at_limit = limit_s is not None and duration_s is not None and duration_s >= limit_s
    if code in _WALLTIME or (code in _KILLED and at_limit):
        return "timeout"
    if code in _KILLED:
        return "cancelled"
    return "completed" if code == 0 else "failed"
