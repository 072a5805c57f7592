"""The Kubernetes adapter: pods and nodes by watches, starts by patches or bindings."""

import re
import threading
import time
from collections.abc import Sequence
from typing import Any

from gpuyard.errors import InputError, setting
from gpuyard.serve.adapter import Action, AdapterError, GiveBack, Outcome, Start
from gpuyard.serve.kubernetes.api import Api
from gpuyard.serve.kubernetes.connection import find_connection
from gpuyard.serve.kubernetes.places import HOSTNAME, read_node
from gpuyard.serve.kubernetes.pods import Pod, read_pod
from gpuyard.serve.kubernetes.releases import Releases
from gpuyard.serve.kubernetes.scene import Scene, SceneKeeper, make_scene
from gpuyard.serve.kubernetes.watching import Watched
from gpuyard.serve.settings import ServeSettings
from gpuyard.serve.state import ClusterState

PODS, NODES = "/api/v1/pods", "/api/v1/nodes"
_FIRST_WITH_GATES = (1, 27)
_WATCH_S = 20


class KubernetesAdapter:
    """A Kubernetes cluster, reached as its settings say.

    Args:
        settings: Of the agent.
        api: The API server; None: the one that the settings or the pod that we run in lead to.
    """

    def __init__(self, settings: ServeSettings, api: Api | None = None) -> None:
        self._settings, self._lever = settings, settings.kubernetes.lever
        if settings.control != "start":
            raise InputError(
                f"{setting('control', settings.control)} is not possible on Kubernetes, where pods have "
                f"no order to change; use {setting('control', 'start')}"
            )
        self.api = api or Api(find_connection(settings.kubernetes.kubeconfig), settings.command_timeout_s)
        self.pods = Watched(self.api, PODS, read_pod, min(_WATCH_S, max(1, int(settings.max_age_s / 2))))
        self.nodes = Watched(self.api, NODES, read_node, min(_WATCH_S, max(1, int(settings.max_age_s / 2))))
        self._watched: list[Watched[Any]] = [self.pods, self.nodes]
        self.releases = Releases(self.api, self._lever, self._hostname)
        self._source = ""
        self._scene: Scene | None = None
        self._keeper = SceneKeeper(self._lever)
        self._begin = threading.Lock()
        self.may_act = True
        """Whether this agent leads; one that does not changes nothing."""

    @property
    def name(self) -> str:
        """What it is."""
        return "kubernetes"

    def begin(self) -> None:
        """Start the watches, once.

        Raises:
            AdapterError: if the API server does not answer.
            InputError: if it is too old.
        """
        with self._begin:
            if not self._source:
                self._source = self._checked()
                for watched in self._watched:
                    watched.start()
        for watched in self._watched:
            watched.wait(self._settings.command_timeout_s)

    def _checked(self) -> str:
        """What the server is, if it can be served."""
        version = self.api.get("/version")
        major, minor = _version(str(version.get("major", "")), str(version.get("minor", "")))
        if self._lever == "gates" and (major, minor) < _FIRST_WITH_GATES:
            raise InputError(
                f"this is Kubernetes {major}.{minor}, which drops scheduling gates silently; use 1.27 or "
                f"later, or {setting('kubernetes.lever', 'binding')}"
            )
        return f"kubernetes {version.get('gitVersion', '')}"

    def close(self) -> None:
        """End the watches."""
        for watched in self._watched:
            watched.stop()
        self.api.interrupt()
        for watched in self._watched:
            watched.join()
        self.releases.close()
        self.api.close()

    def scene(self) -> Scene:
        """Pods and nodes now.

        Raises:
            AdapterError: if they cannot be known.
        """
        self.begin()
        age_s = self._settings.max_age_s
        return make_scene(self.pods.all(age_s), self.nodes.all(age_s), self._source, time.time(), self._lever)

    def observe(self) -> ClusterState:
        """The cluster now. Gangs of which some were let go before a sudden end are let go to the last pod.

        Raises:
            AdapterError: if it cannot be known.
        """
        scene = self._scene = self.scene()
        if scene.partial and self._settings.acts and self.may_act:
            self._follow(scene.partial)
        return scene.state.at(time.time())

    def apply(self, actions: Sequence[Action]) -> list[Outcome]:
        """Try each action, in this order."""
        return [self._apply(action) for action in actions]

    def _apply(self, action: Action) -> Outcome:
        began = time.monotonic()
        problem: AdapterError | None = None
        try:
            if not self.may_act:
                raise AdapterError("another agent leads", "refused")
            self._do(action)
        except AdapterError as error:
            problem = error
        return outcome_of(action, problem, time.monotonic() - began)

    def _do(self, action: Action) -> None:
        waiting = {} if self._scene is None else self._scene.waiting
        pods = waiting.get(action.job)
        if pods is None:
            raise AdapterError(f"{action.job} does not wait", "missing")
        if isinstance(action, Start):
            known = {} if self._scene is None else self._scene.state.node_by_name
            if action.stop:
                raise AdapterError("pods are never stopped", "refused")
            if not known.keys() >= set(action.nodes):
                raise AdapterError(f"some of {', '.join(action.nodes)} are no nodes", "refused")
            self.releases.start(pods, places_of(pods, action), action.decision)
        elif isinstance(action, GiveBack):
            self._give_back(pods)
        else:
            raise AdapterError("pods have no order to change", "refused")

    def _give_back(self, pods: Sequence[Pod]) -> None:
        planned = [(pod, "") for pod in pods]
        errors = self.releases.each(planned, lambda pod, _: self.releases.give_back(pod))
        for error in errors:
            if error is not None and error.code != "missing":
                raise error

    def give_back_all(self) -> list[Outcome]:
        """Open every gate of the agent. A gang of which some were let go already follows them.

        Raises:
            AdapterError: if pods cannot be listed.
        """
        if self._lever == "binding":
            return []  # nobody else may bind these
        listed, _ = self.api.everything(PODS)
        pods = [read_pod(one) for one in listed]
        partial = make_scene(pods, [], "kubernetes", time.time(), self._lever).partial
        began = time.monotonic()
        followed = self._follow(partial)
        # One whose node is gone cannot follow; it goes where the scheduler sends it.
        done = {pod.key for pod, error in zip(partial, followed, strict=True) if error is None}
        rest = [pod for pod in pods if pod.gated and not pod.over and pod.key not in done]
        errors = self.releases.each([(pod, "") for pod in rest], lambda pod, _: self.releases.give_back(pod))
        each_s = (time.monotonic() - began) / max(1, len(done) + len(rest))
        outcomes = [Outcome(GiveBack(key, "its gang was let go"), seconds=each_s) for key in sorted(done)]
        return outcomes + [
            outcome_of(GiveBack(pod.key, "all pods are given back"), error, each_s)
            for pod, error in zip(rest, errors, strict=True)
        ]

    def _follow(self, pods: Sequence[Pod]) -> list[AdapterError | None]:
        """Let pods go to where their gang's plan has them."""
        plans = {pod.key: pod.plan or ("", "") for pod in pods}
        return self.releases.each(
            [(pod, plans[pod.key][1]) for pod in pods],
            lambda pod, node: self.releases.let_go(pod, node, plans[pod.key][0]),
        )

    def _hostname(self, node: str) -> str:
        """What the node's label says; mostly its name."""
        known = next((one for one in self.nodes._objects.values() if one.name == node), None)
        if known is not None:
            return known.labels.get(HOSTNAME, node)
        labels = (self.api.get(f"{NODES}/{node}")["metadata"].get("labels")) or {}
        return str(labels.get(HOSTNAME, node))


