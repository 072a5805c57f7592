"""Preemption, failures, sleep, power, quotas and the rest: the native core and the reference agree."""

import pytest

from differential.cases import Case
from differential.core_runs import outcomes, runs, schedule_by_snapshots, schedule_of
from differential.lifecycle_cases import GENERATORS
from differential.test_core_matches_reference import MakeCase
from gpuyard.native.schedule import Schedule
from reference.simulator import simulator as reference_simulator
from reference.simulator.simulator import Outcome, Run

CHUNK = 25
FAST, ALL = 25, 1_500
MOST_RUNS, MOST_ENDLESS = 100_000, 1  # of a case, and cases of a chunk that have more


def chunks(first: int, last: int) -> list[object]:
    return [
        pytest.param(make, range(seed, min(seed + CHUNK, last)), id=f"{make.__name__}-{seed}")
        for make in GENERATORS
        for seed in range(first, last, CHUNK)
    ]


def difference(
    label: str, case: Case, schedule: Schedule, expected: list[Outcome], expected_runs: list[Run]
) -> str | None:
    """Names the run that differs first: the likely cause of the rest."""
    actual, actual_runs = outcomes(schedule), runs(schedule)
    if (actual, actual_runs) == (expected, expected_runs):
        return None
    pairs = [pair for pair in zip(actual_runs, expected_runs, strict=False) if pair[0] != pair[1]]
    pairs = pairs or [pair for pair in zip(actual, expected, strict=True) if pair[0] != pair[1]]
    native, wanted = pairs[0] if pairs else (len(actual_runs), len(expected_runs))
    return f"{label}\n{case.policy}\n{case.settings}\n  native    {native}\n  reference {wanted}"


def assert_same(make_case: MakeCase, seed: int) -> None:
    case = make_case(seed)
    expected = reference_simulator.simulate_with_runs(
        case.nodes,
        case.speeds,
        case.jobs,
        case.policy,
        case.settings,
        case.watts,
        case.history,
        case.given,
        case.partitions,
        case.qos,
    )
    for name, run in (("run loop", schedule_of), ("stepping through snapshots", schedule_by_snapshots)):
        problem = difference(f"{make_case.__name__}({seed}), native {name}", case, run(case), *expected)
        if problem:
            pytest.fail(problem)


@pytest.mark.parametrize(("make_case", "seeds"), chunks(0, FAST))
def test_random_cases_agree_to_the_last_bit(make_case: MakeCase, seeds: range) -> None:
    for seed in seeds:
        assert_same(make_case, seed)


def is_endless(case: Case) -> bool:
    """Whether its jobs stop one another millions of times: too often for the reference."""
    return len(schedule_of(case).pieces()) > MOST_RUNS


@pytest.mark.slow
@pytest.mark.parametrize(("make_case", "seeds"), chunks(FAST, ALL))
def test_many_more_random_cases_agree_to_the_last_bit(make_case: MakeCase, seeds: range) -> None:
    endless = [seed for seed in seeds if is_endless(make_case(seed))]
    assert len(endless) <= MOST_ENDLESS
    for seed in seeds:
        if seed not in endless:
            assert_same(make_case, seed)
