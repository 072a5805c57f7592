"""Changing what jobs say: durations, gangs, groups and estimates."""

import math
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import polars as pl

from gpuyard.errors import InputError
from gpuyard.registry import suggest
from gpuyard.workload.schema import Workload
from gpuyard.workload.shaping.derive import checked_positive, checked_share, derived, without_recorded
from gpuyard.workload.shaping.draws import ESTIMATE_STREAM, WIDEN_STREAM, WIDTH_STREAM, uniforms_by_row

OTHERS = "*"
"""In a mapping of groups: all that are not named."""

_MINUTE_S, _HOUR_S, _DAY_S = 60, 3600, 86400
ROUND_REQUESTS_S = (
    *(_MINUTE_S * count for count in (5, 10, 15, 20, 30, 45)),
    *(_HOUR_S * count for count in (1, 2, 3, 4, 6, 8, 10, 12, 16, 18)),
    *(_DAY_S * count for count in (1, 2, 3, 4, 5, 7, 10, 14, 21, 28)),
)
"""Run times that people ask for, seconds: a few round numbers hold most requests in every log that has them
(Tsafrir, Etsion, Feitelson: Modeling User Runtime Estimates, JSSPP 2005)."""


def clamp_durations(
    workload: Workload, *, min_s: float | None = None, max_s: float | None = None
) -> Workload:
    """Durations below ``min_s`` raised to it, those above ``max_s`` cut to it; seconds.

    Recorded starts are left out if any duration changes.

    Raises:
        InputError: if a bound is not above 0, none is given, or they are upside down.
    """
    for name, bound in (("min_s", min_s), ("max_s", max_s)):
        if bound is not None:
            checked_positive(name, bound)
    if (min_s is None and max_s is None) or (min_s or 0) > (max_s or math.inf):
        raise InputError(f"durations from {min_s} to {max_s} s are no bounds to clamp to")
    clamped = workload.frame["duration_s"].clip(min_s, max_s)
    changed = int((clamped != workload.frame["duration_s"]).sum())
    frame = workload.frame.with_columns(duration_s=clamped)
    frame = without_recorded(frame) if changed else frame
    settings = {"min_s": min_s, "max_s": max_s, "jobs_changed": changed}
    return derived(workload, frame, "clamp-durations", {**settings})


def widen_gangs(workload: Workload, share: float, largest: int, seed: int = 0) -> Workload:
    """A few jobs on 2, 4, 8 ... times as many GPUs for as much less time: gangs that a log happens to lack.

    What is learnt from jobs of at most 32 GPUs is a guess for one of 128. The work stays the same, and so
    do the GPUs on a node of jobs that asked for nodes; recorded starts are left out. A factor
    is as likely as any other that leaves the gang at most ``largest``; jobs without GPUs, on shares of one,
    or already that wide stay as they are.

    Args:
        workload: The jobs.
        share: Of the jobs to change, each with this probability.
        largest: GPUs of a gang at most.
        seed: Of the draws, which are keyed by the original row.

    Raises:
        InputError: if the share is not above 0 and at most 1, no gang can become wider, or none is drawn.
    """
    checked_share("the share to widen", share)
    frame = workload.frame
    gangs, rows = frame["gpus"].to_numpy(), frame["row"].to_numpy()
    whole = (gangs > 0) & (frame["gpu_milli"].to_numpy() == 1000)
    doublings = np.where(whole, np.floor(np.log2(np.maximum(largest / np.maximum(gangs, 1), 1.0))), 0.0)
    if not doublings.any():
        raise InputError(
            f"no gang of {workload.metadata.name} can be doubled without exceeding {largest} GPUs"
        )
    drawn = uniforms_by_row(seed, WIDEN_STREAM, rows) < share
    steps = 1 + np.floor(uniforms_by_row(seed, WIDTH_STREAM, rows) * doublings)
    factor = pl.Series(np.where(drawn & (doublings > 0), 2.0**steps, 1.0))
    if not (factor > 1).any():
        raise InputError(
            f"a share of {share:g} draws none of the {len(workload):,} jobs of {workload.metadata.name}; "
            "widen a larger share, or use another seed"
        )
    amounts = [name for name in ("gpus", "cpus", "memory_mib", "nodes") if workload.has(name)]
    wider = [(pl.col(name) * factor).cast(frame.schema[name]) for name in amounts]
    shorter = [pl.col(name) / factor for name in ("duration_s", "estimate_s")]
    settings = {"share": share, "largest": largest, "seed": seed, "jobs_changed": int((factor > 1).sum())}
    frame = without_recorded(frame).with_columns(*wider, *shorter)
    return derived(workload, frame, "widen-gangs", {**settings})


def relabel_groups(workload: Workload, names: Mapping[str, str]) -> Workload:
    """Groups renamed; several may get one name, and ``*`` stands for all that are not named.

    Raises:
        InputError: for a group that no job has.
    """
    known = dict.fromkeys(workload.frame["group"].unique().sort().to_list())
    for name in names:
        if name != OTHERS and name not in known:
            raise InputError(f"no job of {workload.metadata.name} has group {name!r}{suggest(name, known)}")
    new = {name: names.get(name, names.get(OTHERS, name)) for name in known}
    frame = workload.frame.with_columns(pl.col("group").replace_strict(new, return_dtype=pl.String))
    return derived(workload, frame, "relabel-groups", {"names": dict(names)})


