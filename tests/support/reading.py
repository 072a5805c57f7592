"""Reading files whose roles are known, past recognition, so that damage reaches the reader itself."""

from pathlib import Path
from typing import Any

from gpuyard.errors import InputError
from gpuyard.workload import workload_formats
from gpuyard.workload.formats import ImportedTrace, NoOptions
from gpuyard.workload.importing import ImportLog


def read_roles(
    name: str, files: dict[str, list[Path]], *, strict: bool = True, **options: Any
) -> ImportedTrace:
    """The trace of files by role; its report is checked to balance."""
    chosen = workload_formats()[name]
    log = ImportLog(strict=strict)
    trace = chosen.read(files, log, getattr(chosen, "Options", NoOptions)(**options))
    return ImportedTrace(trace.workload, trace.cluster, log.report(name, [], len(trace.workload)))


def read_or_refuse(name: str, files: dict[str, list[Path]], **options: Any) -> ImportedTrace | None:
    """The same, sound, or None if the files were refused; anything else is an error."""
    try:
        trace = read_roles(name, files, strict=False, **options)
    except InputError:
        return None
    jobs = trace.workload.frame
    assert jobs.height > 0
    assert jobs["duration_s"].min() > 0
    assert jobs["submit_s"][0] == 0
    return trace


def rejected(trace: ImportedTrace) -> dict[str, int]:
    return {found.reason: found.rows for found in trace.report.rejected}


def repaired(trace: ImportedTrace) -> dict[str, int]:
    return {found.reason: found.rows for found in trace.report.repaired}


def by_id(trace: ImportedTrace) -> dict[str, dict[str, Any]]:
    return {job["source_id"]: job for job in trace.workload.frame.iter_rows(named=True)}
