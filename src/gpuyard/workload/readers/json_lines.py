"""Files of one JSON object a line, in pieces."""

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import polars as pl

from gpuyard.workload.chunks import line_chunks
from gpuyard.workload.importing import ImportLog


def json_chunks(path: Path, log: ImportLog, fields: Sequence[str]) -> Iterator[pl.DataFrame]:
    """The lines in pieces: every field as text (null if absent) and ``line``, the number of its line.

    Rows are counted in ``log``; lines that are no objects or hold a record in place of a value are rejected.

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


def _row_by_row(lines: pl.DataFrame, fields: Sequence[str], path: Path, log: ImportLog) -> pl.DataFrame:
    """By the json module: slower, and exact about which lines are wrong."""
    rows: list[list[str | None]] = []
    kept: list[int] = []
    wrong: list[int] = []
    for line, text in lines.select("line", "text").iter_rows():
        row = _values(text, fields)
        if row is None:
            wrong.append(line)
        else:
            rows.append(row)
            kept.append(line)
    log.reject("is no JSON object with these keys", path.name, wrong)
    frame = pl.DataFrame(rows, schema=dict.fromkeys(fields, pl.String), orient="row")
    return frame.with_columns(line=pl.Series(kept, dtype=pl.Int64))


def _values(text: str, fields: Sequence[str]) -> list[str | None] | None:
    try:
        whole = json.loads(text)
    except (ValueError, RecursionError):
        return None
    row: list[str | None] = []
    for name in fields:
        value = whole
        for key in name.split("."):
            if value is not None and not isinstance(value, dict):
                return None
            value = None if value is None else value.get(key)
        if isinstance(value, (dict, list)):
            return None
        row.append(None if value is None else str(value).strip() or None)
    return row if isinstance(whole, dict) else None
