"""The last word before anything is written to a cluster: pure functions of state, memory and settings.

Each rule has a name, which the journal and the counters use. A guard trusts no policy: what it lets pass fits
now, on nodes that take jobs, for a job that waits and is the agent's, within every limit.
"""

import zlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from gpuyard.serve.adapter import Reorder, Start
from gpuyard.serve.decision.memory import Memory
from gpuyard.serve.decision.room import Room, within_limits
from gpuyard.serve.records import Planned, Ranked, Verdict
from gpuyard.serve.settings import ServeSettings
from gpuyard.serve.state import ClusterState, Job, Partition

LARGEST_PRIORITY = 2**32 - 3
"""Larger numbers have meanings of their own in Slurm."""


def in_scope(job: Job, settings: ServeSettings) -> bool:
    """Whether the agent acts on a job: on all in active mode, on some in canary mode."""
    if settings.mode == "active":
        return True
    if settings.mode != "canary":
        return False
    if job.partition in settings.canary_partitions or job.user in settings.canary_users:
        return True
    return zlib.crc32(job.id.partition("_")[0].encode()) < settings.canary_share * 2**32


def overdue(jobs: Iterable[Job], now_s: float, settings: ServeSettings) -> list[Job]:
    """Jobs that may start and have waited longer than ``max_wait_s``, the oldest first."""
    late = [job for job in jobs if job.waits and not job.left and now_s - job.submit_s > settings.max_wait_s]
    return sorted(late, key=lambda job: (job.submit_s, job.id))


def overdue_first(
    order: Sequence[Ranked], state: ClusterState, settings: ServeSettings
) -> tuple[Ranked, ...]:
    """The order with overdue jobs at its head, the oldest before the others."""
    late = [job.id for job in overdue(state.waiting, state.now_s, settings)]
    if not late:
        return tuple(order)
    by_job = {ranked.job: ranked for ranked in order}
    first = [by_job[job] for job in late if job in by_job]
    moved = {ranked.job for ranked in first}
    return (*first, *(ranked for ranked in order if ranked.job not in moved))


@dataclass(frozen=True)
class Guarded:
    """What passed, and what was said about everything.

    Attributes:
        actions: What to apply, in this order.
        verdicts: One for each start or reorder, in order.
    """

    actions: tuple[Start | Reorder, ...]
    verdicts: tuple[Verdict, ...]


def guard_starts(
    starts: Sequence[Planned], state: ClusterState, memory: Memory, settings: ServeSettings, number: int
) -> Guarded:
    """Judge the starts of one round, one after another.

    Args:
        starts: What was decided, in order.
        state: Of the round.
        memory: Of the round.
        settings: Limits.
        number: Of the round, for ids of decisions.
    """
    judge = _Judge(state, memory, settings)
    actions: list[Start | Reorder] = []
    verdicts: list[Verdict] = []
    for place, planned in enumerate(starts):
        id = f"{number}-{place}"
        nodes = ", ".join(f"{node}:{gpus}" for node, gpus in planned.nodes)
        rule, words = judge.refusal(planned)
        verdicts.append(Verdict(id, planned.job, "start", rule, words or f"on {nodes}"))
        if rule:
            continue
        judge.pass_on(planned)
        names, gpus_each = zip(*planned.nodes, strict=True)
        actions.append(Start(planned.job, names, id, planned.stops, gpus_each))
    return Guarded(tuple(actions), tuple(verdicts))


class _Judge:
    """Judges the starts of a round; each that passes leaves less to the next."""

    def __init__(self, state: ClusterState, memory: Memory, settings: ServeSettings) -> None:
        self.state, self.memory, self.settings = state, memory, settings
        self.partitions = {one.name: one for one in state.partitions}
        self.room = Room(state, memory)
        self.late = [
            job
            for job in overdue(state.waiting, state.now_s, settings)
            if job.held == "agent"
            and in_scope(job, settings)
            and job.id not in memory.in_flight
            # A job that its group's quota keeps back may never start: it must not keep others back.
            and not settings.simulation.group_quotas
        ]
        self.passed: dict[str, Planned] = {}
        self.stopped: list[str] = []

    def pass_on(self, planned: Planned) -> None:
        """Count a start that passed."""
        self.room = self._room_for(planned)
        self.room.take(self.state.by_id[planned.job], planned.nodes)
        self.late = [job for job in self.late if job.id != planned.job]
        self.passed[planned.job] = planned
        self.stopped += planned.stops

    def _room_for(self, planned: Planned) -> Room:
        """What is free once the jobs that make room are gone."""
        if not planned.stops:
            return self.room
        room = Room(self.state, self.memory, {*self.stopped, *planned.stops})
        for one in self.passed.values():
            room.take(self.state.by_id[one.job], one.nodes)
        return room

    def refusal(self, planned: Planned) -> tuple[str, str]:
        """The first rule that a start breaks, and in words; empty if none."""
        job = self.state.by_id.get(planned.job)
        if job is None or not job.waits:
            return "not-waiting", "it does not wait any more"
        if planned.job in self.memory.in_flight or planned.job in self.passed:
            return "in-flight", "it was released already"
        for rule, words in (
            _not_ours(job, self.settings),
            _bad_nodes(job, planned, self.state, self.partitions.get(job.partition)),
            _bad_stops(planned, self.stopped, self.state, self.memory, self.settings),
        ):
            if rule:
                return rule, words
        if not self._room_for(planned).holds(job, planned.nodes):
            return "no-room", f"there is no room for it on {', '.join(node for node, _ in planned.nodes)}"
        if len(self.passed) >= self.settings.max_starts:
            return "too-many", f"more than {self.settings.max_starts} starts in one round"
        return self._passes_overdue(job)

    def _passes_overdue(self, job: Job) -> tuple[str, str]:
        longer = next((one for one in self.late if one.submit_s < job.submit_s), None)
        if longer is None or not self.room.holds_somewhere(longer, self.partitions.get(longer.partition)):
            return "", ""
        return "overdue", f"job {longer.id} has waited longer than allowed, and there is room for it"


