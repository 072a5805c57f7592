"""Kueue: workloads that have their quota are admitted in the policy's order, by an AdmissionCheck."""

import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import Any

from gpuyard.serve.adapter import Action, AdapterError, GiveBack, Outcome, Start
from gpuyard.serve.kubernetes.adapter import KubernetesAdapter, outcome_of
from gpuyard.serve.kubernetes.api import Api, Object
from gpuyard.serve.kubernetes.pods import Pod, read_pod
from gpuyard.serve.kubernetes.quantities import moment, stamp
from gpuyard.serve.kubernetes.watching import Watched
from gpuyard.serve.settings import ServeSettings
from gpuyard.serve.state import ClusterState, Job, Share

GROUP = "/apis/kueue.x-k8s.io/v1beta1"
WORKLOADS, CHECKS = f"{GROUP}/workloads", f"{GROUP}/admissionchecks"
CONTROLLER = "gpuyard/admission"
"""``spec.controllerName`` of the AdmissionCheck that is answered here."""
_TRIES = 4


@dataclass(frozen=True, slots=True)
class Workload:
    """A workload, as far as it matters.

    Attributes:
        check: State of our check: ``Pending``, ``Ready``, ``Retry``, ``Rejected``; empty if it has none.
        plan: Where its GPUs were expected when it was admitted, node by node.
        owners: Uids of what it stands for: pods of these are its pods.
    """

    namespace: str
    name: str
    reserved: bool
    over: bool
    check: str
    plan: tuple[tuple[str, int], ...]
    pods: tuple[tuple[int, Pod], ...]
    owners: frozenset[str]
    priority: int
    created_s: float
    queue: str

    @property
    def key(self) -> str:
        """``NAMESPACE/NAME``."""
        return f"{self.namespace}/{self.name}"

    @property
    def path(self) -> str:
        """Of it in the API."""
        return f"{GROUP}/namespaces/{self.namespace}/workloads/{self.name}"


def read_workload(found: Object, check: str) -> Workload:
    """A workload of the API.

    Args:
        found: As JSON has it.
        check: Name of our AdmissionCheck.
    """
    meta, spec, status = found["metadata"], found.get("spec") or {}, found.get("status") or {}
    conditions = {str(one["type"]): one["status"] == "True" for one in status.get("conditions") or ()}
    ours: Object = next((one for one in status.get("admissionChecks") or () if one["name"] == check), {})
    pods = []
    for one in spec.get("podSets") or ():
        template = one.get("template") or {}
        shape = {"metadata": {"namespace": meta["namespace"], "name": str(one.get("name", "main"))}}
        pods.append((int(one.get("count") or 0), read_pod({**shape, "spec": template.get("spec") or {}})))
    return Workload(
        namespace=str(meta["namespace"]),
        name=str(meta["name"]),
        reserved=conditions.get("QuotaReserved", False),
        over=conditions.get("Finished", False) or meta.get("deletionTimestamp") is not None,
        check=str(ours.get("state", "")),
        plan=_read_plan(str(ours.get("message", ""))),
        pods=tuple(pods),
        owners=frozenset(str(one["uid"]) for one in meta.get("ownerReferences") or () if one.get("uid")),
        priority=int(spec.get("priority") or 0),
        created_s=moment(meta.get("creationTimestamp")) or 0.0,
        queue=str(spec.get("queueName") or ""),
    )


def _read_plan(text: str) -> tuple[tuple[str, int], ...]:
    """``gpuyard DECISION: n1=8 n2=4`` the other way."""
    head, _, rest = text.partition(": ")
    if not head.startswith("gpuyard "):
        return ()
    parts = [part.partition("=") for part in rest.split()]
    return tuple((node, int(count)) for node, _, count in parts if count.isdecimal())


