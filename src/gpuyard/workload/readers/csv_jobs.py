"""What readers of CSV job logs share: the header, times, statuses and rows that cannot become jobs."""

import csv
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

import polars as pl

from gpuyard.errors import InputError
from gpuyard.workload.chunks import csv_chunks, read_head
from gpuyard.workload.formats import JOBS, TraceFiles
from gpuyard.workload.importing import ImportLog
from gpuyard.workload.readers.row_checks import MAX_COUNT, finite_or_null, keep_valid
from gpuyard.workload.schema import MAX_TIME_S, STATUSES, Step, Where, Workload, make_workload

NO_VALUE = ("None", "none", "NULL", "null", "NaN", "nan", "NaT", "N/A", "Unknown")
"""How logs write that they know nothing, besides leaving the field empty."""

TIME_FORM = "YYYY-MM-DD HH:MM:SS"
_NAIVE, _FRACTION, _ZONED = "%Y-%m-%d %H:%M:%S", "%Y-%m-%d %H:%M:%S%.f", "%Y-%m-%d %H:%M:%S%.f%#z"

Rule = tuple[str, pl.Expr]
"""Why a row becomes no job, and the condition that says so."""


def csv_header(head: bytes) -> list[str]:
    """The names in the first line; none if it has no end or is not text."""
    first, newline, _ = head.partition(b"\n")
    if not newline or b"\0" in first:
        return []
    try:
        names = next(csv.reader([first.decode("utf-8-sig", errors="replace").rstrip("\r")]), [])
    except csv.Error:
        return []
    names = [name.strip() for name in names]
    while names and not names[-1]:
        names.pop()
    return names


def csv_parts(
    path: Path, log: ImportLog, columns: Sequence[str], convert: Callable[[pl.DataFrame], pl.DataFrame]
) -> pl.DataFrame:
    """All jobs of a CSV file with a header, converted piece by piece.

    Args:
        path: The file.
        log: Where rows are counted.
        columns: Names that the header must have.
        convert: From a piece (text fields and ``line``) to native columns.

    Raises:
        InputError: if a column is missing or repeated, or no job is left.
    """
    _check_header(path, columns)
    parts = [convert(piece.select(*columns, "line")) for piece in csv_chunks(path, log)]
    jobs = pl.concat(parts) if parts else pl.DataFrame()
    if jobs.height == 0:
        raise log.nothing_left(str(path))
    return jobs


def _check_header(path: Path, columns: Sequence[str]) -> None:
    names = csv_header(read_head(path))
    missing = [name for name in columns if name not in names]
    if missing:
        found = ", ".join(names)[:200] or "no header"
        raise InputError(
            f"{path}, line 1: column {missing[0]} is missing; expected a header with "
            f"{', '.join(columns)}, separated by commas; found: {found}. Check the file or its format"
        )
    repeated = next((name for i, name in enumerate(names) if name in names[:i]), None)
    if repeated is not None:
        raise InputError(f"{path}, line 1: column {repeated!r} appears twice; remove one of them")


def only_file(files: TraceFiles, role: str = JOBS) -> Path:
    """The one file of a role.

    Raises:
        InputError: if there are several.
    """
    if len(files[role]) > 1:
        raise InputError(f"{files[role][1]}: is a second file of {role}; import one trace at a time")
    return files[role][0]


def without(frame: pl.DataFrame, rules: Sequence[Rule], path: Path, log: ImportLog) -> pl.DataFrame:
    """The rows that no rule rejects; the first rule that fits a row gives its reason."""
    return keep_valid(frame, rules, path.name, log)


def note_repairs(frame: pl.DataFrame, rules: Iterable[Rule], path: Path, log: ImportLog) -> None:
    """Write down which rows were changed, and how."""
    for reason, condition in rules:
        changed = _fits(frame, condition)
        if changed.any():
            log.repair(reason, path.name, frame.filter(changed)["line"])


def _fits(frame: pl.DataFrame, condition: pl.Expr) -> pl.Series:
    return frame.select(condition.fill_null(False)).to_series()


def epoch_seconds(texts: pl.Series) -> pl.Series:
    """Times such as ``2020-04-01 08:00:00`` or ``2023-03-01 00:00:10+08:00`` as Unix seconds, else null.

    A time without an offset is taken as UTC; a reader whose log has such times says so.
    """
    seconds = _parsed_times(texts, _NAIVE)
    for form in (_ZONED, _FRACTION):
        # Only what is left, as nearly every log keeps to one form.
        if seconds.null_count() > texts.null_count():
            seconds = seconds.zip_with(seconds.is_not_null(), _parsed_times(texts, form))
    return seconds


