"""The records of a large JSON list, one after another, without holding the file in memory."""

import codecs
import json
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

from gpuyard.errors import InputError
from gpuyard.workload.chunks import open_bytes

_PIECE_BYTES = 1024 * 1024
_MAX_RECORD_CHARS = 64 * 1024 * 1024
_BLANKS = " \t\r\n"
_LONGEST_TOKEN = 16
"""An error this close to the end of the text read so far can be a token that goes on behind it."""


def json_records(path: Path, member: str | None = None) -> Iterator[tuple[int, Any]]:
    """Each element of the list that the file holds, with the number of the line on which it starts.

    Args:
        path: The file.
        member: The list is under this key of an object; None for a file that is a list.

    Raises:
        InputError: if the file is not of that form, is damaged or cut off.
    """
    with open_bytes(path) as file:
        text = _Text(path, file)
        if member is None:
            yield from _elements(text)
        else:
            yield from _elements_of_member(text, member)
        if text.next_char():
            raise text.error("expected nothing behind the list")


def _elements(text: "_Text") -> Iterator[tuple[int, Any]]:
    if text.next_char() != "[":
        raise text.error("expected a JSON list, which starts with '['")
    text.at += 1
    separator = ","
    if text.next_char() == "]":
        separator = "]"
        text.at += 1
    while separator == ",":
        text.next_char()
        line = text.line
        yield line, text.take_value()
        separator = text.next_char()
        if separator not in (",", "]"):
            raise text.error("expected ',' or ']' behind a record")
        text.at += 1


def _elements_of_member(text: "_Text", member: str) -> Iterator[tuple[int, Any]]:
    """The elements of one member of an object; the values of the others are passed over."""
    if text.next_char() != "{":
        raise text.error("expected a JSON object, which starts with '{'")
    text.at += 1
    found, separator = False, ","
    while separator == ",":
        key = text.take_value() if text.next_char() == '"' else None
        if key is None or text.next_char() != ":":
            raise text.error("expected a key and ':'")
        text.at += 1
        text.next_char()
        if key == member:
            found = True
            yield from _elements(text)
        else:
            text.take_value()
        separator = text.next_char()
        if separator not in (",", "}"):
            raise text.error("expected ',' or '}' behind a value")
        text.at += 1
    if not found:
        raise text.error(f"expected a list {member!r}")


class _Text:
    """A window over the file's text that moves forward."""

    def __init__(self, path: Path, file: IO[bytes]) -> None:
        self._path = path
        self._file = file
        self._decode = codecs.getincrementaldecoder("utf-8-sig")(errors="replace").decode
        self._ended = False
        self.text = ""
        self.at = 0
        self.line = 1
        """Of the position ``at``, as of the last call."""

    def next_char(self) -> str:
        """The next character that is not blank, without taking it; nothing at the end of the file."""
        while True:
            rest = len(self.text)
            start = self.at
            while self.at < rest and self.text[self.at] in _BLANKS:
                self.at += 1
            self.line += self.text.count("\n", start, self.at)
            if self.at < rest:
                return self.text[self.at]
            if self._ended:
                return ""
            self._grow()

    def take_value(self) -> Any:
        """The JSON value that starts here."""
        while True:
            try:
                value, end = json.JSONDecoder().raw_decode(self.text, self.at)
            except json.JSONDecodeError as error:
                if not self._may_go_on(error):
                    cut_off = error.msg.startswith("Unterminated string")
                    self._move(len(self.text) if cut_off else error.pos)
                    raise self.error(error.msg) from None
            except (RecursionError, ValueError) as error:
                raise self.error(str(error)) from None
            else:
                # A number at the very end may have more digits.
                if end < len(self.text) or self._ended:
                    self._move(end)
                    return value
            if len(self.text) - self.at > _MAX_RECORD_CHARS:
                raise self.error(f"a record is longer than {_MAX_RECORD_CHARS:,} characters")
            self._grow()

    def _may_go_on(self, error: json.JSONDecodeError) -> bool:
        if self._ended:
            return False
        near_end = error.pos >= len(self.text) - _LONGEST_TOKEN
        return near_end or error.msg.startswith("Unterminated string")

    def _move(self, position: int) -> None:
        self.line += self.text.count("\n", self.at, position)
        self.at = position

    def _grow(self) -> None:
        # Twice as much for each try at a long record, so that the work stays proportional to its length.
        data = self._file.read(max(_PIECE_BYTES, len(self.text) - self.at))
        self._ended = not data
        self.text = self.text[self.at :] + self._decode(data, final=self._ended)
        self.at = 0

    def error(self, what: str) -> InputError:
        """What is wrong at this place."""
        found = self.text[self.at : self.at + 40]
        if not found:
            return InputError(
                f"{self._path}, line {self.line}: the file ends here ({what}); it is cut off, fetch it again"
            )
        return InputError(
            f"{self._path}, line {self.line}: cannot be read as JSON ({what}; found {found!r}); "
            "correct the file or give its format"
        )
