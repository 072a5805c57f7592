"""Workloads and settings under which each registered policy is legal.

See docs/contract/simulator.md, section 20.
"""

from dataclasses import dataclass
from functools import cache

import polars as pl

from gpuyard.cluster.model import Cluster, NodeGroup
from gpuyard.config import SimulationConfig
from gpuyard.policies.grammar import parse_policy
from gpuyard.registry import registered
from gpuyard.workload import SynthConfig, Workload, make_workload, synthesize
from support.env_runs import FAST_AND_SLOW

ORDERS, BACKFILLS, PLACEMENTS = (
    tuple(rule.usable_name for rule in registered(kind).values())
    for kind in ("order", "backfill", "placement")
)
PREEMPTIVE = tuple(name for name, rule in registered("order").items() if rule.preempts)
SPLITTING = ("anywhere", "spread", "random")
TIERS = ("tier", "tier-balance", "tier-lex", "tier-cost")


def is_legal(policy: str) -> bool:
    """What the table of section 20 says of the names alone."""
    spec = parse_policy(policy)
    if spec.placement == "milp" and (spec.backfill != "strict" or spec.order in PREEMPTIVE):
        return False
    if spec.backfill == "slurm" and spec.placement in SPLITTING:
        return False
    return spec.order not in PREEMPTIVE or spec.backfill in ("strict", "greedy")


COMBINATIONS = tuple(
    dict.fromkeys(
        [f"{order}+{backfill}/consolidate" for order in ORDERS for backfill in BACKFILLS]
        + [f"fifo+{backfill}/{placement}" for placement in PLACEMENTS for backfill in BACKFILLS]
        + [f"{order}+greedy/{placement}" for order in ("las", "gittins") for placement in PLACEMENTS]
        + [f"{order}+strict/milp" for order in ("sjf", "drf", "srtf")]
    )
)
LEGAL = [policy for policy in COMBINATIONS if is_legal(policy)]
FORBIDDEN = [policy for policy in COMBINATIONS if not is_legal(policy)]


@cache
def mixed_cluster() -> Cluster:
    """Two types with watts, three sizes, a group's own nodes, nodes without GPUs, CPU and memory limits."""
    return Cluster(
        gpu_types=FAST_AND_SLOW,
        nodes=(
            NodeGroup(count=3, gpus=4, type="slow", cpus=32, memory_mib=4000, idle_w=100),
            NodeGroup(count=2, gpus=8, type="fast", cpus=48, memory_mib=6000, idle_w=200.5),
            NodeGroup(count=2, gpus=4, type="fast", owner="g1"),
            NodeGroup(count=1, gpus=0, cpus=16),
        ),
    )


@cache
def mixed_workload() -> Workload:
    """300 jobs at twice the load that the cluster can bear: gangs, shared GPUs, CPU-only jobs, deadlines."""
    config = SynthConfig(
        jobs=300,
        cluster_gpus=36,
        load=2.0,
        gang_mix=((1, 5), (2, 2), (4, 2), (8, 1)),
        groups=3,
        overestimation=2,
    )
    frame = synthesize(config).frame.with_row_index("i")
    kind, single = pl.col("i") % 7, pl.col("gpus") == 1
    plain = pl.col("group") != "g1"
    frame = frame.with_columns(
        gpus=pl.when(single & (kind == 0)).then(0).otherwise("gpus"),
        gpu_milli=pl.when(single & (kind == 1)).then(300 + 100 * (pl.col("i") % 5)).otherwise(1000),
        cpus=pl.when(kind < 4).then(pl.col("gpus") * 3 + 1).otherwise(0),
        memory_mib=pl.when(kind == 2).then(pl.col("gpus") * 301).otherwise(0),
        gpu_types=pl.when(plain & (kind == 5)).then(pl.lit(["fast"])).otherwise(None),
        priority=(pl.col("i") % 3).cast(pl.Float64),
        deadline_s=pl.when(kind < 5).then(pl.col("submit_s") + 3 * pl.col("duration_s")).otherwise(None),
        estimate_s=pl.when(pl.col("i") % 11 > 0).then("estimate_s").otherwise(None),
    )
    return make_workload(frame.drop("i"))


@cache
def whole_gpu_workload() -> Workload:
    """The same jobs, but none shares a GPU."""
    return make_workload(mixed_workload().frame.with_columns(gpu_milli=pl.lit(1000)))


@cache
def bare_workload() -> Workload:
    """Half of the same jobs with whole GPUs only, and without CPUs and memory; fewer as milp is slow."""
    frame = mixed_workload().frame.head(150).with_columns(gpu_milli=pl.lit(1000), cpus=0, memory_mib=0)
    return make_workload(frame.with_columns(gpus=pl.col("gpus").clip(lower_bound=1)))


@dataclass(frozen=True)
class Legal:
    """A workload and settings under which a policy may be run."""

    workload: Workload
    config: SimulationConfig


def legal(policy: str, **settings: object) -> Legal:
    """The richest workload that the policy is for, under these settings, jobs being stopped early."""
    spec = parse_policy(policy)
    workload, penalty = mixed_workload(), 0.2
    if spec.backfill == "conservative":
        workload = whole_gpu_workload()
        penalty = 0.0 if spec.placement in SPLITTING + TIERS else penalty
    if spec.backfill == "slurm":
        penalty = 0.0
    if spec.placement == "milp":
        workload = bare_workload()
    usual = {"estimates": "requested", "seed": 5, "locality_penalty": penalty, "min_run_s": 60.0}
    return Legal(workload, SimulationConfig.model_validate(usual | settings))
