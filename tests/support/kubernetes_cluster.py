"""Pods, nodes, and what kube-scheduler and kubelets do with them, on the small API server."""

import contextlib
import threading
import time
from typing import Any

from gpuyard.serve.kubernetes.api import Api
from gpuyard.serve.kubernetes.connection import Connection
from gpuyard.serve.kubernetes.pods import GATE, GROUP, PLAN, SIZE
from support.kubernetes_api import NODES, PODS, ApiError, FakeApi, Object


def node(name: str, gpus: int = 8, **spec: Any) -> Object:
    labels = {"kubernetes.io/hostname": name, **spec.pop("labels", {})}
    able = {"cpu": "64", "memory": "512Gi", "pods": "110", "nvidia.com/gpu": str(gpus)}
    status = {"allocatable": able, "capacity": able, "conditions": [{"type": "Ready", "status": "True"}]}
    return {"metadata": {"name": name, "labels": labels}, "spec": spec, "status": status}


def pod(
    name: str, gpus: int = 1, *, group: str = "", size: int = 0, gate: bool = True, run_s: float = 1e6,
    resources: dict[str, str] | None = None, labels: dict[str, str] | None = None, **spec: Any,
) -> Object:  # fmt: skip
    wants = {"cpu": "2", "memory": "1Gi", **({"nvidia.com/gpu": str(gpus)} if gpus else {})}
    wants |= resources or {}
    gang = {GROUP: group, SIZE: str(size)} if group else {}
    gates = {"schedulingGates": [{"name": GATE}]} if gate else {}
    return {
        "metadata": {
            "name": name,
            "namespace": "train",
            "labels": {**gang, **(labels or {})},
            "annotations": {"test/run-s": str(run_s)},
        },
        "spec": {"containers": [{"name": "c", "resources": {"limits": wants}}], **gates, **spec},
    }


def client(api: FakeApi, timeout_s: float = 5.0) -> Api:
    return Api(Connection(api.url, token=api.token), timeout_s)


def gpus_of(found: Object) -> int:
    return sum(
        int(one["resources"]["limits"].get("nvidia.com/gpu", 0)) for one in found["spec"]["containers"]
    )


def is_over(found: Object) -> bool:
    return found["status"].get("phase") in ("Succeeded", "Failed")


class Cluster:
    """kube-scheduler and all kubelets: places what may be placed, runs what is bound, in a thread."""

    def __init__(self, api: FakeApi) -> None:
        self.api = api
        self.stop = threading.Event()
        self.wrong: list[str] = []
        self.thread = threading.Thread(target=self.run, daemon=True)

    def __enter__(self) -> "Cluster":
        self.thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop.set()
        self.thread.join(10.0)

    def run(self) -> None:
        while not self.stop.is_set():
            self.step()
            self.stop.wait(0.01)

    def step(self) -> None:
        with self.api.lock:
            free = {name: gpus_free for (_, name), gpus_free in self.free().items()}
            for key, found in list(self.api.kind(PODS).items()):
                if is_over(found):
                    continue
                if found["spec"].get("nodeName"):
                    self.live(key, found)
                elif self.may_bind(found):
                    self.bind(key, found, free)
            self.wrong += [f"{name} has {gpus} GPUs too many" for name, gpus in free.items() if gpus < 0]
            self.wrong += half_bound(list(self.api.kind(PODS).values()))

    def may_bind(self, found: Object) -> bool:
        spec = found["spec"]
        return not spec.get("schedulingGates") and spec["schedulerName"] == "default-scheduler"

    def free(self) -> dict[tuple[str, str], int]:
        free = {
            key: int(one["status"]["allocatable"]["nvidia.com/gpu"])
            for key, one in self.api.kind(NODES).items()
        }
        for found in self.api.kind(PODS).values():
            on = ("", found["spec"].get("nodeName", ""))
            if on in free and not is_over(found):
                free[on] -= gpus_of(found)
        return free

    def bind(self, key: tuple[str, str], found: Object, free: dict[str, int]) -> None:
        for (_, name), one in self.api.kind(NODES).items():
            labels, selector = one["metadata"]["labels"], found["spec"].get("nodeSelector") or {}
            if free[name] >= gpus_of(found) and all(labels.get(key) == at for key, at in selector.items()):
                with contextlib.suppress(ApiError):
                    self.api.bind(key, name)
                    free[name] -= gpus_of(found)
                return

    def live(self, key: tuple[str, str], found: Object) -> None:
        status = found["status"]
        if status["phase"] == "Pending":
            status |= {"phase": "Running", "startTime": _now(), "began": time.monotonic()}
        elif time.monotonic() - status["began"] > float(found["metadata"]["annotations"]["test/run-s"]):
            state = {"terminated": {"finishedAt": _now()}}
            status |= {"phase": "Succeeded", "containerStatuses": [{"state": state}]}
        else:
            return
        self.api.emit(PODS, "MODIFIED", found)


def half_bound(pods: list[Object]) -> list[str]:
    """Gangs of which some are bound while another has no place that is kept for it."""
    gangs: dict[str, list[Object]] = {}
    for found in pods:
        if GROUP in found["metadata"]["labels"]:
            gangs.setdefault(found["metadata"]["labels"][GROUP], []).append(found)
    return [
        f"gang {name} is half bound"
        for name, members in gangs.items()
        if any(one["spec"].get("nodeName") for one in members)
        and not all(
            one["spec"].get("nodeName") or PLAN in one["metadata"].get("annotations", {}) for one in members
        )
    ]


def _now() -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
