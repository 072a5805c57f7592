"""Clusters from a trace's own list of machines."""

from pathlib import Path

import polars as pl
from pydantic import ValidationError

from gpuyard.cluster.model import KNOWN_GPU_TYPES, Cluster, GpuType, NodeGroup
from gpuyard.config import refusal
from gpuyard.errors import InputError
from gpuyard.workload.importing import ImportLog

_SAME_MODEL = {"v100m16": "v100", "v100m32": "v100-32gb", "a100-sxm4-80gb": "a100-80gb"}
"""How traces name models that ``KNOWN_GPU_TYPES`` knows under another name."""


def cluster_of_machines(machines: pl.DataFrame, path: Path) -> Cluster:
    """One group of nodes for each kind of machine, in order of first appearance.

    Args:
        machines: One row a machine: ``type``, ``gpus``, ``cpus`` and ``memory_mib``, null = not stated.
        path: The file they are from, which gives the cluster its name.

    Raises:
        InputError: if a machine is none that a cluster can have.
    """
    kinds = machines.group_by("type", "gpus", "cpus", "memory_mib", maintain_order=True).len("count")
    try:
        nodes = tuple(_node_group(kind) for kind in kinds.iter_rows(named=True))
        types = dict.fromkeys(group.type for group in nodes)
        return Cluster(
            name=path.name.split(".")[0][:200] or "cluster",
            gpu_types=tuple(map(_gpu_type, types)),
            nodes=nodes,
        )
    except ValidationError as error:
        what = refusal(error, f"{path}: describes a machine that cannot be")
        raise InputError(f"{what}; correct the file or import without it") from None


def _node_group(kind: dict[str, object]) -> NodeGroup:
    values = {**kind, "type": kind["type"] if kind["gpus"] else "cpu"}
    return NodeGroup.model_validate(values)


def _gpu_type(name: str) -> GpuType:
    """Under the trace's own name, which jobs ask for; with memory and watts where the model is known."""
    lower = name.lower()
    known = KNOWN_GPU_TYPES.get(_SAME_MODEL.get(lower, lower))
    return GpuType(name=name) if known is None else known.model_copy(update={"name": name})


def check_all_read(path: Path, rows: ImportLog, kept: int) -> None:
    """Refuse a list of machines of which rows had to be left out: the cluster would be smaller than it was.

    Raises:
        InputError: naming the first of them.
    """
    rejected = rows.report("machines", [path.name], kept).rejected
    if rejected:
        first = rejected[0]
        raise InputError(
            f"{path}: {first.rows} machines cannot be read: {first.reason} (first at {first.first[0]}); "
            "correct the file or import without it"
        )
    if kept == 0:
        raise InputError(f"{path}: lists no machine; give the whole file or import without it")
