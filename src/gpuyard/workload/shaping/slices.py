"""Taking a part of a workload: by time, by count, by what jobs are, or at random."""

import math
import re
from collections.abc import Collection, Sequence
from datetime import UTC, datetime
from typing import Any, NamedTuple

import polars as pl

from gpuyard.errors import InputError
from gpuyard.registry import suggest
from gpuyard.units import duration
from gpuyard.workload.schema import STATUSES, Workload
from gpuyard.workload.shaping.config import Range
from gpuyard.workload.shaping.derive import (
    checked_share,
    date_text,
    derived,
    has_dates,
    span_of,
    without_recorded,
)
from gpuyard.workload.shaping.draws import THIN_STREAM, uniforms_by_row

MOMENT_GRAMMAR = "seconds (86400), a length of time (90m, 36h, 14d), a share of the span (20%) or a date"
_LENGTH = re.compile(r"(\d+(?:\.\d+)?)(s|m|h|d|w|%)?")
_UNIT_S = {None: 1, "s": 1, "m": 60, "h": 3600, "d": 86400, "w": 7 * 86400}


class Splits(NamedTuple):
    """A workload in three, by time."""

    train: Workload
    validation: Workload
    test: Workload


def between(workload: Workload, start_s: float | None = None, end_s: float | None = None) -> Workload:
    """Jobs submitted from ``start_s`` on and before ``end_s``, seconds from the workload's first submit.

    Args:
        workload: The jobs.
        start_s: None from the first job on.
        end_s: None to the last job, included.

    Raises:
        InputError: if the range is empty, lies outside the workload's span, or holds no job.
    """
    span_s = span_of(workload)
    start = 0.0 if start_s is None else start_s
    end = math.inf if end_s is None else end_s
    span = f"the workload's span is {span_s:.0f} s ({duration(span_s)})"
    asked = f"from {start:.0f} s " + ("on" if end_s is None else f"to {end:.0f} s")
    if not start < end:
        raise InputError(f"{asked} is no range: the start must lie before the end")
    if start > span_s or end <= 0:
        raise InputError(f"{asked} lies outside: {span}")
    frame = workload.frame.filter((pl.col("submit_s") >= start) & (pl.col("submit_s") < end))
    if frame.height == 0:
        raise InputError(f"no job was submitted {asked}; {span}")
    return derived(workload, frame, "between", {"start_s": start_s, "end_s": end_s})


def moment(workload: Workload, text: str) -> float:
    """Seconds from the workload's first submit, from what a person writes (``MOMENT_GRAMMAR``).

    A date is on the log's own clock, such as ``2020-09-01`` or ``2020-09-01T12:30``.

    Raises:
        InputError: if it cannot be read, or is a date and the workload's clock tells none.
    """
    if match := _LENGTH.fullmatch(text.strip()):
        value, unit = float(match[1]), match[2]
        if unit != "%":
            return value * _UNIT_S[unit]
        if value > 100:
            raise InputError(f"{text!r} is more than the whole span; give at most 100%")
        return span_of(workload) * value / 100
    try:
        date = datetime.fromisoformat(text.strip())
    except ValueError:
        raise InputError(f"cannot read {text!r} as a moment; expected {MOMENT_GRAMMAR}") from None
    if not has_dates(workload):
        raise InputError(
            f"{text!r} is a date, but the clock of {workload.metadata.name} tells none; "
            "give seconds, a length of time or a share of the span"
        )
    date = date if date.tzinfo else date.replace(tzinfo=UTC)
    return date.timestamp() - workload.metadata.epoch_s


def span_text(workload: Workload) -> str:
    """The span in words, with dates if the clock tells them."""
    span_s = span_of(workload)
    if not has_dates(workload):
        return duration(span_s)
    return f"{duration(span_s)}, {date_text(workload, 0.0)} to {date_text(workload, span_s)}"


def window(workload: Workload, start_row: int, count: int) -> Workload:
    """``count`` jobs from position ``start_row`` (the first job is 0).

    Raises:
        InputError: if the window is empty or does not lie within the workload.
    """
    if count < 1 or start_row < 0 or start_row + count > len(workload):
        raise InputError(
            f"a window of {count:,} jobs from position {start_row:,} does not lie within the "
            f"{len(workload):,} jobs of {workload.metadata.name}"
        )
    frame = workload.frame.slice(start_row, count)
    return derived(workload, frame, "window", {"start_row": start_row, "count": count})


