"""Native policies on many windows at once, for the few metrics that choosing among them needs."""

import math
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from copy import copy
from dataclasses import dataclass, field
from typing import Self

import numpy as np
from numpy.typing import NDArray

from gpuyard import _core
from gpuyard.cluster.model import Cluster
from gpuyard.config import SimulationConfig, available_cores
from gpuyard.metrics.outcomes import bounded_slowdown
from gpuyard.native.inputs import CoreInputs, History, prepare
from gpuyard.policies.base import Policy, ReplayingPolicy
from gpuyard.policies.grammar import PolicySpec, parse_policy
from gpuyard.policies.policy_file import TunedPolicy
from gpuyard.simulation.run import SimulationResult, simulate
from gpuyard.simulation.windows import COLD, HeldOutWindow, Margins, Part, cut_windows
from gpuyard.workload import Workload
from gpuyard.workload.schema import microseconds

Figures = dict[str, NDArray[np.float64]]
"""Metrics by name, one value a window."""

FIGURES = ("mean_bounded_slowdown", "mean_slowdown", "mean_wait_s", "mean_jct_s", "p99_wait_s", "max_wait_s")


@dataclass(frozen=True)
class _Prepared:
    """A window as the core takes it."""

    window: HeldOutWindow
    cluster: Cluster
    simulation: SimulationConfig
    inputs: CoreInputs
    submit_us: NDArray[np.int64]
    duration_s: NDArray[np.float64]
    beginning: _core.Beginning | None = None
    known: dict[PolicySpec, tuple[float, ...]] = field(default_factory=dict)
    """What was found before: races by several metrics, grids and choices ask for the same again."""

    @classmethod
    def of(
        cls, window: HeldOutWindow, cluster: Cluster, policy: PolicySpec, simulation: SimulationConfig
    ) -> Self:
        frame = window.jobs.frame
        inputs = prepare(window.jobs, cluster, policy, simulation, for_learning=True)
        duration_us = np.maximum(microseconds(frame["duration_s"]), 1)
        return cls(
            window,
            cluster,
            simulation,
            inputs,
            _own(window, microseconds(frame["submit_s"])),
            _own(window, duration_us) / 1e6,
            None if window.beginning is None else window.beginning.for_core(inputs),
        )

    def run(self, policies: Sequence[PolicySpec]) -> list[tuple[float, ...]]:
        """The metrics of ``FIGURES`` for each policy, by the formulas of docs/contract/metrics.md."""
        for policy in policies:
            if policy not in self.known and isinstance(policy, TunedPolicy):
                self.known[policy] = self.simulate(policy)  # under other settings than were prepared
            if policy not in self.known:
                predicts = self.inputs.settings.predict or policy.predicts
                self.known[policy] = self._run(
                    policy.compile(), self.window.past if predicts else _core.Past()
                )
        return [self.known[policy] for policy in policies]

    def simulate(self, policy: Policy) -> tuple[float, ...]:
        """The same for one policy of any kind."""
        found = simulate_window(self.window, self.cluster, policy, self.simulation)
        # Jobs that it leaves out, as the log says nothing of them, do not count.
        ran = (found.schedule.job >= self.window.own.start) & (found.schedule.job < self.window.own.stop)
        rows = found.schedule.job[ran] - self.window.own.start
        start_us, end_us = found.schedule.start_us[ran], found.schedule.end_us[ran]
        return _figures(start_us - self.submit_us[rows], end_us - self.submit_us[rows], self.duration_s[rows])

    def _run(self, policy: _core.Policy, past: _core.Past) -> tuple[float, ...]:
        inputs = self.inputs
        arrays = _core.simulate(
            inputs.cluster, inputs.jobs, policy, inputs.settings, None, past, self.beginning
        )
        start_us, end_us = (_own(self.window, arrays[name]) for name in ("start_us", "end_us"))
        return _figures(start_us - self.submit_us, end_us - self.submit_us, self.duration_s)


def _figures(
    wait_us: NDArray[np.int64], jct_us: NDArray[np.int64], duration_s: NDArray[np.float64]
) -> tuple[float, ...]:
    """The metrics of ``FIGURES``."""
    wait_s, jct_s = wait_us / 1e6, jct_us / 1e6
    return (
        float(bounded_slowdown(jct_s, duration_s).mean()),
        float((jct_s / duration_s).mean()),
        float(wait_s.mean()),
        float(jct_s.mean()),
        float(np.percentile(wait_s, 99)),
        float(wait_s.max()),
    )


def _own(window: HeldOutWindow, values: NDArray[np.int64]) -> NDArray[np.int64]:
    """Of the jobs that count."""
    return values[window.own.start : window.own.stop]


def simulate_window(
    window: HeldOutWindow, cluster: Cluster, policy: Policy, simulation: SimulationConfig
) -> SimulationResult:
    """Run a policy on all jobs of a window; predictions begin with the jobs before it."""
    rules = policy.rules
    history: History | None = None
    if simulation.estimates == "history" or (rules is not None and rules.predicts):
        history = window.history() if isinstance(policy, ReplayingPolicy) else window.past
    return simulate(window.jobs, cluster, policy, simulation, history=history, beginning=window.beginning)


