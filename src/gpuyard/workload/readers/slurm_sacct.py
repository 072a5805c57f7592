"""Output of Slurm's sacct as text: fields between pipes, other marks, or in columns of fixed width."""

import csv
import io
import re
from collections.abc import Sequence
from pathlib import Path

import polars as pl
from pydantic import field_validator

from gpuyard.errors import InputError, setting
from gpuyard.registry import register
from gpuyard.workload.chunks import line_chunks, read_head
from gpuyard.workload.formats import JOBS, Trace, TraceFiles
from gpuyard.workload.importing import ImportLog
from gpuyard.workload.readers.slurm_layouts import (
    HOLD_COMMAS,
    Layout,
    cut_off_names,
    field_names,
    find_layout,
)
from gpuyard.workload.readers.slurm_records import FIELDS, SlurmOptions, SlurmRecords, check_fields

_UNIT = "\x1f"
"""Stands between fields that were quoted: ASCII's own mark for that, which no value holds."""

_MAY_BE_CUT = {"state", "jobname"}
"""Columns that are still understood if they end in the + of a value that was cut off."""

_NAMES = {
    name.lower(): name for name in ("JobID", "AllocTRES", "ReqTRES", "AllocGRES", "ReqGRES", "NodeList")
}


class SacctOptions(SlurmOptions):
    """How the text is divided into fields, and how records become jobs."""

    fields: str | None = None
    """Names of the fields in their order, between commas, for output without a header (sacct -n)."""
    delimiter: str | None = None
    r"""What stands between fields; \t is a tab. None finds it."""

    @field_validator("delimiter")
    @classmethod
    def _check_delimiter(cls, mark: str | None) -> str | None:
        if mark is not None and not re.fullmatch(r'\\t|[^\w"\r\n]{1,8}', mark):
            raise ValueError(f"{mark!r} is no delimiter; expected signs such as | or ; or \\t")
        return mark


@register("workload-format", "slurm-sacct")
class SlurmSacct:
    """Output of Slurm's sacct: --parsable2, other delimiters, fixed width, XDMoD's and AWS' orders."""

    Options = SacctOptions

    @staticmethod
    def role_of(head: bytes, name: str) -> str | None:
        """Names of sacct's fields, or values that only sacct writes together."""
        return JOBS if find_layout(head) else None

    @staticmethod
    def read(files: TraceFiles, log: ImportLog, options: SacctOptions) -> Trace:
        """Read one or several outputs; steps are merged into their jobs."""
        records = SlurmRecords(log, options)
        for path in files[JOBS]:
            layout = _layout(path, options)
            check_fields(set(layout.names), options, f"{path}, line 1")
            for lines in line_chunks(path, strip=layout.delimiter == "|"):
                records.add(_fields(lines, layout, path, log), path.name)
        return Trace(records.workload("slurm-sacct", list(files[JOBS])))


def _layout(path: Path, options: SacctOptions) -> Layout:
    """How this file lists its fields.

    Raises:
        InputError: if it does not say, with how to say it.
    """
    delimiter = options.delimiter and options.delimiter.replace("\\t", "\t")
    names = field_names(options.fields.split(",")) if options.fields else ()
    layout = find_layout(read_head(path), names, delimiter)
    if layout is None:
        raise InputError(
            f"{path}, line 1: is no output of sacct; expected names such as JobID|Submit|Elapsed or "
            "fields between '|' in a known order; run sacct with --parsable2 and a header"
        )
    if not layout.names:
        raise InputError(
            f"{path}, line 1: holds values of sacct without the line of their names; run sacct without -n "
            f"(--noheader), or name them in order with {setting('option.fields', 'JobID,User,State,...')}"
        )
    if cut := cut_off_names(layout):
        raise InputError(
            f"{path}, line 1: the column {cut[0].capitalize()}+ is too narrow for its name and values; "
            "run sacct with --parsable2 (-P)"
        )
    if layout.delimiter == ",":
        _check_commas(path, layout)
    return layout


def _check_commas(path: Path, layout: Layout) -> None:
    """Refuse commas between fields where values hold commas and are not quoted.

    Raises:
        InputError: saying how to ask sacct for another delimiter.
    """
    lines = read_head(path).decode("utf-8-sig", errors="replace").split("\n")[:-1]
    holding = [_NAMES.get(name, name) for name in layout.names if name in HOLD_COMMAS]
    wide = (n for n, line in enumerate(lines, 1) if len(_unquoted(line, ",")) > len(layout.names) + 1)
    if holding and (line := next(wide, None)):
        raise InputError(
            f"{path}, line {line}: has more fields than the {len(layout.names)} names, because values of "
            f"{', '.join(holding)} hold commas, too; run sacct with --parsable2 and without --delimiter=,"
        )


