"""Section 5 of docs/contract/slurm.md: the main and the backfill pass of the backfill rule `slurm`."""

import math
from collections import Counter
from dataclasses import dataclass, field

from reference.simulator.cluster import Allocation, change, copy_of
from reference.simulator.conservative import longest_us
from reference.simulator.inputs import Request, to_us
from reference.simulator.multifactor import calculated_us
from reference.simulator.state import Running, State

ORDERS_THAT_CHANGE = ("wfp3", "unicep", "fair-share", "group-fair-share", "drf", "random")

Queues = dict[str | None, list[Request]]  # in order


@dataclass(frozen=True)
class Reservation:
    nodes: frozenset[int]
    begin_us: int
    end_us: float  # an int, or infinity


@dataclass
class Plan:
    """The reservations of a backfill pass over one queue, and the jobs that were tried in it."""

    reservations: list[Reservation] = field(default_factory=list)
    tried: int = 0
    tried_of_user: Counter[str] = field(default_factory=Counter)
    tried_of_partition: Counter[str] = field(default_factory=Counter)


def decide(state: State, queues: Queues, with_backfill: bool) -> None:
    """A decision point: the main pass over all queues, then the backfill pass if it is due."""
    for ranked in queues.values():
        make_main_pass(state, ranked)
    if with_backfill:
        for queue, ranked in queues.items():
            waiting = [request for request in ranked if request in state.queued]
            make_backfill_pass(state, queue, waiting)
        state.last_backfill_us = state.now_us


def name_of_partition(state: State, request: Request) -> str:
    """Of a cluster without partitions, a queue counts as one."""
    return request.job.partition if state.partitions else ""


# --- the main pass --------------------------------------------------------------------------------------


def make_main_pass(state: State, ranked: list[Request]) -> None:
    closed: set[str] = set()
    for request in ranked:
        partition = name_of_partition(state, request)
        if partition in closed or not state.is_within_limits(request):
            continue
        allocation = place_beside(state, request, nodes_of(state, closed))
        if allocation is not None:
            state.start(request, allocation, backfilled=False)
        else:
            closed.add(partition)


def nodes_of(state: State, names: set[str]) -> set[int]:
    return {id for partition in state.partitions if partition.name in names for id in partition.nodes}


def place_beside(
    state: State, request: Request, taken: set[int], releases: list[Running] | None = None
) -> Allocation | None:
    """Where the rule places the job if these nodes take no part and these jobs have released."""
    free = copy_of(state.free)
    for run in releases or []:
        change(free, run.held, +1)
    for id in taken:
        free[id].available = False
    return state.place(free, request)


# --- when a backfill pass is made -----------------------------------------------------------------------


def next_backfill_us(state: State) -> int | None:
    """The next time at which a backfill pass is made if nothing happens before; None: never."""
    if state.policy.backfill != "slurm" or not state.queued:
        return None
    settings, last_us = state.settings, state.last_backfill_us
    every_us = max(1, to_us(settings.bf_interval_s))
    before_us = max(state.now_us, state.beginning.decides_from_us - 1)
    next_us = (before_us // every_us + 1) * every_us
    something_happened = state.changed_us is not None and state.changed_us >= last_us
    scores_always_change = state.policy.order in ORDERS_THAT_CHANGE or state.policy.max_wait_s is not None
    if something_happened or scores_always_change:
        return next_us
    if state.policy.order != "multifactor":
        return None
    calculated_anew_us = calculated_us(last_us, settings) + max(1, to_us(settings.priority_calc_s))
    first_multiple_us = -(-calculated_anew_us // every_us) * every_us
    return max(next_us, first_multiple_us)


# --- the backfill pass ----------------------------------------------------------------------------------


def make_backfill_pass(state: State, queue: str | None, ranked: list[Request]) -> None:
    settings, plan = state.settings, Plan()
    for request in ranked:
        if not state.is_within_limits(request):
            continue
        user, partition = request.job.user, name_of_partition(state, request)
        if is_reached(settings.bf_max_job_user, plan.tried_of_user[user]):
            continue
        if is_reached(settings.bf_max_job_part, plan.tried_of_partition[partition]):
            continue
        if is_reached(settings.bf_max_job_test, plan.tried):
            return
        plan.tried += 1
        plan.tried_of_user[user] += 1
        plan.tried_of_partition[partition] += 1
        attempt(state, queue, request, plan)


def is_reached(limit: int, count: int) -> bool:
    return limit > 0 and count >= limit


def attempt(state: State, queue: str | None, request: Request, plan: Plan) -> None:
    """Starts the job, or reserves nodes for it, or neither."""
    found = first_placement(state, queue, request, plan)
    if found is None:
        return
    t, allocation = found
    if t == state.now_us:
        state.start(request, allocation, backfilled=True)
    elif t <= state.now_us + to_us(state.settings.bf_window_s):
        nodes = frozenset(id for id, _ in allocation)
        plan.reservations.append(reservation(state, nodes, t, longest_us(state, request)))


def first_placement(
    state: State, queue: str | None, request: Request, plan: Plan
) -> tuple[int, Allocation] | None:
    running, d = state.running_in(queue), longest_us(state, request)
    ends = [run.expected_end_us for run in running] + [each.end_us for each in plan.reservations]
    for t in sorted({state.now_us, *(int(end) for end in ends if state.now_us < end < math.inf)}):
        released = [run for run in running if t > state.now_us and run.expected_end_us <= t]
        taken = {
            id
            for each in plan.reservations
            if each.begin_us <= t + d and each.end_us > t
            for id in each.nodes
        }
        allocation = place_beside(state, request, taken, released)
        if allocation is not None:
            return t, allocation
    return None


def reservation(state: State, nodes: frozenset[int], t: int, d: float) -> Reservation:
    """With times rounded down on the log's clock."""
    step_us, epoch_us = max(1, to_us(state.settings.bf_resolution_s)), to_us(state.settings.epoch_s)

    def floor(us: int) -> int:
        return (epoch_us + us) // step_us * step_us - epoch_us

    begin_us = floor(t)
    end_us = math.inf if d == math.inf else max(floor(t + int(d)), begin_us + step_us)
    return Reservation(nodes, begin_us, end_us)
