"""Workloads of Kueue: admitted in the policy's order, as far as there is room, and given back."""

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from gpuyard.policies.policy_file import parse_rules
from gpuyard.serve.journal import Journal
from gpuyard.serve.kubernetes.kueue import CONTROLLER, KueueAdapter
from gpuyard.serve.process.agent import Agent
from gpuyard.serve.process.log import Log
from gpuyard.serve.process.service import find_served
from gpuyard.serve.signs import Signs
from support.kubernetes_agents import kubernetes_settings
from support.kubernetes_api import CHECKS, NODES, PODS, WORKLOADS, FakeApi
from support.kubernetes_cluster import client, node, pod


@pytest.fixture
def api() -> Iterator[FakeApi]:
    made = FakeApi()
    made.create(NODES, node("gn1"))
    made.create(
        CHECKS, {"metadata": {"name": "gpuyard"}, "spec": {"controllerName": CONTROLLER}, "status": {}}
    )
    yield made
    made.close()


def workload(name: str, count: int, gpus: int, limit_s: int, reserved: bool = True) -> dict[str, Any]:
    spec = pod(name, gpus, gate=False, activeDeadlineSeconds=limit_s)["spec"]
    quota = {"type": "QuotaReserved", "status": "True" if reserved else "False"}
    owner = {"uid": f"job-{name}", "kind": "Job", "name": name, "controller": True}
    return {
        "metadata": {"name": name, "namespace": "train", "ownerReferences": [owner]},
        "spec": {"queueName": "q", "podSets": [{"name": "main", "count": count, "template": {"spec": spec}}]},
        "status": {"conditions": [quota], "admissionChecks": [{"name": "gpuyard", "state": "Pending"}]},
    }


def states(api: FakeApi) -> dict[str, str]:
    return {
        one["metadata"]["name"]: one["status"]["admissionChecks"][0]["state"] for one in api.all(WORKLOADS)
    }


def test_workloads_are_admitted_in_the_order_of_the_policy(api: FakeApi, tmp_path: Path) -> None:
    api.create(WORKLOADS, workload("long", 4, 1, 7200))
    api.create(WORKLOADS, workload("short", 2, 4, 60))
    api.create(WORKLOADS, workload("unreserved", 1, 1, 10, reserved=False))
    settings = kubernetes_settings(tmp_path, "kueue")
    adapter = KueueAdapter(settings, client(api))
    signs = Signs(tmp_path)
    signs.make()
    with Journal.open(settings.journal) as journal:
        policy, fallback = find_served("sjf+easy"), parse_rules("fifo+easy")
        agent = Agent(settings, adapter, policy, fallback, journal, signs, Log(level="error"))
        assert agent.round() is not None, agent.errors
        # One pod of 4 GPUs per node is asked for, and there is one node: short has to wait for nobody.
        assert states(api)["unreserved"] == "Pending"
        admitted = [name for name, state in states(api).items() if state == "Ready"]
        assert admitted
        plan = next(one for one in api.all(WORKLOADS) if one["metadata"]["name"] == admitted[0])
        assert plan["status"]["admissionChecks"][0]["message"].startswith("gpuyard 1-0: gn1=")
        time.sleep(0.3)
        seen = adapter.observe()
        coming = [job for job in seen.jobs if job.phase == "starting"]
        assert [job.id for job in coming] == [f"train/{name}" for name in admitted]
        started = pod("x", 4, gate=False, nodeName="gn1")
        started["metadata"]["ownerReferences"] = [{"uid": f"job-{admitted[0]}", "controller": True}]
        api.create(PODS, started)
        time.sleep(0.3)
        assert not [job for job in adapter.observe().jobs if job.phase == "starting"]  # its pods count now
        agent.chooser.close()
    active = api.all(CHECKS)[0]["status"]["conditions"][0]
    assert (active["type"], active["status"]) == ("Active", "True")
    adapter.close()


def test_all_workloads_are_given_back_to_kueue(api: FakeApi, tmp_path: Path) -> None:
    for number in range(3):
        api.create(WORKLOADS, workload(f"w{number}", 1, 8, 60))
    adapter = KueueAdapter(kubernetes_settings(tmp_path, "kueue"), client(api))
    assert [one.ok for one in adapter.give_back_all()] == [True, True, True]
    assert set(states(api).values()) == {"Ready"}
    adapter.api.close()
