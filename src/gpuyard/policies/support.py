"""What cannot be combined: the support matrix of docs/contract/simulator.md, section 20."""

from gpuyard.cluster.limits import has_running_limits
from gpuyard.cluster.model import Cluster
from gpuyard.config import SimulationConfig
from gpuyard.errors import InputError, setting
from gpuyard.policies.grammar import PolicySpec
from gpuyard.workload import Workload
from gpuyard.workload.core_columns import asked_counts

LARGEST_TIER_NODE = 16
"""GPUs of a node, at most, for the tier placements: they go through all ways to split a gang."""
SPLITTING = ("anywhere", "spread", "random")
TIERS = ("tier", "tier-balance", "tier-lex", "tier-cost")


def needs_power(policy: PolicySpec | None, config: SimulationConfig) -> bool:
    """Whether watts matter to what is decided."""
    if config.power_cap_w is not None or policy is None:
        return config.power_cap_w is not None
    return getattr(policy.order_rule, "needs_watts", False) or policy.placement == "power-aware"


def check_supported(
    workload: Workload, cluster: Cluster, policy: PolicySpec | None, config: SimulationConfig
) -> None:
    """Check that policy, settings, jobs and cluster go together. Policy None is one that decides for itself.

    Raises:
        InputError: saying what contradicts what, and what to do.
    """
    _check_power(cluster, policy, config)
    _check_quotas(cluster, config)
    _check_partitions(cluster, policy, config)
    if policy is None:
        return
    _check_cap(policy, config)
    if policy.is_optimised:
        _check_milp(workload, cluster, policy, config)
    if policy.preempts or config.defragment:
        _check_preemption(policy, config)
    if policy.backfill == "conservative":
        _check_conservative(workload, policy, config)
    if policy.backfill == "slurm":
        _check_slurm(policy, config)
    if policy.placement in TIERS and max(group.gpus for group in cluster.nodes) > LARGEST_TIER_NODE:
        raise InputError(
            f"placement {policy.placement} is for nodes of at most {LARGEST_TIER_NODE} GPUs; "
            "use consolidate or fgd"
        )


def check_beginning(config: SimulationConfig, workload: Workload) -> None:
    """Check that a schedule may be given up to a moment.

    Raises:
        InputError: saying what contradicts it, and what to do.
    """
    obstacles = {
        "failures of nodes (node_mtbf_s)": config.node_mtbf_s is not None,
        "sleeping nodes (sleep_after_s)": config.sleep_after_s is not None,
        "jobs that come after others (column after)": workload.has("after"),
    }
    for what, there in obstacles.items():
        if there:
            raise InputError(
                f"a given beginning cannot be combined with {what}: what failed or slept before is unknown; "
                f"leave that setting out, or begin otherwise ({setting('window_start', 'busy')})"
            )


def _check_partitions(cluster: Cluster, policy: PolicySpec | None, config: SimulationConfig) -> None:
    """docs/contract/slurm.md, sections 1 and 2: what partitions and limits do not go with."""
    preempts = {
        "defragment": config.defragment,
        f"order {policy.order}, which preempts" if policy else "": policy is not None and policy.preempts,
        "conservative backfill": policy is not None and policy.backfill == "conservative",
    }
    others = {
        "group quotas": bool(config.group_quotas),
        "sleeping nodes": config.sleep_after_s is not None,
        "a power cap": config.power_cap_w is not None,
        f"placement {policy.placement}" if policy else "": policy is not None
        and policy.placement in SPLITTING,
    }
    optimised = {"milp placement": policy is not None and policy.is_optimised}
    for has, obstacles, part in (
        (bool(cluster.partitions), preempts | others | optimised, "partitions"),
        (has_running_limits(cluster), preempts, "limits on running jobs"),
        (bool(cluster.qos), optimised, "qualities of service"),
    ):
        for what, there in obstacles.items():
            if has and there:
                raise InputError(
                    f"cluster {cluster.name} has {part}, which cannot be combined with {what}; leave "
                    "that out, or leave them out of the cluster's file"
                )


def _check_slurm(policy: PolicySpec, config: SimulationConfig) -> None:
    """docs/contract/slurm.md, section 5."""
    obstacles = {
        "express admission": policy.admission is not None,
        "group quotas": bool(config.group_quotas),
        "sleeping nodes": config.sleep_after_s is not None,
        "a power cap": config.power_cap_w is not None,
        "a locality penalty": config.locality_penalty > 0,
        f"placement {policy.placement}": policy.placement in SPLITTING,
    }
    for what, there in obstacles.items():
        if there:
            raise InputError(
                f"policy {policy.name}: slurm backfill cannot be combined with {what}; use easy, "
                "or leave that out"
            )


def _check_cap(policy: PolicySpec, config: SimulationConfig) -> None:
    if config.power_cap_w is not None and policy.placement == "random":
        raise InputError(
            f"policy {policy.name}: under a power cap random placement may never find room for a job; "
            "use spread"
        )


