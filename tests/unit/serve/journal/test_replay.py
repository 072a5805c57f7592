"""Recorded rounds decided again: by whoever decided them, and by another policy."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from gpuyard.errors import InputError
from gpuyard.policies.base import Policy
from gpuyard.serve.decision.deciding import decide_on
from gpuyard.serve.decision.memory import Memory
from gpuyard.serve.journal import Journal, JournalError
from gpuyard.serve.journal.contents import SETTINGS_NOTE, noted_settings
from gpuyard.serve.journal.replay import Shift, model_hash, replay
from gpuyard.serve.records import Happened, Planned, Ranked, RoundRecord
from gpuyard.serve.settings import ServeSettings
from gpuyard.serve.state import ClusterState, Job, Node, Partition, Share
from gpuyard.simulation.find import find_policy

SETTINGS = ServeSettings(policy="sjf+easy", fallback="fifo+easy")


@pytest.fixture
def journal(tmp_path: Path) -> Iterator[Journal]:
    with Journal.open(tmp_path / "journal") as opened:
        opened.set_note(SETTINGS_NOTE, SETTINGS.model_dump_json())
        yield opened


def live_states() -> list[ClusterState]:
    """Two nodes of 4 GPUs, one of them busy; jobs arrive of which the last is the shortest."""
    nodes = (Node("n0", 4, cpus=64, memory_mib=1000), Node("n1", 4, cpus=64, memory_mib=1000))
    busy = Job("1", "running", 0.0, gpus=4, limit_s=900.0, begin_s=1.0, shares=(Share("n0", 4),), user="a")
    states = []
    for moment in range(12):
        waiting = tuple(
            Job(
                str(10 + index),
                "waiting",
                2.0 + index,
                user="ab"[index % 2],
                gpus=4,
                limit_s=600.0 - 30 * index,
            )
            for index in range(moment)
        )
        states.append(
            ClusterState(
                "test", 20.0 + moment, (busy, *waiting), nodes, (Partition("p", ("n0", "n1"), True),)
            )
        )
    return states


def record_rounds(journal: Journal, policy_name: str = "sjf+easy") -> None:
    memory, policy, fallback = Memory(), find_policy(policy_name), find_policy(SETTINGS.fallback)
    for number, state in enumerate(live_states(), 1):
        memory.update(state, SETTINGS.simulation.usage_half_life_s, SETTINGS.estimates)
        by_policy = number % 4 != 0
        made = decide_on(state, memory, policy if by_policy else fallback, SETTINGS)
        record = RoundRecord(number, state.now_s, 1e9, "shadow", "order", policy_name)
        record = replace(
            record,
            decider="policy" if by_policy else "fallback",
            cause="" if by_policy else "deadline",
            order=made.order,
            starts=made.starts,
        )
        journal.write(record, state, memory.to_json())


def test_the_recorded_decider_decides_again_to_the_last_bit(journal: Journal) -> None:
    record_rounds(journal)
    report = replay(journal)
    assert (report.rounds, report.same, report.differences) == (12, 12, [])
    assert report.agrees
    assert report.notes == []
    assert any(record.starts for record in journal.records())
    assert all(one.score is not None for one in journal.record(11).order)


def test_a_last_bit_that_differs_is_found(journal: Journal, tmp_path: Path) -> None:
    record_rounds(journal)
    with Journal.open(tmp_path / "other") as other:
        for record in journal.records():
            order = tuple(Ranked(one.job, (one.score or 0.0) * (1 + 2**-52)) for one in record.order)
            changed = replace(record, order=order) if record.number == 7 else record
            other.write(changed, journal.state(record.number), journal.memory(record.number))
        report = replay(other, settings=SETTINGS)
    assert [one.number for one in report.differences] == [7]
    assert report.differences[0].order_differs
    assert (report.same, report.agrees) == (11, False)


def test_another_policy_says_what_it_would_have_started(journal: Journal) -> None:
    record_rounds(journal)
    report = replay(journal, "ljf+easy", since=3)
    assert report.rounds == 10
    assert 0 < report.differing < 10
    assert report.same + report.differing == 10
    first = report.differences[0]
    assert first.recorded
    assert first.replayed
    assert first.recorded != first.replayed
    assert "changes none of them" in report.notes[0]
    assert report.to_json()["same_share"] == report.same / 10


@dataclass(frozen=True)
class Made:
    order: tuple[Ranked, ...] = ()
    starts: tuple[Planned, ...] = ()


def started_by(name: str, *jobs: str) -> tuple[Planned, ...]:
    return tuple(Planned(job, ((name, 1),)) for job in jobs)


def write_plain(journal: Journal, number: int, **values: Any) -> None:
    record = replace(RoundRecord(number, 10.0 * number, 1e9, "shadow", "order", "sjf"), **values)
    journal.write(record, ClusterState("test", 10.0 * number), "{}")


def test_shifts_compare_first_wanted_with_real_starts(journal: Journal) -> None:
    wanted = {10.0: ["a"], 20.0: ["a", "b"], 30.0: ["c"]}

    def decide(state: ClusterState, memory: str, policy: Policy, settings: ServeSettings) -> Made:
        return Made(starts=started_by("n", *wanted[state.now_s]))

    write_plain(journal, 1, decider="policy", starts=started_by("m", "a"))
    happened = (Happened("b", "started", 15.0), Happened("d", "started", 16.0))
    write_plain(journal, 2, decider="policy", starts=started_by("n", "b"), happened=happened)
    write_plain(journal, 3, decider="nobody", happened=(Happened("a", "started", 25.0),))
    report = replay(journal, "fifo", decide=decide)
    assert (report.rounds, report.skipped, report.same, report.differing) == (2, 1, 1, 1)
    assert report.shifts == [Shift("b", 20.0, 15.0), Shift("d", None, 16.0), Shift("a", 10.0, 25.0)]
    assert [one.change_s for one in report.shifts] == [5.0, None, -15.0]
    exact = replay(journal, decide=decide)
    assert [(one.number, one.moved, one.replayed) for one in exact.differences] == [
        (1, ("a",), ()),
        (2, (), ("a",)),
    ]


def test_a_policy_that_raises_fails_its_rounds_and_no_others(journal: Journal) -> None:
    def decide(state: ClusterState, memory: str, policy: Policy, settings: ServeSettings) -> Made:
        if state.now_s == 10.0:
            raise RuntimeError("no idea\nat all")
        return Made()

    for number in (1, 2):
        write_plain(journal, number, decider="policy")
    report = replay(journal, decide=decide)
    assert (report.rounds, report.same, report.failed) == (2, 1, 1)
    assert report.differences[0].error == "no idea"


def test_the_fallback_is_the_one_of_the_settings(journal: Journal) -> None:
    asked = []

    def find(name: str) -> Policy:
        asked.append(name)
        return find_policy(name)

    write_plain(journal, 1, decider="fallback")
    write_plain(journal, 2, decider="policy")
    replay(journal, decide=lambda *_: Made(), find=find)
    assert asked == ["fifo+easy", "sjf"]


def test_mode_and_control_are_those_of_the_round(journal: Journal) -> None:
    seen = []

    def decide(state: ClusterState, memory: str, policy: Policy, settings: ServeSettings) -> Made:
        seen.append((settings.mode, settings.control, settings.fallback))
        return Made()

    write_plain(journal, 1, decider="policy")
    write_plain(journal, 2, decider="policy", mode="active", control="start")
    replay(journal, decide=decide)
    assert seen == [("shadow", "order", "fifo+easy"), ("active", "start", "fifo+easy")]


def test_a_model_that_changed_since_is_named(journal: Journal) -> None:
    write_plain(journal, 1, decider="policy", model="0123456789abcdef")
    report = replay(journal, decide=lambda *_: Made())
    assert len(report.notes) == 1
    assert "sjf" in report.notes[0]
    assert "recorded 0123456789ab, present none" in report.notes[0]


def test_the_hash_of_a_model_is_that_of_its_file(tmp_path: Path) -> None:
    rules = tmp_path / "mine.toml"
    rules.write_text('order = "sjf"\n')
    before = model_hash(str(rules))
    rules.write_text('order = "fifo"\n')
    assert len(before) == 64
    assert model_hash(str(rules)) != before
    assert model_hash("sjf+easy") == ""
    assert len(model_hash("model:bursty-order")) == 64
    with pytest.raises(InputError):
        model_hash(str(tmp_path / "none.toml"))


def test_a_journal_without_settings_or_with_strange_ones_is_refused(tmp_path: Path) -> None:
    with Journal.open(tmp_path / "journal") as journal:
        with pytest.raises(JournalError, match="no settings"):
            replay(journal)
        journal.set_note(SETTINGS_NOTE, '{"unheard_of": 1}')
        with pytest.raises(JournalError, match="another gpuyard"):
            noted_settings(journal)


def test_an_empty_journal_agrees(journal: Journal) -> None:
    report = replay(journal)
    assert (report.rounds, report.agrees, report.same_share) == (0, True, None)
