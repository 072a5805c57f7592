"""Nodes, and which of them a pod may use: selectors, required affinity, taints and tolerations."""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from gpuyard.serve.kubernetes.api import Object
from gpuyard.serve.kubernetes.pods import GPU
from gpuyard.serve.kubernetes.quantities import quantity
from gpuyard.serve.state import Partition

HOSTNAME = "kubernetes.io/hostname"
"""Label by which pods are sent to a node."""
PRODUCT = "nvidia.com/gpu.product"
MOST_PLACES = 64
"""Different sets of nodes; pods that need further ones are left to the scheduler."""
ANY = "any"
_EFFECTS = ("NoSchedule", "NoExecute")
_OWN_TAINTS = (
    "node.kubernetes.io/unschedulable",
    "node.kubernetes.io/not-ready",
    "node.kubernetes.io/unreachable",
)
"""Taints that say what ``closed`` says already."""


@dataclass(frozen=True, slots=True, eq=False)
class NodeInfo:
    """A node, as far as it matters.

    Attributes:
        closed: Why no pod may start there now; empty if pods may.
        taints: Key, value and effect of those that keep pods away.
        pods: How many pods it may have.
    """

    name: str
    labels: Mapping[str, str]
    taints: tuple[tuple[str, str, str], ...]
    closed: str
    gpus: int
    gpu_type: str
    milli: int
    memory_mib: int
    pods: int


def read_node(node: Object) -> NodeInfo:
    """A node of the API."""
    meta, spec, status = node["metadata"], node.get("spec") or {}, node.get("status") or {}
    labels = {str(key): str(value) for key, value in (meta.get("labels") or {}).items()}
    can = {name: quantity(text) for name, text in (status.get("allocatable") or {}).items()}
    ready = any(one["type"] == "Ready" and one["status"] == "True" for one in status.get("conditions") or ())
    closed = "cordoned" if spec.get("unschedulable") else "" if ready else "not ready"
    return NodeInfo(
        name=str(meta["name"]),
        labels=labels,
        taints=tuple(
            (str(one["key"]), str(one.get("value") or ""), str(one["effect"]))
            for one in spec.get("taints") or ()
            if one.get("effect") in _EFFECTS and one["key"] not in _OWN_TAINTS
        ),
        closed=closed or ("" if labels.get(HOSTNAME) else f"has no label {HOSTNAME}"),
        gpus=int(can.get(GPU, 0)),
        gpu_type=labels.get(PRODUCT) or "gpu",
        milli=int(can.get("cpu", Decimal(0)) * 1000),
        memory_mib=int(can.get("memory", Decimal(0)) // 2**20),
        pods=int(can.get("pods", 10_000)),
    )


class Places:
    """Sets of nodes that pods may use, each a partition.

    Args:
        nodes: All nodes.
    """

    def __init__(self, nodes: Sequence[NodeInfo]) -> None:
        self._nodes = nodes
        self._names: dict[tuple[str, str, str], str] = {}
        self._sets: dict[str, tuple[str, ...]] = {}

    def of(self, where: tuple[str, str, str]) -> str:
        """The partition of pods with these demands; empty if no node will do, or there are too many."""
        if where not in self._names:
            self._names[where] = self._find(where)
        return self._names[where]

    def partitions(self) -> tuple[Partition, ...]:
        """All that were asked for; none if all nodes will do for everybody."""
        if set(self._sets) <= {ANY}:
            return ()
        return tuple(Partition(name, nodes) for name, nodes in sorted(self._sets.items()))

    def size(self, name: str) -> int:
        """How many nodes a partition has."""
        return len(self._sets[name])

    def gpus(self, name: str) -> int:
        """GPUs of its largest node."""
        there = set(self._sets[name])
        return max((node.gpus for node in self._nodes if node.name in there), default=0)

    def _find(self, where: tuple[str, str, str]) -> str:
        selector, required, tolerations = (json.loads(part) for part in where)
        nodes = tuple(
            node.name
            for node in self._nodes
            if all(node.labels.get(key) == value for key, value in selector.items())
            and _meets(node, required)
            and all(any(_tolerates(one, taint) for one in tolerations) for taint in node.taints)
        )
        if not nodes:
            return ""
        whole = len(nodes) == len(self._nodes)
        name = ANY if whole else "nodes-" + hashlib.sha256("\n".join(nodes).encode()).hexdigest()[:10]
        if name not in self._sets and len(self._sets) >= MOST_PLACES:
            return ""
        self._sets[name] = nodes
        return name


def _meets(node: NodeInfo, required: Object) -> bool:
    """Whether it meets any of the terms of a required node affinity."""
    terms = required.get("nodeSelectorTerms") if required else None
    if terms is None:
        return True
    return any(
        bool(term.get("matchExpressions") or term.get("matchFields"))
        and all(_holds(node.labels, one) for one in term.get("matchExpressions") or ())
        and all(_holds({"metadata.name": node.name}, one) for one in term.get("matchFields") or ())
        for term in terms
    )


def _holds(labels: Mapping[str, str], one: Object) -> bool:
    """Whether a requirement of a selector holds."""
    value, values = labels.get(str(one["key"])), [str(value) for value in one.get("values") or ()]
    match one["operator"]:
        case "In":
            return value in values
        case "NotIn":
            return value not in values
        case "Exists":
            return value is not None
        case "DoesNotExist":
            return value is None
        case "Gt" | "Lt" as operator:
            if value is None or not value.lstrip("-").isdecimal() or len(values) != 1:
                return False
            return int(value) > int(values[0]) if operator == "Gt" else int(value) < int(values[0])
    return False


def _tolerates(one: dict[str, Any], taint: tuple[str, str, str]) -> bool:
    key, value, effect = taint
    if one.get("effect") and one["effect"] != effect:
        return False
    if one.get("key") and one["key"] != key:
        return False
    if one.get("operator", "Equal") == "Exists":
        return True
    return bool(one.get("key")) and str(one.get("value") or "") == value
