"""Hosts and queues: bhosts and bqueues as JSON, lshosts and the lists of GPUs as tables."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from gpuyard.cluster.imports.listed import ListedNode
from gpuyard.cluster.imports.lsf_hosts import listed_hosts
from gpuyard.errors import InputError
from gpuyard.serve.adapter import AdapterError
from gpuyard.serve.lsf.commands import Commands
from gpuyard.serve.lsf.values import Record, seconds, text, whole
from gpuyard.serve.state import Node, Partition

HOST_FIELDS = "host_name status max njobs run ssusp ususp rsv"
QUEUE_FIELDS = "queue_name priority status hosts"
_OPEN = ("ok", "closed_full")
"""A full host takes jobs as soon as one ends: what is free is counted from jobs."""


@dataclass(frozen=True)
class Site:
    """What changes rarely.

    Attributes:
        hosts: CPUs, memory and GPUs of each host.
        partitions: Queues, as far as their hosts are known.
        unclear: Queues whose hosts are not, with the reason.
        notes: For people.
    """

    hosts: Mapping[str, ListedNode] = field(default_factory=dict)
    partitions: tuple[Partition, ...] = ()
    unclear: Mapping[str, str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()


def read_site(commands: Commands) -> Site:
    """Ask lshosts and bqueues.

    Raises:
        AdapterError: if they do not answer, or a table cannot be read.
    """
    texts = {"lshosts -w": commands.text("lshosts", "-w"), "lshosts -gpu": _gpu_table(commands)}
    if "HOST_NAME" not in texts["lshosts -w"].split("\n", 1)[0]:
        raise AdapterError("lshosts -w printed no table of hosts", "parse")
    try:
        listed = listed_hosts({name: table for name, table in texts.items() if table.strip()})
    except InputError as error:
        raise AdapterError(str(error), "parse") from None
    hosts = {host.name: host for host in listed}
    partitions, unclear = _queues(commands.records("bqueues", "-o", QUEUE_FIELDS, "-json"), set(hosts))
    notes = [f"queue {name}: {why}; its jobs are left to LSF" for name, why in unclear.items()]
    return Site(hosts, partitions, unclear, tuple(notes))


def _gpu_table(commands: Commands) -> str:
    """Empty where there are no GPUs, which LSF says in plain text."""
    said = commands.text("lshosts", "-gpu")
    return said if said.startswith("HOST_NAME") else ""


def _queues(records: list[dict[str, str]], hosts: set[str]) -> tuple[tuple[Partition, ...], dict[str, str]]:
    found, unclear = [], {}
    for record in records:
        name = text(record, "QUEUE_NAME")
        if not name:
            raise AdapterError("bqueues printed a queue without a name", "parse")
        known = _queue_hosts(text(record, "HOSTS"), hosts)
        if known is None:
            unclear[name] = f"hosts {text(record, 'HOSTS') or 'not listed'!r} are no list of hosts"
            continue
        opened = text(record, "STATUS").lower() in ("open:active", "")
        found.append(Partition(name, known, tier=whole(record, "PRIORITY") or 1, open=opened))
    return tuple(found), unclear


def _queue_hosts(stated: str, hosts: set[str]) -> tuple[str, ...] | None:
    """Hosts of a queue; None for groups, preferences and whatever else LSF may list there."""
    if stated.lower() in ("all", "all hosts used by the lsf system", "all hosts"):
        return tuple(sorted(hosts))
    names = stated.split()
    return tuple(names) if names and hosts.issuperset(names) else None


def read_nodes(records: list[dict[str, str]], used: Mapping[str, int], site: Site) -> list[Node]:
    """Nodes of ``bhosts -o … -json``.

    Args:
        records: Of the answer.
        used: GPUs in use by host, as ``bhosts -gpu`` has it.
        site: What changes rarely.

    Raises:
        AdapterError: for a record without a name or a status.
    """
    return [_node(record, used, site) for record in records]


def _node(record: Record, used: Mapping[str, int], site: Site) -> Node:
    name, status = text(record, "HOST_NAME"), text(record, "STATUS")
    if not name or not status:
        raise AdapterError("bhosts printed a host without a name or a status", "parse")
    host = site.hosts.get(name)
    types = dict(host.gpus) if host is not None else {}
    closed = "" if status.lower() in _OPEN else status
    if host is None:
        closed = closed or "lshosts does not list it"
    if len(types) > 1:
        closed = closed or "GPUs of several types"
    slots = whole(record, "MAX")
    cpus = slots if slots is not None else (host.cpus if host is not None else 0)
    return Node(
        name,
        gpus=sum(types.values()),
        gpu_type=next(iter(types), "gpu"),
        cpus=max(1, cpus),
        memory_mib=max(1, host.memory_mib if host is not None else 0),
        closed=closed,
        gpus_used=used.get(name),
        cpus_used=whole(record, "NJOBS"),
    )


def gpus_in_use(table: str) -> dict[str, int]:
    """GPUs by host on which jobs are, as ``bhosts -gpu`` lists them; its columns differ by version.

    Raises:
        AdapterError: for a table without the columns that are needed.
    """
    lines = table.splitlines()
    headings = lines[0].upper().split() if lines else []
    if not headings or headings[0] != "HOST_NAME":
        return {}
    if "NJOBS" not in headings:
        raise AdapterError("bhosts -gpu printed a table without NJOBS", "parse")
    found: dict[str, int] = {}
    name = ""
    for line in lines[1:]:
        words = line.split()
        if line[:1].strip():
            name, words = words[0], words[1:]
        if not name or len(words) != len(headings) - 1:
            continue  # a host of which LSF knows nothing at the moment: its jobs are counted all the same
        jobs = words[headings.index("NJOBS") - 1]
        if not jobs.isdecimal():
            continue
        found[name] = found.get(name, 0) + (int(jobs) > 0)
    return found


def limit_seconds(record: Record) -> float | None:
    """A run limit, which LSF states in minutes; None if there is none."""
    return seconds(text(record, "RUNTIMELIMIT"), unit_s=60.0)
