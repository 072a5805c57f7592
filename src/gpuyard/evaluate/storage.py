"""A comparison as a directory: ``results.json`` and tables (docs/formats/result-directory.md)."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import polars as pl

import gpuyard
from gpuyard.errors import InputError
from gpuyard.evaluate.comparison import Comparison, WholeReplay
from gpuyard.evaluate.results.files import DOCUMENT, OLD_EVALUATION, holds_results
from gpuyard.evaluate.setting import Outline, PolicyEntry, Setting
from gpuyard.evaluate.tables import CLASS_SCHEMA, JOB_COLUMNS
from gpuyard.files import atomic_write, check_directory, parse_json
from gpuyard.units import json_text, plural

FORMAT = 3
SCHEDULES = "schedules"
EXECUTIONS = "executions"
_TABLES = ("windows", "classes", "jobs")
_WHOLE = ("metrics", "classes", "windows", "waits")
"""Tables of the replay of the whole part; their files begin with ``whole-``."""
_HEADS: Mapping[str, pl.DataType] = {"policy": pl.String(), "window": pl.Int64()}
_TEXTS = ("policy", "by", "class", "group", "user")
_JOB_COLUMNS = (*_HEADS, *JOB_COLUMNS, "start_s", "end_s")
_SCHEDULE_COLUMNS = {
    *("submit_s", "duration_s", "gpus", "gpu_milli", "priority", "user", "group", "source_id", "row"),
    *("start_s", "end_s", "backfilled", "gpu_index", "nodes", "node_gpus"),
}
"""Columns of a schedule that a report reads."""


def check_free(directory: Path) -> None:
    """Refuse a directory that could not be written, or that holds something other than such results.

    Raises:
        InputError: naming it and the reason.
    """
    check_directory(directory)
    if holds_results(directory):
        _refuse_old(directory)
    elif directory.is_dir() and any(directory.iterdir()):
        raise InputError(
            f"{directory}: is not empty and holds no results; give a new directory, or one of results to "
            "write over"
        )


def _refuse_old(directory: Path) -> None:
    """Refuse what gpuyard 0.1.0 wrote: it is neither read nor written over.

    Raises:
        InputError: saying which command makes it again.
    """
    if (directory / OLD_EVALUATION).is_file():
        raise _old(directory, f"an evaluation ({OLD_EVALUATION})", "evaluate")
    try:
        document = json.loads((directory / DOCUMENT).read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return
    if isinstance(document, dict) and "results" in document and "format" not in document:
        raise _old(directory, "a simulation", "simulate")


def _old(directory: Path, what: str, verb: str) -> InputError:
    return InputError(
        f"{directory}: holds {what} of an older gpuyard; gpuyard {verb} --out with a new directory makes it "
        "again, and gpuyard 0.1.0 still reads it"
    )


def write_comparison(comparison: Comparison, directory: Path, *, csv: bool = False) -> None:
    """Write all files, the document last: a directory without it is not complete.

    Args:
        comparison: What is written.
        directory: Made if it does not exist.
        csv: Write schedules and executions as CSV too.

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
    _clear(directory)
    for name in _TABLES:
        frame = getattr(comparison, name)
        if frame is not None:
            _write(directory / f"{name}.parquet", frame)
    if comparison.whole is not None:
        for name in _WHOLE:
            _write(directory / f"whole-{name}.parquet", getattr(comparison.whole, name))
    files = {
        "schedules": _write_all(directory, SCHEDULES, comparison.schedules, csv=csv),
        "executions": _write_all(directory, EXECUTIONS, comparison.executions, csv=csv),
    }
    with atomic_write(directory / DOCUMENT) as temporary:
        temporary.write_text(json_text(_document(comparison, files)) + "\n", encoding="utf-8")


def _clear(directory: Path) -> None:
    """Make the directory, and remove the files of the results that it held."""
    try:
        directory.mkdir(parents=True, exist_ok=True)
        (directory / DOCUMENT).unlink(missing_ok=True)
        for name in (*_TABLES, *(f"whole-{name}" for name in _WHOLE)):
            (directory / f"{name}.parquet").unlink(missing_ok=True)
        for folder in (SCHEDULES, EXECUTIONS):
            for pattern in ("*.parquet", "*.csv"):
                for stale in (directory / folder).glob(pattern):
                    stale.unlink(missing_ok=True)
    except OSError as error:
        raise InputError(f"{directory}: cannot be written ({error.strerror})") from None


def _write_all(
    directory: Path, folder: str, frames: Mapping[str, pl.DataFrame], *, csv: bool
) -> dict[str, str]:
    """Write a table per policy; the file of each by policy."""
    files = {}
    for number, (policy, frame) in enumerate(frames.items()):
        (directory / folder).mkdir(exist_ok=True)
        files[policy] = f"{folder}/{number}.parquet"
        _write(directory / files[policy], frame)
        if csv:
            with atomic_write(directory / folder / f"{number}.csv") as temporary:
                _without_lists(frame).write_csv(temporary)
    return files


