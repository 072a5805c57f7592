"""Lists of the tasks of a job array, as Slurm writes them."""

import re
from collections.abc import Iterator

MAX_ARRAY_TASKS = 10_000
"""Most tasks that one record of an array may stand for."""


def task_ids(array_id: str) -> list[str] | None:
    """``7_[1-3,9%2]`` as 7_1, 7_2, 7_3, 7_9; None if the list is cut off or too long."""
    found = re.fullmatch(r"(\d+)_\[([\d,:-]+)(?:%\d+)?\](\+\d+)?", array_id)
    if not found:
        return None
    tasks: list[int] = []
    for part in _task_ranges(found[2]):
        if part is None or len(tasks) + len(part) > MAX_ARRAY_TASKS:
            return None
        tasks.extend(part)
    return [f"{found[1]}_{task}{found[3] or ''}" for task in tasks]


def _task_ranges(text: str) -> Iterator[range | None]:
    for part in text.split(","):
        found = re.fullmatch(r"(\d{1,9})(?:-(\d{1,9})(?::(\d{1,9}))?)?", part)
        first, last, step = (int(n) if n else None for n in found.groups()) if found else (None, None, None)
        if first is None or step == 0 or (last is not None and last < first):
            yield None
            return
        yield range(first, (first if last is None else last) + 1, step or 1)
