"""LSF's accounting log lsb.acct."""

import re
from collections import Counter, defaultdict
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
from gpuyard.workload.readers.dependencies import LEFT_OUT, lsf_dependency
from gpuyard.workload.readers.lsf_records import JobFinish, RecordError, event_type, parse_job_finish
from gpuyard.workload.readers.row_checks import MAX_COUNT, Checks

_EVENT_LINE = re.compile(rb'\s*"[A-Z][A-Z_]+" "\d[\d.]*" \d')
_HISTORY_LINE = re.compile(rb"#\d+\s*\n")
_BACCT = b"Accounting information about jobs that are:"

_GPU_RUSAGE = re.compile(
    r"\bngpus(?:_physical|_excl_p|_excl_t|_shared)?\s*=\s*(\d{1,9}(?:\.\d*)?)(/task|/host)?"
)
_GPU_REQUIREMENT = re.compile(r"(?:^|:)num=(\d{1,9})(/task|/host)?(?=:|$)")
_SPAN = re.compile(r"\bspan\s*\[\s*(?:hosts\s*=\s*1\b|ptile\s*=\s*(\d{1,7}))")
_RUSAGE_SECTION = re.compile(r"rusage\s*\[([^\]]*)\]")

# Why a job was ended (exitInfo), by the numbers of LSF's "termination reasons logged".
_TIMEOUT = {5, 6, 12}  # run limit, deadline, CPU limit
_CANCELLED = {1, 8, 9, 10, 11, 13, 14, 15, 23, 27, 30, 31}  # preemption, owner, administrator, bkill, recall
_EXIT, _DONE = 32, 64

_CHECKS: Checks = (
    ("never started: startTime is 0", pl.col("recorded_start_s") <= 0),
    *CHECKS,
)


class LsfOptions(BaseModel):
    """How LSF's records become jobs."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    group: Literal["queue", "project", "application"] = "queue"
    """What a job's group is."""


@register("workload-format", "lsf")
class LsfAccounting:
    """LSF's accounting log lsb.acct (JOB_FINISH records of all versions, also OpenLava's)."""

    Options = LsfOptions

    @staticmethod
    def role_of(head: bytes, name: str) -> str | None:
        """Lines of an event's name and a version in quotes; also what bacct prints, to refuse it clearly."""
        rest = _HISTORY_LINE.sub(b"", head, count=1) if head.startswith(b"#") else head
        return JOBS if _EVENT_LINE.match(rest) or _BACCT in head[:2000] else None

    @staticmethod
    def read(files: TraceFiles, log: ImportLog, options: LsfOptions) -> Trace:
        """Read one or several logs; records that are no JOB_FINISH are rejected with their type."""
        paths = list(files[JOBS])
        for path in paths:
            _check_kind(path)
        parts = [_jobs(lines, path, log, options) for path in paths for lines in line_chunks(path)]
        jobs = all_jobs(parts)
        jobs = once_each(jobs, paths, log)
        log.assume("run limits stand before options3 and are in seconds; memory is the most that was used")
        if jobs["gpus"].max():
            log.assume("GPU requirements count the GPUs of one host, or of one slot where they say /task")
        return trace_of(jobs, paths, "lsf", options)


def _check_kind(path: Path) -> None:
    """Refuse other files of LSF.

    Raises:
        InputError: saying which file to take.
    """
    head = read_head(path)
    if _BACCT in head[:2000]:
        raise InputError(
            f"{path}, line 1: is a report of bacct, expected records of lsb.acct; "
            "import the file lsb.acct of LSF's log directory (LSB_SHAREDIR/<cluster>/logdir)"
        )
    events = Counter(re.findall(rb'^"([A-Z_]+)" "', head, re.MULTILINE))
    if not events[b"JOB_FINISH"] and (events[b"JOB_NEW"] or events[b"JOB_START"] or events[b"LOAD_INDEX"]):
        raise InputError(
            f"{path}, line 1: is LSF's event log (lsb.events), expected JOB_FINISH records; "
            "import the file lsb.acct beside it"
        )


