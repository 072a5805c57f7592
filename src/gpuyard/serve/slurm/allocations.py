"""What a job has on each of its nodes."""

from collections.abc import Mapping

from gpuyard.cluster.hostlists import expanded_nodes
from gpuyard.cluster.imports.slurm_units import gpus_of
from gpuyard.serve.slurm.values import Record, mebibytes, rows, table, text, tres, whole, words
from gpuyard.serve.state import Share


def shares_of(job: Record, threads: Mapping[str, int]) -> tuple[tuple[Share, ...], str]:
    """What a job has on each node, and a note if part of it had to be derived.

    Args:
        job: Its record.
        threads: Hardware threads of a core by node; 22.05 lists cores, but jobs have CPUs.
    """
    nodes = expanded_nodes(text(job, "nodes")) or []
    if not nodes:
        return (), "nodes unknown"
    cpus, memory = _cpus_and_memory(job, nodes, threads)
    gpus, note = _gpus(job, nodes)
    return tuple(
        Share(node, gpus[place], cpus[place], memory[place]) for place, node in enumerate(nodes)
    ), note


def _gpus(job: Record, nodes: list[str]) -> tuple[list[int], str]:
    """Of ``gres_detail``, which has one entry per node in the order of ``nodes``."""
    detail = job.get("gres_detail")
    entries = [str(one) for one in detail] if isinstance(detail, list) else []
    if len(entries) == len(nodes):
        return [sum(count for _, count in gpus_of(entry)) for entry in entries], ""
    granted = tres(job, "tres_alloc_str").get("gres/gpu", "")
    if not entries and granted.isdecimal():
        return _even(int(granted), len(nodes)), "" if len(nodes) == 1 else "GPUs per node derived"
    per_node = sum(count for _, count in gpus_of(text(job, "tres_per_node")))
    in_all = sum(count for _, count in gpus_of(text(job, "tres_per_job")))
    per_task = sum(count for _, count in gpus_of(text(job, "tres_per_task"))) * (whole(job, "tasks") or 1)
    if not (per_node or in_all or per_task):
        return [0] * len(nodes), ""
    derived = [per_node] * len(nodes) if per_node else _even(in_all or per_task, len(nodes))
    return derived, "GPUs per node derived from what it asked for"


def _cpus_and_memory(
    job: Record, nodes: list[str], threads: Mapping[str, int]
) -> tuple[list[int], list[int]]:
    resources = table(job, "job_resources")
    listed = rows(resources, "allocated_nodes") or rows(table(resources, "nodes"), "allocation")
    by_name = {text(row, "nodename") or text(row, "name"): row for row in listed}
    total = whole(job, "cpus")
    if set(by_name) != set(nodes):
        granted = mebibytes(tres(job, "tres_alloc_str").get("mem", ""))
        return _even(total, len(nodes)), _even(granted, len(nodes))
    memory = [whole(by_name[node], "memory_allocated") for node in nodes]
    if not any(memory):
        memory = [whole(table(by_name[node], "memory"), "allocated") for node in nodes]
    counted = [whole(table(by_name[node], "cpus"), "count") for node in nodes]
    if all(counted):
        return counted, memory
    cores = [_cores(by_name[node]) for node in nodes]
    cpus = [count * threads.get(node, 1) for node, count in zip(nodes, cores, strict=True)]
    for candidate in (cpus, cores):
        if sum(candidate) == total:
            return candidate, memory
    # With whole cores a job may have more CPUs than it counts: never fewer than either says.
    return (cpus if sum(cpus) > total else _even(total, len(nodes))), memory


def _cores(row: Record) -> int:
    """Cores that the job has on a node, in 22.05."""
    sockets = table(row, "sockets")
    return sum(
        1
        for socket in sockets
        for state in table(table(sockets, socket), "cores").values()
        if str(state).startswith("allocated")
    )


def _even(total: int, nodes: int) -> list[int]:
    """As even as whole numbers allow, the larger parts first."""
    return [total // nodes + (place < total % nodes) for place in range(nodes)]


def gpu_types_of(job: Record) -> tuple[str, ...] | None:
    """Types of the GPUs that a running job has; None if none is named."""
    detail = job.get("gres_detail")
    entries = [str(one) for one in detail] if isinstance(detail, list) else []
    kinds = {kind for entry in entries for kind, _ in gpus_of(entry) if kind != "gpu"}
    return tuple(sorted(kinds)) or None


def is_exclusive(job: Record) -> bool:
    """Whether it shares its nodes with nobody."""
    return "NONE" in words(job, "shared") or "EXCLUSIVE" in words(job, "shared")
