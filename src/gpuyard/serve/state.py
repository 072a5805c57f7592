"""What an adapter saw of a live cluster at one moment: frozen, versioned, and the same for every scheduler.

Times are seconds on the cluster's own clock; for real schedulers that is Unix time.
"""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from typing import Annotated, Any, Literal, Self

from annotated_types import Ge, Le, MaxLen, MinLen

from gpuyard.errors import InputError

STATE_VERSION = 1

Phase = Literal["waiting", "starting", "running", "ending"]
Holder = Literal["", "agent", "other"]

# What states that come from elsewhere may say; adapters of our own keep to it by what they read.
Name = Annotated[str, MinLen(1), MaxLen(300)]
Words = Annotated[str, MaxLen(1000)]
Count = Annotated[int, Ge(0), Le(1_000_000)]
Memory = Annotated[int, Ge(0), Le(1_000_000_000_000)]
Moment = Annotated[float, Ge(-5e7), Le(2.2e9)]
"""Seconds on the cluster's clock, to the year 2039; the core takes no two that are further apart."""
Seconds = Annotated[float, Ge(0), Le(1e10)]
Weight = Annotated[float, Ge(-1e15), Le(1e15)]
_AS_SENT = {"extra": "forbid", "allow_inf_nan": False, "strict": True}
"""How pydantic reads these, where they come from elsewhere."""


@dataclass(frozen=True, slots=True)
class Share:
    """What a job has on one node."""

    __pydantic_config__ = _AS_SENT

    node: Name
    gpus: Count = 0
    cpus: Count = 0
    memory_mib: Memory = 0


@dataclass(frozen=True, slots=True)
class Job:
    """A job that waits or holds nodes.

    Attributes:
        id: As the scheduler calls it, such as ``123`` or ``123_7``.
        phase: ``waiting``, or what it does on its nodes. Jobs that ended are in none.
        submit_s: When it was submitted.
        user: Who submitted it.
        group: Account or project.
        partition: Or queue. Several, joined by commas, if any of them will do.
        qos: Quality of service; None if it has none.
        gpus: In all.
        nodes: How many its user asked for; 0: as few as possible.
        cpus: In all.
        memory_mib: In all, MiB.
        gpu_types: Types that it may use; None: any.
        limit_s: Longest run time that its user requested; None: unknown.
        exclusive: Whether it shares its nodes with nobody.
        priority: As the scheduler has it now.
        held: Who keeps it from starting: nobody, the agent, or somebody else (its user, an administrator).
        left: Why the agent leaves it to the cluster's own scheduler, in a few words; empty if it does not.
        mark: The decision that the agent last wrote into its comment; empty if none.
        begin_s: When it started; None while it waits.
        shares: What it has on each node.
        requeues: How often it was requeued.
        can_requeue: Whether it may be stopped and queued again.
        row: Key of random draws; None: one that follows from ``id``.
        fair_factor: Of its user, as the scheduler last calculated it, 0 to 1.
        site_priority: What order ``priority`` goes by: larger is more important.
        deadline_s: When it should have ended; None: no deadline.
    """

    __pydantic_config__ = _AS_SENT

    id: Name
    phase: Phase
    submit_s: Moment
    user: Words = ""
    group: Words = ""
    partition: Words = ""
    qos: Words | None = None
    gpus: Count = 0
    nodes: Count = 0
    cpus: Count = 0
    memory_mib: Memory = 0
    gpu_types: tuple[Name, ...] | None = None
    limit_s: Seconds | None = None
    exclusive: bool = False
    priority: Weight = 0.0
    held: Holder = ""
    left: Words = ""
    mark: Words = ""
    begin_s: Moment | None = None
    shares: tuple[Share, ...] = ()
    requeues: Count = 0
    can_requeue: bool = True
    row: Annotated[int, Ge(0), Le(2**31 - 1)] | None = None
    fair_factor: Annotated[float, Ge(0), Le(1)] = 1.0
    site_priority: Weight = 1.0
    deadline_s: Moment | None = None

    @property
    def waits(self) -> bool:
        """Whether it holds no nodes yet."""
        return self.phase == "waiting"


