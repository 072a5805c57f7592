"""The window, the current job, and what a policy would do in a pass over a window."""

import copy
from collections.abc import Iterator, Sequence

from reference.env.settings import LEAST_HOST_CANDIDATES
from reference.env.state import EnvState
from reference.simulator import orders, passes
from reference.simulator.simulator import (
    Allocation,
    Policy,
    Pool,
    Request,
    allowed_pools,
    can_hold,
    energy_rate,
    least_nodes,
    queue_of,
)

Start = tuple[Request, Allocation]


def ranked(state: EnvState) -> list[Request]:
    """All waiting jobs in the order of the state's policy, scored now."""
    scores = {request.id: orders.score(state, request) for request in state.queued}
    return sorted(state.queued, key=lambda request: (scores[request.id], request.submit_us, request.id))


def queue_names(state: EnvState) -> Iterator[str | None]:
    """The queue of unowned nodes, then those of the owner groups in order of their first node."""
    yield None
    yield from dict.fromkeys(pool.owner for pool in state.pools if pool.owner is not None)


def rows_of(state: EnvState, rows: Sequence[Request], queue: str | None) -> list[Request]:
    return [request for request in rows if queue_of(state.pools, request.job) == queue]


# --- windows


def window(state: EnvState, length: int) -> list[Request]:
    return ranked(state)[:length]


def hosts_of(state: EnvState, request: Request) -> list[int]:
    """The nodes of allowed pools that can hold the whole job now."""
    ids = sorted(id for pool in allowed_pools(state.pools, request.job) for id in pool.nodes)
    return [id for id in ids if can_hold(state.free[id], request.job, request.job.gpus)]


def current_job(state: EnvState, length: int) -> Request | None:
    """The job whose host SelectHost and RankHosts ask for."""
    candidates = ranked(state)[: max(length, LEAST_HOST_CANDIDATES)]
    found = [first_with_a_host(state, rows_of(state, candidates, queue)) for queue in queue_names(state)]
    return min((request for request in found if request is not None), key=candidates.index, default=None)


def first_with_a_host(state: EnvState, rows: Sequence[Request]) -> Request | None:
    for request in rows:
        if hosts_of(state, request):
            return request
        if state.policy.backfill == "strict" or orders.is_aged(state, request):
            return None
    return None


def host_window(state: EnvState, length: int) -> list[Request]:
    """The current job, if there is one, and the first other waiting jobs."""
    current = current_job(state, length)
    if current is None:
        return window(state, length)
    others = [request for request in ranked(state) if request.id != current.id]
    return [current, *others][:length]


# --- a pass over a window


def first_start(state: EnvState, rows: Sequence[Request], in_order: Sequence[Request]) -> Start | None:
    """What the state's policy would start first: of the first starts of all queues that of the lowest row.

    `in_order` has the rows in the policy's own order.
    """
    found = [
        first_start_of_queue(state, queue, rows_of(state, in_order, queue)) for queue in queue_names(state)
    ]
    starts = [start for start in found if start is not None]
    return min(starts, key=lambda start: list(rows).index(start[0]), default=None)


def first_start_of_queue(state: EnvState, queue: str | None, rows: list[Request]) -> Start | None:
    for position, request in enumerate(rows):
        allocation = state.place(state.free, request)
        if allocation is not None:
            if request.id not in state.held_back and passes.is_admitted(state, request, allocation):
                return request, allocation
        elif state.policy.backfill == "strict" or (
            state.policy.backfill == "greedy" and orders.is_aged(state, request)
        ):
            return None
        elif state.policy.backfill in ("easy", "easy-sjf"):
            return first_backfill(state, queue, request, rows[position + 1 :])
    return None


def first_backfill(state: EnvState, queue: str | None, head: Request, others: list[Request]) -> Start | None:
    shadow_us = passes.shadow_time_us(state, queue, head)
    if state.policy.backfill == "easy-sjf":
        others = passes.shortest_first(state, others)
    for request in others:
        allocation = state.place(state.free, request)
        if (
            allocation is not None
            and request.id not in state.held_back
            and passes.is_admitted(state, request, allocation)
            and may_pass(state, queue, head, shadow_us, request, allocation)
        ):
            return request, allocation
    return None


def may_pass(
    state: EnvState,
    queue: str | None,
    head: Request,
    shadow_us: float,
    request: Request,
    allocation: Allocation,
) -> bool:
    """Section 10, "may be backfilled"."""
    end_us = state.now_us + state.expected_us(request, allocation)
    return end_us <= shadow_us or passes.head_still_fits(state, queue, head, shadow_us, request, allocation)


def seen_by(state: EnvState, policy: Policy, rows: Sequence[Request]) -> EnvState:
    """The state for another policy, with these rows as its queue; to be looked at, not to be changed."""
    view = copy.copy(state)
    view.policy = policy
    view.queued = list(rows)
    view.held_back = set()
    return view


def starts_of_pass(state: EnvState, policy: Policy, rows: Sequence[Request]) -> set[int]:
    """All jobs that the policy would start now with these rows as its queue."""
    trial = copy.deepcopy(seen_by(state, policy, rows))
    trial.decide_by_policy()
    return {request.id for request in rows} - {request.id for request in trial.queued}


def backfill_around(state: EnvState, head: Request) -> None:
    """`blocking_backfill`: starts the waiting jobs that may run before the chosen one does."""
    queue = queue_of(state.pools, head.job)
    shadow_us = passes.shadow_time_us(state, queue, head)
    for request in ranked(state):
        if request.id == head.id:
            continue
        allocation = state.place(state.free, request)
        if allocation is not None and may_pass(state, queue, head, shadow_us, request, allocation):
            state.start(request, allocation, backfilled=True)


# --- pools


def pools_in_order(state: EnvState, request: Request) -> list[Pool]:
    """The allowed pools in the order in which the state's placement rule tries them (section 9)."""
    job, pools = request.job, allowed_pools(state.pools, request.job)
    if job.gpus == 0:
        return sorted(pools, key=lambda pool: (pool.size, pool.id))
    pools.sort(key=lambda pool: (-pool.speed, least_nodes(pool, job), pool.id))
    if state.policy.placement == "power-aware":
        pools.sort(key=lambda pool: energy_rate(job, pool, state.nodes, state.watts))
    return pools


def pool_of(state: EnvState, node: int) -> Pool:
    return next(pool for pool in state.pools if node in pool.nodes)
