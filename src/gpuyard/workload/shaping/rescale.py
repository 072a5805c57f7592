"""More or less contention: load, compressed time, and new days drawn from old ones."""

import math

import numpy as np
import polars as pl
from numpy.typing import NDArray
from pydantic import JsonValue

from gpuyard.cluster.model import Cluster
from gpuyard.errors import InputError, setting
from gpuyard.workload.schema import Workload
from gpuyard.workload.shaping.derive import (
    DAY_S,
    checked_positive,
    derived,
    gpu_seconds_of,
    has_dates,
    span_of,
    without_recorded,
)
from gpuyard.workload.shaping.draws import DAY_STREAM, uniforms_by_row

MONDAY = 4
"""Day 4 of the Unix clock, 1970-01-05, was a Monday."""


def area_load(workload: Workload, cluster: Cluster) -> float | None:
    """All the work that jobs bring, over the GPU time of the cluster between first and last submit.

    None if the span is 0 or the cluster has no GPUs. Work that long jobs do after the last submit counts
    too, so over a short span this is larger than what a cluster would see in it (``demand_in_span``).
    """
    return _over_gpu_time(float(gpu_seconds_of(workload).sum()), workload, cluster)


def demand_in_span(workload: Workload, cluster: Cluster) -> float | None:
    """As ``area_load``, but only the work that falls into the span if every job starts at its submit."""
    frame = workload.frame
    left_s = span_of(workload) - frame["submit_s"].to_numpy()
    duration_s = frame["duration_s"].to_numpy()
    inside = gpu_seconds_of(workload) * (np.minimum(duration_s, left_s) / duration_s)
    return _over_gpu_time(float(inside.sum()), workload, cluster)


def _over_gpu_time(gpu_s: float, workload: Workload, cluster: Cluster) -> float | None:
    gpu_time_s = span_of(workload) * cluster.total_gpus
    return gpu_s / gpu_time_s if gpu_time_s else None


def compress_time(workload: Workload, factor: float) -> Workload:
    """Submits ``factor`` times as dense; durations and the time from a submit to its deadline stay.

    A factor below 1 stretches time. Days are no longer 24 h long afterwards, so the clock tells no dates.

    Raises:
        InputError: if the factor is not a number above 0.
    """
    checked_positive("the factor", factor)
    frame = _moved(workload, workload.frame["submit_s"].to_numpy() / factor)
    origin_s = workload.metadata.origin_s / factor
    return derived(workload, frame, "compress-time", {"factor": factor}, origin_s=origin_s)


def _moved(workload: Workload, submit_s: NDArray[np.float64]) -> pl.DataFrame:
    """The jobs at other submits, in the same order; the time from a submit to its deadline stays.

    What happened in the log would not have happened to them so: recorded starts are left out.
    """
    slack_s = workload.frame["deadline_s"].to_numpy() - workload.frame["submit_s"].to_numpy()
    return without_recorded(workload.frame).with_columns(
        submit_s=pl.Series(submit_s), deadline_s=pl.Series(submit_s + slack_s, nan_to_null=True)
    )


def to_load(workload: Workload, cluster: Cluster, load: float) -> Workload:
    """Time compressed (or stretched) so that ``area_load`` on the cluster is ``load``.

    Raises:
        InputError: if the load is not a number above 0, or the workload or cluster has no load to change.
    """
    return compress_time(workload, factor_to_load(workload, cluster, load))


def level_load(workload: Workload, cluster: Cluster, load: float, days: float) -> Workload:
    """Time compressed or stretched in each of the log's stretches of so many days apart, to the same load.

    A log that grows or dies down has next to no stretch in which its mean load holds; after this every
    stretch has it, and bursts that are shorter stay. A stretch whose jobs bring no GPU work has no length
    afterwards.

    Args:
        workload: The jobs.
        cluster: What the load refers to.
        load: ``area_load`` of every stretch, counted until the next one begins.
        days: Length of a stretch, from the first submit on; the last one ends with the last submit and is
            between a half and one and a half times as long.

    Raises:
        InputError: as ``to_load``, and if a stretch is shorter than a minute.
    """
    if not days * DAY_S >= 60:
        raise InputError(
            f"a level load in stretches of {days:g} days ({setting('level_days')}): at least 0.0007, a minute"
        )
    factor = factor_to_load(workload, cluster, load)
    submit_s, span_s = workload.frame["submit_s"].to_numpy(), span_of(workload)
    stretch_s = round(days * DAY_S, 6)
    whole = max(
        math.floor(span_s / stretch_s + 0.5), 1
    )  # A remainder of less than half a stretch joins the last one.
    borders_s = np.append(np.arange(whole) * stretch_s, span_s)
    stretch = np.minimum(np.searchsorted(borders_s, submit_s, side="right") - 1, len(borders_s) - 2)
    work_gpu_s = np.bincount(stretch, gpu_seconds_of(workload), len(borders_s) - 1)
    moved_s = np.concatenate(([0.0], np.cumsum(work_gpu_s))) / (load * cluster.total_gpus)
    frame = _moved(workload, np.interp(submit_s, borders_s, moved_s))
    origin_s = workload.metadata.origin_s / factor
    settings: dict[str, JsonValue] = {"load": load, "days": days, "gpus": cluster.total_gpus}
    return derived(workload, frame, "level-load", settings, origin_s=origin_s)


