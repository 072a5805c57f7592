"""Google's cluster trace of 2019 (v3): tables exported from the query service as JSON lines or CSV."""

import json
from collections.abc import Iterator, Sequence
from pathlib import Path

import polars as pl

from gpuyard.cluster.model import Cluster
from gpuyard.errors import InputError
from gpuyard.registry import register
from gpuyard.workload.chunks import csv_chunks, read_head
from gpuyard.workload.formats import JOBS, Trace, TraceFiles
from gpuyard.workload.importing import ImportLog
from gpuyard.workload.readers.csv_jobs import csv_header, file_names
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
from gpuyard.workload.readers.json_lines import json_chunks

_COLLECTIONS, _MACHINES = "collections", "machines"

_TYPES = (
    ("SUBMIT", SUBMIT), ("QUEUE", OTHER), ("ENABLE", OTHER), ("SCHEDULE", SCHEDULE), ("EVICT", EVICT),
    ("FAIL", FAIL), ("FINISH", FINISH), ("KILL", KILL), ("LOST", LOST), ("UPDATE_PENDING", OTHER),
    ("UPDATE_RUNNING", OTHER),
)  # fmt: skip
_KINDS = dict(_TYPES) | {str(number): kind for number, (_, kind) in enumerate(_TYPES)}
"""By the numbers of clusterdata_trace_format_v3.proto, which are not those of 2011, or by their names."""

_ALLOC_SETS = ("1", "ALLOC_SET")
_REMOVED = ("2", "REMOVE")

_NAMES = {
    "collection_id": "job", "instance_index": "task", "machine_id": "machine",
    "resource_request.cpus": "cpu", "resource_request.memory": "memory",
    "capacity.cpus": "cpu", "capacity.memory": "memory",
}  # fmt: skip
_FIELDS = {
    JOBS: (
        "time", "type", "collection_id", "collection_type", "priority", "scheduling_class", "instance_index",
        "resource_request.cpus", "resource_request.memory",
    ),
    _COLLECTIONS: (
        "time", "type", "collection_id", "collection_type", "priority", "scheduling_class",
        "user",
    ),
    _MACHINES: ("time", "type", "machine_id", "capacity.cpus", "capacity.memory"),
}  # fmt: skip
"""What is read of each table; a dot leads into a record, for which CSV may have an underscore too."""

_NEEDED = {
    JOBS: {"time", "type", "collection_id", "instance_index"},
    _COLLECTIONS: {"time", "type", "collection_id"},
    _MACHINES: {"time", "type", "machine_id"},
}


@register("workload-format", "google-2019")
class Google2019Format:
    """Google cluster trace 2019: instance_events, optionally collection_events and machine_events."""

    Options = GoogleOptions

    @staticmethod
    def role_of(head: bytes, name: str) -> str | None:
        """By the keys of the first JSON line or the header of the CSV."""
        keys = _keys(head)
        if _NEEDED[JOBS] <= keys:
            return JOBS
        if _NEEDED[_COLLECTIONS] <= keys:
            return _COLLECTIONS
        sizes = {"capacity", "capacity.cpus", "capacity_cpus"}
        return _MACHINES if _NEEDED[_MACHINES] <= keys and not sizes.isdisjoint(keys) else None

    @staticmethod
    def read(files: TraceFiles, log: ImportLog, options: GoogleOptions) -> Trace:
        """Fold the parts, in order of their names, which should be the order of time."""
        fold = EventFold()
        for role in (_COLLECTIONS, JOBS):
            for path in sorted(files.get(role, ())):
                for piece in _pieces(path, role, log):
                    events = checked_events(_named(piece), _KINDS, path, log, of_tasks=role == JOBS)
                    fold.add(events, path)
        first = min(files[JOBS])
        if log.rows_read == 0:
            raise log.nothing_left(str(first))
        workload = make_google_workload(fold, log, options, first, "google-2019", file_names(files))
        cluster = _cluster(sorted(files[_MACHINES]), log, options) if _MACHINES in files else None
        return Trace(workload, cluster)


def _keys(head: bytes) -> set[str]:
    if not _is_json(head):
        return set(csv_header(head))
    try:
        first = json.loads(head.lstrip().split(b"\n", 1)[0])
    except (ValueError, RecursionError):
        return set()
    return set(first) if isinstance(first, dict) else set()


def _is_json(head: bytes) -> bool:
    return head.lstrip().startswith(b"{")


def _pieces(path: Path, role: str, log: ImportLog) -> Iterator[pl.DataFrame]:
    """Text columns under the names of ``_FIELDS``, and ``line``."""
    head = read_head(path)
    if _is_json(head):
        yield from json_chunks(path, log, _FIELDS[role])
        return
    header = csv_header(head)
    missing = _NEEDED[role] - set(header)
    if missing or len(set(header)) < len(header):
        what = f"column {min(missing)} is missing" if missing else "a column appears twice"
        raise InputError(f"{path}, line 1: {what}; expected {', '.join(_FIELDS[role])} as CSV or JSON lines")
    for piece in csv_chunks(path, log):
        written = {name.replace(".", "_"): name for name in _FIELDS[role] if "." in name}
        piece = piece.rename(
            {old: new for old, new in written.items() if old in piece.columns and new not in piece.columns}
        )
        absent = [name for name in _FIELDS[role] if name not in piece.columns]
        piece = piece.with_columns(pl.lit(None, dtype=pl.String).alias(name) for name in absent)
        yield piece.select(*_FIELDS[role], "line")


def _named(piece: pl.DataFrame) -> pl.DataFrame:
    reserves = pl.col("collection_type").is_in(list(_ALLOC_SETS)).fill_null(False)
    piece = piece.with_columns(reserves=reserves)
    return piece.rename({old: new for old, new in _NAMES.items() if old in piece.columns})


def _cluster(paths: Sequence[Path], log: ImportLog, options: GoogleOptions) -> Cluster:
    parts = []
    for path in paths:
        rows = ImportLog()
        pieces = (
            piece.rename({old: new for old, new in _NAMES.items() if old in piece.columns})
            for piece in _pieces(path, _MACHINES, rows)
        )
        parts.append(read_machines(pieces, path, rows, gone=_REMOVED))
    return google_cluster(pl.concat(parts), paths[0], log, options)
