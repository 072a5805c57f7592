"""What workloads lie in a folder, and what importing each of them gives."""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import islice, product
from pathlib import Path

from pydantic import BaseModel, ConfigDict

from gpuyard.errors import InputError
from gpuyard.workload.chunks import read_head
from gpuyard.workload.description import describe
from gpuyard.workload.formats import JOBS, ImportedTrace, first_line, import_trace, roles_of

MOST_COMBINATIONS = 8
"""How many choices of companions are tried for one file."""

Roles = Mapping[str, str]
"""A file's role in each format that knows it."""


class SurveyFigures(BaseModel):
    """An imported workload in numbers."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    rows_read: int
    jobs: int
    merged: int
    rejected: int
    span_s: float
    gpus: dict[str, float]
    """p50, p90 and max of gang sizes."""
    duration_s: dict[str, float]
    """p50, p90 and p99 of run times."""
    gpu_hours: float


class SurveyEntry(BaseModel):
    """A file: a workload with its figures, one that is refused, or something else (without a format)."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    file: str
    format: str | None = None
    companions: tuple[str, ...] = ()
    """Names of the files in the same folder that were needed to read it."""
    lenient: bool = False
    """Whether it was read only after ambiguities were settled by assumption."""
    figures: SurveyFigures | None = None
    reason: str | None = None
    """Why there are no figures."""


def survey(
    paths: Sequence[str | Path], tell: Callable[[Path], None] = lambda path: None
) -> list[SurveyEntry]:
    """Import every workload below the given folders.

    Args:
        paths: Folders and files. What starts with a dot below a folder is left out.
        tell: Called with each file before it is looked at.

    Raises:
        InputError: if one of the paths is not there, or there is no file at all.
    """
    found = [(name, path) for root in paths for name, path in _files(Path(root), alone=len(paths) == 1)]
    if not found:
        raise InputError(f"{', '.join(map(str, paths))}: no files there; name a folder that holds some")
    entries = []
    beside: dict[Path, dict[Path, Roles]] = {}
    for name, path in found:
        tell(path)
        if path.parent not in beside:
            beside[path.parent] = {file: _roles(file) for _, file in _files(path.parent, deep=False)}
        entries.append(_entry(name, path, beside[path.parent]))
    return entries


def _files(root: Path, *, alone: bool = True, deep: bool = True) -> Iterator[tuple[str, Path]]:
    """Files by name, relative to their folder if it is the only one."""
    if root.is_file():
        yield (root.name if alone else str(root)), root
        return
    if not root.is_dir():
        raise InputError(f"{root}: no such file or folder")
    for path in sorted(root.rglob("*") if deep else root.iterdir()):
        inside = path.relative_to(root)
        if path.is_file() and not any(part.startswith(".") for part in inside.parts):
            yield (inside.as_posix() if alone else str(path)), path


def _roles(path: Path) -> Roles:
    try:
        return roles_of(read_head(path), path.name)
    except (InputError, OSError):
        return {}


def _entry(name: str, path: Path, beside: Mapping[Path, Roles]) -> SurveyEntry:
    formats = [format for format, role in beside.get(path, {}).items() if role == JOBS]
    if not formats:
        return SurveyEntry(file=name, reason=_why_not(path, beside.get(path, {})))
    refusals: list[str] = []
    for lenient in (False, True):
        for companions in ((), *_companions(formats[0], path, beside)):
            try:
                trace = import_trace([path, *companions], strict=not lenient)
                figures = _figures(trace)
            except InputError as error:
                refusals += [] if lenient else [str(error)]
            except Exception as error:  # a reader's mistake must not hide the other files
                refusals += [f"the reader failed: {type(error).__name__}: {error}"]
            else:
                names = tuple(file.name for file in companions)
                return SurveyEntry(
                    file=name, format=trace.report.format, companions=names, lenient=lenient, figures=figures
                )
    # The last strict refusal is that of all the files there are.
    reason = _without_path(refusals[-1], path)
    return SurveyEntry(file=name, format=" or ".join(formats), reason=reason)


def _companions(format: str, path: Path, beside: Mapping[Path, Roles]) -> Iterator[tuple[Path, ...]]:
    """One file of each other role that the format has in the folder, in all choices up to a limit."""
    by_role: dict[str, list[Path]] = {}
    for file, roles in beside.items():
        if file != path and roles.get(format, JOBS) != JOBS:
            by_role.setdefault(roles[format], []).append(file)
    return islice(product(*by_role.values()), MOST_COMBINATIONS) if by_role else iter(())


def _why_not(path: Path, roles: Roles) -> str:
    if roles:
        format, role = next(iter(roles.items()))
        return f"{role} of format {format}, no jobs"
    try:
        head = read_head(path)
    except (InputError, OSError) as error:
        return _without_path(str(error), path)
    if not head.strip():
        return "empty"
    if b"\0" in head:
        return "no known format: binary"
    return f"no known format: starts with {first_line(head)[:40]!r}"


def _without_path(message: str, path: Path) -> str:
    """A message about a file whose name stands beside it."""
    return re.sub(f"^{re.escape(str(path))}[:,] ", "", message).replace(f"{path.parent}/", "")


def _figures(trace: ImportedTrace) -> SurveyFigures:
    summary, report = describe(trace.workload), trace.report
    return SurveyFigures(
        rows_read=report.rows_read,
        jobs=report.jobs,
        merged=report.merged,
        rejected=sum(finding.rows for finding in report.rejected),
        span_s=summary["span_s"],
        gpus={key: summary["gpus"][key] for key in ("p50", "p90", "max")},
        duration_s={key: summary["duration_s"][key] for key in ("p50", "p90", "p99")},
        gpu_hours=summary["gpu_hours"],
    )
