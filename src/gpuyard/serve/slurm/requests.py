"""What a waiting job asks for, if the agent can know that; otherwise why not."""

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from gpuyard.serve.slurm.values import Record, mebibytes, number, text, tres, whole, words
from gpuyard.serve.state import Node

_PLAIN = ("cpu", "mem", "node", "billing", "energy", "vmem", "pages")
_SHARING = {"NONE": "exclusive", "EXCLUSIVE": "exclusive", "USER": "user", "MCS": "group", "TOPO": "topology"}


class UnclearError(Exception):
    """A job that cannot be represented; the text says why in a few words."""


@dataclass(frozen=True)
class Place:
    """Nodes that a job's partition has.

    Attributes:
        most_gpus: Of any of its nodes.
        most_cpus: Of any of its nodes.
        memory_sizes_mib: Memory of its nodes, each size once.
        threads: Most hardware threads of a core.
    """

    most_gpus: int = 0
    most_cpus: int = 0
    memory_sizes_mib: frozenset[int] = frozenset()
    threads: int = 1

    @classmethod
    def of(cls, nodes: list[Node], threads: Mapping[str, int]) -> "Place":
        """What these nodes have."""
        return cls(
            max((node.gpus for node in nodes), default=0),
            max((node.cpus for node in nodes), default=0),
            frozenset(node.memory_mib for node in nodes),
            max((threads.get(node.name, 1) for node in nodes), default=1),
        )


@dataclass(frozen=True)
class Asked:
    """What a job asks for, in all.

    Attributes:
        gpus: GPUs.
        nodes: Nodes; 0: as few as possible.
        cpus: CPUs, whole cores where Slurm hands out those.
        memory_mib: Memory, MiB.
        gpu_types: Types that it may use; None: any.
        exclusive: Whether it shares its nodes with nobody.
    """

    gpus: int = 0
    nodes: int = 0
    cpus: int = 0
    memory_mib: int = 0
    gpu_types: tuple[str, ...] | None = None
    exclusive: bool = False


@dataclass
class _Gpus:
    per: dict[str, int] = field(default_factory=dict)
    types: set[str] = field(default_factory=set)


def asked(job: Record, place: Place, *, counts_memory: bool = True) -> Asked:
    """What a waiting job asks for.

    Args:
        job: Its record.
        place: Nodes of its partition.
        counts_memory: Whether Slurm hands out memory.

    Raises:
        UnclearError: if the number of nodes or of GPUs on each cannot be known.
    """
    sharing = [_SHARING[word] for word in words(job, "shared") if word in _SHARING]
    if any(word != "exclusive" for word in sharing):
        raise UnclearError(f"shares nodes within its {sharing[0]}")
    gpus = _gpus(job)
    if not gpus.per:
        raise UnclearError("asks for no GPUs")
    nodes = _asked_nodes(job)
    total, nodes = _total(job, gpus.per, nodes, place)
    count = nodes or max(1, math.ceil(total / max(1, place.most_gpus)))
    if nodes > 1 and total % nodes:
        raise UnclearError("GPUs do not divide evenly by nodes")
    return Asked(
        gpus=total,
        nodes=nodes,
        cpus=_cpus(job, total, count, place),
        memory_mib=_memory_mib(job, total, count, place) if counts_memory else 0,
        gpu_types=tuple(sorted(gpus.types)) or None,
        exclusive=bool(sharing),
    )


def _gpus(job: Record) -> _Gpus:
    """GPUs per node, job, task and socket, as far as they are named."""
    found = _Gpus()
    for unit in ("node", "job", "task", "socket"):
        for part in text(job, f"tres_per_{unit}").split(","):
            if not part.strip():
                continue
            name, kind, count = _resource(part.strip())
            if name in _PLAIN:
                continue
            if name != "gpu":
                raise UnclearError(f"asks for {name or 'something unknown'}")
            if unit in found.per:
                raise UnclearError("asks for several types of GPUs")
            found.per[unit] = count
            if kind:
                found.types.add(kind)
    if len(found.types) > 1:
        raise UnclearError("asks for several types of GPUs")
    return found


