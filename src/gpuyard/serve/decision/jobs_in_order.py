"""Jobs in order of their keys, from round to round."""

from array import array
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from itertools import chain
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gpuyard.serve.decision.job_rows import Known

Ints = NDArray[np.int64]
_FEW = 64
_FEW_OF = 32
"""So many changes, or one per so many jobs, are made in place."""


class JobsInOrder:
    """Ids of jobs, and where their rows are kept.

    What stays is not looked at: with thousands of jobs, to touch the objects of all of them costs more than
    everything else in a round.
    """

    def __init__(self) -> None:
        self._keys: list[Any] = []
        self.ids: list[str] = []
        self._first, self._count = array("q"), array("q")

    def __len__(self) -> int:
        return len(self.ids)

    def change(self, gone: Sequence[Known], new: Sequence[Known]) -> None:
        """Leave out some jobs and add others, both as they are kept."""
        if len(gone) + len(new) > _FEW + len(self) // _FEW_OF:
            return self._remake(gone, new)
        for known in gone:
            place = self.place(known)
            for column in self._columns():
                del column[place]
        for known in new:
            place = self.place(known)
            for column, value in zip(self._columns(), _entry(known), strict=True):
                column.insert(place, value)
        return None

    def _columns(self) -> tuple[Any, ...]:
        return self._keys, self.ids, self._first, self._count

    def _remake(self, gone: Sequence[Known], new: Sequence[Known]) -> None:
        left_out = {known.key for known in gone}
        stay = (entry for entry in zip(*self._columns(), strict=True) if entry[0] not in left_out)
        entries = sorted(chain(stay, map(_entry, new)))
        self._keys, self.ids = [entry[0] for entry in entries], [entry[1] for entry in entries]
        self._first = array("q", [entry[2] for entry in entries])
        self._count = array("q", [entry[3] for entry in entries])

    def place(self, known: Known) -> int:
        """Where a job is, or belongs."""
        return bisect_left(self._keys, known.key)

    def rows(self) -> tuple[Ints, Ints]:
        """First row of each job, and how many it has."""
        return np.array(self._first, np.int64), np.array(self._count, np.int64)

    def find_rows_again(self, known: Mapping[str, Known]) -> None:
        """Rows are kept elsewhere now."""
        self._first = array("q", [known[id].row for id in self.ids])


def _entry(known: Known) -> tuple[Any, str, int, int]:
    return known.key, known.job.id, known.row, known.count
