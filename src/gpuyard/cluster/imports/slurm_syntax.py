"""The files of Slurm's configuration, as statements: comments, continued lines and included files."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from gpuyard.errors import InputError

_COMMENT = re.compile(r"(?<!\\)#.*")
_INCLUDE = re.compile(r"\s*include\s+(\S.*?)\s*", re.IGNORECASE)
_PAIR = re.compile(r"\s*([A-Za-z0-9_.]+)\s*[-+*/]?=\s*(?:\"([^\"]*)\"|'([^']*)'|(\S*))(?=\s|$)")
MOST_DEEP = 32


@dataclass(frozen=True)
class Statement:
    """One line of a file, with those that continue it.

    Attributes:
        file: As it was named.
        line: Number of its first line.
        pairs: Keys and values, in their order.
    """

    file: str
    line: int
    pairs: tuple[tuple[str, str], ...]

    @property
    def where(self) -> str:
        """The place, for lists."""
        return f"{self.file}:{self.line}"

    @property
    def head(self) -> str:
        """The first key in lower case, which says what the statement is about."""
        return self.pairs[0][0].lower()

    @property
    def values(self) -> dict[str, str]:
        """Values by key in lower case; of a key that is repeated, the last."""
        return {key.lower(): value for key, value in self.pairs}

    def refuse(self, problem: object) -> InputError:
        """An error at this place."""
        return InputError(f"{self.file}, line {self.line}: {problem}")


def read_statements(path: Path, text: str | None = None) -> list[Statement]:
    """All statements of a file and of those that it includes, in order.

    Args:
        path: The file; names of included ones are relative to it.
        text: What it holds, if that is known.

    Raises:
        InputError: for a file that cannot be read, one that includes itself, or a line that is none.
    """
    return list(_statements(path, _text(path, str(path)) if text is None else text, ()))


def _statements(path: Path, text: str, above: tuple[Path, ...]) -> Iterator[Statement]:
    for number, line in _lines(text):
        where = f"{path}, line {number}"
        included = _INCLUDE.fullmatch(line)
        if included and "=" not in included[1].split()[0]:
            yield from _included(path, included[1].strip("\"'"), where, (*above, path.resolve()))
            continue
        pairs, position = [], 0
        while position < len(line.rstrip()):
            found = _PAIR.match(line, position)
            if not found:
                raise InputError(
                    f"{where}: cannot read {line[position:].strip()[:60]!r}; expected KEY=VALUE, or Include "
                    "FILE"
                )
            pairs.append((found[1], next(value for value in (*found.groups()[1:], "") if value is not None)))
            position = found.end()
        if pairs:
            yield Statement(str(path), number, tuple(pairs))


def _included(path: Path, name: str, where: str, above: tuple[Path, ...]) -> Iterator[Statement]:
    if "\0" in name:
        raise InputError(f"{where}: includes a file whose name holds a zero byte; expected Include FILE")
    other = path.parent / name
    if other.resolve() in above or len(above) > MOST_DEEP:
        chain = " -> ".join(str(one) for one in (*above, other.resolve()))
        raise InputError(
            f"{where}: includes {name}, which includes this file again ({chain}); remove one of them"
        )
    yield from _statements(other, _text(other, f"{where}: included file {other}"), above)


def _text(path: Path, what: str) -> str:
    try:
        return path.read_bytes().decode("utf-8", errors="replace")
    except OSError as error:
        raise InputError(f"{what}: cannot be read ({error.strerror})") from None


def _lines(text: str) -> Iterator[tuple[int, str]]:
    """Lines without comments, those that end in a backslash joined with the next, by first number."""
    first, joined = 0, ""
    for number, line in enumerate(text.removeprefix("\ufeff").splitlines(), start=1):
        bare = _COMMENT.sub("", line).replace("\\#", "#").rstrip()
        first = first or number
        if bare.endswith("\\"):
            joined += bare[:-1]  # as Slurm does: without a blank
            continue
        yield first, joined + bare
        first, joined = 0, ""
    if joined:
        yield first, joined
