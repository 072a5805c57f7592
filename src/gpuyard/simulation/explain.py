"""Why a job of a simulated schedule started when and where it did."""

import math
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np

from gpuyard import _core
from gpuyard.cluster.model import Cluster
from gpuyard.config import SimulationConfig
from gpuyard.errors import InputError
from gpuyard.native.inputs import prepare
from gpuyard.policies.grammar import PolicySpec
from gpuyard.registry import registered
from gpuyard.simulation.run import SimulationResult, simulate
from gpuyard.units import duration, plural
from gpuyard.workload import Workload

MOST_NAMED = 5
"""Jobs that are named one by one, at most; the rest are counted."""


@dataclass(frozen=True)
class Span:
    """A time in which a job waited for one and the same reason, seconds on the workload's clock."""

    from_s: float
    to_s: float
    reason: str
    detail: str
    head: int | None = None


@dataclass(frozen=True)
class Overtaker:
    """A job that came later and started earlier."""

    job: int
    submit_s: float
    start_s: float
    gpus: float
    backfilled: bool


@dataclass(frozen=True)
class RunNote:
    """One run of the job."""

    begin_s: float
    stop_s: float
    ending: str
    nodes: list[tuple[int, int]]
    stopped_for: int | None = None


@dataclass
class JobStory:
    """What happened to one job, and why.

    Attributes:
        job: Its row in the workload.
        policy: Full name of the policy.
        submit_s: When it came, seconds on the workload's clock.
        start_s: When it first started.
        end_s: When it finished.
        gpus: Its size in GPUs.
        waits: Why it waited, in order of time.
        overtakers: Jobs that came later and started earlier, the first to start first.
        runs: Where and when it ran; several if it was stopped or failed.
        free_before: Empty GPUs on each of its nodes just before it first started.
        made_room: Jobs that were stopped so that it could start.
        placement: What the placement rule goes by.
    """

    job: int
    policy: str
    submit_s: float
    start_s: float
    end_s: float
    gpus: float
    waits: list[Span] = field(default_factory=list)
    overtakers: list[Overtaker] = field(default_factory=list)
    runs: list[RunNote] = field(default_factory=list)
    free_before: list[tuple[int, int]] = field(default_factory=list)
    made_room: list[int] = field(default_factory=list)
    placement: str = ""

    def document(self) -> dict[str, Any]:
        """As JSON-ready values."""
        return asdict(self)


def explain_job(
    workload: Workload,
    cluster: Cluster,
    policy: PolicySpec,
    config: SimulationConfig,
    job: int,
    *,
    progress: Callable[[int], None] | None = None,
) -> JobStory:
    """Simulate, and tell the story of one job.

    Args:
        workload: The jobs.
        cluster: The cluster.
        policy: A native policy.
        config: Settings.
        job: Row of the job in the workload.
        progress: Called with the number of jobs finished so far.

    Raises:
        InputError: for a job that is not there or does not run, or a policy that is not native.
    """
    if not 0 <= job < len(workload):
        raise InputError(
            f"there is no job {job}; workload {workload.metadata.name} has rows 0 to {len(workload) - 1}"
        )
    if policy.is_optimised:
        raise InputError(
            f"policy {policy.name} is not native, and its decisions cannot be explained; use tier"
        )
    result = simulate(workload, cluster, policy, config)
    entries = np.flatnonzero(result.schedule.job == job)
    if not len(entries):
        raise InputError(f"job {job} can never run on cluster {cluster.name}: it was left out")
    watch = _watch(workload, cluster, policy, config, int(entries[0]), progress)
    return _story(result, policy, int(entries[0]), watch)


@dataclass
class _Watch:
    """What a pass after another said of the job while it waited."""

    verdicts: list[tuple[float, dict[str, Any]]] = field(default_factory=list)
    free_before: dict[int, int] = field(default_factory=dict)
    stopped_for: dict[float, int] = field(default_factory=dict)  # by time


