"""The cluster as policies see it, from its pods and nodes: a gang is one job."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from operator import is_

from gpuyard.serve.kubernetes.places import NodeInfo, Places
from gpuyard.serve.kubernetes.pods import GATE, SCHEDULER, Pod
from gpuyard.serve.state import ClusterState, Ended, Holder, Job, Node, Phase, Share

Known = dict[str, tuple[Pod, Job]]
OTHERS = "others@"
"""Begins the id of the job that stands for all pods of a node without GPUs."""
_ENDED_FOR_S = 600.0
"""How long a job that ended is told of, seconds."""


@dataclass
class Scene:
    """What was seen at one moment.

    Attributes:
        state: For the agent.
        waiting: Pods of each job that waits for the agent.
        unbound: Pods of each job that waits, for whomever.
        partial: Pods that must still follow the others of their gang, which were let go by the same decision.
    """

    state: ClusterState
    waiting: dict[str, tuple[Pod, ...]] = field(default_factory=dict)
    partial: list[Pod] = field(default_factory=list)
    unbound: dict[str, tuple[Pod, ...]] = field(default_factory=dict)


def make_scene(
    pods: Sequence[Pod],
    nodes: Sequence[NodeInfo],
    source: str,
    now_s: float,
    lever: str = "gates",
    known: Known | None = None,
) -> Scene:
    """The cluster now.

    Args:
        pods: All pods.
        nodes: All nodes.
        source: Who says so.
        now_s: Unix time.
        lever: As of ``KubernetesSettings``.
        known: Jobs of single pods that are bound, by id; it is changed.
    """
    nodes = sorted(nodes, key=lambda node: node.name)
    maker = _Maker(nodes, lever, now_s, {} if known is None else known)
    return maker.make(sorted(pods, key=lambda pod: (pod.namespace, pod.name)), source)


class _Maker:
    def __init__(self, nodes: Sequence[NodeInfo], lever: str, now_s: float, known: Known) -> None:
        self.nodes, self.lever, self.now_s, self.before = nodes, lever, now_s, known
        self.names = {node.name for node in nodes}
        self.known: Known = {}
        self.places = Places(nodes)
        self.jobs: list[Job] = []
        self.ended: list[Ended] = []
        self.notes: list[str] = []
        self.waiting: dict[str, tuple[Pod, ...]] = {}
        self.partial: list[Pod] = []
        self.unbound: dict[str, tuple[Pod, ...]] = {}

    def make(self, pods: Sequence[Pod], source: str) -> Scene:
        gangs: dict[tuple[str, str], list[Pod]] = defaultdict(list)
        small: dict[str, list[Pod]] = defaultdict(list)
        count: dict[str, int] = defaultdict(int)
        for pod in pods:
            if pod.ending and not pod.node:
                continue  # it will never start
            if pod.node and not pod.over:
                count[pod.node] += 1
            if pod.group and (pod.gpus or self.waits(pod) or pod.plan):
                gangs[pod.namespace, pod.group].append(pod)
            elif pod.gpus and pod.node and not pod.over:
                self.jobs.append(self.bound(pod))
            elif pod.gpus or self.waits(pod):
                self.add(pod.key, [pod])
            elif pod.node and not pod.over:
                small[pod.node].append(pod)
        for (namespace, group), members in gangs.items():
            self.add_gang(f"{namespace}/@{group}", members)
        self.jobs += [self.others(node, there) for node, there in sorted(small.items())]
        self.jobs = [self.on_known_nodes(job) for job in self.jobs]
        self.before.clear()
        self.before.update(self.known)
        state = ClusterState(
            source,
            self.now_s,
            tuple(self.jobs),
            tuple(_node(node, count[node.name]) for node in self.nodes),
            self.places.partitions(),
            tuple(self.ended),
            notes=tuple(self.notes[:100]),
        )
        return Scene(state, self.waiting, self.partial, self.unbound)

    def waits(self, pod: Pod) -> bool:
        """Whether the agent may let it go."""
        if pod.over or pod.node or pod.ending:
            return False
        if self.lever == "gates":
            return pod.gated
        return self.lever == "binding" and pod.scheduler == SCHEDULER and not pod.gates

    def add_gang(self, id: str, members: list[Pod]) -> None:
        alive = [pod for pod in members if not pod.over]
        waiting = [pod for pod in alive if self.waits(pod) and not self.let_go(pod)]
        going = [pod for pod in alive if pod not in waiting]
        if not waiting:
            self.add(id, members)
            return
        if len(waiting) == len(members):
            self.add_whole(id, waiting)
            return
        decisions = {pod.plan[0] for pod in members if pod not in waiting and pod.plan is not None}
        follow = [pod for pod in waiting if pod.plan is not None and pod.plan[0] in decisions]
        self.partial += follow
        if going or follow:
            self.add(id, [*going, *follow])
        for pod in waiting:  # one that replaces another of a gang that runs
            if pod not in follow:
                self.add(pod.key, [replace(pod, group="", size=1)])

    def let_go(self, pod: Pod) -> bool:
        """Whether it is on its way to a node."""
        return pod.released and self.lever == "gates"

    def add_whole(self, id: str, pods: list[Pod]) -> None:
        """A gang of which nobody was let go yet."""
        size = pods[0].size
        if size and len(pods) < size and all(pod.size == size and not pod.why for pod in pods):
            self.notes.append(f"{id}: {len(pods)} of {size} pods are there; it waits for the others")
            return
        why = next((pod.why for pod in pods if pod.why), "")
        shapes = {(pod.gpus, pod.milli, pod.memory_mib, pod.where) for pod in pods}
        if not why and len(shapes) > 1:
            why = "its pods ask for different things"
        if not why and (len(pods) != size or any(pod.size != size for pod in pods)):
            why = f"it has {len(pods)} pods, not {size}"
        self.add(id, pods, why)

    def add(self, id: str, pods: Sequence[Pod], why: str = "") -> None:
        alive = [pod for pod in pods if not pod.over]
        if not alive:
            self.end(id, pods)
            return
        job = _basis(id, alive, pods)
        follow = {pod.key for pod in self.partial}
        if all(pod.node or self.let_go(pod) or pod.key in follow for pod in alive):
            self.jobs.append(self.on_nodes(job, alive))
        else:
            self.jobs.append(self.queued(job, alive, why))

    def on_nodes(self, job: Job, pods: Sequence[Pod]) -> Job:
        """One that runs, or is on its way to nodes that nobody else may get."""
        shares: dict[str, list[int]] = defaultdict(lambda: [0, 0, 0])
        for pod in pods:
            held = shares[pod.node or (pod.plan[1] if pod.plan else "")]
            held[0] += pod.gpus
            held[1] += pod.milli
            held[2] += pod.memory_mib
            if not pod.node and pod.words:
                self.notes.append(f"{pod.key} is not bound to {pod.plan[1] if pod.plan else ''}: {pod.words}")
        begins = [pod.begin_s for pod in pods if pod.begin_s is not None]
        phase: Phase = "running"
        if not all(pod.node for pod in pods):
            phase = "starting"
        elif all(pod.ending for pod in pods):
            phase = "ending"
        found = tuple(
            Share(node, gpus, -(-milli // 1000), memory)
            for node, (gpus, milli, memory) in sorted(shares.items())
        )
        mark = next((pod.plan[0] for pod in pods if pod.plan is not None), "")
        return replace(
            job, phase=phase, mark=mark, begin_s=min(begins, default=None), shares=found,
            cpus=sum(one.cpus for one in found),
        )  # fmt: skip

    def queued(self, job: Job, pods: Sequence[Pod], why: str) -> Job:
        """One that waits: for the agent, or for the scheduler."""
        first = pods[0]
        ours = all(self.waits(pod) for pod in pods)
        why = why or first.why or self.other_gate(first)
        place = "" if why else self.places.of(first.where)
        if not why and not place:
            why = "no node has what its selector, affinity and tolerations ask for"
        nodes, odd = (0, "") if why else self.node_count(pods, place)
        self.unbound[job.id] = tuple(pods)
        if ours:
            self.waiting[job.id] = tuple(pods)
        # What the agent binds itself nobody else may have: it stays, and is listed.
        foreign = bool(first.gates) and not any(pod.gated for pod in pods)
        held: Holder = (
            "other" if foreign else "agent" if ours and not ((why or odd) and self.lever == "binding") else ""
        )
        return replace(job, held=held, left=why or odd, partition=place, nodes=nodes)

    def other_gate(self, pod: Pod) -> str:
        """In words, a gate that is not the agent's; empty if there is none."""
        return next((f"another scheduling gate, {gate}" for gate in pod.gates if gate != GATE), "")

    def node_count(self, pods: Sequence[Pod], place: str) -> tuple[int, str]:
        """On how many nodes a gang has to be so that none of its pods is cut in two.

        Pods of one GPU, and of none, may be together in any number. Otherwise each node gets equally many
        pods: one, if there are nodes enough.
        """
        count, each = len(pods), pods[0].gpus
        if count == 1:
            return 1, ""
        if each == 1:
            return 0, ""
        room, largest = self.places.size(place), self.places.gpus(place)
        for together in range(1, count + 1):
            if (
                count % together == 0
                and count // together <= room
                and together * each <= max(largest, 0 if each else 1)
            ):
                return count // together, ""
        return 0, "its pods cannot be on nodes in equal numbers"

    def others(self, node: str, pods: Sequence[Pod]) -> Job:
        """All pods of a node that are none of the agent's business."""
        share = Share(
            node, 0, -(-sum(pod.milli for pod in pods) // 1000), sum(pod.memory_mib for pod in pods)
        )
        since_s = min(pod.created_s for pod in pods)
        return Job(
            OTHERS + node, "running", since_s, cpus=share.cpus, memory_mib=share.memory_mib,
            begin_s=since_s, shares=(share,), can_requeue=False,
        )  # fmt: skip

    def bound(self, pod: Pod) -> Job:
        """A pod that runs alone; most of them are the same from one moment to the next."""
        found = self.before.get(pod.key)
        if found is None or found[0] is not pod:
            found = (pod, self.on_nodes(_basis(pod.key, [pod], [pod]), [pod]))
        self.known[pod.key] = found
        return found[1]

    def on_known_nodes(self, job: Job) -> Job:
        """Without nodes that are gone."""
        known = self.names
        gone = [share.node for share in job.shares if share.node not in known]
        if not gone:
            return job
        self.notes.append(f"{job.id} is on {gone[0]}, which is not there any more")
        return replace(job, shares=tuple(share for share in job.shares if share.node in known))

    def end(self, id: str, pods: Sequence[Pod]) -> None:
        ends = [pod.end_s for pod in pods if pod.end_s is not None]
        begins = [pod.begin_s for pod in pods if pod.begin_s is not None]
        if ends and max(ends) > self.now_s - _ENDED_FOR_S:
            begin_s = min(begins, default=None)
            run_s = None if begin_s is None else max(0.0, max(ends) - begin_s)
            self.ended.append(Ended(id, max(ends), run_s, begin_s))


def _basis(id: str, alive: Sequence[Pod], pods: Sequence[Pod]) -> Job:
    """What is known of a job whether it waits or runs."""
    first = alive[0]
    return Job(
        id,
        "waiting",
        min(pod.created_s for pod in pods),
        user=first.user,
        group=first.namespace,
        gpus=sum(pod.gpus for pod in alive),
        cpus=-(-sum(pod.milli for pod in alive) // 1000),
        memory_mib=sum(pod.memory_mib for pod in alive),
        limit_s=first.limit_s,
        priority=float(first.priority),
        site_priority=float(first.priority),
        can_requeue=False,
    )


@lru_cache(maxsize=20_000)
def _node(node: NodeInfo, pods: int) -> Node:
    full = f"holds {pods} pods, its most" if pods >= node.pods else ""
    return Node(node.name, node.gpus, node.gpu_type, node.milli // 1000, node.memory_mib, node.closed or full)


def _same(old: Sequence[object], new: Sequence[object]) -> bool:
    return len(old) == len(new) and all(map(is_, old, new))


class SceneKeeper:
    """Makes scenes one after another; what is the same as in the one before is not made again.

    Args:
        lever: As of ``KubernetesSettings``.
    """

    def __init__(self, lever: str) -> None:
        self._lever = lever
        self._basis: tuple[list[Pod], list[NodeInfo]] = ([], [])
        self._scene: Scene | None = None
        self._known: Known = {}

    def scene(self, pods: list[Pod], nodes: list[NodeInfo], source: str, now_s: float) -> Scene:
        """The cluster now; at the same moment for pods and nodes that are the same objects."""
        old_pods, old_nodes = self._basis
        if self._scene is not None and _same(old_pods, pods) and _same(old_nodes, nodes):
            return self._scene
        self._basis = (pods, nodes)
        self._scene = make_scene(pods, nodes, source, now_s, self._lever, self._known)
        return self._scene