class KueueAdapter:
    """Kueue's workloads. Its quotas stay in force: only workloads that have theirs are admitted.

    Args:
        settings: Of the agent.
        api: The API server; None: as of ``KubernetesAdapter``.
    """

    def __init__(self, settings: ServeSettings, api: Api | None = None) -> None:
        self._check = settings.kubernetes.admission_check
        self._settings = settings
        self.pods_and_nodes = KubernetesAdapter(settings, api)
        self.api = self.pods_and_nodes.api
        seconds = min(20, max(1, int(settings.max_age_s / 2)))
        self.workloads = Watched(
            self.api, WORKLOADS, lambda found: read_workload(found, self._check), seconds
        )
        self._begun = False
        self._begin = threading.Lock()
        self._waiting: dict[str, Workload] = {}
        self.may_act = True
        """Whether this agent leads; one that does not changes nothing."""

    @property
    def name(self) -> str:
        """What it is."""
        return "kubernetes"

    def close(self) -> None:
        """End the watches."""
        self.workloads.stop()
        self.pods_and_nodes.close()
        self.workloads.join()

    def observe(self) -> ClusterState:
        """The cluster now.

        Raises:
            AdapterError: if it cannot be known.
        """
        scene = self.pods_and_nodes.scene()
        with self._begin:
            if not self._begun:
                self.workloads.start()
                self._begun = True
        self.workloads.wait(self._settings.command_timeout_s)
        found = [one for one in self.workloads.all(self._settings.max_age_s) if not one.over]
        self._waiting = {one.key: one for one in found if one.reserved and one.check == "Pending"}
        if self._settings.acts and self.may_act:
            self._say_active()
        admitted = [one for one in found if one.check == "Ready"]
        pods = self.pods_and_nodes.pods.all(self._settings.max_age_s)
        there = {pod.owner for pod in pods if pod.node and pod.owner}
        coming = [one for one in admitted if not there & one.owners]
        jobs = [*(_waiting_job(one) for one in self._waiting.values()), *_running_jobs(coming, scene.state)]
        return replace(scene.state, jobs=tuple(jobs), partitions=())

    def apply(self, actions: Sequence[Action]) -> list[Outcome]:
        """Try each action, in this order."""
        return [self._apply(action) for action in actions]

    def give_back_all(self) -> list[Outcome]:
        """Admit every workload that waits for the agent alone: Kueue's order and quotas decide then.

        Raises:
            AdapterError: if workloads cannot be listed.
        """
        listed, _ = self.api.everything(WORKLOADS)
        found = [read_workload(one, self._check) for one in listed]
        outcomes = []
        for one in found:
            if not one.over and one.check == "Pending":
                action = GiveBack(one.key, "all workloads are given back")
                outcomes.append(self._written(action, one, "given back to Kueue"))
        return outcomes

    def _apply(self, action: Action) -> Outcome:
        workload = self._waiting.get(action.job)
        if workload is None:
            return outcome_of(action, AdapterError(f"{action.job} does not wait", "missing"), 0.0)
        if not self.may_act:
            return outcome_of(action, AdapterError("another agent leads", "refused"), 0.0)
        if isinstance(action, GiveBack):
            return self._written(action, workload, "left to Kueue: " + action.why)
        if not isinstance(action, Start) or action.stop:
            return outcome_of(action, AdapterError("workloads are only admitted", "refused"), 0.0)
        places = " ".join(f"{node}={gpus}" for node, gpus in zip(action.nodes, action.gpus, strict=True))
        return self._written(action, workload, f"gpuyard {action.decision}: {places}")

    def _written(self, action: Action, workload: Workload, words: str) -> Outcome:
        began = time.monotonic()
        problem: AdapterError | None = None
        try:
            self._admit(workload, words)
        except AdapterError as error:
            problem = error
        return outcome_of(action, problem, time.monotonic() - began)

    def _admit(self, workload: Workload, words: str) -> None:
        """Set our check to Ready, if it is still pending."""
        error = AdapterError(f"{workload.key} changes too often", "conflict")
        for _ in range(_TRIES):
            found = self.api.get(workload.path)
            checks: list[Object] = (found.get("status") or {}).get("admissionChecks") or []
            place = next((at for at, one in enumerate(checks) if one["name"] == self._check), None)
            if place is None:
                raise AdapterError(f"{workload.key} does not ask for the check", "missing")
            if checks[place].get("state") == "Ready":
                return
            ready = {**checks[place], "state": "Ready", "message": words, "lastTransitionTime": _second()}
            version = found["metadata"]["resourceVersion"]
            patch = [
                {"op": "test", "path": "/metadata/resourceVersion", "value": version},
                {"op": "replace", "path": f"/status/admissionChecks/{place}", "value": ready},
            ]
            try:
                self.api.patch(f"{workload.path}/status", patch)
            except AdapterError as problem:
                if problem.code in ("refused", "missing"):
                    raise
                error = problem
                continue
            return
        raise error

    def _say_active(self) -> None:
        """Kueue admits nothing through a check whose controller has not said that it is there."""
        path = f"{CHECKS}/{self._check}"
        found = self.api.get(path)
        if (found.get("spec") or {}).get("controllerName") != CONTROLLER:
            raise AdapterError(f"AdmissionCheck {self._check} is not of {CONTROLLER}", "refused")
        conditions: list[Object] = (found.get("status") or {}).get("conditions") or []
        if any(one["type"] == "Active" and one["status"] == "True" for one in conditions):
            return
        active = {"type": "Active", "status": "True", "reason": "Serving", "message": "gpuyard decides",
                  "lastTransitionTime": _second()}  # fmt: skip
        kept = [one for one in conditions if one["type"] != "Active"]
        self.api.patch(
            f"{path}/status", [{"op": "add", "path": "/status", "value": {"conditions": [*kept, active]}}]
        )


