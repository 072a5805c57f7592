"""What policies depend on beyond the state of the moment: usage, finished jobs, arrivals, plans, releases.

It follows from the states that were observed, one after another. Its formulas are those of
docs/contract/simulator.md, so that a policy decides as it does in the simulator. The journal keeps it.
"""

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Self

from gpuyard.cluster.model import Cluster
from gpuyard.errors import InputError
from gpuyard.native.columns import UNKNOWN_RUN_S
from gpuyard.serve.records import Happened
from gpuyard.serve.state import ClusterState, Ended, Job

MEMORY_VERSION = 1
_LN_2 = 0.6931471805599453
_NEGLIGIBLE_GPU_S = 1e-9
"""Usage below this is forgotten once its user has no jobs."""
_NOT_TEXT = ("previous", "updates")


@dataclass
class Usage:
    """Decayed GPU-seconds of a user or group (docs/contract/simulator.md, section 8).

    Attributes:
        gpu_s: As of ``updated_us``.
        updated_us: When a job of theirs last started or ended.
        gpus: What their jobs hold since then.
    """

    gpu_s: float = 0.0
    updated_us: int = 0
    gpus: int = 0

    def at(self, now_us: int, half_life_s: float) -> float:
        """What it is at a moment."""
        # Clocks jump back, and jobs begin in the future of another clock: usage never grows by that.
        passed_us = max(0, now_us - self.updated_us)
        faded = math.exp2(-((float(passed_us) / 1e6) / half_life_s))
        held = float(self.gpus) * (half_life_s / _LN_2) * (1.0 - faded)
        return self.gpu_s * faded + held

    def change(self, gpus: int, now_us: int, half_life_s: float) -> None:
        """Some GPUs more or fewer from now on."""
        now_us = max(now_us, self.updated_us)  # clocks of real clusters may jump back
        self.gpu_s = self.at(now_us, half_life_s)
        self.updated_us = now_us
        self.gpus = max(0, self.gpus + gpus)


@dataclass
class InFlight:
    """A job that the agent released and that does not run yet: it counts as if it did.

    Attributes:
        nodes: Names of nodes and GPUs on each.
        since_s: When, on the cluster's clock.
        decision: By which decision.
    """

    nodes: list[tuple[str, int]]
    since_s: float
    decision: str = ""


