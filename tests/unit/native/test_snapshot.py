"""Snapshots made of plain arrays: what they say, and what is refused with table, row and column."""

import math
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gpuyard import parse_cluster
from gpuyard.cluster.model import Cluster, NodeGroup
from gpuyard.config import SimulationConfig
from gpuyard.errors import InputError
from gpuyard.native import make_snapshot, snapshot_arrays
from gpuyard.simulation.find import find_policy

PAGE = Path(__file__).parents[3] / "docs" / "contract" / "snapshot.md"
CLUSTER = parse_cluster("2x4,1x8")
QUEUE = {
    "job": [4, 5, 6],
    "submit_s": [1.0, 2.0, 2.0],
    "gpus": [2, 8, 4],
    "estimate_s": [50.0, math.nan, 10.0],
}
RUNNING = {
    "job": [1, 2],
    "begin_s": [0.0, 5.0],
    "estimate_s": [100.0, 30.0],
    "gpus": [5, 1],
    "node_offset": [0, 2, 3],
    "node": [0, 1, 2],
    "node_gpus": [4, 1, 1],
}


def snapshot(cluster: Cluster = CLUSTER, **changes: Any) -> Any:
    given: dict[str, Any] = {"now_s": 20.0, "queue": QUEUE, "running": RUNNING}
    return make_snapshot(cluster, **(given | changes))


def queue(**columns: Any) -> dict[str, Any]:
    return {"queue": QUEUE | columns}


def running(**columns: Any) -> dict[str, Any]:
    return {"running": RUNNING | columns}