def exact_estimates(workload: Workload) -> Workload:
    """Everybody asks for what the job will take."""
    frame = workload.frame.with_columns(estimate_s=pl.col("duration_s"))
    return derived(workload, frame, "exact-estimates", {})


def noisy_estimates(workload: Workload, sigma: float = 1.0, seed: int = 0) -> Workload:
    """Duration times a lognormal factor of median 1: what ``estimates = noisy`` tells a scheduler.

    Args:
        workload: The jobs.
        sigma: Standard deviation of the factor's natural logarithm.
        seed: Of the draws, which are keyed by the original row.

    Raises:
        InputError: if sigma is negative or above 10.
    """
    from gpuyard import _core

    if not 0 <= sigma <= 10:
        raise InputError(f"sigma is {sigma:g}; it must be from 0 to 10")
    duration_us = np.rint(workload.frame["duration_s"].to_numpy() * 1e6).astype(np.int64)
    estimate_us = _core.noisy_estimates(duration_us, workload.frame["row"].to_numpy(), seed, sigma)
    frame = workload.frame.with_columns(estimate_s=pl.Series(estimate_us / 1e6))
    return derived(workload, frame, "noisy-estimates", {"sigma": sigma, "seed": seed})


def round_estimates(workload: Workload, overestimation: float = 3.0, seed: int = 0) -> Workload:
    """Requests as people make them: too long, and one of a few round numbers.

    Duration times 1 + (overestimation - 1) times an exponential draw of mean 1, rounded up to the next of
    ``ROUND_REQUESTS_S``, beyond them to whole weeks. Nobody asks for too little.

    Args:
        workload: The jobs.
        overestimation: Mean of the factor before rounding, at least 1.
        seed: Of the draws, which are keyed by the original row.

    Raises:
        InputError: if the overestimation is below 1 or above 1000.
    """
    if not 1 <= overestimation <= 1000:
        raise InputError(f"overestimation is {overestimation:g}; it must be from 1 to 1000")
    uniform = uniforms_by_row(seed, ESTIMATE_STREAM, workload.frame["row"].to_numpy())
    excess = np.array([-math.log(1.0 - u) for u in uniform.tolist()])
    asked_s = workload.frame["duration_s"].to_numpy() * (1.0 + (overestimation - 1.0) * excess)
    requests = np.array(ROUND_REQUESTS_S, dtype=np.float64)
    index = np.searchsorted(requests, asked_s)
    weeks_s = np.ceil(asked_s / (7.0 * _DAY_S)) * (7.0 * _DAY_S)
    rounded = np.where(index < len(requests), requests[np.minimum(index, len(requests) - 1)], weeks_s)
    frame = workload.frame.with_columns(estimate_s=pl.Series(rounded))
    return derived(workload, frame, "round-estimates", {"overestimation": overestimation, "seed": seed})


def estimates_from(workload: Workload, table: pl.DataFrame, *, source: str = "table") -> Workload:
    """Estimates from a column of another table, such as the predictions of a model.

    Args:
        workload: The jobs.
        table: ``estimate_s`` and either ``row`` (original row) or ``source_id``, one line a job. Jobs that
            it does not have keep no estimate.
        source: What to call the table in messages and in the history.

    Raises:
        InputError: if columns are missing, a key is repeated, or no job is found.
    """
    key = next((name for name in ("row", "source_id") if name in table.columns), None)
    if key is None or "estimate_s" not in table.columns:
        raise InputError(f"{source}: needs the column estimate_s and one of row or source_id")
    dtype = workload.frame.schema[key]
    known = table.select(
        pl.col(key).cast(dtype, strict=False), pl.col("estimate_s").cast(pl.Float64, strict=False)
    )
    if known[key].is_duplicated().any():
        raise InputError(f"{source}: has several lines for one {key}; leave one of them")
    frame = workload.frame.drop("estimate_s").join(known, on=key, how="left", maintain_order="left")
    found = len(workload) - frame["estimate_s"].null_count()
    if not found:
        raise InputError(f"{source}: has an estimate for none of the jobs of {workload.metadata.name}")
    frame = frame.select(workload.frame.columns)
    return derived(workload, frame, "estimates-from", {"source": source, "key": key, "jobs": found})


def read_estimates(path: Path) -> pl.DataFrame:
    """The table of a CSV or parquet file, for ``estimates_from``.

    Raises:
        InputError: if the file cannot be read.
    """
    try:
        return pl.read_parquet(path) if path.suffix == ".parquet" else pl.read_csv(path, infer_schema=False)
    except (OSError, pl.exceptions.PolarsError) as error:
        raise InputError(f"{path}: cannot be read as a table ({str(error).splitlines()[0]})") from None
