"""Files of one JSON object per line, in pieces."""

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from gpuyard.files import is_text
from gpuyard.workload.chunks import line_chunks
from gpuyard.workload.importing import ImportLog

NO_OBJECT = "is no JSON object with these keys"
TWICE = "states a key twice"
HALF = "holds half of a UTF-16 pair, which is no text"


def json_chunks(path: Path, log: ImportLog, fields: Sequence[str]) -> Iterator[pl.DataFrame]:
    """The lines in pieces: every field as text (null if absent) and ``line``, the number of its line.

    Rows are counted in ``log``. Rejected are lines that are no objects, hold a record in place of a value,
    state one of the fields twice, or hold half of a UTF-16 pair in one.

    Args:
        path: The file.
        log: Where rows are counted.
        fields: Keys to read; ``a.b`` is the key b of the record a.
    """
    for lines in line_chunks(path):
        log.read(lines.height)
        piece = _by_polars(lines, fields)
        yield _row_by_row(lines, fields, path, log) if piece is None else piece


def _by_polars(lines: pl.DataFrame, fields: Sequence[str]) -> pl.DataFrame | None:
    """For lines that are all as they should be; None if it finds otherwise."""
    # Of a key that appears twice polars takes the first, and of half a UTF-16 pair it makes another letter.
    text, keys = lines["text"], {part for name in fields for part in name.split(".")}
    twice = (text.str.count_matches(f'"{key}"', literal=True).gt(1).any() for key in keys)
    if text.str.contains("\\u", literal=True).any() or any(twice):
        return None
    schema: dict[str, Any] = {}
    for name in fields:
        record, _, key = name.rpartition(".")
        if record:
            schema[record] = pl.Struct([*schema.get(record, pl.Struct([])).fields, pl.Field(key, pl.String)])
        else:
            schema[name] = pl.String()
    try:
        rows = lines["text"].str.json_decode(pl.Struct(schema))
    except (pl.exceptions.PolarsError, pl.exceptions.PanicException):
        return None
    if len(rows) != lines.height or rows.null_count():
        return None
    return rows.struct.unnest().select(*(_value(name) for name in fields), line=lines["line"])


def _value(name: str) -> pl.Expr:
    record, _, key = name.rpartition(".")
    value = pl.col(record).struct.field(key) if record else pl.col(name)
    return pl.when(value.str.strip_chars() != "").then(value.str.strip_chars()).alias(name)


class _UnusableError(Exception):
    """A line that becomes no row; its text is the reason."""


def _row_by_row(lines: pl.DataFrame, fields: Sequence[str], path: Path, log: ImportLog) -> pl.DataFrame:
    """By the json module: slower, and exact about which lines are wrong. Values are as polars writes them."""
    rows: list[list[str | None]] = []
    kept: list[int] = []
    wrong: dict[str, list[int]] = {}
    keys = {part for name in fields for part in name.split(".")}
    for line, text in lines.select("line", "text").iter_rows():
        try:
            rows.append(_values(text, fields, keys))
        except _UnusableError as error:
            wrong.setdefault(str(error), []).append(line)
        else:
            kept.append(line)
    for reason, numbers in wrong.items():
        log.reject(reason, path.name, numbers)
    frame = pl.DataFrame(rows, schema=dict.fromkeys(fields, pl.String), orient="row")
    return frame.with_columns(line=pl.Series(kept, dtype=pl.Int64))


def _values(text: str, fields: Sequence[str], keys: set[str]) -> list[str | None]:
    def record(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        names = [name for name, _ in pairs if name in keys]
        if len(set(names)) < len(names):
            raise _UnusableError(TWICE)
        return dict(pairs)

    try:
        whole = json.loads(text, object_pairs_hook=record, parse_constant=_no_number)
    except (ValueError, RecursionError):
        raise _UnusableError(NO_OBJECT) from None
    if not isinstance(whole, dict):
        raise _UnusableError(NO_OBJECT)
    return [_text(_found(whole, name)) for name in fields]


def _no_number(constant: str) -> None:
    raise ValueError(constant)


def _found(whole: dict[str, Any], name: str) -> Any:
    value: Any = whole
    for key in name.split("."):
        if value is not None and not isinstance(value, dict):
            raise _UnusableError(NO_OBJECT)
        value = None if value is None else value.get(key)
    return value


def _text(value: Any) -> str | None:
    if isinstance(value, (dict, list)) or (isinstance(value, float) and not np.isfinite(value)):
        raise _UnusableError(NO_OBJECT)
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float):
        return np.format_float_positional(value, trim="-")
    if not is_text(value):
        raise _UnusableError(HALF)
    return None if value is None else str(value).strip() or None
