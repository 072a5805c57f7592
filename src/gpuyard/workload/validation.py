"""Checks of a job table, column by column, whose errors say where, what, and what to do.

Everything runs as whole-column expressions: a million rows take well under a second.
"""

import math
from typing import Any, NoReturn

import polars as pl

from gpuyard.errors import InputError
from gpuyard.registry import suggest
from gpuyard.workload.schema import COLUMN, COLUMNS, STATUSES, Column, Where

_FIX = "correct the value or leave the row out"


def checked_frame(frame: pl.DataFrame, where: Where) -> pl.DataFrame:
    """The frame with exactly the native columns, types and defaults, without sparse ones that say nothing.

    Raises:
        InputError: for the first problem found.
    """
    _check_names(frame, where)
    if frame.height == 0:
        raise InputError(f"{where.source}: has no jobs; a workload needs at least one row")
    present = [column for column in COLUMNS if not column.sparse or column.name in frame.columns]
    checked = [(column, _checked_column(frame, column, where)) for column in present]
    jobs = pl.DataFrame([values for column, values in checked if not _is_left_out(column, values)])
    _check_shares(jobs, where)
    return jobs


def _is_left_out(column: Column, values: pl.Series) -> bool:
    return column.sparse and column.is_default(values)


def _check_names(frame: pl.DataFrame, where: Where) -> None:
    unknown = [name for name in frame.columns if name not in COLUMN]
    if unknown:
        more = f" ({len(unknown) - 1} more unknown: {', '.join(unknown[1:6])})" if len(unknown) > 1 else ""
        raise InputError(
            f"{where.source}: unknown column {unknown[0]!r}{suggest(unknown[0], COLUMN)}{more}; "
            "rename the column or remove it"
        )
    missing = [column for column in COLUMNS if column.required and column.name not in frame.columns]
    if missing:
        wanted = "; ".join(f"{column.name} ({column.meaning})" for column in missing)
        raise InputError(f"{where.source}: missing column {wanted}. It has: {', '.join(frame.columns)}")


def _checked_column(frame: pl.DataFrame, column: Column, where: Where) -> pl.Series:
    """One column, converted, within its bounds and with its default."""
    if column.name not in frame.columns:
        if column.name == "row":
            return pl.int_range(frame.height, dtype=pl.Int64, eager=True).alias("row")
        return pl.Series(column.name, [column.default], dtype=column.dtype).new_from_index(0, frame.height)
    raw = frame[column.name]
    if column.name == "row":
        return _checked_rows(raw, column, where)
    values = raw
    if not _is_native(raw, column):
        values = _converted(raw, column, where)
        if column.required and values.null_count():
            _refuse(raw, values.is_null(), column, where)
        _check_bounds(raw, values, column, where)
        values = values.cast(column.dtype)
    if column.dtype == pl.String and column.default is None:
        values = values.set(values == "", None)
    if column.default is None or not values.null_count():
        return values
    return values.fill_null(column.default)


def _is_native(raw: pl.Series, column: Column) -> bool:
    """Whether a column needs no conversion and is all valid; False also where that is not seen at a glance.

    Most workloads are slices of a checked one, and each of the expressions that find a bad row takes longer
    than this.
    """
    if raw.dtype != column.dtype or (column.required and raw.null_count()):
        return False
    if isinstance(column.dtype, pl.List):
        return raw.null_count() == len(raw)
    if not column.dtype.is_numeric():
        return True
    if column.dtype == pl.Float64 and not math.isfinite(raw.sum()):  # of NaN, infinity, or a large sum
        return False
    least: Any = raw.min()
    most: Any = raw.max()
    if least is None:  # nothing but nulls
        return True
    low_is_kept = column.low is None or least > column.low or (column.low_is_valid and least == column.low)
    return bool(low_is_kept and (column.high is None or most <= column.high))


def _checked_rows(raw: pl.Series, column: Column, where: Where) -> pl.Series:
    """Original rows: all given, or none and then the positions."""
    if not raw.null_count() and _is_native(raw, column):
        return raw
    values = _converted(raw, column, where)
    if values.null_count() == len(values):
        return pl.int_range(len(values), dtype=pl.Int64, eager=True).alias("row")
    if values.null_count():
        _refuse(raw, values.is_null(), column, where, fix="fill it in for every row or remove the column")
    _check_bounds(raw, values, column, where)
    return values


def _converted(raw: pl.Series, column: Column, where: Where) -> pl.Series:
    """In the column's type; a value that does not convert without loss is refused."""
    if raw.dtype == pl.Null:
        return raw.cast(column.dtype)
    if raw.dtype == pl.String and column.dtype != pl.String:
        text = raw.str.strip_chars()
        raw = text.set(text == "", None)
    converted = _convert(raw, column.dtype)
    if converted is None:
        raise InputError(
            f"{where.source}, column {column.name}: holds values of type {raw.dtype}, "
            f"expected {column.expected}; convert the column"
        )
    lost = converted.is_null() & raw.is_not_null()
    if lost.any():
        _refuse(raw, lost, column, where, hint=_status_hint(raw, lost) if column.name == "status" else "")
    return converted.alias(column.name)


