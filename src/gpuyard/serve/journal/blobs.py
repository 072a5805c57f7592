"""Texts that change little from round to round: each is kept once, compressed, or as what changed in it."""

import hashlib
import json
import sqlite3
import zlib
from collections.abc import Sequence
from dataclasses import dataclass, field

FULL_LEVEL = 2
"""Of zlib, for whole texts: 0.9 ms for 1,000 jobs. Level 6 takes 3 times as long and saves a sixth."""
CHANGES_LEVEL = 6
"""For changes, which are short."""

Change = str | list[int]
"""A part that is new, or first and number of parts that are as they were."""

SEPARATORS = {"state": "},", "memory": ",", "ranking": "],"}
"""Where texts of a kind are taken apart, so that most parts stay the same from round to round."""


@dataclass
class _Base:
    """A text that was stored whole, and what changes to it have cost so far, in bytes."""

    id: int
    parts: list[str]
    size: int
    spent: int = 0
    places: dict[str, int] = field(init=False)

    def __post_init__(self) -> None:
        self.places = {part: place for place, part in enumerate(self.parts)}


def changes(base: Sequence[str], places: dict[str, int], parts: Sequence[str]) -> list[Change]:
    """What makes other parts of these."""
    found: list[Change] = []
    expected, count = 0, len(base)
    run: list[int] | None = None
    for part in parts:
        same = expected < count and base[expected] == part
        place = expected if same else places.get(part)
        if place is None:
            found.append(part)
            run = None
            continue
        if run is not None and place == expected:
            run[1] += 1
        else:
            run = [place, 1]
            found.append(run)
        expected = place + 1
    return found


def changed(base: Sequence[str], made: Sequence[Change], separator: str) -> str:
    """The text that ``changes`` described."""
    parts: list[str] = []
    for one in made:
        if isinstance(one, str):
            parts.append(one)
        else:
            parts += base[one[0] : one[0] + one[1]]
    return separator.join(parts)


class Blobs:
    """Texts by number in the table ``blobs``. Those of one kind are compared with each other.

    A text is stored whole, or as changes to one that is: never as changes to changes.
    """

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        self._bases: dict[str, _Base] = {}
        self._last: dict[str, tuple[str, int]] = {}
        self._read: dict[str, tuple[int, list[str]]] = {}

    def put(self, kind: str, text: str, digest: str | None = None) -> int:
        """Store a text within the present transaction, unless it is there, and return its number.

        Args:
            kind: One of ``SEPARATORS``.
            text: Any.
            digest: Its SHA-256 in hexadecimal, if that is known.
        """
        last = self._last.get(kind)
        if last is not None and last[0] == text:
            return last[1]
        key = bytes.fromhex(digest) if digest else hashlib.sha256(_bytes(text)).digest()
        row = self._connection.execute("SELECT id FROM blobs WHERE hash = ?", (key,)).fetchone()
        number = row[0] if row else self._add(kind, key, text)
        self._last[kind] = (text, number)
        return number

    def _add(self, kind: str, key: bytes, text: str) -> int:
        parts = text.split(SEPARATORS[kind])
        base = self._bases.get(kind)
        if base is not None:
            made = json.dumps([kind, changes(base.parts, base.places, parts)], separators=(",", ":"))
            data = zlib.compress(made.encode(), CHANGES_LEVEL)
            base.spent += len(data)
            # Changes grow from round to round. To begin anew once they have cost as much as a whole text
            # is never worse than twice the best that could have been done.
            if base.spent <= base.size:
                return self._insert(key, base.id, data)
        data = zlib.compress(_bytes(text), FULL_LEVEL)
        number = self._insert(key, None, data)
        self._bases[kind] = _Base(number, parts, len(data))
        return number

    def _insert(self, key: bytes, base: int | None, data: bytes) -> int:
        values = (key, base, data)
        added = self._connection.execute("INSERT INTO blobs (hash, base, data) VALUES (?, ?, ?)", values)
        return int(added.lastrowid or 0)

    def forget(self, removed: set[int] | None = None) -> None:
        """Compare with nothing that was stored: its transaction failed, or these numbers were removed."""
        self._read.clear()
        self._last.clear()
        for kind, base in list(self._bases.items()):
            if removed is None or base.id in removed:
                del self._bases[kind]

    def text(self, number: int) -> str:
        """The text of a number.

        Raises:
            sqlite3.DatabaseError: if it is not there, or not what was stored.
        """
        row = self._connection.execute(
            "SELECT hash, base, data FROM blobs WHERE id = ?", (number,)
        ).fetchone()
        if row is None:
            raise sqlite3.DatabaseError(f"text {number} is missing")
        key, base, data = row
        try:
            plain = zlib.decompress(data)
            text = _text(plain) if base is None else self._changed(base, *json.loads(plain))
        except (zlib.error, ValueError, TypeError, KeyError):
            raise sqlite3.DatabaseError(f"text {number} cannot be unpacked") from None
        if hashlib.sha256(_bytes(text)).digest() != key:
            raise sqlite3.DatabaseError(f"text {number} is not what was stored")
        return text

    def _changed(self, number: int, kind: str, made: list[Change]) -> str:
        # The last whole text is kept, because the rounds after it are read next.
        kept, parts = self._read.get(kind, (0, []))
        if kept != number:
            (data,) = self._connection.execute("SELECT data FROM blobs WHERE id = ?", (number,)).fetchone()
            parts = _text(zlib.decompress(data)).split(SEPARATORS[kind])
            self._read[kind] = (number, parts)
        return changed(parts, made, SEPARATORS[kind])


def _bytes(text: str) -> bytes:
    """Also of names that are no valid Unicode: what a cluster calls its jobs is data."""
    return text.encode("utf-8", "surrogatepass")


def _text(data: bytes) -> str:
    return data.decode("utf-8", "surrogatepass")
