"""Limits on waits while a rule is searched for: whole parts replayed, against what runs today."""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import polars as pl

from gpuyard.cluster.model import Cluster
from gpuyard.config import GuardConfig, SimulationConfig, available_cores
from gpuyard.metrics.catalogue import compute_metrics
from gpuyard.metrics.classes import class_labels, class_table
from gpuyard.metrics.guards import BrokenLimit, broken_limits
from gpuyard.policies.base import Policy
from gpuyard.simulation.run import SimulationResult, simulate
from gpuyard.simulation.windows import HeldOutWindow


@dataclass(frozen=True)
class _Waits:
    """Of all jobs of a part, and by class."""

    metrics: dict[str, Any]
    classes: pl.DataFrame


class Guard:
    """Says which limits on waits a policy breaks in whole parts of a log.

    Attributes:
        longest_s: The longest wait of today, seconds.

    Args:
        parts: Each whole part as one window.
        cluster: What jobs run on.
        simulation: Settings.
        current: What runs today.
        config: How much is too much.
        threads: None: one per processor.
    """

    def __init__(
        self,
        parts: Sequence[HeldOutWindow],
        cluster: Cluster,
        simulation: SimulationConfig,
        current: Policy,
        config: GuardConfig,
        threads: int | None = None,
    ) -> None:
        self._parts, self._cluster, self._simulation = parts, cluster, simulation
        self._config, self._threads = config, threads or available_cores()
        self._today = self._waits(current)
        self.longest_s = max(float(waits.metrics["max_wait_s"]) for waits in self._today)

    def broken(self, policy: Policy) -> list[BrokenLimit]:
        """The limits that a policy breaks in any of the parts, the worst first."""
        found = [
            one
            for own, today in zip(self._waits(policy), self._today, strict=True)
            for one in broken_limits(own.metrics, today.metrics, own.classes, today.classes, self._config)
        ]
        return sorted(found, key=lambda one: -one.excess)

    def _waits(self, policy: Policy) -> list[_Waits]:
        with ThreadPoolExecutor(self._threads) as pool:
            return list(pool.map(lambda part: self._replay(policy, part), self._parts))

    def _replay(self, policy: Policy, part: HeldOutWindow) -> _Waits:
        rules = policy.rules
        predicts = self._simulation.estimates == "history" or (rules is not None and rules.predicts)
        history = part.history() if predicts else None
        result = simulate(part.jobs, self._cluster, policy, self._simulation, history=history)
        metrics = compute_metrics(part.jobs, self._cluster, result.schedule, measured=part.own)
        return _Waits(metrics, _classes(result, part.own))


def _classes(result: SimulationResult, own: range) -> pl.DataFrame:
    rows = result.schedule.job
    counts = (rows >= own.start) & (rows < own.stop)
    frame = result.workload.frame[rows[counts]]
    times = {
        "start_s": result.schedule.start_us[counts] / 1e6,
        "end_s": result.schedule.end_us[counts] / 1e6,
    }
    jobs = frame.select("submit_s", "duration_s").with_columns(
        pl.Series(name, values) for name, values in times.items()
    )
    return class_table(jobs, class_labels(frame, ()))
