"""Clusters from Slurm's own lists of nodes: scontrol show node, sinfo -N, and both as JSON."""

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from gpuyard.cluster.model import KNOWN_GPU_TYPES, Cluster, GpuType
from gpuyard.errors import InputError
from gpuyard.files import parse_json
from gpuyard.units import plural

COMMANDS = "scontrol show node (also -o or --json), or sinfo -N -o '%N %G %c %m %T'"

SLICE = r"(?:^|[^0-9A-Za-z])\d{1,2}g\.\d{1,3}gb"
"""How types of GPUs name the slice (MIG) of a GPU that they are: ``a100_3g.20gb``, ``1g.5gb``."""

_PAIR = re.compile(r"(?:^|\s)([A-Za-z]\w*)=(\S*)")
_GPUS = re.compile(r"(?:^|,)(?:gres[:/])?gpu(?::([^,:()=]+))?[:=](\d{1,6})(?=[,(]|$)")
_AWAY = re.compile(r"DOWN|DRAIN|FAIL|FUTURE|MAINT|NOT_RESPONDING", re.IGNORECASE)
_HEADINGS = {"NODELIST": "name", "HOSTNAMES": "name", "GRES": "gres", "CPUS": "cpus", "MEMORY": "memory",
             "STATE": "state"}  # fmt: skip


@dataclass(frozen=True)
class ListedNode:
    """A node as Slurm lists it.

    Attributes:
        name: Of the node.
        gres: Generic resources, such as ``gpu:a100:8(S:0-1)``.
        cpus: CPUs.
        memory_mib: Memory.
        state: Such as IDLE or DOWN+DRAIN.
    """

    name: str
    gres: str
    cpus: int
    memory_mib: int
    state: str


def slurm_cluster(text: str, name: str, source: str) -> tuple[Cluster, tuple[str, ...]]:
    """The cluster of a list of nodes, and what to know about it.

    Args:
        text: What one of ``COMMANDS`` printed.
        name: Of the cluster.
        source: The file, for errors.

    Raises:
        InputError: if the text is none of these lists, or a node in it cannot be.
    """
    nodes = {node.name: node for node in _listed(text, source)}
    if not nodes:
        raise InputError(f"{source}: lists no node; expected output of {COMMANDS}")
    notes: dict[str, list[str]] = {}
    groups: Counter[tuple[str, int, int | None, int | None]] = Counter()
    for node in nodes.values():
        kind = _kind(node, notes)
        if kind is not None:
            groups[kind] += 1
    if not groups:
        raise InputError(f"{source}: none of its {len(nodes)} nodes states GPUs or CPUs; list %G and %c")
    types = {kind for kind, *_ in groups}
    cluster = Cluster(
        name=name[:200] or "cluster",
        gpu_types=tuple(_gpu_type(kind) for kind in sorted(types)),
        nodes=tuple(
            {"count": count, "type": kind, "gpus": gpus, "cpus": cpus, "memory_mib": memory}  # type: ignore[misc]
            for (kind, gpus, cpus, memory), count in groups.items()
        ),
    )
    said = [f"{plural(cluster.node_count, 'node')}, {plural(cluster.total_gpus, 'GPU')}"]
    return cluster, tuple(said + [f"{what}: {_some(names)}" for what, names in notes.items()])


def _some(names: list[str]) -> str:
    more = f" and {len(names) - 3} more" if len(names) > 3 else ""
    return ", ".join(names[:3]) + more


def _gpu_type(name: str) -> GpuType:
    known = KNOWN_GPU_TYPES.get(name.lower())
    return GpuType(name=name) if known is None else known.model_copy(update={"name": name})


