"""Charts as inline SVG: no scripts, no network, light and dark by the page's own colours.

A chart takes its colours from CSS: text and axes from ``currentColor``, marks from ``--series-1`` and on (see
``COLOURS``). Every text is escaped; every chart has a title and a description for screen readers.
"""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from html import escape
from itertools import pairwise

WIDTH, HEIGHT = 640, 260
LEFT, RIGHT, TOP, BOTTOM = 66, 24, 12, 46
LETTER_WIDTH, LETTER_HEIGHT = 6.5, 13
"""About what a letter takes, pixels."""

COLOURS = """
:root {
  color-scheme: light dark;
  --series-1: #2563eb; --series-2: #d97706; --series-3: #059669; --series-4: #9333ea;
  --series-5: #0891b2; --series-6: #db2777; --series-7: #65a30d; --series-8: #78716c; --limit: #dc2626;
}
@media (prefers-color-scheme: dark) {
  :root {
    --series-1: #7aa7ff; --series-2: #f5b04c; --series-3: #4fd1a1; --series-4: #c792ff;
    --series-5: #4fc9e0; --series-6: #ff8ac4; --series-7: #a9d65c; --series-8: #b8b0aa; --limit: #ff7b72;
  }
}
.chart { width: 100%; height: auto; font: 12px system-ui, sans-serif; }
.chart text { fill: currentColor; }
.chart .axis { stroke: currentColor; stroke-opacity: .55; fill: none; }
.chart .grid { stroke: currentColor; stroke-opacity: .13; fill: none; }
.chart .limit { stroke: var(--limit); stroke-dasharray: 6 4; fill: none; }
.chart .level { stroke: currentColor; stroke-opacity: .6; stroke-dasharray: 2 4; fill: none; }
.chart .label { opacity: .75; }
.chart .over { paint-order: stroke; stroke: var(--paper, Canvas); stroke-width: 4px; }
"""
"""Style sheet that charts need once a page."""

KNOWN_DURATIONS = (
    *((0.001, "1 ms"), (0.1, "0.1 s"), (1.0, "1 s"), (10.0, "10 s"), (60.0, "1 min"), (600.0, "10 min")),
    *((3600.0, "1 h"), (21600.0, "6 h"), (86400.0, "1 d"), (604800.0, "1 wk"), (2592000.0, "30 d")),
    (31536000.0, "1 y"),
)
"""Ticks of a scale of lengths of time, seconds."""

Text = Callable[[float], str]


@dataclass(frozen=True)
class Axis:
    """A scale from values to pixels.

    Attributes:
        low: Value at the start.
        high: Value at the end.
        label: What it shows, with its unit.
        ticks: Values to mark, with their texts.
        log: Logarithmic.
    """

    low: float
    high: float
    label: str
    ticks: tuple[tuple[float, str], ...]
    log: bool = False

    def share(self, value: float) -> float:
        """Where a value lies, from 0 to 1."""
        if self.log:
            return (math.log(value) - math.log(self.low)) / (math.log(self.high) - math.log(self.low))
        return (value - self.low) / (self.high - self.low)


@dataclass(frozen=True)
class Series:
    """Values with a name; colours follow the order of series.

    Attributes:
        name: For people.
        values: To draw.
        lows: Where a band around a line begins, at each point; without it there is no band.
        highs: Where it ends.
        colour: Number of its colour, from 1 on; without it the place among the series. With it, the legend
            names even a single series.
    """

    name: str
    values: Sequence[float]
    lows: Sequence[float] = ()
    highs: Sequence[float] = ()
    colour: int | None = None


def linear_axis(
    label: str, high: float, *, text: Text | None = None, low: float = 0.0, count: int = 5
) -> Axis:
    """A scale with about ``count`` round ticks that ends at or above ``high``."""
    span = max(high - low, 1e-12)
    step = _round_step(span / count)
    steps = max(math.ceil(span / step - 1e-9), 1)
    shown = text or tick_text
    ticks = tuple((low + k * step, shown(low + k * step)) for k in range(steps + 1))
    return Axis(low, low + steps * step, label, ticks)


