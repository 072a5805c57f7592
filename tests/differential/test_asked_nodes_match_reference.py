"""Jobs that ask for nodes: the core and the reference agree under all policies and settings."""

import pytest

from differential.asked_cases import asking
from differential.cases import random_case, random_crowd, random_queues, random_splits
from differential.lifecycle_cases import GENERATORS
from differential.test_core_matches_reference import MakeCase
from differential.test_lifecycle_matches_reference import assert_same

CHUNK = 25
MAKERS = tuple(asking(make) for make in (random_case, random_queues, random_splits, *GENERATORS))
CROWDS = asking(random_crowd)


def chunks(first: int, last: int) -> list[object]:
    return [
        pytest.param(make, range(seed, min(seed + CHUNK, last)), id=f"{make.__name__}-{seed}")
        for make in MAKERS
        for seed in range(first, last, CHUNK)
    ]


@pytest.mark.parametrize(("make_case", "seeds"), chunks(0, CHUNK))
def test_random_cases_agree_to_the_last_bit(make_case: MakeCase, seeds: range) -> None:
    for seed in seeds:
        assert_same(make_case, seed)


@pytest.mark.parametrize("seed", range(3))
def test_crowds_agree_to_the_last_bit(seed: int) -> None:
    assert_same(CROWDS, seed)


@pytest.mark.slow
@pytest.mark.parametrize(("make_case", "seeds"), chunks(CHUNK, 500))
def test_many_more_random_cases_agree_to_the_last_bit(make_case: MakeCase, seeds: range) -> None:
    for seed in seeds:
        assert_same(make_case, seed)


def test_cases_have_jobs_on_several_nodes_with_and_without_gpus_under_every_placement() -> None:
    seen = set()
    for make in MAKERS:
        for seed in range(CHUNK):
            case = make(seed)
            kinds = {(job.gpus > 0, (job.asked_nodes or 0) > 1) for job in case.jobs}
            seen |= {(case.policy.placement, kind) for kind in kinds}
    placements = {placement for placement, _ in seen}
    assert len(placements) == 15
    for placement in placements:
        assert (placement, (True, True)) in seen
        assert (placement, (False, True)) in seen
