"""Why a job waits: one sentence first, then who is ahead, who is in the way, and when it will start.

Everything follows from the state and the last round; names of users are left out.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from gpuyard.serve.records import RoundRecord
from gpuyard.serve.settings import ServeSettings
from gpuyard.serve.state import ClusterState, Job, Node
from gpuyard.serve.waits.forecast import Forecast
from gpuyard.serve.waits.scene import Homes, is_open
from gpuyard.units import duration, plural

MOST_AHEAD = 5
"""Jobs ahead that are listed."""
MOST_BLOCKING = 10
"""Running jobs in the way that are listed."""
MOST_TRIED = 100
"""Jobs ahead that are looked at to find the first that does not fit."""


def explain_job(
    state: ClusterState,
    job_id: str,
    record: RoundRecord | None,
    settings: ServeSettings,
    forecast: Forecast | None = None,
) -> dict[str, Any]:
    """Why a job waits.

    Args:
        state: The cluster now.
        job_id: The job.
        record: The last round: its order, starts and verdicts; None before the first.
        settings: Of the agent.
        forecast: Start times, if they are known.

    Returns:
        Ready for JSON: ``sentence`` and ``reason`` (a word for programs), ``place`` in the queue of
        ``queue_length``, ``ahead`` (jobs that rank before it), ``blocking`` (running jobs that would have to
        end for it to start, if nobody else took their place), ``eta`` and more.

    Raises:
        LookupError: if there is no such job.
    """
    job = state.by_id[job_id]
    order = [one.job for one in record.order] if record is not None else []
    place = order.index(job_id) + 1 if job_id in order else None
    room = _Room(state, job)
    reason, sentence = _reason(state, job, record, settings, room, order)
    ahead = [state.by_id[id] for id in order[: (place or 1) - 1] if id in state.by_id]
    return {
        "job": job_id,
        "phase": job.phase,
        "at_s": state.now_s,
        "reason": reason,
        "sentence": sentence,
        "asks": {"gpus": job.gpus, "nodes": job.nodes, "cpus": job.cpus, "memory_mib": job.memory_mib},
        "partition": job.partition,
        "waited_s": max(0.0, state.now_s - job.submit_s) if job.waits else None,
        "policy": record.policy if record is not None else settings.policy,
        "mode": record.mode if record is not None else settings.mode,
        "place": place,
        "queue_length": len(order),
        "ahead": [{"job": one.id, "gpus": one.gpus} for one in ahead[:MOST_AHEAD]],
        "ahead_gpus": sum(one.gpus for one in ahead),
        "free": {"gpus": room.free_gpus, "nodes": room.nodes_with_free, "most_on_one_node": room.most_free},
        "blocking": _blocking(state, room) if job.waits and reason in _ABOUT_ROOM else [],
        "forecast": None if forecast is None or not job.waits else forecast.of(job_id),
    }


_ABOUT_ROOM = ("too-few-free", "fragmented", "other-limits")


def _reason(
    state: ClusterState,
    job: Job,
    record: RoundRecord | None,
    settings: ServeSettings,
    room: "_Room",
    order: Sequence[str],
) -> tuple[str, str]:
    """A word for programs and a sentence for people: the first that is true."""
    if not job.waits:
        since = "" if job.begin_s is None else f" since {duration(max(0.0, state.now_s - job.begin_s))}"
        return job.phase, f"It does not wait: it is {job.phase}{since} on {plural(len(job.shares), 'node')}."
    if job.held == "other":
        return "held", "It is held by its user or an administrator; nobody else can release it."
    shut = Homes(state).of(job)[1]
    if shut:
        return "partition", f"It cannot start: {shut}."
    if job.left:
        return "left", f"It is left to the cluster's own scheduler: {job.left}."
    if not room.fits_when_empty():
        return "never", f"It asks for {_needs(job)}, more than the nodes that are open could ever give."
    if not room.fits():
        return _no_room(job, room)
    return _no_turn(state, job, record, settings, order)


def _no_room(job: Job, room: "_Room") -> tuple[str, str]:
    types = "" if job.gpu_types is None else f" of type {' or '.join(job.gpu_types)}"
    if job.gpus > room.free_gpus:
        free = f"{room.free_gpus:,} {'is' if room.free_gpus == 1 else 'are'} free"
        return "too-few-free", f"Too few GPUs{types} are free: it asks for {_needs(job)}, and {free}."
    if job.gpus and not room.fits(gpus_only=True):
        return "fragmented", (
            f"Enough GPUs are free, but in pieces: {plural(room.free_gpus, 'free GPU')}{types} on "
            f"{plural(room.nodes_with_free, 'node')}, at most {room.most_free} on one; "
            f"it asks for {_needs(job)}."
        )
    return "other-limits", (
        f"GPUs are free, but not with enough CPUs and memory: it asks for {_needs(job)}, {job.cpus:,} CPUs "
        f"and {job.memory_mib:,} MiB."
        if job.gpus
        else f"No nodes have {job.cpus:,} CPUs and {job.memory_mib:,} MiB left."
    )


def _no_turn(
    state: ClusterState, job: Job, record: RoundRecord | None, settings: ServeSettings, order: Sequence[str]
) -> tuple[str, str]:
    """It fits now: why it does not start all the same."""
    if record is None:
        return "no-round", "It fits now, and the agent has not made its first decision yet."
    refused = next((one for one in record.verdicts if one.job == job.id and not one.allowed), None)
    if refused is not None:
        return "refused", f"The guard refused its start (rule {refused.rule}): {refused.words}."
    if any(one.job == job.id for one in record.starts):
        whose = "The agent starts it now." if settings.acts else "The policy would start it now."
        return "starting", f"{whose} The cluster's own scheduler has not done so yet."
    if job.id not in order:
        return "not-ranked", "It fits now, but the agent did not rank it in the last round; see the next one."
    before = [state.by_id[id] for id in order[: order.index(job.id)] if id in state.by_id]
    heads = (one for one in before[:MOST_TRIED] if one.waits and not _Room(state, one).fits())
    head = next(heads, None)
    if head is not None:
        return "reservation", (
            f"It fits now, but could delay job {head.id}, which ranks before it, needs {_needs(head)} and "
            "does not fit yet."
        )
    return "behind", f"It is behind {plural(len(before), 'job')} that rank before it and take the room first."


def _needs(job: Job) -> str:
    size = plural(job.gpus, "GPU") if job.gpus else plural(job.cpus, "CPU")
    return f"{size} on {plural(job.nodes, 'node')}" if job.nodes > 1 else size


@dataclass
class _Left:
    """What a node has left."""

    gpus: int
    cpus: int
    memory_mib: int


class _Room:
    """What is free on the nodes that a job may use."""

    def __init__(self, state: ClusterState, job: Job) -> None:
        self._job = job
        home = Homes(state).of(job)[0]
        names = next((set(one.nodes) for one in state.partitions if one.name == home), None)
        self.nodes = [node for node in state.nodes if is_open(node) and self._may_use(node, names)]
        self._left = {node.name: _Left(node.gpus, node.cpus, node.memory_mib) for node in self.nodes}
        self._exclusive = {share.node for one in state.running if one.exclusive for share in one.shares}
        for one in state.running:
            self._change(one, -1)
        for node in self.nodes:  # what a node says may be more than the jobs that are listed
            left = self._left[node.name]
            left.gpus = max(0, min(left.gpus, node.gpus - (node.gpus_used or 0)))

    @property
    def free_gpus(self) -> int:
        return sum(self._usable(node) for node in self.nodes)

    @property
    def nodes_with_free(self) -> int:
        return sum(self._usable(node) > 0 for node in self.nodes)

    @property
    def most_free(self) -> int:
        return max((self._usable(node) for node in self.nodes), default=0)

    def fits_when_empty(self) -> bool:
        """Whether the job could start if nothing ran."""
        return self._enough([_Left(node.gpus, node.cpus, node.memory_mib) for node in self.nodes], False)

    def fits(self, gpus_only: bool = False) -> bool:
        """Whether the job could start now, as far as room goes."""
        usable = [node for node in self.nodes if node.name not in self._exclusive]
        if self._job.exclusive:
            usable = [node for node in usable if self._left[node.name].gpus == node.gpus and self._idle(node)]
        return self._enough([self._left[node.name] for node in usable], gpus_only)

    def release(self, job: Job) -> bool:
        """Take a running job away; whether that gave room on these nodes."""
        self._exclusive -= {share.node for share in job.shares} if job.exclusive else set()
        return self._change(job, 1)

    def fits_with(self, job: Job) -> bool:
        """Whether the job fits although one that was released runs on; if so, that one does."""
        whole = {share.node for share in job.shares} if job.exclusive else set()
        self._change(job, -1)
        self._exclusive |= whole
        fits = self.fits()
        if not fits:
            self._exclusive -= whole
            self._change(job, 1)
        return fits

    def _idle(self, node: Node) -> bool:
        return self._left[node.name].cpus >= node.cpus

    def _usable(self, node: Node) -> int:
        return 0 if node.name in self._exclusive else max(0, self._left[node.name].gpus)

    def _change(self, job: Job, sign: int) -> bool:
        found = False
        for share in job.shares:
            left = self._left.get(share.node)
            if left is not None:
                found = True
                left.gpus += sign * share.gpus
                left.cpus += sign * share.cpus
                left.memory_mib += sign * share.memory_mib
        return found

    def _may_use(self, node: Node, names: set[str] | None) -> bool:
        types = self._job.gpu_types
        fits_type = types is None or not self._job.gpus or node.gpu_type in types
        return (names is None or node.name in names) and fits_type and (not self._job.gpus or node.gpus > 0)

    def _enough(self, left: list[_Left], gpus_only: bool) -> bool:
        """Whether nodes with so much left hold the job: on the nodes asked for, else the fewest."""
        job = self._job
        largest = max((node.gpus for node in self.nodes), default=0)
        count = max(1, job.nodes, -(-job.gpus // largest) if largest else 1)
        cpus, memory_mib = -(-job.cpus // count), -(-job.memory_mib // count)
        each, larger = divmod(job.gpus, count)
        if not gpus_only:
            left = [one for one in left if one.cpus >= cpus and one.memory_mib >= memory_mib]
        wide = sum(one.gpus >= each + 1 for one in left)
        return wide >= larger and sum(one.gpus >= each for one in left) >= count


def _blocking(state: ClusterState, room: _Room) -> list[dict[str, Any]]:
    """The running jobs that end soonest, as far as limits say, until the job fits."""

    def end_s(one: Job) -> float | None:
        if one.begin_s is None or one.limit_s is None:
            return None
        return max(state.now_s, one.begin_s + one.limit_s)

    ends = [(end_s(one), one) for one in state.running]
    ends.sort(key=lambda entry: (entry[0] is None, entry[0] or 0.0, entry[1].id))
    found: list[tuple[float | None, Job]] = []
    for at_s, one in ends:
        if room.fits():
            break
        if room.release(one):
            found.append((at_s, one))
    needed = [(at_s, one) for at_s, one in found if not room.fits_with(one)]
    return [{"job": one.id, "gpus": one.gpus, "ends_by_s": at_s} for at_s, one in needed[-MOST_BLOCKING:]]
