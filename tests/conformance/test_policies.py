"""What every registered rule must do. A rule is found through the registry: being there, it is tested."""

import re
from functools import cache
from pathlib import Path

import polars as pl
import pytest

from differential.core_runs import StepByStep
from gpuyard import _core
from gpuyard.cluster import Cluster, GpuType, NodeGroup
from gpuyard.config import SimulationConfig
from gpuyard.policies.base import parse_policy
from gpuyard.policies.heuristics import Heuristic
from gpuyard.registry import registered
from gpuyard.simulate import SimulationResult, simulate
from gpuyard.workload import SynthConfig, Workload, make_workload, synthesize
from invariants import check_result

CONTRACT = Path(__file__).resolve().parents[2] / "docs" / "simulator.md"
ORDERS, BACKFILLS, PLACEMENTS = (tuple(registered(kind)) for kind in ("order", "backfill", "placement"))
POLICIES = list(
    dict.fromkeys(
        [f"{order}+{backfill}/consolidate" for order in ORDERS for backfill in BACKFILLS]
        + [f"fifo+{backfill}/{placement}" for placement in PLACEMENTS for backfill in BACKFILLS]
    )
)
CONFIG = SimulationConfig(estimates="requested", seed=5, locality_penalty=0.2)


@cache
def mixed_cluster() -> Cluster:
    """Two types, three sizes, a group's own nodes, nodes without GPUs, CPU and memory limits."""
    return Cluster(
        gpu_types=(GpuType(name="fast", speed=2.0), GpuType(name="slow", speed=0.7)),
        nodes=(
            NodeGroup(count=3, gpus=4, type="slow", cpus=32, memory_mib=4000),
            NodeGroup(count=2, gpus=8, type="fast", cpus=48, memory_mib=6000),
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


def run(policy: object) -> SimulationResult:
    return simulate(mixed_workload(), mixed_cluster(), policy, CONFIG)  # type: ignore[arg-type]


@pytest.mark.parametrize("name", POLICIES)
def test_schedules_are_legal_repeatable_and_the_same_step_by_step(name: str) -> None:
    result = run(name)
    assert result.policy == name
    check_result(result)
    assert run(name).schedule.hash() == result.schedule.hash()
    assert run(StepByStep(parse_policy(name))).schedule.hash() == result.schedule.hash()


@pytest.mark.parametrize("order", ORDERS)
def test_every_order_but_fifo_makes_a_difference(order: str) -> None:
    assert (order == "fifo") == (run(order).schedule.hash() == run("fifo").schedule.hash())


@pytest.mark.parametrize("kind", ["order", "backfill", "placement"])
def test_the_registry_names_exactly_what_the_core_can_do(kind: str) -> None:
    native = [name for name, rule in registered(kind).items() if isinstance(rule, Heuristic)]
    assert native == getattr(_core, f"{kind}_names")()


@pytest.mark.parametrize("kind", ["order", "backfill", "placement"])
def test_every_rule_has_a_summary_and_stands_in_the_contract(kind: str) -> None:
    contract = CONTRACT.read_text(encoding="utf-8")
    for name, rule in registered(kind).items():
        assert rule.name == name
        assert len(rule.summary) > 8
        assert f"`{name}`" in contract, f"{kind} {name} is not in docs/simulator.md"


def test_the_contract_promises_no_order_that_is_not_there() -> None:
    section = CONTRACT.read_text(encoding="utf-8").partition("## 8. Order")[2].partition("## 9.")[0]
    assert tuple(re.findall(r"^\| `([a-z0-9-]+)` \|", section, re.MULTILINE)) == ORDERS
