"""Making one workload from another with its history, and reading the clock of a workload."""

from datetime import UTC, datetime

import numpy as np
import polars as pl
from numpy.typing import NDArray
from pydantic import JsonValue

from gpuyard.errors import InputError
from gpuyard.workload.schema import Step, Workload, make_workload

DAY_S = 86400.0
DATES_FROM_S = 631_152_000.0
"""A source clock that shows less than 1990-01-01 counts from somewhere else: it tells no dates."""
NO_DATES_AFTER = frozenset({"compress-time", "level-load", "resample-days", "merge-from-zero"})
"""Steps after which the clock runs on, but its dates are no longer those of the log."""


def derived(
    workload: Workload,
    frame: pl.DataFrame,
    step: str,
    settings: dict[str, JsonValue],
    *,
    origin_s: float | None = None,
    epoch_s: float | None = None,
) -> Workload:
    """The jobs of ``frame``, made from ``workload`` by one more step.

    Args:
        workload: Where the jobs come from.
        frame: All columns; ``submit_s`` on the clock of ``workload`` unless the next two say otherwise.
        step: Name of the step, kebab-case.
        settings: What the step was told.
        origin_s: Offset of the frame's first submit from the start of the trace; None adds the first
            ``submit_s`` to the workload's own.
        epoch_s: What the source's clock shows at time 0 of the frame; None takes the workload's.

    Raises:
        InputError: if no job is left.
    """
    metadata = workload.metadata
    if frame.height == 0:
        raise InputError(f"{step} leaves none of the {len(workload):,} jobs of {metadata.name}; ask for less")
    if origin_s is None:
        origin_s = metadata.origin_s + float(frame["submit_s"].min())  # type: ignore[arg-type]
    return make_workload(
        frame,
        name=metadata.name,
        origin_s=origin_s,
        epoch_s=metadata.epoch_s if epoch_s is None else epoch_s,
        source=metadata.source,
        history=(*metadata.history, Step(name=step, settings=settings)),
        where=metadata.name,
    )


def without_recorded(frame: pl.DataFrame) -> pl.DataFrame:
    """The jobs without what really happened to them, for steps after which it could not have happened so."""
    return frame.drop("recorded_start_s", "recorded_nodes", strict=False)


def span_of(workload: Workload) -> float:
    """Seconds from the first submit, which is at 0, to the last."""
    return float(workload.frame["submit_s"][-1])


def sizes_of(workload: Workload) -> NDArray[np.float64]:
    """GPUs of each job, with fractions of shared ones."""
    # numpy's division, because polars divides by a number through its reciprocal.
    milli = workload.frame["gpus"].to_numpy().astype(np.int64) * workload.frame["gpu_milli"].to_numpy()
    sizes: NDArray[np.float64] = milli / 1000.0
    return sizes


def gpu_seconds_of(workload: Workload) -> NDArray[np.float64]:
    """GPU-seconds of each job."""
    work: NDArray[np.float64] = sizes_of(workload) * workload.frame["duration_s"].to_numpy()
    return work


def has_dates(workload: Workload) -> bool:
    """Whether dates and times of day on the workload's clock are those of the log."""
    steps = {step.name for step in workload.metadata.history}
    return workload.metadata.epoch_s >= DATES_FROM_S and steps.isdisjoint(NO_DATES_AFTER)


def date_text(workload: Workload, submit_s: float) -> str:
    """A moment of the workload as a date on the log's own clock."""
    moment = datetime.fromtimestamp(workload.metadata.epoch_s + submit_s, UTC)
    return moment.strftime("%Y-%m-%d %H:%M")


def checked_positive(name: str, value: float, *, most: float = 1e12) -> float:
    """The value if it is a number above 0.

    Raises:
        InputError: naming the setting.
    """
    if not 0 < value <= most:
        raise InputError(f"{name} is {value:g}; it must be a number above 0")
    return value


def checked_share(name: str, value: float) -> float:
    """The value if it is above 0 and at most 1.

    Raises:
        InputError: naming the setting.
    """
    if not 0 < value <= 1:
        raise InputError(f"{name} is {value:g}; it must be above 0 and at most 1")
    return value
