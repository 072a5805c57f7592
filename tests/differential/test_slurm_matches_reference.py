"""Partitions, limits, dependencies, Slurm's priority and its backfill: the core and the reference agree."""

from collections import Counter
from dataclasses import replace

import pytest

from differential.cases import Case
from differential.slurm_cases import DEPENDING, GENERATORS
from differential.test_core_matches_reference import MakeCase
from differential.test_lifecycle_matches_reference import assert_same
from reference.simulator import simulator as reference_simulator
from reference.simulator.simulator import Outcome, Partition, Qos, Run, to_us
from support.slurm_invariants import (
    check_backfilled_at_multiples,
    check_dependencies,
    check_nodes_hold_their_jobs,
    check_partitions,
    check_qos,
)

CHUNK = 25
FAST = dict.fromkeys(GENERATORS, 50) | dict.fromkeys(DEPENDING, 10)
ALL = dict.fromkeys(GENERATORS, 1_500) | dict.fromkeys(DEPENDING, 140)  # 10,400 in all


def chunks(first: dict[MakeCase, int], last: dict[MakeCase, int]) -> list[object]:
    return [
        pytest.param(make, range(seed, min(seed + CHUNK, last[make])), id=f"{make.__name__}-{seed}")
        for make in (*GENERATORS, *DEPENDING)
        for seed in range(first.get(make, 0), last[make], CHUNK)
    ]


def by_reference(case: Case) -> tuple[list[Outcome], list[Run]]:
    arguments = (case.nodes, case.speeds, case.jobs, case.policy, case.settings, case.watts, case.history)
    return reference_simulator.simulate_with_runs(*arguments, case.given, case.partitions, case.qos)


def check(case: Case) -> list[Outcome]:
    """Asserts what the page promises, of the reference's schedule."""
    outcomes, runs = by_reference(case)
    check_nodes_hold_their_jobs(case.nodes, case.jobs, runs)
    check_partitions(case.jobs, runs, case.partitions)
    check_qos(case.jobs, runs, case.qos)
    check_dependencies(case.jobs, outcomes)
    if case.policy.backfill == "slurm":
        check_backfilled_at_multiples(outcomes, max(1, to_us(case.settings.bf_interval_s)))
    return outcomes


@pytest.mark.parametrize(("make_case", "seeds"), chunks({}, FAST))
def test_random_cases_agree_to_the_last_bit(make_case: MakeCase, seeds: range) -> None:
    for seed in seeds:
        assert_same(make_case, seed)


@pytest.mark.slow
@pytest.mark.parametrize(("make_case", "seeds"), chunks(FAST, ALL))
def test_many_more_random_cases_agree_to_the_last_bit(make_case: MakeCase, seeds: range) -> None:
    for seed in seeds:
        assert_same(make_case, seed)


@pytest.mark.parametrize(("make_case", "seeds"), chunks({}, FAST))
def test_partitions_limits_and_dependencies_are_respected(make_case: MakeCase, seeds: range) -> None:
    for seed in seeds:
        check(make_case(seed))


def test_cases_have_every_feature_of_the_page() -> None:
    """Each of them on its own, and so often that the core and the reference can disagree about it."""
    cases = [make(seed) for make in GENERATORS for seed in range(FAST[make])]
    of_slurm = [case for case in cases if case.policy.backfill == "slurm"]
    shared_nodes = [
        case for case in cases if sum(len(part.nodes) for part in case.partitions) > len(case.nodes)
    ]
    jobs_of_slurm = [job for case in of_slurm for job in case.jobs]
    assert len(of_slurm) >= 100
    assert len({case.policy.order for case in of_slurm}) >= 20
    assert len({case.policy.placement for case in of_slurm}) == 12
    assert {case.policy.backfill for case in cases if case.partitions} == {
        *("strict", "greedy", "easy", "easy-sjf", "slurm")
    }
    assert len(shared_nodes) >= 30
    assert len({case.settings.estimates for case in of_slurm}) == 5
    assert sum(case.settings.node_mtbf_s is not None for case in of_slurm) >= 10
    assert sum(case.policy.max_wait_s is not None for case in of_slurm) >= 10
    assert sum(case.settings.kill_at_estimate for case in of_slurm) >= 10
    for name in ("is_shared", "asked_nodes", "gpu_types", "cpus", "after", "partition", "qos"):
        assert sum(bool(getattr(job, name)) for job in jobs_of_slurm) >= 50, name
    assert sum(job.gpus == 0 for job in jobs_of_slurm) >= 50


def test_cases_backfill_and_their_limits_tiers_and_dependencies_matter() -> None:
    """Jobs start in backfill passes, and in many cases at other times than without what the page adds."""
    cases = [make(seed) for make in GENERATORS for seed in range(20)]
    backfilled, changed = Counter[str](), Counter[str]()
    for case in cases:
        outcomes, _ = by_reference(case)
        if case.policy.backfill == "slurm":
            backfilled["jobs"] += sum(outcome.backfilled for outcome in outcomes)
            backfilled["cases"] += any(outcome.backfilled for outcome in outcomes)
        for name, plain in plainer(case).items():
            changed[name] += by_reference(plain)[0] != outcomes
    assert backfilled["jobs"] >= 150
    assert backfilled["cases"] >= 25
    assert {name for name, count in changed.items() if count >= 8} == {"limits", "tiers", "dependencies"}


def plainer(case: Case) -> dict[str, Case]:
    """The case without limits, without tiers, and without dependencies."""
    partitions = [
        Partition(part.name, part.nodes, part.default, part.priority_tier, part.priority_job_factor)
        for part in case.partitions
    ]
    same_tier = tuple(replace(part, priority_tier=1) for part in case.partitions)
    return {
        "limits": replace(
            case, partitions=tuple(partitions), qos=tuple(Qos(each.name, each.priority) for each in case.qos)
        ),
        "tiers": replace(case, partitions=same_tier),
        "dependencies": replace(case, jobs=[replace(job, after=()) for job in case.jobs]),
    }