def _resource(part: str) -> tuple[str, str, int]:
    """``gres:gpu:a100:3``, ``gres/gpu:3``, ``gres/gpu:a100=3``, ``gpu`` or ``cpu=1``."""
    bare = re.sub(r"^gres[:/]", "", part)
    names = re.split(r"[:=]", bare)
    if len(names) == 1:
        return names[0].lower(), "", 1
    if not re.fullmatch(r"\d{1,6}", names[-1]):
        # A type without a number is one of that type; more than that is not understood.
        return (names[0].lower(), names[1], 1) if len(names) == 2 and names[0] == "gpu" else (names[0], "", 0)
    kind = names[1] if len(names) == 3 else ""
    return (names[0].lower() if len(names) <= 3 else "", kind, int(names[-1]))


def _asked_nodes(job: Record) -> int:
    """How many nodes its user named; 0: none. ``node_count`` is Slurm's guess until the job starts."""
    most = whole(job, "max_nodes")
    stated = tres(job, "tres_req_str").get("node", "")
    least = int(stated) if stated.isdecimal() else whole(job, "node_count")
    if most and most != least:
        raise UnclearError("asks for a range of nodes")
    if not most and least > 1:
        raise UnclearError("asks for a least number of nodes")
    return most


def _total(job: Record, per: Mapping[str, int], nodes: int, place: Place) -> tuple[int, int]:
    """GPUs in all, and nodes (0: as few as possible)."""
    if "socket" in per or len(per) > 2 or (len(per) == 2 and set(per) != {"job", "node"}):
        raise UnclearError("asks for GPUs in a way that leaves their place open")
    if any(count < 1 for count in per.values()):
        raise UnclearError("asks for no GPUs")
    if len(per) == 2:
        if per["job"] % per["node"] or nodes not in (0, per["job"] // per["node"]):
            raise UnclearError("GPUs per job and per node do not fit together")
        return per["job"], per["job"] // per["node"]
    if "job" in per:
        return per["job"], nodes
    if "node" in per:
        if not nodes and max(whole(job, "cpus"), whole(job, "minimum_cpus_per_node")) > place.most_cpus:
            raise UnclearError("CPUs do not fit on one node, and GPUs are per node")
        return per["node"] * (nodes or 1), nodes or 1
    tasks = whole(job, "tasks") or 1
    if nodes > 1 and whole(job, "tasks_per_node") * nodes != tasks:
        raise UnclearError("GPUs per task, and tasks per node are open")
    total = per["task"] * tasks
    if not nodes and total > place.most_gpus:
        raise UnclearError("GPUs per task do not fit on one node")
    return total, nodes or 1


def _cpus(job: Record, gpus: int, nodes: int, place: Place) -> int:
    per_gpu = _per_gpu(job, "cpus_per_tres")
    least = (whole(job, "cpus"), whole(job, "minimum_cpus_per_node") * nodes, per_gpu * gpus, nodes)
    on_each = math.ceil(max(least) / nodes)
    return math.ceil(on_each / place.threads) * place.threads * nodes


def _memory_mib(job: Record, gpus: int, nodes: int, place: Place) -> int:
    """By node, CPU or GPU. A job that names none gets all of its nodes' memory."""
    per_node, per_cpu = number(job, "memory_per_node"), number(job, "memory_per_cpu")
    if per_node:
        return int(per_node) * nodes
    if per_cpu:
        return int(per_cpu) * max(whole(job, "cpus"), _per_gpu(job, "cpus_per_tres") * gpus, 1)
    if text(job, "memory_per_tres"):
        each = _per_gpu(job, "memory_per_tres")
        if not each:
            raise UnclearError("memory per GPU is unknown")
        return each * gpus
    if len(place.memory_sizes_mib) > 1:
        raise UnclearError("takes all memory of nodes of several sizes")
    whole_nodes = nodes * next(iter(place.memory_sizes_mib), 0)
    return whole_nodes or mebibytes(tres(job, "tres_req_str").get("mem", ""))


def _per_gpu(job: Record, name: str) -> int:
    found = re.search(r"gpu(?::[^,:=]+)??[:=](\d+)", text(job, name))
    return int(found[1]) if found else 0