def _parsed_times(texts: pl.Series, form: str) -> pl.Series:
    # cache=False: three times faster here, as times of a log hardly repeat.
    times = texts.str.to_datetime(form, time_unit="us", strict=False, cache=False)
    return times.to_physical().cast(pl.Float64) / 1e6


def with_times(frame: pl.DataFrame, *names: str) -> pl.DataFrame:
    """The frame with ``<name>_at``, Unix seconds, beside each of the named columns."""
    return frame.with_columns(epoch_seconds(frame[name]).alias(f"{name}_at") for name in names)


def says_something(name: str) -> pl.Expr:
    """Whether a text field holds a value at all."""
    return pl.col(name).is_not_null() & ~pl.col(name).is_in(NO_VALUE)


def unreadable_times(*names: str) -> list[Rule]:
    """Rows where one of these (see ``with_times``) says something that is no time."""
    return [
        (f"{name} is not a time ({TIME_FORM})", says_something(name) & pl.col(f"{name}_at").is_null())
        for name in names
    ]


def bad_submit(name: str) -> list[Rule]:
    """Rows without a submit time (see ``with_times``) that can be used."""
    at = pl.col(f"{name}_at")
    return [
        *unreadable_times(name),
        (f"no {name}", at.is_null()),
        (f"{name} is before 1970 or after 2105", (at < 0) | (at > MAX_TIME_S)),
    ]


def bad_arrival(name: str) -> list[Rule]:
    """Rows whose arrival, made by ``number``, cannot be used."""
    value = pl.col(name)
    return [
        (f"{name} is not a number of seconds", value.is_null()),
        (f"{name} is negative or more than {MAX_TIME_S:.0f} s", (value < 0) | (value > MAX_TIME_S)),
    ]


def number(name: str) -> pl.Expr:
    """A text field as a finite number, null if it is none."""
    return finite_or_null(pl.col(name))


def bad_count(name: str, low: int = 0) -> Rule:
    """Rows where a column, made by ``number``, is no whole number of GPUs or CPUs."""
    value = pl.col(name)
    out = value.is_null() | (value < low) | (value > MAX_COUNT) | (value != value.round())
    return f"{name} is not a whole number from {low} to {MAX_COUNT}", out


def bad_duration(column: str, meaning: str) -> list[Rule]:
    """Rows where a column of seconds cannot be a run time."""
    value = pl.col(column)
    return [
        (f"{meaning} is not a number of seconds", value.is_null()),
        (f"never ran: {meaning} is not positive", value <= 0),
        (f"{meaning} is more than {MAX_TIME_S:.0f} s", value > MAX_TIME_S),
    ]


class StatusMap:
    """A log's words for how a job ended, as ours; remembers those it does not know.

    Args:
        column: The log's name of the column.
        known: Ours by the log's words.
    """

    def __init__(self, column: str, known: Mapping[str, str]) -> None:
        self._column = column
        self._known = dict(known)
        self._unknown: set[str] = set()

    def read(self, words: pl.Series) -> pl.Series:
        """The statuses; ``unknown`` for a word that is not known."""
        strange = words.filter(~words.is_in(list(self._known)))
        self._unknown.update(strange.drop_nulls().unique().head(100))
        statuses = words.replace_strict(self._known, default="unknown", return_dtype=pl.Enum(STATUSES))
        return statuses.fill_null("unknown").alias("status")

    def report(self, log: ImportLog) -> None:
        """Write down which words were not known."""
        if self._unknown:
            shown = ", ".join(repr(word[:40]) for word in sorted(self._unknown)[:5])
            log.assume(f"column {self._column}: {shown} and the like are read as status unknown")


def imported(jobs: pl.DataFrame, path: Path, settings: Mapping[str, object]) -> Workload:
    """The workload of an imported file.

    Args:
        jobs: Native columns.
        path: The file of jobs.
        settings: Format, files and options, for the history.
    """
    step = Step.model_validate({"name": "import", "settings": settings})
    name = path.name.removesuffix(".gz").removesuffix(".csv").removesuffix(".json")
    return make_workload(
        jobs, name=name or "workload", source=path.name, history=(step,), where=Where(str(path))
    )


def file_names(files: TraceFiles) -> list[str]:
    """Names of all files, for the history."""
    return [path.name for paths in files.values() for path in paths]