def _write(path: Path, frame: pl.DataFrame) -> None:
    with atomic_write(path) as temporary:
        frame.write_parquet(temporary)


def _without_lists(table: pl.DataFrame) -> pl.DataFrame:
    lists = [name for name, dtype in table.schema.items() if isinstance(dtype, pl.List)]
    return table.with_columns(pl.col(lists).cast(pl.List(pl.String)).list.join("|"))


def _document(comparison: Comparison, files: Mapping[str, Mapping[str, str]]) -> dict[str, Any]:
    return {
        "format": FORMAT,
        "gpuyard_version": gpuyard.__version__,
        "setting": comparison.setting.to_json(),
        "policies": [_policy(comparison, entry) for entry in comparison.policies],
        "reference": comparison.reference,
        "chosen_on": comparison.chosen_on,
        "rival": comparison.rival,
        "hindsight": comparison.hindsight,
        "has_jobs": comparison.jobs is not None,
        "has_whole": comparison.whole is not None,
        **files,
    }


def _policy(comparison: Comparison, entry: PolicyEntry) -> dict[str, Any]:
    """A policy's entry with its means over windows, for those who read the file by themselves."""
    names = comparison.windows.columns[2:]
    means = {name: comparison.mean(entry.name, name) for name in names if comparison.knows(entry.name, name)}
    return {**entry.to_json(), **comparison.accounts.get(entry.name, {}), "metrics": means}


def read_comparison(directory: Path, *, schedules: bool = True) -> Comparison:
    """Read a directory.

    Args:
        directory: What ``write_comparison`` has written.
        schedules: Read schedules and executions, too, which are large and say nothing of who is best.

    Raises:
        InputError: if it is not there, is incomplete, damaged, or of another version.
    """
    _refuse_old(directory)
    comparison = _read_files(directory, schedules)
    _check_tables(comparison, directory / DOCUMENT)
    return comparison


def read_outline(directory: Path) -> Outline:
    """Read what a directory of results says of itself: quick, however many jobs it is about.

    Raises:
        InputError: if it is not there, is damaged, or of another version.
    """
    _refuse_old(directory)
    path = directory / DOCUMENT
    document = _read_document(path)
    try:
        return Outline(
            setting=Setting.from_json(document["setting"]),
            policies=tuple(PolicyEntry.from_json(entry) for entry in document["policies"]),
            reference=document["reference"],
            schedules=_files_of(directory, SCHEDULES, document["schedules"]),
            executions=_files_of(directory, EXECUTIONS, document["executions"]),
        )
    except (KeyError, TypeError, AttributeError) as error:
        raise InputError(f"{path}: is damaged ({error!s:.80}); make the results again") from None


def _read_files(directory: Path, schedules: bool) -> Comparison:
    path = directory / DOCUMENT
    document = _read_document(path)
    if not schedules:
        document |= {SCHEDULES: {}, EXECUTIONS: {}}
    try:
        entries = document["policies"]
        return Comparison(
            setting=Setting.from_json(document["setting"]),
            policies=tuple(PolicyEntry.from_json(entry) for entry in entries),
            reference=document["reference"],
            chosen_on=document["chosen_on"],
            rival=document["rival"],
            hindsight=document["hindsight"],
            windows=read_table(directory / "windows.parquet"),
            classes=read_table(directory / "classes.parquet"),
            jobs=read_table(directory / "jobs.parquet") if document["has_jobs"] else None,
            whole=_read_whole(directory) if document["has_whole"] else None,
            schedules=_read_all(directory, SCHEDULES, document["schedules"]),
            executions=_read_all(directory, EXECUTIONS, document["executions"]),
            accounts={entry["name"]: _account(entry) for entry in entries if "schedule_hash" in entry},
        )
    except (KeyError, TypeError, AttributeError) as error:
        raise InputError(f"{path}: is damaged ({error!s:.80}); make the results again") from None


def _read_whole(directory: Path) -> WholeReplay:
    tables = {name: read_table(directory / f"whole-{name}.parquet") for name in _WHOLE}
    for name, heads in (
        ("metrics", ("policy",)),
        ("classes", ("policy", "by", "class")),
        ("windows", ("policy",)),
    ):
        _check_columns(directory / f"whole-{name}.parquet", tables[name], heads)
    return WholeReplay(**tables)


def _account(entry: Mapping[str, Any]) -> dict[str, Any]:
    return {name: entry[name] for name in ("dropped_rows", "counters", "schedule_hash")}


def _read_document(path: Path) -> dict[str, Any]:
    try:
        document = parse_json(path.read_bytes())
    except FileNotFoundError:
        raise InputError(
            f"{path.parent}: holds no results (no {DOCUMENT}); give a directory that gpuyard evaluate --out "
            "or gpuyard simulate --out has written"
        ) from None
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror})") from None
    except ValueError as error:
        raise InputError(f"{path}: is not valid JSON ({error!s:.80}); make the results again") from None
    if not isinstance(document, dict) or document.get("format") != FORMAT:
        found = document.get("format") if isinstance(document, dict) else None
        raise InputError(
            f"{path}: has format {found} of results, but this gpuyard reads {FORMAT}; make them again, or "
            "use the gpuyard that wrote them"
        )
    return document


