"""The fixed heuristics that a learned policy is measured against."""

from collections.abc import Iterable

from gpuyard.cluster.model import Cluster
from gpuyard.config import SimulationConfig
from gpuyard.errors import InputError
from gpuyard.policies.grammar import PolicySpec
from gpuyard.policies.heuristics import Order
from gpuyard.policies.support import check_supported, tells_watts
from gpuyard.registry import registered
from gpuyard.workload import Workload

BACKFILLS = ("strict", "greedy", "easy")
SLOWER_BACKFILLS = ("easy-sjf", "conservative")


def fixed_heuristics(cluster: Cluster, simulation: SimulationConfig, placement: str) -> list[PolicySpec]:
    """Every order that acts on the same information, with every simple backfill.

    Orders that preempt are left out, as they may do more, and those that a number belongs to.
    """
    told = simulation.estimates != "none"
    specs = []
    for name, rule in registered("order").items():
        if not isinstance(rule, Order) or rule.preempts or rule.form or name == "random":
            continue
        if (rule.needs_watts and not tells_watts(cluster)) or (rule.uses_estimates and not told):
            continue
        specs += [PolicySpec(name, backfill, None, placement) for backfill in BACKFILLS]
    return [spec for spec in specs if told or spec.backfill != "easy"]


def slower_heuristics(
    orders: Iterable[str], workload: Workload, cluster: Cluster, simulation: SimulationConfig, placement: str
) -> list[PolicySpec]:
    """Orders with the backfills that take many times as long, as far as they can run here.

    Args:
        orders: Names of orders: the best of the fixed heuristics, for all of them would take minutes.
        workload: Some of the jobs.
        cluster: What they run on.
        simulation: Settings.
        placement: Of all.
    """
    if simulation.estimates == "none":
        return []
    specs = [
        PolicySpec(order, backfill, None, placement) for order in orders for backfill in SLOWER_BACKFILLS
    ]
    return [spec for spec in specs if can_run(workload, cluster, spec, simulation)]


def can_run(workload: Workload, cluster: Cluster, spec: PolicySpec, simulation: SimulationConfig) -> bool:
    """Whether a policy goes with jobs, cluster and settings."""
    try:
        check_supported(workload, cluster, spec, simulation)
    except InputError:
        return False
    return True