def range_axis(label: str, low: float, high: float, *, text: Text | None = None, count: int = 5) -> Axis:
    """A scale with about ``count`` ticks at round values that reaches from ``low`` to ``high`` at least."""
    if high - low <= 1e-9 * max(abs(low), abs(high), 1e-12):
        spread = abs(high) / 2 or 0.5
        low, high = low - spread, high + spread
    step = _round_step((high - low) / count)
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    shown = text or tick_text
    ticks = tuple((k * step, shown(k * step)) for k in range(first, last + 1))
    return Axis(first * step, last * step, label, ticks)


def share_axis(label: str, high: float = 1.0) -> Axis:
    """A scale of shares, in percent."""
    return linear_axis(label, high, text=lambda value: f"{tick_text(100 * value)} %")


def duration_axis(label: str, low_s: float, high_s: float) -> Axis:
    """A logarithmic scale of lengths of time, with ticks that people know."""
    ticks = tuple((seconds, text) for seconds, text in KNOWN_DURATIONS if low_s <= seconds <= high_s)
    return Axis(low_s, max(high_s, low_s * 1.0001), label, ticks, log=True)


def _round_step(step: float) -> float:
    base = 10.0 ** math.floor(math.log10(step))
    return next(factor * base for factor in (1, 2, 2.5, 5, 10) if step <= factor * base * (1 + 1e-9))


def tick_text(value: float) -> str:
    """A short number: 2.5, 1,200, 40k, 3M."""
    for size, unit in ((1e9, "G"), (1e6, "M"), (1e4, "k")):
        if abs(value) >= size:
            return f"{value / (1e3 if unit == 'k' else size):g}{unit}"
    return f"{round(value, 10):,g}" if abs(value) < 1000 else f"{value:,.0f}"


def bar_chart(title: str, labels: Sequence[str], series: Sequence[Series], y: Axis, x_label: str = "") -> str:
    """Bars for each label, one of each series beside the other."""
    frame = _Frame(title, y)
    slot = frame.width / max(len(labels), 1)
    width = slot * 0.8 / max(len(series), 1)
    for index, label in enumerate(labels):
        middle = LEFT + (index + 0.5) * slot
        for number, one in enumerate(series):
            left = middle - slot * 0.4 + number * width
            hint = f"{label}: {one.name} {_value(y, one.values[index])}"
            frame.bar(left, width, one.values[index], _colour(one, number), hint)
    every = max(math.ceil(max(map(len, labels), default=1) * 7 * len(labels) / frame.width), 1)
    places = [(LEFT + (i + 0.5) * slot, label) for i, label in enumerate(labels) if i % every == 0]
    frame.x_ticks(places, x_label)
    return frame.svg(series, _summary(labels, series))


def histogram(title: str, edges: Sequence[float], series: Sequence[Series], x: Axis, y: Axis) -> str:
    """Bars between edges, one of each series beside the other."""
    frame = _Frame(title, y)
    for index, (low, high) in enumerate(pairwise(edges)):
        left, right = frame.x(x, low), frame.x(x, high)
        width = (right - left) * 0.9 / max(len(series), 1)
        for number, one in enumerate(series):
            at = left + (right - left) * 0.05 + number * width
            hint = f"{one.name}: {_value(y, one.values[index])}"
            frame.bar(at, width, one.values[index], _colour(one, number), hint)
    frame.x_ticks([(frame.x(x, value), text) for value, text in x.ticks], x.label)
    return frame.svg(series, f"{len(edges) - 1} bins. " + _summary((), series))


