"""Recognising the format of files and reading them.

A format is one file in ``readers/`` with a class registered as ``workload-format``:

    @register("workload-format", "slurm-sacct")
    class SlurmSacct:
        '''Output of sacct --parsable2.'''
        Options = SacctOptions                                    # optional: a frozen pydantic model
        @staticmethod
        def role_of(head: bytes, name: str) -> str | None: ...    # "jobs", "machines", ..., None = not mine
        @staticmethod
        def read(files, log, options) -> Trace: ...

Nothing else needs to be touched: the modules there are all loaded before a file is read.
"""

import importlib
import pkgutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from pydantic import BaseModel, ConfigDict, ValidationError

from gpuyard.cluster.model import Cluster
from gpuyard.config import refusal
from gpuyard.errors import InputError, setting
from gpuyard.registry import lookup, registered
from gpuyard.workload.chunks import read_head
from gpuyard.workload.importing import ImportLog, ImportReport
from gpuyard.workload.intake.import_warnings import look_over
from gpuyard.workload.intake.pipes import regular_files
from gpuyard.workload.schema import Workload

JOBS = "jobs"
"""The role of the file that lists jobs, which every format needs."""

TraceFiles = Mapping[str, Sequence[Path]]
"""Files by their role."""


class NoOptions(BaseModel):
    """For formats that can be read in one way only."""

    model_config = ConfigDict(frozen=True, extra="forbid")


@dataclass(frozen=True)
class Trace:
    """What a reader makes of its files: the jobs and, where the files tell, the cluster."""

    workload: Workload
    cluster: Cluster | None = None


@dataclass(frozen=True)
class ImportedTrace:
    """A trace with the account of its import."""

    workload: Workload
    cluster: Cluster | None
    report: ImportReport


class WorkloadFormat(Protocol):
    """What a registered format offers. Its docstring's first line describes it to users."""

    @staticmethod
    def role_of(head: bytes, name: str) -> str | None:
        """What a file is to this format, by how its content starts and its name; None if it is not of it."""

    @staticmethod
    def read(files: TraceFiles, log: ImportLog, options: Any) -> Trace:
        """Read the files; every row read is a job, merged into one, or rejected in ``log``."""


def workload_formats() -> Mapping[str, WorkloadFormat]:
    """All formats by name."""
    importlib.import_module("gpuyard.workload.job_table")
    for module in pkgutil.iter_modules([str(Path(__file__).parent / "readers")]):
        importlib.import_module(f"gpuyard.workload.readers.{module.name}")
    return registered("workload-format")


def read_workload(path: str | Path, format: str | None = None, **options: Any) -> Workload:
    """Read a workload from a file of any known format.

    Args:
        path: The file, possibly gzip-compressed.
        format: Name of a format; None recognises it from the file's content.
        options: Of the format.

    Raises:
        InputError: if the file cannot be read, is of no known format, or holds something invalid.
    """
    return import_trace([path], format, **options).workload


def import_trace(
    paths: Sequence[str | Path], format: str | None = None, *, strict: bool = True, **options: Any
) -> ImportedTrace:
    """Read a trace from its files and say what became of every row.

    Args:
        paths: The files that belong together, in any order, possibly gzip-compressed; ``-`` is standard
            input, and pipes work, too.
        format: Name of a format; None recognises it from the files' content.
        strict: Refuse what is ambiguous instead of assuming something.
        options: Of the format.

    Raises:
        InputError: naming the file and the line or key, what is wrong and what to do.
    """
    with regular_files(paths) as files:
        return _imported(files, format, strict, options)


def _imported(
    files: Sequence[Path], format: str | None, strict: bool, options: Mapping[str, Any]
) -> ImportedTrace:
    heads = [read_head(path) for path in files]
    for path, head in zip(files, heads, strict=True):
        if not head.strip():
            raise InputError(f"{path}: is empty; a workload needs a header and at least one job")
    name, roles = _recognise(files, heads, format)
    chosen: WorkloadFormat = registered("workload-format")[name]
    by_role: dict[str, list[Path]] = {}
    for path, role in zip(files, roles, strict=True):
        by_role.setdefault(role, []).append(path)
    log = ImportLog(strict=strict)
    trace = chosen.read(by_role, log, _options(name, chosen, options))
    names, jobs = [path.name for path in files], len(trace.workload)
    look_over(trace.workload, log.report(name, names, jobs), log)
    return ImportedTrace(trace.workload, trace.cluster, log.report(name, names, jobs))


