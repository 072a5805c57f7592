"""A smaller cluster of the same shape, for traces that would leave the real one idle."""

from collections.abc import Sequence

from gpuyard.cluster.model import Cluster
from gpuyard.errors import InputError

Pool = tuple[str, str | None, int]


def shrink_cluster(cluster: Cluster, factor: float) -> Cluster:
    """A cluster with about ``factor`` times the nodes, in the same proportions.

    Every pool (GPU type, owner, GPUs a node) keeps its share of the nodes as nearly as whole nodes can,
    and at least one; within a pool the same holds for its kinds of nodes (racks, CPUs, memory), which may
    vanish. A node stays as it is: nodes become fewer, never smaller.

    Args:
        cluster: The cluster.
        factor: Above 0 and at most 1.

    Raises:
        InputError: for another factor.
    """
    if not 0 < factor <= 1:
        raise InputError(f"cannot shrink a cluster by the factor {factor:g}; give one above 0 and at most 1")
    pools: dict[Pool, list[int]] = {}
    for index, group in enumerate(cluster.nodes):
        pools.setdefault((group.type, group.owner, group.gpus), []).append(index)
    counts = [group.count for group in cluster.nodes]
    sizes = [sum(counts[index] for index in members) for members in pools.values()]
    wanted = max(round(cluster.node_count * factor), len(pools))
    for members, nodes in zip(pools.values(), apportion(sizes, wanted, least=1), strict=True):
        shares = apportion([counts[index] for index in members], nodes, least=0)
        for index, count in zip(members, shares, strict=True):
            counts[index] = count
    kept = [
        group.model_copy(update={"count": count})
        for group, count in zip(cluster.nodes, counts, strict=True)
        if count
    ]
    name = f"{cluster.name}-{sum(group.count for group in kept)}-nodes"
    return Cluster(name=name, gpu_types=cluster.gpu_types, nodes=tuple(kept))


def apportion(sizes: Sequence[int], total: int, *, least: int) -> list[int]:
    """Whole numbers of the given total in proportion to the sizes, by largest remainders, each >= ``least``.

    No number exceeds its size. ``total`` lies between ``least`` for each and the sum of the sizes.
    """
    everything = sum(sizes)
    counts = [max(size * total // everything, least) for size in sizes]
    # Give what is missing to whoever is furthest below its share, take what is too much from who is above.
    while (missing := total - sum(counts)) != 0:
        step = 1 if missing > 0 else -1
        open_ = [i for i, n in enumerate(counts) if (n < sizes[i] if step > 0 else n > least)]
        chosen = max(open_, key=lambda i: step * (sizes[i] * total - counts[i] * everything))
        counts[chosen] += step
    return counts


def scale_cluster(cluster: Cluster, factor: float) -> Cluster:
    """A cluster with ``factor`` times the nodes of each group, rounded, at least one; partitions keep theirs.

    Of a group that shrinks the first nodes stay. A node that is added to a group is in the partitions of one
    that is there: the first of the group first, then the second, and so on. Nodes lose their names, as those
    of new ones are unknown.

    Args:
        cluster: The cluster.
        factor: Above 0.

    Raises:
        InputError: for another factor.
    """
    if not factor > 0:
        raise InputError(f"cannot scale a cluster by the factor {factor:g}; give one above 0")
    counts = [max(1, round(group.count * factor)) for group in cluster.nodes]
    if counts == [group.count for group in cluster.nodes]:
        return cluster
    stands_for: list[int] = []
    first = 0
    for group, count in zip(cluster.nodes, counts, strict=True):
        stands_for += [first + index % group.count for index in range(count)]
        first += group.count
    groups = zip(cluster.nodes, counts, strict=True)
    nodes = tuple(group.model_copy(update={"count": count, "names": None}) for group, count in groups)
    partitions = []
    for partition in cluster.partitions:
        members = set(cluster.partition_nodes(partition).tolist())
        numbers = [str(node) for node, old in enumerate(stands_for) if old in members]
        if not numbers:
            raise InputError(
                f"cluster {cluster.name} with {sum(counts):,} nodes: partition {partition.name} has none left"
            )
        partitions.append(partition.model_copy(update={"nodes": ",".join(numbers)}))
    changed = {"name": f"{cluster.name}-{sum(counts)}-nodes", "nodes": nodes, "partitions": tuple(partitions)}
    return cluster.model_copy(update=changed)
