"""What jobs ask for, from the text of a trace to whole GPUs, CPUs and MiB within the bounds of the schema."""

from collections.abc import Sequence
from pathlib import Path

import polars as pl

from gpuyard.workload.importing import ImportLog
from gpuyard.workload.readers.csv_jobs import Rule, note_repairs, without
from gpuyard.workload.schema import COLUMNS

SHARES_ROUNDED = "a part of a GPU on more than one instance: rounded up to whole GPUs an instance"
THOUSANDTHS_ROUNDED = "a part of a GPU that is no whole number of thousandths: rounded up"
CPUS_ROUNDED = "a part of a CPU: rounded up to whole CPUs"
MEMORY_ROUNDED = "a part of a MiB of memory: rounded up"

_DECIMALS = 6
"""To which sums of binary fractions are rounded before they are rounded up: 0.1 + 0.2 CPUs are 0.3."""


def with_numbers(frame: pl.DataFrame, names: Sequence[str], path: Path, log: ImportLog) -> pl.DataFrame:
    """The text columns ``names`` as float64; null stays null, rows with anything else are rejected."""
    parsed = {name: f"{name} as a number" for name in names}
    frame = frame.with_columns(
        pl.col(name).cast(pl.Float64, strict=False).alias(number) for name, number in parsed.items()
    )
    rules: list[Rule] = [
        (f"{name} is not a number", pl.col(name).is_not_null() & ~pl.col(number).is_finite().fill_null(False))
        for name, number in parsed.items()
    ]
    kept = without(frame, rules, path, log)
    return kept.drop(names).rename({number: name for name, number in parsed.items()})


def within_bounds(jobs: pl.DataFrame, path: Path, log: ImportLog) -> pl.DataFrame:
    """Native columns and ``line``; rows with a number that the schema has no room for are rejected."""
    rules: list[Rule] = []
    for column in COLUMNS:
        if column.name not in jobs.columns or (column.low is None and column.high is None):
            continue
        value = pl.col(column.name)
        low = pl.lit(False) if column.low is None else value < column.low
        if column.low is not None and not column.low_is_valid:
            low = value <= column.low
        high = pl.lit(False) if column.high is None else value > column.high
        rules.append((f"{column.name} would not be {column.expected}", low | high))
    return without(jobs, rules, path, log)


def rounded_up(amount: pl.Expr) -> pl.Expr:
    """The next whole number, as float64; what is a whole number but for rounding errors stays."""
    return amount.round(_DECIMALS).ceil()


def is_rounded_up(amount: pl.Expr) -> pl.Expr:
    """Whether ``rounded_up`` changes the amount by more than a rounding error."""
    return (rounded_up(amount) - amount).abs() > 10.0**-_DECIMALS


def whole_gpus(each: pl.Expr) -> pl.Expr:
    """GPUs of one instance, rounded up: at least one for any part of one."""
    return pl.max_horizontal(rounded_up(each), (each > 0).cast(pl.Float64))


def gpus_and_share(instances: pl.Expr, each: pl.Expr) -> dict[str, pl.Expr]:
    """Columns ``gpus`` and ``gpu_milli`` of ``instances`` that take ``each`` GPUs, possibly a part of one.

    One instance on a part of a GPU shares it; a gang takes whole GPUs, rounded up for every instance.
    """
    shares = (instances == 1) & (each > 0) & (each < 1)
    return {
        "gpus": instances * whole_gpus(each),
        "gpu_milli": pl.when(shares).then(rounded_up(each * 1000).clip(1, 1000)).otherwise(1000.0),
    }


def note_gpu_rounding(
    frame: pl.DataFrame, instances: pl.Expr, each: pl.Expr, path: Path, log: ImportLog
) -> None:
    """Report the rows where ``gpus_and_share`` rounded."""
    shares = (instances == 1) & (each > 0) & (each < 1)
    rules = (
        (SHARES_ROUNDED, ~shares & is_rounded_up(each)),
        (THOUSANDTHS_ROUNDED, shares & is_rounded_up(each * 1000)),
    )
    note_repairs(frame, rules, path, log)
