"""Records of PBS's and Torque's accounting logs: ``MM/DD/YYYY HH:MM:SS;TYPE;ID;key=value key=value``."""

import re
from collections.abc import Mapping
from dataclasses import dataclass

RECORD = re.compile(r"\d\d/\d\d/\d{4} \d\d:\d\d:\d\d;([A-Za-z]{1,2});([^;]*);(.*)", re.DOTALL)
"""Type, id and message."""

_PAIR = re.compile(r'(?:^|\s)([A-Za-z_][\w.]*)=("[^"]*"|\S*)')
_CLOCK = re.compile(r"(?:(\d{1,6}):)?(\d{1,6}):(\d{1,6})")
_SIZE = re.compile(r"(\d{1,18})(b|kb|mb|gb|tb|pb|w|kw|mw|gw|tw)?", re.IGNORECASE)
_BYTES = {"": 1, "k": 2**10, "m": 2**20, "g": 2**30, "t": 2**40, "p": 2**50}
_WORD_BYTES = 8
_CPUS_OF_A_VNODE = re.compile(r":ncpus=(\d{1,9})\b")
_GPUS_OF_A_VNODE = re.compile(r":(?:ngpus|naccelerators)=(\d{1,9})\b")
_MEMORY_OF_A_VNODE = re.compile(r":mem=(\w{1,24})\b")
_MAX_CHUNKS = 1_000_000

Message = Mapping[str, str]


@dataclass(frozen=True)
class Allocation:
    """What a job had.

    Attributes:
        gpus: GPUs; 0 if the record names none.
        cpus: CPUs.
        memory_mib: Memory that was asked for, MiB.
        hosts: Distinct hosts in their order, empty if the record names none.
        asked_nodes: Nodes that the user asked for; None if that is left to the scheduler.
    """

    gpus: int
    cpus: int
    memory_mib: int
    hosts: tuple[str, ...]
    asked_nodes: int | None


def pairs(message: str) -> dict[str, str]:
    """The keys and values of a record, without the quotes around values."""
    return {found[1]: found[2].strip('"') for found in _PAIR.finditer(message)}


def seconds(text: str) -> float | None:
    """A length of time: ``HH:MM:SS``, ``MM:SS`` or seconds; None for anything else."""
    if text.isdecimal() and len(text) < 13:
        return float(text)
    found = _CLOCK.fullmatch(text)
    if not found:
        return None
    hours, minutes, rest = (int(part or 0) for part in found.groups())
    return float((hours * 60 + minutes) * 60 + rest)


def mebibytes(text: str) -> int:
    """A size such as ``16gb`` or a bare number of bytes, rounded up to MiB; 0 if it is no size."""
    found = _SIZE.fullmatch(text)
    if not found:
        return 0
    unit = (found[2] or "b").lower()
    size = int(found[1]) * _BYTES[unit[:-1]] * (_WORD_BYTES if unit.endswith("w") else 1)
    return -(-size // 2**20)


def allocation(message: Message) -> Allocation:
    """What a job had, as far as the record says."""
    slots, hosts = _execution_hosts(message.get("exec_host", ""))
    vnodes = message.get("exec_vnode", "")
    chunks = _chunks(message)
    cpus = (
        _sum(_CPUS_OF_A_VNODE, vnodes)
        or _count(message, "Resource_List.ncpus")
        or _count(message, "total_execution_slots")
        or slots
        or chunks["cpus"]
    )
    gpus, memory_mib = _gpus(message, vnodes, chunks["gpus"]), _memory_mib(message, vnodes, cpus)
    return Allocation(gpus, cpus, memory_mib, hosts, _asked_nodes(message, chunks["nodes"]))


def _asked_nodes(message: Message, chunks: int) -> int | None:
    """Torque's ``nodes`` counts nodes; PBS's chunks are on nodes of their own if they are to be scattered."""
    if "Resource_List.select" not in message:
        return chunks or None
    place = message.get("Resource_List.place", "").split(":")
    if "pack" in place:
        return 1
    return chunks if {"scatter", "vscatter"} & set(place) else None


def _gpus(message: Message, vnodes: str, asked: int) -> int:
    """First what the job got, then what it asked for."""
    got = message.get("exec_gpus", "")
    return (
        _sum(_GPUS_OF_A_VNODE, vnodes)
        or len([entry for entry in got.split("+") if entry])
        or _count(message, "Resource_List.ngpus")
        or _count(message, "Resource_List.gpus")
        or _count(message, "Resource_List.naccelerators")
        or asked
    )


def _memory_mib(message: Message, vnodes: str, cpus: int) -> int:
    of_vnodes = sum(mebibytes(size) for size in _MEMORY_OF_A_VNODE.findall(vnodes))
    whole = of_vnodes or mebibytes(message.get("Resource_List.mem", ""))
    return whole or mebibytes(message.get("Resource_List.pmem", "")) * max(cpus, 1)


def _count(message: Message, key: str) -> int:
    text = message.get(key, "")
    return int(text) if text.isdecimal() and len(text) < 10 else 0


def _sum(pattern: re.Pattern[str], text: str) -> int:
    return sum(map(int, pattern.findall(text)))


def _execution_hosts(text: str) -> tuple[int, tuple[str, ...]]:
    """Slots and hosts of ``a/0*8+b/0*8`` (PBS), ``a/0-7+b/0,2-3`` or ``a/0+a/1`` (Torque)."""
    slots = 0
    hosts: dict[str, None] = {}
    for entry in filter(None, text.split("+")):
        host, _, places = entry.partition("/")
        hosts[host] = None
        slots += _slots(places)
    return slots, tuple(hosts)


def _slots(places: str) -> int:
    _, star, times = places.partition("*")
    if star:
        return int(times) if times.isdecimal() and len(times) < 10 else 1
    count = 0
    for part in places.split(","):
        found = re.fullmatch(r"(\d{1,9})-(\d{1,9})", part)
        count += max(int(found[2]) - int(found[1]) + 1, 0) if found else 1
    return count


def _chunks(message: Message) -> dict[str, int]:
    """CPUs and GPUs of a request ``2:ncpus=8:ngpus=2+1:ncpus=4`` (PBS) or ``2:ppn=8:gpus=2`` (Torque)."""
    request = message.get("Resource_List.select") or message.get("Resource_List.nodes", "")
    cpus = gpus = nodes = 0
    for chunk in request.split("+"):
        first, *rest = chunk.split(":")
        if first.isdecimal():
            number = min(int(first[:10]), _MAX_CHUNKS)
        else:
            number, rest = 1, [first, *rest]  # a host by its name, or a resource of one chunk
        values = dict(part.partition("=")[::2] for part in rest)
        nodes += number
        cpus += number * (_count(values, "ncpus") or _count(values, "ppn") or 1)
        gpus += number * (_count(values, "ngpus") or _count(values, "gpus"))
    return (
        {"cpus": cpus, "gpus": gpus, "nodes": nodes}
        if request
        else dict.fromkeys(("cpus", "gpus", "nodes"), 0)
    )
