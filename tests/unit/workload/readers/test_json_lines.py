"""Files of one JSON object per line: both ways of reading them agree, and what is wrong is named by line."""

from pathlib import Path

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuyard.workload.importing import ImportLog
from gpuyard.workload.readers import json_lines
from gpuyard.workload.readers.json_lines import HALF, NO_OBJECT, TWICE, json_chunks

FIELDS = ("time", "name", "request.cpus")


def read(path: Path, *lines: str) -> tuple[list[tuple[str | None, ...]], dict[str, tuple[str, ...]]]:
    """The rows, and where the rejected lines are by reason."""
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    log = ImportLog()
    rows = pl.concat(json_chunks(path, log, FIELDS)).rows()
    report = log.report("x", [], len(rows))
    return rows, {found.reason: found.first for found in report.rejected}


def row(name: str) -> str:
    return f'{{"time": 1, "name": {name}, "request": {{"cpus": 0.5}}}}'


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (row('"\\ud800"'), HALF),
        (row('"a\\uDC00b"'), HALF),
        (row('"\\ude00\\ud83d"'), HALF),
        ('{"time": 1, "name": "a", "name": "b"}', TWICE),
        ('{"time": 1, "name": "a", "n\\u0061me": "b"}', TWICE),
        ('{"time": 1, "request": {"cpus": 1, "cpus": 2}}', TWICE),
        (row("NaN"), NO_OBJECT),
        (row("-Infinity"), NO_OBJECT),
        (row("1e999"), NO_OBJECT),
        (row("9" * 5000), NO_OBJECT),
        (row("[" * 100_000 + "]" * 100_000), NO_OBJECT),
        (row('"a\0b"'), NO_OBJECT),
        (row("[1]"), NO_OBJECT),
        ('{"time": 1, "request": 5}', NO_OBJECT),
        ("5", NO_OBJECT),
        ('{"time": 1', NO_OBJECT),
    ],
)
def test_a_line_that_cannot_be_kept_is_rejected_and_its_neighbours_are_read(tmp_path, line, reason):
    rows, rejected = read(tmp_path / "x.json", row('"a"'), line, row('"c"'))
    assert [(name, number) for _, name, _, number in rows] == [("a", 1), ("c", 3)]
    assert rejected == {reason: ("x.json:2",)}


def test_escapes_of_whole_characters_and_nul_are_text(tmp_path):
    rows, rejected = read(
        tmp_path / "x.json", row('"\\ud83d\\ude00"'), row('"a\\u0000b"'), row('"n\\u00e9e"')
    )
    assert [name for _, name, _, _ in rows] == ["\U0001f600", "a\0b", "née"]
    assert not rejected


def test_what_is_not_read_may_hold_anything(tmp_path):
    lines = ('{"time": 1, "other": "\\ud800"}', '{"time": 2, "other": 1, "other": 2}')
    rows, rejected = read(tmp_path / "x.json", *lines)
    assert [time for time, _, _, _ in rows] == ["1", "2"]
    assert not rejected


VALUES = (
    st.none()
    | st.booleans().map(lambda value: str(value).lower())
    | st.integers(-(10**30), 10**30).map(str)
    | st.floats(allow_nan=False, allow_infinity=False).map(repr)
    | st.sampled_from(("1e3", "1E5", "100000000000000000000.0", "-0", "-0.0", "1.50", "1e-7"))
    | st.sampled_from(('""', '" a "', '"1e3"', '"née"', '"true"'))
)


@given(st.lists(VALUES, min_size=1, max_size=5))
def test_a_wrong_line_does_not_change_what_the_others_say(tmp_path_factory, values):
    """Pieces with a wrong line are read by the json module, all others by polars."""
    folder = tmp_path_factory.mktemp("lines")
    lines = [row(value or "null") for value in values]
    fast, none = read(folder / "x.json", *lines)
    slow, one = read(folder / "x.json", *lines, "wrong")
    assert (fast, none) == (slow, {})
    assert one == {NO_OBJECT: (f"x.json:{len(lines) + 1}",)}


def test_lines_without_escapes_are_read_by_polars(tmp_path, monkeypatch):
    monkeypatch.setattr(json_lines, "_row_by_row", None)
    rows, _ = read(tmp_path / "x.json", row('"a"'), row('"née"'))
    assert len(rows) == 2
