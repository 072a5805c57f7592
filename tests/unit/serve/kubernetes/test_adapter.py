"""Pods through the agent, over real HTTP: released in order, gangs whole, nobody lost."""

import itertools
import random
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from gpuyard.errors import InputError
from gpuyard.serve.adapter import Start
from gpuyard.serve.kubernetes.adapter import KubernetesAdapter
from gpuyard.serve.kubernetes.pods import GATE, PLAN
from gpuyard.serve.signs import Signs
from gpuyard.serve.watchdog import look
from support.kubernetes_agents import agent_on, kubernetes_settings
from support.kubernetes_api import NODES, PODS, FakeApi, Object, random_faults
from support.kubernetes_cluster import Cluster, client, is_over, node, pod


@pytest.fixture
def api() -> Iterator[FakeApi]:
    made = FakeApi()
    for number in range(1, 3):
        made.create(NODES, node(f"gn{number}"))
    yield made
    made.close()


def soon(holds: Callable[[], bool], seconds: float = 20.0) -> None:
    end = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < end
        time.sleep(0.02)


def pods(api: FakeApi) -> dict[str, Object]:
    return {one["metadata"]["name"]: one for one in api.all(PODS)}


def where(api: FakeApi) -> dict[str, str]:
    return {name: one["spec"].get("nodeName", "") for name, one in pods(api).items()}


def test_pods_are_released_in_the_order_of_the_policy_onto_its_nodes(api: FakeApi, tmp_path: Path) -> None:
    api.create(PODS, pod("long", 8, labels={"note": "$(touch x)"}, activeDeadlineSeconds=7200))
    api.create(PODS, pod("short", 8, activeDeadlineSeconds=60))
    api.create(PODS, pod("first", 8, activeDeadlineSeconds=30, nodeSelector={"zone": "$(touch x)"}))
    api.change(NODES, "", "gn1", lambda one: one["metadata"]["labels"].update(zone="$(touch x)"))
    with agent_on(api, kubernetes_settings(tmp_path)) as agent:
        record = agent.round()
        assert record is not None
        assert [one.job for one in record.order] == ["train/first", "train/short", "train/long"]
        with Cluster(api):
            soon(lambda: sum(bool(on) for on in where(api).values()) == 2)
        assert where(api) == {"first": "gn1", "short": "gn2", "long": ""}
        released = pods(api)["first"]
        assert released["spec"]["schedulingGates"] == []
        assert released["spec"]["nodeSelector"] == {"zone": "$(touch x)", "kubernetes.io/hostname": "gn1"}
        assert released["metadata"]["annotations"][PLAN] == f"{record.number}-0@gn1"
        soon(lambda: len(agent.adapter.observe().running) == 2)
        assert agent.memory.in_flight
        agent.round()
        assert not agent.memory.in_flight
    assert not Path("x").exists()


def test_in_shadow_nothing_is_written(api: FakeApi, tmp_path: Path) -> None:
    api.create(PODS, pod("a"))
    with agent_on(api, kubernetes_settings(tmp_path, mode="shadow")) as agent:
        record = agent.round()
    assert record is not None
    assert [one.job for one in record.starts] == ["train/a"]
    assert api.log == []


def test_servers_that_drop_gates_are_refused(tmp_path: Path) -> None:
    old = FakeApi("26+")
    try:
        with (
            agent_on(old, kubernetes_settings(tmp_path)) as agent,
            pytest.raises(InputError, match=r"1\.26, which drops scheduling gates"),
        ):
            agent.adapter.observe()
    finally:
        old.close()


