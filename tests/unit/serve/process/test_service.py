"""The process of the agent: it begins, reloads, answers and ends so that nothing is left held."""

import io
import json
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from gpuyard.errors import InputError
from gpuyard.serve.journal import Journal, JournalError
from gpuyard.serve.process.client import ask, job_path
from gpuyard.serve.process.log import Log
from gpuyard.serve.process.service import Service, find_served, read_token
from gpuyard.serve.settings import ServeSettings
from gpuyard.serve.signs import Signs
from support.fake_cluster import FakeCluster


def settings(directory: Path, **more: Any) -> ServeSettings:
    known: dict[str, Any] = {"state_dir": directory, "interval_s": 0.05, "deadline_ms": 60_000.0}
    return ServeSettings(**(known | {"mode": "active", "control": "start"} | more))


def events(stream: io.StringIO) -> list[dict[str, Any]]:
    return [json.loads(line) for line in stream.getvalue().splitlines()]


class Running:
    """A service in a thread, on a cluster in memory."""

    def __init__(self, chosen: ServeSettings, cluster: FakeCluster, reload: Any = None) -> None:
        self.stream = io.StringIO()
        self.service = Service(chosen, lambda _: cluster, Log(self.stream), reload)
        self.thread = threading.Thread(target=self.service.run)
        self.thread.start()

    def wait_for(self, holds: Any) -> None:
        end = time.monotonic() + 30.0
        while not holds():
            assert time.monotonic() < end, self.stream.getvalue()
            time.sleep(0.02)

    def close(self) -> None:
        self.service.stop()
        self.thread.join(30.0)
        assert not self.thread.is_alive()


def test_a_service_that_ends_leaves_no_job_held_and_no_heartbeat(tmp_path: Path) -> None:
    cluster = FakeCluster({"n1": 2})
    for number in range(5):
        cluster.submit(str(number), gpus=2, run_s=1e6)
    chosen = settings(tmp_path)
    running = Running(chosen, cluster)
    try:
        running.wait_for(lambda: (tmp_path / "heartbeat").exists())
        assert any(job.held == "agent" for job in cluster.jobs.values())
    finally:
        running.close()
    assert all(job.held != "agent" for job in cluster.jobs.values())
    assert not (tmp_path / "heartbeat").exists()
    assert not chosen.socket.exists()
    assert events(running.stream)[-1]["event"] == "stopped"


def test_the_socket_answers_while_rounds_go(tmp_path: Path) -> None:
    cluster = FakeCluster({"n1": 2})
    cluster.submit("1", gpus=2, run_s=1e6)
    cluster.submit("2", gpus=2, run_s=1e6)
    chosen = settings(tmp_path, mode="shadow")
    running = Running(chosen, cluster)
    try:
        running.wait_for(lambda: chosen.socket.exists() and ask(chosen.socket, "/v1/status").get("round"))
        status = ask(chosen.socket, "/v1/status")
        order = ask(chosen.socket, "/v1/order")
        why = ask(chosen.socket, job_path("2", "explain"))
    finally:
        running.close()
    assert (status["mode"], status["pending"], status["decider"]) == ("shadow", 2, "policy")
    assert [entry["job"] for entry in order["order"]] == ["1", "2"]
    assert [entry["job"] for entry in order["starts"]] == ["1"]
    assert why["place"] == 2
    assert cluster.applied == []


def test_a_second_agent_of_the_same_directory_is_refused(tmp_path: Path) -> None:
    signs = Signs(tmp_path)
    with signs.leadership(), pytest.raises(InputError, match="another agent serves"):
        Service(settings(tmp_path), lambda _: FakeCluster(), Log(io.StringIO())).run(rounds=1)


def test_settings_are_read_again_and_bad_ones_are_not_taken(tmp_path: Path) -> None:
    cluster = FakeCluster()
    fresh = [settings(tmp_path, policy="sjf+easy"), InputError("policy: what is that"), settings(tmp_path)]

    def reload() -> ServeSettings:
        found = fresh.pop(0)
        if isinstance(found, InputError):
            raise found
        return found

    running = Running(settings(tmp_path, policy="fifo+easy"), cluster, reload)

    def policy() -> str | None:
        try:
            with Journal.open(tmp_path / "journal.sqlite", readonly=True) as journal:
                last = journal.last()
        except JournalError:  # not made yet
            return None
        return None if last is None else last.policy

    try:
        running.wait_for(lambda: policy() is not None)
        running.service.ask_reload()
        running.wait_for(lambda: policy() == "sjf+easy/consolidate")
        running.service.ask_reload()
        running.wait_for(lambda: any("not taken" in event["event"] for event in events(running.stream)))
        assert policy() == "sjf+easy/consolidate"
    finally:
        running.close()


def test_advice_is_printed_when_it_changes_and_nothing_is_written(tmp_path: Path) -> None:
    cluster = FakeCluster({"n1": 2}, held=False)
    cluster.submit("1", gpus=2)
    stream = io.StringIO()
    Service(settings(tmp_path, mode="advise"), lambda _: cluster, Log(stream)).run(rounds=3)
    advice = [event for event in events(stream) if event["event"] == "order"]
    assert [(one["first"], one["start_now"]) for one in advice] == [(["1"], ["1"])]
    assert cluster.applied == []


@pytest.mark.parametrize("name", ["recorded", "model:hosts-placement", "no-such-policy"])
def test_policies_that_cannot_serve_are_refused(name: str) -> None:
    with pytest.raises(InputError):
        find_served(name)


def test_a_token_that_everybody_can_read_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "token"
    path.write_text("0123456789abcdef\n")
    path.chmod(0o644)
    with pytest.raises(InputError, match="everybody can read it"):
        read_token(path, "token_file")
    path.chmod(0o600)
    assert read_token(path, "token_file") == "0123456789abcdef"
    path.write_text("\n")
    with pytest.raises(InputError, match="first line is empty"):
        read_token(path, "token_file")


def test_a_cluster_file_with_other_nodes_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="the scheduler has n1"):
        Service(settings(tmp_path, cluster="4x8"), lambda _: FakeCluster(), Log(io.StringIO())).run(rounds=1)