def _not_ours(job: Job, settings: ServeSettings) -> tuple[str, str]:
    if job.left:
        return "left", job.left
    if not in_scope(job, settings):
        return "scope", "it is none of those that the agent acts on"
    if job.held != "agent":
        return "not-held", "it is not held for the agent"
    return "", ""


def _bad_nodes(
    job: Job, planned: Planned, state: ClusterState, partition: Partition | None
) -> tuple[str, str]:
    if not planned.nodes or len({node for node, _ in planned.nodes}) < len(planned.nodes):
        return "nodes", "no nodes, or one of them twice"
    if not _whole_gang(job, planned):
        return "gang", f"its {job.gpus} GPUs are not what it would get"
    if job.nodes and len(planned.nodes) != job.nodes and (job.gpus == 0 or job.nodes <= job.gpus):
        return "nodes", f"it asked for {job.nodes} nodes"
    for name, _ in planned.nodes:
        node = state.node_by_name.get(name)
        if node is None or node.closed:
            return "node-closed", f"{name}: {node.closed if node else 'no such node'}"
        if job.gpus and job.gpu_types is not None and node.gpu_type not in job.gpu_types:
            return "gpu-type", f"{name} has {node.gpu_type}"
        if partition is not None and name not in partition.nodes:
            return "partition", f"{name} is not of partition {partition.name}"
    if partition is not None and not partition.open:
        return "partition", f"partition {partition.name} is closed"
    if not within_limits(job, len(planned.nodes), partition):
        return "partition", f"beyond the limits of partition {job.partition}"
    return "", ""


def _whole_gang(job: Job, planned: Planned) -> bool:
    """Whether every node gives a share, and all together what the job asked for."""
    counts = [gpus for _, gpus in planned.nodes]
    if min(counts) < (1 if job.gpus and not job.exclusive else 0):
        return False
    return job.exclusive or sum(counts) == job.gpus


def _bad_stops(
    planned: Planned, stopped: list[str], state: ClusterState, memory: Memory, settings: ServeSettings
) -> tuple[str, str]:
    """Limits on what a start may stop, after what earlier ones of the round stop."""
    lost = sum(hours for _, _, hours in memory.stops)
    lost += sum(lost_gpu_hours(state.by_id[stop], state.now_s) for stop in stopped)
    for place, stop in enumerate(planned.stops):
        job = state.by_id.get(stop)
        if job is None or job.waits or stop in stopped or stop in planned.stops[:place]:
            return "stop", f"job {stop} does not run"
        if settings.max_preemptions_per_job_hour == 0:
            return "preemption", "no job may be stopped (max_preemptions_per_job_hour is 0)"
        if not job.can_requeue or not in_scope(job, settings):
            return "preemption", f"job {stop} may not be requeued"
        lately = sum(id == stop and at_s > state.now_s - 3600.0 for id, at_s, _ in memory.stops)
        if lately >= settings.max_preemptions_per_job_hour:
            return "preemption", f"job {stop} was stopped {lately} times within an hour"
        lost += lost_gpu_hours(job, state.now_s)
        if lost > settings.max_lost_gpu_hours_per_day:
            return "preemption", f"more than {settings.max_lost_gpu_hours_per_day:g} GPU-hours lost in a day"
    return "", ""


def lost_gpu_hours(job: Job, now_s: float) -> float:
    """What requeuing a job throws away."""
    return job.gpus * max(0.0, now_s - (job.begin_s if job.begin_s is not None else now_s)) / 3600.0


# --- order control


def priority_range(state: ClusterState, settings: ServeSettings) -> tuple[int, int]:
    """Least and largest priority to give.

    They lie above those of jobs that the agent has not reached yet: if it dies, jobs that come later line up
    behind the ones that it ranked, and nobody starves.
    """
    others = max((int(job.priority) for job in state.waiting if not job.mark and not job.held), default=0)
    if others < settings.lowest_priority:
        return settings.lowest_priority, settings.highest_priority
    return min(others + 1, LARGEST_PRIORITY - 1), LARGEST_PRIORITY


