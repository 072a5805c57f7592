"""Start times of waiting jobs, simulated beside the rounds in a thread that takes a tenth of the time."""

import queue
import threading
import time
from collections.abc import Callable

from gpuyard.policies.base import Policy
from gpuyard.serve.journal import Prediction
from gpuyard.serve.journal.rows import By
from gpuyard.serve.settings import ServeSettings
from gpuyard.serve.state import ClusterState
from gpuyard.serve.waits.forecast import Forecast, forecast
from gpuyard.serve.waits.run_times import RunTimes

EVERY_S = 10.0
"""Least time from one forecast to the next."""
REST = 9.0
"""A forecast is followed by a rest of this many times its own length."""


class Forecaster:
    """Forecasts under the policy and under what runs today.

    Args:
        settings: Of the agent.
        find: Makes a policy of a name: policies that learned serve one thread only.
    """

    def __init__(self, settings: ServeSettings, find: Callable[[str], Policy]) -> None:
        self._settings, self._find = settings, find
        self._given: tuple[ClusterState, int, dict[str, float], RunTimes] | None = None
        self._wanted = threading.Event()
        self._ended = threading.Event()
        self._rows: queue.SimpleQueue[tuple[int, list[Prediction]]] = queue.SimpleQueue()
        self._predicted: set[str] = set()
        self.latest: Forecast | None = None
        """Under the policy."""
        self.current: Forecast | None = None
        """Under what runs today."""
        self._thread = threading.Thread(target=self._work, daemon=True, name="forecasts")

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def close(self) -> None:
        """End, if no forecast is under way."""
        self._ended.set()
        self._wanted.set()
        self._thread.join(0.5)

    def give(
        self, state: ClusterState, number: int, predictions_s: dict[str, float], times: RunTimes
    ) -> None:
        """The newest state; older ones are passed over."""
        self._given = (state, number, predictions_s, times)
        self._wanted.set()

    def rows(self) -> list[tuple[int, list[Prediction]]]:
        """First predictions of jobs that are new since the last call, with the round they were made of."""
        found = []
        while not self._rows.empty():
            found.append(self._rows.get())
        return found

    def _work(self) -> None:
        policy, current = self._find(self._settings.policy), self._find(self._settings.current)
        while True:
            self._wanted.wait()
            if self._ended.is_set():
                return
            self._wanted.clear()
            given, began = self._given, time.monotonic()
            if given is None or not given[0].waiting:
                continue
            self._forecast(given, policy, current)
            self._ended.wait(max(EVERY_S, REST * (time.monotonic() - began)))

    def _forecast(
        self, given: tuple[ClusterState, int, dict[str, float], RunTimes], policy: Policy, current: Policy
    ) -> None:
        state, number, predictions_s, times = given
        made = [
            forecast(state, one, self._settings, times, predictions_s=predictions_s)
            for one in (policy, current)
        ]
        self.latest, self.current = made
        there = {job.id for job in state.waiting}
        fresh = there - self._predicted
        self._predicted = (self._predicted & set(state.by_id)) | fresh
        by_whom: tuple[By, ...] = ("policy", "current")
        rows = [
            Prediction(job, number, by, eta.low_s, eta.mid_s, eta.high_s)
            for by, found in zip(by_whom, made, strict=True)
            for job, eta in found.etas.items()
            if job in fresh
        ]
        if rows:
            self._rows.put((number, rows))
