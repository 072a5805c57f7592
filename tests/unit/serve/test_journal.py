"""The journal: what is written comes back, whatever happens to disk, process and other users of the file."""

import os
import random
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from gpuyard.serve.journal import DecisionRow, Journal, JournalError, Prediction
from gpuyard.serve.journal.blobs import changed, changes
from gpuyard.serve.records import Happened, Planned, Ranked, RoundRecord, Verdict
from gpuyard.serve.state import ClusterState, Job, Node, Partition, Share


def make_state(number: int, jobs: int = 5) -> ClusterState:
    waiting = tuple(
        Job(str(number + index), "waiting", submit_s=index / 3, user=f"u{index % 3}", gpus=1 + index % 4)
        for index in range(jobs)
    )
    running = Job("r", "running", 0.1, begin_s=1.0, shares=(Share("n0", 2, 4, 8), Share("n1", 1)))
    nodes = (Node("n0", 8, closed="down"), Node("n1", 8, gpus_used=3))
    return ClusterState(
        "test 1",
        100.1 + number,
        (*waiting, running),
        nodes,
        (Partition("p", ("n0", "n1")),),
        notes=("a note",),
    )


def make_record(number: int, **values: object) -> RoundRecord:
    made = RoundRecord(
        number,
        at_s=100.1 + number,
        wall_s=1e9 + number,
        mode="shadow",
        control="order",
        policy="sjf+easy",
        model="ab",
        decider="policy",
        words="a — b",
        order=(Ranked("7", 1 / 3), Ranked("8", -0.0), Ranked("9")),
        starts=(Planned("7", (("n0", 2), ("n1", 1)), ("r",)),),
        baseline=(Planned("8", ()),),
        verdicts=(
            Verdict(f"{number}-0", "7", "start"),
            Verdict(f"{number}-1", "8", "stop", "fits", "no room"),
        ),
        happened=(Happened("3", "started", 99.25, ("n1",)), Happened("4", "gone", 98.0)),
        timings_s={"list": 0.1, "decide": 1e-5},
        pending=5,
        left=2,
    )
    return replace(made, **values)  # type: ignore[arg-type]


def memory_of(number: int) -> str:
    return f'{{"instant":{number},"users":{{"a":[1,2],"b":[3,4]}}}}'


def write_rounds(journal: Journal, first: int, last: int, jobs: int = 5) -> None:
    for number in range(first, last + 1):
        journal.write(make_record(number), make_state(number, jobs), memory_of(number))


@pytest.fixture
def journal(tmp_path: Path) -> Iterator[Journal]:
    with Journal.open(tmp_path / "journal.sqlite") as opened:
        yield opened


def assert_whole(path: Path) -> int:
    """All rounds can be read and are what was written; how many there are."""
    with Journal.open(path, readonly=True) as journal:
        numbers = journal.numbers()
        for number in numbers:
            assert journal.record(number) == make_record(number)
            assert journal.state(number).source == "test 1"
            assert journal.memory(number) == memory_of(number)
    with sqlite3.connect(path) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    connection.close()
    return len(numbers)


def test_a_round_comes_back_as_it_was_written(journal: Journal) -> None:
    write_rounds(journal, 1, 3)
    for number in (1, 2, 3):
        assert repr(journal.record(number)) == repr(make_record(number))
        assert journal.state(number) == make_state(number)
        assert journal.state_hash(number) == make_state(number).hash
        assert journal.memory(number) == memory_of(number)
    assert journal.last() == make_record(3)
    assert journal.last_memory() == memory_of(3)
    assert journal.next_number() == 4
    assert journal.numbers() == [1, 2, 3]
    assert journal.numbers(2, 2) == [2]
    assert journal.records(2) == [make_record(2), make_record(3)]
    assert journal.records(1, limit=1) == [make_record(1)]


def test_a_new_journal_is_empty(journal: Journal) -> None:
    assert (journal.last(), journal.last_memory(), journal.next_number()) == (None, None, 1)
    with pytest.raises(JournalError, match="no round 1; it holds none yet"):
        journal.state(1)


