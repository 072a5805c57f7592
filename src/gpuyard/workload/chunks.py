"""Text files in pieces of bounded size, decompressed on the way, with line numbers."""

import csv
import gzip
import io
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO

import polars as pl

from gpuyard.errors import InputError
from gpuyard.workload.importing import ImportLog

CHUNK_BYTES = 16 * 1024 * 1024
HEAD_BYTES = 64 * 1024
_GZIP_MAGIC = b"\x1f\x8b"


@contextmanager
def open_bytes(path: Path) -> Iterator[IO[bytes]]:
    """The file's content, decompressed if it is gzip.

    Raises:
        InputError: if the file is missing, a directory, unreadable, or a damaged gzip file.
    """
    try:
        with path.open("rb") as file:
            compressed = file.read(2) == _GZIP_MAGIC
            file.seek(0)
            with gzip.open(file) if compressed else file as content:
                yield content  # type: ignore[misc]
    except FileNotFoundError:
        raise InputError(f"{path}: there is no such file") from None
    except IsADirectoryError:
        raise InputError(f"{path}: is a directory; give a file") from None
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise InputError(f"{path}: is a damaged or cut-off gzip file ({error}); fetch it again") from None
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error})") from None


def read_head(path: Path) -> bytes:
    """The first ``HEAD_BYTES`` of the (decompressed) content."""
    with open_bytes(path) as file:
        return file.read(HEAD_BYTES)


def text_chunks(path: Path, *, quoted: bool = True) -> Iterator[tuple[int, bytes]]:
    """Whole lines in pieces of about ``CHUNK_BYTES``, each with the number of its first line (from 1).

    Args:
        path: The file.
        quoted: Whether double quotes may hold line breaks; then a piece never ends inside them.
    """
    line = 1
    with open_bytes(path) as file:
        rest = b""
        while data := file.read(CHUNK_BYTES):
            data = rest + data
            cut = data.rfind(b"\n") + 1
            if cut == 0 or (quoted and data.count(b'"', 0, cut) % 2):
                rest = data
                continue
            rest = data[cut:]
            yield line, data[:cut]
            line += data.count(b"\n", 0, cut)
        if rest:
            yield line, rest


def line_chunks(path: Path, *, strip: bool = True) -> Iterator[pl.DataFrame]:
    """The lines of a file in pieces: ``line``, its number, and ``text``; blank lines left out.

    Args:
        path: The file.
        strip: Whether blanks around a line are of no meaning.
    """
    for first_line, data in text_chunks(path, quoted=False):
        text = pl.Series("text", data.decode("utf-8", errors="replace").split("\n"), dtype=pl.String)
        line = pl.int_range(first_line, first_line + len(text), dtype=pl.Int64, eager=True).alias("line")
        bare = text.str.strip_chars()
        yield pl.DataFrame([line, bare if strip else text.str.strip_chars_end("\r")]).filter(bare != "")


def csv_chunks(
    path: Path, log: ImportLog, *, names: Sequence[str] | None = None, separator: str = ","
) -> Iterator[pl.DataFrame]:
    """A CSV file in pieces: every field as text (null if empty), and ``line``, the number of its line.

    Rows are counted in ``log``; those of another width are rejected there. Blank lines do not count.

    Args:
        path: The file.
        log: Where rows are counted.
        names: Names of the columns; None takes them from the first line.
        separator: One character.
    """
    for first_line, data in text_chunks(path):
        skip = 0
        if names is None:
            header, _, data = data.partition(b"\n")
            names = _header_names(header, separator)
            skip = 1
        yield _csv_frame(path, log, data, first_line + skip, list(names), separator)


def _header_names(header: bytes, separator: str) -> list[str]:
    text = header.decode("utf-8-sig", errors="replace").rstrip("\r")
    row = next(csv.reader([text], delimiter=separator), [])
    names = [name.strip() for name in row]
    while names and not names[-1]:
        names.pop()  # a trailing separator
    return names


def _csv_frame(
    path: Path, log: ImportLog, data: bytes, first_line: int, names: list[str], separator: str
) -> pl.DataFrame:
    regular = data.removesuffix(b"\n")
    lines = regular.count(b"\n") + 1 if regular else 0
    plain = regular.count(separator.encode()) == lines * (len(names) - 1) and b'"' not in data
    frame = _parsed(data, names, separator, first_line) if plain and lines else None
    if frame is None or frame.height != lines:
        frame = _parsed_row_by_row(path, log, data, names, separator, first_line)
    else:
        log.read(frame.height)
    return frame


def _parsed(data: bytes, names: list[str], separator: str, first_line: int) -> pl.DataFrame | None:
    """By polars, for lines that all have the right width; None if it finds otherwise."""
    try:
        frame = pl.read_csv(
            io.BytesIO(data),
            has_header=False,
            new_columns=names,
            separator=separator,
            infer_schema=False,
            quote_char=None,
            encoding="utf8-lossy",
        )
    except (pl.exceptions.PolarsError, pl.exceptions.PanicException, ValueError):
        return None
    if frame.width != len(names):
        return None
    if _has_loose_blanks(data, separator.encode()):
        frame = frame.with_columns(pl.all().str.strip_chars())
        frame = frame.with_columns(pl.when(pl.all() != "").then(pl.all()))
    return frame.with_columns(line=pl.int_range(first_line, first_line + frame.height, dtype=pl.Int64))


def _has_loose_blanks(data: bytes, separator: bytes) -> bool:
    """Whether any field may begin or end with a blank: cheaper to look for than to strip them all."""
    beside = (
        separator + b" ",
        b" " + separator,
        b"\n ",
        b" \n",
        b"\r",
        b"\t",
        b"\v",
        b"\f",
        b"\xc2",
        b"\xe2",
        b"\xe3",
    )
    return data.startswith(b" ") or data.endswith(b" ") or any(blank in data for blank in beside)


def _parsed_row_by_row(
    path: Path, log: ImportLog, data: bytes, names: list[str], separator: str, first_line: int
) -> pl.DataFrame:
    """By the csv module: slower, and exact about quotes, blank lines and lines of another width."""
    csv.field_size_limit(CHUNK_BYTES)
    text = io.TextIOWrapper(io.BytesIO(data), encoding="utf-8", errors="replace", newline="")
    reader = csv.reader(text, delimiter=separator)
    rows: list[list[str | None]] = []
    lines: list[int] = []
    misshapen: list[int] = []
    try:
        for row in reader:
            if not any(field.strip() for field in row):
                continue
            if len(row) == len(names) + 1 and not row[-1].strip():
                row.pop()  # a trailing separator
            line = first_line + reader.line_num - 1
            if len(row) != len(names):
                misshapen.append(line)
                continue
            rows.append([field.strip() or None for field in row])
            lines.append(line)
    except csv.Error as error:
        line = first_line + reader.line_num - 1
        raise InputError(f"{path}, line {line}: cannot be read as CSV ({error}); check its quotes") from None
    log.read(len(rows) + len(misshapen))
    log.reject(f"another number of fields than {len(names)}", path.name, misshapen)
    frame = pl.DataFrame(rows, schema=dict.fromkeys(names, pl.String), orient="row")
    return frame.with_columns(line=pl.Series(lines, dtype=pl.Int64))
