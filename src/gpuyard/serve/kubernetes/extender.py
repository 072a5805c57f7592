"""Answers to kube-scheduler as its extender, and to the API server as a webhook that gates pods.

Keys are those of the Go types of ``k8s.io/kube-scheduler/extender/v1``, which have no JSON names.
"""

import base64
import json
import threading
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from gpuyard.policies.base import Policy
from gpuyard.serve.adapter import AdapterError
from gpuyard.serve.decision.deciding import IllegalDecisionError, decide_live, encoder_for
from gpuyard.serve.decision.memory import Memory
from gpuyard.serve.decision.room import Room
from gpuyard.serve.kubernetes.api import Object
from gpuyard.serve.kubernetes.places import read_node
from gpuyard.serve.kubernetes.pods import GATE, Pod, read_pod
from gpuyard.serve.kubernetes.releases import Releases
from gpuyard.serve.kubernetes.scene import Scene
from gpuyard.serve.process.log import Log
from gpuyard.serve.process.routes import AnswerError, Request, Routes
from gpuyard.serve.settings import ServeSettings
from gpuyard.serve.state import ClusterState, Job

BEST = 10
"""The largest score that kube-scheduler takes."""


class Extender:
    """Where a pod may go, and where the policy wants it.

    Args:
        scene: Pods and nodes now.
        policy: Who decides.
        settings: Of the agent.
        releases: Binds pods.
        log: Where to say what was chosen.
    """

    def __init__(
        self,
        scene: Callable[[], Scene],
        policy: Policy,
        settings: ServeSettings,
        releases: Releases,
        log: Log,
    ) -> None:
        self._scene, self._policy, self._releases, self._log = scene, policy, releases, log
        self._settings = settings.model_copy(update={"mode": "active", "control": "start"})
        self._acts = settings.acts
        self._encoder = encoder_for(policy, self._settings)
        self._memory = Memory(zero_s=0.0, instant=0)
        self._lock = threading.Lock()
        self._rooms: tuple[ClusterState | None, Room | None] = (None, None)

    def routes(self) -> Routes:
        """Addresses of the extender and of the webhook."""
        return {
            ("POST", "/filter"): lambda asked: self.filter(_document(asked)),
            ("POST", "/prioritize"): lambda asked: self.prioritize(_document(asked)),
            ("POST", "/bind"): lambda asked: self.bind(_document(asked)),
            ("POST", "/mutate"): lambda asked: gate_pod(_document(asked)),
        }

    def filter(self, asked: Object) -> Object:
        """Nodes on which a pod fits, beside all that runs or is on its way."""
        pod, names = _pod_and_names(asked)
        if pod.why or not self._acts:
            return _filtered(asked, names, {})
        state = self._state()
        room, job = self._room(state), _job(pod, state)
        failed = {}
        for name in names:
            node = state.node_by_name.get(name)
            if node is not None and (node.closed or not room.holds(job, [(name, pod.gpus)])):
                failed[name] = node.closed or "gpuyard: no room beside what runs or is on its way"
        return _filtered(asked, [name for name in names if name not in failed], failed)

    def prioritize(self, asked: Object) -> list[Object]:
        """The best score for the node that the policy chooses, none for the others."""
        pod, names = _pod_and_names(asked)
        best = "" if pod.why or not self._acts or not names else self._choose(pod, names, self._state())
        return [{"Host": name, "Score": BEST if name == best else 0} for name in names]

    def bind(self, asked: Object) -> Object:
        """Bind a pod, if it fits."""
        try:
            namespace, name, uid, node = (
                str(asked[key]) for key in ("PodNamespace", "PodName", "PodUID", "Node")
            )
        except KeyError as missing:
            raise AnswerError(422, f"{missing} is missing", "send ExtenderBindingArgs") from None
        if not self._acts:
            return {"Error": "this agent only watches; leave bindVerb out"}
        try:
            scene = self._scene()
            pod = next((one for pods in scene.unbound.values() for one in pods if one.uid == uid), None)
            if pod is None or pod.key != f"{namespace}/{name}":
                return {"Error": f"{namespace}/{name} does not wait"}
            if not self._room(scene.state).holds(_job(pod, scene.state), [(node, pod.gpus)]):
                return {"Error": f"there is no room on {node}"}
            self._releases.bind(pod, node)
        except (AdapterError, KeyError) as error:
            return {"Error": str(error)}
        return {"Error": ""}

    def _room(self, state: ClusterState) -> Room:
        """What is free; the same for all questions about one state."""
        known, room = self._rooms
        if known is not state or room is None:
            room = Room(state, self._memory)
            self._rooms = (state, room)
        return room

    def _state(self) -> ClusterState:
        """The cluster now."""
        try:
            state = self._scene().state
        except AdapterError as error:
            raise AnswerError(503, str(error), "set ignorable: true, and kube-scheduler goes on") from None
        return state

    def _choose(self, pod: Pod, names: Sequence[str], state: ClusterState) -> str:
        allowed = frozenset(names)
        job = _job(pod, state)
        nodes = tuple(
            node if node.closed or node.name in allowed else replace(node, closed="no candidate")
            for node in state.nodes
        )
        jobs = (*(one for one in state.jobs if not one.waits), job)
        asked = replace(state, jobs=jobs, nodes=nodes, partitions=())
        with self._lock:
            try:
                made = decide_live(self._encoder.encode(asked, self._memory), self._policy)
            except (IllegalDecisionError, ValueError) as error:
                self._log.warning("no node chosen", pod=pod.key, error=str(error))
                return ""
        nodes_of = made.starts[0].nodes if made.starts else ()
        passed = len(nodes_of) == 1 and nodes_of[0][0] in allowed and self._room(state).holds(job, nodes_of)
        best = nodes_of[0][0] if passed else ""
        self._log.info("node chosen", pod=pod.key, node=best, candidates=len(names))
        return best