def _kind(node: ListedNode, notes: dict[str, list[str]]) -> tuple[str, int, int | None, int | None] | None:
    """What makes nodes alike; None for a node that has nothing to run jobs on."""
    found = [(kind or "gpu", int(count)) for kind, count in _GPUS.findall(node.gres)]
    gpus = sum(count for _, count in found)
    cpus, memory = node.cpus or None, node.memory_mib or None
    if not gpus and cpus is None:
        notes.setdefault("left out, without GPUs and CPUs", []).append(node.name)
        return None
    if len({kind for kind, _ in found}) > 1:
        notes.setdefault("GPUs of several types, taken as the most common one", []).append(node.name)
    if re.search(SLICE, node.gres):
        notes.setdefault("slices of GPUs (MIG) count as whole GPUs", []).append(node.name)
    if _AWAY.search(node.state):
        notes.setdefault("down or drained now, and counted", []).append(node.name)
    kind = max(found, key=lambda entry: entry[1])[0] if gpus else "cpu"
    return re.sub(r"[\s|,:@]", "-", kind), gpus, cpus, memory


def _listed(text: str, source: str) -> Iterable[ListedNode]:
    text = text.removeprefix("\ufeff").strip()
    if text.startswith("{"):
        return _from_json(text, source)
    if text.startswith("NodeName="):
        return [_from_pairs(block) for block in re.split(r"\n\s*(?=NodeName=)", text)]
    lines = text.splitlines()
    headings = [_HEADINGS.get(word, "") for word in lines[0].upper().split()] if lines else []
    if "name" in headings and {"gres", "cpus"} & set(headings):
        return [_from_columns(headings, line, f"{source}, line {n}") for n, line in enumerate(lines[1:], 2)]
    raise InputError(f"{source}, line 1: is no list of Slurm's nodes; expected output of {COMMANDS}")


def _from_pairs(block: str) -> ListedNode:
    """``NodeName=gn1 CPUTot=16 RealMemory=64000 Gres=gpu:a100:8(S:0-1) State=IDLE ...``."""
    pairs = dict(_PAIR.findall(block))
    gres = "" if pairs.get("Gres") in (None, "(null)") else pairs["Gres"]
    if not _GPUS.search(gres):
        gres = pairs.get("CfgTRES", "")  # gres/gpu=8, where Gres is hidden
    return ListedNode(
        pairs.get("NodeName", ""),
        gres,
        _count(pairs.get("CPUTot")),
        _count(pairs.get("RealMemory")),
        pairs.get("State", ""),
    )


def _from_columns(headings: list[str], line: str, where: str) -> ListedNode:
    words = line.split()
    if len(words) != len(headings):
        raise InputError(
            f"{where}: has {len(words)} columns, expected {len(headings)} as in line 1; print fields without "
            "widths: sinfo -N -o '%N %G %c %m %T'"
        )
    row = dict(zip(headings, words, strict=True))
    gres = "" if row.get("gres") == "(null)" else row.get("gres", "")
    return ListedNode(
        row["name"], gres, _count(row.get("cpus")), _count(row.get("memory")), row.get("state", "")
    )


def _from_json(text: str, source: str) -> Iterable[ListedNode]:
    try:
        document = parse_json(text)
    except ValueError as error:
        raise InputError(f"{source}: cannot be read as JSON ({error}); fetch it again") from None
    nodes = document.get("nodes") if isinstance(document, dict) else None
    if isinstance(nodes, list):
        return [_from_record(node) for node in nodes if isinstance(node, dict)]
    if isinstance(document, dict) and "sinfo" in document:
        raise InputError(
            f"{source}: groups nodes (sinfo --json of Slurm 23.02 and later); run scontrol show nodes --json"
        )
    raise InputError(f"{source}: has no list of nodes; expected output of {COMMANDS}")


def _from_record(node: Mapping[str, Any]) -> ListedNode:
    state = node.get("state")
    words = state if isinstance(state, list) else [state, *(node.get("state_flags") or [])]
    return ListedNode(
        str(node.get("name", "")),
        str(node.get("gres") or ""),
        _count(node.get("cpus")),
        _count(node.get("real_memory")),
        "+".join(str(word) for word in words),
    )


def _count(value: object) -> int:
    """A whole number, also as ``16+`` or ``{"number": 16}``; 0 if it is none."""
    if isinstance(value, dict):
        value = value.get("number")
    found = re.match(r"\d{1,12}", str(value))
    return int(found[0]) if found else 0
