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
from gpuyard.native.information import informed
from gpuyard.native.inputs import prepare
from gpuyard.native.schedule import RUN_ENDINGS
from gpuyard.policies.grammar import PolicySpec
from gpuyard.registry import registered
from gpuyard.simulation.run import SimulationResult, simulate
from gpuyard.simulation.watch import Past, Watch, run_until_done, schedule_so_far, watch
from gpuyard.units import duration, plural
from gpuyard.workload import Workload
from gpuyard.workload.core_columns import asked_nodes, needs_of
from gpuyard.workload.identity import JobName, find_job, name_of
from gpuyard.workload.schema import microseconds
from gpuyard.workload.shaping.derive import date_text, has_dates

FIRST_LOOK_S = 86_400.0
"""How far past the submit of the job the first simulation reaches; each further one eight times as far."""


@dataclass(frozen=True)
class Span:
    """A time in which a job waited for one and the same reason, seconds on the workload's clock."""

    from_s: float
    to_s: float
    reason: str
    detail: str
    head: JobName | None = None


@dataclass(frozen=True)
class Overtaker:
    """A job that came later and started earlier."""

    job: JobName
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
    stopped_for: JobName | None = None


@dataclass(frozen=True)
class Cause:
    """Who had what the job waited for.

    Attributes:
        overtakers: Jobs that came later and started earlier.
        by_rank: Share of them that the order ranks before the job; the others were let past it.
        earlier: Jobs that had come before and started while it waited.
        shares: Of the time held during its wait, in GPUs (CPUs, if it asked for no GPU): by ``overtakers``,
            ``earlier`` ones and those that were ``running`` when it came.
    """

    overtakers: int
    by_rank: float
    earlier: int
    shares: dict[str, float]


@dataclass
class JobStory:
    """What happened to one job, and why.

    Attributes:
        job: Its name.
        policy: Full name of the policy.
        submit_s: When it came, seconds on the workload's clock.
        start_s: When it first started.
        end_s: When it finished.
        gpus: Its size in GPUs.
        needs: What it asked for, in words.
        epoch_s: What the log's clock showed at time 0 (UTC, since 1970); None if the log has no dates.
        cause: Who had what it waited for meanwhile.
        waits: Why it waited, in order of time.
        every: Of so many decisions during its wait one was asked about: 1 is all.
        overtakers: Jobs that came later and started earlier, the first to start first.
        runs: Where and when it ran; several if it was stopped or failed.
        free_before: Empty GPUs on each of its nodes just before it first started.
        made_room: Jobs that were stopped so that it could start.
        order: What the policy's order goes by.
        backfill: What its backfilling allows.
        placement: What the placement rule goes by.
        nodes: How many nodes it asked for; None if it did not ask.
    """

    job: JobName
    policy: str
    submit_s: float
    start_s: float
    end_s: float
    gpus: float
    cause: Cause
    needs: str = ""
    epoch_s: float | None = None
    waits: list[Span] = field(default_factory=list)
    every: int = 1
    overtakers: list[Overtaker] = field(default_factory=list)
    runs: list[RunNote] = field(default_factory=list)
    free_before: list[tuple[int, int]] = field(default_factory=list)
    made_room: list[JobName] = field(default_factory=list)
    order: str = ""
    backfill: str = ""
    placement: str = ""
    nodes: int | None = None

    def document(self) -> dict[str, Any]:
        """As JSON-ready values."""
        return asdict(self)


def explain_job(
    workload: Workload,
    cluster: Cluster,
    policy: PolicySpec,
    config: SimulationConfig,
    job: int | str,
    *,
    progress: Callable[[int], None] | None = None,
) -> JobStory:
    """Simulate, and say why one job started when and where it did.

    Jobs that come after it has started do not matter, and are left out.

    Args:
        workload: The jobs.
        cluster: The cluster.
        policy: A native policy.
        config: Settings.
        job: The log's own id of the job, or its row, as ``find_job`` takes it.
        progress: Called with the number of jobs finished so far.

    Raises:
        InputError: for a job that is not there or does not run, or a policy that is not native.
    """
    position, config = find_job(workload, job), informed(config, workload)
    if policy.is_optimised:
        raise InputError(
            f"policy {policy.name} is not native, and its decisions cannot be explained; use tier"
        )
    inputs = prepare(workload, cluster, policy, config)
    entries = np.flatnonzero(inputs.kept == position)
    if not len(entries):
        name = name_of(workload, position)
        raise InputError(f"{name} can never run on cluster {cluster.name}: it was left out")
    entry = int(entries[0])
    if _core.needs_full_simulator(inputs.cluster, inputs.jobs, policy.compile(), inputs.settings):
        run = run_until_done(inputs, policy, entry, progress)
        schedule = schedule_so_far(inputs, run)
        result = SimulationResult(workload, cluster, policy.name, config, schedule, inputs.dropped, 0.0)
    else:
        run = None
        result = _until_it_runs(workload, cluster, policy, config, position, progress)
        inputs = prepare(result.workload, cluster, policy, config)
    submit_us = microseconds(result.workload.frame["submit_s"])[result.schedule.job]
    watched = watch(Past(inputs, submit_us, result.schedule, run), policy, entry, progress)
    return _story(result, policy, entry, watched)


