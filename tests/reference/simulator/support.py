"""Section 20 of docs/contract/simulator.md, and docs/contract/slurm.md: which combinations there are."""

from collections.abc import Iterator, Sequence

from reference.simulator.cluster import Watts
from reference.simulator.inputs import (
    ALL_BACKFILLS,
    ALL_ORDERS,
    ALL_PLACEMENTS,
    PREEMPTIVE_ORDERS,
    SPLITTING_RULES,
    TIER_RULES,
    Beginning,
    Job,
    Node,
    Partition,
    Policy,
    Qos,
    Settings,
)
from reference.simulator.limits import has_running_limits

LARGEST_TIER_NODE = 16


def check(
    nodes: Sequence[Node],
    jobs: Sequence[Job],
    policy: Policy,
    settings: Settings,
    watts: Watts,
    given: Beginning | None = None,
    partitions: Sequence[Partition] = (),
    qos: Sequence[Qos] = (),
) -> None:
    """Raises ValueError if the pages do not say yes to this."""
    if given is not None and (settings.node_mtbf_s is not None or settings.sleep_after_s is not None):
        raise ValueError("failures and sleep do not go with a given beginning")
    for message in problems(nodes, jobs, policy, settings, watts):
        raise ValueError(message)
    if given is not None and any(job.after for job in jobs):
        raise ValueError("dependencies do not go with a given beginning")
    preempts = policy.order in PREEMPTIVE_ORDERS or settings.defragment
    if has_running_limits(partitions, qos) and (preempts or policy.backfill == "conservative"):
        raise ValueError("running limits do not go with preemption and conservative backfill")
    if partitions:
        for message in problems_with_partitions(nodes, policy, settings):
            raise ValueError(f"{message} not for clusters with partitions")
    if policy.backfill == "slurm":
        for message in problems_with_slurm(policy, settings):
            raise ValueError(f"{message} not go with the backfill rule slurm")


def problems_with_partitions(nodes: Sequence[Node], policy: Policy, settings: Settings) -> Iterator[str]:
    if any(node.owner is not None for node in nodes):
        yield "owned nodes are"
    if settings.group_quotas:
        yield "quotas are"
    if policy.backfill == "conservative":
        yield "conservative backfill is"
    if policy.order in PREEMPTIVE_ORDERS or settings.defragment:
        yield "preemption is"
    if settings.sleep_after_s is not None or settings.power_cap_w is not None:
        yield "sleep and a power cap are"
    if policy.placement in SPLITTING_RULES:
        yield f"{policy.placement} placement is"


def problems_with_slurm(policy: Policy, settings: Settings) -> Iterator[str]:
    if policy.express is not None or settings.group_quotas:
        yield "express and quotas do"
    if settings.sleep_after_s is not None or settings.power_cap_w is not None:
        yield "sleep and a power cap do"
    if settings.locality_penalty > 0:
        yield "a locality penalty does"
    if policy.placement in SPLITTING_RULES:
        yield f"{policy.placement} placement does"


def problems(
    nodes: Sequence[Node], jobs: Sequence[Job], policy: Policy, settings: Settings, watts: Watts
) -> Iterator[str]:
    if (
        policy.backfill not in ALL_BACKFILLS
        or (policy.order not in ALL_ORDERS and not policy.order.startswith("power:"))
        or policy.placement not in ALL_PLACEMENTS
    ):
        yield f"unknown policy: {policy}"
    limits_starts = policy.express is not None or settings.group_quotas or settings.power_cap_w is not None
    if policy.order in PREEMPTIVE_ORDERS or settings.defragment:
        if policy.backfill not in ("strict", "greedy"):
            yield f"{policy.backfill} backfill does not go with preemption"
        if limits_starts or policy.max_wait_s is not None:
            yield "express, age, quotas and a power cap do not go with preemption"
    if policy.backfill == "conservative":
        if any(job.is_shared for job in jobs):
            yield "conservative backfill is not for shared GPUs"
        if limits_starts:
            yield "express, quotas and a power cap do not go with conservative backfill"
        if settings.sleep_after_s is not None:
            yield "sleep does not go with conservative backfill"
        if settings.locality_penalty > 0 and policy.placement in SPLITTING_RULES + TIER_RULES:
            yield f"a locality penalty with {policy.placement} does not go with conservative backfill"
    if settings.power_cap_w is not None and policy.placement == "random":
        yield "a power cap does not go with random placement"
    if policy.placement in TIER_RULES and any(node.gpus > LARGEST_TIER_NODE for node in nodes):
        yield f"tiers are for nodes of up to {LARGEST_TIER_NODE} GPUs"
    if settings.group_quotas and any(node.owner is not None for node in nodes):
        yield "quotas are for clusters without owned nodes"
    uses_watts = "power-aware" in (policy.order, policy.placement) or settings.power_cap_w is not None
    if uses_watts and any(node.gpus > 0 and node.type not in watts for node in nodes):
        yield "all GPU types of the cluster must have watts"
