"""Letting pods go: onto their nodes, a whole gang or nobody, or back to the scheduler."""

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor

from gpuyard.serve.adapter import AdapterError
from gpuyard.serve.kubernetes.api import Api, Object
from gpuyard.serve.kubernetes.places import HOSTNAME
from gpuyard.serve.kubernetes.pods import GATE, PLAN, Pod, read_pod

_AT_ONCE = 4
_TRIES = 4
Change = Callable[[Object], list[Object]]
"""What to change of a pod as it is now."""


class Releases:
    """Writes to pods. What was written is written again only if it is not there.

    Args:
        api: The API server.
        lever: As of ``KubernetesSettings``.
        hostname: Value of the label by which pods are sent to a node.
    """

    def __init__(self, api: Api, lever: str, hostname: Callable[[str], str]) -> None:
        self._api, self._lever, self._hostname = api, lever, hostname
        self._pool = ThreadPoolExecutor(_AT_ONCE, "kubernetes")

    def close(self) -> None:
        """End the threads."""
        self._pool.shutdown(wait=False, cancel_futures=True)

    def start(self, pods: Sequence[Pod], nodes: Sequence[str], decision: str) -> None:
        """Send pods to their nodes: all of them, or in the end nobody.

        A gang's plan is written to all of its pods before the first is let go. So whoever comes after a
        sudden end, the agent or the watchdog, lets the others follow to where their places are.

        Raises:
            AdapterError: if nobody was let go.
        """
        planned = list(zip(pods, nodes, strict=True))
        if len(pods) > 1:
            _raise_first(self.each(planned, lambda pod, node: self._plan(pod, node, decision)))
        errors = self.each(planned, lambda pod, node: self.let_go(pod, node, decision))
        if all(error is not None for error in errors):
            _raise_first(errors)

    def each(
        self, planned: Sequence[tuple[Pod, str]], do: Callable[[Pod, str], None]
    ) -> list[AdapterError | None]:
        """What went wrong with each."""

        def attempt(pod: Pod, node: str) -> AdapterError | None:
            try:
                do(pod, node)
            except AdapterError as error:
                return error
            return None

        return list(self._pool.map(lambda one: attempt(*one), planned))

    def let_go(self, pod: Pod, node: str, decision: str) -> None:
        """Send one pod to its node.

        Raises:
            AdapterError: if it is not on its way.
        """
        if self._lever == "binding":
            self.bind(pod, node)
            return
        selector = {HOSTNAME: self._hostname(node)}

        def change(now: Object) -> list[Object]:
            spec = now["spec"]
            whole = {**(spec.get("nodeSelector") or {}), **selector}
            return [
                *_without_gate(spec),
                {"op": "add", "path": "/spec/nodeSelector", "value": whole},
                *_noted(now, f"{decision}@{node}"),
            ]

        self._change(pod, change, lambda now: not now.gated and now.plan == (decision, node))

    def give_back(self, pod: Pod) -> None:
        """Let the scheduler choose.

        Raises:
            AdapterError: if its gate is still there.
        """
        if self._lever == "binding":
            raise AdapterError(f"{pod.key}: its schedulerName cannot be changed", "refused")

        def change(now: Object) -> list[Object]:
            return [*_without_gate(now["spec"]), *_noted(now, None)]

        self._change(pod, change, lambda now: not now.gated)

    def _plan(self, pod: Pod, node: str, decision: str) -> None:
        text = f"{decision}@{node}"
        self._change(pod, lambda now: _noted(now, text), lambda now: now.plan == (decision, node))

    def _change(self, pod: Pod, change: Change, done: Callable[[Pod], bool]) -> None:
        """Read, patch, and look again when the answer does not say whether it worked."""
        error = AdapterError(f"{pod.key} changes too often", "conflict")
        for _ in range(_TRIES):
            now = self._read(pod)
            if done(read_pod(now)):
                return
            if read_pod(now).node or (self._lever == "gates" and not read_pod(now).gated):
                raise AdapterError(f"{pod.key} does not wait any more", "missing")
            guard = [
                {"op": "test", "path": "/metadata/uid", "value": pod.uid},
                {
                    "op": "test",
                    "path": "/metadata/resourceVersion",
                    "value": now["metadata"]["resourceVersion"],
                },
            ]
            try:
                self._api.patch(pod.path, [*guard, *change(now)])
            except AdapterError as problem:
                if problem.code in ("refused", "missing"):
                    raise
                error = problem
                continue
            return
        raise error

    def _read(self, pod: Pod) -> Object:
        now = self._api.get(pod.path)
        if now["metadata"].get("uid", "") != pod.uid:
            raise AdapterError(f"{pod.key} is another pod now", "missing")
        return now

    def bind(self, pod: Pod, node: str) -> None:
        """Bind a pod. The API checks nothing but that it is not bound yet.

        Raises:
            AdapterError: if it is not bound there.
        """
        body = {
            "apiVersion": "v1",
            "kind": "Binding",
            "metadata": {"name": pod.name, "namespace": pod.namespace, "uid": pod.uid},
            "target": {"apiVersion": "v1", "kind": "Node", "name": node},
        }
        try:
            self._api.create(f"{pod.path}/binding", body)
        except AdapterError as error:
            if error.code in ("refused", "missing"):
                raise
            bound = read_pod(self._read(pod)).node  # it may have worked all the same
            if bound != node:
                raise AdapterError(f"{error}", "missing" if bound else error.code) from None


def _without_gate(spec: Object) -> list[Object]:
    names = [str(one["name"]) for one in spec.get("schedulingGates") or ()]
    if GATE not in names:
        return []
    at = f"/spec/schedulingGates/{names.index(GATE)}"
    return [{"op": "test", "path": f"{at}/name", "value": GATE}, {"op": "remove", "path": at}]


def _noted(now: Object, text: str | None) -> list[Object]:
    """The annotation of the plan, written or taken away."""
    notes = now["metadata"].get("annotations")
    at = "/metadata/annotations"
    path = f"{at}/{PLAN.replace('/', '~1')}"
    if text is None:
        return [{"op": "remove", "path": path}] if notes and PLAN in notes else []
    if not notes:
        return [{"op": "add", "path": at, "value": {PLAN: text}}]
    return [{"op": "add", "path": path, "value": text}]


def _raise_first(errors: Sequence[AdapterError | None]) -> None:
    for error in errors:
        if error is not None:
            raise error
