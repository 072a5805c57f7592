"""Tables that were read from a directory: whether they are those that its document tells of."""

from collections.abc import Mapping
from pathlib import Path

import polars as pl

from gpuyard.errors import InputError
from gpuyard.evaluate.comparison import Comparison
from gpuyard.evaluate.tables import CLASS_SCHEMA, JOB_COLUMNS

_HEADS: Mapping[str, pl.DataType] = {"policy": pl.String(), "window": pl.Int64()}
_TEXTS = ("policy", "by", "class", "group", "user")
_JOB_COLUMNS = (*_HEADS, *JOB_COLUMNS, "start_s", "end_s")


def check_tables(comparison: Comparison, directory: Path) -> None:
    """Refuse tables with other columns, policies or windows than the document says.

    Args:
        comparison: What was read.
        directory: Where from.

    Raises:
        InputError: naming the file and what is wrong.
    """
    known = {entry.name for entry in comparison.policies}
    for name in (comparison.reference, comparison.hindsight):
        if name is not None and name not in known:
            raise _damaged(directory / "evaluation.json", f"it names the policy {name} without an entry")
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


def _damaged(path: Path, what: str) -> InputError:
    return InputError(f"{path}: is damaged, {what}; evaluate again")


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
                path, f"policy {entry.name} has {len(own):,} windows and evaluation.json {len(expected):,}"
            )
        if own != expected:
            raise _damaged(path, f"policy {entry.name} has other windows than evaluation.json")


def _check_windows(path: Path, table: pl.DataFrame, comparison: Comparison) -> None:
    known = set(comparison.setting.windows)
    for window in table["window"].unique().to_list():
        if window not in known:
            raise _damaged(path, f"it has the window {window}, which evaluation.json does not name")