def _second() -> str:
    return stamp(time.time()).partition(".")[0] + "Z"


def _totals(workload: Workload) -> dict[str, Any]:
    count = sum(count for count, _ in workload.pods)
    gpus = sum(count * pod.gpus for count, pod in workload.pods)
    milli = sum(Decimal(count * pod.milli) for count, pod in workload.pods)
    memory = sum(count * pod.memory_mib for count, pod in workload.pods)
    shapes = {(pod.gpus, pod.milli, pod.memory_mib) for count, pod in workload.pods if count}
    alike = len(shapes) == 1 and next(iter(shapes))[0] > 1
    return {
        "gpus": gpus, "cpus": int(-(-milli // 1000)), "memory_mib": memory, "nodes": count if alike else 0,
        "user": workload.namespace, "group": workload.namespace, "qos": workload.queue or None,
        "priority": float(workload.priority), "site_priority": float(workload.priority),
        "limit_s": next((pod.limit_s for _, pod in workload.pods if pod.limit_s is not None), None),
        "can_requeue": False,
    }  # fmt: skip


def _waiting_job(workload: Workload) -> Job:
    why = next((pod.why for _, pod in workload.pods if pod.why), "")
    return Job(workload.key, "waiting", workload.created_s, held="agent", left=why, **_totals(workload))


def _running_jobs(coming: Sequence[Workload], state: ClusterState) -> list[Job]:
    """Pods that run, and admitted workloads whose pods are not there yet, where they were expected."""
    running = [job for job in state.jobs if not job.waits]
    for workload in coming:
        total = _totals(workload)
        shares = tuple(
            Share(node, gpus, total["cpus"] * gpus // max(1, total["gpus"]),
                  total["memory_mib"] * gpus // max(1, total["gpus"]))
            for node, gpus in workload.plan
            if node in state.node_by_name
        )  # fmt: skip
        if shares:
            running.append(
                Job(workload.key, "starting", workload.created_s, begin_s=None, shares=shares, **total)
            )
    return running
