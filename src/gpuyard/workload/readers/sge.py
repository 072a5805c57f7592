"""The accounting file of Sun, Univa, Altair, Open and Son of Grid Engine: fields between colons."""

import re
from collections import Counter, defaultdict
from pathlib import Path
from typing import Annotated, Literal

import polars as pl
from pydantic import BaseModel, ConfigDict, Field

from gpuyard.errors import InputError, setting
from gpuyard.registry import register
from gpuyard.workload.chunks import line_chunks, read_head
from gpuyard.workload.formats import JOBS, Trace, TraceFiles
from gpuyard.workload.importing import ImportLog
from gpuyard.workload.readers.accounting import CHECKS, all_jobs, once_each, trace_of, valid_jobs
from gpuyard.workload.readers.pbs_records import seconds
from gpuyard.workload.readers.row_checks import MAX_COUNT, Checks

LEAST_FIELDS = 43
"""Up to maxvmem, as version 6.0 has them; 6.2 has 45, Univa's more."""

# Positions of the fields, from 0 (accounting(5)).
_QUEUE, _HOST, _GROUP, _OWNER, _NAME, _NUMBER, _ACCOUNT = range(7)
_SUBMIT, _START, _END, _FAILED, _EXIT = 8, 9, 10, 11, 12
_PROJECT, _DEPARTMENT, _SLOTS, _TASK, _CATEGORY, _IOWAIT, _PE_TASK = 31, 32, 34, 35, 39, 40, 41
_MAXVMEM, _QDEL_INFO, _MAXRSS = 42, 46, 47

_GPU_NAMES = ("gpu", "gpus", "ngpus", "ngpu", "num_gpu", "num_gpus", "gpu_count", "gpu_card", "cuda")
_MILLISECONDS = 1e11
"""A time beyond this (the year 5138) is in milliseconds, as Univa's version 8.2 and later have it."""

_RERUN = {24, 25}  # failed: migrated, rescheduled
_RUN_LIMIT = 37  # failed: the master enforced h_rt
_SIGNALLED = {137, 138, 143, 152, 158}  # SIGKILL, SIGUSR1, SIGTERM, SIGXCPU, SIGUSR2

_QACCT = re.compile(rb"\s*(={20,}\s*\n\s*qname\s|job-ID\s+prior\s)")
_RESOURCES = re.compile(r"(?:^|\s)-l\s+(\S+)")

_CHECKS: Checks = (
    ("never started: start_time is 0", pl.col("recorded_start_s") <= 0),
    *CHECKS,
)


class SgeOptions(BaseModel):
    """How Grid Engine's records become jobs."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    group: Literal["queue", "project", "department", "account", "group"] = "queue"
    """What a job's group is."""
    gpu_resource: Annotated[str, Field(pattern=r"^[\w.]+(,[\w.]+)*$")] = ",".join(_GPU_NAMES)
    """Names of the resources that count GPUs."""
    gpus_per: Literal["slot", "job"] | None = None
    """What a request for GPUs counts for: the resource is consumable YES (slot) or JOB; None = unknown."""


@register("workload-format", "sge")
class SgeAccounting:
    """Grid Engine's accounting file (SGE, UGE, AGE, OGS): 43 fields and more between colons."""

    Options = SgeOptions

    @staticmethod
    def role_of(head: bytes, name: str) -> str | None:
        """A first record with numbers where the times are; also what qacct prints, to refuse it clearly."""
        if _QACCT.match(head):
            return JOBS
        lines = head.decode("utf-8-sig", errors="replace").split("\n")
        first = next((line for line in lines if line.strip() and not line.startswith("#")), "")
        return JOBS if _is_record(first.strip().split(":")) else None

    @staticmethod
    def read(files: TraceFiles, log: ImportLog, options: SgeOptions) -> Trace:
        """Read one or several files; records of the tasks of a parallel job are merged into it."""
        paths = list(files[JOBS])
        for path in paths:
            _check_kind(path)
        tasks: list[tuple[str, int, str]] = []
        parts = [_jobs(lines, path, log, options, tasks) for path in paths for lines in line_chunks(path)]
        jobs = all_jobs(parts)
        _settle_tasks(tasks, set(jobs["source_id"]), log)
        jobs = once_each(jobs, paths, log)
        log.assume("run times are end_time - start_time; CPUs are slots; memory is the most that was used")
        return trace_of(jobs, paths, "sge", options)


