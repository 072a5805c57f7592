"""What the colours of a picture mean: a key from 1 on for each job, and the names of keys."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from gpuyard.dashboard.replay.index import ReplayIndex
from gpuyard.errors import InputError
from gpuyard.registry import suggest

By = Literal["wait", "job", "user", "group", "size"]
CHOICES: tuple[str, ...] = get_args(By)
WAIT_STEPS = (60.0, 600.0, 3600.0, 21_600.0, 86_400.0, 604_800.0)
WAIT_NAMES = ("< 1 min", "< 10 min", "< 1 h", "< 6 h", "< 1 d", "< 7 d", "more")
SIZE_STEPS = (1, 2, 4, 8, 16, 64)
SIZE_NAMES = ("1 GPU or less", "2", "3–4", "5–8", "9–16", "17–64", "more")
"""The steps of waits and sizes are those of the report's chart of the cluster."""
MOST_NAMES = 7
"""Users or groups with a colour of their own: those that ask for most GPU time."""
JOB_COLOURS = 12
_SPREAD = 5
"""Coprime to ``JOB_COLOURS``, so that jobs that come one after the other differ much."""
Keys = NDArray[np.uint8]


@dataclass(frozen=True)
class Colouring:
    """Colours of the jobs of a schedule.

    Attributes:
        keys: Of each job, from 1 on.
        names: What each key means; empty where there is nothing to say.
        palette: ``heat``, ``series`` or ``job``: which colours the page takes.
    """

    keys: Keys
    names: Sequence[str]
    palette: str


def colouring(index: ReplayIndex, by: str) -> Colouring:
    """The colours of a schedule's jobs.

    Args:
        index: The schedule.
        by: One of ``CHOICES``.

    Raises:
        InputError: for another ``by``.
    """
    if by == "wait":
        return Colouring(_steps(index.start_s - index.submit_s, WAIT_STEPS, "right"), WAIT_NAMES, "heat")
    if by == "size":
        return Colouring(_steps(_sizes(index), SIZE_STEPS, "left"), SIZE_NAMES, "heat")
    if by == "job":
        rows = index.jobs["row"].to_numpy()
        return Colouring((rows * _SPREAD % JOB_COLOURS + 1).astype(np.uint8), (), "job")
    if by not in CHOICES:
        raise InputError(f"colour {by!r} is none of these{suggest(by, dict.fromkeys(CHOICES))}")
    return _by_name(index, by, largest(index, by))


def _sizes(index: ReplayIndex) -> NDArray[np.float64]:
    """GPUs of each job."""
    return (index.jobs["gpus"] * index.jobs["gpu_milli"] / 1000).to_numpy()


def largest(index: ReplayIndex, by: str) -> list[str]:
    """The users or groups that ask for most GPU time: the same ones under all policies."""
    codes = index.jobs[by].to_physical().to_numpy()
    asked = np.bincount(codes, weights=index.jobs["duration_s"].to_numpy() * np.maximum(_sizes(index), 1e-6))
    known = index.jobs[by].dtype.categories  # type: ignore[attr-defined]
    return [str(known[int(code)]) for code in np.argsort(-asked, kind="stable")[:MOST_NAMES]]


def _by_name(index: ReplayIndex, by: str, names: Sequence[str]) -> Colouring:
    known = index.jobs[by].dtype.categories.to_list()  # type: ignore[attr-defined]
    place = {name: key for key, name in enumerate(names, 1)}
    key_of = np.array([place.get(name, MOST_NAMES + 1) for name in known], np.uint8)
    others = [*names, *[""] * (MOST_NAMES - len(names)), "others"] if len(known) > len(names) else names
    return Colouring(key_of[index.jobs[by].to_physical().to_numpy()], others, "series")


def _steps(values: NDArray[Any], steps: Sequence[float], side: Literal["left", "right"]) -> Keys:
    return (np.searchsorted(np.array(steps), values, side=side) + 1).astype(np.uint8)