def _until_it_runs(
    workload: Workload,
    cluster: Cluster,
    policy: PolicySpec,
    config: SimulationConfig,
    position: int,
    progress: Callable[[int], None] | None,
) -> SimulationResult:
    """Simulate the jobs that matter: those that come before it starts."""
    submit_s = workload.frame["submit_s"].to_numpy()
    reach_s = FIRST_LOOK_S
    while True:
        count = int(np.searchsorted(submit_s, submit_s[position] + reach_s, side="right"))
        no_estimates = workload.frame["estimate_s"].head(count).null_count() == count
        if count == len(workload) or (config.estimates == "requested" and no_estimates):
            return simulate(workload, cluster, policy, config, progress=progress)
        head = Workload(workload.frame.head(count), workload.metadata)
        result = simulate(head, cluster, policy, config, progress=progress)
        found = result.schedule.start_us[result.schedule.job == position]
        if not len(found) or found[0] / 1e6 < submit_s[count]:
            return result
        reach_s *= 8


def _story(result: SimulationResult, policy: PolicySpec, entry: int, watched: Watch) -> JobStory:
    schedule, workload = result.schedule, result.workload
    position = int(schedule.job[entry])
    row = workload.frame.row(position, named=True)
    overtakers = _overtakers(result, entry)
    rules = {kind: registered(kind) for kind in ("backfill", "placement")}
    story = JobStory(
        job=name_of(workload, position),
        policy=policy.name,
        submit_s=row["submit_s"],
        start_s=schedule.start_us[entry] / 1e6,
        end_s=schedule.end_us[entry] / 1e6,
        gpus=row["gpus"] * row["gpu_milli"] / 1000,
        cause=_cause(result, entry, watched),
        needs=needs_of(row),
        epoch_s=workload.metadata.epoch_s if has_dates(workload) else None,
        waits=_waits(watched, row, result),
        every=watched.every,
        overtakers=overtakers,
        runs=_runs(result, entry, watched.stopped_for),
        order=_summary(policy.order_rule),
        backfill=rules["backfill"][policy.backfill].summary,
        placement=rules["placement"][policy.placement].summary,
        nodes=asked_nodes(row),
    )
    first = story.runs[0].nodes
    story.free_before = [(node, watched.free_before.get(node, 0)) for node, _ in first]
    starts = [said for _, said in watched.asked if said["verdict"] == "starts"]
    stopped = starts[0]["stops"] if starts else []
    story.made_room = [name_of(workload, int(schedule.job[job])) for job in stopped]
    return story


def _summary(rule: Any) -> str:
    """What a rule says of itself; orders of one's own are functions."""
    return getattr(rule, "summary", None) or (rule.__doc__ or "an order of your own").strip().split("\n")[0]


def _cause(result: SimulationResult, entry: int, watched: Watch) -> Cause:
    """Who came later, earlier or ran already, and what each held for how long while the job waited."""
    schedule, frame = result.schedule, result.workload.frame
    submit_us = microseconds(frame["submit_s"])[schedule.job]
    came_us, begin_us = int(submit_us[entry]), int(schedule.start_us[entry])
    pieces = schedule.pieces()
    held_by = frame["gpus"].to_numpy() * frame["gpu_milli"].to_numpy()
    if not held_by[schedule.job[entry]]:
        cpus = frame["cpus"].to_numpy()
        held_by = cpus if cpus.any() else np.ones(len(frame), np.int64)
    amount = held_by[schedule.job][pieces.entry]
    within = np.minimum(pieces.released_us, begin_us) - np.maximum(pieces.taken_us, came_us)
    held = within.clip(0).astype(np.float64) * amount
    ran = schedule.start_us < came_us
    kinds = {
        "overtakers": (submit_us > came_us) & (schedule.start_us < begin_us),
        "earlier": (submit_us <= came_us) & ~ran & (schedule.start_us < begin_us),
        "running": ran,
    }
    total = float(held.sum())
    shares = {name: float(held[of[pieces.entry]].sum()) / (total or 1.0) for name, of in kinds.items()}
    seen = watched.ranked_before + watched.let_past
    by_rank = watched.ranked_before / seen if seen else 1.0
    return Cause(int(kinds["overtakers"].sum()), by_rank, int(kinds["earlier"].sum()), shares)


