"""How long windows may be so that a part of a workload holds enough of them."""

from collections.abc import Sequence

from gpuyard.errors import InputError
from gpuyard.evaluate.bootstrap import FEWEST_DISJOINT
from gpuyard.simulation.windows import Part, part_bounds
from gpuyard.workload import Workload

ENOUGH = 8
"""Windows side by side: intervals are weak with fewer than five."""
LEAST_JOBS = 16
"""Of a window: shorter ones rarely see a queue."""


def fitting_size(workload: Workload, parts: Sequence[Part]) -> int | None:
    """Jobs of a window such that each part holds enough of them side by side; None if it has too few jobs."""
    fewest = min(_jobs(workload, part) for part in parts)
    size = max(LEAST_JOBS, fewest // ENOUGH)
    return size if fewest >= FEWEST_DISJOINT * size else None


def few_windows(workload: Workload, part: Part, jobs: int | None) -> str:
    """That a part holds so few windows side by side that intervals will be weak, and what to do.

    Args:
        workload: All jobs.
        part: On which policies are to be compared.
        jobs: Of a window; None: the whole part is one.

    Returns:
        A sentence; empty if there are enough, or not one, which is refused elsewhere.
    """
    there = _jobs(workload, part)
    if jobs is None or not jobs <= there < FEWEST_DISJOINT * jobs:
        return ""
    size = fitting_size(workload, [part])
    what_to_do = "compare on draws like these jobs (--draws)"
    if size is not None:
        what_to_do = f"--jobs-per-window {size} would make it {there // size}"
    return (
        f"the {part} part of {workload.metadata.name} has {there:,} jobs, {there / jobs:.1f} windows of "
        f"{jobs:,} side by side, so intervals will be weak; {what_to_do}"
    )


def refuse_long_windows(workload: Workload, parts: Sequence[Part], jobs: int | None) -> None:
    """Refuse windows that are longer than a part, with the size that would do.

    Args:
        workload: All jobs.
        parts: All that windows are to be taken from.
        jobs: Of a window; None: a whole part is one.

    Raises:
        InputError: naming the part.
    """
    size = fitting_size(workload, parts)
    what_to_do = "compare on draws like these jobs (--draws)"
    if size is not None:
        what_to_do = f"use shorter windows, such as --jobs-per-window {size}"
    for part in parts:
        there = _jobs(workload, part)
        if there < (jobs or 1):
            raise InputError(
                f"windows of {jobs or 1:,} jobs: the {part} part of {workload.metadata.name} has {there:,}; "
                f"{what_to_do}"
            )


def _jobs(workload: Workload, part: Part) -> int:
    begin, end = part_bounds(workload, part)
    return end - begin