@dataclass(frozen=True, slots=True)
class Node:
    """A node.

    Attributes:
        name: As the scheduler calls it.
        gpus: GPUs that it has.
        gpu_type: Their type; ``gpu`` if the scheduler names none.
        cpus: CPUs that it has.
        memory_mib: Memory that it has, MiB.
        closed: Why no job may start there now, in a few words (down, drained, reserved, planned for another
            job); empty if jobs may.
        gpus_used: GPUs in use as the node's own record has it; None: unknown. It may lag behind the jobs.
        cpus_used: The same of CPUs.
        memory_used_mib: The same of memory, MiB.
    """

    __pydantic_config__ = _AS_SENT

    name: Name
    gpus: Count = 0
    gpu_type: Name = "gpu"
    cpus: Count = 1
    memory_mib: Memory = 1
    closed: Words = ""
    gpus_used: Count | None = None
    cpus_used: Count | None = None
    memory_used_mib: Memory | None = None


@dataclass(frozen=True, slots=True)
class Partition:
    """Nodes that jobs ask for by one name.

    Attributes:
        name: Its name.
        nodes: Names of its nodes.
        default: Whether jobs that name none are its.
        tier: Jobs of higher tiers come first.
        open: Whether jobs of it may start now.
        max_time_s: Longest limit of a job; None: none.
        max_nodes: Most nodes of a job; None: no limit.
    """

    __pydantic_config__ = _AS_SENT

    name: Name
    nodes: tuple[Name, ...] = ()
    default: bool = False
    tier: Count = 1
    open: bool = True
    max_time_s: Seconds | None = None
    max_nodes: Count | None = None


@dataclass(frozen=True, slots=True)
class Ended:
    """A job that ended since the last observation.

    Attributes:
        id: As the scheduler calls it.
        end_s: When.
        run_s: How long it ran; None if it never started.
        begin_s: When it started; None if that is not known.
        timeout: Whether its limit ended it.
    """

    __pydantic_config__ = _AS_SENT

    id: Name
    end_s: Moment
    run_s: Seconds | None
    begin_s: Moment | None = None
    timeout: bool = False


