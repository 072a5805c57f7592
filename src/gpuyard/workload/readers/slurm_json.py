"""Output of Slurm's sacct --json, in the shape of 21.08 and 22.05 and in that of 23.02 and later.

The old one has plain numbers and a word for the state. The new one has ``{"set": true, "infinite": false,
"number": 5}`` and lists of words. Both may appear in one record, so each value is read as it comes.
"""

import re
from collections.abc import Iterator, Mapping
from itertools import islice
from pathlib import Path
from typing import Any

import polars as pl

from gpuyard.errors import InputError
from gpuyard.files import is_text
from gpuyard.registry import register
from gpuyard.workload.chunks import read_head
from gpuyard.workload.formats import JOBS, Trace, TraceFiles
from gpuyard.workload.importing import ImportLog
from gpuyard.workload.readers.json_records import json_records
from gpuyard.workload.readers.slurm_records import SlurmOptions, SlurmRecords

COMMAND = "sacct -a --json --duplicates -S START -E END"
"""How to make such a file."""

_START = re.compile(rb'\s*\{\s*"(?:meta|jobs|errors|warnings|nodes|sinfo|last_backfill|last_update)"\s*:')
_ACCOUNTING = (b'"submission"', b'"allocation_nodes"')
_OTHERS = {
    "squeue or scontrol show jobs": (b'"submit_time"', b'"job_state"'),
    "sinfo or scontrol show nodes": (b'"sinfo"', b'"real_memory"', b'"alloc_memory"'),
}
_AT_ONCE = 20_000
_NO_VALUE = 2**32 - 2
_COLUMNS = (
    "jobid", "cluster", "user", "partition", "account", "qos", "jobname", "nodelist", "state", "submit",
    "start", "end", "elapsedraw", "timelimitraw", "nnodes", "ncpus", "reqmem", "alloctres", "reqtres",
    "submitline",
)  # fmt: skip

Record = Mapping[str, Any]


@register("workload-format", "slurm-json")
class SlurmJson:
    """Output of Slurm's sacct --json (all versions that have it)."""

    Options = SlurmOptions

    @staticmethod
    def role_of(head: bytes, name: str) -> str | None:
        """An object of Slurm's; also that of other commands, to refuse it clearly."""
        if not _START.match(head.removeprefix(b"\xef\xbb\xbf")):
            return None
        signs = (*_ACCOUNTING, *(sign for signs in _OTHERS.values() for sign in signs))
        return JOBS if any(sign in head for sign in signs) or b'"slurm"' in head.lower() else None

    @staticmethod
    def read(files: TraceFiles, log: ImportLog, options: SlurmOptions) -> Trace:
        """Read one or several outputs. Steps are part of their job's record."""
        records = SlurmRecords(log, options)
        for path in files[JOBS]:
            _check_kind(path)
            found = json_records(path, "jobs")
            while part := list(islice(found, _AT_ONCE)):
                log.read(len(part))
                records.add(_frame(part, path, log), path.name)
        return Trace(records.workload("slurm-json", list(files[JOBS])))


def _check_kind(path: Path) -> None:
    """Refuse JSON of other commands.

    Raises:
        InputError: saying which command to use.
    """
    head = read_head(path)
    if any(sign in head for sign in _ACCOUNTING):
        return
    for command, signs in _OTHERS.items():
        if any(sign in head for sign in signs):
            raise InputError(
                f"{path}, line 1: is output of {command} --json, which lists what is there now; for a log of "
                f"finished jobs run {COMMAND}"
            )


def _frame(part: list[tuple[int, Any]], path: Path, log: ImportLog) -> pl.DataFrame:
    """Records under the names of sacct's fields, with ``line``; what is no record is rejected."""
    good = [(line, job) for line, job in part if isinstance(job, dict) and is_text(job)]
    kept = {line for line, _ in good}
    log.reject("is no record of a job", path.name, [line for line, _ in part if line not in kept])
    rows = [(*_values(job), line) for line, job in good]
    schema = {**dict.fromkeys(_COLUMNS, pl.String), "line": pl.Int64}
    return pl.DataFrame(rows, schema=schema, orient="row")