def _is_record(fields: list[str]) -> bool:
    times = (_NUMBER, _SUBMIT, _START, _END, _FAILED, _EXIT)
    return len(fields) >= LEAST_FIELDS and all(fields[place].isdecimal() for place in times)


def _check_kind(path: Path) -> None:
    """Refuse what the commands print.

    Raises:
        InputError: saying which file to take.
    """
    if _QACCT.match(read_head(path)):
        raise InputError(
            f"{path}, line 1: is output of qacct or qstat, expected records between colons; import the file "
            "$SGE_ROOT/$SGE_CELL/common/accounting itself"
        )


def _settle_tasks(tasks: list[tuple[str, int, str]], jobs: set[str], log: ImportLog) -> None:
    """Records of tasks (file, line, job) are part of their job."""
    log.merge(sum(job in jobs for _, _, job in tasks), parts=True)
    rejected: dict[str, list[int]] = defaultdict(list)
    for file, line, job in tasks:
        if job not in jobs:
            rejected[file].append(line)
    for file, lines in rejected.items():
        log.reject("a task of a parallel job that is rejected or not in the file", file, lines, parts=True)


def _jobs(
    lines: pl.DataFrame,
    path: Path,
    log: ImportLog,
    options: SgeOptions,
    tasks: list[tuple[str, int, str]],
) -> pl.DataFrame:
    """The jobs of a piece of the file. Lines that start with # are comments and no rows."""
    lines = lines.filter(~pl.col("text").str.starts_with("#"))
    log.read(lines.height)
    rejected: list[int] = []
    repaired: Counter[tuple[str, int]] = Counter()
    rows = []
    for line, text in lines.select("line", "text").iter_rows():
        fields = _whole_category(text.split(":"))
        if not _is_record(fields):
            rejected.append(line)
        elif fields[_PE_TASK].upper() != "NONE":
            tasks.append((path.name, line, _source_id(fields)))
        else:
            rows.append((line, *_values(fields, options, f"{path}, line {line}", log, repaired, line)))
    log.reject(f"is no record: fewer than {LEAST_FIELDS} fields, or no numbers", path.name, rejected)
    for reason in {reason for reason, _ in repaired}:
        log.repair(reason, path.name, [line for said, line in repaired if said == reason])
    return valid_jobs(rows, _CHECKS, path.name, log)


def _whole_category(fields: list[str]) -> list[str]:
    """A category may hold colons, as in h_rt=01:00:00; the field behind it has a decimal point."""
    if len(fields) <= LEAST_FIELDS or re.fullmatch(r"\d+\.\d+", fields[_IOWAIT]):
        return fields
    behind = (at for at in range(_IOWAIT, len(fields)) if re.fullmatch(r"\d+\.\d+", fields[at]))
    place = next(behind, _IOWAIT)
    return [*fields[:_CATEGORY], ":".join(fields[_CATEGORY:place]), *fields[place:]]


def _source_id(fields: list[str]) -> str:
    task = fields[_TASK]
    return f"{fields[_NUMBER]}.{task}" if task.isdecimal() and task != "0" else fields[_NUMBER]


