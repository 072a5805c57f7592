"""Simulations that begin with a given schedule: the native core and the reference agree, or both refuse."""

import pytest

from differential.beginning_cases import MAKERS, random_beginning
from differential.cases import Case
from differential.core_runs import schedule_by_snapshots, schedule_of
from differential.test_lifecycle_matches_reference import difference
from gpuyard import _core
from reference.simulator import simulator as reference_simulator
from reference.simulator.simulator import ImpossibleBeginningError, Outcome, Run

CHUNK = 25 * len(MAKERS)
FAST, ALL = CHUNK, 40 * CHUNK
RUNS = (("run loop", schedule_of), ("stepping through snapshots", schedule_by_snapshots))


def by_reference(case: Case) -> tuple[list[Outcome], list[Run]] | None:
    """What became of jobs; None if what is given cannot have been."""
    arguments = (case.nodes, case.speeds, case.jobs, case.policy, case.settings, case.watts, case.history)
    try:
        return reference_simulator.simulate_with_runs(*arguments, case.given, case.partitions, case.qos)
    except ImpossibleBeginningError:
        return None


def assert_same(seed: int) -> bool:
    """Whether what is given can have been, of which both must say the same."""
    case = random_beginning(seed)
    expected = by_reference(case)
    for name, run in RUNS:
        label = f"random_beginning({seed}), native {name}"
        if expected is None:
            with pytest.raises(_core.ImpossibleBeginningError):
                run(case)
        elif problem := difference(label, case, run(case), *expected):
            pytest.fail(problem)
    return expected is not None


@pytest.mark.parametrize("maker", range(len(MAKERS)), ids=[make.__name__ for make in MAKERS])
def test_random_beginnings_agree_to_the_last_bit(maker: int) -> None:
    possible = [assert_same(seed) for seed in range(maker, FAST, len(MAKERS))]
    assert sum(possible) >= 0.6 * len(possible)


@pytest.mark.slow
@pytest.mark.parametrize("first", range(FAST, ALL, CHUNK))
def test_many_more_random_beginnings_agree_to_the_last_bit(first: int) -> None:
    possible = [assert_same(seed) for seed in range(first, first + CHUNK)]
    assert 0.6 * CHUNK <= sum(possible) < CHUNK
