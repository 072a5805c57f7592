"""The agent on a real kube-apiserver, kube-scheduler and etcd, where they are on PATH or in $GPUYARD_K8S_BIN.

There is no kubelet: a pod that is bound to a node stays there, and that is all that is looked at.
"""

import contextlib
import io
import json
import os
import shutil
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from gpuyard.serve.kubernetes.api import Api
from gpuyard.serve.kubernetes.connection import find_connection
from gpuyard.serve.kubernetes.pods import PLAN
from gpuyard.serve.kubernetes.service import KubernetesService
from gpuyard.serve.process.log import Log
from gpuyard.serve.settings import KubernetesSettings, ServeSettings
from support.kubernetes_cluster import node, pod

TOKEN = "a-token-of-this-test-alone"
PROGRAMS = ("etcd", "kube-apiserver", "kube-scheduler", "openssl")
PLACES = os.pathsep.join([os.environ.get("GPUYARD_K8S_BIN", ""), os.environ.get("PATH", "")])
FOUND = {name: shutil.which(name, path=PLACES) for name in PROGRAMS}
MISSING = [name for name, path in FOUND.items() if path is None]
pytestmark = [
    pytest.mark.skipif(
        bool(MISSING), reason=f"no {', '.join(MISSING)} on PATH or in $GPUYARD_K8S_BIN: no real control plane"
    ),
    pytest.mark.slow,
]


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def started(place: Path, name: str, *arguments: str) -> "subprocess.Popen[bytes]":
    log = (place / f"{name}.log").open("wb")
    return subprocess.Popen([str(FOUND[name]), *arguments], stdout=log, stderr=subprocess.STDOUT, cwd=place)


def soon(what: str, holds: Callable[[], bool], seconds: float = 60.0) -> None:
    end = time.monotonic() + seconds
    while True:
        with contextlib.suppress(Exception):
            if holds():
                return
        assert time.monotonic() < end, what
        time.sleep(0.1)


@pytest.fixture(scope="module")
def kubeconfig(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    place = tmp_path_factory.mktemp("control-plane")
    subprocess.run(
        [str(FOUND["openssl"]), "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2",
         "-keyout", "key.pem", "-out", "crt.pem", "-subj", "/CN=gpuyard-test",
         "-addext", "subjectAltName=IP:127.0.0.1",
         "-addext", "keyUsage=digitalSignature,keyEncipherment,keyCertSign"],
        cwd=place, check=True, capture_output=True,
    )  # fmt: skip
    (place / "tokens.csv").write_text(f'{TOKEN},tester,1,"system:masters"\n')
    store, peer, api, health = (free_port() for _ in range(4))
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "c",
        "contexts": [{"name": "c", "context": {"cluster": "k", "user": "u"}}],
        "clusters": [
            {
                "name": "k",
                "cluster": {
                    "server": f"https://127.0.0.1:{api}",
                    "certificate-authority": str(place / "crt.pem"),
                },
            }
        ],
        "users": [{"name": "u", "user": {"token": TOKEN}}],
    }
    path = place / "kubeconfig"
    path.write_text(json.dumps(config))
    path.chmod(0o600)
    running = [
        started(
            place, "etcd", "--data-dir", "etcd",
            "--listen-client-urls", f"http://127.0.0.1:{store}",
            "--advertise-client-urls", f"http://127.0.0.1:{store}",
            "--listen-peer-urls", f"http://127.0.0.1:{peer}",
        ),
        started(
            place, "kube-apiserver", f"--etcd-servers=http://127.0.0.1:{store}", "--bind-address=127.0.0.1",
            f"--secure-port={api}", "--tls-cert-file=crt.pem", "--tls-private-key-file=key.pem",
            "--token-auth-file=tokens.csv", "--authorization-mode=RBAC",
            "--service-account-issuer=https://127.0.0.1", "--service-account-key-file=key.pem",
            "--service-account-signing-key-file=key.pem", "--service-cluster-ip-range=10.0.0.0/24",
            "--disable-admission-plugins=ServiceAccount,TaintNodesByCondition",
        ),
    ]  # fmt: skip
    try:
        server = Api(find_connection(path))
        soon(f"kube-apiserver does not answer; see {place}", lambda: "major" in server.get("/version"), 120.0)
        running.append(
            started(
                place, "kube-scheduler", f"--kubeconfig={path}", f"--authentication-kubeconfig={path}",
                f"--authorization-kubeconfig={path}", "--leader-elect=false", "--bind-address=127.0.0.1",
                f"--secure-port={health}",
            )
        )  # fmt: skip
        fill(server)
        server.close()
        yield path
    finally:
        for process in reversed(running):
            process.terminate()
        for process in reversed(running):
            try:
                process.wait(20.0)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def fill(server: Api) -> None:
    """Namespaces, and four nodes of 8 GPUs that say that they are ready."""
    for name in ("gpuyard", "train"):
        soon(
            name,
            lambda name=name: bool(server.create("/api/v1/namespaces", kind("Namespace", {"name": name}))),
        )  # type: ignore[misc]
    for number in range(1, 5):
        made = node(f"gn{number}")
        server.create("/api/v1/nodes", kind("Node", made["metadata"], spec=made["spec"]))
        path = f"/api/v1/nodes/gn{number}"
        now = server.get(path)
        status = {**(now.get("status") or {}), **made["status"]}
        server.replace(f"{path}/status", {**now, "status": status})


