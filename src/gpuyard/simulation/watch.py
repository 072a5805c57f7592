"""What a policy says of one job while it waits: the simulation once more, with questions in between.

The schedule is known by then. So the simulator is only told what started when, and snapshots are taken at
moments at which the policy is asked. Where decisions hold more than starts (jobs are stopped, nodes sleep or
fail), the core has kept them from when the job came, and carries them out again.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from gpuyard import _core
from gpuyard.native.inputs import CoreInputs, Ints
from gpuyard.native.schedule import Schedule
from gpuyard.policies.grammar import PolicySpec
from gpuyard.simulation.run import schedule_of

NEVER = 2**62
"""Microseconds: later than any moment of a simulation."""
MOST_ASKED = 1_000
"""Moments at which the policy is asked about a job, at most, evenly spread over its wait."""

Progress = Callable[[int], None]


@dataclass
class Watch:
    """What the policy said of the job while it waited.

    Attributes:
        entry: The job, by its entry in the schedule.
        asked: Moments and what was said then, in order of time.
        every: Of so many decisions one was asked about.
        free_before: Empty GPUs by node just before the job first started.
        stopped_for: By time: the job for which this one was stopped then.
        ranked_before: Jobs that came later, ranked before it and started at moments that were asked about.
        let_past: Jobs that came later, ranked behind it and started then.
    """

    entry: int
    asked: list[tuple[float, dict[str, Any]]] = field(default_factory=list)
    every: int = 1
    free_before: dict[int, int] = field(default_factory=dict)
    stopped_for: dict[float, int] = field(default_factory=dict)
    ranked_before: int = 0
    let_past: int = 0

    def ask(self, snapshot: _core.Snapshot, policy: _core.Policy) -> None:
        """What is true of the job at this moment."""
        said = _core.explain(snapshot, policy, self.entry)
        self.asked.append((snapshot.now_s, said))
        if said["verdict"] == "starts" and not self.free_before:
            self.see_nodes(snapshot)

    def deny_start(self) -> None:
        """It did not start when last asked: a fresh plan has it start, the one that held did not."""
        said = self.asked[-1][1]
        if said["verdict"] == "starts":
            said["verdict"] = "reserved"
            self.free_before = {}

    def see_nodes(self, snapshot: _core.Snapshot) -> None:
        """How much is free where."""
        self.free_before = dict(enumerate(snapshot.nodes["empty_gpus"].tolist()))

    def see_starts(self, snapshot: _core.Snapshot, policy: _core.Policy, later: list[int]) -> None:
        """Whether jobs that came later and start now rank before this one, or are let past it."""
        places = {job: place for place, job in enumerate(_core.ranking(snapshot, policy)[0].tolist())}
        own = places.get(self.entry)
        for job in later:
            if own is not None and job in places:
                self.ranked_before += places[job] < own
                self.let_past += places[job] > own


@dataclass(frozen=True)
class Past:
    """A simulation that was run.

    Attributes:
        inputs: The simulator's inputs.
        submit_us: When each of the jobs came.
        schedule: What came of it until the job was done; ``NEVER`` is what was still to come.
        run: The run itself, if it was made by the full simulator until the job had finished.
    """

    inputs: CoreInputs
    submit_us: Ints
    schedule: Schedule
    run: _core.WatchedRun | None = None

    def simulator(self) -> _core.CheckedSimulator:
        """The same from its beginning."""
        inputs = self.inputs
        return _core.CheckedSimulator(inputs.cluster, inputs.jobs, inputs.settings, inputs.past)


def run_until_done(
    inputs: CoreInputs,
    policy: PolicySpec,
    entry: int,
    progress: Progress | None = None,
    *,
    keeps_plan: bool = False,
) -> _core.WatchedRun:
    """The full simulator, run until a job has finished.

    Args:
        inputs: The simulator's inputs.
        policy: Who decides.
        entry: The job, by its entry in the schedule.
        progress: Called with the number of jobs finished so far.
        keeps_plan: Whether snapshots have the plan of ``conservative``, which takes longer.
    """
    native = policy.compile()
    run = _core.WatchedRun(
        inputs.cluster, inputs.jobs, native, inputs.settings, inputs.past, entry, keeps_plan
    )
    run.run(progress)
    return run


def schedule_so_far(inputs: CoreInputs, run: _core.WatchedRun) -> Schedule:
    """What came of a run that did not go to its end; ``NEVER`` stands for what is still to come."""
    arrays = run.schedule()
    for columns in (arrays, arrays.get("runs") or {}):
        for name in ("start_us", "end_us", "stop_us", "released_us"):
            if name in columns:
                columns[name] = np.where(columns[name] < 0, NEVER, columns[name])
    return schedule_of(inputs, arrays)


def watch(past: Past, policy: PolicySpec, entry: int, progress: Progress | None = None) -> Watch:
    """Go through a simulation again until the job has started, or has finished if it may be stopped.

    Args:
        past: The simulation.
        policy: Who decided.
        entry: The job, by its entry in the schedule.
        progress: Called with the number of jobs finished so far.
    """
    if past.schedule.runs is not None or (past.run is not None and past.run.started_as_planned):
        return _decided_again(past, policy, entry, progress)
    found = _replayed(past, policy, entry) if past.run is None else _carried_out_again(past, policy, entry)
    return found or _decided_again(past, policy, entry, progress)


def _stride(past: Past, entry: int) -> int:
    """Of how many decisions during the job's waits, before and between its runs, one is asked about."""
    submit_us, schedule = past.submit_us, past.schedule
    moments = np.unique(np.concatenate([submit_us, schedule.end_us]))
    pieces = schedule.pieces()
    own = pieces.entry == entry
    from_us = np.append(submit_us[entry], pieces.released_us[own][:-1])
    waited = np.searchsorted(moments, pieces.taken_us[own]) - np.searchsorted(moments, from_us)
    return max(1, -(-int(waited.sum()) // MOST_ASKED))


def _replayed(past: Past, policy: PolicySpec, entry: int) -> Watch | None:
    """The simulator told what started when; None if that is not all that was decided."""
    watch, native, starts = Watch(entry, every=_stride(past, entry)), policy.compile(), _Starts(past, entry)
    simulator = past.simulator()
    decisions = 0
    while simulator.advance():
        now = simulator.now_s
        jobs = starts.at(now)
        if jobs is None or now > starts.begin_s:
            return None  # a job started at a moment at which nothing else happened
        if now >= starts.came_s:
            if now == starts.begin_s or decisions % watch.every == 0:
                snapshot = simulator.snapshot()
                watch.ask(snapshot, native)
                if later := starts.later(jobs):
                    watch.see_starts(snapshot, native, later)
            if now == starts.begin_s:
                watch.see_nodes(snapshot)
                return watch
            watch.deny_start()
            decisions += 1
        if jobs:
            simulator.apply(starts.decision(jobs))
    return None


def _carried_out_again(past: Past, policy: PolicySpec, entry: int) -> Watch:
    """The same as ``_replayed``, by the decisions that the run has kept."""
    watch, native, run = Watch(entry, every=_stride(past, entry)), policy.compile(), past.run
    assert run is not None
    begin_s = past.schedule.start_us[entry] / 1e6
    run.look(watch.every)
    while run.advance():
        snapshot = run.snapshot()
        watch.ask(snapshot, native)
        if snapshot.now_s == begin_s:
            watch.see_nodes(snapshot)
            break
        if later := _later(past, entry, run.decision):
            watch.see_starts(snapshot, native, later)
        watch.deny_start()
    return watch


def _later(past: Past, entry: int, decision: _core.Decision) -> list[int]:
    """Jobs that start by a decision and came later than this one."""
    return [job for job, _ in decision.starts if past.submit_us[job] > past.submit_us[entry]]


class _Starts:
    """Which jobs started when, up to the first start of one of them."""

    def __init__(self, past: Past, entry: int) -> None:
        schedule = past.schedule
        start_s = schedule.start_us / 1e6
        self.begin_s, self.came_s = float(start_s[entry]), float(past.submit_us[entry] / 1e6)
        order = np.argsort(start_s, kind="stable")
        order = order[start_s[order] < self.begin_s]
        self._jobs: list[int] = order.tolist()
        self._starts_s: list[float] = start_s[order].tolist()
        self._came_s = (past.submit_us / 1e6).tolist()
        columns = (schedule.node_offset, schedule.node, schedule.node_gpus)
        self._offset, self._node, self._gpus = (column.tolist() for column in columns)
        self._place = 0

    def at(self, now_s: float) -> list[int] | None:
        """Jobs that start now; None if one should have started before."""
        first = place = self._place
        while place < len(self._jobs) and self._starts_s[place] <= now_s:
            if self._starts_s[place] < now_s:
                return None
            place += 1
        self._place = place
        return self._jobs[first:place]

    def later(self, jobs: list[int]) -> list[int]:
        """Those of them that came later."""
        return [job for job in jobs if self._came_s[job] > self.came_s]

    def decision(self, jobs: list[int]) -> _core.Decision:
        """That these jobs start where they did."""
        decision = _core.Decision()
        for job in jobs:
            at = slice(self._offset[job], self._offset[job + 1])
            decision.start(job, list(zip(self._node[at], self._gpus[at], strict=True)))
        return decision


def _decided_again(past: Past, policy: PolicySpec, entry: int, progress: Progress | None) -> Watch:
    """All decisions carried out again until the job is done, with a look where the job waits or starts."""
    watch, native = Watch(entry, every=_stride(past, entry)), policy.compile()
    begin_s = past.schedule.start_us[entry] / 1e6
    # Why a job waits under `conservative` is asked of its plan.
    keeps_plan = policy.backfill == "conservative"
    run = past.run
    if run is None or keeps_plan:
        run = run_until_done(past.inputs, policy, entry, progress, keeps_plan=keeps_plan)
    run.look(watch.every)
    while run.advance():
        snapshot = run.snapshot()
        watch.ask(snapshot, native)
        later = _later(past, entry, run.decision)
        if later and snapshot.now_s < begin_s:
            watch.see_starts(snapshot, native, later)
    watch.stopped_for = dict(run.stops)
    return watch