def _convert(raw: pl.Series, dtype: pl.DataType) -> pl.Series | None:
    """The series in the wanted type with nulls where a value has no such form; None if none could have."""
    is_text = isinstance(raw.dtype, (pl.String, pl.Categorical, pl.Enum))
    if isinstance(dtype, pl.List):
        return _convert_list(raw, is_text)
    if isinstance(dtype, pl.String):
        return raw.cast(pl.String) if is_text or raw.dtype.is_integer() else None
    if isinstance(dtype, pl.Enum):
        return raw.cast(pl.String).cast(dtype, strict=False) if is_text else None
    if not is_text and not raw.dtype.is_numeric():
        return None
    numbers = raw.cast(pl.String) if is_text else raw
    return _whole_numbers(numbers, dtype) if dtype.is_integer() else numbers.cast(dtype, strict=False)


def _whole_numbers(numbers: pl.Series, dtype: pl.DataType) -> pl.Series:
    """As int64 (bounds come later, with better words); 8.0 counts as 8, 2.5 and 1e300 become null."""
    if numbers.dtype.is_integer():
        return numbers.cast(pl.Int64, strict=False)
    whole = numbers.cast(pl.Int64, strict=False) if numbers.dtype == pl.String else None
    floats = numbers.cast(pl.Float64, strict=False)
    exact = floats.is_finite() & (floats == floats.round(0)) & (floats.abs() <= 2.0**53)
    from_floats = floats.set(~exact.fill_null(False), None).cast(pl.Int64, strict=False)
    return from_floats if whole is None else whole.zip_with(whole.is_not_null(), from_floats)


def _convert_list(raw: pl.Series, is_text: bool) -> pl.Series | None:
    """Lists of names; one that is empty or holds an empty name or a '|' becomes null, and so is refused."""
    if is_text:
        lists = raw.cast(pl.String).str.split("|")
    elif isinstance(raw.dtype, (pl.List, pl.Array)) and _is_text_or_null(raw.dtype.inner):
        lists = raw.cast(pl.List(pl.String))
    else:
        return None
    name = pl.element()
    bad_name = name.is_null() | (name == "") | name.str.contains("|", literal=True)
    frame = pl.DataFrame({"lists": lists}).with_columns(pl.col("lists").list.eval(name.str.strip_chars()))
    bad = (pl.col("lists").list.len() == 0) | pl.col("lists").list.eval(bad_name).list.any()
    return frame.select(pl.when(~bad).then("lists"))["lists"]


def _is_text_or_null(dtype: object) -> bool:
    return isinstance(dtype, (pl.String, pl.Categorical, pl.Enum, pl.Null)) or dtype in (pl.String, pl.Null)


def _check_bounds(raw: pl.Series, values: pl.Series, column: Column, where: Where) -> None:
    if values.dtype == pl.Float64:
        bad = ~values.is_finite()
    elif values.dtype.is_integer():
        bad = values.is_null() & False
    else:
        return
    if column.low is not None:
        bad |= (values < column.low) if column.low_is_valid else (values <= column.low)
    if column.high is not None:
        bad |= values > column.high
    bad = bad.fill_null(False)
    if bad.any():
        _refuse(raw, bad, column, where)


def _check_shares(jobs: pl.DataFrame, where: Where) -> None:
    """A share of a GPU is for jobs of one GPU (docs/contract/simulator.md, section 3)."""
    bad = (jobs["gpu_milli"] < 1000) & (jobs["gpus"] != 1)
    if bad.any():
        gpus = jobs["gpus"][bad.arg_max() or 0]
        _refuse(
            jobs["gpu_milli"],
            bad,
            COLUMN["gpu_milli"],
            where,
            expected=f"1000 or nothing for a job with gpus = {gpus} (only gpus = 1 may take a part of a GPU)",
        )


def _status_hint(raw: pl.Series, bad: pl.Series) -> str:
    value = str(raw.filter(bad)[0])
    hint = suggest(value.lower(), dict.fromkeys(STATUSES))
    return hint if "did you mean" in hint else ""


def _refuse(
    raw: pl.Series,
    bad: pl.Series,
    column: Column,
    where: Where,
    *,
    expected: str | None = None,
    fix: str = _FIX,
    hint: str = "",
) -> NoReturn:
    """Raise for the first bad row, and say how many more there are."""
    position = bad.arg_max() or 0
    value = raw[position]
    shown = "is empty" if value is None else f"is {_short(value)}"
    others = int(bad.sum()) - 1
    same = f" ({others:,} other row{'s' if others != 1 else ''} with the same problem)" if others else ""
    raise InputError(
        f"{where.source}, {where.place(position)}, column {column.name}: {shown}, "
        f"expected {expected or column.expected}{hint}; {fix}{same}"
    )


def _short(value: object) -> str:
    text = repr(value.to_list() if isinstance(value, pl.Series) else value)
    return text if len(text) <= 60 else text[:57] + "..."