def _values(job: Record) -> tuple[str | None, ...]:
    """In the order of ``_COLUMNS``."""
    time, required, tres = (_table(job.get(name)) for name in ("time", "required", "tres"))
    return (
        _job_id(job),
        *(_word(job.get(name)) for name in ("cluster", "user", "partition", "account", "qos", "name")),
        _word(job.get("nodes")),
        _state(_table(job.get("state")).get("current", job.get("state"))),
        _moment(time.get("submission")),
        _moment(time.get("start")),
        _moment(time.get("end")),
        _number(time.get("elapsed")),
        _limit(time.get("limit")),
        _number(job.get("allocation_nodes")),
        _allocated_cpus(tres) or _number(required.get("CPUs")),
        _memory(required),
        _resources(tres.get("allocated")),
        _resources(tres.get("requested")),
        _word(job.get("submit_line")),
    )


def _table(value: Any) -> Record:
    return value if isinstance(value, dict) else {}


def _word(value: Any) -> str | None:
    return value if isinstance(value, str) and value else None


def _number(value: Any) -> str | None:
    """A whole number as text; None where it is not set, infinite, or none."""
    if isinstance(value, dict):
        value = value.get("number") if value.get("set") and not value.get("infinite") else None
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return str(value) if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None


def _limit(value: Any) -> str:
    """Minutes; 22.05 writes the largest 32-bit numbers for no limit."""
    text = _number(value)
    return "UNLIMITED" if text is None or int(text) >= _NO_VALUE else text


def _moment(value: Any) -> str | None:
    """Seconds since 1970; 0 is how Slurm writes that it has not happened."""
    text = _number(value)
    return "Unknown" if text == "0" else text


def _state(value: Any) -> str | None:
    """``"COMPLETED"`` or ``["COMPLETED"]``; flags such as REQUEUED stand behind the state."""
    first = value[0] if isinstance(value, list) and value else value
    return _word(first)


def _job_id(job: Record) -> str | None:
    """``7``, in an array ``7_4``, in a heterogeneous job ``7+1``."""
    array, het = _table(job.get("array")), _table(job.get("het"))
    base, task = _number(array.get("job_id")), _number(array.get("task_id"))
    tasks, leader, offset = (
        _word(array.get("task")),
        _number(het.get("job_id")),
        _number(het.get("job_offset")),
    )
    if base and base != "0" and task is not None:
        own: str | None = f"{base}_{task}"
    elif base and base != "0" and tasks and not tasks.isdecimal():
        own = f"{base}_[{tasks}]"
    elif leader and leader != "0" and offset is not None:
        own = f"{leader}+{offset}"
    else:
        own = _number(job.get("job_id"))
    return own


def _memory(required: Record) -> str | None:
    """As ReqMem writes it: per CPU, per node, or (22.05) one number that is marked if it is per CPU."""
    for name, per in (("memory_per_cpu", "c"), ("memory_per_node", "n")):
        text = _number(required.get(name))
        if text and text != "0":
            return f"{text}M{per}"
    return None


def _allocated_cpus(tres: Record) -> str | None:
    entries = tres.get("allocated")
    counts = (
        [_number(entry.get("count")) for entry in map(_table, entries) if entry.get("type") == "cpu"]
        if isinstance(entries, list)
        else []
    )
    return next((count for count in counts if count), None)


def _resources(entries: Any) -> str | None:
    """``cpu=8,mem=4096M,gres/gpu:a100=2`` of a list of type, name and count."""
    return ",".join(_named(entries)) or None if isinstance(entries, list) else None


def _named(entries: list[Any]) -> Iterator[str]:
    for entry in map(_table, entries):
        kind, name, count = _word(entry.get("type")), _word(entry.get("name")), _number(entry.get("count"))
        if kind and count is not None:
            yield f"{kind}/{name}={count}" if name else f"{kind}={count}{'M' if kind == 'mem' else ''}"
