"""The machines of Microsoft Philly: the list of the trace, or nodes per virtual cluster."""

import re
from pathlib import Path

from gpuyard.cluster.model import Cluster, GpuType, NodeGroup
from gpuyard.errors import InputError
from gpuyard.workload.formats import TraceFiles
from gpuyard.workload.importing import ImportLog
from gpuyard.workload.readers.csv_jobs import csv_header, only_file
from gpuyard.workload.readers.virtual_clusters import (
    make_cluster,
    node_group,
    report_homeless,
    small_table,
    whole_cell,
)
from gpuyard.workload.schema import Workload

MACHINES = "machines"
"""The role of cluster_machine_list: machineId, number of GPUs, single GPU mem."""

VC_NODES = "vc-nodes"
"""The role of a table of nodes by virtual cluster: vc, node num (HeliosArtifact's philly_vc.csv)."""

GPUS_PER_VC_NODE = 8
"""As HeliosArtifact's simulation has it; the table of nodes by virtual cluster does not say."""

_MACHINE_HEADER = ["machineid", "number of gpus", "single gpu mem"]
_MACHINE = re.compile(rb"m\d+\s*,\s*\d+\s*,\s*\d+\s*GB\s*,?\s*(\n|$)")
_MEMORY = re.compile(r"(\d{1,4})\s*GB")


def machine_role(head: bytes) -> str | None:
    """Which of the two tables a file is; None if neither."""
    names = [name.lower() for name in csv_header(head)]
    if names == _MACHINE_HEADER or _MACHINE.match(head):
        return MACHINES
    return VC_NODES if names == ["vc", "node num"] else None


def philly_cluster(files: TraceFiles, workload: Workload, log: ImportLog) -> Cluster | None:
    """The cluster that the files of a trace describe, if they do.

    Raises:
        InputError: if both tables are given, as they contradict each other.
    """
    if MACHINES in files and VC_NODES in files:
        raise InputError(
            f"{files[VC_NODES][0]}: lists nodes of {GPUS_PER_VC_NODE} GPUs by virtual cluster, which do not "
            f"fit the machines of {files[MACHINES][0]}; give one of the two"
        )
    if MACHINES in files:
        return _from_machines(only_file(files, MACHINES), log)
    if VC_NODES not in files:
        return None
    cluster = _from_vc_nodes(only_file(files, VC_NODES), log)
    report_homeless(workload.frame["group"], cluster, log, "leave the table of nodes out to share all nodes")
    return cluster


def _from_machines(path: Path, log: ImportLog) -> Cluster:
    """Machines grouped by their GPUs; the models are not disclosed, so that types are named by memory."""
    counts: dict[tuple[int, int], int] = {}
    for line, fields in small_table(path):
        if [field.lower() for field in fields] == _MACHINE_HEADER:
            continue
        fields = fields[:-1] if len(fields) == 4 and not fields[-1] else fields
        memory = _MEMORY.fullmatch(fields[2]) if len(fields) == 3 else None
        if memory is None or int(memory[1]) == 0:
            raise InputError(
                f"{path}, line {line}: is {','.join(fields)[:60]!r}, expected a machine, its number of "
                "GPUs and the memory of one, such as m31,8,24GB; correct it"
            )
        key = (whole_cell(path, line, "number of GPUs", fields[1]), int(memory[1]))
        counts[key] = counts.get(key, 0) + 1
    kinds = sorted(key for key in counts if key[0] > 0)
    if len(kinds) < len(counts):
        log.assume("machines without GPUs are left out")
    log.assume("GPU models are not disclosed: types are named by their memory (GB read as GiB), speed 1")
    memories = sorted({gib for _, gib in kinds})
    types = tuple(GpuType(name=f"gpu-{gib}gb", memory_mib=gib * 1024) for gib in memories)
    nodes = [NodeGroup(count=counts[gpus, gib], gpus=gpus, type=f"gpu-{gib}gb") for gpus, gib in kinds]
    return make_cluster(path, "philly", nodes, types)


def _from_vc_nodes(path: Path, log: ImportLog) -> Cluster:
    """Nodes owned by virtual clusters."""
    groups: dict[str, NodeGroup | None] = {}
    for line, fields in small_table(path)[1:]:
        if len(fields) != 2 or fields[0] in groups:
            raise InputError(
                f"{path}, line {line}: is {','.join(fields)[:60]!r}, expected a virtual cluster, once, and "
                "its number of nodes; correct it"
            )
        count = whole_cell(path, line, "node num", fields[1])
        groups[fields[0]] = node_group(path, line, count, GPUS_PER_VC_NODE, fields[0])
    log.assume(f"nodes of virtual clusters have {GPUS_PER_VC_NODE} GPUs")
    return make_cluster(path, "philly", groups.values())
