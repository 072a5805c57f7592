"""Limits on waits while a rule is searched for: whole parts replayed, against what runs today."""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

import polars as pl

from gpuyard.cluster.model import Cluster
from gpuyard.config import GuardConfig, SimulationConfig, available_cores
from gpuyard.metrics.guards import ALL, BrokenLimit, broken_limits
from gpuyard.policies.base import RECORDED, Policy
from gpuyard.simulation.replays import REPLAYS, Replays
from gpuyard.simulation.run import SimulationResult
from gpuyard.simulation.window_set import simulate_window
from gpuyard.simulation.windows import HeldOutWindow


def ageing_bounds(shares: Sequence[float], longest_s: float, least_s: float) -> list[float]:
    """Waits from which on jobs go first, to be tried, in three digits.

    A bound below the waits of a jam makes everyone old, and then the oldest go first whatever the order.

    Args:
        shares: Of the longest wait of today.
        longest_s: That wait, seconds.
        least_s: No bound is shorter; the shares below it are tried as this one.
    """
    if longest_s < 1.0:
        return []
    least_s = max(least_s, 1.0)
    rounded = [float(f"{share * longest_s:.3g}") for share in shares]
    lowest = float(f"{least_s:.3g}")
    lowest = lowest if lowest >= least_s else float(f"{1.01 * least_s:.3g}")
    return list(dict.fromkeys(max(bound, lowest) for bound in rounded))


class Guard:
    """Says which limits on waits a policy breaks in whole parts of a log.

    Attributes:
        longest_s: The longest wait of today, seconds.
        p99_s: The 99th percentile of today's waits, seconds, of the part where it is longest.

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
        self._parts = [Replays(part) for part in parts]
        self._cluster, self._simulation = cluster, simulation
        self._config, self._threads = config, threads or available_cores()
        self._is_recorded = current.name == RECORDED
        self._today = self._waits(current)
        overall = [waits.filter(pl.col("by") == ALL) for waits in self._today]
        self.longest_s = max(float(waits["max_wait_s"][0]) for waits in overall)
        self.p99_s = max(float(waits["p99_wait_s"][0]) for waits in overall)

    def broken(self, policy: Policy) -> list[BrokenLimit]:
        """The limits that a policy breaks in any of the parts, the worst first."""
        found = [
            one
            for own, today in zip(self._waits(policy), self._today, strict=True)
            for one in broken_limits(own, today, self._config, recorded=self._is_recorded)
        ]
        return sorted(found, key=lambda one: -one.excess)

    def _waits(self, policy: Policy) -> list[pl.DataFrame]:
        """Of every part, medians over replays."""
        replays = 1 if policy.name == RECORDED else REPLAYS

        def run(window: HeldOutWindow) -> SimulationResult:
            return simulate_window(window, self._cluster, policy, self._simulation)

        with ThreadPoolExecutor(self._threads) as pool:
            return list(pool.map(lambda part: part.typical_waits(run, replays), self._parts))
