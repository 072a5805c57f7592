"""Which steps ``shape`` takes. Defaults live here and nowhere else."""

import re
from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from gpuyard.config import Seed, Whole, numbers

_RANGE = re.compile(r"(\d+(?:\.\d+)?)?(-)?(\d+(?:\.\d+)?)?")

Range = tuple[float | None, float | None]
"""Smallest and largest value, both included; None leaves that end open."""


def _range(value: Any) -> Any:
    """``8``, ``1-8``, ``1-`` or ``-64``, alone or as the one entry of a list; all else as it is."""
    alone = value[0] if isinstance(value, list) and len(value) == 1 else value
    if not isinstance(alone, str):
        return value
    found = _RANGE.fullmatch(alone.strip())
    low, dash, high = found.groups() if found else (None, None, None)
    if low is None and high is None:
        raise ValueError("expected one number or a range, such as 8, 1-8, 1- or -64")
    return (low, low if dash is None else high)


def _renamed(value: Any) -> Any:
    """``OLD=NEW`` texts, or a mapping, as pairs; all else as it is."""
    if isinstance(value, Mapping):
        return tuple(value.items())
    texts = [value] if isinstance(value, str) else value
    if not isinstance(texts, list | tuple) or not all(isinstance(text, str) for text in texts):
        return value
    pairs = [text.partition("=") for text in texts]
    for old, equals, _ in pairs:
        if not equals or not old:
            raise ValueError("expected OLD=NEW" + (f", not {old!r}" if len(pairs) > 1 else ""))
    return tuple((old, new) for old, _, new in pairs)


TextRange = Annotated[Range, BeforeValidator(_range)]


class ShapeConfig(BaseModel):
    """Steps of ``shape``; one that is left out is not taken. They are taken in the order of these fields."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    start: str | None = None
    """Jobs submitted from this moment on: 86400, 36h, 14d, 20% of the span, or 2020-09-01."""
    end: str | None = None
    """Jobs submitted before this moment."""
    drop_duplicates: bool = False
    """Leave out jobs that equal an earlier one."""
    statuses: tuple[str, ...] = ()
    """Jobs that ended so; repeat it for more."""
    groups: tuple[str, ...] = ()
    """Jobs of this group; repeat it for more."""
    users: tuple[str, ...] = ()
    """Jobs of this user; repeat it for more."""
    gpus: TextRange = (None, None)
    """Jobs of so many GPUs: 8, 1-8, 1- or -64."""
    duration_s: TextRange = (None, None)
    """Jobs that run so long, s: 60-86400 or 60-."""
    split: Literal["train", "validation", "test"] | None = None
    """One part of a split by time."""
    shares: Annotated[tuple[float, float, float], BeforeValidator(numbers)] = (0.6, 0.2, 0.2)
    """With ``split``: the parts of the span."""
    first_job: Annotated[Whole, Field(ge=0)] | None = None
    """A window of jobs: position of its first, from 0."""
    job_count: Annotated[Whole, Field(ge=1)] | None = None
    """A window of jobs: how many."""
    thin: float | None = None
    """Keep this share of the jobs, drawn by row."""
    resample_days: Whole | None = None
    """So many new days drawn from the workload's own."""
    keep_weekdays: bool = False
    """With ``resample_days``: a Monday for a Monday."""
    clamp_max_s: float | None = None
    """Cut longer durations to this, s."""
    clamp_min_s: float | None = None
    """Raise shorter durations to this, s."""
    widen: float | None = None
    """This share of the jobs on 2, 4, 8 ... times the GPUs, for less time."""
    widen_to: Annotated[Whole, Field(ge=2, lt=2**31)] | None = None
    """With ``widen``: GPUs of a gang at most."""
    relabel_groups: Annotated[tuple[tuple[str, str], ...], BeforeValidator(_renamed)] = ()
    """OLD=NEW: rename a group; *=NEW all others; repeat it for more."""
    compress: float | None = None
    """Make submits so many times as dense."""
    load: float | None = None
    """Compress time so that this is the load on the cluster."""
    level_days: float | None = None
    """With ``load``: reach it in every stretch of so many days, not only over the whole span."""
    estimates: str | None = None
    """Requests: exact, noisy[:SIGMA], round[:FACTOR], or a table with estimate_s."""
    seed: Seed = 0
    """Key of all draws."""
