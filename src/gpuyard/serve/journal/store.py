"""The journal: what it takes, and what can be asked of it."""

import json
import sqlite3
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Self

from gpuyard.errors import InputError
from gpuyard.serve.journal.blobs import Blobs
from gpuyard.serve.journal.database import JournalError, connect, errors_of, transaction
from gpuyard.serve.journal.retention import prune
from gpuyard.serve.journal.rows import (
    ROUND_COLUMNS,
    DecisionRow,
    Prediction,
    happened_values,
    ranking_text,
    read_happened,
    read_ranking,
    read_round,
    round_values,
    storable,
    verdict_values,
)
from gpuyard.serve.records import Happened, RoundRecord
from gpuyard.serve.state import ClusterState

_TEXTS = ("state", "memory", "ranking")
_LAST_ROUND = 2**63 - 1


class Journal:
    """All rounds of an agent in one SQLite file, with what is needed to decide each again.

    One process writes; any number of others may read meanwhile. Use one per process; its methods may be
    called from several threads.

    Example:
        with Journal.open(settings.journal) as journal:
            journal.write(record, state, memory.to_json())
    """

    def __init__(self, path: Path, connection: sqlite3.Connection) -> None:
        self.path = path
        self._connection = connection
        self._blobs = Blobs(connection)
        self._lock = threading.RLock()

    @classmethod
    def open(cls, path: str | Path, readonly: bool = False) -> Self:
        """Open a journal; without ``readonly`` one is made if there is none.

        Raises:
            JournalError: if it is no journal, of another version, or cannot be opened; it is left as it is.
        """
        return cls(Path(path), connect(Path(path), readonly=readonly))

    def close(self) -> None:
        """Close the file."""
        with self._lock:
            self._connection.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @contextmanager
    def _using(self) -> Iterator[sqlite3.Connection]:
        with self._lock, errors_of(self.path):
            yield self._connection

    def write(self, record: RoundRecord, state: ClusterState, memory_text: str) -> None:
        """Add a round: all of it, or nothing if that fails; later ones may still succeed.

        Args:
            record: The round.
            state: What it was decided on.
            memory_text: The memory that it was decided with, as JSON. A replay decides with it again.

        Raises:
            JournalError: if that was not possible.
        """
        names = ", ".join((*ROUND_COLUMNS, *_TEXTS))
        marks = ", ".join("?" * (len(ROUND_COLUMNS) + len(_TEXTS)))
        with self._using() as connection, self._all_or_nothing():
            texts = (
                self._blobs.put("state", state.json_text, state.hash),
                self._blobs.put("memory", memory_text),
                self._blobs.put("ranking", ranking_text(record.order)),
            )
            values = (*round_values(record), *texts)
            connection.execute(f"INSERT INTO rounds ({names}) VALUES ({marks})", values)
            connection.executemany(
                "INSERT INTO decisions VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
                _placed(record.number, map(verdict_values, record.verdicts)),
            )
            connection.executemany(
                "INSERT INTO happened VALUES (?, ?, ?, ?, ?, ?)",
                _placed(record.number, map(happened_values, record.happened)),
            )

    def write_outcomes(self, record: RoundRecord) -> None:
        """Add to a round that was written what its actions came to: errors of decisions, and timings.

        Raises:
            JournalError: if that was not possible.
        """
        errors = [
            (storable(one.error), record.number, storable(one.id)) for one in record.verdicts if one.error
        ]
        with self._using() as connection, self._all_or_nothing():
            connection.execute(
                "UPDATE rounds SET timings_s = ? WHERE number = ?",
                (json.dumps(record.timings_s), record.number),
            )
            connection.executemany("UPDATE decisions SET error = ? WHERE round = ? AND id = ?", errors)

    @contextmanager
    def _all_or_nothing(self) -> Iterator[None]:
        try:
            with transaction(self._connection):
                yield
        except BaseException:
            self._blobs.forget()
            raise

    def write_predictions(self, number: int, rows: Iterable[Prediction]) -> None:
        """Add when jobs were expected to start as of a round, in place of what was said in the same round.

        Raises:
            JournalError: if that was not possible.
        """
        values = [(number, storable(one.job), one.by, one.low_s, one.mid_s, one.high_s) for one in rows]
        with self._using() as connection, self._all_or_nothing():
            connection.executemany("INSERT OR REPLACE INTO predictions VALUES (?, ?, ?, ?, ?, ?)", values)

    def predictions(self, job: str | None = None, since_number: int = 0) -> list[Prediction]:
        """When jobs were expected to start, the earliest round first."""
        query = "SELECT * FROM predictions WHERE round >= ?" + ("" if job is None else " AND job = ?")
        found = self._rows(query, (since_number, *(() if job is None else (job,))))
        return [Prediction(name, number, *rest) for number, name, *rest in found]

    def next_number(self) -> int:
        """Of the next round; 1 in a new journal."""
        return int(self._rows("SELECT coalesce(max(number), 0) + 1 FROM rounds")[0][0])

    def numbers(self, since: int = 0, until: int | None = None) -> list[int]:
        """Of all rounds from ``since`` to ``until``, both included, ascending."""
        last = _LAST_ROUND if until is None else until
        query = "SELECT number FROM rounds WHERE number BETWEEN ? AND ? ORDER BY number"
        return [number for (number,) in self._rows(query, (since, last))]

    def last(self) -> RoundRecord | None:
        """The newest round; None if there is none."""
        number = self.next_number() - 1
        return self.record(number) if number else None

    def last_memory(self) -> str | None:
        """The memory of the newest round; None if there is none."""
        number = self.next_number() - 1
        return self.memory(number) if number else None

    def record(self, number: int) -> RoundRecord:
        """A round.

        Raises:
            JournalError: if it is not there.
        """
        found = self.records(number, limit=1)
        if not found or found[0].number != number:
            raise self._missing(number)
        return found[0]

    def records(self, since_number: int = 0, limit: int = 1000) -> list[RoundRecord]:
        """At most so many rounds from a number on, ascending."""
        names = ", ".join((*ROUND_COLUMNS, "ranking"))
        query = f"SELECT {names} FROM rounds WHERE number >= ? ORDER BY number LIMIT ?"
        with self._one_moment():
            found = self._rows(query, (since_number, limit))
            return [self._full_record(row[:-1], row[-1]) for row in found]

    def outlines(self, since_number: int = 0, limit: int = 1000) -> list[RoundRecord]:
        """At most so many rounds from a number on, ascending, without order, verdicts and what happened."""
        names = ", ".join(ROUND_COLUMNS)
        query = f"SELECT {names} FROM rounds WHERE number >= ? ORDER BY number LIMIT ?"
        return [read_round(row, (), [], []) for row in self._rows(query, (since_number, limit))]

    @contextmanager
    def _one_moment(self) -> Iterator[None]:
        """All that is read inside belongs together, whatever is written or removed meanwhile."""
        with self._using() as connection:
            connection.execute("BEGIN")
            try:
                yield
            finally:
                connection.execute("ROLLBACK")

    def _full_record(self, values: tuple[Any, ...], ranking: int) -> RoundRecord:
        with self._using():
            order = read_ranking(self._blobs.text(ranking))
        decided = "SELECT id, job, action, rule, words, error FROM decisions WHERE round = ? ORDER BY place"
        seen = "SELECT job, what, at_s, nodes FROM happened WHERE round = ? ORDER BY place"
        return read_round(values, order, *(self._rows(query, values[:1]) for query in (decided, seen)))

    def state(self, number: int) -> ClusterState:
        """What a round was decided on.

        Raises:
            JournalError: if the round is not there.
        """
        text = self._text("state", number)
        try:
            return ClusterState.from_json(text)
        except InputError as error:
            raise JournalError(f"{self.path}: round {number}: {error}") from None

    def memory(self, number: int) -> str:
        """The memory that a round was decided with, as JSON.

        Raises:
            JournalError: if the round is not there.
        """
        return self._text("memory", number)

    def state_hash(self, number: int) -> str:
        """The hash of the state that a round was decided on.

        Raises:
            JournalError: if the round is not there.
        """
        query = "SELECT hash FROM rounds JOIN blobs ON blobs.id = rounds.state WHERE number = ?"
        found = self._rows(query, (number,))
        if not found:
            raise self._missing(number)
        return bytes(found[0][0]).hex()

    def _text(self, kind: str, number: int) -> str:
        with self._one_moment():
            found = self._rows(f"SELECT {kind} FROM rounds WHERE number = ?", (number,))
            if found:
                return self._blobs.text(found[0][0])
        raise self._missing(number)

    def _missing(self, number: int) -> JournalError:
        ((first, last),) = self._rows("SELECT min(number), max(number) FROM rounds")
        kept = "it holds none yet" if first is None else f"it holds rounds {first} to {last}"
        return JournalError(f"{self.path}: there is no round {number}; {kept}")

    def decisions(
        self, job: str | None = None, since_s: float | None = None, limit: int = 1000
    ) -> list[DecisionRow]:
        """At most so many decisions, the newest first.

        Args:
            job: Only those about this job.
            since_s: Only those from this time on, on the cluster's clock.
            limit: How many at most.
        """
        conditions = {"job = ?": job, "at_s >= ?": since_s}
        asked = {text: value for text, value in conditions.items() if value is not None}
        query = (
            "SELECT number, at_s, id, job, action, rule, decisions.words, error, decider, cause "
            "FROM decisions JOIN rounds ON number = round"
            + (f" WHERE {' AND '.join(asked)}" if asked else "")
            + " ORDER BY round DESC, place DESC LIMIT ?"
        )
        return [DecisionRow(*row) for row in self._rows(query, (*asked.values(), limit))]

    def happened(self, since_number: int = 0) -> list[tuple[int, Happened]]:
        """What the scheduler did, each with the number of the round that saw it, from a number on."""
        query = "SELECT round, job, what, at_s, nodes FROM happened WHERE round >= ? ORDER BY round, place"
        return [(row[0], read_happened(row[1:])) for row in self._rows(query, (since_number,))]

    def set_note(self, key: str, value: str) -> None:
        """Keep a text under a name, such as the settings. No secrets: whoever may read the file reads it.

        Raises:
            JournalError: if that was not possible.
        """
        with self._using() as connection:
            connection.execute("INSERT OR REPLACE INTO notes VALUES (?, ?)", (key, storable(value)))

    def note(self, key: str) -> str | None:
        """The text that is kept under a name; None if there is none."""
        found = self._rows("SELECT value FROM notes WHERE key = ?", (key,))
        return str(found[0][0]) if found else None

    def prune(self, keep_days: float, keep_mb: float, now_s: float) -> int:
        """Remove the oldest rounds, but never one of the newest 100, and give their room back.

        Args:
            keep_days: Rounds whose ``wall_s`` lies longer before ``now_s`` are removed.
            keep_mb: Rounds are removed until the journal is no larger than this.
            now_s: Unix time.

        Returns:
            How many rounds were removed.

        Raises:
            JournalError: if that was not possible.
        """
        with self._using() as connection:
            try:
                removed, blobs = prune(connection, now_s - keep_days * 86_400, keep_mb * 1e6)
            except BaseException:
                self._blobs.forget()
                raise
            self._blobs.forget(blobs)
        return removed

    def _rows(self, query: str, values: tuple[Any, ...] = ()) -> list[Any]:
        with self._using() as connection:
            return connection.execute(query, values).fetchall()


def _placed(number: int, rows: Iterable[tuple[Any, ...]]) -> Iterator[tuple[Any, ...]]:
    return ((number, place, *values) for place, values in enumerate(rows))
