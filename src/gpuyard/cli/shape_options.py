"""Options of ``gpuyard workload shape``, and the way from them to ``ShapeConfig``."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Literal

from cyclopts import Parameter

from gpuyard.cli.parameters import Whole
from gpuyard.errors import InputError

if TYPE_CHECKING:
    from gpuyard.workload.shaping.shape import ShapeConfig

_RANGE = re.compile(r"(\d+(?:\.\d+)?)?(-)?(\d+(?:\.\d+)?)?")
Repeated = Parameter(negative=())


@Parameter(name="*", group="Steps, in the order in which they are taken")
@dataclass(frozen=True)
class ShapeOptions:
    """What to do to a workload."""

    start: Annotated[
        str | None,
        Parameter(name="--from", help="Jobs submitted from here on: 86400, 36h, 14d, 20%, 2020-09-01."),
    ] = None
    end: Annotated[str | None, Parameter(name="--to", help="Jobs submitted before this, as --from.")] = None
    drop_duplicates: Annotated[
        bool, Parameter(negative=(), help="Leave out jobs that equal an earlier one.", show_default=False)
    ] = False
    status: Annotated[
        list[str] | None, Repeated, Parameter(help="Jobs that ended so; repeat it for more.")
    ] = None
    group: Annotated[list[str] | None, Repeated, Parameter(help="Jobs of this group; repeat it.")] = None
    user: Annotated[list[str] | None, Repeated, Parameter(help="Jobs of this user; repeat it.")] = None
    gpus: Annotated[str | None, Parameter(help="Jobs of so many GPUs: 8, 1-8, 1- or -64.")] = None
    duration: Annotated[str | None, Parameter(help="Jobs that run so long, s: 60-86400, 60-.")] = None
    split: Annotated[
        Literal["train", "validation", "test"] | None, Parameter(help="One part of a split by time.")
    ] = None
    shares: Annotated[str | None, Parameter(help="Parts of the span for --split. (default: 0.6,0.2,0.2)")] = (
        None
    )
    first_job: Annotated[Whole | None, Parameter(help="A window of jobs: position of its first, from 0.")] = (
        None
    )
    jobs: Annotated[Whole | None, Parameter(help="A window of jobs: how many.")] = None
    thin: Annotated[float | None, Parameter(help="Keep this share of the jobs, drawn by row.")] = None
    resample_days: Annotated[
        Whole | None, Parameter(help="So many new days drawn from the workload's own.")
    ] = None
    keep_weekdays: Annotated[
        bool, Parameter(negative=(), help="With it: a Monday for a Monday.", show_default=False)
    ] = False
    max_duration: Annotated[float | None, Parameter(help="Cut longer durations to this, s.")] = None
    min_duration: Annotated[float | None, Parameter(help="Raise shorter durations to this, s.")] = None
    widen: Annotated[
        float | None, Parameter(help="This share of the jobs on 2, 4, 8 ... times the GPUs, for less time.")
    ] = None
    widen_to: Annotated[Whole | None, Parameter(help="With it: GPUs of a gang at most.")] = None
    relabel: Annotated[
        list[str] | None,
        Repeated,
        Parameter(help="OLD=NEW: rename a group; *=NEW all others; repeat it for more."),
    ] = None
    compress: Annotated[float | None, Parameter(help="Make submits so many times as dense.")] = None
    load: Annotated[float | None, Parameter(help="Compress time so that this is the load on --cluster.")] = (
        None
    )
    level_days: Annotated[
        float | None, Parameter(help="With --load: reach it in every so many days, not only on the whole.")
    ] = None
    estimates: Annotated[
        str | None,
        Parameter(help="Requests: exact, noisy[:SIGMA], round[:FACTOR], or a table with estimate_s."),
    ] = None
    seed: Annotated[Whole | None, Parameter(help="Of all draws. (default: 0)")] = None

    def config(self) -> ShapeConfig:
        """The settings as ``shape`` takes them.

        Raises:
            InputError: for a value that cannot be read.
        """
        given = {
            "start": self.start,
            "end": self.end,
            "drop_duplicates": self.drop_duplicates,
            "statuses": tuple(self.status or ()),
            "groups": tuple(self.group or ()),
            "users": tuple(self.user or ()),
            "gpus": parse_range("--gpus", self.gpus),
            "duration_s": parse_range("--duration", self.duration),
            "split": self.split,
            "shares": _parse_shares(self.shares),
            "first_job": self.first_job,
            "job_count": self.jobs,
            "thin": self.thin,
            "resample_days": self.resample_days,
            "keep_weekdays": self.keep_weekdays,
            "clamp_max_s": self.max_duration,
            "clamp_min_s": self.min_duration,
            "widen": self.widen,
            "widen_to": self.widen_to,
            "relabel_groups": parse_pairs("--relabel", self.relabel or ()),
            "compress": self.compress,
            "load": self.load,
            "level_days": self.level_days,
            "estimates": self.estimates,
            "seed": self.seed,
        }
        return _validated({name: value for name, value in given.items() if value is not None})


_OPTIONS = {"job_count": "--jobs", "clamp_max_s": "--max-duration", "clamp_min_s": "--min-duration"}


def _validated(given: dict[str, Any]) -> ShapeConfig:
    from pydantic import ValidationError

    from gpuyard.workload.shaping.shape import ShapeConfig

    try:
        return ShapeConfig(**given)
    except ValidationError as error:
        problem = error.errors()[0]
        name = str(problem["loc"][0])
        option = _OPTIONS.get(name, "--" + name.replace("_", "-"))
        raise InputError(f"{option}: {problem['msg']}") from None


def parse_range(option: str, text: str | None) -> tuple[float | None, float | None] | None:
    """``8``, ``1-8``, ``1-`` or ``-64`` as smallest and largest value; None if not given.

    Raises:
        InputError: if it cannot be read.
    """
    if text is None:
        return None
    match = _RANGE.fullmatch(text.strip())
    low, dash, high = match.groups() if match else (None, None, None)
    if low is None and high is None:
        raise InputError(f"{option} {text!r}: expected one number or a range, such as 8, 1-8, 1- or -64")
    if dash is None:
        high = low
    return (None if low is None else float(low), None if high is None else float(high))


def parse_pairs(option: str, texts: list[str] | tuple[()]) -> dict[str, str]:
    """``NAME=VALUE`` texts as a mapping.

    Raises:
        InputError: for a text without ``=``.
    """
    pairs = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals or not name:
            raise InputError(f"{option} {text!r}: expected NAME=VALUE")
        pairs[name] = value
    return pairs


def _parse_shares(text: str | None) -> tuple[float, ...] | None:
    if text is None:
        return None
    try:
        return tuple(float(part) for part in text.split(","))
    except ValueError:
        raise InputError(f"--shares {text!r}: expected three numbers, such as 0.6,0.2,0.2") from None