@dataclass(frozen=True)
class ClusterState:
    """A cluster at one moment.

    Attributes:
        source: Who said so, such as ``slurm 22.05.8``.
        now_s: The moment, on the cluster's clock.
        epoch_s: What a calendar clock (seconds since 1970) showed at time 0 of that clock.
        jobs: Jobs that wait or hold nodes, each id once.
        nodes: All nodes, each name once.
        partitions: All partitions; empty if there are none.
        ended: Jobs that are known to have ended since the last observation. Jobs that are merely gone are
            taken to have ended now.
        notes: What the adapter could not read or left out, for people.
        backfill_due: Whether a policy that backfills at intervals is to do so now.
        nodes_changed: Whether a node failed or came back since the last observation.
        instant: Number of the decision point, where the source counts them; None: the agent counts.
    """

    __pydantic_config__ = _AS_SENT

    source: Words
    now_s: Moment
    jobs: Annotated[tuple[Job, ...], MaxLen(100_000)] = ()
    nodes: Annotated[tuple[Node, ...], MinLen(1), MaxLen(20_000)] = ()
    partitions: Annotated[tuple[Partition, ...], MaxLen(1000)] = ()
    ended: tuple[Ended, ...] = ()
    epoch_s: Moment = 0.0
    notes: tuple[Words, ...] = ()
    backfill_due: bool = True
    nodes_changed: bool = False
    instant: Annotated[int, Ge(0), Le(2**31 - 1)] | None = None
    version: Annotated[int, Ge(STATE_VERSION), Le(STATE_VERSION)] = field(default=STATE_VERSION)

    @cached_property
    def by_id(self) -> dict[str, Job]:
        """Jobs by id."""
        return {job.id: job for job in self.jobs}

    @cached_property
    def node_by_name(self) -> dict[str, Node]:
        """Nodes by name."""
        return {node.name: node for node in self.nodes}

    @property
    def waiting(self) -> list[Job]:
        """Jobs that hold no nodes."""
        return [job for job in self.jobs if job.waits]

    @property
    def running(self) -> list[Job]:
        """Jobs that hold nodes."""
        return [job for job in self.jobs if not job.waits]

    @cached_property
    def json_text(self) -> str:
        """All of it; ``from_json`` reads it back, to the last bit."""
        texts = []
        for entry in fields(self):
            value = getattr(self, entry.name)
            text = f"[{','.join(map(_row_text, value))}]" if entry.name in _ROWS else _text(value)
            texts.append(f'"{entry.name}":{text}')
        return "{" + ",".join(texts) + "}"

    @cached_property
    def hash(self) -> str:
        """Of the text: the same state has the same hash anywhere."""
        return hashlib.sha256(self.json_text.encode()).hexdigest()

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Read what ``json_text`` wrote.

        Raises:
            InputError: if it is something else, or of another version.
        """
        try:
            values = json.loads(text)
            version = values["version"]
        except (ValueError, KeyError, TypeError):
            raise InputError("this is no state of a cluster: expected the JSON that gpuyard writes") from None
        if version != STATE_VERSION:
            raise InputError(
                f"a state of version {version}, but this gpuyard reads version {STATE_VERSION}; use the "
                "gpuyard that wrote it"
            )
        try:
            return cls(**(values | {name: _read(kind, values[name]) for name, kind in _TABLES.items()}))
        except (KeyError, TypeError, ValueError) as error:
            raise InputError(f"a state of a cluster that cannot be read: {error}") from None

    def check(self) -> None:
        """Raise an InputError if jobs, nodes or partitions appear twice."""
        for what, rows, distinct in (
            ("job", self.jobs, self.by_id),
            ("node", self.nodes, self.node_by_name),
            ("partition", self.partitions, {partition.name for partition in self.partitions}),
        ):
            if len(distinct) < len(rows):
                names = [row.id if isinstance(row, Job) else row.name for row in rows]
                twice = next(name for name in names if names.count(name) > 1)
                raise InputError(f"{self.source}: {what} {twice!r} is listed twice")

    def at(self, now_s: float) -> "ClusterState":
        """The same at another moment."""
        return replace(self, now_s=now_s)


_DEFAULTS: dict[type, dict[str, Any]] = {
    kind: {entry.name: entry.default for entry in fields(kind)}
    for kind in (Job, Node, Partition, Ended, Share)
}
_TABLES: dict[str, Any] = {"jobs": Job, "nodes": Node, "partitions": Partition, "ended": Ended, "notes": str}


_ROWS = ("jobs", "nodes", "partitions")
_texts: dict[tuple[type, str], tuple[Any, str]] = {}
"""Rows and their texts, by kind and name: most rows are the same objects from round to round."""
_MOST_TEXTS = 300_000


def _row_text(row: Any) -> str:
    key = (type(row), row.id if isinstance(row, Job) else row.name)
    known = _texts.get(key)
    if known is not None and known[0] is row:
        return known[1]
    if len(_texts) > _MOST_TEXTS:
        _texts.clear()
    text = _text(row)
    _texts[key] = (row, text)
    return text


def _text(value: Any) -> str:
    return json.dumps(_plain(value), separators=(",", ":"), ensure_ascii=True, allow_nan=False)


def _plain(value: Any) -> Any:
    """As JSON has it; what rows have by default is left out."""
    defaults = _DEFAULTS.get(type(value))
    if defaults is not None:
        found = ((name, getattr(value, name), default) for name, default in defaults.items())
        return {name: _plain(one) for name, one, default in found if one != default}
    if isinstance(value, tuple):
        return [_plain(one) for one in value]
    return value


def _read(kind: Any, rows: list[Any]) -> tuple[Any, ...]:
    if kind is str:
        return tuple(rows)
    return tuple(kind(**_tuples(row)) for row in rows)


def _tuples(row: Mapping[str, Any]) -> dict[str, Any]:
    made = dict(row)
    if "shares" in made:
        made["shares"] = tuple(Share(**share) for share in made["shares"])
    for name in ("gpu_types", "nodes"):
        if isinstance(made.get(name), list):
            made[name] = tuple(made[name])
    return made