def test_priorities_cannot_be_served(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no order to change"):
        KubernetesAdapter(kubernetes_settings(tmp_path, control="order"))


def test_what_the_agent_does_not_handle_goes_to_the_scheduler_and_is_listed(
    api: FakeApi, tmp_path: Path
) -> None:
    api.create(PODS, pod("mig", 0, resources={"nvidia.com/mig-1g.5gb": "1"}))
    api.create(PODS, pod("other", schedulingGates=[{"name": GATE}, {"name": "mine"}]))
    api.create(PODS, pod("nowhere", nodeSelector={"zone": "moon"}))
    with agent_on(api, kubernetes_settings(tmp_path)) as agent:
        agent.round()
        assert agent.left == {
            "train/mig": "MIG slices nvidia.com/mig-1g.5gb",
            "train/other": "another scheduling gate, mine",
            "train/nowhere": "no node has what its selector, affinity and tolerations ask for",
        }
    gates = {name: one["spec"]["schedulingGates"] for name, one in pods(api).items()}
    assert gates == {"mig": [], "other": [{"name": "mine"}], "nowhere": []}


def test_a_gang_waits_until_it_is_whole_and_then_starts_as_one(api: FakeApi, tmp_path: Path) -> None:
    for number in range(3):
        api.create(PODS, pod(f"ring-{number}", 4, group="ring", size=4))
    with agent_on(api, kubernetes_settings(tmp_path)) as agent, Cluster(api) as cluster:
        record = agent.round()
        assert record is not None
        assert record.starts == ()
        assert agent.last_state is not None
        assert agent.last_state.notes == ("train/@ring: 3 of 4 pods are there; it waits for the others",)
        api.create(PODS, pod("ring-3", 4, group="ring", size=4))
        soon(lambda: len(agent.adapter.observe().waiting) == 1)
        agent.round()
        soon(lambda: all(where(api).values()))
    assert sorted(where(api).values()) == ["gn1", "gn1", "gn2", "gn2"]
    assert cluster.wrong == []


def test_a_gang_with_half_of_it_let_go_is_let_go_to_the_end(api: FakeApi, tmp_path: Path) -> None:
    for number in range(4):
        api.create(PODS, pod(f"ring-{number}", 2, group="ring", size=4))
    writes = iter(range(100))

    def dies(method: str, path: str) -> str | None:
        return "500" if method == "PATCH" and next(writes) >= 6 else None

    settings = kubernetes_settings(tmp_path / "a")
    with agent_on(api, settings) as agent:  # 4 plans and 2 releases, then nothing works any more
        api.fault = dies
        agent.round()
    assert sum(bool(one["spec"]["schedulingGates"]) for one in pods(api).values()) == 2
    api.fault = lambda method, path: None
    with agent_on(api, kubernetes_settings(tmp_path / "b")) as agent, Cluster(api) as cluster:
        agent.round()  # another agent, which remembers nothing
        soon(lambda: all(where(api).values()))
    planned = {name: one["metadata"]["annotations"][PLAN].split("@")[1] for name, one in pods(api).items()}
    assert where(api) == planned
    assert cluster.wrong == []


def test_the_watchdog_opens_all_gates_and_completes_gangs(api: FakeApi, tmp_path: Path) -> None:
    for number in range(4):
        api.create(PODS, pod(f"ring-{number}", 2, group="ring", size=4))
    api.create(PODS, pod("alone"))
    settings = kubernetes_settings(tmp_path)
    writes = iter(range(100))
    with agent_on(api, settings) as agent:
        api.fault = lambda method, path: "500" if method == "PATCH" and next(writes) >= 5 else None
        agent.round()
    api.fault = lambda method, path: None
    Signs(tmp_path).stop_beating()
    watchdog = KubernetesAdapter(settings, client(api))
    found = look(Signs(tmp_path), watchdog, 60.0)
    watchdog.close()
    assert found.ok
    assert found.why == "there is no heartbeat"
    assert not any(one["spec"].get("schedulingGates") for one in api.all(PODS))
    with Cluster(api) as cluster:
        soon(lambda: all(where(api).values()))
    assert cluster.wrong == []


def test_a_pod_that_replaces_one_of_a_running_gang_waits_for_itself(api: FakeApi, tmp_path: Path) -> None:
    for number in range(2):
        api.create(PODS, pod(f"ring-{number}", 2, group="ring", size=2))
    with agent_on(api, kubernetes_settings(tmp_path)) as agent, Cluster(api):
        agent.round()
        soon(lambda: all(where(api).values()))
        api.delete(PODS, "train", "ring-1")
        api.create(PODS, pod("ring-9", 2, group="ring", size=2))
        soon(lambda: [job.id for job in agent.adapter.observe().waiting] == ["train/ring-9"])
        agent.round()
        soon(lambda: all(where(api).values()))


def test_own_binding_goes_where_the_guard_lets_it_and_nowhere_twice(api: FakeApi, tmp_path: Path) -> None:
    api.create(NODES, node("gn3"))
    for number in range(4):
        api.create(PODS, pod(f"ring-{number}", 4, group="ring", size=4, gate=False, schedulerName="gpuyard"))
    api.create(PODS, pod("late", 1, gate=False, schedulerName="gpuyard"))
    api.create(PODS, pod("theirs", 1, gate=False))
    with agent_on(api, kubernetes_settings(tmp_path, "binding")) as agent, Cluster(api) as cluster:
        api.fault = random_faults(0.1, 3)
        soon(lambda: bool(agent.round()) and sum(bool(on) for on in where(api).values()) == 6)
        for _ in range(3):
            agent.round()
    assert cluster.wrong == []
    assert all(len(nodes) == 1 for nodes in api.binds.values())


def test_a_start_of_parts_of_pods_is_refused(api: FakeApi, tmp_path: Path) -> None:
    for number in range(2):
        api.create(PODS, pod(f"ring-{number}", 4, group="ring", size=2))
    with agent_on(api, kubernetes_settings(tmp_path)) as agent:
        agent.adapter.observe()
        outcome = agent.adapter.apply([Start("train/@ring", ("gn1", "gn2"), "1-0", (), (6, 2))])[0]
    assert (outcome.code, outcome.error) == ("refused", "6 GPUs on gn1 are no whole pods of 4")


def test_the_copy_follows_versions_and_lists_again_when_they_are_gone(api: FakeApi, tmp_path: Path) -> None:
    with agent_on(api, kubernetes_settings(tmp_path)) as agent:
        adapter = agent.adapter
        assert isinstance(adapter, KubernetesAdapter)
        adapter.observe()
        api.create(PODS, pod("a"))
        soon(lambda: len(adapter.observe().waiting) == 1)
        assert adapter.pods.lists == 1  # a watch resumes where it was
        api.create(PODS, pod("b"))
        api.forget_events()
        api.delete(PODS, "train", "a")
        soon(lambda: [job.id for job in adapter.observe().waiting] == ["train/b"])
        assert adapter.pods.lists >= 2


def test_throttling_is_waited_for_and_silence_is_an_error(api: FakeApi, tmp_path: Path) -> None:
    turns = iter(range(1000))
    api.fault = lambda method, path: "429" if next(turns) % 3 else None
    api.create(PODS, pod("a"))
    settings = kubernetes_settings(tmp_path, max_age_s=2.0)
    with agent_on(api, settings) as agent:
        assert agent.round() is not None
        assert not pods(api)["a"]["spec"]["schedulingGates"]
        api.fault = lambda method, path: "cut-before"
        soon(lambda: agent.round() is None)
        assert "nothing heard" in agent.errors[0]


def submit_gangs(api: FakeApi, draw: random.Random, total: int, lever: str) -> None:
    own: dict[str, Any] = {"gate": False, "schedulerName": "gpuyard"} if lever == "binding" else {}
    number = 0
    while total:
        size = min(draw.choice((1, 2, 4, 8)), total)
        gpus = draw.choice((1, 2)) if size in (1, 2, 4, 8) else 1
        for place in range(size):
            name, run_s = f"g{number}-{place}", draw.uniform(0.05, 0.2)
            api.create(PODS, pod(name, gpus, group=f"g{number}", size=size, run_s=run_s, **own))
        total -= size
        number += 1


def dying(draw: random.Random, life: int) -> Callable[[str, str], str | None]:
    """Requests fail now and then, and after some writes none reaches the server: an agent that dies there."""
    some = random_faults(0.05, draw.randrange(10**6))
    patience, writes = draw.randrange(3, 60 * life), itertools.count()

    def fault(method: str, path: str) -> str | None:
        dead = method in ("PATCH", "POST") and next(writes) >= patience
        return "cut-before" if dead else some(method, path)

    return fault


def churn(api: FakeApi, directory: Path, total: int, seed: int, lever: str, life: int = 1) -> Cluster:
    """Pods in gangs, while agents die at random moments and requests fail in every way."""
    draw = random.Random(seed)
    submit_gangs(api, draw, total, lever)
    settings = kubernetes_settings(directory, lever, max_age_s=5.0)
    end = time.monotonic() + 120.0 * life
    with Cluster(api) as cluster:
        while not all(is_over(one) for one in api.all(PODS)):
            assert time.monotonic() < end, [name for name, one in pods(api).items() if not is_over(one)]
            with agent_on(api, settings, 1.0) as agent:
                api.fault = dying(draw, life)
                for _ in range(draw.randrange(1, 12 * life)):
                    agent.round()
                    time.sleep(0.02)
        api.fault = lambda method, path: None
    return cluster


@pytest.mark.parametrize("lever", ["gates", "binding"])
def test_gangs_survive_agents_and_connections_that_die(api: FakeApi, tmp_path: Path, lever: str) -> None:
    for number in range(3, 7):
        api.create(NODES, node(f"gn{number}"))
    cluster = churn(api, tmp_path, 100, 5, lever)
    check(api, cluster)


@pytest.mark.slow
@pytest.mark.parametrize("lever", ["gates", "binding"])
def test_a_thousand_pods_in_gangs_survive(api: FakeApi, tmp_path: Path, lever: str) -> None:
    for number in range(3, 33):
        api.create(NODES, node(f"gn{number}"))
    cluster = churn(api, tmp_path, 1000, 7, lever, life=10)
    check(api, cluster)


def check(api: FakeApi, cluster: Cluster) -> None:
    assert cluster.wrong == []  # nowhere too many GPUs, and no gang half bound at any moment
    assert all(len(nodes) == 1 for nodes in api.binds.values())
    assert len(api.binds) == len(api.all(PODS))