def guard_order(
    order: Sequence[Ranked], state: ClusterState, settings: ServeSettings, number: int
) -> Guarded:
    """The fewest priorities that make the scheduler's order the given one, the first jobs first.

    Args:
        order: All jobs that were ranked, overdue ones included.
        state: Of the round.
        settings: Limits.
        number: Of the round, for ids of decisions.
    """
    ours: list[Job] = []
    verdicts: list[Verdict] = []
    for ranked in overdue_first(order, state, settings):
        job = state.by_id.get(ranked.job)
        if job is None or not job.waits or job.left or not in_scope(job, settings):
            continue
        if job.held:  # a priority would release it
            verdicts.append(Verdict(f"{number}-h{len(verdicts)}", job.id, "reorder", "held", "it is held"))
            continue
        ours.append(job)
    if settings.mode == "canary":
        wanted = _own_places(ours)
    else:
        wanted = new_priorities(ours, *priority_range(state, settings))
    actions: list[Start | Reorder] = []
    for job, priority in wanted:
        if len(actions) >= settings.max_reorders:
            break
        id = f"{number}-{len(actions)}"
        actions.append(Reorder(job.id, priority, id))
        verdicts.append(Verdict(id, job.id, "reorder", "", f"priority {priority}"))
    return Guarded(tuple(actions), tuple(verdicts))


def _own_places(ours: Sequence[Job]) -> list[tuple[Job, int]]:
    """Priorities that these jobs have already, handed round among them: nobody else's place changes."""
    written: list[tuple[Job, int]] = []
    above = LARGEST_PRIORITY + 1
    for job, place in zip(ours, sorted((int(job.priority) for job in ours), reverse=True), strict=True):
        above = max(1, min(place, above - 1))
        if above != int(job.priority):
            written.append((job, above))
    return written


def new_priorities(ours: Sequence[Job], low: int, high: int) -> list[tuple[Job, int]]:
    """Priorities to write so that jobs descend in this order, strictly, from ``low`` to ``high``.

    Priorities that the agent gave before and that are in order stay.
    """
    stay = _longest_descent(
        [int(job.priority) if job.mark and low <= job.priority <= high else None for job in ours]
    )
    width = 1
    while True:
        written, tight = _between(ours, stay, low, high)
        if tight is None:
            return [(job, number) for job, number in written if not job.mark or job.priority != number]
        if not stay:
            return []
        # No room between two that stay: their neighbours are numbered anew too, ever more of them. Not all
        # at once: as few as one round may write must bring the order nearer, whatever comes in meanwhile.
        stay = {place for place in stay if not tight[0] - width <= place < tight[1] + width}
        width *= 2


def _between(
    ours: Sequence[Job], stay: set[int], low: int, high: int
) -> tuple[list[tuple[Job, int]], tuple[int, int] | None]:
    """Numbers for jobs between those that stay; and the first places for which there are too few, if any.

    Jobs before the first that stays, and after the last, keep near them: most later jobs come in there.
    """
    stride = max(1, (high - low) // max(4096, 8 * len(ours)))
    written: list[tuple[Job, int]] = []
    above: int | None = None
    place = 0
    while place < len(ours):
        if place in stay:
            above = int(ours[place].priority)
            place += 1
            continue
        end = next((later for later in range(place, len(ours)) if later in stay), len(ours))
        below = int(ours[end].priority) if end < len(ours) else None
        numbers = _spaced(end - place, above, below, stride, low, high)
        if numbers is None:
            return [], (place, end)
        written += zip(ours[place:end], numbers, strict=True)
        place = end
    return written, None


def _spaced(
    count: int, above: int | None, below: int | None, stride: int, low: int, high: int
) -> list[int] | None:
    """So many descending numbers between two; None: there is nothing on that side."""
    if above is None and below is None:
        first = min(high, (low + high) // 2 + stride * count // 2)
    elif above is None:
        stride = min(stride, (high - (below or 0)) // count)
        first = (below or 0) + stride * count
    else:
        floor = low - 1 if below is None else below
        stride = (
            min(stride, (above - floor) // (count + 1)) if below is None else (above - below) // (count + 1)
        )
        first = above - stride
    if stride < 1 or first - stride * (count - 1) < low:
        return None
    return [first - stride * step for step in range(count)]


def _longest_descent(values: Sequence[int | None]) -> set[int]:
    """Places of a longest strictly descending subsequence."""
    tails: list[int] = []  # places of the largest last values of descents by length
    before: list[int] = [-1] * len(values)
    for place, value in enumerate(values):
        if value is None:
            continue
        low, high = 0, len(tails)
        while low < high:
            middle = (low + high) // 2
            known = values[tails[middle]]
            if known is not None and known > value:
                low = middle + 1
            else:
                high = middle
        before[place] = tails[low - 1] if low else -1
        tails[low : low + 1] = [place]
    found: set[int] = set()
    place = tails[-1] if tails else -1
    while place >= 0:
        found.add(place)
        place = before[place]
    return found
