"""The ``milp`` policy: an order, and the first jobs of the queue placed together (docs/guide/policies.md)."""

from collections import Counter
from typing import Any

import numpy as np

from gpuyard import _core
from gpuyard.errors import InputError
from gpuyard.policies.base import Policy
from gpuyard.policies.grammar import PolicySpec
from gpuyard.policies.milp.solver import Job, MilpSolver, MilpWeights

FALLBACK_PLACEMENT = "tier"


class MilpPolicy(Policy):
    """Decides on snapshots: windows of jobs are solved one after another until one does not start whole."""

    def __init__(self, policy: PolicySpec, weights: MilpWeights | None = None) -> None:
        self._policy = policy
        self._counters = Counter({"milp_solved": 0, "milp_limited": 0, "milp_fallbacks": 0})
        self._solver = MilpSolver(weights)
        self._tier = PolicySpec(policy.order, "strict", None, FALLBACK_PLACEMENT).compile()

    @property
    def name(self) -> str:
        """Of the policy."""
        return self._policy.name

    @property
    def rules(self) -> PolicySpec:
        """What it is made of."""
        return self._policy

    @property
    def counters(self) -> Counter[str]:
        """How often the solver was needed, reached its limit, or had to be replaced by ``tier``."""
        return self._counters

    def decide(self, snapshot: _core.Snapshot) -> _core.Decision:
        """What to start now."""
        queue = snapshot.queue
        if (queue["nodes"] > 0).any():
            raise InputError(
                f"policy {self.name}: milp placement cannot be combined with jobs that ask for a number of "
                "nodes; use tier"
            )
        place_of = {int(job): place for place, job in enumerate(queue["job"])}
        ranked = [int(job) for job in _core.ranking(snapshot, self._tier)[0]]
        decision = _core.Decision()
        for number in np.unique(queue["queue"]):
            jobs = [job for job in ranked if queue["queue"][place_of[job]] == number]
            if not self._fill(snapshot, jobs, [int(queue["gpus"][place_of[job]]) for job in jobs], decision):
                return _core.decide(snapshot, self._tier)
        return decision

    def _fill(
        self, snapshot: _core.Snapshot, jobs: list[int], gpus: list[int], decision: _core.Decision
    ) -> bool:
        """Start what windows of these jobs should; False if the first one has no solution."""
        asks: list[Job] = [
            (size, tuple(snapshot.allowed_pools(job))) for job, size in zip(jobs, gpus, strict=True)
        ]
        nodes = _Nodes(snapshot.nodes, {pool for _, pools in asks for pool in pools})
        window = self._solver.weights.window
        for first in range(0, len(jobs), window):
            here = asks[first : first + window]
            after = asks[first + window] if first + window < len(jobs) else None
            solution = self._solver.solve(nodes.pool, nodes.size, nodes.free, here, after)
            self._counters["milp_solved"] += solution.solver_used
            self._counters["milp_limited"] += solution.status == "limited"
            if solution.status == "fallback":
                self._counters["milp_fallbacks"] += 1
                return first > 0  # further windows can wait for the next event
            for index, parts in solution.starts:
                decision.start(jobs[first + index], nodes.take(parts))
            if len(solution.starts) < len(here):
                break
        return True


class _Nodes:
    """Free GPUs of the nodes of some pools."""

    def __init__(self, columns: dict[str, Any], pools: set[int]) -> None:
        usable = np.isin(columns["pool"], list(pools)) & (columns["available"] != 0)
        self._ids = np.flatnonzero(usable)
        self.pool, self.size, self.free = (
            columns[name][self._ids].astype(np.int64) for name in ("pool", "gpus", "empty_gpus")
        )

    def take(self, parts: list[tuple[int, int]]) -> list[tuple[int, int]]:
        """Take GPUs; the parts with the cluster's numbers of nodes."""
        for node, gpus in parts:
            self.free[node] -= gpus
        return [(int(self._ids[node]), gpus) for node, gpus in parts]
