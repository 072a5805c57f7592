"""Tables that were read from a directory: whether they are those that its document describes."""

from collections.abc import Mapping
from pathlib import Path

import polars as pl

from gpuyard.errors import InputError
from gpuyard.evaluate.comparison import Comparison
from gpuyard.evaluate.tables import CLASS_SCHEMA, JOB_COLUMNS
from gpuyard.units import plural

_HEADS: Mapping[str, pl.DataType] = {"policy": pl.String(), "window": pl.Int64()}
_TEXTS = ("policy", "by", "class", "group", "user")
_JOB_COLUMNS = (*_HEADS, *JOB_COLUMNS, "start_s", "end_s")
_SCHEDULE_COLUMNS = {
    *("submit_s", "duration_s", "gpus", "gpu_milli", "priority", "user", "group", "source_id", "row"),
    *("start_s", "end_s", "backfilled", "gpu_index", "nodes", "node_gpus"),
}
"""Columns of a schedule that a report reads."""


def check_tables(comparison: Comparison, document: Path) -> None:
    """Refuse tables with other columns, policies, windows or jobs than the document says.

    Args:
        comparison: What was read.
        document: The file that describes them, in the same directory.

    Raises:
        InputError: naming the file and what is wrong.
    """
    directory, known = document.parent, {entry.name for entry in comparison.policies}
    for name in (comparison.reference, comparison.hindsight):
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