def _jobs(lines: pl.DataFrame, path: Path, log: ImportLog, options: LsfOptions) -> pl.DataFrame:
    """The jobs of a piece of the file."""
    log.read(lines.height)
    rejected: dict[str, list[int]] = defaultdict(list)
    repaired: dict[str, list[int]] = defaultdict(list)
    rows = []
    for line, text in lines.select("line", "text").iter_rows():
        event = event_type(text)
        if event != "JOB_FINISH":
            reason = f"an event of type {event}, which is no finished job" if event else "is no LSF record"
            rejected[reason].append(line)
            continue
        try:
            job = parse_job_finish(text)
        except RecordError as error:
            rejected[f"a record that cannot be read: {error}"].append(line)
            continue
        if not job.complete:
            repaired["fields behind the status are not as expected: not read further"].append(line)
        rows.append((line, *_values(job, options, line, repaired)))
    for reason, places in rejected.items():
        log.reject(reason, path.name, places)
    for reason, places in repaired.items():
        log.repair(reason, path.name, places)
    return valid_jobs(rows, _CHECKS, path.name, log)


def _values(
    job: JobFinish, options: LsfOptions, line: int, repaired: dict[str, list[int]]
) -> tuple[float | int | str | None, ...]:
    """A job's values in the order of ``accounting.COLUMNS``, without the line."""
    gpus, guessed = _gpus(job)
    if guessed:
        repaired[guessed].append(line)
    slots = min(job.slots, MAX_COUNT)
    limit = float(job.run_limit_s) if 0 < job.run_limit_s <= MAX_COUNT else None
    group = {"queue": job.queue, "project": job.project, "application": job.application}[options.group]
    source_id = f"{job.job_id}[{job.index}]" if job.index else str(job.job_id)
    memory_mib = min(-(-job.memory_kb // 1024), 2**40)
    duration_s = float(job.event_s - job.start_s)
    times = (float(job.submit_s), duration_s, float(job.start_s))
    who = (job.user, group, _status(job), source_id)
    nodes = (SEPARATOR.join(job.hosts), asked_hosts(job), len(job.hosts))
    after, left_out = lsf_dependency(job.depends)
    if left_out:
        repaired[LEFT_OUT].append(line)
    return (*times, gpus, slots, memory_mib, limit, *who, *nodes, job.queue, job.project, job.name, after)


def asked_hosts(job: JobFinish) -> int | None:
    """Hosts that ``span`` asks for: so many slots on each, or all on one; None if it says nothing."""
    found = _SPAN.search(job.effective_request) or _SPAN.search(job.resource_request)
    if found is None:
        return None
    return 1 if found[1] is None else -(-job.slots // max(int(found[1]), 1))


def _status(job: JobFinish) -> str:
    if job.status & _DONE:
        return "completed"
    if not job.status & _EXIT:
        return "unknown"
    if job.exit_info in _TIMEOUT:
        return "timeout"
    return "cancelled" if job.exit_info in _CANCELLED else "failed"


def _gpus(job: JobFinish) -> tuple[int, str]:
    """GPUs of the whole job, and what was guessed about them.

    A requirement counts GPUs of one host unless it says /task; LSF logs no number of GPUs.
    """
    sources = (
        (_GPU_RUSAGE, _rusage_sections(job.effective_request)),
        (_GPU_REQUIREMENT, [value for value in job.submit_values if _is_gpu_requirement(value)]),
        (_GPU_RUSAGE, _rusage_sections(job.resource_request)),
    )
    for pattern, texts in sources:
        found = [match for text in texts for match in pattern.finditer(text)]
        if found:
            each, per = float(found[0][1]), found[0][2]
            total = each * (job.slots if per == "/task" else max(len(job.hosts), 1))
            several = len({(match[1], match[2]) for match in found}) > 1
            return -int(-total // 1), "several GPU requirements: the first is taken" if several else ""
    guess = "GPUs are counted by the list of GPU usage, one an entry" if job.gpu_usages else ""
    return job.gpu_usages, guess


def _rusage_sections(request: str) -> list[str]:
    return _RUSAGE_SECTION.findall(request) if "ngpus" in request else []


def _is_gpu_requirement(value: str) -> bool:
    """Whether a value is what ``bsub -gpu`` was given; other extensions are numbers and names."""
    return "num=" in value and (value.startswith("num=") or ":num=" in value)
