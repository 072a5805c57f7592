"""What a waiting job asks for, if the agent can know that from its requirement; otherwise why not."""

import re
from dataclasses import dataclass

from gpuyard.serve.lsf.values import Record, mebibytes, text

_SECTION = re.compile(r"(\w+)\[([^\[\]]*)\]")
_GPUS = re.compile(r"(?:ngpus_physical|ngpus)=(\d+(?:\.\d+)?)(/task|/host)?")
_MEMORY = re.compile(r"mem=([\d.]+\s*[KMGTP]?B?)", re.IGNORECASE)
_IGNORED_SELECT = {"", "type == any", "type == local", "type==any", "type==local", "ngpus>0", "ngpus > 0"}
_PLAIN_SECTIONS = ("select", "order", "rusage", "span")
_PLAIN_USAGE = re.compile(
    r"(?:ngpus_physical|ngpus)=\d+(?:\.\d+)?(?:/task|/host)?|mem=[\d.]+\s*[KMGTP]?B?(?:/host)?", re.IGNORECASE
)


class UnclearError(Exception):
    """A job that cannot be represented; the text says why in a few words."""


@dataclass(frozen=True)
class Asked:
    """What a job asks for, in all.

    Attributes:
        gpus: GPUs.
        nodes: Hosts.
        slots: Job slots, which count as CPUs.
        memory_mib: Memory that it reserves, MiB.
    """

    gpus: int = 0
    nodes: int = 1
    slots: int = 1
    memory_mib: int = 0


def asked(record: Record) -> Asked:
    """What a job asks for.

    Raises:
        UnclearError: if that cannot be represented.
    """
    slots = _slots(text(record, "NREQ_SLOT"))
    requirement = text(record, "EFFECTIVE_RESREQ") or text(record, "COMBINED_RESREQ")
    if "{" in requirement or "||" in requirement:
        raise UnclearError("alternative or compound requirements")
    sections = _sections(requirement)
    _check_select(sections.get("select", ""))
    nodes = _hosts(sections.get("span", ""), slots)
    usage = sections.get("rusage", "")
    gpus = _gpus(usage, slots, nodes)
    return Asked(gpus, nodes, slots, _memory_mib(usage) * nodes)


def _slots(value: str) -> int:
    if not value:
        return 1
    if not value.isdecimal() or int(value) < 1:
        raise UnclearError("a range of slots")
    return int(value)


def _sections(requirement: str) -> dict[str, str]:
    rest = _SECTION.sub("", requirement).strip()
    if rest:
        raise UnclearError("a requirement that is not understood")
    found: dict[str, str] = {}
    for name, inside in _SECTION.findall(requirement):
        if name not in _PLAIN_SECTIONS:
            raise UnclearError(f"{name} requirements")
        found[name] = ", ".join(one for one in (found.get(name, ""), inside.strip()) if one)
    return found


def _check_select(inside: str) -> None:
    for part in re.split(r"&&|,", inside):
        if part.strip().strip("()").strip() not in _IGNORED_SELECT:
            raise UnclearError("selects hosts by resources")


def _hosts(span: str, slots: int) -> int:
    if span == "hosts=1" or slots == 1:
        return 1
    found = re.fullmatch(r"ptile=(\d+)", span)
    if not found or int(found[1]) < 1:
        raise UnclearError("slots on any number of hosts")
    if slots % int(found[1]):
        raise UnclearError("unlike parts on its hosts")
    return slots // int(found[1])


def _gpus(usage: str, slots: int, nodes: int) -> int:
    for part in usage.split(":" if "," not in usage else ","):
        if part.strip() and not _PLAIN_USAGE.fullmatch(part.strip()):
            raise UnclearError(f"uses {part.strip().partition('=')[0]}")
    found = _GPUS.findall(usage)
    if len(found) > 1:
        raise UnclearError("several requirements of GPUs")
    if not found:
        return 0
    each, per = float(found[0][0]), found[0][1]
    if not each.is_integer():
        raise UnclearError("parts of GPUs")
    return int(each) * (slots if per == "/task" else nodes)


def _memory_mib(usage: str) -> int:
    found = _MEMORY.findall(usage)
    if len(found) > 1:
        raise UnclearError("several requirements of memory")
    size = mebibytes(found[0]) if found else 0
    if size is None:
        raise UnclearError("memory that cannot be read")
    return size
