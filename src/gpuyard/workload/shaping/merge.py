"""Several workloads on one clock."""

from collections.abc import Sequence
from typing import Literal

import polars as pl
from pydantic import JsonValue

from gpuyard.errors import InputError, setting
from gpuyard.workload.node_lists import SEPARATOR
from gpuyard.workload.schema import CLOCK, Step, Workload, make_workload
from gpuyard.workload.shaping.derive import has_dates, without_recorded

_NAMES = ("user", "group", "source_id", "partition", "qos", "account", "recorded_nodes", "after")
_LISTS = ("recorded_nodes", "after")
"""Of these, the ones that hold several names."""


def merge(
    workloads: Sequence[Workload],
    *,
    clock: Literal["epoch", "zero"] = "epoch",
    keep_apart: bool = False,
    name: str = "merged",
) -> Workload:
    """All jobs of several workloads as one trace.

    The rows of each workload are counted on from those before it, so that they stay distinct. Recorded starts
    are kept on real dates only.

    Args:
        workloads: At least two.
        clock: ``epoch`` keeps real dates, which every workload's clock must tell; ``zero`` starts all of
            them together.
        keep_apart: Put ``NAME/`` before users, groups, ids, accounts, partitions and nodes, for logs of
            different clusters in which equal names mean different people.
        name: Of the result.

    Raises:
        InputError: for fewer than two workloads, a clock that tells no dates, or names that are not distinct.
    """
    _check_mergeable(workloads, clock, keep_apart)
    start_s = min(workload.metadata.epoch_s for workload in workloads) if clock == "epoch" else 0.0
    parts: list[JsonValue] = []
    frames = []
    next_row = 0
    for workload in workloads:
        offset_s = workload.metadata.epoch_s - start_s if clock == "epoch" else 0.0
        placed = _placed(workload, offset_s, next_row, keep_apart)
        frames.append(placed if clock == "epoch" else without_recorded(placed))
        parts.append(_account(workload, offset_s, next_row))
        next_row += int(workload.frame["row"].max()) + 1  # type: ignore[arg-type]
    step = Step(name="merge" if clock == "epoch" else "merge-from-zero", settings={"parts": parts})
    source = ", ".join(workload.metadata.name for workload in workloads)
    return make_workload(
        pl.concat(frames, how="diagonal"),
        name=name,
        epoch_s=start_s,
        source=source,
        history=(step,),
        where=name,
    )


def _check_mergeable(workloads: Sequence[Workload], clock: str, keep_apart: bool) -> None:
    if len(workloads) < 2:
        raise InputError("merging needs at least two workloads")
    names = [workload.metadata.name for workload in workloads]
    if keep_apart and len(set(names)) < len(names):
        raise InputError(f"workloads to keep apart need distinct names; these are {', '.join(names)}")
    undated = next((w.metadata.name for w in workloads if not has_dates(w)), None)
    if clock == "epoch" and undated is not None:
        raise InputError(
            f"the clock of {undated} tells no dates; merge from zero ({setting('clock', 'zero')}) instead"
        )


def _placed(workload: Workload, offset_s: float, row_offset: int, keep_apart: bool) -> pl.DataFrame:
    moments = [name for name in CLOCK if workload.has(name)]
    frame = workload.frame.with_columns(pl.col(moments) + offset_s, row=pl.col("row") + row_offset)
    if not keep_apart:
        return frame
    label = f"{workload.metadata.name}/"
    values = {
        name: pl.col(name).str.replace_all(SEPARATOR, SEPARATOR + label, literal=True)
        if name in _LISTS
        else pl.col(name)
        for name in _NAMES
        if workload.has(name)
    }
    return frame.with_columns(
        pl.when(pl.col(name) != "").then(pl.lit(label) + value).otherwise(pl.col(name)).alias(name)
        for name, value in values.items()
    )


def _account(workload: Workload, offset_s: float, row_offset: int) -> JsonValue:
    metadata = workload.metadata
    return {
        "name": metadata.name,
        "source": metadata.source,
        "jobs": len(workload),
        "offset_s": offset_s,
        "row_offset": row_offset,
        "history": [step.model_dump(mode="json") for step in metadata.history],
    }
