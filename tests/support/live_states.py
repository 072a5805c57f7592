"""Small live clusters, said in few words."""

from gpuyard.serve.state import ClusterState, Job, Node, Partition, Share

NOW_S = 1_700_000_000.0
"""When everything is now."""


def node(name: str, gpus: int = 8, **more: object) -> Node:
    """A node with 64 CPUs and 512 GiB."""
    return Node(name, gpus, **{"cpus": 64, "memory_mib": 524_288, **more})  # type: ignore[arg-type]


def running(
    id: str, *shares: Share, ran_s: float = 100.0, limit_s: float | None = 3600.0, **more: object
) -> Job:
    """A job that has run for some time."""
    gpus = sum(share.gpus for share in shares)
    known = {"user": "ada", "partition": "gpu", "gpus": gpus, "cpus": sum(share.cpus for share in shares)}
    begin_s = NOW_S - ran_s
    return Job(
        id, "running", begin_s - 10.0, limit_s=limit_s, begin_s=begin_s, shares=shares, **{**known, **more}
    )  # type: ignore[arg-type]


def waiting(
    id: str, gpus: int = 1, waited_s: float = 60.0, limit_s: float | None = 3600.0, **more: object
) -> Job:
    """A job that has waited for some time."""
    known = {"user": "bo", "partition": "gpu", "cpus": gpus}
    return Job(id, "waiting", NOW_S - waited_s, gpus=gpus, limit_s=limit_s, **{**known, **more})  # type: ignore[arg-type]


def state(
    *jobs: Job, nodes: tuple[Node, ...] = (), partitions: tuple[Partition, ...] | None = None
) -> ClusterState:
    """A cluster; without nodes, of two with 8 GPUs each. Without partitions, one of all nodes."""
    nodes = nodes or (node("n1"), node("n2"))
    whole = (Partition("gpu", tuple(one.name for one in nodes), default=True),)
    return ClusterState("test 1", NOW_S, jobs, nodes, whole if partitions is None else partitions)
