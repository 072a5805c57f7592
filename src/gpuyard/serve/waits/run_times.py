"""How long jobs ran compared with their limits, by user: what forecasts draw run times from."""

import json
import math
import threading
from collections import deque
from typing import Self

import numpy as np
from numpy.typing import NDArray

from gpuyard.errors import InputError

Floats = NDArray[np.float64]

KEPT_PER_USER = 200
"""The latest jobs of one user that are kept."""
KEPT_OF_ALL = 2_000
"""The latest jobs of all users that are kept."""
MOST_USERS = 5_000
"""Users whose jobs are kept; those who finished none for longest are forgotten first."""
ENOUGH = 8
"""Finished jobs from which on a user's own are drawn from, and not those of all."""
UNKNOWN_LIMIT_S = 86_400.0
"""Stands for a limit where a job has none and nothing is known of finished ones."""
_LARGEST_RATIO = 1.5
"""Jobs do not run much longer than their limit: what says so comes from a limit that was changed."""

_NONE: Floats = np.empty(0)


class RunTimes:
    """Run times and limits of the latest finished jobs, bounded in size.

    What is not known of a user is taken from all users, and without those any share of the limit is as likely
    as any other. One thread may add to it while others draw from it.
    """

    def __init__(self) -> None:
        self._of_user: dict[str, deque[tuple[float, float]]] = {}
        self._of_all: deque[tuple[float, float]] = deque(maxlen=KEPT_OF_ALL)
        self._arrays: dict[str | None, tuple[Floats, Floats]] = {}
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._of_all)

    def add(self, user: str, run_s: float, limit_s: float | None) -> None:
        """Count a finished job. What makes no sense is passed over.

        Args:
            user: Whose it was.
            run_s: How long it ran, seconds.
            limit_s: Its limit, seconds; None if it had none.
        """
        if not math.isfinite(run_s) or run_s <= 0:
            return
        known = limit_s is not None and math.isfinite(limit_s) and limit_s > 0
        entry = (float(run_s), float(limit_s) if limit_s is not None and known else 0.0)
        with self._lock:
            self._keep(user, entry)

    def _keep(self, user: str, entry: tuple[float, float]) -> None:
        mine = self._of_user.pop(user, None) or deque(maxlen=KEPT_PER_USER)
        mine.append(entry)
        self._of_user[user] = mine  # at the end: the order is that of the last finished job
        self._of_all.append(entry)
        while len(self._of_user) > MOST_USERS:
            gone = next(iter(self._of_user))
            del self._of_user[gone]
            self._arrays.pop(gone, None)
        self._arrays.pop(user, None)
        self._arrays.pop(None, None)

    def run_s(self, user: str, limit_s: float | None, elapsed_s: float, where: Floats) -> Floats:
        """Run times of a job, given that it has run for some time.

        Args:
            user: Whose it is.
            limit_s: Its limit, seconds; None if it has none.
            elapsed_s: How long it has run, seconds; every run time is longer.
            where: Places in the distribution, 0 to 1, one for each run time.
        """
        limited = limit_s is not None and math.isfinite(limit_s) and limit_s > 0
        scale_s = float(limit_s) if limit_s is not None and limited else 1.0
        for who in (user, None):
            ratios, runs_s = self._sorted(who)
            known = ratios * scale_s if limited else runs_s
            longer = known[np.searchsorted(known, elapsed_s, side="right") :]
            if len(longer) >= ENOUGH:
                chosen: Floats = longer[np.minimum((where * len(longer)).astype(np.int64), len(longer) - 1)]
                return chosen
        if not limited:
            return elapsed_s + where * max(UNKNOWN_LIMIT_S, elapsed_s)
        # A job past its limit is about to be ended by it.
        rest_s = scale_s - elapsed_s if scale_s > elapsed_s else max(60.0, 0.01 * scale_s)
        return elapsed_s + np.maximum(where, 1e-3) * rest_s

    def to_json(self) -> str:
        """All of it; ``from_json`` reads it back."""
        with self._lock:
            users = {user: [*entries] for user, entries in self._of_user.items()}
            everybody = [*self._of_all]
        return json.dumps({"users": users, "all": everybody}, separators=(",", ":"), allow_nan=False)

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Read what ``to_json`` wrote.

        Raises:
            InputError: if it is something else.
        """
        made = cls()
        try:
            values = json.loads(text)
            for user, entries in values["users"].items():
                pairs = ((float(run_s), float(limit_s)) for run_s, limit_s in entries)
                made._of_user[str(user)] = deque(pairs, maxlen=KEPT_PER_USER)
            made._of_all.extend((float(run_s), float(limit_s)) for run_s, limit_s in values["all"])
        except (ValueError, KeyError, TypeError, AttributeError):
            raise InputError("these are no run times: expected the JSON that gpuyard writes") from None
        return made

    def _sorted(self, user: str | None) -> tuple[Floats, Floats]:
        """Shares of limits and run times of a user's jobs, or of all, each ascending."""
        with self._lock:
            if user is not None and user not in self._of_user:
                return _NONE, _NONE
            if user not in self._arrays:
                entries = self._of_all if user is None else self._of_user[user]
                table = np.array([*entries], dtype=np.float64).reshape(-1, 2)
                limited = table[table[:, 1] > 0]
                ratios = np.minimum(limited[:, 0] / limited[:, 1], _LARGEST_RATIO)
                self._arrays[user] = (np.sort(ratios), np.sort(table[:, 0]))
            return self._arrays[user]