def factor_to_load(workload: Workload, cluster: Cluster, load: float) -> float:
    """How many times the present load the wanted one is.

    Raises:
        InputError: if the load is not a number above 0, or the workload or cluster has no load to change.
    """
    checked_positive("the load", load, most=1000)
    present = area_load(workload, cluster)
    if not present:
        why = (
            "the cluster has no GPUs" if cluster.total_gpus == 0 else "no GPU job, or all jobs at one moment"
        )
        raise InputError(f"{workload.metadata.name} has no load on {cluster.name} to change: {why}")
    return load / present


def resample_days(
    workload: Workload, days: int | None = None, seed: int = 0, *, keep_weekdays: bool = False
) -> Workload:
    """A new trace of whole days drawn from the workload's own, with replacement; times of day stay.

    Recorded starts are left out: on the new days the cluster would have been differently full. So are
    dependencies: what a job came after may be on a day that was not drawn, or was drawn twice.
    Days are those of the log's clock if it tells dates, else they start at the first submit. A day that is
    not wholly inside the span is never drawn. The c-th repetition of a day adds c times the same number to
    the rows of its jobs, so that rows stay distinct; the first keeps them.

    Args:
        workload: The jobs.
        days: Number of new days; None as many as there are to draw from.
        seed: Of the draws.
        keep_weekdays: Draw a Monday for a Monday and so on. Needs a clock that tells dates.

    Raises:
        InputError: if there are no two whole days to draw from, or no weekday where one is needed.
    """
    epoch_s = workload.metadata.epoch_s if has_dates(workload) else 0.0
    if keep_weekdays and not has_dates(workload):
        raise InputError(f"the clock of {workload.metadata.name} tells no dates, so there are no weekdays")
    first = math.ceil(epoch_s / DAY_S)
    count = math.floor((epoch_s + span_of(workload)) / DAY_S) - first
    if count < 2 or (days is not None and days < 1):
        raise InputError(
            f"{workload.metadata.name} has {max(count, 0)} whole days and {days} were asked for; "
            "at least 2 to draw from and 1 to make are needed"
        )
    wanted = count if days is None else days
    drawn = _drawn_days(first, count, wanted, seed, keep_weekdays)
    frame = _joined_days(workload, epoch_s - first * DAY_S, count, drawn)
    settings = {"days": wanted, "seed": seed, "keep_weekdays": keep_weekdays}
    start_s = first * DAY_S if has_dates(workload) else workload.metadata.epoch_s
    return derived(workload, frame, "resample-days", {**settings}, origin_s=0.0, epoch_s=start_s)


def _drawn_days(first: int, count: int, wanted: int, seed: int, keep_weekdays: bool) -> list[int]:
    """For each new day the number of an old one, from 0."""
    uniform = uniforms_by_row(seed, DAY_STREAM, np.arange(wanted)).tolist()
    if not keep_weekdays:
        return [int(u * count) for u in uniform]
    drawn = []
    for new, u in enumerate(uniform):
        like = range(new % 7, count, 7)
        if not like:
            weekday = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")[(first + new - MONDAY) % 7]
            raise InputError(f"there is no whole {weekday} to draw from; slice a longer part of the trace")
        drawn.append(like[int(u * len(like))])
    return drawn


def _joined_days(workload: Workload, before_s: float, count: int, drawn: list[int]) -> pl.DataFrame:
    """The jobs of the drawn days one after another, the first day from 0; ``before_s`` into day 0."""
    frame = without_recorded(workload.frame).with_columns(submit_s=pl.col("submit_s") + before_s)
    frame = frame.drop("after", strict=False)  # a day that is drawn twice has every id twice
    frame = frame.with_columns(deadline_s=pl.col("deadline_s") + before_s)
    day = (frame["submit_s"] / DAY_S).floor().cast(pl.Int64)
    frame = frame.with_columns(day=day).filter(pl.col("day").is_between(0, count - 1))
    stride = int(workload.frame["row"].max()) + 1  # type: ignore[arg-type]
    copies = [drawn[:new].count(old) for new, old in enumerate(drawn)]
    plan = pl.DataFrame({"day": drawn, "new": range(len(drawn)), "copy": copies}, schema_overrides=_DAYS)
    joined = frame.join(plan, on="day", how="inner").sort("new", "submit_s", maintain_order=True)
    shift_s = (pl.col("new") - pl.col("day")) * DAY_S
    return joined.with_columns(
        submit_s=pl.col("submit_s") + shift_s,
        deadline_s=pl.col("deadline_s") + shift_s,
        row=pl.col("row") + pl.col("copy") * stride,
    ).drop("day", "new", "copy")


_DAYS = {"day": pl.Int64, "new": pl.Int64, "copy": pl.Int64}
