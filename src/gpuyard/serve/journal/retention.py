"""How old rounds leave a journal, and how its file shrinks."""

import math
import sqlite3

from gpuyard.serve.journal.database import transaction

KEPT = 100
"""The newest rounds are never removed."""
BATCH = 500
"""Rounds per transaction: readers see a journal that is whole, and the write-ahead log stays short."""


def prune(connection: sqlite3.Connection, before_s: float, most_bytes: float) -> tuple[int, set[int]]:
    """Remove rounds whose wall clock showed less, then the oldest ones while the file is larger.

    Returns:
        How many rounds, and the numbers of the texts that went with them.
    """
    removed, texts = 0, set[int]()
    while numbers := _due(connection, before_s, most_bytes):
        with transaction(connection):
            texts |= _remove(connection, numbers[-1])
        removed += len(numbers)
    if removed:
        # As a script: ``execute`` would step once, which frees one page.
        connection.executescript("PRAGMA incremental_vacuum")
        # Passive: it waits for nobody. The file shrinks when readers have moved on.
        connection.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchall()
    return removed, texts


def _due(connection: sqlite3.Connection, before_s: float, most_bytes: float) -> list[int]:
    """Numbers of the oldest rounds that have to go next, ascending."""
    (count,) = connection.execute("SELECT count(*) FROM rounds").fetchone()
    room = min(count - KEPT, BATCH)
    if room <= 0:
        return []
    query = "SELECT number, wall_s FROM rounds ORDER BY number LIMIT ?"
    oldest = connection.execute(query, (room,)).fetchall()
    # Up to the last one that is too old: clocks may have jumped in between.
    aged = max((place for place, (_, wall_s) in enumerate(oldest, 1) if wall_s < before_s), default=0)
    used = used_bytes(connection)
    excess = math.ceil(count * (used - most_bytes) / used) if used > most_bytes else 0
    return [number for number, _ in oldest[: max(aged, excess)]]


def used_bytes(connection: sqlite3.Connection) -> int:
    """Size of the file without pages that are free."""
    found = [
        connection.execute(f"PRAGMA {name}").fetchone()[0]
        for name in ("page_count", "freelist_count", "page_size")
    ]
    return int((found[0] - found[1]) * found[2])


def _remove(connection: sqlite3.Connection, last: int) -> set[int]:
    """Remove all rounds up to this one, and the texts that no other needs."""
    texts: set[int] = set()
    for kind in ("state", "memory", "ranking"):
        query = f"SELECT DISTINCT {kind} FROM rounds WHERE number <= ?"
        texts |= {number for (number,) in connection.execute(query, (last,))}
    connection.execute("DELETE FROM rounds WHERE number <= ?", (last,))
    for table in ("decisions", "happened", "predictions"):
        connection.execute(f"DELETE FROM {table} WHERE round <= ?", (last,))
    # Changes go before the texts that they are changes to, which may then be needed no longer.
    bases = {number for text in texts for number in _base(connection, text)}
    gone = {text for text in texts if _dropped(connection, text)}
    return gone | {base for base in bases - gone if _dropped(connection, base)}


def _base(connection: sqlite3.Connection, text: int) -> list[int]:
    query = "SELECT base FROM blobs WHERE id = ? AND base IS NOT NULL"
    return [base for (base,) in connection.execute(query, (text,))]


def _dropped(connection: sqlite3.Connection, text: int) -> bool:
    query = (
        "DELETE FROM blobs WHERE id = :text AND NOT EXISTS (SELECT 1 FROM rounds WHERE state = :text) "
        "AND NOT EXISTS (SELECT 1 FROM rounds WHERE memory = :text) "
        "AND NOT EXISTS (SELECT 1 FROM rounds WHERE ranking = :text) "
        "AND NOT EXISTS (SELECT 1 FROM blobs AS other WHERE other.base = :text)"
    )
    return connection.execute(query, {"text": text}).rowcount > 0
