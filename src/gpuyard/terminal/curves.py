"""Curves in characters: two by four dots in each, or three levels where a terminal has ASCII only."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from rich.text import Text

DOTS_ACROSS, DOTS_UP = 2, 4
_DOTS = ((0x40, 0x04, 0x02, 0x01), (0x80, 0x20, 0x10, 0x08))
"""Bits of a braille character by column, from the lowest dot up."""
_BLANK = 0x2800
_LEVELS = "_-'"


@dataclass(frozen=True)
class Drawing:
    """A curve as lines of text, and the values at its lower and upper edge."""

    lines: list[Text]
    low: float
    high: float


def draw_curve(
    places: Sequence[float],
    values: Sequence[float],
    width: int,
    height: int,
    *,
    level: float | None = None,
    style: str = "cyan",
    ascii_only: bool = False,
) -> Drawing:
    """A curve as lines of text, scaled to fit.

    Args:
        places: Where the points are across, rising; at least one.
        values: Their values.
        width: Characters across.
        height: Lines.
        level: A value to mark across, dotted.
        style: Of the curve; the level is dim.
        ascii_only: Without braille.
    """
    across, up = (1, len(_LEVELS)) if ascii_only else (DOTS_ACROSS, DOTS_UP)
    columns = _columns(places, values, width * across)
    low, high = _range(columns, level)
    top = height * up - 1

    def dot(value: float) -> int:
        return min(max(round((value - low) / (high - low) * top), 0), top)

    curve = _connected([dot(value) for value in columns])
    dotted = {} if level is None else {column: {dot(level)} for column in range(0, width * across, 2)}
    rows = range(height - 1, -1, -1)
    draw = _ascii_row if ascii_only else _braille_row
    return Drawing([draw(row, width, curve, dotted, style) for row in rows], low, high)


def _range(values: Sequence[float], level: float | None) -> tuple[float, float]:
    """From the least to the greatest value, the level among them."""
    shown = [*values, *(() if level is None else (level,))]
    low, high = min(shown), max(shown)
    if high - low <= 1e-12 * max(abs(low), abs(high)):
        return low - 0.5, high + 0.5
    return low, high


def _columns(places: Sequence[float], values: Sequence[float], count: int) -> list[float]:
    """The value at each of so many places, evenly spread: the mean of what falls there, else in between."""
    first, span = places[0], places[-1] - places[0]
    if span <= 0 or count == 1:
        return [values[-1]] * count
    sums, counts = [0.0] * count, [0] * count
    for place, value in zip(places, values, strict=True):
        at = min(max(round((place - first) / span * (count - 1)), 0), count - 1)
        sums[at] += value
        counts[at] += 1
    known = [(at, sums[at] / counts[at]) for at in range(count) if counts[at]]
    filled = [known[0][1]] * count
    for (left, before), (right, after) in pairwise(known):
        for at in range(left, right + 1):
            filled[at] = before + (after - before) * (at - left) / (right - left)
    return filled


def _connected(dots: Sequence[int]) -> dict[int, set[int]]:
    """Dots of each column, so that the line has no gaps upwards."""
    columns = {0: {dots[0]}}
    for at, (before, now) in enumerate(pairwise(dots), start=1):
        step = int(math.copysign(1, now - before))
        columns[at] = set(range(before + step, now + step, step)) if now != before else {now}
    return columns


def _braille_row(
    row: int, width: int, curve: dict[int, set[int]], dotted: dict[int, set[int]], style: str
) -> Text:
    text = Text()
    for at in range(width):
        bits, is_curve = 0, False
        for offset, masks in enumerate(_DOTS):
            column = at * DOTS_ACROSS + offset
            for dots, counts in ((curve.get(column, ()), True), (dotted.get(column, ()), False)):
                for dot in dots:
                    if dot // DOTS_UP == row:
                        bits |= masks[dot % DOTS_UP]
                        is_curve = is_curve or counts
        text.append(chr(_BLANK + bits) if bits else " ", style=style if is_curve else "dim")
    return text


def _ascii_row(
    row: int, width: int, curve: dict[int, set[int]], dotted: dict[int, set[int]], style: str
) -> Text:
    text = Text()
    for at in range(width):
        here = [dot for dot in curve.get(at, ()) if dot // len(_LEVELS) == row]
        level = [dot for dot in dotted.get(at, ()) if dot // len(_LEVELS) == row]
        mark = "|" if len(here) > 1 else _LEVELS[here[0] % len(_LEVELS)] if here else "." if level else " "
        text.append(mark, style=style if here else "dim")
    return text
