"""The SQLite file below a journal: opened or refused, its tables, and its errors in words."""

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from gpuyard.errors import InputError

APPLICATION_ID = 0x67707564
"""Tells a journal from other SQLite files."""
SCHEMA_VERSION = 1
BUSY_TIMEOUT_MS = 2_000
WAL_LIMIT_BYTES = 16 * 2**20
"""What a long read made the write-ahead log grow beyond is given back to the file system."""

# Indexes that are named after a column of blobs are for retention: is this blob still needed?
_SCHEMA = """
CREATE TABLE blobs (
    id INTEGER PRIMARY KEY, hash BLOB NOT NULL UNIQUE, base INTEGER, data BLOB NOT NULL);
CREATE INDEX blobs_base ON blobs (base) WHERE base IS NOT NULL;
CREATE TABLE rounds (
    number INTEGER PRIMARY KEY, at_s REAL NOT NULL, wall_s REAL NOT NULL, mode TEXT NOT NULL,
    control TEXT NOT NULL, policy TEXT NOT NULL, model TEXT NOT NULL, decider TEXT NOT NULL,
    cause TEXT NOT NULL, words TEXT NOT NULL, starts TEXT NOT NULL, baseline TEXT NOT NULL,
    timings_s TEXT NOT NULL, pending INTEGER NOT NULL, left INTEGER NOT NULL, state INTEGER NOT NULL,
    memory INTEGER NOT NULL, ranking INTEGER NOT NULL);
CREATE INDEX rounds_state ON rounds (state);
CREATE INDEX rounds_memory ON rounds (memory);
CREATE INDEX rounds_ranking ON rounds (ranking);
CREATE TABLE decisions (
    round INTEGER NOT NULL, place INTEGER NOT NULL, id TEXT NOT NULL, job TEXT NOT NULL,
    action TEXT NOT NULL, rule TEXT NOT NULL, words TEXT NOT NULL, error TEXT NOT NULL,
    PRIMARY KEY (round, place)) WITHOUT ROWID;
CREATE INDEX decisions_job ON decisions (job, round);
CREATE TABLE happened (
    round INTEGER NOT NULL, place INTEGER NOT NULL, job TEXT NOT NULL, what TEXT NOT NULL,
    at_s REAL NOT NULL, nodes TEXT NOT NULL, PRIMARY KEY (round, place)) WITHOUT ROWID;
CREATE TABLE predictions (
    round INTEGER NOT NULL, job TEXT NOT NULL, by TEXT NOT NULL, low_s REAL, mid_s REAL, high_s REAL,
    PRIMARY KEY (round, job, by)) WITHOUT ROWID;
CREATE TABLE notes (key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
"""


class JournalError(InputError):
    """A journal that cannot be read or written. The message names the file and what to do."""


def connect(path: Path, *, readonly: bool) -> sqlite3.Connection:
    """Open a journal; without ``readonly`` one is made if there is none.

    Raises:
        JournalError: if it is none, of another version, or cannot be opened; it is as it was then.
    """
    if readonly:
        return _connect_to_read(path)
    if not path.parent.is_dir():
        raise JournalError(f"{path}: there is no directory {path.parent}; create it first")
    with errors_of(path):
        connection = _opened(path, "rwc")
        try:
            _prepare(connection, path)
        except BaseException:
            connection.close()
            raise
        return connection


def _connect_to_read(path: Path) -> sqlite3.Connection:
    if not path.is_file():
        raise JournalError(
            f"{path}: there is no journal here; gpuyard serve writes one in its state directory"
        )
    with errors_of(path):
        connection = _opened(path, "ro")
        try:
            version = _version(connection, path)
        except sqlite3.OperationalError:
            # SQLite wants to write beside a journal even to read it. Where it may not, and nothing is left
            # over in a write-ahead log, the file alone is everything.
            connection.close()
            if path.with_name(path.name + "-wal").exists():
                raise
            connection = _opened(path, "ro&immutable=1")
            version = _version(connection, path)
        if version is None:
            connection.close()
            raise JournalError(f"{path}: is empty, so it is no journal yet; wait for the first round")
        return connection


