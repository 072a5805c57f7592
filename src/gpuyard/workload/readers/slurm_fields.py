"""What the fields of Slurm's accounting mean: times, memory and GPUs.

Functions take and give whole columns. Texts repeat much (limits, resources), so most are read once each.
"""

from collections.abc import Callable

import polars as pl

NO_TIME = ("Unknown", "None", "unknown", "none")
"""How Slurm writes that something has not happened."""

NO_LIMIT = ("UNLIMITED", "Partition_Limit", "INVALID", "Invalid")

_ZONED = r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(Z|[+-]\d\d:?\d\d)$"
_NAMED_ZONE = r"^(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d) ?([A-Z]{3,5})$"
ZONE_HOURS = {
    "UTC": 0.0, "GMT": 0.0, "WET": 0.0, "WEST": 1.0, "CET": 1.0, "CEST": 2.0, "EET": 2.0, "EEST": 3.0,
    "MSK": 3.0, "JST": 9.0, "KST": 9.0, "ACST": 9.5, "AEST": 10.0, "AEDT": 11.0, "NZST": 12.0, "NZDT": 13.0,
    "EST": -5.0, "EDT": -4.0, "CDT": -5.0, "MST": -7.0, "MDT": -6.0, "PST": -8.0, "PDT": -7.0, "HST": -10.0,
}  # fmt: skip
"""Hours ahead of UTC of the zones whose short names mean one zone only."""

SEVERAL_ZONES = ("CST", "IST", "BST", "AST", "SST", "ECT", "GST")
"""Short names that several zones have."""

_CLOCK = r"^(?:(?:(\d+)-)?(\d+):)?(\d+):(\d+(?:\.\d+)?)$"
_MIB_PER_UNIT = {"K": 1 / 1024, "M": 1.0, "": 1.0, "G": 1024.0, "T": 1024.0**2, "P": 1024.0**3}
MAX_MEMORY_MIB = 2.0**40
_PER_CPU_FLAG = 2.0**31
"""Old Slurm marks memory per CPU in the number itself, and some sacct print the mark: 2147486648Mn."""

_TYPED_GPU = r"gres/gpu:[^=,]+=\d+"
_GRES_GPU = r"(?:^|[,/:])gpu(?::[^,():]*)*(?:\(|,|$)"

Reading = Callable[[pl.Series], pl.Series]


def _once_each(read: Reading) -> Reading:
    """The same function, applied to distinct texts only."""

    def read_distinct(text: pl.Series) -> pl.Series:
        distinct = text.unique()
        values = read(distinct)
        if len(distinct) == 1:
            return values.new_from_index(0, len(text))
        table = pl.DataFrame({"text": distinct, "value": values})
        joined = pl.DataFrame({"text": text}).join(
            table, on="text", how="left", nulls_equal=True, maintain_order="left"
        )
        return joined["value"]

    read_distinct.__doc__ = read.__doc__
    return read_distinct


def unix_seconds(text: pl.Series, zone: str = "UTC") -> tuple[pl.Series, bool]:
    """Times in seconds since 1970, null where there is none, and whether any came without a zone.

    Read are ISO times, with or without an offset or the name of a zone, and seconds since 1970
    (``SLURM_TIME_FORMAT=%s``). Of the hour that a clock shows twice in autumn the first is taken; the hour
    that it leaves out in spring is no time.

    Args:
        text: The times.
        zone: Of times without one.
    """
    naive = text.str.to_datetime("%Y-%m-%dT%H:%M:%S", strict=False, time_unit="us")
    seconds = _in_zone(naive, zone)
    rest = text.is_not_null() & naive.is_null() & ~text.is_in(NO_TIME)
    if rest.any():
        zoned = text.set(~text.str.contains(_ZONED).fill_null(False), None).str.replace("Z$", "+0000")
        converted = zoned.str.to_datetime("%Y-%m-%dT%H:%M:%S%z", strict=False, time_unit="us")
        numbers = text.set(~text.str.contains(r"^\d{9,10}$").fill_null(False), None).cast(pl.Float64)
        seconds = seconds.zip_with(seconds.is_not_null(), _epoch(converted))
        seconds = seconds.zip_with(seconds.is_not_null(), numbers)
        seconds = seconds.zip_with(seconds.is_not_null(), _with_zone_names(text, zone))
    return seconds, naive.null_count() < len(naive)


def _in_zone(naive: pl.Series, zone: str) -> pl.Series:
    if zone == "UTC":
        return _epoch(naive)
    return _epoch(naive.dt.replace_time_zone(zone, ambiguous="earliest", non_existent="null"))


def _with_zone_names(text: pl.Series, zone: str) -> pl.Series:
    """Times such as ``2024-03-01T08:00:00 CET``; of a name that several zones have, ``zone`` is meant."""
    clock, name = text.str.extract_groups(_NAMED_ZONE).struct.unnest()
    naive = clock.str.to_datetime("%Y-%m-%dT%H:%M:%S", strict=False, time_unit="us")
    hours = name.replace_strict(ZONE_HOURS, default=None, return_dtype=pl.Float64)
    known = _epoch(naive) - hours * 3600
    if zone == "UTC":
        return known
    meant = _in_zone(naive.set(~name.is_in(SEVERAL_ZONES).fill_null(False), None), zone)
    return known.zip_with(known.is_not_null(), meant)