class WindowSet:
    """Windows prepared once, on which native policies are run by the thousand.

    Attributes:
        rows: Names of the windows.
        predicts: Whether estimates are predictions from history.
    """

    def __init__(
        self,
        windows: Sequence[HeldOutWindow],
        cluster: Cluster,
        simulation: SimulationConfig,
        placement: str = "consolidate",
    ) -> None:
        policy = parse_policy(f"fifo/{placement}")
        self.rows = tuple(window.name for window in windows)
        self.predicts = simulation.estimates == "history"
        self._windows = [_Prepared.of(window, cluster, policy, simulation) for window in windows]

    def __len__(self) -> int:
        return len(self.rows)

    @classmethod
    def of(
        cls,
        workload: Workload,
        cluster: Cluster,
        simulation: SimulationConfig,
        part: Part,
        *,
        count: int,
        jobs: int,
        placement: str = "consolidate",
        margins: Margins = COLD,
    ) -> Self:
        """What ``cut_windows`` cuts."""
        windows = cut_windows(
            workload, cluster, simulation, part, count=count, jobs=jobs, placement=placement, margins=margins
        )
        return cls(windows, cluster, simulation, placement)

    def joined(self, other: Self) -> Self:
        """These windows, then those of another set with the same settings."""
        both = copy(self)
        both.rows = (*self.rows, *other.rows)
        both._windows = [*self._windows, *other._windows]
        return both

    def spread(self, count: int) -> list[int]:
        """Numbers of ``count`` of the windows, evenly spaced."""
        return sorted({round(i) for i in np.linspace(0, len(self) - 1, min(count, len(self)))})

    def run_one(self, policy: Policy, threads: int | None = None) -> Figures:
        """Any policy, native or not, on all windows: slower than ``run``."""
        with ThreadPoolExecutor(threads or available_cores()) as pool:
            rows = list(pool.map(lambda one: one.simulate(policy), self._windows))
        table = np.array(rows, dtype=np.float64).reshape(len(self), len(FIGURES))
        return {name: table[:, i].copy() for i, name in enumerate(FIGURES)}

    def run(
        self,
        policies: Sequence[PolicySpec],
        which: Iterable[int] | None = None,
        threads: int | None = None,
        progress: Callable[[int], None] | None = None,
    ) -> list[Figures]:
        """Run policies on windows, all by default, on all processors.

        Args:
            policies: Native ones.
            which: Numbers of windows.
            threads: None: one a processor.
            progress: Told how many windows are done.

        Returns:
            What each policy reached on each of the windows.
        """
        numbers = list(range(len(self)) if which is None else which)
        with ThreadPoolExecutor(threads or available_cores()) as pool:
            found = []
            for rows in pool.map(lambda number: self._windows[number].run(policies), numbers):
                found.append(rows)
                if progress:
                    progress(len(found))
        table = np.array(found, dtype=np.float64).reshape(len(numbers), len(policies), len(FIGURES))
        return [{name: table[:, p, i].copy() for i, name in enumerate(FIGURES)} for p in range(len(policies))]


FIRST_ROUND, GROWTH = 4, 3
"""Windows of the first round of a race, and how many times as many the next one has."""
KEPT_SHARE, FEWEST_KEPT = 0.25, 8
"""Of policies, that enter the next round; more, if some are as good as the last of these."""

ALIKE = 1e-9
"""Mean logarithms that differ by less are the same."""


def race(
    windows: WindowSet,
    policies: Sequence[PolicySpec],
    metric: str,
    *,
    threads: int | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> list[tuple[PolicySpec, Figures]]:
    """Find the best policies without running all on every window.

    All are tried on a few windows, the better part on more, and so on. What counts is the mean logarithm of
    the metric, of which less is better.

    Args:
        windows: To run on.
        policies: Native ones.
        metric: One of ``FIGURES``.
        threads: None: one per processor.
        progress: Told how many of how many policies are through, over all rounds.

    Returns:
        Those of the last round, the best first, with what they reached on every window.
    """
    left = list(policies)
    which: list[int] = []
    count, done = FIRST_ROUND, 0
    while True:
        is_last = count >= len(windows) or len(left) <= FEWEST_KEPT
        which = sorted({*which, *windows.spread(len(windows) if is_last else count)})
        found = zip(left, windows.run(left, which, threads), strict=True)
        ranked = sorted(found, key=lambda one: (_mean_log(one[1][metric], metric), one[0].name))
        done += len(ranked)
        left = [] if is_last else [policy for policy, _ in _kept(ranked, metric)]
        if progress:
            progress(done, done + len(left))
        if is_last:
            return ranked
        count *= GROWTH


def _kept(ranked: list[tuple[PolicySpec, Figures]], metric: str) -> list[tuple[PolicySpec, Figures]]:
    """The better part; windows in which nobody waits must not leave the choice to names."""
    fewest = min(len(ranked), max(FEWEST_KEPT, math.ceil(len(ranked) * KEPT_SHARE)))
    worst = _mean_log(ranked[fewest - 1][1][metric], metric)
    return [one for one in ranked if _mean_log(one[1][metric], metric) <= worst + ALIKE]


def _mean_log(values: NDArray[np.float64], metric: str) -> float:
    offset = 1.0 if metric.endswith("_s") else 0.0
    return float(np.log(values + offset).mean())
