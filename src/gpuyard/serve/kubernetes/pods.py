"""Pods: what they ask for, whether they wait for the agent, and what of them it does not handle."""

import json
from collections.abc import Iterable
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from gpuyard.serve.kubernetes.api import Object
from gpuyard.serve.kubernetes.quantities import moment, quantity

GATE = "gpuyard/queue"
"""The scheduling gate that keeps a pod for the agent."""
GROUP, SIZE = "gpuyard/pod-group", "gpuyard/pod-group-size"
"""Label of the pods of a gang, and label or annotation with how many they are."""
PLAN = "gpuyard/plan"
"""Annotation: the decision and the node of a pod, as ``DECISION@NODE``."""
LIMIT, USER = "gpuyard/limit-s", "gpuyard/user"
"""Annotation with the longest run time, seconds; label with who submitted it."""
SCHEDULER = "gpuyard"
"""``schedulerName`` of pods that the agent binds itself."""
GPU = "nvidia.com/gpu"
_KNOWN = {GPU, "cpu", "memory"}


@dataclass(frozen=True, slots=True)
class Pod:
    """A pod, as far as it matters.

    Attributes:
        key: ``NAMESPACE/NAME``.
        gates: Names of all its scheduling gates.
        plan: The decision and the node that the agent wrote; empty if none.
        node: Where it is bound; empty if it is not.
        over: Whether it has ended.
        ending: Whether it was told to end.
        where: What restricts its nodes, as a key for ``Places``.
        why: Why the agent does not handle it; empty if it does.
        milli: CPUs, thousandths.
        owner: Uid of what controls it; empty if nothing does.
        size: Of its gang, as it says itself; 0: it does not.
    """

    namespace: str
    name: str
    uid: str
    owner: str
    gates: tuple[str, ...]
    plan: tuple[str, str] | None
    node: str
    over: bool
    ending: bool
    scheduler: str
    gpus: int
    milli: int
    memory_mib: int
    where: tuple[str, str, str]
    why: str
    group: str
    size: int
    user: str
    priority: int
    created_s: float
    begin_s: float | None
    end_s: float | None
    limit_s: float | None
    words: str

    @property
    def key(self) -> str:
        """``NAMESPACE/NAME``."""
        return f"{self.namespace}/{self.name}"

    @property
    def path(self) -> str:
        """Of it in the API."""
        return f"/api/v1/namespaces/{self.namespace}/pods/{self.name}"

    @property
    def gated(self) -> bool:
        """Whether it waits for the agent's gate to open."""
        return GATE in self.gates and not self.node

    @property
    def released(self) -> bool:
        """Whether the agent let it go to a node on which it is not bound yet."""
        return self.plan is not None and not self.gates and not self.node and not self.over


def read_pod(pod: Object) -> Pod:
    """A pod of the API."""
    meta, spec, status = pod["metadata"], pod.get("spec") or {}, pod.get("status") or {}
    labels, notes = meta.get("labels") or {}, meta.get("annotations") or {}
    asked, odd = _asked(spec)
    group = str(labels.get(GROUP, ""))
    size, why_size = _size(str(labels.get(SIZE, notes.get(SIZE, ""))), group)
    return Pod(
        namespace=str(meta["namespace"]),
        name=str(meta["name"]),
        uid=str(meta.get("uid", "")),
        owner=next(
            (str(one["uid"]) for one in meta.get("ownerReferences") or () if one.get("controller")), ""
        ),
        gates=tuple(str(one["name"]) for one in spec.get("schedulingGates") or ()),
        plan=_plan(str(notes.get(PLAN, ""))),
        node=str(spec.get("nodeName") or ""),
        over=status.get("phase") in ("Succeeded", "Failed"),
        ending=meta.get("deletionTimestamp") is not None,
        scheduler=str(spec.get("schedulerName") or "default-scheduler"),
        gpus=int(asked.get(GPU, 0)),
        milli=_up(asked.get("cpu", Decimal(0)) * 1000),
        memory_mib=_up(asked.get("memory", Decimal(0)) / 2**20),
        where=_where(spec),
        why=odd or why_size or _special(spec),
        group=group,
        size=size,
        user=str(labels.get(USER) or meta["namespace"]),
        priority=int(spec.get("priority") or 0),
        created_s=moment(meta.get("creationTimestamp")) or 0.0,
        begin_s=moment(status.get("startTime")),
        end_s=_end_s(status),
        limit_s=_limit_s(spec, notes),
        words=_words(status),
    )