def _recognise(files: Sequence[Path], heads: Sequence[bytes], wanted: str | None) -> tuple[str, list[str]]:
    """The format of the files and the role of each of them."""
    formats = workload_formats()
    candidates = formats if wanted is None else {wanted: lookup("format", wanted, known=formats)}
    matches: dict[str, list[str]] = {}
    without_jobs: dict[str, list[str]] = {}
    for name, candidate in candidates.items():
        roles = [candidate.role_of(head, path.name) for path, head in zip(files, heads, strict=True)]
        if wanted is not None and len(files) == 1:
            roles = [roles[0] or JOBS]  # the user knows; the reader will say what it does not find
        known = [role for role in roles if role is not None]
        if len(known) == len(files):
            (matches if JOBS in known else without_jobs)[name] = known
    if len(matches) == 1:
        return next(iter(matches.items()))
    names = ", ".join(str(path) for path in files)
    if matches:
        raise InputError(f"{names}: could be {' or '.join(matches)}; say which with {setting('format')}")
    if without_jobs:
        raise InputError(f"{names}: {_no_jobs(without_jobs)}")
    if wanted is not None:
        raise InputError(f"{names}: not all of them are files of format {wanted}, or none lists jobs")
    unknown = [k for k, head in enumerate(heads) if not roles_of(head, files[k].name)] or [0]
    names = names if len(files) == 1 else f"{names}: {files[unknown[0]].name}"
    raise InputError(f"{names}: {_unrecognised(heads[unknown[0]])}. Known formats: {', '.join(formats)}")


def roles_of(head: bytes, name: str) -> dict[str, str]:
    """What a file is to each format that knows it, by how its content starts and its name."""
    roles = ((format, reader.role_of(head, name)) for format, reader in workload_formats().items())
    return {format: role for format, role in roles if role is not None}


def first_line(head: bytes) -> str:
    """The first line of a text file, without blanks around it."""
    return head.lstrip().split(b"\n", 1)[0].decode("utf-8", errors="replace").strip()


def _no_jobs(found: Mapping[str, Sequence[str]]) -> str:
    """The error for files that a format knows (their roles by format), none of which lists jobs."""
    known = " or ".join(f"{' and '.join(dict.fromkeys(r))} of format {name}" for name, r in found.items())
    name = next(iter(found))
    described = (registered("workload-format")[name].__doc__ or "").strip().split("\n", 1)[0].rstrip(".")
    return (
        f"holds {known}, but no jobs; give it together with the file that lists the jobs "
        f"({described}; docs/formats/index.md, {name})"
    )


def _options(name: str, chosen: WorkloadFormat, values: Mapping[str, Any]) -> BaseModel:
    model: type[BaseModel] = getattr(chosen, "Options", NoOptions)
    try:
        return model(**values)
    except ValidationError as error:
        problem = error.errors()[0]
        key = ".".join(map(str, problem["loc"]))
        known = ", ".join(model.model_fields) or "none"
        if problem["type"] == "extra_forbidden":
            raise InputError(f"format {name} has no option {key}; its options: {known}") from None
        raise InputError(
            f"format {name}: {refusal(error, prefix=('option',))}; its options: {known}"
        ) from None


_OTHER_NAMES = {
    "submit_s": ("submit", "submit_time", "submitted", "submission_time", "arrival", "arrival_time", "time"),
    "duration_s": ("duration", "runtime", "run_time", "elapsed", "walltime", "service_time"),
    "gpus": ("gpu", "num_gpus", "n_gpus", "ngpus", "gpu_count", "num_gpu"),
}
"""What people call the columns that every job table needs."""


def _unrecognised(head: bytes) -> str:
    if b"\0" in head:
        return "is of no known format: a binary file, and not parquet"
    line = first_line(head)
    if line[:1] in ("{", "["):
        return (
            f"is of no known format. It is JSON that starts with {line[:80]!r}; for a log of Slurm run "
            "sacct -a --json --duplicates -S START -E END"
        )
    return (
        f"is of no known format. Its first line is {line[:80]!r}; the native CSV has a header "
        f"with the columns submit_s, duration_s, gpus, separated by commas{_header_hint(line)}"
    )


def _header_hint(line: str) -> str:
    """What to change in a header that nearly is that of the native CSV."""
    separator = max(",;\t|", key=line.count)
    names = [name.strip().strip('"').lower() for name in line.lstrip("\ufeff").split(separator)]
    renamed = {
        name: ours for ours, others in _OTHER_NAMES.items() for name in names if name in (*others, ours)
    }
    if len(set(renamed.values())) < 2:
        return ""
    hints = [f"{name} -> {ours}" for name, ours in renamed.items() if name != ours]
    said = f". Rename {', '.join(hints)} (times in seconds)" if hints else ""
    marks = {";": "';'", "\t": "tabs", "|": "'|'"}
    between = f". Fields stand between {marks[separator]} here: put commas" if separator in marks else ""
    return said + between
