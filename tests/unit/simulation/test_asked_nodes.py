"""Jobs that ask for a number of nodes, where the answer is known by hand."""

from itertools import pairwise
from typing import Any

import polars as pl
import pytest

from gpuyard import _core
from gpuyard.cluster.model import Cluster, GpuType, NodeGroup, parse_cluster
from gpuyard.config import SimulationConfig
from gpuyard.env import SchedulingEnv
from gpuyard.errors import InputError
from gpuyard.native import make_snapshot
from gpuyard.policies.grammar import parse_policy
from gpuyard.simulation.explain import explain_job
from gpuyard.simulation.explain_text import sentences
from gpuyard.simulation.find import find_policy
from gpuyard.simulation.run import SimulationResult, simulate
from gpuyard.workload import Workload, make_workload
from gpuyard.workload.core_columns import asked_counts, asked_nodes, needs_of
from gpuyard.workload.schema import SCHEMA


def jobs(*rows: dict[str, Any]) -> Workload:
    """All submitted at 0 for 100 s unless they say otherwise."""
    plain = {"submit_s": 0.0, "duration_s": 100.0, "gpus": 0, "cpus": 0, "nodes": None}
    filled = [plain | row for row in rows]
    return make_workload(pl.DataFrame(filled, schema={name: SCHEMA[name] for name in filled[0]}))


def run(
    workload: Workload, cluster: str | Cluster, policy: str = "fifo", **settings: Any
) -> SimulationResult:
    made = parse_cluster(cluster) if isinstance(cluster, str) else cluster
    return simulate(workload, made, parse_policy(policy), SimulationConfig(**settings))


def places(result: SimulationResult) -> list[list[tuple[int, int]]]:
    schedule = result.schedule
    pairs = list(zip(schedule.node.tolist(), schedule.node_gpus.tolist(), strict=True))
    return [pairs[begin:end] for begin, end in pairwise(schedule.node_offset.tolist())]


CPU_NODES = Cluster(
    gpu_types=(GpuType(name="none"),), nodes=(NodeGroup(gpus=0, type="none", cpus=24, count=4),)
)


def test_two_nodes_of_four_gpus_are_never_eight_on_one() -> None:
    assert places(run(jobs({"gpus": 8, "nodes": 2}), "2x8")) == [[(0, 4), (1, 4)]]
    assert places(run(jobs({"gpus": 8}), "2x8")) == [[(0, 8)]]


def test_it_waits_for_a_second_node_although_the_gpus_are_free_on_one() -> None:
    result = run(jobs({"gpus": 6}, {"gpus": 8, "nodes": 2}), "2x8")
    assert (result.schedule.start_us / 1e6).tolist() == [0.0, 100.0]


def test_cpu_jobs_on_several_nodes_run_where_one_node_is_too_small() -> None:
    wide = {"cpus": 64, "nodes": 4}
    result = run(jobs(wide, {"cpus": 8}, {"cpus": 9}), CPU_NODES)
    assert places(result) == [[(node, 0) for node in range(4)], [(0, 0)], [(0, 0)]]
    assert (result.schedule.start_us / 1e6).tolist() == [0.0, 0.0, 100.0]  # 16 of 24 are held on each
    with pytest.raises(InputError, match="needs 64 CPUs and can never run"):
        run(jobs({"cpus": 64}), CPU_NODES)


def test_cpus_held_on_several_nodes_count_in_the_metrics() -> None:
    result = run(jobs({"cpus": 48, "nodes": 4}), CPU_NODES)
    assert result.metrics()["cpu_utilization"] == pytest.approx(0.5)


def test_a_gang_that_does_not_divide_gives_the_first_nodes_one_more() -> None:
    assert places(run(jobs({"gpus": 5, "nodes": 3}), "4x4", "fifo/first-fit")) == [[(0, 2), (1, 2), (2, 1)]]


def test_more_nodes_than_gpus_are_as_many_as_gpus_and_one_of_one_is_no_request() -> None:
    rows = [{"gpus": 2, "gpu_milli": 1000, "nodes": 5}, {"gpus": 1, "nodes": 4}, {"gpus": 0, "nodes": 1}]
    assert [asked_nodes(row) for row in rows] == [2, None, None]
    assert asked_counts(
        pl.DataFrame([{"gpus": row["gpus"], "nodes": row["nodes"]} for row in rows])
    ).tolist() == [2, 0, 0]
    assert places(run(jobs({"gpus": 2, "nodes": 5}), "2x8")) == [[(0, 1), (1, 1)]]


@pytest.mark.parametrize(
    ("placement", "expected"),
    [
        ("consolidate", [1, 2]),
        ("worst-fit", [0, 3]),
        ("spread", [0, 3]),
        ("first-fit", [0, 1]),
        ("anywhere", [0, 1]),
    ],
)
def test_the_rule_says_which_nodes(placement: str, expected: list[int]) -> None:
    """Nodes 0 to 3 have 4, 2, 3 and 4 GPUs free."""
    running = {"job": [0, 1], "begin_s": [0.0, 0.0], "gpus": [2, 1], "node": [1, 2], "node_gpus": [2, 1]}
    queue = {"job": [2], "submit_s": [1.0], "gpus": [4], "nodes": [2]}
    snapshot = make_snapshot(parse_cluster("4x4"), now_s=2.0, queue=queue, running=running)
    decision = find_policy(f"fifo/{placement}").decide(snapshot)
    assert decision.starts == [(2, [(node, 2) for node in expected])]