def line_chart(
    title: str,
    x_values: Sequence[Sequence[float]],
    series: Sequence[Series],
    x: Axis,
    y: Axis,
    *,
    steps: bool = False,
    limit: tuple[float, str] | None = None,
    levels: Sequence[tuple[float, str]] = (),
    dots: bool = False,
) -> str:
    """Lines through points.

    Args:
        title: For people and screen readers.
        x_values: Of each series.
        series: What to draw.
        x: Scale across.
        y: Scale upwards.
        steps: Hold each value until the next point instead of a straight line.
        limit: A value to mark across the chart as a bound, with its name.
        levels: Values to mark across the chart for comparison, with their names.
        dots: Mark the points too, each with a text for the pointer.
    """
    frame = _Frame(title, y)
    frame.levels([level for level in levels if y.low <= level[0] <= y.high])
    for number, (places, one) in enumerate(zip(x_values, series, strict=True)):
        across, colour = [frame.x(x, at) for at in places], _colour(one, number)
        if one.lows:
            frame.band(across, one.lows, one.highs, colour)
        points = [(at, frame.y(value)) for at, value in zip(across, one.values, strict=True)]
        frame.line(points, colour, one.name, steps)
        if dots:
            hints = (
                f"{one.name}: {value:.4g} at {tick_text(at)}"
                for at, value in zip(places, one.values, strict=True)
            )
            frame.dots(points, colour, hints)
    if limit is not None and y.low <= limit[0] <= y.high:
        frame.limit(*limit)
    frame.x_ticks([(frame.x(x, value), text) for value, text in x.ticks], x.label)
    return frame.svg(series, _summary((), series))


def cdf_chart(title: str, curves: Sequence[Series], x: Axis) -> str:
    """Cumulative curves. The values of a series are its quantiles, evenly spaced from 0 to 100 %."""
    shares = [[k / (len(curve.values) - 1) for k in range(len(curve.values))] for curve in curves]
    placed = [[max(value, x.low) for value in curve.values] for curve in curves]
    lines = [Series(curve.name, share) for curve, share in zip(curves, shares, strict=True)]
    return line_chart(title, placed, lines, x, share_axis("share at most as long"))


