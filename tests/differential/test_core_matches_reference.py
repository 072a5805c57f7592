"""The native run loop, the native policy asked snapshot by snapshot, and the reference agree bit by bit."""

from collections.abc import Callable

import pytest

from differential.cases import Case, random_case, random_crowd, random_queues, random_splits, random_window
from differential.core_runs import run_core, run_core_by_snapshots
from reference.simulator import simulator as reference_simulator
from reference.simulator.simulator import Outcome

MakeCase = Callable[[int], Case]

CHUNK = 50
FAST_CASES: dict[MakeCase, int] = {random_case: 300, random_queues: 50, random_splits: 50}
ALL_CASES: dict[MakeCase, int] = {random_case: 12_000, random_queues: 3_000, random_splits: 2_000}
FAST_CROWDS = range(8)
# With and without backfill, under all kinds of estimates, and each quick for the reference.
FAST_WINDOWS = (3, 5, 11, 12, 15)


def chunks(first: dict[MakeCase, int], end: dict[MakeCase, int]) -> list[object]:
    """Ranges of seeds small enough to be spread over processes."""
    return [
        pytest.param(make, range(seed, min(seed + CHUNK, last)), id=f"{make.__name__}-{seed}")
        for make, last in end.items()
        for seed in range(first.get(make, 0), last, CHUNK)
    ]


def assert_same(make_case: MakeCase, seed: int) -> None:
    case = make_case(seed)
    expected = reference_simulator.simulate(case.nodes, case.speeds, case.jobs, case.policy, case.settings)
    for name, run in (("run loop", run_core), ("stepping through snapshots", run_core_by_snapshots)):
        if run(case) != expected:
            pytest.fail(difference(f"{make_case.__name__}({seed}), native {name}", case, run(case), expected))


def difference(label: str, case: Case, actual: list[Outcome], expected: list[Outcome]) -> str:
    """Names the differing job that starts first: the likely cause of the rest."""
    differing = [i for i in range(len(expected)) if actual[i] != expected[i]]
    first = min(differing, key=lambda i: (min(actual[i].start_us, expected[i].start_us), i))
    return (
        f"{label} differs from the reference in {len(differing)} of {len(expected)} jobs\n"
        f"{case.policy}\n{case.settings}\n"
        f"first: job {first}, {case.jobs[first]}\n  native    {actual[first]}\n  reference {expected[first]}"
    )


@pytest.mark.parametrize(("make_case", "seeds"), chunks({}, FAST_CASES))
def test_random_cases_agree_to_the_last_bit(make_case: MakeCase, seeds: range) -> None:
    for seed in seeds:
        assert_same(make_case, seed)


@pytest.mark.parametrize("seed", FAST_CROWDS)
def test_crowds_of_nodes_and_kinds_of_jobs_agree_to_the_last_bit(seed: int) -> None:
    assert_same(random_crowd, seed)


@pytest.mark.parametrize("seed", FAST_WINDOWS)
def test_long_queues_agree_to_the_last_bit(seed: int) -> None:
    assert_same(random_window, seed)


@pytest.mark.slow
@pytest.mark.parametrize(("make_case", "seeds"), chunks(FAST_CASES, ALL_CASES))
def test_many_more_random_cases_agree_to_the_last_bit(make_case: MakeCase, seeds: range) -> None:
    for seed in seeds:
        assert_same(make_case, seed)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(FAST_CROWDS.stop, 200))
def test_many_more_crowds_agree_to_the_last_bit(seed: int) -> None:
    assert_same(random_crowd, seed)


@pytest.mark.slow
@pytest.mark.parametrize("seed", [seed for seed in range(48) if seed not in FAST_WINDOWS])
def test_many_more_long_queues_agree_to_the_last_bit(seed: int) -> None:
    assert_same(random_window, seed)


def test_a_difference_is_reported_with_seed_policy_settings_and_the_first_job_that_differs() -> None:
    case = random_case(3)
    expected = run_core(case)
    last = max(range(len(expected)), key=lambda i: expected[i].start_us)
    wrong = [
        o if i != last else Outcome(o.start_us + 1, *list(vars(o).values())[1:])
        for i, o in enumerate(expected)
    ]
    message = difference("random_case(3)", case, wrong, expected)
    for part in ("random_case(3)", "in 1 of", str(case.policy), str(case.settings), f"first: job {last},"):
        assert part in message
