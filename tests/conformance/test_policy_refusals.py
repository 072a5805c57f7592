"""What section 20 of docs/contract/simulator.md says no to is refused, naming both sides."""

from typing import Any

import polars as pl
import pytest

from conformance.policy_cases import (
    FORBIDDEN,
    PREEMPTIVE,
    SPLITTING,
    TIERS,
    bare_workload,
    legal,
    mixed_cluster,
    mixed_workload,
    whole_gpu_workload,
)
from gpuyard.cluster.model import Cluster, GpuType, NodeGroup, Partition, parse_cluster
from gpuyard.config import SimulationConfig
from gpuyard.errors import InputError
from gpuyard.policies.grammar import parse_policy
from gpuyard.simulation.run import simulate
from gpuyard.workload import Workload, make_workload

QUOTAS = {"group_quotas": {"g0": 4}}
CAP = {"power_cap_w": 2000.0}
SLEEP = {"sleep_after_s": 60.0}
PENALTY = {"locality_penalty": 0.1}
MOVE = {"defragment": True}
OPEN = parse_cluster("4x8:v100")
"""A cluster of which no node is owned, as quotas want it."""


def refusal(policy: str, settings: dict[str, Any], workload: Workload, cluster: Cluster) -> str:
    """The message, which must be one line."""
    with pytest.raises(InputError) as error:
        simulate(workload, cluster, policy, SimulationConfig(**settings))
    assert "\n" not in str(error.value)
    return str(error.value)


def assert_says(message: str, *words: str) -> None:
    for word in words:
        assert word in message, message


@pytest.mark.parametrize("policy", FORBIDDEN)
def test_policies_that_are_never_legal_are_refused_by_name(policy: str) -> None:
    spec, how = parse_policy(policy), legal(policy)
    message = refusal(policy, {}, how.workload, mixed_cluster())
    assert_says(message, f"policy {policy}: ", "; use ")
    if spec.is_optimised:
        what = f"{spec.backfill} backfill" if spec.backfill != "strict" else "preemption"
        assert_says(message, "milp", what, "use tier")
    elif spec.placement in SPLITTING:
        assert_says(message, "slurm backfill", f"placement {spec.placement}", "use easy")
    else:
        assert_says(message, f"order {spec.order} preempts", f"reservations of {spec.backfill}")
        assert_says(message, f"use {spec.order}+greedy or {spec.order}+strict")


@pytest.mark.parametrize("backfill", ["easy", "easy-sjf", "conservative", "slurm"])
def test_jobs_are_not_moved_where_others_hold_reservations(backfill: str) -> None:
    message = refusal(f"fifo+{backfill}", MOVE, whole_gpu_workload(), mixed_cluster())
    assert_says(message, "defragment", f"reservations of {backfill}", "use fifo+greedy or fifo+strict")


@pytest.mark.parametrize(
    ("policy", "settings", "what"),
    [
        ("fifo+conservative+express:60:0.1", {}, "express admission"),
        ("fifo+conservative", QUOTAS, "group quotas"),
        ("fifo+conservative", CAP, "a power cap"),
        ("fifo+conservative", SLEEP, "sleeping nodes"),
        *(
            (f"fifo+conservative/{placement}", PENALTY, f"a locality penalty and placement {placement}")
            for placement in SPLITTING + TIERS
        ),
    ],
)
def test_what_reservations_cannot_foresee_is_refused(
    policy: str, settings: dict[str, Any], what: str
) -> None:
    message = refusal(policy, settings, whole_gpu_workload(), OPEN)
    assert_says(message, f"policy {parse_policy(policy).name}: conservative backfill", what, "; use easy")


@pytest.mark.parametrize(
    ("policy", "settings", "what"),
    [
        ("fifo+slurm+express:60:0.1", {}, "express admission"),
        ("fifo+slurm", QUOTAS, "group quotas"),
        ("fifo+slurm", CAP, "a power cap"),
        ("fifo+slurm", SLEEP, "sleeping nodes"),
        ("fifo+slurm", PENALTY, "a locality penalty"),
    ],
)
def test_what_slurm_does_not_plan_with_is_refused(policy: str, settings: dict[str, Any], what: str) -> None:
    message = refusal(policy, settings, whole_gpu_workload(), OPEN)
    assert_says(message, f"policy {parse_policy(policy).name}: slurm backfill", what, "; use easy")


SPLIT_IN_TWO = (Partition(name="one", nodes="0-1", default=True), Partition(name="two", nodes="1-3"))


@pytest.mark.parametrize(
    ("policy", "settings", "what"),
    [
        ("fifo+easy", QUOTAS, "group quotas"),
        ("fifo+easy", CAP, "a power cap"),
        ("fifo+easy", SLEEP, "sleeping nodes"),
        ("fifo+greedy", MOVE, "defragment"),
        ("las+greedy", {}, "order las, which preempts"),
        ("fifo+conservative", {}, "conservative backfill"),
        ("fifo+easy/anywhere", {}, "placement anywhere"),
    ],
)
def test_what_partitions_do_not_go_with_is_refused(policy: str, settings: dict[str, Any], what: str) -> None:
    cluster = OPEN.model_copy(update={"partitions": SPLIT_IN_TWO})
    message = refusal(policy, settings, whole_gpu_workload(), cluster)
    assert_says(message, "has partitions", what, "leave that out")


def test_a_job_of_a_partition_that_is_not_there_is_named_with_those_that_are() -> None:
    cluster = OPEN.model_copy(update={"partitions": SPLIT_IN_TWO})
    jobs = whole_gpu_workload().frame.with_columns(partition=pl.lit("gone"), source_id=pl.lit("j7"))
    message = refusal("fifo+easy", {}, make_workload(jobs), cluster)
    assert_says(message, "job j7", "partition 'gone'", "one, two")


