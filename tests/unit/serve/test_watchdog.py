"""The watchdog: it gives jobs back when the agent is silent, and only then."""

import io
from pathlib import Path

import pytest

from gpuyard.serve.adapter import AdapterError
from gpuyard.serve.process.log import Log
from gpuyard.serve.signs import Signs
from gpuyard.serve.watchdog import look, release, report, watch
from support.fake_cluster import FakeCluster

NOW_S = 1_700_000_000.0


def held_jobs() -> FakeCluster:
    cluster = FakeCluster({"n1": 1})
    for number in range(3):
        cluster.submit(str(number))
    return cluster


def signs_at(directory: Path, beat_s: float | None) -> Signs:
    signs = Signs(directory)
    signs.make()
    if beat_s is not None:
        signs.beat(beat_s)
    return signs


def still_held(cluster: FakeCluster) -> int:
    return sum(job.held == "agent" for job in cluster.jobs.values())


def test_a_living_agent_keeps_its_jobs(tmp_path: Path) -> None:
    cluster = held_jobs()
    assert look(signs_at(tmp_path, NOW_S - 10), cluster, 30.0, NOW_S).alive
    assert still_held(cluster) == 3


@pytest.mark.parametrize("beat_s", [None, NOW_S - 31, NOW_S + 3600])
def test_jobs_of_a_silent_agent_are_given_back(tmp_path: Path, beat_s: float | None) -> None:
    cluster = held_jobs()
    found = look(signs_at(tmp_path, beat_s), cluster, 30.0, NOW_S)
    assert not found.alive
    assert found.ok
    assert len(found.outcomes) == 3
    assert still_held(cluster) == 0


def test_a_halt_file_counts_more_than_a_heartbeat(tmp_path: Path) -> None:
    cluster, signs = held_jobs(), signs_at(tmp_path, NOW_S)
    signs.halt("maintenance")
    assert look(signs, cluster, 30.0, NOW_S).why == "the agent is halted"
    assert still_held(cluster) == 0


def test_a_heartbeat_that_cannot_be_read_is_none(tmp_path: Path) -> None:
    cluster, signs = held_jobs(), signs_at(tmp_path, NOW_S)
    signs.heartbeat.write_text("soon\n")
    assert not look(signs, cluster, 30.0, NOW_S).alive
    assert still_held(cluster) == 0


def test_a_scheduler_that_does_not_answer_is_reported_and_asked_again(tmp_path: Path) -> None:
    cluster, stream = held_jobs(), io.StringIO()
    cluster.fails["give_back_all"] = AdapterError("slurmctld is down", "timeout")
    found = release(cluster, "asked")
    assert (found.ok, found.error) == (False, "slurmctld is down")
    report(found, Log(stream))
    assert "slurmctld is down" in stream.getvalue()
    cluster.fails.clear()
    rounds = iter([True, False])
    watch(signs_at(tmp_path, None), cluster, 30.0, Log(stream), every_s=0.0, go_on=lambda: next(rounds))
    assert still_held(cluster) == 0