def _watch(
    workload: Workload,
    cluster: Cluster,
    policy: PolicySpec,
    config: SimulationConfig,
    entry: int,
    progress: Callable[[int], None] | None,
) -> _Watch:
    """Go through the simulation again, step by step, until the job is done."""
    inputs = prepare(workload, cluster, policy, config)
    simulator = _core.CheckedSimulator(inputs.cluster, inputs.jobs, inputs.settings, inputs.past)
    native, watch, running = policy.compile(), _Watch(), False
    while simulator.advance():
        waiting = simulator.waiting
        if len(waiting):
            snapshot = simulator.snapshot()
            if entry in waiting:
                said = _core.explain(snapshot, native, entry)
                watch.verdicts.append((snapshot.now_s, said))
                if said["verdict"] == "starts" and not watch.free_before:
                    watch.free_before = dict(enumerate(snapshot.nodes["empty_gpus"].tolist()))
            decision = _core.decide(snapshot, native)
            running = entry in snapshot.running["job"]
            for start, stops in decision.stops:
                if entry in stops:
                    watch.stopped_for[snapshot.now_s] = start
            simulator.apply(decision)
        if progress:
            progress(simulator.finished)
        if (
            watch.verdicts
            and not running
            and entry not in simulator.waiting
            and simulator.has_finished(entry)
        ):
            break
    return watch


def _story(result: SimulationResult, policy: PolicySpec, entry: int, watch: _Watch) -> JobStory:
    schedule, frame = result.schedule, result.workload.frame
    row = frame.row(int(schedule.job[entry]), named=True)
    story = JobStory(
        job=int(schedule.job[entry]),
        policy=policy.name,
        submit_s=row["submit_s"],
        start_s=schedule.start_us[entry] / 1e6,
        end_s=schedule.end_us[entry] / 1e6,
        gpus=row["gpus"] * row["gpu_milli"] / 1000,
        waits=_waits(watch, schedule.job, row, result),
        overtakers=_overtakers(result, entry),
        runs=_runs(result, entry, watch.stopped_for),
        placement=registered("placement")[policy.placement].summary,
    )
    first = story.runs[0].nodes
    story.free_before = [(node, watch.free_before.get(node, 0)) for node, _ in first]
    starts = [said for _, said in watch.verdicts if said["verdict"] == "starts"]
    story.made_room = [int(schedule.job[job]) for job in starts[0]["stops"]] if starts else []
    return story


def _waits(watch: _Watch, rows: Any, row: dict[str, Any], result: SimulationResult) -> list[Span]:
    """Verdicts at instants one after another, as spans of one reason each."""
    spans: list[Span] = []
    times = [at_s for at_s, _ in watch.verdicts]
    for (at_s, said), to_s in zip(watch.verdicts, [*times[1:], times[-1]], strict=True):
        if said["verdict"] == "starts":
            continue
        head = int(rows[said["head"]]) if said["head"] >= 0 else None
        reason = _reason(said, row)
        detail = _detail(said, row, head)
        last = spans[-1] if spans else None
        if last and last.reason == reason and last.head == head and last.to_s == at_s:
            spans[-1] = Span(last.from_s, to_s, reason, detail, head)
        else:
            spans.append(Span(at_s, to_s, reason, detail, head))
    return [span for span in spans if span.to_s > span.from_s]


def _reason(said: dict[str, Any], row: dict[str, Any]) -> str:
    """The verdict, with "does not fit" told apart into too few GPUs and GPUs in the wrong places."""
    if said["verdict"] != "does-not-fit":
        return str(said["verdict"])
    if said["free_gpus"] < row["gpus"] * row["gpu_milli"] / 1000:
        return "too-few-free"
    return "other-limits" if said["most_empty"] >= max(row["gpus"], 1) else "fragmented"


def _detail(said: dict[str, Any], row: dict[str, Any], head: int | None) -> str:
    needs = f"needs {plural(row['gpus'], 'GPU')}" if row["gpus"] else "needs CPUs and memory"
    free = f"{said['free_gpus']:g} are free in its pools"
    ahead = plural(said["rank"], "job")
    until = "" if math.isnan(said["until_s"]) else f" (planned for {duration(said['until_s'])})"
    match _reason(said, row):
        case "too-few-free":
            return f"{needs}, {free}; {ahead} before it in the queue"
        case "fragmented":
            most = f"at most {said['most_empty']} on one node"
            return f"{needs}, and {free}, but not where they are needed: {most}"
        case "other-limits":
            return f"{needs}, and {free}; CPUs, memory or the power cap do not allow it"
        case "behind-head":
            return f"the queue stops at job {head}, which does not fit; {ahead} before it"
        case "would-delay-head":
            return f"it fits, but would delay job {head}, the first that does not{until}"
        case "not-admitted":
            return "it fits, but the express lane keeps that room for shorter jobs"
        case "over-quota":
            return "its group holds all of its quota"
        case "reserved":
            return f"it holds a reservation{until}; {ahead} before it in the queue"
    return "there is no time at which it could be reserved: estimates of running jobs are unknown"


