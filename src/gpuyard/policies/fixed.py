"""The fixed heuristics that a learned policy is measured against."""

from gpuyard.cluster import Cluster
from gpuyard.config import SimulationConfig
from gpuyard.policies.base import PolicySpec
from gpuyard.policies.heuristics import Heuristic
from gpuyard.policies.support import tells_watts
from gpuyard.registry import registered

BACKFILLS = ("strict", "greedy", "easy")


def fixed_heuristics(cluster: Cluster, simulation: SimulationConfig, placement: str) -> list[PolicySpec]:
    """Every order that acts on the same information, with every simple backfill.

    Orders that preempt are left out, as they may do more, and those that a number belongs to.
    """
    told = simulation.estimates != "none"
    specs = []
    for name, rule in registered("order").items():
        if not isinstance(rule, Heuristic) or rule.preempts or rule.form or name == "random":
            continue
        if (name == "power-aware" and not tells_watts(cluster)) or (rule.uses_estimates and not told):
            continue
        specs += [PolicySpec(name, backfill, None, placement) for backfill in BACKFILLS]
    return [spec for spec in specs if told or spec.backfill != "easy"]
