"""The state of an environment: the reference simulator's, driven from outside."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise

from reference.simulator import events
from reference.simulator.memory import Usage
from reference.simulator.simulator import (
    Allocation,
    FreeNode,
    Job,
    Node,
    Policy,
    Request,
    Running,
    Settings,
    Simulation,
    Watts,
    World,
    allowed_pools,
    can_ever_start,
    empty_cluster,
    make_pools,
    make_request,
    place,
    to_s,
)


@dataclass
class EnvState(Simulation):
    """A simulation in which somebody else decides when to start what.

    Attributes:
        pinned: Jobs that are placed in one pool only, and that pool.
        held_back: Jobs that AcceptOrSkip passes over until time moves.
        arrival_count: The decayed number of arrivals at the last one of them.
        last_arrival_us: When that was.
    """

    pinned: dict[int, int] = field(default_factory=dict)
    held_back: set[int] = field(default_factory=set)
    arrival_count: float = 0.0
    last_arrival_us: int = 0

    @property
    def event_is_pending(self) -> bool:
        """Whether a job runs, or one has yet to arrive."""
        return bool(self.running or self.arriving)

    @property
    def all_have_finished(self) -> bool:
        return not (self.queued or self.running or self.arriving)

    @property
    def next_event_us(self) -> int:
        return min(events.times_of_events_us(self))

    def happen(self) -> list[Running]:
        """Moves the clock to the next event, processes all of that instant, and tells what finished."""
        before = list(self.running)
        self.held_back.clear()
        self.now_us = self.next_event_us
        self.instant += 1
        events.happen(self)
        return sorted((run for run in before if run not in self.running), key=lambda run: run.request.id)

    def decide_by_policy(self) -> None:
        """The decision point of section 7 under the state's own policy."""
        self.decide(self.what_happens())

    def enter_queue(self, request: Request) -> None:
        self.arrival_count = self.arrivals_now() + 1.0
        self.last_arrival_us = self.now_us
        super().enter_queue(request)

    def arrivals_now(self) -> float:
        """Arrivals so far, each counted 2^-(age / 3600 s)."""
        if self.arrival_count == 0.0:
            return 0.0
        return self.arrival_count * math.exp2(-(to_s(self.now_us - self.last_arrival_us) / 3600.0))

    def begin_at_us(self, allocation: Allocation) -> int:
        return self.now_us  # nodes do not sleep here, and warm-up has negative times

    def place(self, free: list[FreeNode], request: Request) -> Allocation | None:
        pool = self.pinned.get(request.id)
        return super().place(free, request) if pool is None else self.place_in(pool, free, request)

    def place_in(self, pool: int, free: list[FreeNode], request: Request) -> Allocation | None:
        """What the placement rule gives if the job may use that pool only."""
        if all(allowed.id != pool for allowed in allowed_pools(self.pools, request.job)):
            return None
        world = World(self.nodes, self.watts, arrived=self.arrived)
        return place([self.pools[pool]], free, request, self.policy.placement, self.settings.seed, world)

    def could_ever_hold(self, pool: int, request: Request) -> bool:
        return self.place_in(pool, empty_cluster(self.nodes), request) is not None


def make_state(
    nodes: Sequence[Node],
    speeds: dict[str, float],
    watts: Watts,
    jobs: Sequence[Job],
    policy: Policy,
    settings: Settings,
    time_0_us: int,
) -> EnvState:
    """A state before the first event, in which `time_0_us` of the jobs' clock is time 0."""
    requests = [make_request(id, job, settings) for id, job in enumerate(jobs)]
    if any(a.submit_us > b.submit_us for a, b in pairwise(requests)):
        raise ValueError("jobs must be sorted by submit time")
    for request in requests:
        how = (policy.placement, settings.seed, settings, watts)
        if not can_ever_start(nodes, speeds, request.job, request.row, *how):
            raise ValueError(f"job {request.id} can never start: {request.job}")
    requests = [replace(request, submit_us=request.submit_us - time_0_us) for request in requests]
    state = EnvState(
        make_pools(nodes, speeds), empty_cluster(nodes), requests, policy, settings, nodes, watts
    )
    state.now_us = requests[0].submit_us
    for usages, names in (
        (state.usage, {job.user for job in jobs}),
        (state.group_usage, {job.group for job in jobs}),
    ):
        usages.update({name: Usage(updated_us=state.now_us) for name in names})
    return state


def warm_up(state: EnvState) -> None:
    """Runs the state under its own policy up to, but not including, time 0."""
    while state.event_is_pending and state.next_event_us < 0:
        state.happen()
        state.decide_by_policy()
