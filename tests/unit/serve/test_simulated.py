"""The simulator behind the interface of a live cluster."""

import polars as pl
import pytest

from gpuyard.cluster.model import parse_cluster
from gpuyard.config import SimulationConfig
from gpuyard.policies.base import as_policy
from gpuyard.policies.grammar import parse_policy
from gpuyard.serve.adapter import AdapterError, GiveBack, Start
from gpuyard.serve.simulated import OVER, SimulatedCluster
from gpuyard.serve.state import ClusterState
from gpuyard.workload import Workload, make_workload

FIFO = as_policy(parse_policy("fifo+easy"))


def log(**more: object) -> Workload:
    columns: dict[str, object] = {
        "submit_s": [0.0, 5.0, 6.0],
        "duration_s": [20.0, 10.0, 10.0],
        "gpus": [4, 2, 0],
        "estimate_s": [40.0, None, 30.0],
        "user": ["ada", "bo", None],
        "cpus": [5, 0, 3],
    }
    return make_workload(pl.DataFrame(columns | more))


def simulated(workload: Workload | None = None, cluster: str = "2x4") -> SimulatedCluster:
    return SimulatedCluster(workload or log(), parse_cluster(cluster), FIFO, SimulationConfig())


def start(job: str, node: str, gpus: int) -> Start:
    return Start(job, (node,), "1-0", gpus=(gpus,))


def test_jobs_wait_for_the_agent_with_what_they_asked_for() -> None:
    state = simulated().observe()
    (job,) = state.jobs
    assert (job.id, job.phase, job.held, job.user, job.gpus, job.cpus) == (
        "0",
        "waiting",
        "agent",
        "ada",
        4,
        5,
    )
    assert (job.limit_s, job.submit_s, job.row) == (40.0, 0.0, 0)
    assert [(node.name, node.gpus, node.closed) for node in state.nodes] == [("n0", 4, ""), ("n1", 4, "")]
    assert (state.now_s, state.instant) == (0.0, 0)


def test_started_jobs_run_on_their_nodes_and_end() -> None:
    cluster = simulated()
    cluster.observe()
    cluster.apply([start("0", "n1", 4)])
    state = cluster.observe()
    assert state.now_s == 5.0
    (runs,) = state.running
    assert (runs.begin_s, [(share.node, share.gpus, share.cpus) for share in runs.shares]) == (
        0.0,
        [("n1", 4, 5)],
    )
    cluster.apply([start("1", "n0", 2)])
    cluster.observe()
    cluster.apply([start("2", "n0", 0)])
    ended: list[tuple[object, ...]] = []

    def go_on() -> None:
        while True:
            ended.extend((one.id, one.end_s, one.run_s, one.begin_s) for one in cluster.observe().ended)
            cluster.apply([])

    with pytest.raises(AdapterError, match="ended") as over:
        go_on()
    assert over.value.code == OVER
    assert ended == [("1", 15.0, 10.0, 5.0), ("2", 16.0, 10.0, 6.0), ("0", 20.0, 20.0, 0.0)]
    assert cluster.schedule()["start_us"].tolist() == [0, 5_000_000, 6_000_000]


def test_states_can_be_written_down() -> None:
    state = simulated().observe()
    assert ClusterState.from_json(state.json_text) == state


def test_types_of_gpus_and_priorities_reach_the_state() -> None:
    workload = log(gpu_types=[["a100", "v100"], None, None], priority=[0.0, 2.0, None])
    cluster = simulated(workload, "1x4:v100,1x4:a100")
    state = cluster.observe()
    assert state.jobs[0].gpu_types == ("a100", "v100")
    assert state.jobs[0].site_priority == 0.0
    assert [node.gpu_type for node in state.nodes] == ["v100", "a100"]


def test_a_start_that_does_not_fit_is_an_error() -> None:
    cluster = simulated()
    cluster.observe()
    with pytest.raises(ValueError, match="cannot start job 0"):
        cluster.apply([start("0", "n0", 3)])


def test_it_does_what_a_simulation_can_and_nothing_else() -> None:
    cluster = simulated()
    cluster.observe()
    (outcome,) = cluster.apply([GiveBack("0", "test")])
    assert (outcome.code, "GiveBack" in outcome.error) == ("refused", True)
    assert cluster.give_back_all() == []
    assert cluster.name == "simulated"
