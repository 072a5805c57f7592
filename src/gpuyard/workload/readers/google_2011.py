"""Google's cluster trace of 2011 (clusterdata-2011-2): part files of events."""

import re
from collections.abc import Sequence
from pathlib import Path

import polars as pl

from gpuyard.cluster.model import Cluster
from gpuyard.registry import register
from gpuyard.workload.chunks import csv_chunks
from gpuyard.workload.formats import JOBS, Trace, TraceFiles
from gpuyard.workload.importing import ImportLog
from gpuyard.workload.readers.csv_jobs import file_names
from gpuyard.workload.readers.google_events import (
    EVICT,
    FAIL,
    FINISH,
    KILL,
    LOST,
    OTHER,
    SCHEDULE,
    SUBMIT,
    EventFold,
    checked_events,
)
from gpuyard.workload.readers.google_jobs import (
    GoogleOptions,
    google_cluster,
    make_google_workload,
    read_machines,
)

_JOB_EVENTS, _MACHINES = "job-events", "machines"
_COLUMNS = {
    JOBS: (
        "time", "missing", "job", "task", "machine", "type", "user", "scheduling_class", "priority", "cpu",
        "memory", "disk", "different_machines",
    ),
    _JOB_EVENTS: ("time", "missing", "job", "type", "user", "scheduling_class", "job_name", "logical_name"),
    _MACHINES: ("time", "machine", "type", "platform", "cpu", "memory"),
}  # fmt: skip

_INT, _NUMBER = r"\d+", r"(?:\d+(?:\.\d+)?(?:[eE][-+]?\d+)?)?"
_FIRST_ROW = {
    JOBS: re.compile(
        rf"{_INT},\d?,{_INT},{_INT},\d*,[0-8],[^,]*,[0-3]?,\d*,{_NUMBER},{_NUMBER},{_NUMBER},[01]?"
    ),
    _JOB_EVENTS: re.compile(rf"{_INT},\d?,{_INT},[0-8],[^,]*,[0-3]?,[^,]*,[^,]*"),
    _MACHINES: re.compile(rf"{_INT},{_INT},[0-2],[^,]*,{_NUMBER},{_NUMBER}"),
}
_KINDS = {
    "0": SUBMIT, "1": SCHEDULE, "2": EVICT, "3": FAIL, "4": FINISH, "5": KILL, "6": LOST, "7": OTHER,
    "8": OTHER,
}  # fmt: skip


@register("workload-format", "google-2011")
class Google2011Format:
    """Google cluster trace 2011: parts of task_events, optionally of job_events and machine_events."""

    Options = GoogleOptions

    @staticmethod
    def role_of(head: bytes, name: str) -> str | None:
        """By the first row: the parts have no header."""
        first = head.lstrip().split(b"\n", 1)[0].decode("utf-8", errors="replace").strip()
        return next((role for role, form in _FIRST_ROW.items() if form.fullmatch(first)), None)

    @staticmethod
    def read(files: TraceFiles, log: ImportLog, options: GoogleOptions) -> Trace:
        """Fold the parts, in order of their names, which is the order of time."""
        fold = EventFold()
        for role in (_JOB_EVENTS, JOBS):
            for path in sorted(files.get(role, ())):
                for piece in csv_chunks(path, log, names=_COLUMNS[role]):
                    events = checked_events(piece, _KINDS, path, log, of_tasks=role == JOBS)
                    fold.add(events, path)
        first = min(files[JOBS])
        if log.rows_read == 0:
            raise log.nothing_left(str(first))
        workload = make_google_workload(fold, log, options, first, "google-2011", file_names(files))
        cluster = _cluster(sorted(files[_MACHINES]), log, options) if _MACHINES in files else None
        return Trace(workload, cluster)


def _cluster(paths: Sequence[Path], log: ImportLog, options: GoogleOptions) -> Cluster:
    parts = []
    for path in paths:
        rows = ImportLog()
        pieces = csv_chunks(path, rows, names=_COLUMNS[_MACHINES])
        parts.append(read_machines(pieces, path, rows, gone=("1",)))
    return google_cluster(pl.concat(parts), paths[0], log, options)
