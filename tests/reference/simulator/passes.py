"""Sections 10, 11, 15 and 18 of docs/contract/simulator.md: one pass over a queue."""

import math

from reference.simulator.cluster import Allocation, allowed_pools, change, copy_of, take
from reference.simulator.inputs import PREEMPTIVE_ORDERS, SPLITTING_RULES, Request, to_s, to_us
from reference.simulator.orders import is_aged
from reference.simulator.partitions import tier_of
from reference.simulator.placement import quota_of
from reference.simulator.state import Promise, Running, State

Scores = dict[int, float]  # by job: waiting ones, and with a preemptive order running ones


def decide(state: State, queue: str | None, ranked: list[Request], scores: Scores) -> None:
    """One pass over a queue, and a second one if groups may borrow (section 18)."""
    make_pass(state, queue, ranked, scores, within_quotas=True)
    if state.settings.group_quotas and state.settings.quota_borrowing:
        waiting = [request for request in ranked if request in state.queued]
        nobody_is_within = not any(is_within_quota(state, request) for request in waiting)
        if nobody_is_within:
            make_pass(state, queue, waiting, scores, within_quotas=False)


def make_pass(
    state: State, queue: str | None, ranked: list[Request], scores: Scores, within_quotas: bool
) -> None:
    some_job_did_not_fit = False
    for position, request in enumerate(ranked):
        if not may_be_tried(state, request, within_quotas):
            continue
        allocation = state.place(state.free, request)
        if allocation is not None:
            if is_admitted(state, request, allocation):
                state.start(request, allocation, backfilled=some_job_did_not_fit)
        elif stop_others_for(state, queue, request, scores, some_job_did_not_fit):
            pass
        elif state.policy.backfill == "strict" or (
            state.policy.backfill == "greedy" and is_aged(state, request)
        ):
            return
        elif state.policy.backfill in ("easy", "easy-sjf"):
            backfill(state, queue, request, ranked[position + 1 :], within_quotas)
            return
        else:
            some_job_did_not_fit = True


# --- 10. Backfill ---------------------------------------------------------------------------------------


def backfill(
    state: State, queue: str | None, head: Request, others: list[Request], within_quotas: bool
) -> None:
    shadow_us = shadow_time_us(state, queue, head)
    if state.policy.backfill == "easy-sjf":
        others = shortest_first(state, others)
    for request in others:
        if not may_be_tried(state, request, within_quotas):
            continue
        allocation = state.place(state.free, request)
        if allocation is None or not is_admitted(state, request, allocation):
            continue
        end_us = state.begin_at_us(allocation) + state.expected_us(request, allocation)
        if end_us <= shadow_us or head_still_fits(state, queue, head, shadow_us, request, allocation):
            state.start(request, allocation, backfilled=True)


def shortest_first(state: State, others: list[Request]) -> list[Request]:
    """The order in which `easy-sjf` tries the jobs behind the head."""

    def rank(request: Request) -> tuple[float, ...]:
        tier = tier_of(request.job, state.partitions)
        if is_aged(state, request):
            return (-tier, 0)
        return (-tier, 1, math.inf if request.estimate_us is None else request.estimate_us)

    return sorted(others, key=rank)


def expected_end_us(state: State, run: Running) -> float:
    return max(run.expected_end_us, state.now_us)


def shadow_time_us(state: State, queue: str | None, head: Request) -> float:
    free = copy_of(state.free)
    running = state.running_in(queue)
    ends = {expected_end_us(state, run) for run in running}
    for end_us in sorted(ends - {math.inf}):
        for run in running:
            if expected_end_us(state, run) == end_us:
                change(free, run.held, +1)
        if state.place(free, head) is not None:
            return end_us
    return math.inf


def head_still_fits(
    state: State,
    queue: str | None,
    head: Request,
    shadow_us: float,
    request: Request,
    allocation: Allocation,
) -> bool:
    free = copy_of(state.free)
    take(free, request.job, allocation)  # the very GPUs that it would get now
    for run in state.running_in(queue):
        if expected_end_us(state, run) <= shadow_us:
            change(free, run.held, +1)
    return state.place(free, head) is not None


# --- 11. Admission and 18. quotas -----------------------------------------------------------------------