def _fields(lines: pl.DataFrame, layout: Layout, path: Path, log: ImportLog) -> pl.DataFrame:
    """Records as text columns, with ``line``; lines with another number of fields are rejected."""
    if layout.header:
        bare = lines["text"].str.strip_prefix("\ufeff").str.strip_chars()
        lines = lines.filter(bare != layout.header)  # also where outputs were joined
    if layout.spans:
        return _columns(lines, layout, path, log)
    log.read(lines.height)
    text, mark = lines["text"], layout.delimiter
    text = text.str.strip_suffix(mark) if layout.ends_open else text
    if mark != "|" and text.str.contains('"', literal=True).any():
        text = pl.Series("text", [_UNIT.join(_unquoted(line, mark)) for line in text], dtype=pl.String)
        mark = _UNIT
    text = _without_free_text(text, layout, mark)
    fits = text.str.count_matches(mark, literal=True) == len(layout.names) - 1
    log.reject(f"another number of fields than {len(layout.names)}", path.name, lines.filter(~fits)["line"])
    frame = _split(text.filter(fits), layout.names, mark)
    return _stripped(frame).with_columns(lines.filter(fits)["line"])


def _stripped(frame: pl.DataFrame) -> pl.DataFrame:
    frame = frame.with_columns(pl.all().str.strip_chars())
    return frame.with_columns(pl.when(pl.all() != "").then(pl.all()))


def _unquoted(line: str, mark: str) -> list[str]:
    """The fields of a line in which quotes may hold the mark."""
    if len(mark) > 1:
        return line.split(mark)
    try:
        return next(csv.reader([line.rstrip("\r")], delimiter=mark), [])
    except csv.Error:  # a field longer than csv takes
        return line.split(mark)


def _columns(lines: pl.DataFrame, layout: Layout, path: Path, log: ImportLog) -> pl.DataFrame:
    """Columns of fixed width.

    Raises:
        InputError: if a value that is needed was cut off, and the import is strict.
    """
    lines = lines.filter(~pl.col("text").str.strip_chars().str.contains(r"^-+( +-+)+$"))
    log.read(lines.height)
    starts = [start for start, _ in layout.spans]
    ends = [end for _, end in layout.spans]
    ends[-1] = 10_000  # the last column may go on
    between = pl.concat_str(
        pl.col("text").str.slice(end, start - end) for end, start in zip(ends[:-1], starts[1:], strict=True)
    )
    straight = lines.select(between.str.strip_chars() == "").to_series()
    log.reject(
        "columns are not where the line of dashes has them", path.name, lines.filter(~straight)["line"]
    )
    lines = lines.filter(straight)
    frame = lines.select(
        pl.col("text").str.slice(start, end - start).alias(name)
        for name, start, end in zip(layout.names, starts, ends, strict=True)
        if name in FIELDS
    )
    return _whole(_stripped(frame).with_columns(lines["line"]), path, log)


def _whole(frame: pl.DataFrame, path: Path, log: ImportLog) -> pl.DataFrame:
    """Without the rows in which a value ends in the + of what sacct cut off."""
    for name in frame.columns:
        if name == "line" or name in _MAY_BE_CUT:
            continue
        cut = frame[name].str.ends_with("+").fill_null(False)
        if cut.any():
            first, shown = frame.filter(cut).select("line", name).row(0), _NAMES.get(name, name.capitalize())
            log.ambiguous(
                f"{path}, line {first[0]}: {shown} is {first[1]!r}, which sacct cut off at the width of the "
                "column",
                f"such rows may be left out ({int(cut.sum())} here)",
                f"run sacct with --parsable2 (-P), or with a wider column ({shown}%80)",
            )
            log.reject(f"{shown} is cut off", path.name, frame.filter(cut)["line"])
            frame = frame.filter(~cut)
    return frame


def _without_free_text(text: pl.Series, layout: Layout, mark: str) -> pl.Series:
    """The separators in names of jobs are no separators: such names are left out, as nobody reads them."""
    place = layout.free_text
    if place is None or len(mark) > 1:
        return text
    wide = text.str.count_matches(mark, literal=True) >= len(layout.names)
    if not wide.any():
        return text
    before, behind = place, len(layout.names) - 1 - place
    one = re.escape(mark)
    pattern = rf"^((?:[^{one}]*{one}){{{before}}}).*?((?:{one}[^{one}]*){{{behind}}})$"
    return text.zip_with(~wide, text.str.replace(pattern, "${1}${2}"))


def _split(text: pl.Series, names: Sequence[str], mark: str) -> pl.DataFrame:
    """The fields that are read. Every line has as many as there are names."""
    places = [place for place, name in enumerate(names) if name in FIELDS]
    wanted = [names[place] for place in places]
    if len(text) == 0:
        return pl.DataFrame(schema=dict.fromkeys(wanted, pl.String))
    try:
        frame = pl.read_csv(
            io.BytesIO("\n".join(text).encode()),
            has_header=False,
            separator=mark,
            quote_char=None,
            infer_schema=False,
            columns=places,
        )
    except (pl.exceptions.PolarsError, pl.exceptions.PanicException, ValueError):
        frame = pl.DataFrame()
    if frame.shape != (len(text), len(places)):
        fields = text.str.splitn(mark, len(names)).struct.unnest()
        frame = fields.select(f"field_{place}" for place in places)
    return frame.rename(dict(zip(frame.columns, wanted, strict=True)))
