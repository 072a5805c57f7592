"""Properties of stopping and resuming: docs/contract/simulator.md, sections 14 and 15."""

import math
from dataclasses import replace

import pytest

from differential.cases import Case
from differential.lifecycle_cases import GENERATORS, random_everything, random_failures, random_preemption
from property.lifecycle import MakeCase, decisions, now_us, result, runs_by_job
from reference.simulator.simulator import (
    PREEMPTIVE_ORDERS,
    Run,
    make_pools,
    make_request,
    queue_of,
    to_us,
    work_us,
)
from support.invariants import check_result

SEEDS = range(40)
SCORED = ("srtf", "ssf", "las", "las-2d")


@pytest.mark.parametrize("make_case", GENERATORS)
def test_runs_of_random_cases_are_legal(make_case: MakeCase) -> None:
    for seed in range(30):
        check_result(result(make_case(seed)))


def preemptive(seed: int, **settings: object) -> Case:
    case = random_preemption(seed)
    return replace(case, settings=replace(case.settings, **settings))


def progress_us(run: Run) -> int:
    return max(0, run.stop_us - run.begin_us - run.restore_us)


def test_stopping_a_job_loses_none_of_its_work() -> None:
    """At speed 1 and without a penalty the progress of all runs adds up to the duration, exactly."""
    stops = 0
    for seed in SEEDS:
        case = replace(preemptive(seed, locality_penalty=0.0, kill_at_estimate=False), speeds={})
        for job, pieces in runs_by_job(case).items():
            whole_us = make_request(job, case.jobs[job], case.settings).duration_us
            assert sum(progress_us(run) for run in pieces) == whole_us
            assert [run.lost_us for run in pieces] == [0] * len(pieces)
            stops += len(pieces) - 1
    assert stops > 300


def test_a_job_that_was_stopped_often_held_gpus_for_long() -> None:
    """So often times the least length of a run, at least: there is no thrashing beyond that."""
    most = 0
    for make_case in (random_preemption, random_failures):
        for seed in SEEDS:
            case = make_case(seed)
            for pieces in runs_by_job(case).values():
                stopped = [run for run in pieces if run.ending == "stopped"]
                held_us = sum(run.released_us - run.taken_us for run in stopped)
                assert held_us >= len(stopped) * max(1, to_us(case.settings.min_run_s))
                if case.settings.min_run_s > 0:
                    most = max(most, len(stopped))
    assert most >= 5


def test_the_longer_runs_must_be_the_fewer_jobs_are_stopped() -> None:
    """Over many cases; in a single one it may be the other way round."""
    stops = [
        sum(
            len(pieces) - 1
            for seed in SEEDS
            for pieces in runs_by_job(
                preemptive(seed, min_run_s=factor * random_preemption(seed).settings.reschedule_s)
            ).values()
        )
        for factor in (0, 3, 30)
    ]
    assert stops == sorted(stops, reverse=True)
    assert stops[0] > 1.5 * stops[-1] > 0


class Account:
    """What each job has done and attained at any time, from the runs of the finished simulation."""

    def __init__(self, case: Case) -> None:
        self.case, self.runs, self.pools = case, runs_by_job(case), make_pools(case.nodes, case.speeds)

    def at(self, job: int, at_us: int) -> tuple[int, int]:
        """Work done and service attained until then; only stops lie before, no failures."""
        request = make_request(job, self.case.jobs[job], self.case.settings)
        done_us = attained_us = 0
        for run in self.runs[job]:
            if run.begin_us > at_us:
                break
            made_us = max(0, min(run.stop_us, at_us) - run.begin_us - run.restore_us)
            penalty = self.case.settings.locality_penalty
            done_us += work_us(made_us, request.job, run.nodes, self.pools, penalty)
            attained_us += made_us
            if run.stop_us <= at_us:
                done_us = min(done_us, request.duration_us - 1)
        return done_us, attained_us

    def score(self, job: int, at_us: int) -> float:
        """Section 8, `srtf`, `ssf`, `las` and `las-2d`."""
        request = make_request(job, self.case.jobs[job], self.case.settings)
        done_us, attained_us = self.at(job, at_us)
        order, n = self.case.policy.order, request.job.size
        if order in ("las", "las-2d"):
            return attained_us / 1e6 * (n if order == "las-2d" else 1.0)
        if request.estimate_us is None:
            return math.inf
        left_s = max(request.estimate_us - done_us, 0) / 1e6
        return left_s * (n if order == "ssf" else 1.0)