def gate_pod(asked: Object) -> Object:
    """The answer to an AdmissionReview: a GPU pod that the agent handles gets its gate.

    The webhook's ``failurePolicy: Ignore`` lets pods in without a gate while nobody answers.
    """
    try:
        request = asked["request"]
        found = request["object"]
        found["metadata"].setdefault("namespace", request.get("namespace", ""))
        found["metadata"].setdefault("name", "")
        pod = read_pod(found)
        uid = str(request["uid"])
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise AnswerError(
            422, f"this is no AdmissionReview of a pod ({error})", "see the manifests"
        ) from None
    answer: Object = {"uid": uid, "allowed": True}
    if pod.gpus and not pod.why and not pod.node and not pod.gates and pod.scheduler == "default-scheduler":
        patch = [{"op": "add", "path": "/spec/schedulingGates", "value": [{"name": GATE}]}]
        answer |= {"patchType": "JSONPatch", "patch": base64.b64encode(json.dumps(patch).encode()).decode()}
    return {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": answer}


def _document(asked: Request) -> Object:
    try:
        found = json.loads(asked.body)
    except (ValueError, RecursionError):
        raise AnswerError(400, "the body is no JSON", "send what kube-scheduler sends") from None
    if not isinstance(found, dict):
        raise AnswerError(422, "the body is no object", "send what kube-scheduler sends")
    return found


def _pod_and_names(asked: Object) -> tuple[Pod, list[str]]:
    """The pod, and the nodes to choose from, however they were sent."""
    try:
        pod = read_pod(asked["Pod"])
        if asked.get("NodeNames") is not None:
            return pod, [str(name) for name in asked["NodeNames"]]
        return pod, [read_node(one).name for one in (asked.get("Nodes") or {}).get("items") or ()]
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise AnswerError(
            422,
            f"these are no ExtenderArgs ({type(error).__name__}: {error})",
            "send Pod and Nodes or NodeNames",
        ) from None


def _filtered(asked: Object, names: Sequence[str], failed: dict[str, str]) -> Object:
    """In the form in which nodes were sent."""
    kept = set(names)
    nodes: Any = None
    if asked.get("NodeNames") is None:
        items = (asked.get("Nodes") or {}).get("items") or ()
        nodes = {"items": [one for one in items if one["metadata"]["name"] in kept]}
    return {
        "Nodes": nodes,
        "NodeNames": None if asked.get("NodeNames") is None else list(names),
        "FailedNodes": failed,
        "FailedAndUnresolvableNodes": {},
        "Error": "",
    }


def _job(pod: Pod, state: ClusterState) -> Job:
    return Job(
        pod.key, "waiting", pod.created_s, user=pod.user, group=pod.namespace, gpus=pod.gpus, nodes=1,
        cpus=-(-pod.milli // 1000), memory_mib=pod.memory_mib, limit_s=pod.limit_s,
        priority=float(pod.priority), site_priority=float(pod.priority), held="agent",
    )  # fmt: skip
