"""How an output of sacct lists its fields: by which names, in which order, and between what."""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from gpuyard.workload.readers.slurm_records import FIELDS

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

HOLD_COMMAS = {"alloctres", "reqtres", "nodelist", "allocgres", "reqgres", "tresusageintot", "flags"}
"""Fields whose values hold commas."""

DELIMITERS = ("|", "\t", ";", ",")
"""What fields may stand between, in the order in which they are tried; sacct's own first."""

_OTHER_NAMES = {"jobidraw": "jobid", "allocnodes": "nnodes", "alloccpus": "ncpus"}
_FREE_TEXT = {"jobname", "comment", "admincomment", "systemcomment", "submitline", "workdir", "extra"}
_TIME = r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\S*|\d{9,10}|Unknown|None"
_ISO_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\S*")
_JOB_ID = re.compile(r"\d+(_\d+|_\[[^\]]*\])?(\+\d+)?(\.[\w+-]+)?")
_STATE = re.compile(
    r"COMPLETED|FAILED|TIMEOUT|CANCELLED( by \d+)?|CANCELLED\+|RUNNING|PENDING|NODE_FAIL|OUT_OF_ME\w*\+?"
    r"|PREEMPTED|REQUEUED|BOOT_FAIL|DEADLINE"
)
_SIGNS = {
    "jobid": r"\d+[_.+\w\[\],%:-]*",
    "state": r"[A-Z_]+( by \S+)?",
    "submit": _TIME,
    "start": _TIME,
}
"""Fields that tell an order without a header, and their forms."""

_RULER = re.compile(r" *-+( +-+){2,} *")
_LINES_TO_LOOK_AT = 20


@dataclass(frozen=True)
class Layout:
    """The order of the fields.

    Attributes:
        names: In lower case, without repetitions; empty if the values have no header and no known order.
        header: The line that gave them; empty if they are known without.
        ends_open: Whether every line ends with a separator, as --parsable has it.
        delimiter: What stands between fields; empty for columns of fixed width.
        spans: Of columns of fixed width: where they begin and end.
    """

    names: tuple[str, ...]
    header: str = ""
    ends_open: bool = False
    delimiter: str = "|"
    spans: tuple[tuple[int, int], ...] = ()

    @property
    def free_text(self) -> int | None:
        """Position of the one field that may contain the separator; None if several may."""
        places = [place for place, name in enumerate(self.names) if name in _FREE_TEXT]
        return places[0] if len(places) == 1 else None


def find_layout(head: bytes, fields: Sequence[str] = (), delimiter: str | None = None) -> Layout | None:
    """The order of the fields, by the first line that shows one.

    Args:
        head: How the file starts.
        fields: Names in the order of the values, for a file without a header.
        delimiter: What stands between fields; None finds it.
    """
    lines = head.decode("utf-8-sig", errors="replace").split("\n")
    lines = [line.rstrip("\r") for line in lines if line.strip()][:_LINES_TO_LOOK_AT]
    if fields:
        return _stated(lines, tuple(fields), delimiter)
    delimiters = DELIMITERS if delimiter is None else (delimiter,)
    if delimiter is None and (own := _own_delimiter(next(iter(lines), ""))):
        delimiters = (*delimiters, own)
    for place, line in enumerate(lines):
        ruler = lines[place + 1] if place + 1 < len(lines) else ""
        found = _from_ruler(line, ruler) if delimiter is None else None
        for candidate in delimiters:
            found = found or _from_header(line.strip(), candidate)
        if found := found or _from_values(line.strip()):
            return found
    signs = (_unnamed(line.strip(), candidate) for line in lines[:1] for candidate in delimiters)
    return next((layout for layout in signs if layout is not None), None)


def _own_delimiter(line: str) -> str | None:
    """What stands between all words of a line, if it is always the same and no blank."""
    marks = set(re.split(r"\w+", line.strip())[1:-1])
    return next(iter(marks)) if len(marks) == 1 and not any(map(str.isspace, marks)) else None


def field_names(texts: Sequence[str]) -> tuple[str, ...]:
    """Names as sacct's --format takes them, ``AllocTRES%80``, in lower case and without repetitions."""
    return _unrepeated([text.split("%", 1)[0].strip().lower() for text in texts])


def _stated(lines: Sequence[str], fields: tuple[str, ...], delimiter: str | None) -> Layout:
    """The layout of fields that the user names; a line with just these names is a header after all."""
    names = field_names(fields)
    line = next(iter(lines), "").strip()
    fits = [mark for mark in DELIMITERS if line.count(mark) in (len(names) - 1, len(names))]
    delimiter = delimiter or next(iter(fits), "|")
    ends_open = line.endswith(delimiter) and line.count(delimiter) == len(names)
    found = _from_header(line, delimiter)
    return Layout(names, line if found and found.names == names else "", ends_open, delimiter)


def _from_ruler(line: str, ruler: str) -> Layout | None:
    """Columns of fixed width: names, and below them a line of dashes as long as the columns are wide."""
    if not _RULER.fullmatch(ruler):
        return None
    spans = tuple((found.start(), found.end()) for found in re.finditer("-+", ruler))
    fields = [line[start:end].strip().lower() for start, end in spans]
    if not _is_header(fields):
        return None
    return Layout(_unrepeated(fields), line.strip(), delimiter="", spans=spans)


def _from_header(line: str, delimiter: str) -> Layout | None:
    fields = [field.strip().strip('"').strip().lower() for field in line.split(delimiter)]
    ends_open = len(fields) > 1 and not fields[-1]
    if ends_open:
        fields.pop()
    if not _is_header(fields) or (delimiter != "|" and "submit" not in fields):
        return None
    return Layout(_unrepeated(fields), line, ends_open, delimiter)


def cut_off_names(layout: Layout) -> list[str]:
    """Names of columns that are too narrow for them and that may be of fields that are read."""
    cut = [name.removesuffix("+") for name in layout.names if layout.spans and name.endswith("+")]
    return [name for name in cut if any(field.startswith(name) for field in (*FIELDS, *_OTHER_NAMES))]


def _is_header(fields: Sequence[str]) -> bool:
    known = set(fields) & {*FIELDS, *XDMOD_ORDER, *AWS_ORDER, *_OTHER_NAMES}
    return not known.isdisjoint({"jobid", "jobidraw"}) and len(known) >= 3


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


def _unnamed(line: str, delimiter: str) -> Layout | None:
    """Values of sacct without a header: a job's id, a state and a time are among them."""
    fields = [field.strip().strip('"') for field in line.split(delimiter)]
    signs = (_JOB_ID, _STATE, _ISO_TIME)
    if len(fields) < 4 or not all(any(map(sign.fullmatch, fields)) for sign in signs):
        return None
    return Layout((), delimiter=delimiter)
