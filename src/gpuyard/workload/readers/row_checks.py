"""Rejecting rows by conditions, with the first reason that applies to each."""

from collections.abc import Sequence

import polars as pl

from gpuyard.workload.importing import ImportLog
from gpuyard.workload.schema import MAX_TIME_S

Checks = Sequence[tuple[str, pl.Expr]]
"""Reasons to reject a row and their conditions; a null condition does not hold."""

MAX_COUNT = 2**31 - 1

TIME_CHECKS: Checks = (
    ("submitted before 1970 or after 2106", ~pl.col("submit_s").is_between(0, MAX_TIME_S)),
    ("never ran: its run time is not positive", pl.col("duration_s") <= 0),
    ("runs for more than 136 years", pl.col("duration_s") > MAX_TIME_S),
)
"""For frames with absolute ``submit_s`` and with ``duration_s``, both finite."""


def keep_valid(frame: pl.DataFrame, checks: Checks, file: str, log: ImportLog) -> pl.DataFrame:
    """The rows to which no check applies; the others are rejected in ``log`` by their ``line``."""
    for reason, condition in checks:
        bad = frame.select(condition.fill_null(False)).to_series()
        if bad.any():
            log.reject(reason, file, frame.filter(bad)["line"])
            frame = frame.filter(~bad)
    return frame


def count_or_null(text: pl.Expr) -> pl.Expr:
    """Whole numbers from 0 to ``MAX_COUNT``; null for anything else."""
    number = text.cast(pl.Int64, strict=False)
    return pl.when(number.is_between(0, MAX_COUNT)).then(number)


def start_or_null(seconds: pl.Expr) -> pl.Expr:
    """Moments that a job table has room for, whenever its jobs were submitted; null for anything else."""
    return pl.when(seconds.is_between(0, MAX_TIME_S)).then(seconds)


def finite_or_null(text: pl.Expr) -> pl.Expr:
    """Finite numbers; null for anything else, also for the words nan and inf."""
    number = text.cast(pl.Float64, strict=False)
    return pl.when(number.is_finite()).then(number)
