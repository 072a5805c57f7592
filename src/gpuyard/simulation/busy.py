"""How many jobs must run around a window for its figures not to depend on how the cluster began.

Found by a test: windows are run from an empty cluster and after a jam, with twice as many jobs before them
each time, until both starts agree; then with more jobs after them until those make no difference
(docs/contract/windows.md).
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gpuyard.cluster.model import Cluster
from gpuyard.config import SimulationConfig
from gpuyard.policies.grammar import PolicySpec
from gpuyard.simulation.window_set import FIGURES, WindowSet
from gpuyard.simulation.windows import HeldOutWindow, Margins, Part, WindowCutter

TESTED_WINDOWS = 8
TOLERANCE = 0.05
"""Relative difference up to which two starts agree."""
SHARE_OF_INTERVAL = 0.25
"""Of the interval of a figure over windows: differences up to it do not matter either."""
JAM = 3.0
"""Of a jam: so many times as many jobs as wait on average."""
FEWEST_BEFORE = 64
MOST_BEFORE, MOST_AFTER = 32, 8
"""Most jobs before and after a window, in windows."""
BEFORE_IN_OVERLOAD = 4
"""Jobs before a window, in windows, where more of them wait than a window has: no number would do."""
USUAL_METRIC = "mean_bounded_slowdown"


@dataclass(frozen=True)
class BusyTest:
    """What the test of two starts found.

    Attributes:
        margins: Jobs to run around windows.
        agrees: Whether both starts gave the same figures within the tolerance.
        gap: By how much figures after a jam exceeded those after an empty start, as a share; of the policy
            for which it is most.
        policy: The name of that policy.
        jam: Jobs of the jam.
    """

    margins: Margins
    agrees: bool
    gap: float
    policy: str
    jam: int


def find_margins(
    cutter: WindowCutter,
    cluster: Cluster,
    simulation: SimulationConfig,
    part: Part,
    policies: Sequence[PolicySpec],
    *,
    jobs: int,
    placement: str,
    metric: str = USUAL_METRIC,
    windows: int = TESTED_WINDOWS,
    most_before: int = MOST_BEFORE,
    threads: int | None = None,
) -> BusyTest:
    """Find out how many jobs windows of a part need around them.

    Args:
        cutter: Cuts windows out of the workload.
        cluster: What jobs run on.
        simulation: Settings.
        part: Of the workload.
        policies: For which both starts must agree.
        jobs: Own jobs of a window.
        placement: Of all policies.
        metric: By which starts are compared; another than those of ``FIGURES`` is replaced.
        windows: How many are tested.
        most_before: Most jobs before a window, in windows.
        threads: None: one per processor.
    """
    test = _Test(cutter, cluster, simulation, part, policies, jobs, placement, metric, threads)
    return test.run(windows, most_before)


class _Test:
    def __init__(
        self,
        cutter: WindowCutter,
        cluster: Cluster,
        simulation: SimulationConfig,
        part: Part,
        policies: Sequence[PolicySpec],
        jobs: int,
        placement: str,
        metric: str,
        threads: int | None,
    ) -> None:
        self._cutter, self._cluster, self._simulation = cutter, cluster, simulation
        self._part, self._policies, self._jobs = part, policies, jobs
        self._placement, self._threads = placement, threads
        self._metric = metric if metric in FIGURES else USUAL_METRIC

    def run(self, windows: int, most_before: int) -> BusyTest:
        self._count = windows
        if self._cutter.begins_recorded:  # which is no guess: nothing has to be found out about the start
            return BusyTest(Margins(0, self._after(0)), True, 0.0, self._policies[0].name, 0)
        begin, end = self._cutter.bounds(self._part)
        jam, waiting = self._replay()
        overloaded = waiting > self._jobs
        most = min((BEFORE_IN_OVERLOAD if overloaded else most_before) * self._jobs, (begin + end) // 2)
        before = most if overloaded else min(max(self._jobs // 2, FEWEST_BEFORE), most)
        while True:
            tested = self._cut(Margins(before, self._jobs))
            empty = self._logs(tested)
            gaps = (self._logs([window.saturated(jam) for window in tested]) - empty).mean(axis=1)
            slack = np.maximum(math.log1p(TOLERANCE), SHARE_OF_INTERVAL * _half_width(empty))
            agrees = bool((np.abs(gaps) <= slack).all())
            if agrees or before >= most:
                break
            before = min(2 * before, most)
        worst = int(np.argmax(np.abs(gaps) - slack))
        margins = Margins(before, self._after(before))
        return BusyTest(margins, agrees, float(np.expm1(gaps[worst])), self._policies[worst].name, jam)

    def _after(self, before: int) -> int:
        """So many jobs after windows that twice as many make no difference."""
        begin, end = self._cutter.bounds(self._part)
        most = min(MOST_AFTER * self._jobs, max(end - begin - self._jobs, 0) // 2)  # room for windows
        after = min(max(self._jobs // 4, 1), most)
        while after < most:
            longer = min(2 * after, most)
            windows = self._cut(Margins(before, longer))
            figures = [self._logs(_shortened(windows, longer - after)), self._logs(windows)]
            slack = np.maximum(math.log1p(TOLERANCE), SHARE_OF_INTERVAL * _half_width(figures[1]))
            if bool((np.abs(figures[1] - figures[0]).mean(axis=1) <= slack).all()):
                break
            after = longer
        return after

    def _cut(self, margins: Margins) -> list[HeldOutWindow]:
        return self._cutter.cut(self._part, count=self._count, jobs=self._jobs, margins=margins)

    def _logs(self, windows: Sequence[HeldOutWindow]) -> NDArray[np.float64]:
        """Logarithms of the metric, one row per policy and one column per window."""
        prepared = WindowSet(windows, self._cluster, self._simulation, self._placement)
        found = prepared.run(self._policies, threads=self._threads)
        offset = 1.0 if self._metric.endswith("_s") else 0.0
        return np.log(np.array([figures[self._metric] for figures in found]) + offset)

    def _replay(self) -> tuple[int, float]:
        """Jobs of a jam, and how many jobs wait on average, in a replay of the whole part.

        A jam has as many as arrive while one runs, and a few times as many as wait.
        """
        whole = self._cutter.cut(self._part, count=1, jobs=None, margins=Margins(self._jobs))
        frame = whole[0].jobs.frame[whole[0].own.start : whole[0].own.stop]
        found = WindowSet(whole, self._cluster, self._simulation, self._placement).run(
            self._policies, threads=self._threads
        )
        wait_s = max(float(figures["mean_wait_s"][0]) for figures in found)
        span_s = max(float(frame["submit_s"][-1] - frame["submit_s"][0]), 1.0)
        per_s = len(frame) / span_s
        stays_s = JAM * wait_s + float(frame["duration_s"].mean())  # type: ignore[arg-type]
        return min(math.ceil(stays_s * per_s), max(4 * self._jobs, 1)), wait_s * per_s


def _shortened(windows: Sequence[HeldOutWindow], jobs: int) -> list[HeldOutWindow]:
    return [window.shortened(jobs) for window in windows]


def _half_width(logs: NDArray[np.float64]) -> NDArray[np.float64]:
    """Of the 95 % interval of the mean over windows, by policy."""
    count = logs.shape[1]
    if count < 2:
        return np.zeros(logs.shape[0])
    spread: NDArray[np.float64] = 1.96 * logs.std(axis=1, ddof=1) / math.sqrt(count)
    return spread