def _read_all(directory: Path, folder: str, files: Mapping[str, str]) -> dict[str, pl.DataFrame]:
    return {policy: read_table(path) for policy, path in _files_of(directory, folder, files).items()}


def _files_of(directory: Path, folder: str, files: Mapping[str, str]) -> dict[str, Path]:
    found = {}
    for policy, file in files.items():
        path = directory / file
        if path.resolve().parent != (directory / folder).resolve():
            raise InputError(f"{directory / DOCUMENT}: names the file {file!r}, which lies elsewhere")
        found[policy] = path
    return found


def read_table(path: Path, columns: list[str] | None = None) -> pl.DataFrame:
    """A table of a directory of results.

    Args:
        path: The file.
        columns: Those to read; None: all.

    Raises:
        InputError: if it is not there, is damaged, or lacks one of the columns.
    """
    try:
        return pl.read_parquet(path, columns=columns)
    except (OSError, pl.exceptions.PolarsError) as error:
        reason = str(error).split("\n", 1)[0]
        raise InputError(f"{path}: cannot be read ({reason}); make the results again") from None


def _check_tables(comparison: Comparison, document: Path) -> None:
    """Refuse tables with other columns, policies, windows or jobs than the document says.

    Args:
        comparison: What was read.
        document: The file that describes them, in the same directory.

    Raises:
        InputError: naming the file and what is wrong.
    """
    directory, known = document.parent, {entry.name for entry in comparison.policies}
    for name in (comparison.reference, comparison.rival, comparison.hindsight):
        if name is not None and name not in known:
            raise _damaged(document, f"it names the policy {name} without an entry")
    windows, classes, jobs = (directory / f"{name}.parquet" for name in ("windows", "classes", "jobs"))
    _check_columns(windows, comparison.windows, (*_HEADS, comparison.setting.metric))
    if tuple(comparison.windows.columns[:2]) != tuple(_HEADS):
        raise _damaged(windows, "its first columns are not policy and window")
    _check_numbers(windows, comparison.windows, comparison.windows.columns[2:])
    _check_rows(windows, comparison)
    _check_columns(classes, comparison.classes, tuple(CLASS_SCHEMA))
    _check_windows(classes, comparison.classes, comparison)
    if comparison.jobs is not None:
        _check_columns(jobs, comparison.jobs, _JOB_COLUMNS)
        _check_windows(jobs, comparison.jobs, comparison)
    for policy, schedule in comparison.schedules.items():
        _check_schedule(f"{directory}: the schedule of {policy}", schedule, comparison, policy)


def _damaged(path: Path, what: str) -> InputError:
    return InputError(f"{path}: is damaged, {what}; make the results again")


def _check_columns(path: Path, table: pl.DataFrame, names: tuple[str, ...]) -> None:
    for name in names:
        if name not in table.columns:
            raise _damaged(path, f"it lacks the column {name}")
    texts = [name for name in names if name in _TEXTS]
    for name in texts:
        if table.schema[name] != pl.String:
            raise _damaged(path, f"its column {name} holds no text")
    _check_numbers(path, table, [name for name in names if name not in texts])


def _check_numbers(path: Path, table: pl.DataFrame, names: list[str]) -> None:
    for name in names:
        if not table.schema[name].is_numeric():
            raise _damaged(path, f"its column {name} holds no numbers")


def _check_rows(path: Path, comparison: Comparison) -> None:
    """Every policy has a row for each window of the setting, in that order."""
    expected = list(comparison.setting.windows)
    rows = comparison.windows.group_by("policy", maintain_order=True).agg("window")
    found = dict(zip(rows["policy"].to_list(), rows["window"].to_list(), strict=True))
    for entry in comparison.policies:
        own = found.get(entry.name, [])
        if len(own) != len(expected):
            raise _damaged(
                path, f"policy {entry.name} has {len(own):,} windows and results.json {len(expected):,}"
            )
        if own != expected:
            raise _damaged(path, f"policy {entry.name} has other windows than results.json")


def _check_windows(path: Path, table: pl.DataFrame, comparison: Comparison) -> None:
    known = set(comparison.setting.windows)
    for window in table["window"].unique().to_list():
        if window not in known:
            raise _damaged(path, f"it has the window {window}, which results.json does not name")


def _check_schedule(where: str, schedule: pl.DataFrame, comparison: Comparison, policy: str) -> None:
    if missing := sorted(_SCHEDULE_COLUMNS - set(schedule.columns)):
        raise InputError(
            f"{where} is of another version of gpuyard, it lacks {', '.join(missing)}; make the results again"
        )
    if (account := comparison.accounts.get(policy)) is None:
        return
    expected = comparison.setting.jobs - len(account["dropped_rows"])
    if len(schedule) != expected:
        raise InputError(
            f"{where} has {plural(len(schedule), 'job')}, but results.json is about {expected:,}; make the "
            "results again"
        )