def _waits(watched: Watch, row: dict[str, Any], result: SimulationResult) -> list[Span]:
    """What was said at moments one after another, as spans of one reason each."""
    spans: list[Span] = []
    times = [at_s for at_s, _ in watched.asked]
    for (at_s, said), to_s in zip(watched.asked, [*times[1:], times[-1]], strict=True):
        if said["verdict"] == "starts":
            continue
        found = said["head"]
        head = name_of(result.workload, int(result.schedule.job[found])) if found >= 0 else None
        reason, detail = _reason(said, row), _detail(said, row, head, result.workload)
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
    if not row["gpus"]:
        return "other-limits"
    if said["free_gpus"] < row["gpus"] * row["gpu_milli"] / 1000:
        return "too-few-free"
    if row["gpus"] and asked_nodes(row):
        return "fragmented"
    return "other-limits" if said["most_empty"] >= max(row["gpus"], 1) else "fragmented"


def _detail(said: dict[str, Any], row: dict[str, Any], head: JobName | None, workload: Workload) -> str:
    size = row["gpus"] * row["gpu_milli"] / 1000
    needs = f"needs {size:g} {'GPU' if size <= 1 else 'GPUs'}"
    needs = f"needs {needs_of(row)}" if asked_nodes(row) or not row["gpus"] else needs
    free = f"{said['free_gpus']:g} {'is' if said['free_gpus'] == 1 else 'are'} free in its pools"
    ahead = plural(said["rank"], "job")
    until = "" if math.isnan(said["until_s"]) else f" (planned for {_moment(said['until_s'], workload)})"
    match _reason(said, row):
        case "too-few-free":
            return f"{needs}, {free}; {ahead} before it in the queue"
        case "fragmented":
            most = f"at most {said['most_empty']} on one node"
            return f"{needs}, and {free}, but not where they are needed: {most}"
        case "other-limits" if not row["gpus"]:
            return f"{needs}, and no nodes that it may use have so much left; {ahead} before it in the queue"
        case "other-limits":
            return f"{needs}, and {free}; CPUs, memory or the power cap do not allow it"
        case "behind-head":
            return f"the queue stops at {head}, which does not fit; {ahead} before it"
        case "would-delay-head":
            return f"it fits, but would delay {head}, the first that does not{until}"
        case "not-admitted":
            return "it fits, but the express lane keeps that room for shorter jobs"
        case "over-quota":
            return "its group holds all of its quota"
        case "reserved":
            return f"it holds a reservation{until}; {ahead} before it in the queue"
    return "there is no time at which it could be reserved: estimates of running jobs are unknown"


def _moment(at_s: float, workload: Workload) -> str:
    return date_text(workload, at_s) if has_dates(workload) else duration(at_s)


def _overtakers(result: SimulationResult, entry: int) -> list[Overtaker]:
    schedule, frame = result.schedule, result.workload.frame
    submit_s = frame["submit_s"].to_numpy()[schedule.job]
    later = (submit_s > submit_s[entry]) & (schedule.start_us < schedule.start_us[entry])
    found = np.flatnonzero(later)
    found = found[np.argsort(schedule.start_us[found], kind="stable")]
    jobs = frame[schedule.job[found]]
    columns = (
        *(jobs["row"].to_list(), jobs["source_id"].to_list(), submit_s[found].tolist()),
        *((schedule.start_us[found] / 1e6).tolist(), (jobs["gpus"] * jobs["gpu_milli"] / 1000).to_list()),
        schedule.backfilled[found].tolist(),
    )
    return [Overtaker(JobName(row, id), *rest) for row, id, *rest in zip(*columns, strict=True)]


def _runs(result: SimulationResult, entry: int, stopped_for: Mapping[float, int]) -> list[RunNote]:
    pieces = result.schedule.pieces()
    notes = []
    for i in np.flatnonzero(pieces.entry == entry).tolist():
        at = slice(pieces.node_offset[i], pieces.node_offset[i + 1])
        nodes = list(zip(pieces.node[at].tolist(), pieces.node_gpus[at].tolist(), strict=True))
        ending = RUN_ENDINGS[pieces.ending[i]]
        stop_s = pieces.stop_us[i] / 1e6
        other = int(result.schedule.job[stopped_for[stop_s]]) if ending == "stopped" else None
        who = None if other is None else name_of(result.workload, other)
        notes.append(RunNote(pieces.begin_us[i] / 1e6, stop_s, ending, nodes, who))
    return notes
