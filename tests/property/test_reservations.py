"""Properties of conservative backfill: docs/contract/simulator.md, section 10."""

import math
from dataclasses import replace

import pytest

from differential.cases import Case
from differential.core_runs import policy_of
from differential.lifecycle_cases import SPLITTING_RULES, TIER_RULES, random_conservative
from gpuyard import _core
from gpuyard.errors import InputError
from property.lifecycle import decisions, now_us, result

SEEDS = range(20)
RULES = ("consolidate", "first-fit", "worst-fit", "anywhere", "spread", "tetris", "tier", "tier-cost")


def fifo(seed: int, placement: str | None = None, **settings: object) -> Case:
    """First come, first served, with the truth told, under a case's other settings."""
    case = random_conservative(seed)
    how = {"estimates": "exact", "node_mtbf_s": None, "node_mttr_s": None, "checkpoint_every_s": None}
    case = replace(
        case,
        policy=replace(case.policy, order="fifo", placement=placement or case.policy.placement),
        settings=replace(case.settings, **how | settings),
    )
    if case.policy.placement in SPLITTING_RULES + TIER_RULES:
        case = replace(case, settings=replace(case.settings, locality_penalty=0.0))
    return case


def can_all_start(case: Case) -> bool:
    """Jobs of the case were made to fit its own placement, not every other."""
    try:
        result(case)
    except InputError:
        return False
    return True


@pytest.mark.parametrize("rule", RULES)
def test_a_job_that_comes_later_changes_nothing_for_those_before_it(rule: str) -> None:
    """With exact estimates each job's start and nodes are settled when it arrives."""
    compared = 0
    for seed in SEEDS:
        case = fifo(seed, rule)
        if not can_all_start(case):
            continue
        whole = result(case).schedule
        for count in {len(case.jobs) // 3, len(case.jobs) - 1} - {0}:
            part = result(replace(case, jobs=case.jobs[:count])).schedule
            assert part.start_us.tolist() == whole.start_us[:count].tolist(), (seed, count)
            assert part.end_us.tolist() == whole.end_us[:count].tolist(), (seed, count)
            nodes = whole.node_offset[count]
            assert part.node.tolist() == whole.node[:nodes].tolist(), (seed, count)
            compared += 1
    assert compared > 20


def reservations_us(case: Case) -> dict[int, list[float]]:
    """The begin that each job was reserved for at one decision point after another, while it waited."""
    reserved: dict[int, list[float]] = {}
    policy = policy_of(case).compile()
    for snapshot, _ in decisions(case):
        for job in snapshot.queue["job"].tolist():
            said = _core.explain(snapshot, policy, job)
            begins_us = {
                "starts": float(now_us(snapshot)),
                "reserved": said["until_s"] * 1e6,
                "no-reservation": math.inf,
            }
            reserved.setdefault(job, []).append(round_us(begins_us[said["verdict"]]))
    return reserved


def round_us(us: float) -> float:
    return us if us == math.inf else round(us)


def padded(case: Case, factor: float) -> Case:
    """Everybody asks for so many times what is needed."""
    jobs = [replace(job, estimate_s=max(job.duration_s, 1e-6) * factor) for job in case.jobs]
    return replace(case, jobs=jobs, settings=replace(case.settings, estimates="requested"))


@pytest.mark.parametrize("factor", [1.0, 1.5, 4.0])
def test_no_job_starts_later_than_it_was_first_reserved_for(factor: float) -> None:
    """With estimates that are never too short, under fifo and without failures."""
    early = kept = 0
    for seed in SEEDS:
        case = padded(fifo(seed, kill_at_estimate=False), factor)
        starts_us = result(case).schedule.start_us.tolist()
        for job, begins_us in reservations_us(case).items():
            assert starts_us[job] <= begins_us[0] < math.inf, (seed, job)
            assert begins_us == sorted(begins_us, reverse=True), (seed, job, "put off")
            early += starts_us[job] < begins_us[0]
            kept += len(begins_us) > 1 and starts_us[job] == begins_us[0]
    assert (early == 0 and kept > 50) if factor == 1 else early > 50


def test_a_promise_may_break_if_jobs_run_longer_than_they_said() -> None:
    """So that the test above says something: it needs its assumption."""
    late = 0
    for seed in SEEDS:
        case = padded(fifo(seed, kill_at_estimate=False), 0.4)
        starts_us = result(case).schedule.start_us.tolist()
        late += sum(starts_us[job] > begins_us[0] for job, begins_us in reservations_us(case).items())
    assert late > 50


def test_conservative_backfill_starts_some_jobs_past_others_that_wait() -> None:
    cases = [fifo(seed) for seed in SEEDS]
    assert sum(int(result(case).schedule.backfilled.sum()) for case in cases) > 20