def test_decisions_are_found_by_job_and_time_the_newest_first(journal: Journal) -> None:
    write_rounds(journal, 1, 3)
    found = journal.decisions(job="8")
    assert [row.number for row in found] == [3, 2, 1]
    at_s = make_record(3).at_s
    assert found[0] == DecisionRow(3, at_s, "3-1", "8", "stop", "fits", "no room", "", "policy", "")
    assert [row.id for row in journal.decisions(since_s=at_s)] == ["3-1", "3-0"]
    assert [row.id for row in journal.decisions(limit=3)] == ["3-1", "3-0", "2-1"]
    assert journal.decisions(job="8' OR 1=1 --") == []


def test_what_happened_notes_and_predictions_come_back(journal: Journal) -> None:
    write_rounds(journal, 1, 2)
    assert journal.happened(2) == [(2, one) for one in make_record(2).happened]
    rows = [Prediction("7", 2, "policy", 1.5, 2.5, None), Prediction("7", 2, "current", 1.0, None, None)]
    journal.write_predictions(2, rows)
    assert sorted(journal.predictions("7"), key=lambda one: one.by, reverse=True) == rows
    assert journal.predictions(since_number=3) == []
    journal.set_note("policy", "fifo")
    journal.set_note("policy", "sjf")
    assert (journal.note("policy"), journal.note("other")) == ("sjf", None)


def test_what_actions_came_to_is_added_to_a_round(journal: Journal) -> None:
    write_rounds(journal, 1, 2)
    written = make_record(2)
    refused = replace(written.verdicts[0], error="slurmctld: no such job")
    done = replace(written, verdicts=(refused, *written.verdicts[1:]), timings_s={"apply": 0.5})
    journal.write_outcomes(done)
    assert journal.record(2) == done
    assert journal.record(1) == make_record(1)
    assert journal.decisions(job="7")[0].error == "slurmctld: no such job"


def test_texts_that_repeat_are_stored_once_and_changes_are_small(tmp_path: Path) -> None:
    state = make_state(1, jobs=2000)
    with Journal.open(tmp_path / "a") as journal:
        for number in range(1, 51):
            journal.write(make_record(number), state.at(float(number)), "{}")
        assert journal.state(50) == state.at(50.0)
        assert journal.state(1) == state.at(1.0)
    sizes = [path.stat().st_size for path in tmp_path.iterdir()]
    assert sum(sizes) < 10 * len(state.json_text)
    with sqlite3.connect(tmp_path / "a") as connection:
        (memories,) = connection.execute("SELECT count(DISTINCT memory) FROM rounds").fetchone()
        (whole,) = connection.execute("SELECT count(*) FROM blobs WHERE base IS NULL").fetchone()
    connection.close()
    assert memories == 1
    assert whole < 10


@pytest.mark.parametrize("seed", range(20))
def test_changes_to_a_text_restore_it(seed: int) -> None:
    draw = random.Random(seed)
    base = [draw.choice("abcdefgh") for _ in range(draw.randrange(1, 30))]
    other = [draw.choice("abcdefghxyz") for _ in range(draw.randrange(1, 30))]
    made = changes(base, {part: place for place, part in enumerate(base)}, other)
    assert changed(base, made, "|") == "|".join(other)


def test_names_that_are_no_unicode_are_journalled(journal: Journal) -> None:
    state = replace(make_state(1), jobs=(Job("1", "waiting", 0.0, user="\ud800"),))
    journal.write(make_record(1, words="\ud800 é\x00"), state, '"\ud800"')
    assert journal.state(1) == state
    assert journal.memory(1) == '"\ud800"'
    assert journal.record(1).words == "\\ud800 é\x00"


def test_other_files_are_refused_and_left_alone(tmp_path: Path) -> None:
    text, other, old = tmp_path / "text", tmp_path / "other", tmp_path / "old"
    text.write_text("no database, but long enough to have a header " * 40)
    with sqlite3.connect(other) as connection:
        connection.execute("CREATE TABLE mine (x)")
    connection.close()
    Journal.open(old).close()
    with sqlite3.connect(old) as connection:
        connection.execute("PRAGMA user_version = 99")
    connection.close()
    for path, words in ((text, "no SQLite file"), (other, "no journal of gpuyard"), (old, "version 99")):
        before = path.read_bytes()
        for readonly in (True, False):
            with pytest.raises(JournalError, match=words) as caught:
                Journal.open(path, readonly=readonly)
            assert str(path) in str(caught.value)
        assert path.read_bytes() == before