@pytest.mark.parametrize(
    ("calculated_s", "now_s", "first"), [(None, 20.0, 6), (20.0, 20.0, 4), (None, -1.0, 4), (-500.0, -1.0, 6)]
)
def test_multifactor_stays_as_it_was_at_the_last_calculation(
    calculated_s: float | None, now_s: float, first: int
) -> None:
    """Job 6 comes first until ages count; job 4 is older. None: at the last multiple of 300 s."""
    config = SimulationConfig(age_weight=2e4, priority_weight=1.0, max_age_s=1e3, size_weight=0.0)
    columns = {"submit_s": [1.0, 2.0, 2.0] if now_s > 0 else [-400.0, -2.0, -2.0], "priority": [1, 1, 12]}
    made = snapshot(now_s=now_s, calculated_s=calculated_s, running={}, config=config, **queue(**columns))
    assert find_policy("multifactor+greedy").decide(made).starts[0][0] == first
    again = snapshot_arrays(made, CLUSTER)
    assert again["calculated_s"] == (calculated_s if calculated_s is not None else now_s // 300.0 * 300.0)


def test_a_snapshot_says_what_it_was_made_of() -> None:
    made = snapshot()
    assert made.now_s == 20.0
    assert made.queue["job"].tolist() == [4, 5, 6]
    assert made.queue["wait_s"].tolist() == [19.0, 18.0, 18.0]
    assert made.nodes["empty_gpus"].tolist() == [0, 3, 7]
    assert made.running["job"].tolist() == [2, 1]  # by expected end
    assert made.running["expected_end_s"].tolist() == [35.0, 100.0]
    assert made.nodes_of(1) == [(0, 4), (1, 1)]


def test_policies_of_all_kinds_decide_on_it() -> None:
    made = snapshot()
    assert find_policy("fifo").decide(made).starts == [(4, [(1, 2)])]
    assert find_policy("fifo+greedy").decide(made).starts == [(4, [(1, 2)]), (6, [(2, 4)])]
    assert find_policy("sjf+greedy").decide(made).starts == [(6, [(2, 4)]), (4, [(1, 2)])]
    assert find_policy("fifo/milp").decide(made).starts[0][0] == 4


def test_conservative_hands_its_plan_to_the_next_snapshot() -> None:
    policy = find_policy("fifo+conservative")
    first = policy.decide(snapshot())
    assert [row[:2] for row in first.reservations] == [(5, 35.0)]
    assert first.wake_s == 35.0
    assert first.backfilled == [6]
    plan = first.reservations
    parts = [nodes for *_, nodes in plan]
    table = {
        "job": [job for job, *_ in plan],
        "begin_s": [begin for _, begin, *_ in plan],
        "end_s": [end for _, _, end, _ in plan],
        "node_offset": np.cumsum([0, *(len(nodes) for nodes in parts)]),
        "node": [node for nodes in parts for node, _ in nodes],
        "node_gpus": [gpus for nodes in parts for _, gpus in nodes],
    }
    again = policy.decide(snapshot(reservations=table))
    assert again == first


def test_users_and_groups_go_by_name_or_number() -> None:
    by_name = snapshot(
        **queue(user=["b", "a", "b"], group=["x", "x", "y"]),
        users={"name": ["a", "b"], "usage": [7.0, 0.5]},
        groups={"name": ["x", "y"]},
        config=SimulationConfig(user_shares={"a": 100.0}),
    )
    assert by_name.queue["user"].tolist() == [1, 0, 1]
    assert by_name.queue["user_usage"].tolist() == [0.5, 7.0, 0.5]
    by_number = snapshot(**queue(user=[1, 0, 1]))
    assert by_number.queue["user"].tolist() == [1, 0, 1]
    without_table = snapshot(**queue(user=["b", "a", "b"]))
    assert without_table.queue["user"].tolist() == [1, 0, 1]


def test_owned_nodes_are_for_jobs_of_their_group() -> None:
    cluster = Cluster(nodes=(NodeGroup(gpus=4), NodeGroup(gpus=4, owner="red")))
    waiting = {"job": [1, 2, 3], "submit_s": [0, 0, 0], "gpus": [4, 4, 4], "group": ["red", "blue", "red"]}
    made = make_snapshot(cluster, now_s=1.0, queue=waiting)
    assert find_policy("fifo+greedy").decide(made).starts == [(2, [(0, 4)]), (1, [(1, 4)])]
    waiting["owner"] = [None, "red", None]  # type: ignore[list-item]
    made = make_snapshot(cluster, now_s=1.0, queue=waiting)
    assert find_policy("fifo+greedy").decide(made).starts == [(1, [(0, 4)]), (2, [(1, 4)])]


def test_down_and_promised_nodes_take_no_jobs() -> None:
    nodes = {"down": [0, 0, 0], "promised": [0, 1, 0]}
    assert snapshot(nodes=nodes).nodes["available"].tolist() == [1, 0, 1]
    made = snapshot(**running(node=[0, 1, 1]), nodes={"down": [0, 0, 1]})
    assert made.nodes["available"].tolist() == [1, 1, 0]
    assert find_policy("fifo").decide(made).starts == [(4, [(1, 2)])]


def test_shared_gpus_are_told_apart() -> None:
    shares = running(gpus=[1, 1], gpu_milli=[300, 600], node=[0, 0], node_gpus=[1, 1], node_offset=[0, 1, 2])
    assert snapshot(**shares).nodes["empty_gpus"].tolist() == [3, 4, 8]  # one GPU holds both
    shares["running"]["gpu_mask"] = [0b1000, 0b0010]
    made = snapshot(**shares)
    assert made.nodes["empty_gpus"].tolist() == [2, 4, 8]
    assert snapshot_arrays(made, CLUSTER)["running"]["gpu_mask"].tolist() == [2, 8]  # by expected end


def test_an_empty_cluster_and_an_empty_queue_are_snapshots_too() -> None:
    made = make_snapshot(CLUSTER, now_s=0.0, queue={})
    assert find_policy("fifo+easy").decide(made).starts == []
    again = make_snapshot(CLUSTER, **snapshot_arrays(made, CLUSTER))
    assert snapshot_arrays(again, CLUSTER)["now_s"] == 0.0


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (queue(job=[4, 4, 6]), r"queue row 1, column job: 4 is also in queue row 0; give every job its own"),
        (queue(job=[1, 5, 6]), r"queue row 0, column job: 1 is also in running row 0"),
        (queue(gpus=[2, -8, 4]), r"queue row 1, column gpus: -8; expected a whole number from 0"),
        (queue(gpus=[2, 1.5, 4]), r"queue row 1, column gpus: 1.5; expected a whole number"),
        (queue(gpus=[2, 8]), r"table queue, column gpus: 2 entries for 3 rows"),
        (queue(gpus=[[2, 8, 4]]), r"table queue, column gpus: expected one number per row"),
        (queue(gpus=["2", "8", "4"]), r"table queue, column gpus: expected one number per row"),
        (
            queue(gpu_milli=[500, 1000, 1000]),
            r"queue row 0, column gpu_milli: 500 with 2 GPUs; only a job of one",
        ),
        (
            queue(submit_s=[1.0, math.nan, 2.0]),
            r"queue row 1, column submit_s: nan; expected a time in seconds",
        ),
        (queue(submit_s=[1.0, 2.0, math.inf]), r"queue row 2, column submit_s: inf"),
        (queue(submit_s=[3.0, 2.0, 2.0]), r"queue row 1, column submit_s: job 5 was submitted before job 4"),
        (
            queue(estimate_s=[50.0, 0.0, 1.0]),
            r"queue row 1, column estimate_s: 0.0; expected .* or NaN if unknown",
        ),
        (queue(colour=[1, 2, 3]), r"table queue has no column 'colour'; it has job, submit_s"),
        (queue(user=[0, -1, 0]), r"queue row 1, column user: -1 is not in table users"),
        (queue(owner=["red", None, None]), r"queue row 0, column owner: 'red' owns no nodes"),
        (queue(owner=[None]), r"table queue, column owner: 1 entries for 3 rows"),
        ({"queue": {"job": [1], "submit_s": [0.0]}}, r"table queue needs a column gpus"),
        (running(node=[0, 1, 3]), r"running row 1 \(job 2\): node 3 is not one of the cluster's 3 nodes"),
        (running(node=[1, 0, 2]), r"running row 0 \(job 1\): its nodes do not ascend"),
        (
            running(node_gpus=[4, 2, 1]),
            r"running row 0 \(job 1\): it holds 6 GPUs on 2 nodes, but column gpus says 5",
        ),
        (running(node_gpus=[5, 0, 1]), r"running row 0 \(job 1\): node_gpus is 0 on node 1"),
        (
            running(node_gpus=[4, 1, 9], gpus=[5, 9]),
            r"running row 1 \(job 2\): node 2 is over-committed: .* 9 GPUs",
        ),
        (
            running(node=[0, 1, 1], node_gpus=[4, 1, 4], gpus=[5, 4]),
            r"node 1 is over-committed: .* leave 3; check",
        ),
        (
            running(node_offset=[0, 4, 3]),
            r"running row 1, column node_offset: expected numbers that ascend from 0 to 3",
        ),
        (
            running(state=["running", "asleep"]),
            r"running row 1, column state: 'asleep'; expected starting, running",
        ),
        (
            running(state=["running", "stopping"]),
            r"running row 1, column stop_s: missing for a job whose state",
        ),
        (running(gpu_mask=[0b1111, 0b1, 0b11]), r"running row 1 \(job 2\): gpu_mask names 2 GPUs of node 2"),
        ({"nodes": {"down": [0, 0, 1]}}, r"nodes row 2: down, but a job of table running holds it"),
        ({"nodes": {"down": [0, 0]}}, r"table nodes, column down: 2 entries for 3 rows"),
        ({"users": {"name": ["a", "a"]}}, r"users row 1, column name: 'a' is there twice"),
        (
            {"config": SimulationConfig(user_shares={"a": 2.0})},
            r"config.user_shares goes by name; give table users",
        ),
        ({"finished_early": ["red"]}, r"finished_early: 'red' owns no nodes"),
        ({"now_s": "noon"}, r"now_s: 'noon'; expected a number of seconds"),
        (
            {"reservations": {"job": [9], "begin_s": [30.0], "node": [0], "node_gpus": [1]}},
            r"reservations row 0 \(job 9\): no such job is in table queue",
        ),
    ],
)
def test_what_does_not_fit_together_is_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        snapshot(**changes)


