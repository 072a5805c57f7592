"""What is learnt from one state to the next, and that it survives as text."""

import json
import math
from dataclasses import replace

import pytest

from gpuyard.cluster.model import parse_cluster
from gpuyard.errors import InputError
from gpuyard.serve.decision.memory import InFlight, Memory, Usage
from gpuyard.serve.records import Happened
from gpuyard.serve.state import ClusterState, Ended, Job, Node, Share

HALF_S = 1000.0
NODES = (Node("n1", 8),)


def job(id: str, phase: str = "waiting", gpus: int = 2, **more: object) -> Job:
    known: dict[str, object] = {"user": "ada", "group": "g", "limit_s": 100.0}
    if phase != "waiting":
        known |= {"begin_s": 10.0, "shares": (Share("n1", gpus),)}
    return Job(id, phase, 0.0, gpus=gpus, **(known | more))  # type: ignore[arg-type]


def at(now_s: float, *jobs: Job, ended: tuple[Ended, ...] = ()) -> ClusterState:
    return ClusterState("test", now_s, jobs, NODES, ended=ended)


def learn(memory: Memory, *states: ClusterState) -> list[tuple[Happened, ...]]:
    return [memory.update(one, HALF_S, "requested") for one in states]


def what(happened: tuple[Happened, ...]) -> list[tuple[str, str, float]]:
    return [(one.job, one.what, one.at_s) for one in happened]


def test_the_life_of_a_job_is_seen() -> None:
    memory = Memory()
    seen = learn(
        memory,
        at(5.0, job("1")),
        at(12.0, job("1", "running")),
        at(20.0, job("1", "running")),
        at(30.0, ended=(Ended("1", 25.0, 15.0, 10.0),)),
    )
    assert [what(one) for one in seen] == [
        [("1", "submitted", 0.0)],
        [("1", "started", 10.0)],
        [],
        [("1", "ended", 25.0)],
    ]
    assert seen[1][0].nodes == ("n1",)
    assert memory.predict_s("ada", "g", 2) == 15.0


def test_a_job_that_is_merely_gone_ended_now() -> None:
    memory = Memory()
    seen = learn(memory, at(12.0, job("1", "running")), at(30.0))
    assert what(seen[1]) == [("1", "ended", 30.0)]
    assert memory.predict_s("ada", "g", 2) == 20.0


def test_a_job_that_leaves_the_queue_unstarted_teaches_nothing() -> None:
    memory = Memory()
    seen = learn(memory, at(5.0, job("1")), at(6.0))
    assert what(seen[1]) == [("1", "gone", 6.0)]
    assert memory.predict_s("ada", "g", 2) == 3600.0


def test_a_job_that_ran_between_two_states_counts() -> None:
    memory = Memory()
    seen = learn(memory, at(5.0, job("1")), at(60.0, ended=(Ended("1", 50.0, 30.0),)))
    assert what(seen[1]) == [("1", "started", 20.0), ("1", "ended", 50.0)]
    assert memory.predict_s("ada", "g", 2) == 30.0
    used = memory.users["ada"]
    expected = 2 * HALF_S / math.log(2) * (1 - 2 ** (-30.0 / HALF_S))
    assert used.gpus == 0
    assert used.gpu_s == pytest.approx(expected, rel=1e-12)


def test_a_requeued_job_keeps_its_service() -> None:
    memory = Memory()
    seen = learn(memory, at(12.0, job("1", "running")), at(40.0, job("1")))
    assert what(seen[1]) == [("1", "requeued", 40.0)]
    assert (memory.attained_s, memory.queued_s) == ({"1": 30.0}, {"1": 40.0})
    assert memory.users["ada"].gpus == 0
    learn(memory, at(41.0))
    assert (memory.attained_s, memory.queued_s) == ({}, {})


def test_usage_decays_by_half_and_is_forgotten_in_the_end() -> None:
    usage = Usage(100.0)
    assert usage.at(round(HALF_S * 1e6), HALF_S) == 50.0
    memory = Memory()
    learn(memory, at(12.0, job("1", "running")), at(30.0))
    assert "ada" in memory.users
    learn(memory, at(30.0 + 60 * HALF_S))
    assert memory.users == memory.groups == {}


@pytest.mark.parametrize("jump_s", [3600.0, -3600.0])
def test_a_clock_that_jumps_gives_finite_usage_and_run_times(jump_s: float) -> None:
    memory = Memory()
    learn(
        memory,
        at(10_000.0, job("1", "running", begin_s=9_990.0)),
        at(10_000.0 + jump_s, job("1", "running", begin_s=9_990.0), job("2")),
        at(10_010.0 + jump_s, job("2", "running", begin_s=10_005.0 + jump_s)),
        at(10_020.0 + jump_s),
    )
    for usage in (*memory.users.values(), *memory.groups.values()):
        assert math.isfinite(usage.gpu_s)
        assert usage.gpu_s >= 0.0
        assert usage.gpus == 0
    assert 0.0 < memory.predict_s("ada", "g", 2) < 7200.0
    json.loads(memory.to_json())