def outcome_of(action: Action, problem: AdapterError | None, seconds: float) -> Outcome:
    """What became of an action."""
    if problem is None:
        return Outcome(action, seconds=seconds)
    # One that changed meanwhile does not wait any more, or waits for the next round.
    code = {"changed": "missing", "conflict": "missing", "gone": "exit"}.get(problem.code, problem.code)
    return Outcome(action, str(problem) or "no words", code, seconds)


def places_of(pods: Sequence[Pod], start: Start) -> list[str]:
    """A node for each pod.

    Raises:
        AdapterError: if the GPUs on the nodes are not those of whole pods.
    """
    each = pods[0].gpus
    found: list[str] = []
    for node, gpus in zip(start.nodes, start.gpus, strict=True):
        if each and gpus % each:
            raise AdapterError(f"{gpus} GPUs on {node} are no whole pods of {each}", "refused")
        found += [node] * (gpus // each if each else len(pods) // len(start.nodes))
    if len(found) != len(pods):
        raise AdapterError(f"places for {len(found)} pods, but there are {len(pods)}", "refused")
    return found


def _version(major: str, minor: str) -> tuple[int, int]:
    numbers = [re.match(r"\d+", text) for text in (major, minor)]
    return tuple(int(found[0]) if found else 0 for found in numbers)  # type: ignore[return-value]