def _plan(text: str) -> tuple[str, str] | None:
    decision, at, node = text.partition("@")
    return (decision, node) if at and node else None


def _up(amount: Decimal) -> int:
    return int(-(-amount // 1))


def _asked(spec: Object) -> tuple[dict[str, Decimal], str]:
    """What its containers ask for together, and what of it is not handled."""
    total: dict[str, Decimal] = {}
    try:
        for container in spec.get("containers") or ():
            _add(total, _requests(container))
        first: dict[str, Decimal] = {}
        for container in spec.get("initContainers") or ():
            requests = _requests(container)
            if container.get("restartPolicy") == "Always":  # a sidecar, which stays
                _add(total, requests)
            for name, amount in requests.items():
                first[name] = max(first.get(name, Decimal(0)), amount)
        for name, amount in first.items():
            total[name] = max(total.get(name, Decimal(0)), amount)
        _add(total, {name: quantity(text) for name, text in (spec.get("overhead") or {}).items()})
    except ValueError as error:
        return {}, str(error)
    gpus = total.get(GPU, Decimal(0))
    if gpus != gpus // 1 or min(total.values(), default=Decimal(0)) < 0:
        return {}, "amounts that cannot be"
    strange = sorted(name for name, amount in total.items() if amount and name not in _KNOWN)
    if strange:
        mig = strange[0].startswith("nvidia.com/mig-")
        return total, f"{'MIG slices' if mig else 'asks for'} {strange[0]}"
    return total, ""


def _requests(container: Object) -> dict[str, Decimal]:
    resources = container.get("resources") or {}
    named = {**(resources.get("limits") or {}), **(resources.get("requests") or {})}
    return {str(name): quantity(text) for name, text in named.items()}


def _add(total: dict[str, Decimal], more: dict[str, Decimal]) -> None:
    for name, amount in more.items():
        total[name] = total.get(name, Decimal(0)) + amount


def _size(text: str, group: str) -> tuple[int, str]:
    if not group:
        return 1, ""
    if not text.isdecimal() or not 1 <= int(text) <= 10_000:
        return 0, f"a gang without a readable {SIZE}"
    return int(text), ""


def _where(spec: Object) -> tuple[str, str, str]:
    affinity = ((spec.get("affinity") or {}).get("nodeAffinity") or {}).get(
        "requiredDuringSchedulingIgnoredDuringExecution"
    )
    parts = (spec.get("nodeSelector") or {}, affinity or {}, spec.get("tolerations") or [])
    selector, required, tolerations = (json.dumps(part, sort_keys=True) for part in parts)
    return selector, required, tolerations


def _special(spec: Object) -> str:
    """Demands on its place that the agent does not know how to meet."""
    affinity = spec.get("affinity") or {}
    for kind in ("podAffinity", "podAntiAffinity"):
        if (affinity.get(kind) or {}).get("requiredDuringSchedulingIgnoredDuringExecution"):
            return kind
    spreads: Iterable[Any] = spec.get("topologySpreadConstraints") or ()
    if any(one.get("whenUnsatisfiable", "DoNotSchedule") == "DoNotSchedule" for one in spreads):
        return "topologySpreadConstraints"
    if spec.get("resourceClaims"):
        return "resourceClaims"
    volumes: Iterable[Any] = spec.get("volumes") or ()
    if any("persistentVolumeClaim" in one or "ephemeral" in one for one in volumes):
        return "volume claims"
    containers = [*(spec.get("containers") or ()), *(spec.get("initContainers") or ())]
    if any(port.get("hostPort") for one in containers for port in one.get("ports") or ()):
        return "host ports"
    return ""


def _limit_s(spec: Object, notes: dict[str, Any]) -> float | None:
    text = str(notes.get(LIMIT, "") or spec.get("activeDeadlineSeconds") or "")
    return float(text) if text.isdecimal() and 0 < int(text) < 10**9 else None


def _end_s(status: Object) -> float | None:
    ends = [
        moment((one.get("state") or {}).get("terminated", {}).get("finishedAt"))
        for one in status.get("containerStatuses") or ()
        if (one.get("state") or {}).get("terminated")
    ]
    return max((end for end in ends if end is not None), default=None)


def _words(status: Object) -> str:
    """Why the scheduler has not placed it, in the scheduler's words."""
    for one in status.get("conditions") or ():
        if one.get("type") == "PodScheduled" and one.get("status") == "False":
            return str(one.get("message", ""))[:200]
    return ""