def test_predictions_go_from_the_most_alike_to_all() -> None:
    memory = Memory()
    memory.learn("ada", "g", 2, 10.0)
    memory.learn("ada", "h", 4, 30.0)
    memory.learn("bo", "g", 8, 80.0)
    assert memory.predict_s("ada", "g", 2) == 10.0
    assert memory.predict_s("ada", "h", 2) == 10.0
    assert memory.predict_s("ada", "x", 1) == 20.0
    assert memory.predict_s("cy", "x", 8) == 80.0
    assert memory.predict_s("cy", "x", 16) == 40.0


def test_names_cannot_be_mistaken_for_each_other() -> None:
    memory = Memory()
    memory.learn('a", "b', "", 1, 10.0)
    memory.learn("a", 'b", "', 1, 90.0)
    assert memory.predict_s('a", "b', "", 1) == 10.0
    assert memory.predict_s("a", 'b", "', 1) == 90.0


def test_a_prediction_is_made_when_a_job_arrives() -> None:
    memory = Memory()
    learn(memory, at(5.0, job("1")))
    memory.learn("ada", "g", 2, 10.0)
    learn(memory, at(6.0, job("1"), job("2")))
    assert memory.predictions_s == {"1": 3600.0, "2": 10.0}
    assert memory.estimate_s(job("1"), "history") == 3600.0
    assert memory.estimate_s(job("1"), "requested") == 100.0


@pytest.mark.parametrize(
    ("run_s", "cluster", "early"),
    [(50.0, "1x8", (None,)), (100.0, "1x8", ()), (120.0, "1x8", ()), (50.0, "1x8:v100@2", ())],
)
def test_an_end_is_early_by_the_speed_of_its_nodes(run_s: float, cluster: str, early: object) -> None:
    memory = Memory()
    end_s = 10.0 + run_s
    learn(memory, at(12.0, job("1", "running")), at(end_s, ended=(Ended("1", end_s, run_s, 10.0),)))
    assert memory.finished_early(parse_cluster(cluster), {"n1": 0}, 0.0) == early
    learn(memory, at(end_s + 1.0))
    assert memory.finished_early(parse_cluster(cluster), {"n1": 0}, 0.0) == ()


def test_an_end_between_two_states_is_early_by_the_nodes_of_its_release() -> None:
    memory = Memory()
    learn(memory, at(5.0, job("1")))
    memory.in_flight["1"] = InFlight([("n1", 2)], 5.0)
    learn(memory, at(65.0, ended=(Ended("1", 65.0, 60.0, 5.0),)))
    assert memory.finished_early(parse_cluster("1x8:v100@2"), {"n1": 0}, 0.0) == ()
    assert memory.finished_early(parse_cluster("1x8:v100@0.5"), {"n1": 0}, 0.0) == (None,)


def test_a_job_without_an_estimate_always_ends_early() -> None:
    memory = Memory()
    learn(memory, at(12.0, job("1", "running", limit_s=None)), at(99.0))
    assert memory.finished_early(parse_cluster("1x8"), {"n1": 0}, 0.0) == (None,)


def test_releases_are_in_flight_until_the_job_runs_or_is_gone() -> None:
    memory = Memory()
    learn(memory, at(5.0, job("1"), job("2"), job("3")))
    for id in ("1", "2", "3"):
        memory.in_flight[id] = InFlight([("n1", 2)], 5.0, "1-0")
    learn(memory, at(6.0, job("1", "running"), job("2")))
    assert list(memory.in_flight) == ["2"]


def test_stops_are_forgotten_after_a_day() -> None:
    memory = Memory()
    memory.stops = [("1", 0.0, 1.0), ("2", 50_000.0, 1.0)]
    learn(memory, at(100_000.0))
    assert memory.stops == [("2", 50_000.0, 1.0)]


def test_memory_is_read_back_to_the_last_bit() -> None:
    memory = Memory()
    learn(
        memory,
        at(0.1 + 0.2, job("1"), job("2", "running", begin_s=1 / 3)),
        at(50.0, job("1"), job("3")),
    )
    memory.in_flight["1"] = InFlight([("n1", 2)], 50.0, "1-0")
    memory.stops = [("2", 1 / 3, 0.1)]
    memory.reservations = [["1", 0.1, None, [["n1", 2]]]]
    again = Memory.from_json(memory.to_json())
    assert again == replace(memory, previous=None)
    assert again.to_json() == memory.to_json()
    assert again.in_flight["1"].nodes == [("n1", 2)]


@pytest.mark.parametrize("text", ["", "[]", "7", "{}", '{"version":1,"colour":2}', '{"version":1}'])
def test_what_is_no_memory_is_refused(text: str) -> None:
    with pytest.raises(InputError, match="cannot be read"):
        Memory.from_json(text)


def test_memory_of_another_version_is_refused() -> None:
    text = json.dumps(json.loads(Memory().to_json()) | {"version": 9})
    with pytest.raises(InputError, match="version 9"):
        Memory.from_json(text)
