"""Whole observations from recorded answers of three versions, and lists that do not fit together."""

import json
from pathlib import Path
from typing import Any

import pytest

from gpuyard.serve.adapter import AdapterError, Start
from gpuyard.serve.settings import ServeSettings
from gpuyard.serve.slurm.adapter import SlurmAdapter
from gpuyard.serve.slurm.commands import Commands
from gpuyard.serve.state import ClusterState

DATA = Path(__file__).parents[3] / "live" / "recorded"


class Recorded(Commands):
    """Answers as a cluster of some version did."""

    def __init__(self, version: str) -> None:
        self.version = version
        nodes = "sinfo.json" if version == "22.05" else "nodes.json"
        self.nodes: dict[str, Any] = json.loads((DATA / version / nodes).read_text())
        self.jobs: dict[str, Any] = json.loads((DATA / version / "squeue.json").read_text())
        self.asked: list[tuple[str, ...]] = []

    def text(self, *command: str) -> str:
        self.asked.append(command)
        if "config" in command:
            return f"SelectTypeParameters = CR_CORE_MEMORY\nSLURM_VERSION = {self.version}.8\n"
        if "partition" in command:
            return "PartitionName=gpu Default=YES MaxTime=UNLIMITED Nodes=gn[1-4] State=UP\n"
        return "No reservations in the system\n"

    def json(self, *command: str) -> dict[str, Any]:
        self.asked.append(command)
        return self.jobs if command[0] == "squeue" else self.nodes


def adapter(recorded: Recorded) -> SlurmAdapter:
    return SlurmAdapter(ServeSettings(), recorded)


@pytest.mark.parametrize("version", ["22.05", "24.11", "26.05"])
def test_recorded_clusters_of_all_versions_are_read(version: str) -> None:
    recorded = Recorded(version)
    state = adapter(recorded).observe()
    assert state.source == f"slurm {version}.8"
    assert [(node.gpus, node.gpu_type, node.cpus) for node in state.nodes] == [(4, "a100", 16)] * 4
    running = state.running[0]
    used = {node.name: node.gpus_used for node in state.nodes}
    assert [(share.node, share.gpus) for share in running.shares] == [("gn1", used["gn1"])]
    assert running.cpus == state.nodes[0].cpus_used
    assert running.memory_mib == state.nodes[0].memory_used_mib == 100
    assert ClusterState.from_json(state.json_text).hash == state.hash
    lister = "sinfo" if version == "22.05" else "scontrol"
    assert any(command[0] == lister and "--json" in command for command in recorded.asked)


def test_waiting_jobs_of_the_newer_shape_are_read() -> None:
    state = adapter(Recorded("24.11")).observe()
    held, wide = state.waiting
    assert (held.id, held.gpus, held.held, held.left) == ("2", 3, "other", "held by its user")
    assert (wide.id, wide.gpus, wide.nodes, wide.cpus, wide.memory_mib, wide.left) == ("3", 16, 4, 4, 400, "")
    assert {node.closed for node in state.nodes} == {"planned for another job"}


def test_what_changes_rarely_is_asked_once() -> None:
    recorded = Recorded("22.05")
    live = adapter(recorded)
    live.observe()
    first = len(recorded.asked)
    live.observe()
    assert len(recorded.asked) == first + 2


@pytest.mark.parametrize("what", ["nodes", "jobs"])
@pytest.mark.parametrize("broken", [None, {}, "text", 4])
def test_an_answer_without_a_list_is_an_error(what: str, broken: Any) -> None:
    recorded = Recorded("22.05")
    getattr(recorded, what)[what] = broken
    with pytest.raises(AdapterError) as caught:
        adapter(recorded).observe()
    assert caught.value.code == "parse"


def test_jobs_with_more_gpus_than_their_node_close_it() -> None:
    recorded = Recorded("22.05")
    running = next(job for job in recorded.jobs["jobs"] if job["job_state"] == "RUNNING")
    recorded.jobs["jobs"].append({**running, "job_id": 99})
    state = adapter(recorded).observe()
    assert state.node_by_name["gn1"].closed == "jobs and node disagree"
    assert any("more GPUs than it has" in note for note in state.notes)


def test_a_node_that_knows_of_jobs_that_squeue_does_not_list_keeps_its_own_count() -> None:
    recorded = Recorded("22.05")
    recorded.jobs["jobs"] = []
    state = adapter(recorded).observe()
    assert state.jobs == ()
    assert state.node_by_name["gn1"].gpus_used == 3


def test_a_job_on_a_node_that_sinfo_does_not_list_is_noted() -> None:
    recorded = Recorded("22.05")
    recorded.nodes["nodes"] = [node for node in recorded.nodes["nodes"] if node["name"] != "gn1"]
    state = adapter(recorded).observe()
    assert any("gn1" in note for note in state.notes)
    assert state.partitions[0].nodes == ("gn2", "gn3", "gn4")


def test_a_job_that_is_listed_twice_is_an_error() -> None:
    recorded = Recorded("22.05")
    recorded.jobs["jobs"].append(recorded.jobs["jobs"][-1])
    with pytest.raises(AdapterError, match="twice"):
        adapter(recorded).observe()


def test_ends_and_failures_since_the_last_look_are_told() -> None:
    recorded = Recorded("22.05")
    live = adapter(recorded)
    assert live.observe().ended == ()
    running = next(job for job in recorded.jobs["jobs"] if job["job_state"] == "RUNNING")
    running.update(job_state="COMPLETED", end_time=running["start_time"] + 9)
    recorded.nodes["nodes"][1]["state_flags"] = ["DRAIN"]
    state = live.observe()
    assert [(one.id, one.run_s) for one in state.ended] == [("7", 9.0)]
    assert state.nodes_changed
    assert not live.observe().nodes_changed


def test_actions_on_jobs_that_nobody_knows_are_missing() -> None:
    assert adapter(Recorded("22.05")).apply([Start("4711", ("gn1",), "1-1")])[0].code == "missing"


@pytest.mark.parametrize("count", [10_000, pytest.param(100_000, marks=pytest.mark.slow)])
def test_a_long_queue_is_read(count: int) -> None:
    recorded = Recorded("22.05")
    held = next(job for job in recorded.jobs["jobs"] if job["job_state"] == "PENDING")
    recorded.jobs["jobs"] = [{**held, "job_id": number} for number in range(1, count + 1)]
    assert len(adapter(recorded).observe().jobs) == count