class _Frame:
    """The drawing area with its y axis, to which marks are added."""

    def __init__(self, title: str, y: Axis) -> None:
        self._title, self._axis = title, y
        self.width, self._height = WIDTH - LEFT - RIGHT, HEIGHT - TOP - BOTTOM
        self._marks: list[str] = []
        self._names: list[str] = []
        self._axes = [
            f'<path class="grid" d="M{LEFT} {self.y(value):.1f}H{WIDTH - RIGHT}"/>'
            f'<text x="{LEFT - 6}" y="{self.y(value) + 4:.1f}" text-anchor="end">{escape(text)}</text>'
            for value, text in y.ticks
        ]
        self._axes.append(
            f'<text class="label" transform="translate(13 {TOP + self._height / 2:.0f}) rotate(-90)" '
            f'text-anchor="middle">{escape(y.label)}</text>'
        )

    def x(self, axis: Axis, value: float) -> float:
        """Pixels of a value across."""
        return LEFT + min(max(axis.share(value), 0.0), 1.0) * self.width

    def y(self, value: float) -> float:
        """Pixels of a value upwards; what is too high is cut at the top."""
        return TOP + (1 - min(max(self._axis.share(value), 0.0), 1.0)) * self._height

    def bar(self, left: float, width: float, value: float, colour: str, hint: str) -> None:
        """A bar with a text for the pointer."""
        top = self.y(value)
        height = TOP + self._height - top
        if height > 0:
            self._marks.append(
                f'<rect x="{left:.1f}" y="{top:.1f}" width="{max(width, 0.5):.1f}" height="{height:.1f}" '
                f'fill="{colour}"><title>{escape(hint)}</title></rect>'
            )

    def line(self, points: Sequence[tuple[float, float]], colour: str, name: str, steps: bool) -> None:
        """A line with a text for the pointer."""
        if not points:
            return
        path = f"M{points[0][0]:.1f} {points[0][1]:.1f}"
        for across, up in points[1:]:
            path += f"H{across:.1f}V{up:.1f}" if steps else f"L{across:.1f} {up:.1f}"
        self._marks.append(
            f'<path d="{path}" fill="none" stroke="{colour}" '
            f'stroke-width="1.8" stroke-linejoin="round"><title>{escape(name)}</title></path>'
        )

    def band(
        self, across: Sequence[float], lows: Sequence[float], highs: Sequence[float], colour: str
    ) -> None:
        """The area between two lines."""
        there = [f"{at:.1f} {self.y(high):.1f}" for at, high in zip(across, highs, strict=True)]
        back = [f"{at:.1f} {self.y(low):.1f}" for at, low in zip(across, lows, strict=True)]
        self._marks.append(f'<path d="M{"L".join(there + back[::-1])}Z" fill="{colour}" fill-opacity=".16"/>')

    def dots(self, points: Sequence[tuple[float, float]], colour: str, hints: Iterable[str]) -> None:
        """Points with texts for the pointer."""
        for (across, up), hint in zip(points, hints, strict=True):
            self._marks.append(
                f'<circle cx="{across:.1f}" cy="{up:.1f}" r="3" fill="{colour}">'
                f"<title>{escape(hint)}</title></circle>"
            )

    def levels(self, levels: Sequence[tuple[float, str]]) -> None:
        """Dotted lines across, with their names at the right; names of close lines stand side by side."""
        last, right = math.inf, float(WIDTH - RIGHT - 4)
        for value, name in sorted(levels, reverse=True):
            at = self.y(value)
            right = WIDTH - RIGHT - 4 if abs(at - last) > LETTER_HEIGHT else right
            self._marks.append(f'<path class="level" d="M{LEFT} {at:.1f}H{WIDTH - RIGHT}"/>')
            self._names.append(
                f'<text class="over" x="{right:.0f}" y="{at - 4:.1f}" text-anchor="end">{escape(name)}</text>'
            )
            last, right = at, right - LETTER_WIDTH * len(name) - 12

    def limit(self, value: float, name: str) -> None:
        """A dashed line across, with its name."""
        at = self.y(value)
        self._marks.append(
            f'<path class="limit" d="M{LEFT} {at:.1f}H{WIDTH - RIGHT}"/>'
            f'<text class="over" x="{WIDTH - RIGHT - 4}" y="{at - 5:.1f}" text-anchor="end">'
            f"{escape(name)}</text>"
        )

    def x_ticks(self, places: Sequence[tuple[float, str]], label: str) -> None:
        """The axis across with its texts."""
        base = TOP + self._height
        self._axes.append(f'<path class="axis" d="M{LEFT} {base}H{WIDTH - RIGHT}"/>')
        for across, text in places:
            self._axes.append(
                f'<path class="axis" d="M{across:.1f} {base}v4"/>'
                f'<text x="{across:.1f}" y="{base + 17}" text-anchor="middle">{escape(text)}</text>'
            )
        self._axes.append(
            f'<text class="label" x="{LEFT + self.width / 2:.0f}" y="{HEIGHT - 8}" '
            f'text-anchor="middle">{escape(label)}</text>'
        )

    def svg(self, series: Sequence[Series], description: str) -> str:
        """The whole chart, with a legend above it if there are several series."""
        body = "".join(self._axes + self._marks + self._names)
        picture = (
            f'<svg class="chart" viewBox="0 0 {WIDTH} {HEIGHT}" role="img">'
            f"<title>{escape(self._title)}</title><desc>{escape(description)}</desc>{body}</svg>"
        )
        return f"<figure><figcaption>{escape(self._title)}{_legend(series)}</figcaption>{picture}</figure>"


def _colour(series: Series, place: int) -> str:
    return f"var(--series-{series.colour or place + 1}, currentColor)"


def _legend(series: Sequence[Series]) -> str:
    if len(series) < 2 and all(one.colour is None for one in series):
        return ""
    keys = (
        f'<span class="key"><i style="background:{_colour(one, number)}"></i>{escape(one.name)}</span>'
        for number, one in enumerate(series)
    )
    return f'<span class="legend">{"".join(keys)}</span>'


def _value(axis: Axis, value: float) -> str:
    is_share = any(text.endswith("%") for _, text in axis.ticks)
    return f"{100 * value:.1f} %" if is_share else tick_text(round(value, 3))


def _summary(labels: Sequence[str], series: Sequence[Series]) -> str:
    """The chart in words: where each series is largest."""
    parts = []
    for one in series:
        if not one.values:
            continue
        largest = max(range(len(one.values)), key=lambda index: one.values[index])
        at = f" at {labels[largest]}" if labels else ""
        parts.append(f"{one.name}: {len(one.values)} values up to {one.values[largest]:.4g}{at}.")
    return " ".join(parts)