def is_admitted(state: State, request: Request, allocation: Allocation) -> bool:
    if state.policy.express is None or is_aged(state, request):
        return True
    job, (t0_s, k) = request.job, state.policy.express
    if job.gpus == 0 or k == 0:
        return True
    if state.policy.placement in SPLITTING_RULES:
        its_pools = allowed_pools(state.pools, job)  # of size >= 1, since the job has GPUs
    else:
        its_pools = [pool for pool in allowed_pools(state.pools, job) if allocation[0][0] in pool.nodes]
    ids = {id for pool in its_pools for id in pool.nodes}
    if not any(part.node in ids for other in state.running for part in other.held):
        return True
    if request.estimate_us is None:
        return False
    r = to_s(request.estimate_us)
    free = float(sum(state.free[id].free_milli for id in ids if state.free[id].available)) / 1000.0
    c = float(sum(pool.size * len(pool.nodes) for pool in its_pools))
    return (free - job.size) / c >= k * math.log(max(r, t0_s) / t0_s)


def may_be_tried(state: State, request: Request, within_quotas: bool) -> bool:
    """Whether the job is within its quota, if that counts, and within limits."""
    return state.is_within_limits(request) and (not within_quotas or is_within_quota(state, request))


def is_within_quota(state: State, request: Request) -> bool:
    quotas, group = state.settings.group_quotas, request.job.group
    if not quotas:
        return True

    def shares_its_quota(other: str) -> bool:
        return other == group if group in quotas else other not in quotas

    jobs = [run.request.job for run in state.running]
    held = sum(job.milli for job in jobs if shares_its_quota(job.group))
    quota = quota_of(group, state.settings, sum(node.gpus for node in state.nodes))
    return held + request.job.milli <= 1000 * quota


# --- 15. Preemption and migration -----------------------------------------------------------------------


def may_be_stopped(state: State, run: Running) -> bool:
    is_old_enough = state.now_us - run.begin_us >= max(1, to_us(state.settings.min_run_s))
    return run.begun and run.stopped_us is None and is_old_enough


def stop_others_for(
    state: State, queue: str | None, request: Request, scores: Scores, backfilled: bool
) -> bool:
    """Whether running jobs are stopped, or one of them moved, to make room for a job that does not fit."""
    if state.policy.order in PREEMPTIVE_ORDERS and preempt(state, queue, request, scores, backfilled):
        return True
    return state.settings.defragment and request.job.is_whole and move(state, queue, request, backfilled)


def preempt(state: State, queue: str | None, request: Request, scores: Scores, backfilled: bool) -> bool:
    candidates = [
        run
        for run in state.running_in(queue)
        if may_be_stopped(state, run) and scores[run.request.id] > scores[request.id]
    ]
    candidates.sort(
        key=lambda run: (scores[run.request.id], run.request.submit_us, run.request.id), reverse=True
    )
    free, released = copy_of(state.free), []
    for run in candidates:
        change(free, run.held, +1)
        released.append(run)
        if state.place(free, request) is not None:
            break
    else:
        return False
    victims = list(released)
    for run in reversed(released):
        change(free, run.held, -1)
        if state.place(free, request) is not None:
            victims.remove(run)
        else:
            change(free, run.held, +1)
    allocation = state.place(free, request)
    assert allocation is not None
    effect_us = state.now_us + max(state.checkpoint_us(run) for run in victims)
    for run in victims:
        state.stop(run, effect_us)
    promise(state, request, allocation, effect_us, backfilled)
    return True


def move(state: State, queue: str | None, request: Request, backfilled: bool) -> bool:
    movable = [
        run
        for run in state.running_in(queue)
        if run.request.job.is_whole and len(run.allocation) == 1 and may_be_stopped(state, run)
    ]
    for run in sorted(movable, key=lambda run: (run.request.job.gpus, run.request.id)):
        free = copy_of(state.free)
        change(free, run.held, +1)
        a = state.place(free, request)
        if a is None:
            continue
        take(free, request.job, a)
        b = state.place(free, run.request)
        if b is None or any(state.is_asleep(node) for node, _ in (*a, *b)):
            continue
        effect_us = state.now_us + state.checkpoint_us(run)
        state.stop(run, effect_us)
        promise(state, request, a, effect_us, backfilled)
        promise(state, run.request, b, effect_us, backfilled=False, is_move=True)
        return True
    return False


def promise(
    state: State,
    request: Request,
    allocation: Allocation,
    effect_us: int,
    backfilled: bool,
    is_move: bool = False,
) -> None:
    """The job leaves its queue, the nodes are closed, and those that sleep are woken."""
    begin_us = max(effect_us, state.begin_at_us(allocation))
    state.wake(allocation)
    waited_us = 0
    if not is_move:
        state.queued.remove(request)
        waited_us = state.now_us - state.kept_of(request.id).entered_us
    state.promises[request.id] = Promise(request, allocation, begin_us, waited_us, backfilled, is_move)
    state.mark_available()
