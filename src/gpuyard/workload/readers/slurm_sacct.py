"""Pipe-separated output of Slurm's sacct, with a header or in one of two known orders."""

import io
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import polars as pl

from gpuyard.errors import InputError
from gpuyard.registry import register
from gpuyard.workload.chunks import line_chunks, read_head
from gpuyard.workload.formats import JOBS, Trace, TraceFiles
from gpuyard.workload.importing import ImportLog
from gpuyard.workload.readers.slurm_records import FIELDS, SlurmOptions, SlurmRecords, check_fields

XDMOD_ORDER = (
    "jobid", "jobidraw", "cluster", "partition", "qos", "account", "group", "gid", "user", "uid", "submit",
    "eligible", "start", "end", "elapsed", "exitcode", "state", "nnodes", "ncpus", "reqcpus", "reqmem",
    "reqtres", "alloctres", "timelimit", "nodelist", "jobname",
)  # fmt: skip
"""Without a header: the order in which XDMoD asks for them (--parsable2 --noheader --duplicates)."""

AWS_ORDER = (
    "state", "jobid", "reqcpus", "reqmem", "reqnodes", "constraints", "submit", "eligible", "start",
    "elapsed", "suspended", "end", "exitcode", "derivedexitcode", "nnodes", "ncpus", "maxdiskread",
    "maxdiskwrite", "maxpages", "maxrss", "maxvmsize", "cputime", "usercpu", "systemcpu", "totalcpu",
)  # fmt: skip
"""Without a header: the order of the HPC cost simulator's first version; the second adds the partition."""

_OTHER_NAMES = {"jobidraw": "jobid", "allocnodes": "nnodes", "alloccpus": "ncpus"}
_FREE_TEXT = {"jobname", "comment", "admincomment", "systemcomment", "submitline", "workdir", "extra"}
_TIME = r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\S*|\d{9,10}|Unknown|None"
_SIGNS = {
    "jobid": r"\d+[_.+\w\[\],%:-]*",
    "state": r"[A-Z_]+( by \S+)?",
    "submit": _TIME,
    "start": _TIME,
}
"""Fields that tell an order without a header, and their forms."""

_LINES_TO_LOOK_AT = 20


@dataclass(frozen=True)
class Layout:
    """The order of the fields.

    Attributes:
        names: In lower case, without repetitions.
        header: The line that gave them; empty if they are known without.
        ends_open: Whether every line ends with a separator, as --parsable has it.
    """

    names: tuple[str, ...]
    header: str = ""
    ends_open: bool = False

    @property
    def free_text(self) -> int | None:
        """Position of the one field that may contain the separator; None if several may."""
        places = [place for place, name in enumerate(self.names) if name in _FREE_TEXT]
        return places[0] if len(places) == 1 else None


@register("workload-format", "slurm-sacct")
class SlurmSacct:
    """Output of Slurm's sacct --parsable2: with a header in any order, or headerless as XDMoD's or AWS'."""

    Options = SlurmOptions

    @staticmethod
    def role_of(head: bytes, name: str) -> str | None:
        """Names of sacct's fields between pipes, or fields in a known order."""
        return JOBS if _layout(head) else None

    @staticmethod
    def read(files: TraceFiles, log: ImportLog, options: SlurmOptions) -> Trace:
        """Read one or several outputs; steps are merged into their jobs."""
        records = SlurmRecords(log, options)
        for path in files[JOBS]:
            layout = _layout(read_head(path))
            if layout is None:
                raise InputError(
                    f"{path}, line 1: is no output of sacct; expected names such as JobID|Submit|Elapsed or "
                    "fields between '|' in a known order; run sacct with --parsable2 and a header"
                )
            check_fields(set(layout.names), options, f"{path}, line 1")
            for lines in line_chunks(path):
                records.add(_fields(lines, layout, path, log), path.name)
        return Trace(records.workload("slurm-sacct", list(files[JOBS])))


