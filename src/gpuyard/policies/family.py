"""The fixed heuristics that policies are measured against."""

from collections.abc import Iterable

from gpuyard.cluster.model import Cluster
from gpuyard.config import SimulationConfig
from gpuyard.errors import InputError
from gpuyard.policies.grammar import Express, PolicySpec
from gpuyard.policies.heuristics import Order
from gpuyard.policies.support import check_supported, tells_watts
from gpuyard.registry import registered
from gpuyard.workload import Workload

BACKFILLS = ("strict", "greedy", "easy", "easy-sjf")
SLOWER_BACKFILLS = ("conservative",)
LANE = Express(1200.0, 0.05)
"""An express lane that nobody tuned: it has most of what a tuned one gains where run times are known."""


def fixed_heuristics(cluster: Cluster, simulation: SimulationConfig, placement: str) -> list[PolicySpec]:
    """Every order that acts on the same information, with every simple backfill, with and without a lane.

    Orders that preempt are left out, as they may do more, and those that a number belongs to.
    """
    told = simulation.estimates != "none"
    backfills = BACKFILLS if told else BACKFILLS[:2]
    return [
        PolicySpec(order, backfill, lane, placement)
        for order in _orders(cluster, simulation, preempting=False)
        for backfill in backfills
        for lane in ((None, LANE) if told else (None,))
    ]


def preempting_heuristics(cluster: Cluster, simulation: SimulationConfig, placement: str) -> list[PolicySpec]:
    """Orders that stop running jobs: they may do more than others, and stand apart."""
    return [
        PolicySpec(order, "greedy", None, placement)
        for order in _orders(cluster, simulation, preempting=True)
    ]


def _orders(cluster: Cluster, simulation: SimulationConfig, *, preempting: bool) -> list[str]:
    """Orders that go by what is known here, by name."""
    told = simulation.estimates != "none"
    return [
        name
        for name, rule in registered("order").items()
        if isinstance(rule, Order)
        and rule.preempts == preempting
        and not rule.form
        and name != "random"
        and (told or not rule.uses_estimates)
        and (tells_watts(cluster) or not rule.needs_watts)
    ]


def slower_heuristics(
    orders: Iterable[str], workload: Workload, cluster: Cluster, simulation: SimulationConfig, placement: str
) -> list[PolicySpec]:
    """Orders with the backfills that take many times as long, as far as they can run here.

    Args:
        orders: Names of orders.
        workload: Some of the jobs.
        cluster: What they run on.
        simulation: Settings.
        placement: Of all.
    """
    if simulation.estimates == "none":
        return []
    specs = [
        PolicySpec(order, backfill, lane, placement)
        for order in orders
        for backfill in SLOWER_BACKFILLS
        for lane in (None, LANE)
    ]
    return [spec for spec in specs if can_run(workload, cluster, spec, simulation)]


def can_run(workload: Workload, cluster: Cluster, spec: PolicySpec, simulation: SimulationConfig) -> bool:
    """Whether a policy goes with jobs, cluster and settings."""
    try:
        check_supported(workload, cluster, spec, simulation)
    except InputError:
        return False
    return True
