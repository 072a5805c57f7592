"""Any state that a scheduler may tell makes a snapshot on which policies decide nothing impossible."""

import time
from dataclasses import replace
from typing import Any

import pytest

from gpuyard.config import SimulationConfig
from gpuyard.errors import InputError
from gpuyard.native.snapshot import snapshot_arrays
from gpuyard.policies.grammar import parse_policy
from gpuyard.serve.decision.deciding import Made, decide_on
from gpuyard.serve.decision.memory import InFlight, Memory
from gpuyard.serve.decision.snapshot import LiveSnapshot, make_live_snapshot
from gpuyard.serve.settings import ServeSettings
from gpuyard.serve.state import ClusterState, Job, Partition, Share
from support.live_states import NOW_S, node, running, state, waiting

SETTINGS = ServeSettings()


def snap(at: ClusterState, memory: Memory | None = None) -> LiveSnapshot:
    memory = memory or Memory()
    memory.update(at, 1000.0, "requested")
    return make_live_snapshot(at, memory, SimulationConfig())


def decided(at: ClusterState, policy: str = "fifo+greedy", memory: Memory | None = None) -> Made:
    memory = memory or Memory()
    memory.update(at, 1000.0, "requested")
    return decide_on(at, memory, parse_policy(policy), SETTINGS)


def starts(at: ClusterState, policy: str = "fifo+greedy", memory: Memory | None = None) -> dict[str, Any]:
    return {planned.job: planned.nodes for planned in decided(at, policy, memory).starts}


def held(live: LiveSnapshot) -> dict[str, int]:
    """GPUs in use by node, as a policy sees it."""
    table = snapshot_arrays(live.snapshot, live.cluster)["running"]
    used = dict.fromkeys(live.nodes, 0)
    for number, gpus in zip(table["node"], table["node_gpus"], strict=True):
        used[live.nodes[int(number)]] += int(gpus)
    return used


# --- nodes and jobs that do not go together


def test_an_empty_cluster_is_refused_in_words() -> None:
    with pytest.raises(InputError, match="no nodes"):
        snap(ClusterState("test", NOW_S))


def test_a_cluster_without_jobs_decides_nothing() -> None:
    made = decided(state())
    assert (made.order, made.starts) == ((), ())


def test_a_job_on_an_unknown_node_takes_no_room_and_is_told() -> None:
    at = state(running("1", Share("gone", 8, 8)), waiting("2", 8), waiting("3", 8))
    assert set(starts(at)) == {"2", "3"}
    assert any("gone" in note for note in snap(at).notes)


def test_a_job_that_runs_nowhere_is_told() -> None:
    at = state(running("1", gpus=4), waiting("2", 8))
    assert set(starts(at)) == {"2"}
    assert any("job 1" in note for note in snap(at).notes)


def test_a_node_with_more_jobs_than_it_can_hold_takes_no_more() -> None:
    at = state(
        running("1", Share("n1", 6, 6)), running("2", Share("n1", 6, 6)), waiting("3", 1), waiting("4", 8)
    )
    assert starts(at) == {"3": (("n2", 1),)}
    assert held(snap(at))["n1"] == 8
    assert any("n1" in note for note in snap(at).notes)


@pytest.mark.parametrize("with_job", [False, True])
def test_a_closed_node_takes_no_jobs(with_job: bool) -> None:
    jobs = [running("1", Share("n1", 4, 4))] if with_job else []
    at = state(*jobs, waiting("2", 2), nodes=(node("n1", closed="drained"), node("n2")))
    assert starts(at) == {"2": (("n2", 2),)}
    for policy in ("fifo+easy", "fifo+conservative", "sjf+strict", "fifo+greedy/spread"):
        for nodes in starts(at, policy).values():
            assert {name for name, _ in nodes} == {"n2"}


def test_a_cluster_whose_nodes_are_all_closed_starts_nothing() -> None:
    at = state(waiting("2", 2), nodes=(node("n1", closed="down"), node("n2", closed="down")))
    assert starts(at, "fifo+easy") == {}


def test_gpus_in_use_by_nobody_knows_whom_are_not_given_away() -> None:
    at = state(waiting("1", 4), nodes=(node("n1", gpus_used=6), node("n2", gpus_used=8)))
    assert starts(at) == {}
    assert starts(state(waiting("1", 2), nodes=(node("n1", gpus_used=6), node("n2", gpus_used=8)))) == {
        "1": (("n1", 2),)
    }


def test_jobs_count_where_the_node_says_that_less_is_in_use() -> None:
    at = state(running("1", Share("n1", 8, 8)), waiting("2", 8), nodes=(node("n1", gpus_used=0),))
    assert starts(at) == {}


def test_a_node_that_says_more_than_it_has_takes_no_jobs() -> None:
    at = state(waiting("1", 1), nodes=(node("n1", gpus_used=12),))
    assert starts(at) == {}


# --- jobs of all kinds


def test_a_job_that_shares_with_nobody_keeps_its_node() -> None:
    at = state(running("1", Share("n1", 1, 1), exclusive=True), waiting("2", 1), nodes=(node("n1"),))
    assert starts(at) == {}


def test_a_job_that_wants_whole_nodes_gets_an_empty_one() -> None:
    at = state(running("1", Share("n1", 1, 1)), waiting("2", 1, exclusive=True), waiting("3", 1))
    assert starts(at) == {"2": (("n2", 8),), "3": (("n1", 1),)}