def _layout(head: bytes) -> Layout | None:
    """The order of the fields, by the first line that tells one."""
    lines = head.decode("utf-8-sig", errors="replace").split("\n")
    stripped = [line.strip() for line in lines if line.strip()]
    for line in stripped[:_LINES_TO_LOOK_AT]:
        if found := _from_header(line) or _from_values(line):
            return found
    return None


def _from_header(line: str) -> Layout | None:
    fields = [field.strip().lower() for field in line.split("|")]
    ends_open = len(fields) > 1 and not fields[-1]
    if ends_open:
        fields.pop()
    known = set(fields) & {*FIELDS, *XDMOD_ORDER, *AWS_ORDER, *_OTHER_NAMES}
    if known.isdisjoint({"jobid", "jobidraw"}) or len(known) < 3:
        return None
    return Layout(_unrepeated(fields), line, ends_open)


def _unrepeated(fields: Sequence[str]) -> tuple[str, ...]:
    """Names by which fields are read: the first of each, and another name only where the usual is absent."""
    names: list[str] = []
    for field in fields:
        usual = _OTHER_NAMES.get(field, field)
        name = field if usual in fields else usual
        names.append(f"{field}#{len(names)}" if name in names else name)
    return tuple(names)


def _from_values(line: str) -> Layout | None:
    fields = line.split("|")
    for order in (XDMOD_ORDER, AWS_ORDER, (*AWS_ORDER, "partition")):
        fits = len(fields) == len(order) or (order is XDMOD_ORDER and len(fields) > len(order))
        if fits and all(re.fullmatch(form, fields[order.index(name)]) for name, form in _SIGNS.items()):
            return Layout(order)
    return None


def _fields(lines: pl.DataFrame, layout: Layout, path: Path, log: ImportLog) -> pl.DataFrame:
    """Records as text columns, with ``line``; lines with another number of fields are rejected."""
    if layout.header:
        bare = lines["text"].str.strip_prefix("\ufeff").str.strip_chars()
        lines = lines.filter(bare != layout.header)  # also where outputs were joined
    log.read(lines.height)
    text = lines["text"].str.strip_suffix("|") if layout.ends_open else lines["text"]
    text = _without_free_text(text, layout)
    fits = text.str.count_matches("|", literal=True) == len(layout.names) - 1
    log.reject(f"another number of fields than {len(layout.names)}", path.name, lines.filter(~fits)["line"])
    frame = _split(text.filter(fits), layout.names)
    frame = frame.with_columns(pl.all().str.strip_chars())
    frame = frame.with_columns(pl.when(pl.all() != "").then(pl.all()))
    return frame.with_columns(lines.filter(fits)["line"])


def _without_free_text(text: pl.Series, layout: Layout) -> pl.Series:
    """The separators in names of jobs are no separators: such names are left out, as nobody reads them."""
    place = layout.free_text
    if place is None:
        return text
    wide = text.str.count_matches("|", literal=True) >= len(layout.names)
    if not wide.any():
        return text
    before, behind = place, len(layout.names) - 1 - place
    pattern = rf"^((?:[^|]*\|){{{before}}}).*?((?:\|[^|]*){{{behind}}})$"
    return text.zip_with(~wide, text.str.replace(pattern, "${1}${2}"))


def _split(text: pl.Series, names: Sequence[str]) -> pl.DataFrame:
    """The fields that are read. Every line has as many as there are names."""
    places = [place for place, name in enumerate(names) if name in FIELDS]
    wanted = [names[place] for place in places]
    if len(text) == 0:
        return pl.DataFrame(schema=dict.fromkeys(wanted, pl.String))
    try:
        frame = pl.read_csv(
            io.BytesIO("\n".join(text).encode()),
            has_header=False,
            separator="|",
            quote_char=None,
            infer_schema=False,
            columns=places,
        )
    except (pl.exceptions.PolarsError, pl.exceptions.PanicException, ValueError):
        frame = pl.DataFrame()
    if frame.shape != (len(text), len(places)):
        fields = text.str.splitn("|", len(names)).struct.unnest()
        frame = fields.select(f"field_{place}" for place in places)
    return frame.rename(dict(zip(frame.columns, wanted, strict=True)))
