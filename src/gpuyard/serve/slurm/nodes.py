"""Nodes as squeue's companions list them, and why some take no jobs."""

import re
from collections import Counter
from collections.abc import Mapping, Sequence

from gpuyard.cluster.imports.slurm_units import gpus_of
from gpuyard.serve.adapter import AdapterError
from gpuyard.serve.slurm.values import Record, number, text, whole, words
from gpuyard.serve.state import Job, Node

_OPEN = {"IDLE", "MIXED", "ALLOCATED"}
_HARMLESS = {"COMPLETING", "CLOUD", "DYNAMIC_FUTURE", "DYNAMIC_NORM", "POWERED_UP", "NONE"}
_WORDS = {
    "PLANNED": "planned for another job",
    "DRAIN": "drained",
    "DOWN": "down",
    "FAIL": "failing",
    "MAINTENANCE": "under maintenance",
    "MAINT": "under maintenance",
    "RESERVED": "reserved",
    "POWERED_DOWN": "powered down",
    "NOT_RESPONDING": "does not respond",
}
_MIG = re.compile(r"\d+g\.\d+gb", re.IGNORECASE)
_SLICES = ("shard", "mps")


def read_nodes(records: Sequence[Record], reserved: Mapping[str, str]) -> list[Node]:
    """Nodes of ``sinfo --json`` (22.05) or ``scontrol show nodes --json``.

    Args:
        records: Of the answer.
        reserved: Names of active reservations by node.

    Raises:
        AdapterError: for one without a name or CPUs.
    """
    return [_node(record, reserved) for record in records]


def _node(record: Record, reserved: Mapping[str, str]) -> Node:
    name, cpus = text(record, "name"), whole(record, "effective_cpus") or whole(record, "cpus")
    if not name or not cpus:
        raise AdapterError(f"a node without a name or CPUs: {name or 'no name'}", "parse")
    gres = text(record, "gres")
    kinds = Counter[str]()
    for kind, count in gpus_of(gres):
        kinds[kind] += count
    memory = whole(record, "real_memory") - whole(record, "specialized_memory")
    return Node(
        name,
        gpus=kinds.total(),
        gpu_type=next(iter(kinds), "gpu"),
        cpus=cpus,
        memory_mib=max(1, memory),
        closed=_closed_by_state(record) or _closed_by_gres(gres, kinds) or _reserved(name, reserved),
        gpus_used=sum(count for _, count in gpus_of(text(record, "gres_used"))),
        cpus_used=_known(record, "alloc_cpus"),
        memory_used_mib=_known(record, "alloc_memory"),
    )


def _known(record: Record, name: str) -> int | None:
    return None if number(record, name) is None else whole(record, name)


def _closed_by_state(record: Record) -> str:
    states = words(record, "state", "state_flags")
    if not states:
        return "of unknown state"
    bad = [word for word in states if word not in _OPEN and word not in _HARMLESS]
    if bad:
        return ", ".join(_WORDS.get(word, word.lower().replace("_", " ")) for word in bad)
    return "" if _OPEN & set(states) else f"state {states[0].lower()}"


def _closed_by_gres(gres: str, kinds: Mapping[str, int]) -> str:
    names = [part.strip().partition(":")[0].lower() for part in gres.split(",")]
    if any(name in _SLICES for name in names):
        return "GPUs are shared in slices"
    if any(_MIG.search(kind) for kind in kinds):
        return "GPUs are divided (MIG)"
    if len(kinds) > 1:
        return f"several types of GPUs: {', '.join(kinds)}"
    if names.count("gpu") and not kinds:
        return "its GPUs cannot be read"
    return ""


def _reserved(name: str, reserved: Mapping[str, str]) -> str:
    return f"reservation {reserved[name]}" if name in reserved else ""


def crowded(nodes: Sequence[Node], jobs: Sequence[Job]) -> list[str]:
    """Names of nodes on which jobs have more GPUs than there are: the two lists do not fit together."""
    used = Counter[str]()
    for job in jobs:
        for share in job.shares:
            used[share.node] += share.gpus
    return [node.name for node in nodes if used[node.name] > node.gpus]
