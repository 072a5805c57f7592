"""Home tells what there is, and what is damaged, whatever happens to it meanwhile."""

import json
import shutil
import tracemalloc
from pathlib import Path
from typing import Any

import pytest

from gpuyard.dashboard.library import Library
from gpuyard.dashboard.rows import HomeRows
from gpuyard.runs.progress import ProgressWriter
from support.report_cases import compared
from support.sample_runs import sample_records, write_run
from support.served_journals import write_agent
from unit.dashboard.conftest import Visit, page_data

SCRIPT = "<script>alert(1)</script>"


def found(root: Path) -> dict[str, Any]:
    home: dict[str, Any] = HomeRows(Library([root])).look()["home"]
    return home


def test_runs_tell_state_score_and_time_left(tmp_path: Path) -> None:
    write_run(tmp_path / "done")
    live = write_run(tmp_path / "live", updates=40, stop=None, config='algorithm = "ppo"\n')
    with ProgressWriter(live / "progress.jsonl"):
        rows = {row["name"]: row for row in found(tmp_path)["run"]}
    assert rows["done"]["state_words"] == "finished"
    assert rows["done"]["left"] == ""
    assert rows["done"]["score"] == "0.559"
    assert "better than sjf+easy" in rows["done"]["beside"]
    assert rows["live"]["state_words"] == "running"
    assert rows["live"]["share"] == 1.0
    assert rows["live"]["left"].endswith("left")


def test_a_silent_run_is_marked_as_stale(tmp_path: Path) -> None:
    import os

    live = write_run(tmp_path / "live", updates=20, stop=None)
    with ProgressWriter(live / "progress.jsonl"):
        os.utime(live / "progress.jsonl", (1e9, 1e9))
        (row,) = found(tmp_path)["run"]
    assert row["stale"].startswith("nothing written since")


def test_comparisons_tell_their_answer_in_one_line(tmp_path: Path) -> None:
    compared().write(tmp_path / "results")
    (row,) = found(tmp_path)["results"]
    assert "mean bounded slowdown" in row["answer"].lower()
    assert "\n" not in row["answer"]
    assert row["page"] == "/compare?results="


def test_agents_tell_mode_last_round_and_alarms(tmp_path: Path) -> None:
    served = write_agent(tmp_path / "agent", rounds=5, every_s=1.0, ago_s=0.0)
    (row,) = found(tmp_path)["journal"]
    assert (row["mode"], row["round"], row["alarms"]) == ("shadow", 5, [])
    served.signs.halt("test")
    (row,) = found(tmp_path)["journal"]
    assert row["mode"] == "halted"
    assert row["alarms"]
    served.close()
    write_agent(tmp_path / "killed", rounds=5, ago_s=3600.0, mode="active").signs.beat(1e9)
    write_agent(tmp_path / "stopped", rounds=5, ago_s=3600.0, mode="active").close()
    rows = {row["name"]: row for row in found(tmp_path)["journal"]}
    assert (rows["killed"]["mode"], len(rows["killed"]["alarms"])) == ("dead", 1)
    assert (rows["stopped"]["mode"], rows["stopped"]["alarms"]) == ("stopped", [])


def test_an_agent_that_holds_its_lock_lives_however_old_its_round(tmp_path: Path) -> None:
    served = write_agent(tmp_path, rounds=2, ago_s=3600.0)
    assert found(tmp_path)["journal"][0]["mode"] == "stopped"
    with served.signs.leadership():
        (row,) = found(tmp_path)["journal"]
    assert (row["mode"], row["alarms"]) == ("shadow", ["its last round is older than 5 rounds take"])
    served.close()


def damage(directory: Path, name: str, data: bytes) -> None:
    (directory / name).write_bytes(data)


