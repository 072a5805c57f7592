"""Nodes and partitions as schedulers list them, and the cluster that they make."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pydantic import ValidationError

from gpuyard.cluster.hostlists import compressed_nodes
from gpuyard.cluster.imports.findings import Finding
from gpuyard.cluster.model import KNOWN_GPU_TYPES, Cluster, GpuType
from gpuyard.config import refusal
from gpuyard.errors import InputError
from gpuyard.units import plural

SLICE = r"(?:^|[^0-9A-Za-z])\d{1,2}g\.\d{1,3}gb"
"""How types of GPUs name the slice (MIG) of a GPU that they are: ``a100_3g.20gb``, ``1g.5gb``."""

_AWAY = re.compile(
    r"DOWN|DRAIN|FAIL|FUTURE|MAINT|NOT_RESPONDING|NOTREADY|CORDONED|UNAVAIL|UNREACH", re.IGNORECASE
)
_UNFIT = re.compile(r"[\s|,:@]+")


@dataclass(frozen=True)
class ListedNode:
    """A node as a scheduler lists it.

    Attributes:
        name: Of the node.
        gpus: Types of GPUs and how many there are of each.
        cpus: CPUs; 0: not stated.
        memory_mib: Memory; 0: not stated.
        state: Such as IDLE or DOWN+DRAIN.
        partitions: Names of those that it is in, as far as the list says.
    """

    name: str
    gpus: tuple[tuple[str, int], ...] = ()
    cpus: int = 0
    memory_mib: int = 0
    state: str = ""
    partitions: tuple[str, ...] = ()


@dataclass(frozen=True)
class ListedPartition:
    """A partition as a scheduler lists it.

    Attributes:
        name: Of the partition.
        nodes: Names of its nodes.
        fields: Of ``gpuyard.cluster.model.Partition``, without name and nodes.
        qos: The QOS whose limits are its own; empty: none.
    """

    name: str
    nodes: tuple[str, ...]
    fields: Mapping[str, Any] = field(default_factory=dict)
    qos: str = ""


@dataclass(frozen=True)
class ImportedCluster:
    """What was made of a scheduler's files.

    Attributes:
        cluster: The cluster.
        notes: What to know about it, in order of importance.
        findings: What became of every key of configuration files.
        policy: Name of the policy that the scheduler follows; None: the files do not say.
        settings: Of that policy.
    """

    cluster: Cluster
    notes: tuple[str, ...]
    findings: tuple[Finding, ...] = ()
    policy: str | None = None
    settings: Mapping[str, Any] = field(default_factory=dict)


Kind = tuple[str, int, int | None, int | None]
"""What makes nodes alike: GPU type, GPUs, CPUs, memory."""


def make_cluster(
    name: str,
    nodes: Iterable[ListedNode],
    source: str,
    partitions: Sequence[ListedPartition] = (),
    qos: Sequence[Mapping[str, Any]] = (),
) -> tuple[Cluster, tuple[str, ...]]:
    """The cluster of nodes and partitions, and what to know about it.

    Args:
        name: Of the cluster.
        nodes: In their order; one that is listed twice counts once.
        source: The file, for errors.
        partitions: Named sets of these nodes.
        qos: Fields of ``gpuyard.cluster.model.Qos``.

    Raises:
        InputError: if there is no node, or none that could run anything.
    """
    notes: dict[str, list[str]] = {}
    groups = _alike({node.name: node for node in nodes}, source, notes)
    kept = {name for names in groups.values() for name in names}
    types = sorted({kind for kind, *_ in groups})
    try:
        cluster = Cluster.model_validate(
            {
                "name": name[:200] or "cluster",
                "gpu_types": [_gpu_type(one) for one in types],
                "nodes": [_group(kind, names) for kind, names in groups.items()],
                "partitions": list(_partitions(partitions, kept, notes)),
                "qos": list(qos),
            }
        )
    except ValidationError as error:
        raise refusal(error, source) from None
    return cluster, (_size(cluster), *(f"{what}: {_some(names)}" for what, names in notes.items()))


def _alike(
    nodes: Mapping[str, ListedNode], source: str, notes: dict[str, list[str]]
) -> dict[Kind, list[str]]:
    """Names of nodes by what makes them alike."""
    groups: dict[Kind, list[str]] = {}
    for node in nodes.values():
        kind = _kind(node, notes)
        if kind is not None:
            groups.setdefault(kind, []).append(node.name)
    if not groups:
        what = f"none of its {len(nodes)} nodes states GPUs or CPUs" if nodes else "lists no node"
        raise InputError(f"{source}: {what}; a cluster needs at least one node that could run something")
    return groups


def _size(cluster: Cluster) -> str:
    parts = [plural(cluster.node_count, "node"), plural(cluster.total_gpus, "GPU")]
    parts += [plural(len(cluster.partitions), "partition")] if cluster.partitions else []
    return ", ".join(parts)


def _group(kind: Kind, names: Sequence[str]) -> dict[str, Any]:
    gpu_type, gpus, cpus, memory_mib = kind
    return {
        "names": compressed_nodes(names),
        "count": len(names),
        "type": gpu_type,
        "gpus": gpus,
        "cpus": cpus,
        "memory_mib": memory_mib,
    }


def _partitions(
    partitions: Sequence[ListedPartition], kept: set[str], notes: dict[str, list[str]]
) -> Iterable[dict[str, Any]]:
    for one in partitions:
        names = [name for name in one.nodes if name in kept]
        if names:
            nodes = "all" if len(names) == len(kept) else compressed_nodes(names)
            yield {"name": one.name, "nodes": nodes, **one.fields}
        else:
            notes.setdefault("partitions left out, without nodes that run jobs", []).append(one.name)


def listed_partitions(nodes: Iterable[ListedNode]) -> list[ListedPartition]:
    """The partitions that nodes say they are in, by first appearance; a ``*`` marks the default."""
    members: dict[str, dict[str, None]] = {}
    default = ""
    for node in nodes:
        for text in node.partitions:
            name = text.rstrip("*")
            default = name if text.endswith("*") else default
            members.setdefault(name, {})[node.name] = None
    return [
        ListedPartition(name, tuple(names), {"default": True} if name == default else {})
        for name, names in members.items()
    ]


def _some(names: list[str]) -> str:
    more = f" and {len(names) - 3} more" if len(names) > 3 else ""
    return ", ".join(names[:3]) + more


def _gpu_type(name: str) -> GpuType:
    known = KNOWN_GPU_TYPES.get(name.lower()) or KNOWN_GPU_TYPES.get(_model(name))
    return GpuType(name=name) if known is None else known.model_copy(update={"name": name})


def _model(product: str) -> str:
    """The well-known model of a vendor's product, such as a100-80gb of NVIDIA-A100-SXM4-80GB; empty: none."""
    words = re.split(r"[^0-9a-z]+", product.lower())
    found = next((word for word in words if word in KNOWN_GPU_TYPES and word not in ("gpu", "cpu")), "")
    sized = next((f"{found}-{word}" for word in words if f"{found}-{word}" in KNOWN_GPU_TYPES), "")
    return sized or found


def _kind(node: ListedNode, notes: dict[str, list[str]]) -> Kind | None:
    """What makes nodes alike; None for a node that has nothing to run jobs on."""
    gpus = sum(count for _, count in node.gpus)
    cpus, memory = node.cpus or None, node.memory_mib or None
    if not gpus and cpus is None:
        notes.setdefault("left out, without GPUs and CPUs", []).append(node.name)
        return None
    if len({kind for kind, _ in node.gpus}) > 1:
        notes.setdefault("GPUs of several types, taken as the most common one", []).append(node.name)
    if any(re.search(SLICE, kind) for kind, _ in node.gpus):
        notes.setdefault("slices of GPUs (MIG) count as whole GPUs", []).append(node.name)
    if _AWAY.search(node.state):
        notes.setdefault("down or drained now, and counted", []).append(node.name)
    kind = max(node.gpus, key=lambda entry: entry[1])[0] if gpus else "cpu"
    return _UNFIT.sub("-", kind)[:200] or "gpu", gpus, cpus, memory
