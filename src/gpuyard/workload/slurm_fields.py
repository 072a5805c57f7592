"""What the fields of Slurm's accounting mean: times, memory and GPUs, column by column."""

import polars as pl

from gpuyard.workload.row_checks import MAX_COUNT

NO_TIME = ("Unknown", "None", "unknown", "none")
"""How Slurm writes that something has not happened."""

NO_LIMIT = ("UNLIMITED", "Partition_Limit", "INVALID", "Invalid")

_ZONED = r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(Z|[+-]\d\d:?\d\d)$"
_CLOCK = r"^(?:(?:(\d+)-)?(\d+):)?(\d+):(\d+(?:\.\d+)?)$"
_MIB_PER_UNIT = {"K": 1 / 1024, "M": 1.0, "": 1.0, "G": 1024.0, "T": 1024.0**2, "P": 1024.0**3}
_MAX_MEMORY_MIB = 2.0**40
_PER_CPU_FLAG = 2.0**31
"""Old Slurm marks memory per CPU in the number itself, and some sacct print the mark: 2147486648Mn."""

_TYPED_GPU = r"gres/gpu:[^=,]+=\d+"
_GRES_GPU = r"(?:^|[,/:])gpu(?::[^,():]*)*(?:\(|,|$)"


def unix_seconds(text: pl.Series) -> tuple[pl.Series, bool]:
    """Times in seconds since 1970, null where there is none, and whether any came without a zone.

    Read are ISO times, with or without an offset, and seconds since 1970 (``SLURM_TIME_FORMAT=%s``).
    """
    naive = text.str.to_datetime("%Y-%m-%dT%H:%M:%S", strict=False, time_unit="us")
    seconds = _epoch(naive)
    rest = text.is_not_null() & seconds.is_null() & ~text.is_in(NO_TIME)
    if rest.any():
        zoned = text.set(~text.str.contains(_ZONED).fill_null(False), None).str.replace("Z$", "+0000")
        converted = zoned.str.to_datetime("%Y-%m-%dT%H:%M:%S%z", strict=False, time_unit="us")
        numbers = text.set(~text.str.contains(r"^\d{9,10}$").fill_null(False), None).cast(pl.Float64)
        seconds = seconds.zip_with(seconds.is_not_null(), _epoch(converted))
        seconds = seconds.zip_with(seconds.is_not_null(), numbers)
    return seconds, naive.null_count() < len(naive)


def _epoch(times: pl.Series) -> pl.Series:
    return times.dt.epoch("us").cast(pl.Float64) / 1e6


def clock_seconds(text: pl.Expr) -> pl.Expr:
    """``[D-]HH:MM:SS`` and ``MM:SS.mmm`` in seconds; null for anything else."""
    parts = text.str.extract_groups(_CLOCK).struct.rename_fields(["d", "h", "m", "s"])

    def part(name: str) -> pl.Expr:
        return parts.struct.field(name).cast(pl.Float64, strict=False)

    days, hours = part("d").fill_null(0), part("h").fill_null(0)
    return ((days * 24 + hours) * 60 + part("m")) * 60 + part("s")


def memory_mib(amount: pl.Expr) -> pl.Expr:
    """``31000M``, ``62.50G`` or a bare number of MiB; null for anything else."""
    parts = amount.str.extract_groups(r"^(\d+(?:\.\d+)?)([KMGTP]?)$").struct.rename_fields(["n", "unit"])
    unit = parts.struct.field("unit").fill_null("")
    factor = unit.replace_strict(_MIB_PER_UNIT, return_dtype=pl.Float64)
    mib = parts.struct.field("n").cast(pl.Float64, strict=False) * factor
    return pl.when(mib <= _MAX_MEMORY_MIB).then(mib)


def tres_memory_mib(tres: pl.Expr) -> pl.Expr:
    """``mem=`` of a TRES list, which is the memory of the whole job; null if absent."""
    return memory_mib(tres.str.extract(r"(?:^|,)mem=([^,]*)"))


def requested_memory_mib(reqmem: pl.Expr, nodes: pl.Expr, cpus: pl.Expr) -> pl.Expr:
    """ReqMem of the whole job: suffix n per node, c per CPU, none (since Slurm 21.08) in all."""
    number = memory_mib(reqmem.str.strip_suffix("n").str.strip_suffix("c"))
    flagged = number >= _PER_CPU_FLAG
    amount = pl.when(flagged).then(number - _PER_CPU_FLAG).otherwise(number)
    times = (
        pl.when(flagged | reqmem.str.ends_with("c"))
        .then(cpus)
        .when(reqmem.str.ends_with("n"))
        .then(nodes)
        .otherwise(1)
    )
    total = amount * times
    return pl.when(total <= _MAX_MEMORY_MIB).then(total)


def tres_gpus(tres: pl.Expr) -> pl.Expr:
    """GPUs of a TRES list; null if it names none.

    ``gres/gpu=4`` counts them all; ``gres/gpu:a100=2`` beside it says of which type some of them are.
    """
    untyped = tres.str.extract(r"(?:^|,)gres/gpu=(\d+)").cast(pl.Int64, strict=False)
    counts = pl.element().str.extract(r"=(\d+)$").cast(pl.Int64, strict=False).fill_null(MAX_COUNT + 1)
    typed = tres.str.extract_all(_TYPED_GPU).list.eval(counts).list.sum()
    some_typed = pl.when(tres.str.contains("gres/gpu:", literal=True)).then(typed)
    return pl.coalesce(untyped, some_typed)


def gres_gpus(gres: pl.Expr) -> pl.Expr:
    """GPUs on each node of a GRES list such as ``gpu:2`` or ``gres:gpu:a100:2``; null if it names none."""
    number = pl.element().str.extract(r":(\d+)[,(]?$").cast(pl.Int64, strict=False).fill_null(1)
    counts = gres.str.extract_all(_GRES_GPU).list.eval(number)
    return pl.when(counts.list.len() > 0).then(counts.list.sum())


def tres_gpu_types(tres: pl.Expr) -> pl.Expr:
    """Names of the GPU types of a TRES list; null if it names none."""
    name = pl.element().str.extract(r"gres/gpu:([^=,]+)=")
    names = tres.str.extract_all(_TYPED_GPU).list.eval(name.str.replace_all(r"[\s|:@]", "-"))
    return pl.when(names.list.len() > 0).then(names.list.unique(maintain_order=True))