def test_what_is_damaged_is_shown_as_such_and_nothing_else_is(tmp_path: Path, visit: Visit) -> None:
    write_run(tmp_path / "good", updates=20)
    damage(write_run(tmp_path / "log", updates=20), "progress.jsonl", b"hello\n")
    damage(write_run(tmp_path / "config", updates=20), "config.toml", b"= 1")
    damage(write_run(tmp_path / "bytes", updates=20), "progress.jsonl", b"\xff\xfe\0\n" * 10)
    for name in ("parquet", "document"):
        compared().write(tmp_path / name)
    damage(tmp_path / "parquet", "windows.parquet", b"PAR1 no parquet at all PAR1")
    damage(tmp_path / "document", "results.json", b"{" * 1000)
    write_agent(tmp_path / "agent", rounds=3).close()
    for path in (tmp_path / "agent").glob("journal.sqlite*"):
        path.write_bytes(b"SQLite format 3\0" + b"\xff" * 4096)
    home = page_data(visit().get("/").text)
    every = [*home["run"], *home["results"], *home["journal"]]
    damaged = {row["name"] for row in every if "damaged" in row}
    assert damaged == {"log", "config", "bytes", "parquet", "document", "agent"}
    browser = visit()
    for page in ("/runs?run=0/log", "/runs?run=0/config", "/runs?run=0/bytes", "/runs"):
        assert browser.get(page).status_code in (200, 400)
    assert browser.get("/api/live/jobs?agent=0/agent&q=1").status_code == 400


def test_names_are_texts(tmp_path: Path, visit: Visit) -> None:
    write_run(tmp_path / SCRIPT, updates=20, algorithm=SCRIPT, config=f'algorithm = "{SCRIPT}"\n')
    text = visit().get("/").text
    assert SCRIPT not in text
    (row,) = page_data(text)["run"]
    assert row["algorithm"] == SCRIPT


def test_a_run_that_goes_away_is_gone_and_may_come_back(tmp_path: Path) -> None:
    rows = HomeRows(Library([tmp_path]))
    write_run(tmp_path / "run", updates=20)
    assert len(rows.look()["home"]["run"]) == 1
    shutil.rmtree(tmp_path / "run")
    assert rows.look()["home"]["run"] == []
    write_run(tmp_path / "run", updates=20, seed=5)
    assert len(rows.look()["home"]["run"]) == 1


def test_a_huge_log_is_read_piece_by_piece(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A log of any size takes the memory of a piece; how far it has been read is told."""
    from gpuyard.dashboard.training import followed

    monkeypatch.setattr(followed, "CHUNK_BYTES", 1 << 16)
    monkeypatch.setattr(followed, "READ_WITHIN_S", 0.0)
    run = write_run(tmp_path / "run", updates=2000, validate_every=500, stop=None)
    size = (run / "progress.jsonl").stat().st_size
    assert size > 10 * (1 << 16)
    one = followed.FollowedRun(run, curves=False)
    tracemalloc.start()
    assert one.look(0.0)
    assert one.share_read < 0.2
    while one.look(0.0):
        pass
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert one.share_read == 1.0
    assert peak < size / 2
    assert one.story.step == 2000 * 8192
    assert len(one.run.validations) == 4


def test_two_gigabytes_without_a_line_are_no_log(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", updates=2)
    with (run / "progress.jsonl").open("ab") as file:
        file.truncate(2 << 30)
    tracemalloc.start()
    (row,) = found(tmp_path)["run"]
    assert tracemalloc.get_traced_memory()[1] < 64 << 20
    tracemalloc.stop()
    assert "no progress log" in row["damaged"]


def test_rows_follow_a_log_that_grows(tmp_path: Path) -> None:
    records = list(sample_records(updates=40, stop=None))
    run = write_run(tmp_path / "run", updates=1, stop=None)
    rows = HomeRows(Library([tmp_path]))
    (run / "progress.jsonl").write_text("", encoding="utf-8")
    with ProgressWriter(run / "progress.jsonl") as log:
        for record in records[:5]:
            log.write(record)
        assert rows.look()["home"]["run"][0]["score"] is None
        for record in records[5:]:
            log.write(record)
        row = rows.look()["home"]["run"][0]
    assert row["score"] is not None
    json.dumps(row, allow_nan=False)
