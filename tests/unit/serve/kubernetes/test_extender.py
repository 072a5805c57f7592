"""What kube-scheduler and the API server ask, over real HTTP, in the shapes of their Go types."""

import base64
import http.client
import io
import json
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from gpuyard.serve.kubernetes.extender import gate_pod
from gpuyard.serve.kubernetes.pods import GATE
from gpuyard.serve.kubernetes.service import KubernetesService
from gpuyard.serve.process.log import Log
from gpuyard.serve.settings import KubernetesSettings, ServeSettings
from support.kubernetes_api import LEASES, NODES, PODS, FakeApi
from support.kubernetes_cluster import node, pod

TOKEN = "0123456789abcdef-right"


class Running:
    """An agent as its process runs it."""

    def __init__(self, api: FakeApi, directory: Path, lever: Any, **more: Any) -> None:
        directory.mkdir()
        for name, text in (("token", TOKEN), ("kubeconfig", json.dumps(kubeconfig(api)))):
            (directory / name).write_text(text + "\n")
            (directory / name).chmod(0o600)
        part = KubernetesSettings(lever=lever, kubeconfig=directory / "kubeconfig", lease_s=3)
        known: dict[str, Any] = {
            "mode": "active",
            "control": "start",
            "listen": "127.0.0.1:0",
            "interval_s": 0.1,
        }
        known |= {
            "interval_s": 0.1,
            "state_dir": directory,
            "token_file": directory / "token",
            "deadline_ms": 60_000.0,
        }
        self.stream = io.StringIO()
        self.service = KubernetesService(
            ServeSettings(**(known | {"kubernetes": part, "watchdog_s": 5.0} | more)), Log(self.stream)
        )
        self.thread = threading.Thread(target=self.service.run)
        self.thread.start()

    def wait_for(self, words: str) -> None:
        end = time.monotonic() + 30.0
        while words not in self.stream.getvalue():
            assert time.monotonic() < end, self.stream.getvalue()
            assert self.thread.is_alive(), self.stream.getvalue()
            time.sleep(0.02)

    def close(self) -> None:
        self.service.stop()
        self.thread.join(30.0)
        assert not self.thread.is_alive()


def kubeconfig(api: FakeApi) -> dict[str, Any]:
    user = {"name": "u", "user": {"token": api.token} if api.token else {}}
    context = {"name": "c", "context": {"cluster": "k", "user": "u"}}
    cluster = {"name": "k", "cluster": {"server": api.url}}
    return {"current-context": "c", "contexts": [context], "clusters": [cluster], "users": [user]}


@pytest.fixture
def api() -> Iterator[FakeApi]:
    made = FakeApi()
    made.token = "the-agents-own"
    for number in range(1, 4):
        made.create(NODES, node(f"gn{number}", 4))
    made.create(PODS, pod("running", 3, gate=False))
    made.bind(("train", "running"), "gn1")
    yield made
    made.close()


@pytest.fixture
def extender(api: FakeApi, tmp_path: Path) -> Iterator[Running]:
    running = Running(api, tmp_path / "s", "extender")
    running.wait_for('"serving"')
    yield running
    running.close()


def ask(running: Running, verb: str, body: Any) -> Any:
    server = next(iter(running.service.servers))
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=20.0)
    kind = {"Content-Type": "application/json"}
    connection.request("POST", f"/token/{TOKEN}/{verb}", json.dumps(body), kind)
    answer = connection.getresponse()
    found = json.loads(answer.read())
    connection.close()
    assert answer.status == 200, found
    return found