def keep(
    workload: Workload,
    *,
    statuses: Collection[str] = (),
    groups: Collection[str] = (),
    users: Collection[str] = (),
    gpus: Range = (None, None),
    duration_s: Range = (None, None),
) -> Workload:
    """Jobs that are all of what is asked for; what is left out asks for nothing.

    Args:
        workload: The jobs.
        statuses: How they ended in the log.
        groups: Virtual clusters, queues or partitions.
        users: Who submitted them.
        gpus: Gang sizes, from and to, both included.
        duration_s: Durations, from and to, both included, seconds.

    Raises:
        InputError: for a name that no job has, a range upside down, or if no job is left.
    """
    for status in statuses:
        if status not in STATUSES:
            raise InputError(f"unknown status {status!r}{suggest(status, dict.fromkeys(STATUSES))}")
    _check_names(workload, "group", groups)
    _check_names(workload, "user", users)
    wanted = [
        pl.col(name).cast(pl.String).is_in(list(values))
        for name, values in (("status", statuses), ("group", groups), ("user", users))
        if values
    ]
    wanted += [*_within("gpus", gpus), *_within("duration_s", duration_s)]
    settings: dict[str, Any] = {
        "statuses": sorted(statuses),
        "groups": sorted(groups),
        "users": sorted(users),
        "gpus": list(gpus),
        "duration_s": list(duration_s),
    }
    stated = {name: value for name, value in settings.items() if value not in ([], [None, None])}
    return derived(workload, workload.frame.filter(*wanted), "keep", stated)


def _within(name: str, bounds: Range) -> list[pl.Expr]:
    low, high = bounds
    if low is not None and high is not None and not low <= high:
        raise InputError(f"{name} from {low:g} to {high:g} is no range: the first must not be larger")
    at_least = [] if low is None else [pl.col(name) >= low]
    return at_least if high is None else [*at_least, pl.col(name) <= high]


def drop_duplicates(workload: Workload) -> Workload:
    """Without jobs that equal an earlier one in everything but their row."""
    columns = [name for name in workload.frame.columns if name != "row"]
    frame = workload.frame.unique(columns, keep="first", maintain_order=True)
    return derived(workload, frame, "drop-duplicates", {"jobs_dropped": len(workload) - frame.height})


def thin(workload: Workload, share: float, seed: int = 0) -> Workload:
    """Each job with probability ``share``, by a draw of its original row: the same in every slice.

    Recorded starts are left out, unless all jobs are kept: with fewer others, jobs would have waited less.

    Raises:
        InputError: if the share is not above 0 and at most 1, or no job is left.
    """
    checked_share("the share to keep", share)
    drawn = uniforms_by_row(seed, THIN_STREAM, workload.frame["row"].to_numpy())
    frame = workload.frame if share == 1 else without_recorded(workload.frame)
    frame = frame.filter(pl.Series(drawn < share))
    return derived(workload, frame, "thin", {"share": share, "seed": seed})


def split_by_time(workload: Workload, shares: Sequence[float] = (0.6, 0.2, 0.2)) -> Splits:
    """The workload cut at shares of its span: jobs to train on, to choose by, and to test on once.

    Every job is in one part. A job belongs where it was submitted, even if it ran on into the next part.

    Raises:
        InputError: if the shares are not three numbers above 0 that sum to 1, or a part holds no job.
    """
    if len(shares) != 3 or min(shares) <= 0 or not math.isclose(sum(shares), 1.0, abs_tol=1e-9):
        raise InputError(f"shares {list(shares)} must be three numbers above 0 that sum to 1")
    span_s = span_of(workload)
    cuts = (0.0, shares[0] * span_s, (shares[0] + shares[1]) * span_s, math.inf)
    parts = []
    for name, start_s, end_s in zip(Splits._fields, cuts, cuts[1:], strict=False):
        frame = workload.frame.filter((pl.col("submit_s") >= start_s) & (pl.col("submit_s") < end_s))
        if frame.height == 0:
            raise InputError(
                f"the {name} part, from {start_s:.0f} s to {min(end_s, span_s):.0f} s, holds no job; cut off "
                "silent ends of the trace first, or choose other shares"
            )
        parts.append(derived(workload, frame, "split-by-time", {"part": name, "shares": list(shares)}))
    return Splits(*parts)


def _check_names(workload: Workload, column: str, names: Collection[str]) -> None:
    known = dict.fromkeys(workload.frame[column].unique().sort().to_list()) if names else {}
    for name in names:
        if name not in known:
            hint = suggest(name, known) if len(known) <= 50 else f"; there are {len(known):,}"
            raise InputError(f"no job of {workload.metadata.name} has {column} {name!r}{hint}")