def _values(
    fields: list[str],
    options: SgeOptions,
    place: str,
    log: ImportLog,
    repaired: Counter[tuple[str, int]],
    line: int,
) -> tuple[float | int | str | None, ...]:
    """A job's values in the order of ``accounting.COLUMNS``, without the line."""
    submit_s, start_s, end_s = (_clock(fields[at]) for at in (_SUBMIT, _START, _END))
    requests = _requests(fields[_CATEGORY])
    slots = int(fields[_SLOTS]) if re.fullmatch(r"\d{1,9}", fields[_SLOTS]) else 1
    asked = requests.get("h_rt") or requests.get("s_rt") or ""
    limit_s = seconds(asked)
    if asked and limit_s is None and asked.upper() != "INFINITY":
        repaired["h_rt cannot be read: taken as unknown", line] += 1
    limit_s = limit_s if limit_s and limit_s <= MAX_COUNT else None
    gpus = _gpus(requests, slots, options, place, log)
    group = {
        "queue": fields[_QUEUE],
        "project": fields[_PROJECT],
        "department": fields[_DEPARTMENT],
        "account": fields[_ACCOUNT],
        "group": fields[_GROUP],
    }[options.group]
    times = (submit_s, end_s - start_s, start_s)
    status = _status(fields, end_s - start_s, limit_s)
    return (
        *(*times, gpus, slots, _memory_mib(fields), limit_s, fields[_OWNER]),
        *(group, status, _source_id(fields)),
        fields[_HOST] if slots == 1 else None,  # of a job with several slots only the first host is there
        *(None, None),  # nodes
        *(fields[place] for place in (_QUEUE, _ACCOUNT, _NAME)),
        None,  # accounting(5) has no dependencies
    )


def _clock(text: str) -> float:
    """Seconds since 1970."""
    value = float(text[:18])
    return value / 1000 if value > _MILLISECONDS else value


def _requests(category: str) -> dict[str, str]:
    """What stands behind -l in a category: ``-l gpu=2,h_rt=3600 -pe smp 8``."""
    listed = [entry for text in _RESOURCES.findall(category) for entry in text.split(",")]
    return dict(entry.partition("=")[::2] for entry in listed)


def _gpus(requests: dict[str, str], slots: int, options: SgeOptions, place: str, log: ImportLog) -> int:
    names = options.gpu_resource.split(",")
    name = next((name for name in names if re.fullmatch(r"\d{1,9}(\.0*)?", requests.get(name, ""))), None)
    if name is None:
        return 0
    each = int(float(requests[name]))
    if each and slots > 1 and options.gpus_per is None:
        where = f"{place}: " if log.strict else ""  # one assumption, not one per line
        what = (
            f"a job with {slots} slots asks for {name}={each}" if log.strict else f"{name} and several slots"
        )
        log.ambiguous(
            f"{where}{what}: is that for each slot or for the whole job",
            "it counts for each slot",
            f"give {setting('option.gpus_per', 'slot')} if qconf -sc lists {name} as consumable YES, "
            f"{setting('option.gpus_per', 'job')} if it lists JOB",
        )
    return each if options.gpus_per == "job" else each * slots


def _memory_mib(fields: list[str]) -> int:
    """The most resident memory where the version has it, else the most virtual memory."""
    texts = [fields[place] for place in (_MAXRSS, _MAXVMEM) if place < len(fields)]
    used = next((float(text) for text in texts if re.fullmatch(r"\d{1,18}(\.\d{1,9})?", text)), 0.0)
    return min(-int(-used // 2**20), 2**40)


def _status(fields: list[str], duration_s: float, limit_s: float | None) -> str:
    failed, code = int(fields[_FAILED][:9]), int(fields[_EXIT][:9])
    at_limit = limit_s is not None and duration_s >= limit_s
    deleted = len(fields) > _QDEL_INFO and fields[_QDEL_INFO] not in ("", "NONE")
    if failed == _RUN_LIMIT or (code in _SIGNALLED and at_limit):
        return "timeout"
    if failed in _RERUN or deleted or (failed == 100 and code in _SIGNALLED):
        return "cancelled"
    return "completed" if failed == 0 and code == 0 else "failed"