def test_only_jobs_with_a_strictly_worse_score_are_stopped() -> None:
    counts = dict.fromkeys(SCORED, 0)
    for seed in range(150):
        case = preemptive(seed, defragment=False)
        if case.policy.order not in SCORED:
            continue
        account = Account(case)
        for snapshot, decision in decisions(case):
            at_us = now_us(snapshot)
            for winner, victims in decision.stops:
                best = account.score(winner, at_us)
                for victim in victims:
                    assert account.score(victim, at_us) > best, (seed, at_us, winner, victim)
                    counts[case.policy.order] += 1
    assert min(counts.values()) > 30, counts


def test_only_runs_of_the_same_queue_that_are_old_enough_are_stopped() -> None:
    stops = 0
    for seed in range(80):
        case = random_everything(seed)
        pools, by_job = make_pools(case.nodes, case.speeds), runs_by_job(case)
        least_us = max(1, to_us(case.settings.min_run_s))
        for snapshot, decision in decisions(case):
            at_us = now_us(snapshot)
            for winner, victims in decision.stops:
                assert len(set(victims)) == len(victims) > 0
                for victim in victims:
                    current = [run for run in by_job[victim] if run.begin_us <= at_us <= run.released_us][-1]
                    assert current.begin_us <= at_us - least_us
                    assert current.stop_us == at_us
                    assert queue_of(pools, case.jobs[victim]) == queue_of(pools, case.jobs[winner])
                    stops += 1
    assert stops > 100


def test_las_never_leaves_a_newcomer_waiting_behind_an_older_job_of_its_size() -> None:
    """One node, whole-node jobs, no least run: at a tick the one with the least service runs next."""
    case = random_preemption(0)
    job = case.jobs[0]
    jobs = [
        replace(job, submit_s=10.0 * i, duration_s=40.0, gpus=1, gpu_milli=1000, cpus=0) for i in range(6)
    ]
    jobs = [replace(other, memory_mib=0, gpu_types=None, group="", row=None) for other in jobs]
    settings = replace(
        case.settings,
        **{"min_run_s": 0.0, "reschedule_s": 5.0, "checkpoint_s": 0.0, "restore_s": 0.0, "defragment": False},
    )
    node = replace(case.nodes[0], gpus=1, cpus=None, memory_mib=None, owner=None)
    policy = replace(case.policy, order="las", backfill="strict", placement="consolidate")
    one = Case([node], {}, jobs, policy, replace(settings, kill_at_estimate=False))
    firsts = [pieces[0].begin_us for _, pieces in sorted(runs_by_job(one).items())]
    # Whoever runs has attained service by then; a checkpoint takes 1 us.
    assert firsts == [0, *(10_000_000 * i + 1 for i in range(1, 6))]


def attained_in_snapshots(*, being_stopped: bool) -> list[tuple[float, float]]:
    """What snapshots say of jobs, and what is true."""
    pairs = []
    for seed in range(40):
        case = random_preemption(seed)
        account = Account(case)
        for snapshot, _ in decisions(case):
            at_us = now_us(snapshot)
            for columns in (snapshot.queue, snapshot.running):
                for job, attained_s in zip(columns["job"].tolist(), columns["attained_s"], strict=True):
                    stopping = any(run.stop_us <= at_us < run.released_us for run in account.runs[job])
                    if stopping == being_stopped:
                        pairs.append((attained_s, account.at(job, at_us)[1] / 1e6))
    return pairs


def test_snapshots_tell_what_jobs_have_attained() -> None:
    pairs = attained_in_snapshots(being_stopped=False)
    assert len(pairs) > 1000
    assert all(told == true for told, true in pairs)


def test_snapshots_tell_what_jobs_that_are_being_stopped_have_attained() -> None:
    pairs = attained_in_snapshots(being_stopped=True)
    assert len(pairs) > 100
    assert all(told == true for told, true in pairs)


def test_all_preemptive_orders_occur() -> None:
    assert {random_preemption(seed).policy.order for seed in SEEDS} >= set(PREEMPTIVE_ORDERS)
