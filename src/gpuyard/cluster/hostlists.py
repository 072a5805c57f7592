"""Lists of names with ranges in brackets, such as ``gn[001-128,130],login1``, as Slurm writes nodes."""

import re
from collections.abc import Sequence

MOST_NODES = 100_000
"""Names that one list may stand for."""

_RANGE = re.compile(r"(\d{1,9})(?:-(\d{1,9}))?")
_NUMBERED = re.compile(r"(.*?)(\d{1,9})")
_BRACKETS = re.compile(r"([^\[\]]*)\[([^\[\]]*)\]")


def expanded_nodes(text: str) -> list[str] | None:
    """The names that a list stands for, each once, in its order; None if it cannot be read or is too long."""
    names: dict[str, None] = {}
    for part in _parts(text):
        expanded = _expanded(part)
        if expanded is None or len(names) + len(expanded) > MOST_NODES:
            return None
        names.update(dict.fromkeys(expanded))
    return list(names)


def compressed_nodes(names: Sequence[str]) -> str | None:
    """Names as the shortest list of ranges that stands for them in their order; None if no list can.

    ``gn01, gn02, gn03, login`` is ``gn[01-03],login``.
    """
    parts: list[tuple[str, list[tuple[str, str]]]] = []
    for name in names:
        found = _NUMBERED.fullmatch(name)
        prefix, number = (found[1], found[2]) if found else (name, "")
        if not number or not parts or parts[-1][0] != prefix or not parts[-1][1]:
            parts.append((prefix, [(number, number)] if number else []))
            continue
        first, last = parts[-1][1][-1]
        if str(int(last) + 1).zfill(len(first)) == number:
            parts[-1][1][-1] = (first, number)
        else:
            parts[-1][1].append((number, number))
    text = ",".join(_written(prefix, ranges) for prefix, ranges in parts)
    return text if names and expanded_nodes(text) == list(names) else None


def _written(prefix: str, ranges: list[tuple[str, str]]) -> str:
    if not ranges or (len(ranges) == 1 and ranges[0][0] == ranges[0][1]):
        return prefix + (ranges[0][0] if ranges else "")
    return f"{prefix}[{','.join(a if a == b else f'{a}-{b}' for a, b in ranges)}]"


def _parts(text: str) -> list[str]:
    """Cut at commas, blanks, ``|`` and ``+`` outside of brackets."""
    inside = re.compile(r"(?:[^\[\],|+\s]|\[[^\]]*\])+|[\[\]]")
    return inside.findall(text)


def _expanded(part: str) -> list[str] | None:
    """One name with any number of ranges in brackets, such as ``rack[1-2]n[01-04]``."""
    names = [""]
    position = 0
    for found in _BRACKETS.finditer(part):
        numbers = _numbers(found[2])
        if found.start() != position or numbers is None or len(names) * len(numbers) > MOST_NODES:
            return None
        names = [f"{name}{found[1]}{number}" for name in names for number in numbers]
        position = found.end()
    rest = part[position:]
    return None if "[" in rest or "]" in rest else [name + rest for name in names]


def _numbers(text: str) -> list[str] | None:
    """``01-03,7`` as 01, 02, 03, 7: as many digits as the first number of a range has."""
    numbers: list[str] = []
    for part in text.split(","):
        found = _RANGE.fullmatch(part.strip())
        if not found:
            return None
        first, last = found[1], found[2] or found[1]
        count = int(last) - int(first) + 1
        if count < 1 or len(numbers) + count > MOST_NODES:
            return None
        numbers += [str(number).zfill(len(first)) for number in range(int(first), int(last) + 1)]
    return numbers
