"""A replay that is cut at a moment and begun again from what ran and waited then is the same replay."""

from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest

from differential.cases import Case, random_case, random_queues, random_splits
from differential.core_runs import run_core, run_core_by_snapshots
from reference.simulator.simulator import BACKFILLS, Beginning, Job, Outcome

# These go by what ran before, by how many instants there were, or by the time in the whole trace.
NOT_OF_THE_STATE = ("fair-share", "random", "f1", "f2", "f3", "f4")
Run = Callable[[Case], list[Outcome]]
MAKERS = (random_case, random_queues, random_splits)


def determined(case: Case, backfill: str) -> Case:
    """The case without what the state at a moment does not determine."""
    jobs = [replace(job, gpu_milli=1000) for job in case.jobs]
    rows = [position if job.row is None else job.row for position, job in enumerate(jobs)]
    order = "fifo" if case.policy.order in NOT_OF_THE_STATE else case.policy.order
    return replace(
        case,
        jobs=[replace(job, row=row) for job, row in zip(jobs, rows, strict=True)],
        policy=replace(case.policy, order=order, backfill=backfill),
    )


def moments_us(case: Case) -> list[int]:
    """Some at which a job comes."""
    submits = sorted({round(job.submit_s * 1e6) for job in case.jobs} - {0})
    return submits[:: max(1, len(submits) // 3)]


def cut(case: Case, whole: list[Outcome], moment_us: int) -> tuple[Case, list[int], int]:
    """What is left at a moment, which jobs these are, and when the first of them came."""
    left = [job for job, done in enumerate(whole) if done.end_us > moment_us]
    first_us = min(round(case.jobs[job].submit_s * 1e6) for job in left)
    starts = tuple(
        (place, whole[job].start_us - first_us, whole[job].nodes)
        for place, job in enumerate(left)
        if whole[job].start_us < moment_us
    )
    given = Beginning(moment_us - first_us, starts)
    return replace(case, jobs=[_earlier(case, job, first_us) for job in left], given=given), left, first_us


def _earlier(case: Case, job: int, by_us: int) -> Job:
    known = case.jobs[job]
    due_s = known.deadline_s
    return replace(
        known,
        submit_s=(round(known.submit_s * 1e6) - by_us) / 1e6,
        deadline_s=None if due_s is None else (round(due_s * 1e6) - by_us) / 1e6,
    )


def moved(done: Outcome, by_us: int, moment_us: int) -> Outcome:
    """What became of a job in the whole replay, on the clock of the one that was begun again."""
    # Whether a job that ran already had been backfilled is not part of what is given.
    backfilled = done.backfilled and done.start_us >= moment_us
    return replace(done, start_us=done.start_us - by_us, end_us=done.end_us - by_us, backfilled=backfilled)


def cuts(seeds: range, backfill: str) -> Iterator[tuple[str, Case, list[Outcome]]]:
    """Cases begun again, and what must become of their jobs."""
    for seed in seeds:
        case = determined(MAKERS[seed % len(MAKERS)](seed), backfill)
        whole = run_core(case)
        for moment_us in moments_us(case):
            again, left, first_us = cut(case, whole, moment_us)
            yield f"seed {seed} at {moment_us}", again, [moved(whole[j], first_us, moment_us) for j in left]


@pytest.mark.parametrize("backfill", BACKFILLS)
@pytest.mark.parametrize("run", [run_core, run_core_by_snapshots])
def test_a_replay_begun_again_from_its_own_state_is_the_same_replay(backfill: str, run: Run) -> None:
    running = 0
    for label, again, expected in cuts(range(60), backfill):
        assert run(again) == expected, label
        running += bool(again.given is not None and again.given.starts)
    assert running > 60  # most cuts have jobs that run


def test_jobs_that_ran_are_missed_if_they_are_not_given() -> None:
    """The property can fail: without what ran, other schedules come out."""
    cases = list(cuts(range(30), "easy"))
    emptied = [replace(again, given=None) for _, again, _ in cases]
    assert any(run_core(case) != expected for case, (_, _, expected) in zip(emptied, cases, strict=True))
