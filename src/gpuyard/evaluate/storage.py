"""A comparison as a directory: ``evaluation.json`` and parquet files (docs/guide/evaluate.md)."""

import json
from pathlib import Path
from typing import Any

import polars as pl

import gpuyard
from gpuyard.errors import InputError
from gpuyard.evaluate.comparison import Comparison
from gpuyard.evaluate.setting import PolicyEntry, Setting
from gpuyard.evaluate.stored_tables import check_tables
from gpuyard.files import atomic_write, check_directory
from gpuyard.units import json_text

FORMAT = 1
DOCUMENT = "evaluation.json"
SCHEDULES = "schedules"
_TABLES = ("windows", "classes", "jobs")


def check_free(directory: Path) -> None:
    """Refuse a directory that could not be written, or that holds something other than an evaluation.

    Raises:
        InputError: naming it and the reason.
    """
    check_directory(directory)
    if directory.is_dir() and any(directory.iterdir()) and not (directory / DOCUMENT).is_file():
        raise InputError(
            f"{directory}: is not empty and holds no evaluation; give a new directory, or that of an "
            "evaluation to write over"
        )


def write_comparison(comparison: Comparison, directory: Path) -> None:
    """Write all files, the document last: a directory without it is not complete.

    Raises:
        InputError: if the directory holds something else, or cannot be written, or policies are compared by
            another metric than they were evaluated by.
    """
    if comparison.evaluated_by is not None:
        raise InputError(
            f"{directory}: is for evaluations as they were made, by {comparison.evaluated_by}; write the "
            "comparison that by_metric was called on"
        )
    check_free(directory)
    schedules = directory / SCHEDULES
    try:
        schedules.mkdir(parents=True, exist_ok=True)
        (directory / DOCUMENT).unlink(missing_ok=True)
        for stale in (directory / "jobs.parquet", *schedules.glob("*.parquet")):
            stale.unlink(missing_ok=True)
    except OSError as error:
        raise InputError(f"{directory}: cannot be written ({error.strerror})") from None
    for name in _TABLES:
        frame = getattr(comparison, name)
        if frame is not None:
            _write(directory / f"{name}.parquet", frame)
    files = {}
    for number, (policy, frame) in enumerate(comparison.schedules.items()):
        files[policy] = f"{SCHEDULES}/{number}.parquet"
        _write(directory / files[policy], frame)
    with atomic_write(directory / DOCUMENT) as temporary:
        temporary.write_text(json_text(_document(comparison, files)) + "\n", encoding="utf-8")


def _write(path: Path, frame: pl.DataFrame) -> None:
    with atomic_write(path) as temporary:
        frame.write_parquet(temporary)


def _document(comparison: Comparison, schedules: dict[str, str]) -> dict[str, Any]:
    return {
        "format": FORMAT,
        "gpuyard_version": gpuyard.__version__,
        "setting": comparison.setting.to_json(),
        "policies": [policy.to_json() for policy in comparison.policies],
        "reference": comparison.reference,
        "chosen_on": comparison.chosen_on,
        "hindsight": comparison.hindsight,
        "has_jobs": comparison.jobs is not None,
        "schedules": schedules,
    }


def read_comparison(directory: Path) -> Comparison:
    """Read a directory.

    Raises:
        InputError: if it is not there, is incomplete, damaged, or of another version.
    """
    comparison = _read_files(directory)
    check_tables(comparison, directory)
    return comparison


def _read_files(directory: Path) -> Comparison:
    path = directory / DOCUMENT
    document = _read_document(path)
    try:
        return Comparison(
            setting=Setting.from_json(document["setting"]),
            policies=tuple(PolicyEntry.from_json(entry) for entry in document["policies"]),
            reference=document["reference"],
            chosen_on=document["chosen_on"],
            hindsight=document["hindsight"],
            windows=_read(directory / "windows.parquet"),
            classes=_read(directory / "classes.parquet"),
            jobs=_read(directory / "jobs.parquet") if document["has_jobs"] else None,
            schedules={name: _read(_inside(directory, file)) for name, file in document["schedules"].items()},
        )
    except (KeyError, TypeError, AttributeError) as error:
        raise InputError(f"{path}: is damaged ({error!s:.80}); evaluate again") from None


def _read_document(path: Path) -> dict[str, Any]:
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise InputError(
            f"{path.parent}: holds no evaluation (no {DOCUMENT}); give a directory that gpuyard evaluate "
            "--out has written"
        ) from None
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror})") from None
    except ValueError:
        raise InputError(f"{path}: is not JSON; evaluate again") from None
    if not isinstance(document, dict) or document.get("format") != FORMAT:
        found = document.get("format") if isinstance(document, dict) else None
        raise InputError(
            f"{path}: has format {found} of evaluations, but this gpuyard reads {FORMAT}; evaluate again, or "
            "use the gpuyard that wrote it"
        )
    return document


def _inside(directory: Path, file: str) -> Path:
    path = directory / file
    if path.resolve().parent != (directory / SCHEDULES).resolve():
        raise InputError(f"{directory / DOCUMENT}: names the schedule {file!r}, which lies elsewhere")
    return path


def _read(path: Path) -> pl.DataFrame:
    try:
        return pl.read_parquet(path)
    except (OSError, pl.exceptions.PolarsError) as error:
        reason = str(error).split("\n", 1)[0]
        raise InputError(f"{path}: cannot be read ({reason}); evaluate again") from None
