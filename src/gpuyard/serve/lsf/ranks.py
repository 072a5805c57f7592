"""Priorities on an LSF that has none: places in a queue, which btop changes, and the agent's word for them.

LSF considers the waiting jobs of a queue in the order in which bjobs lists them. A priority is written as a
word in the description, and by moving the job to its place; jobs that were never moved have a small one that
follows from their number.
"""

import re
from bisect import bisect_left
from collections.abc import Mapping, Sequence

from gpuyard.serve.comments import Comment

_RANK = re.compile(r"@rank=(\d+)$")
_HIGHEST_NATURAL = 900_000_000
"""Below what the agent gives by default."""


def rank_word(decision: str, priority: int) -> str:
    """The agent's word for a priority that it wrote, without the mark before it."""
    return f"{decision}@rank={priority}"


def stated_rank(comment: str) -> int | None:
    """The priority that the agent wrote; None if it wrote none."""
    found = _RANK.search(Comment.read(comment).own)
    return int(found[1]) if found else None


def natural_priority(job: str) -> int:
    """Of a job that nobody moved: earlier ones first."""
    return max(1, _HIGHEST_NATURAL - int(job.partition("[")[0]))


def ranked(listed: Sequence[tuple[str, str]]) -> dict[str, int]:
    """Priorities of a queue's jobs.

    Args:
        listed: Jobs and their descriptions, in LSF's order.

    Returns:
        By job. One that the agent moved, and that somebody moved again, counts as never moved.
    """
    found = {job: natural_priority(job) for job, _ in listed}
    stated = [(job, rank) for job, comment in listed if (rank := stated_rank(comment)) is not None]
    kept = longest_rising([-rank for _, rank in stated])
    return found | {stated[place][0]: stated[place][1] for place in kept}


def moves(listed: Sequence[str], priorities: Mapping[str, int]) -> list[tuple[str, int]]:
    """The fewest moves that put a queue into the order of priorities, largest first.

    Args:
        listed: Jobs in LSF's order.
        priorities: Of each.

    Returns:
        Jobs and the places, from 1, to which each is moved, one after another.
    """
    places = {job: place for place, job in enumerate(listed)}
    wanted = sorted(listed, key=lambda job: (-priorities[job], places[job]))
    stay = {wanted[place] for place in longest_rising([places[job] for job in wanted])}
    now = list(listed)
    made = []
    for before, job in zip([None, *wanted[:-1]], wanted, strict=True):
        if job in stay:
            continue
        now.remove(job)
        target = now.index(before) + 1 if before is not None else 0
        now.insert(target, job)
        made.append((job, target + 1))
    return made


def longest_rising(values: Sequence[int]) -> set[int]:
    """Places of a longest strictly rising subsequence."""
    tails: list[int] = []
    ends: list[int] = []
    before: list[int] = []
    for place, value in enumerate(values):
        length = bisect_left(tails, value)
        before.append(ends[length - 1] if length else -1)
        tails[length : length + 1] = [value]
        ends[length : length + 1] = [place]
    found: set[int] = set()
    place = ends[-1] if ends else -1
    while place >= 0:
        found.add(place)
        place = before[place]
    return found
