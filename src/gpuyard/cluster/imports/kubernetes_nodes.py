"""Nodes of Kubernetes: ``kubectl get nodes -o json``."""

import re
from collections.abc import Mapping
from typing import Any

from gpuyard.cluster.imports.listed import ListedNode
from gpuyard.errors import InputError

COMMANDS = "kubectl get nodes -o json"

_GPUS = ("nvidia.com/gpu", "amd.com/gpu", "gpu.intel.com/i915", "gpu.intel.com/xe", "habana.ai/gaudi")
_PRODUCTS = ("nvidia.com/gpu.product", "amd.com/gpu.product-name", "cloud.google.com/gke-accelerator")
_SLICE = re.compile(r"nvidia\.com/mig-(.+)")
_QUANTITY = re.compile(r"(\d{1,18}(?:\.\d{1,9})?)(m|[KMGTPE]i|[kMGTPE])?")
_SCALE = {"m": 1e-3, "": 1.0} | {
    name: float(base**power)
    for power, letter in enumerate("KMGTPE", start=1)
    for name, base in (
        (f"{letter}i", 1024),
        (letter, 1000),
        (letter.lower() if letter == "K" else letter, 1000),
    )
}
_MASTERS = ("node-role.kubernetes.io/control-plane", "node-role.kubernetes.io/master")


def is_node_document(document: Any) -> bool:
    """Whether JSON is a list of Kubernetes' nodes, or one of them."""
    return bool(_items(document))


def _items(document: Any) -> list[Mapping[str, Any]]:
    if not isinstance(document, dict):
        return []
    items = document.get("items") if isinstance(document.get("items"), list) else [document]
    return [item for item in items or () if isinstance(item, dict) and item.get("kind") == "Node"]


def kubernetes_nodes(document: Any, source: str) -> tuple[list[ListedNode], list[str]]:
    """The nodes that pods may run on, and what to know about them.

    Raises:
        InputError: for a quantity that cannot be read, naming the node.
    """
    nodes, masters = [], []
    for item in _items(document):
        name = str(item.get("metadata", {}).get("name", ""))
        if _is_master(item):
            masters.append(name)
            continue
        try:
            nodes.append(_node(name, item))
        except ValueError as error:
            raise InputError(f"{source}: node {name}: {error}") from None
    notes = [f"left out, as they take no pods (control plane): {', '.join(masters[:3])}"] if masters else []
    return nodes, notes


def _is_master(item: Mapping[str, Any]) -> bool:
    taints = item.get("spec", {}).get("taints") or ()
    return any(taint.get("key") in _MASTERS and taint.get("effect") == "NoSchedule" for taint in taints)


def _node(name: str, item: Mapping[str, Any]) -> ListedNode:
    status, labels = item.get("status", {}), item.get("metadata", {}).get("labels") or {}
    # What is allocatable is what pods get; the rest is the system's.
    has = {**(status.get("capacity") or {}), **(status.get("allocatable") or {})}
    product = next((str(labels[key]) for key in _PRODUCTS if labels.get(key)), "gpu")
    gpus = [(product, int(_quantity(has[key]))) for key in _GPUS if key in has]
    gpus += [
        (f"{product}-{found[1]}", int(_quantity(has[key]))) for key in has if (found := _SLICE.fullmatch(key))
    ]
    return ListedNode(
        name,
        tuple((kind, count) for kind, count in gpus if count),
        int(_quantity(has.get("cpu", "0"))),
        int(_quantity(has.get("memory", "0")) / 2**20),
        _state(item),
    )


def _state(item: Mapping[str, Any]) -> str:
    conditions = item.get("status", {}).get("conditions") or ()
    ready = next((one.get("status") for one in conditions if one.get("type") == "Ready"), "True")
    words = ["Ready" if ready == "True" else "NotReady"]
    return "+".join(words + (["Cordoned"] if item.get("spec", {}).get("unschedulable") else []))


def _quantity(text: object) -> float:
    """``64``, ``63500m``, ``263556096Ki`` as a number."""
    found = _QUANTITY.fullmatch(str(text))
    if not found:
        raise ValueError(f"cannot read the quantity {text!r}; expected such as 63500m or 263556096Ki")
    return float(found[1]) * _SCALE[found[2] or ""]