def _overtakers(result: SimulationResult, entry: int) -> list[Overtaker]:
    schedule, frame = result.schedule, result.workload.frame
    submit_s = frame["submit_s"].to_numpy()[schedule.job]
    later = (submit_s > submit_s[entry]) & (schedule.start_us < schedule.start_us[entry])
    found = np.flatnonzero(later)
    found = found[np.argsort(schedule.start_us[found], kind="stable")]
    gpus = (frame["gpus"].to_numpy() * frame["gpu_milli"].to_numpy() / 1000)[schedule.job]
    return [
        Overtaker(
            int(schedule.job[i]),
            float(submit_s[i]),
            schedule.start_us[i] / 1e6,
            float(gpus[i]),
            bool(schedule.backfilled[i]),
        )
        for i in found.tolist()
    ]


def _runs(result: SimulationResult, entry: int, stopped_for: Mapping[float, int]) -> list[RunNote]:
    from gpuyard.native.schedule import RUN_ENDINGS

    pieces = result.schedule.pieces()
    notes = []
    for i in np.flatnonzero(pieces.entry == entry).tolist():
        at = slice(pieces.node_offset[i], pieces.node_offset[i + 1])
        nodes = list(zip(pieces.node[at].tolist(), pieces.node_gpus[at].tolist(), strict=True))
        ending = RUN_ENDINGS[pieces.ending[i]]
        stop_s = pieces.stop_us[i] / 1e6
        who = int(result.schedule.job[stopped_for[stop_s]]) if ending == "stopped" else None
        notes.append(RunNote(pieces.begin_us[i] / 1e6, stop_s, ending, nodes, who))
    return notes


REASONS = {
    "too-few-free": "too few GPUs free",
    "fragmented": "GPUs free, but in the wrong places",
    "other-limits": "GPUs free, but not CPUs, memory or power",
    "behind-head": "behind a job that does not fit",
    "would-delay-head": "would delay a job before it",
    "not-admitted": "not admitted",
    "over-quota": "over its group's quota",
    "reserved": "reserved for later",
    "no-reservation": "no time to reserve",
}


def _reason_sentences(story: JobStory) -> list[str]:
    """How long it waited for what, the longest first, and whom it waited for longest."""
    totals: dict[str, float] = {}
    heads: dict[str, dict[int, float]] = {}
    for span in story.waits:
        length_s = span.to_s - span.from_s
        totals[span.reason] = totals.get(span.reason, 0.0) + length_s
        if span.head is not None and span.reason in ("behind-head", "would-delay-head"):
            blocked = heads.setdefault(span.reason, {})
            blocked[span.head] = blocked.get(span.head, 0.0) + length_s
    lines = []
    for reason, total_s in sorted(totals.items(), key=lambda item: -item[1]):
        longest = sorted(heads.get(reason, {}).items(), key=lambda item: -item[1])[:3]
        whom = ", ".join(f"job {head} for {duration(length_s)}" for head, length_s in longest)
        lines.append(f"Waited {duration(total_s)}: {REASONS[reason]}" + (f" ({whom})." if whom else "."))
    return lines


def sentences(story: JobStory) -> list[str]:
    """The story in words."""
    waited_s = story.start_s - story.submit_s
    lines = [
        f"Job {story.job} asked for {story.gpus:g} GPUs at {duration(story.submit_s)} and started "
        + ("at once." if waited_s == 0 else f"{duration(waited_s)} later, at {duration(story.start_s)}.")
    ]
    lines += _reason_sentences(story)
    if story.overtakers:
        named = ", ".join(str(other.job) for other in story.overtakers[:MOST_NAMED])
        more = len(story.overtakers) - MOST_NAMED
        lines.append(
            f"{plural(len(story.overtakers), 'job')} came later and started earlier: {named}"
            + (f" and {more:,} more." if more > 0 else ".")
        )
    first = story.runs[0]
    where = ", ".join(f"{gpus} on node {node}" for node, gpus in first.nodes[:MOST_NAMED])
    before = ", ".join(f"{free} on node {node}" for node, free in story.free_before[:MOST_NAMED])
    lines.append(f"It got {where} ({before} were empty). The rule: {story.placement}.")
    if story.made_room:
        lines.append(f"Stopped to make room for it: job {', '.join(map(str, story.made_room))}.")
    for number, run in enumerate(story.runs[:-1], start=1):
        why = f"for job {run.stopped_for}" if run.stopped_for is not None else "by a failing node"
        lines.append(f"Run {number} was ended {why} at {duration(run.stop_s)}.")
    return lines
