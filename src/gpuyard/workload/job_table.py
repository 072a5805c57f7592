"""gpuyard's own format: the job table as CSV, CSV.gz or parquet."""

import csv
import io
import zlib
from collections.abc import Callable
from pathlib import Path

import polars as pl
from pydantic import BaseModel, ConfigDict, ValidationError

from gpuyard.config import refusal
from gpuyard.errors import InputError, setting
from gpuyard.files import atomic_write, check_target
from gpuyard.registry import register, suggest
from gpuyard.workload.chunks import open_bytes
from gpuyard.workload.formats import JOBS, Trace, TraceFiles
from gpuyard.workload.importing import ImportLog
from gpuyard.workload.schema import COLUMN, Where, Workload, WorkloadMetadata, make_workload

_PARQUET_MAGIC = b"PAR1"
_METADATA_KEY = "gpuyard"
_CHECKSUM_KEY = "gpuyard-checksum"
_SUFFIXES = (".csv", ".csv.gz", ".parquet")

Pick = Callable[[pl.DataFrame], pl.DataFrame]
"""Chooses columns of what a file holds."""


class NativeOptions(BaseModel):
    """What of a job table is read."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    ignore: str = ""
    """Names of columns to leave out, between commas; * leaves out all that the job table does not have."""


@register("workload-format", "native")
class NativeFormat:
    """The native job table (docs/formats/job-table.md): CSV (also gzip-compressed) or parquet."""

    Options = NativeOptions

    @staticmethod
    def role_of(head: bytes, name: str) -> str | None:
        """Parquet by its magic; CSV if its header has a column of ours that no other format has."""
        ours = not {"submit_s", "duration_s"}.isdisjoint(_header(head))
        return JOBS if head.startswith(_PARQUET_MAGIC) or ours else None

    @staticmethod
    def read(files: TraceFiles, log: ImportLog, options: NativeOptions) -> Trace:
        """Read either form; parquet also brings back the metadata. A row is right, or the file is refused."""
        if len(files[JOBS]) > 1:
            raise InputError(f"{files[JOBS][1]}: the native format is one file; merge workloads instead")
        path = files[JOBS][0]
        with open_bytes(path) as file:
            data = file.read()
        read = _read_parquet if data.startswith(_PARQUET_MAGIC) else _read_csv
        workload = read(path, data, lambda frame: _known_columns(frame, path, log, options))
        log.read(len(workload))
        return Trace(workload)


def _known_columns(frame: pl.DataFrame, path: Path, log: ImportLog, options: NativeOptions) -> pl.DataFrame:
    """The frame without columns that are to be ignored, or that a lenient import may ignore.

    Raises:
        InputError: for a column that the job table does not have, if the import is strict.
    """
    unknown = [name for name in frame.columns if name not in COLUMN]
    ignored = set(unknown if options.ignore == "*" else options.ignore.split(","))
    left = [name for name in unknown if name not in ignored]
    if left:
        more = f" ({len(left) - 1} more unknown: {', '.join(left[1:6])})" if len(left) > 1 else ""
        log.ambiguous(
            f"{path}: unknown column {left[0]!r}{suggest(left[0], COLUMN)}{more}",
            "it may be left out",
            f"rename the column, remove it, or leave it out with {setting('option.ignore', ','.join(left))}",
        )
    return frame.drop(*left, *(name for name in frame.columns if name in ignored))


def write_workload(workload: Workload, path: str | Path) -> None:
    """Write the native format, chosen by the suffix: .csv, .csv.gz or .parquet.

    The file appears whole or not at all.
    Parquet keeps everything. CSV keeps all values exactly, but not the metadata, and leaves out columns that
    hold nothing but defaults.

    Raises:
        InputError: for another suffix or a directory that does not exist.
    """
    path = Path(path)
    check_suffix(path)
    with atomic_write(path) as temporary:
        if path.suffix == ".parquet":
            metadata = {
                _METADATA_KEY: workload.metadata.model_dump_json(),
                _CHECKSUM_KEY: _checksum(workload.frame),
            }
            workload.frame.write_parquet(temporary, metadata=metadata)
        else:
            _csv_frame(workload.frame).write_csv(
                temporary,
                compression="gzip" if path.suffix == ".gz" else "uncompressed",
                check_extension=False,
            )


def check_suffix(path: Path) -> None:
    """Refuse the name of a file that ``write_workload`` could not write, before long work is done for it.

    Raises:
        InputError: naming the suffixes there are, or what is in the way.
    """
    if not path.name.endswith(_SUFFIXES):
        raise InputError(f"{path}: unknown kind of file; give a name that ends in {' or '.join(_SUFFIXES)}")
    check_target(path)


def _csv_frame(frame: pl.DataFrame) -> pl.DataFrame:
    """Only columns that say something, lists as ``a|b``."""
    kept = [name for name in frame.columns if COLUMN[name].required or not _is_default(frame, name)]
    return frame.select(kept).with_columns(pl.col(pl.List(pl.String)).list.join("|"))


def _is_default(frame: pl.DataFrame, name: str) -> bool:
    if name == "row":
        return bool((frame["row"] == pl.int_range(frame.height, eager=True)).all())
    return COLUMN[name].is_default(frame[name])


def _read_parquet(path: Path, data: bytes, pick: Pick) -> Workload:
    try:
        frame = pl.read_parquet(io.BytesIO(data))
        kept = pl.read_parquet_metadata(io.BytesIO(data))
    except (pl.exceptions.PolarsError, pl.exceptions.PanicException, OSError, ValueError) as error:
        raise InputError(
            f"{path}: is a damaged or cut-off parquet file ({_first_line(error)}); fetch it again"
        ) from None
    if _CHECKSUM_KEY in kept and kept[_CHECKSUM_KEY] != _checksum(frame):
        raise InputError(
            f"{path}: is damaged: its jobs are not those that were written; fetch it or import its trace "
            f"again (if they were changed on purpose: write them without the metadata {_CHECKSUM_KEY!r})"
        )
    frame = pick(frame)
    where, stored = Where(str(path)), kept.get(_METADATA_KEY)
    if stored is None:
        return make_workload(frame, name=path.stem, source=str(path), where=where)
    try:
        metadata = WorkloadMetadata.model_validate_json(stored)
    except ValidationError as error:
        place = f"{path}, parquet metadata {_METADATA_KEY!r}"
        raise InputError(f"{refusal(error, place)}; write the file again") from None
    return make_workload(
        frame,
        name=metadata.name,
        origin_s=metadata.origin_s,
        epoch_s=metadata.epoch_s,
        source=metadata.source,
        history=metadata.history,
        where=where,
    )


def _checksum(frame: pl.DataFrame) -> str:
    """Of all numbers, and of the lengths of texts: parquet itself does not notice a flipped bit."""
    checksum = 0
    for name, dtype in frame.schema.items():
        column = frame[name]
        if isinstance(dtype, pl.List):
            column = column.list.len()
        elif not dtype.is_numeric():
            column = column.cast(pl.String).str.len_bytes()
        for part in (column.is_null(), column.fill_null(0)):
            checksum = zlib.crc32(part.to_numpy().tobytes(), checksum)
    return f"{checksum:08x}"


def _read_csv(path: Path, data: bytes, pick: Pick) -> Workload:
    """Every field is read as text, so that errors can show what the file says."""
    header = _header(data)
    repeated = next((name for i, name in enumerate(header) if name in header[:i]), None)
    if repeated is not None:
        raise InputError(f"{path}, line 1: column {repeated!r} appears twice; remove one of them")
    try:
        frame = pl.read_csv(io.BytesIO(data), infer_schema=False, new_columns=header)
    except (pl.exceptions.PolarsError, pl.exceptions.PanicException, ValueError) as error:
        _check_widths(path, data, len(header))
        raise InputError(
            f"{path}: cannot be read as CSV ({_first_line(error)}); check its quotes and encoding (UTF-8)"
        ) from None
    blank = frame.select(pl.all_horizontal(pl.all().is_null())).to_series()
    commas = (frame.height - int(blank.sum()) + 1) * (len(header) - 1)
    if b'"' in data or data.count(b",") != commas:
        _check_widths(path, data, len(header))
    jobs = frame.filter(~blank)
    where = Where(str(path), lambda position: f"line {_line(frame, blank, position)}")
    name = path.name.removesuffix(".gz").removesuffix(".csv")
    return make_workload(pick(jobs), name=name, source=str(path), where=where)


def _header(data: bytes) -> list[str]:
    """Names in the first line, as far as it is text."""
    first = data[: 64 * 1024].split(b"\n", 1)[0].decode("utf-8-sig", errors="replace")
    try:
        names = next(csv.reader([first.rstrip("\r")]), [])
    except csv.Error:
        return []
    return [name.strip() for name in names]


def _check_widths(path: Path, data: bytes, width: int) -> None:
    """Refuse the first line with too many or too few fields. Slow; called only when there may be one."""
    text = io.TextIOWrapper(io.BytesIO(data), encoding="utf-8-sig", errors="replace", newline="")
    reader = csv.reader(text)
    try:
        for fields in reader:
            if fields and len(fields) != width:
                raise InputError(
                    f"{path}, line {reader.line_num}: has {len(fields)} fields, expected {width} as in the "
                    "header; complete the line or quote text that contains commas"
                )
    except csv.Error:
        return  # a field too long for this reader; what polars made of it is checked like any other


def _line(frame: pl.DataFrame, blank: pl.Series, position: int) -> int:
    """Line in the file of the job at ``position``: blank lines and line breaks inside quotes count too."""
    index = int((~blank).arg_true()[position])
    before = frame.head(index)
    breaks = before.select(pl.sum_horizontal(pl.all().str.count_matches("\n", literal=True).sum())).item()
    return 2 + index + int(breaks or 0)


def _first_line(error: BaseException) -> str:
    return str(error).strip().split("\n", 1)[0][:200]