def is_zone(name: str) -> bool:
    """Whether this is the name of a time zone, such as Europe/Berlin."""
    try:
        pl.Series([0], dtype=pl.Datetime("us")).dt.replace_time_zone(name)
    except (pl.exceptions.PolarsError, pl.exceptions.PanicException, ValueError):
        return False
    return bool(name)


def _epoch(times: pl.Series) -> pl.Series:
    return times.dt.epoch("us").cast(pl.Float64) / 1e6


@_once_each
def clock_seconds(text: pl.Series) -> pl.Series:
    """``[D-]HH:MM:SS`` and ``MM:SS.mmm`` in seconds; null for anything else."""
    parts = text.str.extract_groups(_CLOCK).struct.unnest().cast(pl.Float64, strict=False)
    days, hours, minutes, seconds = parts
    return ((days.fill_null(0) * 24 + hours.fill_null(0)) * 60 + minutes) * 60 + seconds


def _mib(amount: pl.Series) -> pl.Series:
    """``31000M``, ``62.50G`` or a bare number of MiB; null for anything else."""
    number, unit = amount.str.extract_groups(r"^(\d+(?:\.\d+)?)([KMGTP]?)$").struct.unnest()
    factor = unit.fill_null("").replace_strict(_MIB_PER_UNIT, return_dtype=pl.Float64)
    mib = number.cast(pl.Float64, strict=False) * factor
    return mib.set(mib > MAX_MEMORY_MIB, None)


@_once_each
def tres_memory_mib(tres: pl.Series) -> pl.Series:
    """``mem=`` of a TRES list, which is the memory of the whole job; null if absent."""
    return _mib(tres.str.extract(r"(?:^|,)mem=([^,]*)"))


@_once_each
def requested_memory(reqmem: pl.Series) -> pl.Series:
    """ReqMem as a struct: ``mib`` and ``per``, which is n (node), c (CPU) or, since Slurm 21.08, job."""
    mib = _mib(reqmem.str.strip_suffix("n").str.strip_suffix("c"))
    flagged = (mib >= _PER_CPU_FLAG).fill_null(False)
    per = reqmem.str.extract("([nc])$").fill_null("job").set(flagged, "c")
    return pl.DataFrame({"mib": (mib - _PER_CPU_FLAG).zip_with(flagged, mib), "per": per}).to_struct()


@_once_each
def tres_cpus(tres: pl.Series) -> pl.Series:
    """``cpu=`` of a TRES list as text; null if absent."""
    return tres.str.extract(r"(?:^|,)cpu=([^,]*)")


@_once_each
def tres_nodes(tres: pl.Series) -> pl.Series:
    """``node=`` of a TRES list as text; null if absent."""
    return tres.str.extract(r"(?:^|,)node=([^,]*)")


@_once_each
def tres_gpus(tres: pl.Series) -> pl.Series:
    """GPUs of a TRES list; null if it names none.

    ``gres/gpu=4`` counts them all; ``gres/gpu:a100=2`` beside it says of which type some of them are.
    """
    untyped = _number(pl.col("tres").str.extract(r"(?:^|,)gres/gpu=(\d+)"))
    count = _number(pl.element().str.extract(r"=(\d+)$"))
    typed = pl.col("tres").str.extract_all(_TYPED_GPU).list.eval(count)
    some_typed = pl.when(typed.list.len() > 0).then(typed.list.sum())
    return tres.to_frame("tres").select(pl.coalesce(untyped, some_typed)).to_series()


@_once_each
def gres_gpus(gres: pl.Series) -> pl.Series:
    """GPUs on each node of a GRES list such as ``gpu:2`` or ``gres:gpu:a100:2``; null if it names none."""
    number = _number(pl.element().str.extract(r":(\d+)[,(]?$").fill_null("1"))
    counts = pl.col("gres").str.extract_all(_GRES_GPU).list.eval(number)
    return gres.to_frame("gres").select(pl.when(counts.list.len() > 0).then(counts.list.sum())).to_series()


def _number(digits: pl.Expr) -> pl.Expr:
    """Digits as float64, in which too many of them are a large number and never fail."""
    return digits.cast(pl.Float64, strict=False)


@_once_each
def tres_gpu_types(tres: pl.Series) -> pl.Series:
    """Names of the GPU types of a TRES list; null if it names none."""
    name = pl.element().str.extract(r"gres/gpu:([^=,]+)=").str.replace_all(r"[\s|:@]", "-")
    names = pl.col("tres").str.extract_all(_TYPED_GPU).list.eval(name).list.unique(maintain_order=True)
    return tres.to_frame("tres").select(pl.when(names.list.len() > 0).then(names)).to_series()