def test_what_is_not_there_is_not_made_by_reading(tmp_path: Path) -> None:
    with pytest.raises(JournalError, match="there is no journal here"):
        Journal.open(tmp_path / "none", readonly=True)
    with pytest.raises(JournalError, match="create it first"):
        Journal.open(tmp_path / "no" / "directory")
    (tmp_path / "empty").touch()
    with pytest.raises(JournalError, match="is empty"):
        Journal.open(tmp_path / "empty", readonly=True)
    assert [path.name for path in tmp_path.iterdir()] == ["empty"]


def test_a_reader_cannot_write(journal: Journal) -> None:
    write_rounds(journal, 1, 1)
    with Journal.open(journal.path, readonly=True) as reader:
        with pytest.raises(JournalError, match="may not be written"):
            write_rounds(reader, 2, 2)
        assert reader.numbers() == [1]


def test_a_round_is_written_once(journal: Journal) -> None:
    write_rounds(journal, 1, 2)
    with pytest.raises(JournalError, match="only one agent"):
        write_rounds(journal, 2, 2)
    write_rounds(journal, 3, 4)
    assert assert_whole(journal.path) == 4


def test_a_locked_journal_says_so(journal: Journal, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gpuyard.serve.journal.database.BUSY_TIMEOUT_MS", 10)
    with Journal.open(journal.path) as second, sqlite3.connect(journal.path, isolation_level=None) as other:
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(JournalError, match="another process"):
            write_rounds(second, 1, 1)
        other.execute("ROLLBACK")
        write_rounds(second, 1, 1)
    other.close()
    assert assert_whole(journal.path) == 1


def test_a_full_disk_loses_the_round_but_not_the_journal(journal: Journal) -> None:
    write_rounds(journal, 1, 20)
    connection = journal._connection
    (pages,) = connection.execute("PRAGMA page_count").fetchone()
    connection.execute(f"PRAGMA max_page_count = {pages}")
    with pytest.raises(JournalError, match="disk is full"):
        write_rounds(journal, 21, 500)
    stopped = journal.next_number()
    assert journal.last() == make_record(stopped - 1)
    connection.execute("PRAGMA max_page_count = 1000000")
    write_rounds(journal, stopped, stopped + 30)
    assert assert_whole(journal.path) == stopped + 30


def test_a_full_file_system_loses_the_round_but_not_the_journal(tmp_path: Path) -> None:
    small = tmp_path / "small"
    small.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(small)]
    if os.geteuid() or subprocess.run(mount, capture_output=True).returncode:
        pytest.skip("only root may mount a small file system")
    try:
        with Journal.open(small / "journal") as journal:
            write_rounds(journal, 1, 5)
            (small / "ballast").write_bytes(bytes(400_000))
            with pytest.raises(JournalError, match="disk"):
                write_rounds(journal, 6, 5000, jobs=300)
            stopped = journal.next_number()
            (small / "ballast").unlink()
            write_rounds(journal, stopped, stopped + 5)
            assert journal.last() == make_record(stopped + 5)
        assert assert_whole(small / "journal") == stopped + 5
    finally:
        subprocess.run(["umount", str(small)], check=True)


def test_a_damaged_journal_says_what_to_do(tmp_path: Path) -> None:
    path = tmp_path / "journal"
    with Journal.open(path) as journal:
        write_rounds(journal, 1, 100)
    data = bytearray(path.read_bytes())
    data[4096:] = bytes(len(data) - 4096)
    path.write_bytes(data)
    with Journal.open(path, readonly=True) as journal, pytest.raises(JournalError, match="damaged"):
        journal.last()