@dataclass
class Memory:
    """What was learnt from all states so far. ``update`` it with every state, then decide.

    Attributes:
        zero_s: Of the clock that policies see; the first state's moment, for real clusters.
        instant: Number of the decision, from 0.
        users: Usage by user.
        groups: Usage by group.
        run_sums: Summed run times, µs, and number of finished jobs by what they have in common.
        gpu_time: Jobs and summed whole GPU-seconds of finished jobs by bucket, for ``gittins``.
        arrived: Jobs that arrived by gang size, for ``fgd``.
        arrivals: Recent arrivals, each counted half after an hour, as of ``arrivals_s``.
        predictions_s: Run times predicted when jobs arrived, of jobs that are still there.
        attained_s: Service of jobs that ran before and were requeued.
        queued_s: When such jobs entered the queue again.
        reservations: The last plan of ``conservative``: job, begin, end, nodes; None for what has no end.
        in_flight: Releases that have had no effect yet, by job.
        stops: When the agent stopped jobs: job, moment, lost GPU-hours.
        just_ended: Jobs that ended now: group, nodes, GPUs, nodes asked for, run time and estimate in µs.
    """

    zero_s: float | None = None
    instant: int = -1
    users: dict[str, Usage] = field(default_factory=dict)
    groups: dict[str, Usage] = field(default_factory=dict)
    run_sums: dict[str, list[int]] = field(default_factory=dict)
    gpu_time: dict[str, list[int]] = field(default_factory=dict)
    arrived: dict[str, int] = field(default_factory=dict)
    arrivals: float = 0.0
    arrivals_s: float = 0.0
    predictions_s: dict[str, float] = field(default_factory=dict)
    attained_s: dict[str, float] = field(default_factory=dict)
    queued_s: dict[str, float] = field(default_factory=dict)
    reservations: list[Any] = field(default_factory=list)
    in_flight: dict[str, InFlight] = field(default_factory=dict)
    stops: list[tuple[str, float, float]] = field(default_factory=list)
    just_ended: list[Any] = field(default_factory=list)

    previous: ClusterState | None = field(default=None, repr=False)
    """The last state; not part of the text."""
    updates: int = field(default=0, repr=False, compare=False)
    """States that this object has seen; not part of the text."""

    # --- as text

    def to_json(self) -> str:
        """All of it but ``previous`` and ``updates``; ``from_json`` reads it back, to the last bit."""
        values = {name: value for name, value in self.__dict__.items() if name not in _NOT_TEXT}
        values["users"] = {name: asdict(usage) for name, usage in self.users.items()}
        values["groups"] = {name: asdict(usage) for name, usage in self.groups.items()}
        values["in_flight"] = {job: asdict(one) for job, one in self.in_flight.items()}
        return json.dumps({"version": MEMORY_VERSION, **values}, separators=(",", ":"), allow_nan=False)

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Read what ``to_json`` wrote.

        Raises:
            InputError: if it is something else, or of another version.
        """
        try:
            values = json.loads(text)
            version = values.pop("version")
            if version != MEMORY_VERSION:
                raise InputError(
                    f"the agent's memory is of version {version}, this gpuyard reads {MEMORY_VERSION}; begin "
                    "with another state directory, or use the gpuyard that wrote it"
                )
            for name in ("users", "groups"):
                values[name] = {who: Usage(**usage) for who, usage in values[name].items()}
            values["in_flight"] = {
                job: InFlight(
                    [(str(node), int(gpus)) for node, gpus in one["nodes"]], one["since_s"], one["decision"]
                )
                for job, one in values["in_flight"].items()
            }
            values["stops"] = [(str(job), float(at), float(lost)) for job, at, lost in values["stops"]]
            return cls(**values)
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            if isinstance(error, InputError):
                raise
            raise InputError(f"the agent's memory cannot be read: {error}") from None

    # --- what happens from one state to the next

    def update(self, state: ClusterState, half_life_s: float, estimates: str) -> tuple[Happened, ...]:
        """Learn from the next state; what the scheduler did since the one before.

        Args:
            state: As observed.
            half_life_s: Of usage.
            estimates: Where estimates come from: tells which ends were early.
        """
        before = self.previous.by_id if self.previous is not None else {}
        if self.zero_s is None:
            self.zero_s = state.now_s if state.instant is None else 0.0
        ended = {one.id: one for one in state.ended}
        gone = [_as_it_ended(job, ended.get(job.id)) for job in before.values() if job.id not in state.by_id]
        unseen = [job for job in gone if not job.waits and before[job.id].waits]
        ran = [job for job in gone if not job.waits]
        changes = [
            *self._starts([*_fresh(state, before), *unseen], state),
            *((_us(_end_s(job, ended, state)), 0, job, -job.gpus) for job in ran),
            *self._requeues(state, before),
        ]
        changes.sort(key=lambda change: (change[0], change[1]))
        for at_us, _, job, gpus in changes:
            self._use(job, gpus, at_us, half_life_s)
        self.just_ended = [
            self._end(job, _end_s(job, ended, state), estimates) for job in ran if job.begin_s is not None
        ]
        for job in ran:
            self._finish(job, ended.get(job.id), state)
        happened = [*self._gone(gone, unseen, ended, state), *self._seen(state, before)]
        self._arrive([job for job in state.jobs if job.id not in before], estimates)
        self._forget(state, half_life_s)
        self.instant = self.instant + 1 if state.instant is None else state.instant
        self.previous = state
        self.updates += 1
        return tuple(happened)

    def _starts(self, fresh: list[Job], state: ClusterState) -> list[tuple[int, int, Job, int]]:
        """When jobs took their GPUs: moment, rank within it, job, GPUs."""
        return [
            (_us(job.begin_s if job.begin_s is not None else state.now_s), 1, job, job.gpus) for job in fresh
        ]

    def _requeues(self, state: ClusterState, before: dict[str, Job]) -> list[tuple[int, int, Job, int]]:
        back = [before[job.id] for job in state.waiting if job.id in before and not before[job.id].waits]
        for job in back:
            begin_s = job.begin_s if job.begin_s is not None else state.now_s
            self.attained_s[job.id] = self.attained_s.get(job.id, 0.0) + max(0.0, state.now_s - begin_s)
            self.queued_s[job.id] = state.now_s
        return [(_us(state.now_s), 0, job, -job.gpus) for job in back]

    def _use(self, job: Job, gpus: int, at_us: int, half_life_s: float) -> None:
        for table, name in ((self.users, job.user), (self.groups, job.group)):
            table.setdefault(name, Usage()).change(gpus, at_us - _us(self.zero_s or 0.0), half_life_s)

    def _end(self, job: Job, end_s: float, estimates: str) -> list[Any]:
        estimate_s = self.estimate_s(job, estimates)
        run_us = _us(end_s) - _us(job.begin_s or 0.0)
        release = self.in_flight.get(job.id)  # of one that began and ended since the last state
        nodes = [share.node for share in job.shares] or [
            node for node, _ in (release.nodes if release else ())
        ]
        return [
            job.group,
            nodes,
            job.gpus,
            job.nodes,
            run_us,
            None if estimate_s is None else _us(estimate_s),
        ]

    def finished_early(
        self, cluster: Cluster, numbers: Mapping[str, int], locality_penalty: float
    ) -> tuple[str | None, ...]:
        """Owners of nodes (None: nobody) of whose jobs one ended now, before it was expected to.

        Args:
            cluster: Where they ran.
            numbers: Of its nodes, by name.
            locality_penalty: As of the simulation.
        """
        early: set[str | None] = set()
        for group, names, gpus, asked, run_us, estimate_us in self.just_ended:
            nodes = [numbers[name] for name in names if name in numbers]
            factor = _slowness(cluster, nodes, gpus, asked, locality_penalty)
            if estimate_us is None or run_us < max(1, round((estimate_us / factor[0]) * factor[1])):
                early.add(group if group in cluster.owners else None)
        return tuple(sorted(early, key=str))

    def _finish(self, job: Job, ended: Ended | None, state: ClusterState) -> None:
        begin_s = job.begin_s if job.begin_s is not None else state.now_s
        run_s = ended.run_s if ended is not None and ended.run_s is not None else state.now_s - begin_s
        self.learn(job.user, job.group, job.gpus, max(0.0, run_s), self.attained_s.get(job.id, 0.0))

    def learn(self, user: str, group: str, gpus: int, run_s: float, earlier_s: float = 0.0) -> None:
        """Count a finished job, for predictions and ``gittins``.

        Args:
            user: Whose it was.
            group: Of which group.
            gpus: Its gang size.
            run_s: How long it ran in the end.
            earlier_s: How long it had run before it was requeued.
        """
        run_us = max(1, _us(run_s))
        for key in _likenesses(user, group, gpus):
            sums = self.run_sums.setdefault(key, [0, 0])
            sums[0] += run_us
            sums[1] += 1
        gpu_s = (run_us + _us(earlier_s)) * gpus // 10**6
        sums = self.gpu_time.setdefault(str(_bucket(gpu_s)), [0, 0])
        sums[0] += 1
        sums[1] += gpu_s

    def predict_s(self, user: str, group: str, gpus: int) -> float:
        """Mean run time of the finished jobs that are most alike (docs/contract/simulator.md, section 19)."""
        for key in _likenesses(user, group, gpus):
            if key in self.run_sums:
                total, count = self.run_sums[key]
                return max(1, round(float(total) / float(count))) / 1e6
        return UNKNOWN_RUN_S

    def estimate_s(self, job: Job, estimates: str) -> float | None:
        """The run time that a scheduler goes by; None if it is unknown."""
        if estimates == "history":
            return self.predictions_s.get(job.id, UNKNOWN_RUN_S)
        return job.limit_s

    def _arrive(self, fresh: Iterable[Job], estimates: str) -> None:
        for job in sorted(fresh, key=lambda job: (job.submit_s, len(job.id), job.id)):
            since_s = (_us(job.submit_s) - _us(self.arrivals_s)) / 1e6
            self.arrivals = self.arrivals * math.exp2(-(max(0.0, since_s) / 3600.0)) + 1.0
            self.arrivals_s = max(job.submit_s, self.arrivals_s)
            self.arrived[str(job.gpus)] = self.arrived.get(str(job.gpus), 0) + 1
            self.predictions_s[job.id] = self.predict_s(job.user, job.group, job.gpus)

    def _gone(
        self, gone: list[Job], unseen: list[Job], ended: dict[str, Ended], state: ClusterState
    ) -> list[Happened]:
        started = [Happened(job.id, "started", job.begin_s or state.now_s) for job in unseen]
        left = [Happened(job.id, "gone" if job.waits else "ended", _end_s(job, ended, state)) for job in gone]
        return [*started, *left]

    def _seen(self, state: ClusterState, before: dict[str, Job]) -> list[Happened]:
        happened = []
        for job in state.jobs:
            was = before.get(job.id)
            if was is None:
                happened.append(Happened(job.id, "submitted", job.submit_s))
            if not job.waits and (was is None or was.waits):
                self.in_flight.pop(job.id, None)
                at_s = job.begin_s if job.begin_s is not None else state.now_s
                happened.append(Happened(job.id, "started", at_s, tuple(share.node for share in job.shares)))
            elif job.waits and was is not None and not was.waits:
                happened.append(Happened(job.id, "requeued", state.now_s))
        return happened

    def _forget(self, state: ClusterState, half_life_s: float) -> None:
        """What no job that is there needs any more."""
        for table in (self.predictions_s, self.attained_s, self.queued_s, self.in_flight):
            for job in [job for job in table if job not in state.by_id]:
                del table[job]
        now_us = _us(state.now_s) - _us(self.zero_s or 0.0)
        for usages in (self.users, self.groups):
            idle = [name for name, usage in usages.items() if usage.gpus == 0]
            for name in idle:
                if usages[name].at(now_us, half_life_s) < _NEGLIGIBLE_GPU_S:
                    del usages[name]
        self.stops = [stop for stop in self.stops if stop[1] > state.now_s - 86_400.0]


def _slowness(
    cluster: Cluster, nodes: Sequence[int], gpus: int, asked: int, locality_penalty: float
) -> tuple[float, float]:
    """Speed, and the factor of scattered nodes (docs/contract/simulator.md, section 6)."""
    if not gpus or not nodes:
        return 1.0, 1.0
    columns = cluster.node_columns()
    speed = min(cluster.gpu_types[int(columns["type"][node])].speed for node in nodes)
    fewest = asked or -(-gpus // max(1, *(int(columns["gpus"][node]) for node in nodes)))
    return speed, 1.0 + locality_penalty * ((len(nodes) - fewest) / fewest)


def _as_it_ended(job: Job, ended: Ended | None) -> Job:
    """A job as it was last: one that was seen waiting may have run since."""
    if not job.waits or ended is None or ended.run_s is None:
        return job
    begin_s = ended.begin_s if ended.begin_s is not None else ended.end_s - ended.run_s
    return replace(job, phase="running", begin_s=begin_s)


def _fresh(state: ClusterState, before: dict[str, Job]) -> list[Job]:
    return [job for job in state.running if job.id not in before or before[job.id].waits]


def _end_s(job: Job, ended: dict[str, Ended], state: ClusterState) -> float:
    return ended[job.id].end_s if job.id in ended else state.now_s


def _us(seconds: float) -> int:
    return round(seconds * 1e6)


def _likenesses(user: str, group: str, gpus: int) -> tuple[str, ...]:
    """Keys of the sets of finished jobs that a job is like, the nearest first."""
    keys = (["ugn", user, group, gpus], ["un", user, gpus], ["u", user], ["n", gpus], ["all"])
    return tuple(json.dumps(key) for key in keys)


def _bucket(gpu_s: int) -> int:
    """Of finished jobs, by whole GPU-seconds (docs/contract/simulator.md, section 8, gittins)."""
    if gpu_s < 4:
        return gpu_s
    power = gpu_s.bit_length() - 1
    return 4 * (power - 1) + (gpu_s >> (power - 2)) % 4
