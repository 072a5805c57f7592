"""What a job asks for and holds, in the shapes of snapshots (docs/contract/simulator.md, section 3)."""

import re
from collections.abc import Sequence
from functools import lru_cache

from gpuyard.serve.decision.memory import InFlight
from gpuyard.serve.state import ClusterState, Job, Node, Share

_DIGITS = re.compile(r"\d+")


@lru_cache(maxsize=200_000)
def natural(name: str) -> tuple[int, ...]:
    """Numbers in an id, to sort 99 before 100 and 7_2 before 7_10."""
    return tuple(int(number) for number in _DIGITS.findall(name))


def flying(job: Job, release: InFlight) -> Job:
    """A job that was released, as if it ran already."""
    total = job.gpus or len(release.nodes)
    parts = ((node, gpus, gpus if job.gpus else 1) for node, gpus in release.nodes)
    shares = tuple(
        Share(node, gpus, -(-job.cpus * part // total), -(-job.memory_mib * part // total))
        for node, gpus, part in parts
    )
    return Job(
        job.id, "starting", job.submit_s, job.user, job.group, job.partition, job.qos,
        gpus=job.gpus, cpus=job.cpus, memory_mib=job.memory_mib, limit_s=job.limit_s,
        exclusive=job.exclusive, begin_s=release.since_s, shares=shares, row=job.row,
    )  # fmt: skip


def whole_nodes(job: Job, state: ClusterState) -> Sequence[Share]:
    """What a job keeps others from: all of a node that it shares with nobody."""
    if not job.exclusive:
        return job.shares
    there = state.node_by_name
    return [
        share
        if share.node not in there
        else Share(
            share.node,
            there[share.node].gpus,
            max(1, there[share.node].cpus),
            max(1, there[share.node].memory_mib),
        )
        for share in job.shares
    ]


def like_node(job: Job, state: ClusterState) -> Node | None:
    """A node, if all that the job may use are alike."""
    names = next((one.nodes for one in state.partitions if one.name == job.partition), None)
    nodes = state.nodes if names is None else [state.node_by_name[name] for name in names]
    if job.gpu_types is not None:
        nodes = [node for node in nodes if node.gpu_type in job.gpu_types]
    kinds = {(node.gpus, node.cpus, node.memory_mib) for node in nodes}
    return nodes[0] if len(kinds) == 1 else None


def needs(job: Job, state: ClusterState) -> tuple[int, int, int, int]:
    """GPUs, CPUs, memory and nodes; all of its nodes for a job that shares them with nobody."""
    if not job.exclusive or (node := like_node(job, state)) is None:
        return job.gpus, job.cpus, job.memory_mib, job.nodes
    count = max(1, job.nodes, -(-job.gpus // node.gpus) if node.gpus else 1)
    return count * node.gpus, count * max(1, node.cpus), count * max(1, node.memory_mib), count


def is_regular(job: Job, shares: list[Share]) -> bool:
    """Whether the job's parts are those that its totals stand for (docs/contract/simulator.md, section 3)."""
    total = job.gpus
    if sum(share.gpus for share in shares) != total:
        return False
    if total == 0:
        count = len(shares)
        wanted = (-(-job.cpus // count), -(-job.memory_mib // count))
        return all((share.cpus, share.memory_mib) == wanted for share in shares)
    return all(
        share.gpus > 0
        and share.cpus == -(-job.cpus * share.gpus // total)
        and share.memory_mib == -(-job.memory_mib * share.gpus // total)
        for share in shares
    )


def row_of(job: Job) -> int:
    """Key of random draws: the same for a job at every round."""
    if job.row is not None:
        return job.row
    row = 0
    for number in natural(job.id):
        row = (row * 1_000_003 + number) % 2**31
    return row