def test_what_was_asked_for_costs_no_locality() -> None:
    spread = run(jobs({"gpus": 4, "nodes": 4}), "4x8", locality_penalty=1.0)
    assert (spread.schedule.end_us / 1e6).tolist() == [100.0]


def test_the_message_names_the_nodes() -> None:
    with pytest.raises(InputError, match="needs 3 nodes with 4 free GPUs each and can never run"):
        run(jobs({"gpus": 12, "nodes": 3}), "2x8")
    assert (
        needs_of({"gpus": 5, "gpu_milli": 1000, "cpus": 3, "memory_mib": 0, "nodes": 2})
        == "5 GPUs on 2 nodes, 3 CPUs"
    )
    assert (
        needs_of({"gpus": 4, "gpu_milli": 1000, "cpus": 0, "memory_mib": 9, "nodes": 1})
        == "4 GPUs on 1 node, 9 MiB"
    )
    assert (
        needs_of({"gpus": 0, "gpu_milli": 1000, "cpus": 7, "memory_mib": 0, "nodes": 2})
        == "2 nodes with 4 CPUs each"
    )
    assert needs_of({"gpus": 0, "gpu_milli": 1000, "cpus": 0, "memory_mib": 0, "nodes": 2}) == "2 nodes"


def test_explain_names_the_nodes() -> None:
    workload = jobs({"gpus": 6}, {"gpus": 8, "nodes": 2})
    config = SimulationConfig()
    story = explain_job(workload, parse_cluster("2x8"), parse_policy("fifo"), config, 1)
    assert [wait.reason for wait in story.waits] == ["fragmented"]
    assert story.waits[0].detail.startswith("needs 2 nodes with 4 free GPUs each, and 10 are free")
    text = " ".join(sentences(story))
    assert "asked for 8 GPUs on 2 nodes" in text
    assert "The rule: as many nodes as it asked for, GPUs split evenly." in text


def test_milp_and_host_environments_refuse_such_jobs() -> None:
    workload = jobs({"gpus": 4, "nodes": 2}, {"gpus": 1})
    with pytest.raises(InputError, match="milp placement cannot be combined with jobs that ask"):
        run(workload, "2x8", "fifo/milp")
    with pytest.raises(InputError, match="asks for 2 nodes; where hosts are chosen a job sits on one"):
        SchedulingEnv("select-host", workload=workload, cluster=parse_cluster("2x8"), jobs_per_episode=2)
    queue = {"job": [1], "submit_s": [0.0], "gpus": [4], "nodes": [2]}
    with pytest.raises(InputError, match="milp placement cannot be combined with jobs that ask"):
        find_policy("fifo/milp").decide(make_snapshot(parse_cluster("2x8"), now_s=1.0, queue=queue))


class Puts:
    """Puts job 0 where it is told to."""

    preempts = False

    def __init__(self, *nodes: tuple[int, int]) -> None:
        self.nodes = list(nodes)

    def decide(self, snapshot: _core.Snapshot) -> _core.Decision:
        decision = _core.Decision()
        for job in snapshot.queue["job"]:
            decision.start(int(job), self.nodes)
        return decision


@pytest.mark.parametrize("nodes", [((0, 4),), ((0, 3), (1, 1)), ((0, 1), (1, 1), (2, 2)), ((1, 2), (2, 2))])
def test_a_policy_of_ones_own_must_give_what_was_asked_for(nodes: tuple[tuple[int, int], ...]) -> None:
    cluster, workload = parse_cluster("2x8,1x4"), jobs({"gpus": 4, "nodes": 2})
    with pytest.raises(ValueError, match="it asks for 2 nodes of one pool with its GPUs split evenly"):
        simulate(workload, cluster, Puts(*nodes), SimulationConfig())
    assert places(simulate(workload, cluster, Puts((0, 2), (1, 2)), SimulationConfig())) == [[(0, 2), (1, 2)]]


def test_a_running_cpu_job_holds_its_share_on_each_node_of_a_snapshot() -> None:
    held = {"job": [0], "begin_s": [0.0], "gpus": [0], "cpus": [40], "nodes": [2], "node_gpus": [0, 0]}
    parts = {"node_offset": [0, 2], "node": [1, 3]}
    snapshot = make_snapshot(CPU_NODES, now_s=1.0, queue={}, running=held | parts)
    assert snapshot.nodes["free_cpus"].tolist() == [24, 4, 24, 4]
    with pytest.raises(InputError, match="it sits on 2 nodes, but column nodes says 3"):
        make_snapshot(CPU_NODES, now_s=1.0, queue={}, running=held | parts | {"nodes": [3]})
