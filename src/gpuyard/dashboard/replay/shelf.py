"""Schedules that are kept in memory: those that were looked at last, within a bound."""

import threading
from collections import OrderedDict
from pathlib import Path

from gpuyard.dashboard.replay.colours import Colouring, colouring
from gpuyard.dashboard.replay.index import ReplayIndex, read_index
from gpuyard.errors import InputError
from gpuyard.evaluate.setting import Outline
from gpuyard.evaluate.storage import read_outline

MOST_BYTES = 400_000_000
"""Of all schedules together, the one that is looked at not counted."""
Name = tuple[str, str]


class Shelf:
    """Keeps schedules. A file that has changed is read anew.

    Args:
        most_bytes: Of all schedules together; one larger than that is kept alone.
    """

    def __init__(self, most_bytes: int = MOST_BYTES) -> None:
        self._most_bytes = most_bytes
        self._kept: OrderedDict[Name, tuple[object, Shelved]] = OrderedDict()
        self._lock = threading.Lock()
        self._reading: dict[Name, threading.Lock] = {}

    def schedule(self, directory: Path, policy: str) -> "Shelved":
        """A policy's schedule.

        Raises:
            InputError: if it is not there or cannot be read.
        """
        outline = read_outline(directory)
        name, mark = (str(directory), policy), _mark(outline, policy)
        with self._lock:
            reading = self._reading.setdefault(name, threading.Lock())
        with reading:  # who asks meanwhile waits for the one that reads
            if (found := self._find(name, mark)) is not None:
                return found
            shelved = Shelved(read_index(outline, policy, str(directory)), outline)
            with self._lock:
                self._kept[name] = (mark, shelved)
                self._make_room()
            return shelved

    @property
    def bytes_kept(self) -> int:
        """What all schedules take of the memory."""
        return sum(shelved.index.memory_bytes for _, shelved in self._kept.values())

    def _find(self, name: Name, mark: object) -> "Shelved | None":
        with self._lock:
            known = self._kept.get(name)
            if known is None or known[0] != mark:
                return None
            self._kept.move_to_end(name)
            return known[1]

    def _make_room(self) -> None:
        while len(self._kept) > 1 and self.bytes_kept > self._most_bytes:
            name, _ = self._kept.popitem(last=False)
            self._reading.pop(name, None)


class Shelved:
    """A schedule with its colours, which are made once.

    Attributes:
        index: The schedule.
        outline: The results that it is of.
    """

    def __init__(self, index: ReplayIndex, outline: Outline) -> None:
        self.index, self.outline = index, outline
        self._colours: dict[str, Colouring] = {}

    def colours(self, by: str) -> Colouring:
        """As ``colouring``."""
        if by not in self._colours:
            self._colours[by] = colouring(self.index, by)
        return self._colours[by]


def _mark(outline: Outline, policy: str) -> object:
    """What changes when a schedule is written anew."""
    files = [files[policy] for files in (outline.schedules, outline.executions) if policy in files]
    try:
        return [(path.stat().st_mtime_ns, path.stat().st_size, path.stat().st_ino) for path in files]
    except OSError as error:
        raise InputError(
            f"{error.filename}: cannot be read ({error.strerror}); make the results again"
        ) from None