def test_whole_nodes_of_several_kinds_are_left_to_the_scheduler() -> None:
    live = snap(state(waiting("1", 1, exclusive=True), nodes=(node("n1", 8), node("n2", 4))))
    assert live.queue == ()
    assert "whole nodes" in live.left["1"]


def test_a_job_with_unlike_parts_holds_what_it_holds() -> None:
    at = state(
        running("1", Share("n1", 5, 60, 9), Share("n2", 1, 1, 500_000), cpus=61, memory_mib=500_009),
        waiting("2", 3, cpus=3),
        waiting("3", 7, cpus=7),
    )
    assert held(snap(at)) == {"n1": 5, "n2": 1}
    assert starts(at) == {"2": (("n1", 3),), "3": (("n2", 7),)}


def test_cpus_and_memory_are_limits() -> None:
    at = state(running("1", Share("n1", 1, 60, 0)), waiting("2", 1, cpus=8), nodes=(node("n1"),))
    assert starts(at) == {}
    at = state(waiting("2", 1, memory_mib=600_000), nodes=(node("n1"),))
    assert starts(at) == {}


def test_jobs_in_flight_hold_their_nodes_and_are_not_decided_again() -> None:
    memory = Memory()
    at = state(waiting("1", 8), waiting("2", 8), nodes=(node("n1"),))
    memory.update(at, 1000.0, "requested")
    memory.in_flight["1"] = InFlight([("n1", 8)], NOW_S)
    made = decided(at, memory=memory)
    assert made.starts == ()
    assert [ranked.job for ranked in made.order] == ["2"]


def test_a_job_in_flight_without_gpus_holds_its_cpus_once() -> None:
    memory = Memory()
    jobs = (waiting("1", 0, cpus=64, nodes=2), waiting("2", 0, cpus=32), waiting("3", 0, cpus=33))
    at = state(*jobs)
    memory.update(at, 1000.0, "requested")
    memory.in_flight["1"] = InFlight([("n1", 0), ("n2", 0)], NOW_S)
    assert set(starts(at, memory=memory)) == {"2"}


@pytest.mark.parametrize(
    ("job", "why"),
    [
        (waiting("1", held="other"), "held"),
        (waiting("1", left="asks for licences"), "licences"),
        (waiting("1", gpus=17), "more GPUs"),
    ],
)
def test_jobs_that_are_not_decided_are_listed_with_the_reason(job: Job, why: str) -> None:
    live = snap(state(job))
    assert live.queue == ()
    assert why in live.left["1"]


def test_jobs_of_one_submission_are_in_the_order_of_their_numbers() -> None:
    at = state(waiting("7_10", 1), waiting("7_2", 1), waiting("100", 1), waiting("99", 1))
    assert [ranked.job for ranked in decided(at).order] == ["7_2", "7_10", "99", "100"]


# --- partitions


PARTITIONS = (
    Partition("big", ("n1", "n2"), default=True),
    Partition("small", ("n2",), tier=2, max_time_s=600.0),
)


def test_jobs_start_on_nodes_of_their_partition_only() -> None:
    at = state(
        *(waiting(str(i), 8, partition="small", limit_s=60.0) for i in range(2)), partitions=PARTITIONS
    )
    assert starts(at) == {"0": (("n2", 8),)}


def test_a_job_of_an_unknown_partition_is_left() -> None:
    live = snap(state(waiting("1", partition="secret"), partitions=PARTITIONS))
    assert "secret" in live.left["1"]


def test_a_running_job_of_an_unknown_partition_holds_its_nodes() -> None:
    at = state(
        running("1", Share("n2", 8, 8), partition="secret"),
        waiting("2", 8, partition="small", limit_s=60.0),
        partitions=PARTITIONS,
    )
    assert starts(at) == {}


# --- clocks and sizes


@pytest.mark.parametrize("jump_s", [3600.0, -3600.0])
def test_a_clock_that_jumps_stops_no_decision(jump_s: float) -> None:
    memory = Memory()
    at = state(running("1", Share("n1", 8, 8)), waiting("2", 4))
    memory.update(at, 1000.0, "requested")
    for policy in ("fifo+easy", "fair-share+easy", "wfp3+greedy", "fifo+conservative", "multifactor+slurm"):
        assert set(starts(replace(at, now_s=NOW_S + jump_s), policy, memory)) == {"2"}


def test_jobs_of_the_future_are_decided() -> None:
    at = state(waiting("1", 4, waited_s=-500.0), running("2", Share("n1", 1, 1), ran_s=-500.0))
    assert set(starts(at, "wfp3+easy")) == {"1"}


def many(count: int) -> ClusterState:
    jobs = [
        waiting(str(i), 1 + i % 4, waited_s=float(i), user=f"u{i % 50}", held="agent") for i in range(count)
    ]
    return state(*jobs, nodes=tuple(node(f"n{i}") for i in range(64)))


def test_five_thousand_waiting_jobs_are_decided() -> None:
    made = decided(many(5_000), "wspt+easy")
    assert len(made.order) == 5_000
    assert sum(gpus for planned in made.starts for _, gpus in planned.nodes) == 512


@pytest.mark.slow
def test_a_hundred_thousand_waiting_jobs_are_decided() -> None:
    at = many(100_000)
    began = time.process_time()
    made = decided(at, "fifo+easy")
    assert time.process_time() - began < 60.0
    assert len(made.order) == 100_000
    assert ClusterState.from_json(at.json_text) == at