def _opened(path: Path, mode: str) -> sqlite3.Connection:
    connection = sqlite3.connect(
        f"{path.absolute().as_uri()}?mode={mode}", uri=True, isolation_level=None, check_same_thread=False
    )
    connection.execute(f"PRAGMA busy_timeout = {BUSY_TIMEOUT_MS}")
    return connection


def _version(connection: sqlite3.Connection, path: Path) -> int | None:
    """None of a file without anything in it; other files than journals of this version are refused."""
    (application,) = connection.execute("PRAGMA application_id").fetchone()
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    (tables,) = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
    if not application and not version and not tables:
        return None
    if application != APPLICATION_ID:
        raise JournalError(f"{path}: is an SQLite file, but no journal of gpuyard; give another path")
    if version != SCHEMA_VERSION:
        raise JournalError(
            f"{path}: is a journal of version {version}, but this gpuyard reads version {SCHEMA_VERSION}; "
            "use the gpuyard that wrote it, or move the file away to begin another"
        )
    return SCHEMA_VERSION


def _prepare(connection: sqlite3.Connection, path: Path) -> None:
    if _version(connection, path) is None:
        # In this order: once the file is in WAL mode, it can no longer be made one that shrinks.
        connection.execute("PRAGMA auto_vacuum = INCREMENTAL")
        connection.execute("PRAGMA journal_mode = WAL")
        marks = f"PRAGMA application_id = {APPLICATION_ID}; PRAGMA user_version = {SCHEMA_VERSION};"
        connection.executescript(f"BEGIN IMMEDIATE; {_SCHEMA} {marks} COMMIT;")
    connection.execute("PRAGMA journal_mode = WAL")
    # NORMAL: after a power cut the last rounds may be missing, but the file is whole. A killed process
    # loses nothing.
    connection.execute("PRAGMA synchronous = NORMAL")
    connection.execute(f"PRAGMA journal_size_limit = {WAL_LIMIT_BYTES}")


@contextmanager
def errors_of(path: Path) -> Iterator[None]:
    """Errors of SQLite as a JournalError that says what to do."""
    try:
        yield
    except sqlite3.Error as error:
        raise JournalError(f"{path}: {_advice(error)} ({error})") from error
    except OSError as error:
        raise JournalError(f"{path}: cannot be opened ({error.strerror or error})") from error


def _advice(error: sqlite3.Error) -> str:
    name = getattr(error, "sqlite_errorname", None) or ""
    for start, words in _ADVICE.items():
        if name.startswith(start):
            return words
    return "the journal cannot be used"


_ADVICE = {
    "SQLITE_FULL": "the disk is full; make room, or lower `keep_mb`",
    "SQLITE_IOERR": "the disk cannot be read or written; look at its health and at the room left",
    "SQLITE_READONLY": "may not be written; give the agent's user write permission to the file and its "
    "directory",
    "SQLITE_CANTOPEN": "cannot be opened; check the permissions of the file and its directory",
    "SQLITE_PERM": "cannot be opened; check the permissions of the file and its directory",
    "SQLITE_BUSY": "another process is writing to it; only one agent may use a state directory",
    "SQLITE_LOCKED": "another process is writing to it; only one agent may use a state directory",
    "SQLITE_CORRUPT": "is damaged; move it away with its -wal and -shm files, and a new one is begun. "
    "`sqlite3 FILE .recover` saves what can be read",
    "SQLITE_NOTADB": "is no SQLite file, so it is no journal; give another path",
    "SQLITE_CONSTRAINT": "this round is already in it; only one agent may use a state directory",
}


@contextmanager
def transaction(connection: sqlite3.Connection) -> Iterator[None]:
    """All of it or, on any exception, nothing."""
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield
        connection.execute("COMMIT")
    except BaseException:
        # A full disk has SQLite roll back by itself.
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise
