"""Charts of training runs, several laid over each other, each with its values as a table."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from gpuyard.report.pages import charts, web_page
from gpuyard.report.pages.charts import Axis, Series
from gpuyard.runs.curves import Curve, short_number

Across = Literal["steps", "minutes"]
Level = tuple[float, str]
"""A value to mark across a chart, and its name."""

MOST_POINTS = 160
"""A line with more points is drawn as means of neighbours, in a band from the least to the greatest."""
MOST_DOTS = 40
"""A line with more points does not mark each of them."""
MOST_STRETCH = 1.5
"""A level further off the lines than this many times their height is told below the chart."""
MOST_ROWS = 24
"""Rows of a run in the table below a chart; the page's files have all."""


@dataclass(frozen=True)
class Line:
    """Values of one run.

    Attributes:
        name: Of the run.
        places: Samples or minutes.
        values: To draw.
        colour: The run's, from 1 on; None if there is only one run.
    """

    name: str
    places: Sequence[float]
    values: Sequence[float]
    colour: int | None


class FigureMaker:
    """Makes charts of some runs, over samples or over minutes; a run has one colour in all of them."""

    def __init__(self, across: Across, names: Sequence[str]) -> None:
        self.across = across
        self._label = "samples" if across == "steps" else "minutes of training"
        self._colours = {name: number for number, name in enumerate(names, start=1)} if len(names) > 1 else {}

    def line(self, name: str, curve: Curve) -> Line:
        """A run's curve over what this draws over."""
        places = curve.steps if self.across == "steps" else curve.minutes
        return Line(name, places, curve.values, self._colours.get(name))

    def figure(self, title: str, label: str, lines: Sequence[Line], levels: Sequence[Level] = ()) -> str:
        """A chart of lines, each with at least one point.

        Args:
            title: Above it.
            label: Of the scale upwards.
            lines: One for each run.
            levels: To compare with, the most important one first.
        """
        series = [_series(line) for line in lines]
        places = [_means(line.places) for line in lines]
        values = [value for one in series for part in (one.values, one.lows, one.highs) for value in part]
        near = _near(levels, min(values), max(values))
        y = _value_axis(label, [*values, *(value for value, _ in near)])
        last = max(place for line in lines for place in line.places) or 1.0
        ticks = charts.linear_axis(self._label, last).ticks
        x = Axis(0.0, last, self._label, tuple(tick for tick in ticks if tick[0] <= last))
        dots = max(len(line.values) for line in lines) <= MOST_DOTS
        chart = charts.line_chart(title, places, series, x, y, levels=near, dots=dots)
        far = ", ".join(name for value, name in levels if (value, name) not in near)
        note = web_page.paragraph(f"Too far off to be shown: {far}") if far else ""
        return with_table(chart, self._table(lines), note)

    def bars(
        self, title: str, labels: Sequence[str], axes: tuple[str, str], shares: Mapping[str, Sequence[float]]
    ) -> str:
        """A chart of shares for each label.

        Args:
            title: Above it.
            labels: Across.
            axes: What is across, and of what the shares are.
            shares: Of each run.
        """
        series = [Series(run, values, colour=self._colours.get(run)) for run, values in shares.items()]
        high = max((value for one in series for value in one.values), default=0.0) or 1.0
        chart = charts.bar_chart(title, labels, series, charts.share_axis(axes[1], high), axes[0])
        rows = [
            (one.name, label, f"{100 * value:.2f} %")
            for one in series
            for label, value in zip(labels, one.values, strict=True)
        ]
        return with_table(chart, web_page.html_table(("run", *axes), rows, numbers=(2,)))

    def _table(self, lines: Sequence[Line]) -> str:
        rows = []
        for line in lines:
            for place, value in _some(list(zip(line.places, line.values, strict=True))):
                shown = f"{place:,.0f}" if self.across == "steps" else f"{place:.2f}"
                rows.append((line.name, shown, f"{value:.6g}"))
        return web_page.html_table(("run", self._label, "value"), rows, numbers=(1, 2))


def with_table(figure: str, table: str, note: str = "") -> str:
    """A chart with a note, if there is one, and its values as a table, folded away, below it."""
    return figure.removesuffix("</figure>") + note + web_page.folded("as a table", table) + "</figure>"


def _near(levels: Sequence[Level], low: float, high: float) -> list[Level]:
    """The first level, and those that leave room for the lines and for it."""
    if not levels:
        return []
    low, high = min(low, levels[0][0]), max(high, levels[0][0])
    room = MOST_STRETCH * (high - low)
    return [level for level in levels if max(low - level[0], level[0] - high, 0.0) <= room]


def _some(points: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    """At most so many points, evenly spread, the first and the last among them."""
    if len(points) <= MOST_ROWS:
        return list(points)
    return [points[round(k * (len(points) - 1) / (MOST_ROWS - 1))] for k in range(MOST_ROWS)]


def _groups(values: Sequence[float]) -> list[Sequence[float]]:
    size = math.ceil(len(values) / MOST_POINTS)
    return [values[first : first + size] for first in range(0, len(values), size)]


def _means(values: Sequence[float]) -> list[float]:
    return [sum(group) / len(group) for group in _groups(values)]


def _series(line: Line) -> Series:
    if len(line.values) <= MOST_POINTS:
        return Series(line.name, line.values, colour=line.colour)
    groups = _groups(line.values)
    lows, highs = [min(group) for group in groups], [max(group) for group in groups]
    return Series(line.name, _means(line.values), lows, highs, line.colour)


def _value_axis(label: str, values: Sequence[float]) -> Axis:
    low, high = min(values), max(values)
    # So much change that the scale may as well start from nothing.
    low, high = (0.0 if 0 < low < 0.5 * high else low), (0.0 if 0.5 * low < high < 0 else high)
    tiny = max(abs(low), abs(high)) < 0.001
    return charts.range_axis(label, low, high, text=short_number if tiny else None)