def created(server: Api, path: str, made: dict[str, Any]) -> bool:
    return bool(server.create(path, made))


def kind(name: str, metadata: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": name, "metadata": metadata, **more}


@contextlib.contextmanager
def agent(kubeconfig: Path, directory: Path, lever: Any) -> Iterator[io.StringIO]:
    part = KubernetesSettings(lever=lever, kubeconfig=kubeconfig, lease_s=3)
    settings = ServeSettings(
        policy="sjf+easy", mode="active", control="start", state_dir=directory, interval_s=0.2,
        deadline_ms=10_000.0, kubernetes=part,
    )  # fmt: skip
    stream = io.StringIO()
    service = KubernetesService(settings, Log(stream))
    thread = threading.Thread(target=service.run)
    thread.start()
    try:
        yield stream
    finally:
        service.stop()
        thread.join(60.0)
    assert not thread.is_alive()


def submit(server: Api, made: dict[str, Any]) -> None:
    container = {**made["spec"]["containers"][0], "image": "none"}
    spec = {**made["spec"], "containers": [container]}
    server.create("/api/v1/namespaces/train/pods", kind("Pod", made["metadata"], spec=spec))


def bound(server: Api, prefix: str) -> dict[str, str]:
    found, _ = server.everything("/api/v1/namespaces/train/pods")
    named = {one["metadata"]["name"]: one for one in found}
    return {name: one["spec"].get("nodeName", "") for name, one in named.items() if name.startswith(prefix)}


def remove(server: Api, prefix: str) -> None:
    for name in bound(server, prefix):
        body = {"apiVersion": "v1", "kind": "DeleteOptions", "gracePeriodSeconds": 0}
        server._request("DELETE", f"/api/v1/namespaces/train/pods/{name}", body)
    soon("pods go", lambda: not bound(server, prefix))


def test_gated_gangs_get_the_nodes_of_the_policy(kubeconfig: Path, tmp_path: Path) -> None:
    server = Api(find_connection(kubeconfig))
    for gang in range(4):
        for member in range(4):
            made = pod(f"gate-{gang}-{member}", 2, group=f"gang-{gang}", size=4, labels={"note": "a.touch-x"})
            submit(server, made)
    with agent(kubeconfig, tmp_path / "s", "gates") as said:
        soon(said.getvalue(), lambda: all(bound(server, "gate-").values()))
    found, _ = server.everything("/api/v1/namespaces/train/pods")
    for one in found:
        assert one["metadata"]["annotations"][PLAN].split("@")[1] == one["spec"]["nodeName"]
    lease = server.get("/apis/coordination.k8s.io/v1/namespaces/gpuyard/leases/gpuyard")
    assert not lease["spec"].get("holderIdentity")  # given up at its end
    remove(server, "gate-")
    server.close()


def test_an_agent_that_ends_leaves_no_gate_behind(kubeconfig: Path, tmp_path: Path) -> None:
    server = Api(find_connection(kubeconfig))
    for number in range(6):  # two of them find no room
        submit(server, pod(f"whole-{number}", 8))
    with agent(kubeconfig, tmp_path / "s", "gates") as said:
        soon(said.getvalue(), lambda: sum(bool(on) for on in bound(server, "whole-").values()) == 4)
    found, _ = server.everything("/api/v1/namespaces/train/pods")
    assert not any(one["spec"].get("schedulingGates") for one in found)
    remove(server, "whole-")
    server.close()


def test_pods_of_our_own_scheduler_are_bound(kubeconfig: Path, tmp_path: Path) -> None:
    server = Api(find_connection(kubeconfig))
    for member in range(8):
        submit(server, pod(f"own-{member}", 4, group="ring", size=8, gate=False, schedulerName="gpuyard"))
    with agent(kubeconfig, tmp_path / "s", "binding") as said:
        soon(said.getvalue(), lambda: all(bound(server, "own-").values()))
    assert sorted(bound(server, "own-").values()) == sorted(["gn1", "gn2", "gn3", "gn4"] * 2)
    remove(server, "own-")
    server.close()