def test_filter_and_prioritize_answer_in_the_form_in_which_nodes_were_sent(
    api: FakeApi, extender: Running
) -> None:
    waits = api.create(PODS, pod("$(touch x)", 2, gate=False))
    names = ["gn1", "gn2", "gn3"]
    found = ask(extender, "filter", {"Pod": waits, "Nodes": None, "NodeNames": names})
    assert found["NodeNames"] == ["gn2", "gn3"]
    assert found["Nodes"] is None
    assert set(found["FailedNodes"]) == {"gn1"}
    assert (found["FailedAndUnresolvableNodes"], found["Error"]) == ({}, "")
    whole = {"items": [node(name, 4) for name in names]}
    found = ask(extender, "filter", {"Pod": waits, "Nodes": whole, "NodeNames": None})
    assert [one["metadata"]["name"] for one in found["Nodes"]["items"]] == ["gn2", "gn3"]
    assert found["NodeNames"] is None
    scores = ask(extender, "prioritize", {"Pod": waits, "Nodes": None, "NodeNames": ["gn3", "gn2"]})
    assert scores == [{"Host": "gn3", "Score": 0}, {"Host": "gn2", "Score": 10}]
    one = api.create(PODS, pod("small", 1, gate=False))
    scores = ask(extender, "prioritize", {"Pod": one, "Nodes": None, "NodeNames": names})
    assert [entry["Score"] for entry in scores] == [10, 0, 0]  # the policy consolidates


def test_bind_binds_what_fits_once(api: FakeApi, extender: Running) -> None:
    waits = api.create(PODS, pod("new", 2, gate=False))
    time.sleep(0.3)
    body = {"PodName": "new", "PodNamespace": "train", "PodUID": waits["metadata"]["uid"], "Node": "gn1"}
    assert ask(extender, "bind", body) == {"Error": "there is no room on gn1"}
    assert ask(extender, "bind", body | {"Node": "gn2"}) == {"Error": ""}
    assert api.binds[waits["metadata"]["uid"]] == ["gn2"]
    time.sleep(0.3)
    assert ask(extender, "bind", body | {"Node": "gn2"}) == {"Error": "train/new does not wait"}


def test_the_webhook_gates_gpu_pods_that_the_agent_handles_and_lets_all_others_in() -> None:
    def answer(found: Any) -> Any:
        return gate_pod({"request": {"uid": "7", "namespace": "train", "object": found}})["response"]

    gated = answer(pod("a", 1, gate=False))
    assert (gated["uid"], gated["allowed"]) == ("7", True)
    patch = json.loads(base64.b64decode(gated["patch"]))
    assert patch == [{"op": "add", "path": "/spec/schedulingGates", "value": [{"name": GATE}]}]
    for other in (
        pod("cpu", 0, gate=False),
        pod("mig", 0, gate=False, resources={"nvidia.com/mig-1g.5gb": "1"}),
        pod("there", 1, gate=False, nodeName="gn1"),
        pod("own", 1, gate=False, schedulerName="mine"),
        pod("gated", 1),
    ):
        assert answer(other) == {"uid": "7", "allowed": True}


def test_one_agent_leads_and_another_takes_over_when_it_ends(api: FakeApi, tmp_path: Path) -> None:
    first = Running(api, tmp_path / "a", "gates")
    first.wait_for('"serving"')
    second = Running(api, tmp_path / "b", "gates")
    second.wait_for("waiting to lead")
    time.sleep(1.5)
    assert '"serving"' not in second.stream.getvalue()
    first.close()
    second.wait_for('"serving"')
    lease = api.all(LEASES)[0]
    assert lease["spec"]["leaseTransitions"] >= 1
    second.close()


def test_an_annotated_lease_halts_the_agent_and_opens_its_gates(api: FakeApi, tmp_path: Path) -> None:
    running = Running(api, tmp_path / "a", "gates", policy="sjf+easy")
    running.wait_for('"serving"')
    api.create(PODS, pod("big", 4, activeDeadlineSeconds=60))
    for number in range(3):
        api.create(PODS, pod(f"more-{number}", 4))
    api.change(
        LEASES, "gpuyard", "gpuyard", lambda one: one["metadata"].update(annotations={"gpuyard/halt": "now"})
    )
    end = time.monotonic() + 20.0
    while any(one["spec"].get("schedulingGates") for one in api.all(PODS)):
        assert time.monotonic() < end
        time.sleep(0.05)
    running.close()
