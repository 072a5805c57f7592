"""The `conservative` backfill of section 10 of docs/contract/simulator.md."""

import math
from dataclasses import dataclass, field

from reference.simulator.cluster import (
    Allocation,
    FreeNode,
    allowed_pools,
    change,
    copy_of,
    queue_of,
    scaled_us,
    take,
)
from reference.simulator.inputs import Request
from reference.simulator.state import Running, State


@dataclass(frozen=True)
class Reservation:
    begin_us: int
    allocation: Allocation
    end_us: float  # an int, or infinity


@dataclass(frozen=True)
class Entry:
    """What a waiting job holds in the plan; None: there is no time at which it could run."""

    request: Request
    reservation: Reservation | None


@dataclass
class Plan:
    """The reservations of one queue, in the order in which they were last planned."""

    entries: list[Entry] = field(default_factory=list)


@dataclass(frozen=True)
class Happened:
    """What happened at this instant, as far as plans depend on it."""

    a_node_failed_or_was_repaired: bool
    finished_early: list[Request]


def make_pass(state: State, queue: str | None, ranked: list[Request], plan: Plan, happened: Happened) -> None:
    kept = [] if is_void(state, queue, plan, happened) else common_beginning(plan, ranked)
    if any(queue_of(state.pools, request.job) == queue for request in happened.finished_early):
        for i in range(len(kept)):
            others = kept[:i] + kept[i + 1 :]
            kept[i] = Entry(ranked[i], improved(state, queue, kept[i], others))
    for request in ranked[len(kept) :]:
        kept.append(Entry(request, reserve(state, queue, request, kept)))
    plan.entries = []
    for entry in kept:
        if entry.reservation is not None and entry.reservation.begin_us == state.now_us:
            state.start(entry.request, entry.reservation.allocation, backfilled=bool(plan.entries))
        else:
            plan.entries.append(entry)


def is_void(state: State, queue: str | None, plan: Plan, happened: Happened) -> bool:
    """Whether all reservations are dropped."""
    reservations = [entry.reservation for entry in plan.entries if entry.reservation is not None]
    missed = any(reservation.begin_us < state.now_us for reservation in reservations)
    return happened.a_node_failed_or_was_repaired or is_overdue(state, queue) or missed


def begins_us(state: State, queue: str | None, plan: Plan) -> list[int]:
    """The begins of reservations, which are events unless a run of the queue is overdue."""
    if is_overdue(state, queue):
        return []
    return [entry.reservation.begin_us for entry in plan.entries if entry.reservation is not None]


def is_overdue(state: State, queue: str | None) -> bool:
    return any(run.expected_end_us <= state.now_us for run in state.running_in(queue))


def common_beginning(plan: Plan, ranked: list[Request]) -> list[Entry]:
    same = []
    for entry, request in zip(plan.entries, ranked, strict=False):
        if entry.request.id != request.id:
            break
        same.append(entry)
    return same


def improved(state: State, queue: str | None, entry: Entry, others: list[Entry]) -> Reservation | None:
    """A reservation made anew, unless that is later than what the job had."""
    found = reserve(state, queue, entry.request, others)
    if entry.reservation is None:
        return found
    if found is None or found.begin_us > entry.reservation.begin_us:
        return entry.reservation
    return found


def reserve(state: State, queue: str | None, request: Request, others: list[Entry]) -> Reservation | None:
    """The first reservation that the job can get beside running jobs and other reservations."""
    ends = [planned_end_us(state, run) for run in state.running_in(queue)]
    ends += [entry.reservation.end_us for entry in others if entry.reservation is not None]
    for t in sorted({state.now_us, *(int(end) for end in ends if state.now_us < end < math.inf)}):
        free = free_over(state, queue, others, t, t + longest_us(state, request))
        allocation = state.place(free, request)
        if allocation is not None:
            return Reservation(t, allocation, t + state.expected_us(request, allocation))
    return None


def planned_end_us(state: State, run: Running) -> float:
    return max(run.expected_end_us, state.now_us + 1)


def longest_us(state: State, request: Request) -> float:
    """The longest expected run time over the allowed pools, on as few nodes as possible."""
    work_us = state.expected_work_us(request)
    if work_us is None:
        return math.inf
    speeds = [
        pool.speed if request.job.gpus >= 1 else 1.0 for pool in allowed_pools(state.pools, request.job)
    ]
    longest = max(scaled_us(work_us, speed, 0.0, state.settings.locality_penalty) for speed in speeds)
    return state.restore_us(request) + longest


def free_over(
    state: State, queue: str | None, others: list[Entry], from_us: int, to_us: float
) -> list[FreeNode]:
    """The least that each node has free at any moment of the time span."""
    moments: set[float] = {from_us}
    moments |= {planned_end_us(state, run) for run in state.running_in(queue)}
    for entry in others:
        if entry.reservation is not None:
            moments |= {entry.reservation.begin_us, entry.reservation.end_us}
    states = [free_at(state, queue, others, moment) for moment in moments if from_us <= moment < to_us]
    least = copy_of(states[0])
    for free in states[1:]:
        for node, other in zip(least, free, strict=True):
            if other.empty < node.empty:
                node.gpu_milli = list(other.gpu_milli)
            node.cpus = min(node.cpus, other.cpus)
            node.memory_mib = min(node.memory_mib, other.memory_mib)
    return least


def free_at(state: State, queue: str | None, others: list[Entry], moment: float) -> list[FreeNode]:
    """What nodes have free at a moment of the plan: whole GPUs only, of which just the number counts."""
    free = copy_of(state.free)
    for run in state.running_in(queue):
        if planned_end_us(state, run) <= moment:
            change(free, run.held, +1)
    for entry in others:
        reservation = entry.reservation
        if reservation is not None and reservation.begin_us <= moment < reservation.end_us:
            take(free, entry.request.job, reservation.allocation)
    return free