def test_a_text_that_changed_on_disk_is_not_taken_for_the_state(journal: Journal) -> None:
    write_rounds(journal, 1, 1)
    journal._connection.execute("UPDATE blobs SET hash = zeroblob(32) WHERE id = 1")
    with pytest.raises(JournalError, match="not what was stored"):
        journal.state(1)


WRITER = """
import sys
from unit.serve.test_journal import Journal, write_rounds
with Journal.open(sys.argv[1]) as journal:
    print("open", flush=True)
    first = journal.next_number()
    write_rounds(journal, first, first + 100_000)
"""


def test_a_killed_writer_leaves_a_journal_that_is_whole(tmp_path: Path) -> None:
    path, written, draw = tmp_path / "journal", 0, random.Random(1)
    roots = os.pathsep.join([str(Path(__file__).parents[2]), *sys.path])
    for _ in range(5):
        command = [sys.executable, "-c", WRITER, str(path)]
        writer = subprocess.Popen(command, stdout=subprocess.PIPE, env=os.environ | {"PYTHONPATH": roots})
        assert writer.stdout is not None
        assert writer.stdout.readline() == b"open\n"
        time.sleep(draw.uniform(0.02, 0.3))
        writer.send_signal(signal.SIGKILL)
        writer.wait()
        writer.stdout.close()
        rounds = assert_whole(path)
        assert rounds >= written
        written = rounds
    assert written
    with Journal.open(path) as journal:
        assert journal.next_number() == written + 1


def test_readers_see_whole_rounds_while_a_writer_writes_and_prunes(journal: Journal) -> None:
    write_rounds(journal, 1, 10)
    failures: list[BaseException] = []
    done = threading.Event()

    def read() -> None:
        try:
            with Journal.open(journal.path, readonly=True) as reader:
                while not done.is_set():
                    last = reader.last()
                    assert last == make_record(last.number if last else 0)
                    for record in reader.records(limit=20):
                        assert record == make_record(record.number)
        except BaseException as error:
            failures.append(error)

    thread = threading.Thread(target=read)
    thread.start()
    for first in range(11, 311, 50):
        write_rounds(journal, first, first + 49)
        journal.prune(30, 0.001, 1e9)
    done.set()
    thread.join()
    assert failures == []
    assert journal.numbers() == list(range(211, 311))


def test_pruning_by_age_removes_the_oldest_and_shrinks_the_file(journal: Journal) -> None:
    write_rounds(journal, 1, 1500, jobs=20)
    journal.write_predictions(1, [Prediction("7", 1, "policy", 1.0, 2.0, 3.0)])
    journal._connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    before = journal.path.stat().st_size
    assert journal.prune(1.0, 1000, 1e9 + 86_400 + 1001) == 1000
    assert journal.numbers() == list(range(1001, 1501))
    assert journal.path.stat().st_size < 0.6 * before
    assert journal.predictions() == []
    assert journal.happened()[0][0] == 1001
    assert journal.decisions(limit=10_000)[-1].number == 1001
    write_rounds(journal, 1501, 1510, jobs=20)
    assert assert_whole(journal.path) == 510
    (orphans,) = journal._connection.execute(
        "SELECT count(*) FROM blobs WHERE id NOT IN (SELECT state FROM rounds UNION SELECT memory FROM "
        "rounds UNION SELECT ranking FROM rounds UNION SELECT base FROM blobs WHERE base IS NOT NULL)"
    ).fetchone()
    assert orphans == 0


def test_pruning_by_size_keeps_the_newest_hundred(journal: Journal) -> None:
    write_rounds(journal, 1, 400, jobs=50)
    limit_mb = journal.path.stat().st_size / 2e6
    assert journal.prune(30, 1000, 1e9) == 0
    removed = journal.prune(30, limit_mb, 1e9)
    assert 0 < removed < 300
    journal._connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    assert journal.path.stat().st_size <= 1.05e6 * limit_mb
    assert journal.prune(0.001, 0.001, 2e9) == 300 - removed
    assert journal.numbers() == list(range(301, 401))
    assert journal.prune(0.001, 0.001, 2e9) == 0
    assert assert_whole(journal.path) == 100
