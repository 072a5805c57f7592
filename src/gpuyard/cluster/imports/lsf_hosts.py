"""LSF's lists of hosts: ``lshosts -w``, ``bhosts -w``, and both with ``-gpu``."""

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from gpuyard.cluster.imports.listed import ListedNode
from gpuyard.errors import InputError

COMMANDS = "lshosts -w, bhosts -w, lshosts -gpu, bhosts -gpu"

_HOST = "host_name"
_MEMORY = re.compile(r"(\d{1,12}(?:\.\d{1,6})?)([KMGTP]?)B?", re.IGNORECASE)
_MIB = {"": 1.0, "K": 1 / 1024, "M": 1.0, "G": 1024.0, "T": 1024.0**2, "P": 1024.0**3}


def is_host_list(text: str) -> bool:
    """Whether a text is one of LSF's lists of hosts."""
    headings = _headings(text)
    return _HOST in headings and bool({"ncpus", "max", "gpu_id", "id"} & set(headings))


def _headings(text: str) -> list[str]:
    return text.split("\n", 1)[0].lower().split()


@dataclass
class _Host:
    """What all lists together say of a host."""

    cpus: int = 0
    slots: int = 0
    memory_mib: int = 0
    state: str = ""


def listed_hosts(texts: Mapping[str, str]) -> list[ListedNode]:
    """The hosts of one or several lists, which each say something else of them.

    CPUs are those of lshosts, or else the job slots of bhosts.

    Args:
        texts: By file.

    Raises:
        InputError: for a line that has too few columns, with file and line.
    """
    hosts: dict[str, _Host] = {}
    gpus: dict[str, Counter[str]] = {}
    for source, text in texts.items():
        headings = _headings(text)
        if {"gpu_id", "id"} & set(headings):
            for name, row in _rows(text, headings, source, continued=True):
                model = row.get("gpu_model", row.get("model", "gpu"))
                gpus.setdefault(name, Counter())["gpu" if model == "-" else model] += 1
            continue
        for name, row in _rows(text, headings, source, continued=False):
            host = hosts.setdefault(name, _Host())
            host.cpus = _count(row.get("ncpus")) or host.cpus
            host.slots = _count(row.get("max")) or host.slots
            host.memory_mib = _memory_mib(row.get("maxmem", "")) or host.memory_mib
            host.state = row.get("status", host.state)
    return [
        ListedNode(
            name, tuple(gpus.get(name, {}).items()), host.cpus or host.slots, host.memory_mib, host.state
        )
        for name, host in ({**{name: _Host() for name in gpus}, **hosts}).items()
    ]


def _rows(
    text: str, headings: list[str], source: str, *, continued: bool
) -> Iterable[tuple[str, dict[str, str]]]:
    """Hosts and their columns; a list of GPUs names a host in the line of its first GPU only."""
    name = ""
    for number, line in enumerate(text.splitlines()[1:], start=2):
        words = line.split()
        if not words:
            continue
        if not continued or not line[0].isspace():
            name, words = words[0], words[1:]
        if not name or (len(words) < len(headings) - 1 and not _is_unknown(words)):
            if continued and name and len(words) < 2:
                continue  # a host without GPUs
            raise InputError(
                f"{source}, line {number}: has {len(words) + 1} columns, expected {len(headings)} as in line "
                "1; print it with -w"
            )
        yield name, dict(zip(headings[1:], words, strict=False))


def _is_unknown(words: list[str]) -> bool:
    """Whether LSF knows nothing of a host: it leaves columns out then."""
    return "UNKNOWN" in words or "-" in words


def _count(text: str | None) -> int:
    return int(text) if text and re.fullmatch(r"\d{1,9}", text) else 0


def _memory_mib(text: str) -> int:
    """``15.5G``, ``8192M`` or ``-``."""
    found = _MEMORY.fullmatch(text)
    return round(float(found[1]) * _MIB[found[2].upper()]) if found else 0
