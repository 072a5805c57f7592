"""An agent, dead or alive, from its journal: why a job waits, what was decided, and the kill switch."""

import json
import shutil
import time
from pathlib import Path
from typing import Any

import pytest

from gpuyard.dashboard.live import switch
from gpuyard.dashboard.live.followed import FollowedAgent
from gpuyard.dashboard.live.jobs import find_jobs, tell_job
from gpuyard.errors import InputError
from gpuyard.serve.journal.contents import SETTINGS_NOTE
from gpuyard.serve.watchdog import Look
from support.fake_cluster import FakeCluster, Served
from support.served_journals import write_agent
from unit.dashboard.conftest import ORIGIN, Visit


def serve(directory: Path, nodes: dict[str, int], **settings: Any) -> Served:
    served = Served(directory, FakeCluster(nodes), "sjf+easy", **settings)
    served.journal.set_note(SETTINGS_NOTE, served.settings.model_dump_json())
    return served


def charts(found: dict[str, Any]) -> dict[str, Any]:
    return {chart["id"]: chart for chart in found["charts"]}


def test_facts_charts_nodes_decisions_and_agreement_come_from_the_journal(tmp_path: Path) -> None:
    served = write_agent(tmp_path, rounds=60, ago_s=1.0, every_s=5.0)
    found = FollowedAgent(tmp_path).look()
    json.dumps(found, allow_nan=False)
    last = served.journal.last()
    assert last is not None
    assert found["facts"]["tiles"]["rounds in the last minute"] == "12"
    assert found["facts"]["tiles"]["waiting"] == str(last.pending)
    assert found["facts"]["stale_round"] is False
    assert [node[0] for node in found["nodes"]] == sorted(served.cluster.nodes)
    assert sum(node[1] for node in found["nodes"]) == sum(
        job.gpus for job in served.cluster.jobs.values() if job.phase == "running"
    )
    assert {series["name"] for series in charts(found)["time-per-round"]["series"]} == {
        *("list", "encode", "infer", "guard", "apply")
    }
    assert found["shadow"]["compared"] > 0
    assert found["decisions"][0]["round"] > found["decisions"][-1]["round"]
    served.close()


def test_fragmentation_counts_free_gpus_that_no_gang_fits_on(tmp_path: Path) -> None:
    served = serve(tmp_path, {"n1": 8, "n2": 8})
    for id, gpus in (("1", 5), ("2", 6)):
        served.cluster.submit(id, gpus, run_s=1e6)
    served.rounds(4)
    chart = charts(FollowedAgent(tmp_path).look())["fragmentation"]
    assert chart["labels"] == ["1", "2", "4", "8"]
    assert chart["series"][0]["y"] == [0.0, 1.0, 5.0, 5.0]  # 3 and 2 are free
    assert "5 free GPUs" in chart["title"]
    served.close()


def test_only_what_is_new_is_told(tmp_path: Path) -> None:
    served = serve(tmp_path, {"n1": 8})
    served.rounds(3)
    agent = FollowedAgent(tmp_path)
    assert "charts" in agent.look()
    again = agent.look()
    assert "charts" not in again
    assert "facts" in again
    served.cluster.submit("7", 4)
    served.rounds(2)
    found = agent.look()
    assert found["facts"]["round"] == 5
    assert [(row["job"], row["wanted"]) for row in found["decisions"]] == [("7", "start on n1 (4)")]
    agent.close()
    served.close()


def test_the_guards_refusal_and_the_schedulers_error_are_told(tmp_path: Path) -> None:
    served = serve(tmp_path, {"n1": 8})
    served.cluster.submit("7", 4)
    served.cluster.refuses.add("7")
    served.rounds(2)
    rows = FollowedAgent(tmp_path).look()["decisions"]
    assert any(row["job"] == "7" and row["guard"] == "allowed" and row["error"] for row in rows)
    served.close()


def test_why_a_job_waits_has_one_reason_a_place_and_a_history(tmp_path: Path) -> None:
    served = serve(tmp_path, {"n1": 8})
    served.cluster.submit("1", 8, run_s=1e6)
    served.rounds(2)
    for id, limit_s in (("20", 600.0), ("21", 60.0)):
        served.cluster.submit(id, 4, user="bo", limit_s=limit_s)
    served.rounds(2)
    served.close()
    found = find_jobs(tmp_path, "BO")
    assert [(row["job"], row["place"]) for row in found["jobs"]] == [("21", 1), ("20", 2)]
    told = tell_job(tmp_path, "20")
    assert (told["reason"], told["place"], told["queue_length"]) == ("too-few-free", 2, 2)
    assert [one["job"] for one in told["ahead"]] == ["21"]
    assert told["sentence"].startswith("Too few GPUs")
    assert tell_job(tmp_path, "1")["history"][0]["action"] == "start"
    with pytest.raises(InputError, match="neither waits nor runs"):
        tell_job(tmp_path, "999")