def test_cpus_and_memory_are_not_given_twice() -> None:
    cluster = Cluster(nodes=(NodeGroup(gpus=4, cpus=8, memory_mib=100),))
    held = {
        "job": [1, 2],
        "begin_s": [0, 0],
        "gpus": [1, 1],
        "cpus": [5, 4],
        "node": [0, 0],
        "node_gpus": [1, 1],
    }
    with pytest.raises(
        InputError, match=r"running row 1 \(job 2\): node 0 is over-committed: it lacks the CPUs"
    ):
        make_snapshot(cluster, now_s=1.0, queue={}, running=held)


def test_the_example_of_the_page_does_what_it_says() -> None:
    example = re.search(r"^```python\n(.*?)^```$", PAGE.read_text(encoding="utf-8"), re.M | re.S)
    assert example
    names: dict[str, Any] = {}
    exec(example[1], names)
    said = re.search(r"# (\[.*\]):", example[1])
    assert said
    assert repr(names["decision"].starts) == said[1]


def test_the_page_lists_every_column() -> None:
    from gpuyard.native import columns

    text = PAGE.read_text(encoding="utf-8")
    for table in (
        columns.QUEUE,
        columns.RUNNING,
        columns.NODES,
        columns.USERS,
        columns.FINISHED,
        columns.MIX,
    ):
        for column in table:
            assert f"`{column.name}`" in text
