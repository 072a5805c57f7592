"""Whatever goes wrong, jobs go back to the scheduler, and the journal says why."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from gpuyard.serve.adapter import AdapterError, GiveBack, Reorder, Start
from gpuyard.serve.journal import JournalError
from support.fake_cluster import NOW_S, FakeCluster, Served, Untouchable

Serve = Callable[..., Served]


@pytest.fixture
def serve(tmp_path: Path) -> Iterator[Serve]:
    """Agents on fake clusters; they are stopped in the end."""
    made: list[Served] = []

    def start(cluster: FakeCluster, policy: Any = "fifo+easy", **settings: Any) -> Served:
        made.append(Served(tmp_path / f"state{len(made)}", cluster, policy, **settings))
        return made[-1]

    yield start
    for one in made:
        one.cluster.fails.clear()
        if not isinstance(one.cluster, Untouchable):
            one.close()


def broken(*_: object, **__: object) -> None:
    raise JournalError("journal: attempt to write a readonly database")


# --- all is well


def test_jobs_start_on_their_nodes_and_end(serve: Serve) -> None:
    cluster = FakeCluster({"n1": 4, "n2": 4})
    served = serve(cluster)
    for number in range(12):
        cluster.submit(str(number), gpus=1 + number % 4, run_s=5.0)
    served.rounds(60)
    assert cluster.jobs == {}
    assert sorted(cluster.asked(Start), key=int) == [str(number) for number in range(12)]
    assert cluster.given_back_all == 0


def test_jobs_run_on_exactly_the_decided_nodes(serve: Serve) -> None:
    cluster = FakeCluster({"n1": 4, "n2": 4})
    served = serve(cluster)
    for number in range(6):
        cluster.submit(str(number), gpus=2, run_s=1000.0)
    served.rounds(5)
    assert len(cluster.ids("running")) == 4
    for id in cluster.ids("running"):
        assert tuple(share.node for share in cluster.jobs[id].shares) == cluster.pinned[id].nodes


def test_a_released_job_counts_as_running_until_it_does(serve: Serve) -> None:
    cluster = FakeCluster({"n1": 4})
    served = serve(cluster)
    cluster.submit("1", gpus=4)
    cluster.stubborn = {"1"}
    served.round()
    cluster.submit("2", gpus=4)
    served.rounds(5)
    assert cluster.asked(Start) == ["1"]


def test_order_control_writes_priorities_in_the_order_of_the_policy(serve: Serve) -> None:
    cluster = FakeCluster({"n1": 1}, held=False)
    served = serve(cluster, "sjf+easy", control="order")
    cluster.submit("0", run_s=1e6)
    cluster.tick()
    for number in range(1, 9):
        cluster.submit(str(number), limit_s=1000.0 - 50 * number)
    served.round()
    waiting = sorted((job for job in cluster.jobs.values() if job.waits), key=lambda job: -job.priority)
    assert [job.id for job in waiting] == [str(number) for number in range(8, 0, -1)]
    written = len(cluster.applied)
    served.rounds(3)
    assert len(cluster.applied) == written
    assert {type(action) for action in cluster.applied} == {Reorder}


def test_rounds_are_recorded_with_what_happened(serve: Serve) -> None:
    cluster = FakeCluster()
    served = serve(cluster)
    cluster.submit("1", run_s=2.0)
    served.rounds(6)
    happened = [(event.job, event.what) for _, event in served.journal.happened()]
    assert happened == [("1", "submitted"), ("1", "started"), ("1", "ended")]
    assert served.journal.numbers() == [1, 2, 3, 4, 5, 6]
    assert [row.job for row in served.journal.decisions()] == ["1"]


# --- shadow


@pytest.mark.parametrize("mode", ["shadow", "advise"])
@pytest.mark.parametrize("control", ["order", "start"])
def test_modes_that_only_look_never_write(serve: Serve, mode: str, control: str) -> None:
    cluster = Untouchable({"n1": 4})
    served = serve(cluster, mode=mode, control=control)
    for number in range(6):
        cluster.submit(str(number), gpus=2)
    record = served.rounds(3)[0]
    assert [planned.job for planned in record.starts] == ["0", "1"]
    assert record.verdicts == ()
    served.signs.halt("test")
    served.round()
    served.clock.s += 1e6
    cluster.fails["observe"] = AdapterError("down")
    served.rounds(2)
    served.close()
    assert served.signs.silence_s() is None


# --- jobs that are not the agent's


def test_jobs_held_for_the_agent_are_given_back_with_order_control(serve: Serve) -> None:
    cluster = FakeCluster()
    served = serve(cluster, control="order")
    cluster.submit("1")
    served.rounds(2)
    assert cluster.asked(GiveBack) == ["1"]
    assert cluster.ids("running") == {"1"}


def test_jobs_that_cannot_be_handled_are_given_back(serve: Serve) -> None:
    cluster = FakeCluster()
    served = serve(cluster)
    cluster.submit("1", left="asks for licences")
    cluster.submit("2", gpus=100)
    record = served.round()
    assert sorted(cluster.asked(GiveBack)) == ["1", "2"]
    assert cluster.asked(Start) == []
    assert {verdict.action for verdict in record.verdicts} == {"give-back"}


def test_jobs_out_of_scope_are_given_back_and_never_started(serve: Serve) -> None:
    cluster = FakeCluster()
    served = serve(cluster, mode="canary", canary_users=("bo",))
    cluster.submit("1", user="ada")
    cluster.submit("2", user="bo")
    served.round()
    assert cluster.asked(GiveBack) == ["1"]
    assert cluster.asked(Start) == ["2"]


def test_jobs_that_others_hold_are_left_alone(serve: Serve) -> None:
    cluster = FakeCluster()
    served = serve(cluster)
    cluster.submit("1", held="other")
    served.rounds(3)
    assert cluster.applied == []


def test_a_release_that_does_not_start_is_given_back(serve: Serve) -> None:
    cluster = FakeCluster()
    served = serve(cluster, start_timeout_s=10.0)
    cluster.submit("1")
    cluster.stubborn = {"1"}
    served.rounds(10)
    assert cluster.asked(GiveBack) == []
    served.rounds(3)
    assert cluster.asked(GiveBack) == ["1"]
    assert served.agent.memory.in_flight == {}
    cluster.stubborn = set()
    served.round()
    assert cluster.ids("running") == {"1"}


def test_a_release_of_a_dead_agent_is_found_again(serve: Serve) -> None:
    cluster = FakeCluster()
    served = serve(cluster, start_timeout_s=10.0)
    cluster.submit("1", held="", mark="77-0")
    cluster.stubborn = {"1"}
    served.rounds(13)
    assert cluster.asked(Start) == []
    assert cluster.asked(GiveBack) == ["1"]


# --- faults of the cluster


def test_a_job_that_vanishes_before_it_is_started_is_no_error(serve: Serve) -> None:
    cluster = FakeCluster()
    served = serve(cluster, max_errors=1)
    cluster.submit("1")
    cluster.submit("2")
    cluster.vanish = {"1"}
    record = served.round()
    assert cluster.ids("running") == {"2"}
    assert "1" not in served.agent.memory.in_flight
    assert [verdict.error for verdict in record.verdicts] == ["", ""]
    cluster.submit("3")
    assert served.round().decider == "policy"


def test_refusals_are_recorded_and_the_fallback_decides_after_too_many(serve: Serve) -> None:
    cluster = FakeCluster()
    served = serve(cluster, "sjf+easy", max_errors=3)
    cluster.submit("1")
    cluster.refuses = {"1"}
    records = served.rounds(5)
    assert [record.decider for record in records] == ["policy"] * 3 + ["fallback"] * 2
    assert records[-1].cause == "errors"
    assert [row.error for row in served.journal.decisions(job="1")] == ["permission denied"] * 5


def test_a_cluster_that_cannot_be_observed_gets_its_jobs_back_in_the_end(serve: Serve) -> None:
    cluster = FakeCluster()
    served = serve(cluster, watchdog_s=30.0)
    cluster.submit("1", gpus=100, left="")
    served.round()
    cluster.fails["observe"] = AdapterError("slurmctld is down", "timeout")
    assert served.rounds(29) == [None] * 29
    assert served.agent.errors == ["slurmctld is down"]
    assert cluster.given_back_all == 0
    served.rounds(3)
    assert cluster.given_back_all > 0
    assert served.signs.silence_s() is None
    del cluster.fails["observe"]
    cluster.submit("2")
    assert served.round().decider == "policy"
    assert cluster.ids("running") == {"2"}


def test_a_round_whose_actions_cannot_be_applied_is_not_good(serve: Serve) -> None:
    cluster = FakeCluster()
    served = serve(cluster, watchdog_s=20.0)
    cluster.submit("1")
    cluster.fails["apply"] = AdapterError("timed out", "timeout")
    served.rounds(25)
    assert cluster.given_back_all > 0
    assert cluster.ids("running") == {"1"}


def test_giving_back_may_fail_and_is_tried_again(serve: Serve) -> None:
    cluster = FakeCluster()
    served = serve(cluster, watchdog_s=5.0)
    cluster.submit("1")
    cluster.fails |= {"observe": AdapterError("down"), "give_back_all": AdapterError("down")}
    served.rounds(10)
    assert cluster.jobs["1"].held == "agent"
    del cluster.fails["give_back_all"]
    served.round()
    assert cluster.jobs["1"].held == ""


@pytest.mark.parametrize("jump_s", [3600.0, -3600.0])
def test_a_clock_that_jumps_loses_no_job(serve: Serve, jump_s: float) -> None:
    cluster = FakeCluster({"n1": 2})
    served = serve(cluster, "fair-share+easy")
    for number in range(6):
        cluster.submit(str(number), run_s=20.0)
    served.rounds(5)
    cluster.now_s += jump_s
    records = served.rounds(10)
    assert {record.decider for record in records} == {"policy"}
    cluster.now_s -= min(0.0, jump_s)
    served.rounds(90)
    assert cluster.jobs == {}


# --- faults of the journal


def test_what_cannot_be_recorded_is_not_done(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = FakeCluster()
    served = serve(cluster, watchdog_s=30.0)
    cluster.submit("1")
    monkeypatch.setattr(served.journal, "write", broken)
    served.rounds(29)
    assert cluster.applied == []
    assert cluster.given_back_all == 0
    assert served.signs.silence_s() is None
    served.rounds(3)
    assert cluster.given_back_all > 0
    assert cluster.ids("running") == {"1"}


def test_a_journal_that_cannot_even_be_read_does_not_keep_jobs(
    serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster = FakeCluster()
    served = serve(cluster, watchdog_s=30.0)
    served.round()
    cluster.submit("1")
    for name in ("write", "next_number", "last", "write_outcomes"):
        monkeypatch.setattr(served.journal, name, broken)
    served.rounds(33)
    assert cluster.asked(Start) == []
    assert cluster.given_back_all > 0


def test_outcomes_that_cannot_be_recorded_leave_the_release_in_memory(
    serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster = FakeCluster()
    served = serve(cluster)
    cluster.submit("1")
    cluster.stubborn = {"1"}
    monkeypatch.setattr(served.journal, "write_outcomes", broken)
    served.round()
    assert list(served.agent.memory.in_flight) == ["1"]
    assert served.agent.errors


# --- halt, heartbeat, stop, restart


def test_halt_gives_everything_back_within_one_round_and_starts_nothing(serve: Serve) -> None:
    cluster = FakeCluster({"n1": 1})
    served = serve(cluster)
    for number in range(4):
        cluster.submit(str(number))
    served.rounds(2)
    assert served.signs.silence_s() is not None
    served.signs.halt("test")
    record = served.round()
    assert record.mode == "halted"
    assert all(job.held == "" for job in cluster.jobs.values())
    assert served.signs.silence_s() is None
    started = cluster.asked(Start)
    cluster.submit("9")
    served.round()
    assert cluster.jobs["9"].held == ""
    assert cluster.asked(Start) == started
    assert served.signs.resume()
    cluster.submit("10")
    record = served.round(200.0)
    assert record.mode == "active"
    served.rounds(8, 200.0)
    assert "10" in cluster.asked(Start)


def test_the_heartbeat_follows_good_rounds_only(serve: Serve) -> None:
    cluster = FakeCluster()
    served = serve(cluster)
    assert served.signs.silence_s() is None
    served.round()
    assert served.signs.silence_s() is not None
    beat = served.signs.heartbeat.stat().st_mtime_ns
    cluster.fails["observe"] = AdapterError("down")
    served.rounds(3)
    assert served.signs.heartbeat.stat().st_mtime_ns == beat


def test_stopping_gives_everything_back(serve: Serve) -> None:
    cluster = FakeCluster({"n1": 1})
    served = serve(cluster)
    for number in range(3):
        cluster.submit(str(number))
    served.round()
    served.agent.stop()
    assert all(job.held == "" for job in cluster.jobs.values())
    assert served.signs.silence_s() is None


def test_a_restarted_agent_remembers(serve: Serve, tmp_path: Path) -> None:
    cluster = FakeCluster({"n1": 4})
    first = Served(tmp_path / "same", cluster, "fair-share+easy")
    cluster.submit("1", gpus=2, run_s=500.0)
    cluster.submit("2", gpus=2, run_s=10.0)
    first.rounds(20)
    first.journal.close()  # and dies
    second = Served(tmp_path / "same", cluster, "fair-share+easy")
    second.agent.restore()
    assert second.agent.memory.to_json() == first.agent.memory.to_json()
    assert second.agent.memory.predict_s("ada", "", 2) == 10.0
    record = second.round()
    assert record.number == 21
    assert record.happened == ()
    assert second.agent.memory.zero_s == NOW_S
    second.close()
    first.agent.chooser.close()