def _check_preemption(policy: PolicySpec, config: SimulationConfig) -> None:
    who = f"order {policy.order} preempts" if policy.preempts else "defragment moves running jobs"
    if policy.backfill not in ("strict", "greedy"):
        raise InputError(
            f"policy {policy.name}: {who}, which would break the reservations of {policy.backfill}; "
            f"use {policy.order}+greedy or {policy.order}+strict"
        )
    if policy.admission:
        raise InputError(
            f"policy {policy.name}: {who}, and that cannot be combined with express admission; "
            f"use {policy.order}+{policy.backfill}"
        )
    if policy.max_wait_s is not None:
        raise InputError(
            f"policy {policy.name}: {who}, and that cannot be combined with an ageing bound; "
            f"use {policy.order}+{policy.backfill}"
        )
    if config.group_quotas or config.power_cap_w is not None:
        what = "group quotas" if config.group_quotas else "a power cap"
        raise InputError(
            f"policy {policy.name}: {who}, and that cannot be combined with {what}; "
            "use an order that does not preempt, such as fifo+easy, or leave that setting out"
        )


def _check_milp(workload: Workload, cluster: Cluster, policy: PolicySpec, config: SimulationConfig) -> None:
    frame = workload.frame
    limited = any(group.cpus is not None or group.memory_mib is not None for group in cluster.nodes)
    asks = (frame["cpus"] > 0).any() or (frame["memory_mib"] > 0).any()
    obstacles = {
        f"{policy.backfill} backfill": policy.backfill != "strict",
        "express admission": policy.admission is not None,
        "an ageing bound": policy.max_wait_s is not None,
        "preemption": policy.preempts or config.defragment,
        "group quotas": bool(config.group_quotas),
        "a power cap": config.power_cap_w is not None,
        "jobs that share GPUs or have none": bool(((frame["gpu_milli"] < 1000) | (frame["gpus"] < 1)).any()),
        "limits of CPUs and memory": limited and bool(asks),
        "jobs that ask for a number of nodes": bool(asked_counts(frame).any()),
    }
    for what, there in obstacles.items():
        if there:
            raise InputError(f"policy {policy.name}: milp placement cannot be combined with {what}; use tier")


def _check_conservative(workload: Workload, policy: PolicySpec, config: SimulationConfig) -> None:
    obstacles = {
        "express admission": policy.admission is not None,
        "group quotas": bool(config.group_quotas),
        "a power cap": config.power_cap_w is not None,
        "sleeping nodes": config.sleep_after_s is not None,
        "jobs that share GPUs": bool((workload.frame["gpu_milli"] < 1000).any()),
        f"a locality penalty and placement {policy.placement}, which may use more nodes than needed": (
            config.locality_penalty > 0 and policy.placement in SPLITTING + TIERS
        ),
    }
    for what, there in obstacles.items():
        if there:
            raise InputError(
                f"policy {policy.name}: conservative backfill cannot be combined with {what}; use easy"
            )


def _check_power(cluster: Cluster, policy: PolicySpec | None, config: SimulationConfig) -> None:
    if not needs_power(policy, config):
        return
    unknown = types_without_watts(cluster)
    if unknown:
        why = "a power cap" if config.power_cap_w is not None else "power-aware scheduling"
        raise InputError(
            f"{why} needs idle_w and peak_w of GPU type {unknown[0]}; state them in the cluster's TOML, "
            "or name a known type, such as 64x8:v100"
        )
    idle_mw = _idle_mw(cluster)
    if config.power_cap_w is not None and round(config.power_cap_w * 1000) < idle_mw:
        raise InputError(
            f"power_cap_w {config.power_cap_w:g}: cluster {cluster.name} draws {idle_mw / 1000:g} W when "
            "idle; the cap must be above that"
        )


def types_without_watts(cluster: Cluster) -> list[str]:
    """GPU types in use whose idle or peak watts are not known."""
    used = {group.type for group in cluster.nodes if group.gpus > 0}
    return [
        gpu_type.name
        for gpu_type in cluster.gpu_types
        if gpu_type.name in used and (gpu_type.idle_w is None or gpu_type.peak_w is None)
    ]


def tells_watts(cluster: Cluster) -> bool:
    """Whether energy can be told: the watts of all GPU types in use, and some watts at all."""
    some = any(group.gpus > 0 or group.idle_w > 0 or group.sleep_w > 0 for group in cluster.nodes)
    return some and not types_without_watts(cluster)


def _idle_mw(cluster: Cluster) -> int:
    """What the cluster draws with every GPU idle, each node's and GPU's draw in whole milliwatts."""
    gpu_mw = {gpu_type.name: round((gpu_type.idle_w or 0.0) * 1000) for gpu_type in cluster.gpu_types}
    return sum(
        group.count * (round(group.idle_w * 1000) + group.gpus * gpu_mw[group.type])
        for group in cluster.nodes
    )


def _check_quotas(cluster: Cluster, config: SimulationConfig) -> None:
    if not config.group_quotas:
        return
    if cluster.owners:
        raise InputError(
            f"group_quotas are for clusters without owned nodes, but nodes of {cluster.name} are owned by "
            f"{cluster.owners[0]}; use one or the other"
        )
    total = sum(config.group_quotas.values())
    if total > cluster.total_gpus:
        raise InputError(
            f"group_quotas add up to {total:,} GPUs, but cluster {cluster.name} has {cluster.total_gpus:,}"
        )