def test_jobs_that_wait_for_one_another_are_named() -> None:
    frame = (
        whole_gpu_workload()
        .frame.head(3)
        .with_columns(source_id=pl.Series(["a", "b", "c"]), after=pl.Series(["b", "a", None]))
    )
    message = refusal("fifo+easy", {}, make_workload(frame), OPEN)
    assert_says(message, "job a", "job b", "wait for one another")


def test_shared_gpus_are_refused_with_reservations() -> None:
    message = refusal("fifo+conservative", {}, mixed_workload(), mixed_cluster())
    assert_says(message, "conservative backfill", "jobs that share GPUs", "; use easy")


@pytest.mark.parametrize("placement", ["consolidate", "worst-fit", "tetris", "fgd", "power-aware"])
def test_a_locality_penalty_goes_with_reservations_of_rules_that_use_the_fewest_nodes(placement: str) -> None:
    config = SimulationConfig(**PENALTY)
    result = simulate(whole_gpu_workload(), mixed_cluster(), f"fifo+conservative/{placement}", config)
    assert len(result.schedule) == 300


ADMISSIONS = [
    ("+express:60:0.1", {}, "express admission"),
    ("+age:3600", {}, "an ageing bound"),
    ("", QUOTAS, "quotas"),
    ("", CAP, "a power cap"),
]


@pytest.mark.parametrize(("express", "settings", "what"), ADMISSIONS)
@pytest.mark.parametrize("order", [*PREEMPTIVE, "fifo"])
def test_preemption_goes_with_no_rule_of_admission(
    order: str, express: str, settings: dict[str, Any], what: str
) -> None:
    moving = MOVE if order == "fifo" else {}
    message = refusal(f"{order}+greedy{express}", settings | moving, bare_workload(), OPEN)
    who = "defragment moves running jobs" if order == "fifo" else f"order {order} preempts"
    assert_says(message, f"policy {order}+greedy", who, what)


@pytest.mark.parametrize(("express", "settings", "what"), ADMISSIONS)
def test_who_preempts_and_limits_admission_is_told_what_to_do_instead(
    express: str, settings: dict[str, Any], what: str
) -> None:
    assert_says(refusal(f"las+greedy{express}", settings, bare_workload(), OPEN), what, "; use ")


@pytest.mark.parametrize(
    ("policy", "settings", "workload", "what"),
    [
        ("fifo+express:60:0.1/milp", {}, bare_workload, "express admission"),
        ("fifo+age:60/milp", {}, bare_workload, "an ageing bound"),
        ("fifo/milp", MOVE, bare_workload, "preemption"),
        ("las/milp", {}, bare_workload, "preemption"),
        ("fifo/milp", QUOTAS, bare_workload, "group quotas"),
        ("fifo/milp", CAP, bare_workload, "a power cap"),
        ("fifo/milp", {}, mixed_workload, "jobs that share GPUs or have none"),
    ],
)
def test_what_the_optimiser_does_not_model_is_refused(
    policy: str, settings: dict[str, Any], workload: Any, what: str
) -> None:
    message = refusal(policy, settings, workload(), OPEN)
    assert_says(message, f"policy {parse_policy(policy).name}: milp", what, "; use tier")


def test_limits_of_cpus_are_refused_by_the_optimiser_only_if_jobs_ask_for_them() -> None:
    asking = make_workload(bare_workload().frame.with_columns(cpus=pl.lit(1)))
    assert_says(refusal("fifo/milp", {}, asking, mixed_cluster()), "milp", "limits of CPUs", "; use tier")
    few = make_workload(asking.frame.head(20))
    assert len(simulate(few, parse_cluster("4x8:fast@1"), "fifo/milp").schedule) == 20


@pytest.mark.parametrize("backfill", ["strict", "greedy", "easy", "easy-sjf"])
def test_a_power_cap_is_refused_with_random_placement(backfill: str) -> None:
    message = refusal(f"fifo+{backfill}/random", CAP, bare_workload(), OPEN)
    assert_says(message, f"policy fifo+{backfill}/random", "power cap", "; use spread")


@pytest.mark.parametrize("placement", TIERS)
def test_tiers_are_refused_on_large_nodes(placement: str) -> None:
    message = refusal(f"fifo/{placement}", {}, bare_workload(), parse_cluster("2x8,2x17"))
    assert_says(message, f"placement {placement}", "at most 16 GPUs", "; use consolidate or fgd")
    result = simulate(bare_workload(), parse_cluster("2x16:fast@1"), f"fifo/{placement}")
    assert len(result.schedule) == len(bare_workload())


@pytest.mark.parametrize(
    ("policy", "settings"), [("power-aware", {}), ("fifo/power-aware", {}), ("fifo", CAP)]
)
def test_watts_that_matter_must_be_known(policy: str, settings: dict[str, Any]) -> None:
    half_known = Cluster(
        gpu_types=(GpuType(name="mystery", idle_w=10),),
        nodes=(NodeGroup(count=1, gpus=8, type="v100"), NodeGroup(count=4, gpus=8, type="mystery")),
    )
    for cluster, name in ((parse_cluster("4x8"), "gpu"), (half_known, "mystery")):
        message = refusal(policy, settings, bare_workload(), cluster)
        what = "a power cap" if settings else "power-aware"
        assert_says(message, what, f"idle_w and peak_w of GPU type {name}", "64x8:v100")


def test_quotas_are_refused_where_nodes_are_owned() -> None:
    message = refusal("fifo", QUOTAS, mixed_workload(), mixed_cluster())
    assert_says(message, "group_quotas", "owned by g1", "use one or the other")