def test_predicted_starts_are_on_the_calendar(tmp_path: Path) -> None:
    from gpuyard.serve.journal import Prediction

    served = serve(tmp_path, {"n1": 8})
    served.cluster.submit("1", 8, run_s=1e6)
    served.rounds(2)
    served.cluster.submit("2", 8)
    served.rounds(1)
    now_s = served.agent.last_state.now_s  # type: ignore[union-attr]
    served.journal.write_predictions(3, [Prediction("2", 3, "policy", now_s, now_s + 60, None)])
    (start,) = tell_job(tmp_path, "2")["starts"].values()
    assert abs(start["mid_s"] - 60 - time.time()) < 30
    assert start["high_s"] is None
    served.close()


def test_a_living_agent_obeys_the_switch_in_its_next_round(tmp_path: Path, visit: Visit) -> None:
    served = serve(tmp_path / "agent", {"n1": 8})
    served.cluster.submit("1", 8, run_s=1e6)
    served.rounds(2)
    served.cluster.submit("2", 8)
    served.round()
    served.signs.beat()
    browser = visit()
    asked = {"agent": "0/agent", "why": "test\nof it"}
    for confirmed in (None, "", "yes", True):
        answer = browser.post(
            "/api/live/halt", json=asked | {"confirmed": confirmed}, headers={"Origin": ORIGIN}
        )
        assert answer.status_code == 400
        assert not served.signs.halted
    answer = browser.post("/api/live/halt", json=asked | {"confirmed": "halt"}, headers={"Origin": ORIGIN})
    assert answer.json()["said"].startswith("Halted: the agent obeys")
    assert "test of it" in served.signs.halt_file.read_text()
    record = served.round()
    assert record.mode == "halted"
    assert served.cluster.jobs["2"].held == ""
    assert browser.post("/api/live/resume", json={"agent": "0/agent"}, headers={"Origin": ORIGIN}).is_success
    assert served.round().mode == "active"
    served.close()


def test_jobs_of_a_dead_agent_are_returned_from_here(
    tmp_path: Path, visit: Visit, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []

    def release(adapter: Any, why: str) -> Look:
        asked.append(f"{type(adapter).__name__} {why}")
        return Look(False, why, error="squeue: command not found")

    served = write_agent(tmp_path / "agent", rounds=2, ago_s=3600.0)
    served.signs.beat(time.time() - 3600)
    monkeypatch.setattr(switch, "release", release)
    assert "No agent answers; it holds nothing" in switch.halt(tmp_path / "agent", "")
    monkeypatch.setattr(switch, "_source", lambda _: "slurm 22.05.8")
    said = switch.halt(tmp_path / "agent", "")
    assert asked == ["SlurmAdapter halted"]
    assert "squeue: command not found" in said
    served.journal.close()


def test_the_switch_needs_an_agent(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no agent has ever served"):
        switch.halt(tmp_path, "")
    assert list(tmp_path.iterdir()) == []


def test_a_page_leads_to_the_only_agent_and_lists_several(tmp_path: Path, visit: Visit) -> None:
    browser = visit()
    assert "No journal of a live agent" in browser.get("/live").text
    write_agent(tmp_path / "a <b>", rounds=2).close()
    answer = browser.get("/live")
    assert answer.headers["location"] == "/live?agent=0%2Fa%20%3Cb%3E"
    assert browser.get(answer.headers["location"]).status_code == 200
    write_agent(tmp_path / "c", rounds=2).close()
    text = browser.get("/live").text
    assert "a &lt;b&gt;" in text
    assert "<b>" not in text


def test_a_journal_that_goes_away_is_told_and_read_again_when_it_comes_back(tmp_path: Path) -> None:
    served = write_agent(tmp_path / "agent", rounds=3)
    agent = FollowedAgent(tmp_path / "agent")
    agent.look()
    served.close()
    shutil.rmtree(tmp_path / "agent")
    with pytest.raises(InputError, match="no journal"):
        agent.look()
    write_agent(tmp_path / "agent", rounds=2).close()
    assert agent.look()["facts"]["round"] == 2
    agent.close()
