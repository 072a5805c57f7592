"""Pictures of docs/results: standalone SVG, readable on light and dark pages alike."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from html import escape

from gpuyard.report.words import percent

WIDTH = 900
WIDE, LABELS, FIGURES = 1000, 390, 206
"""Of a plot of gains: its width, and pixels at its left and at its right."""
ROW = 44
MOST_GAIN = 1.0
"""Gains and losses are shown up to this share."""
LETTERS = 53
"""Letters of a label that have room, about."""

STYLE = """
text { font: 13px system-ui, 'Segoe UI', sans-serif; fill: #1f2328; }
.small { font-size: 11.5px; fill: #59636e; }
.title { font-weight: 600; font-size: 14px; }
.paper { fill: #ffffff; stroke: #d1d9e0; }
.grid { stroke: #d1d9e0; fill: none; }
.axis { stroke: #818b98; fill: none; }
.level { stroke: #59636e; stroke-dasharray: 5 4; fill: none; }
.over { paint-order: stroke; stroke: #ffffff; stroke-width: 4px; }
.better { stroke: #1a7f37; fill: #1a7f37; }
.worse { stroke: #cf222e; fill: #cf222e; }
.tie { stroke: #6e7781; fill: #6e7781; }
.line { fill: none; stroke-width: 1.3; stroke-opacity: .8; }
.s1 { stroke: #2563eb; } .s2 { stroke: #d97706; } .s3 { stroke: #059669; } .s4 { stroke: #9333ea; }
.s5 { stroke: #0891b2; } .s6 { stroke: #db2777; } .s7 { stroke: #65a30d; } .s8 { stroke: #78716c; }
@media (prefers-color-scheme: dark) {
  text { fill: #f0f6fc; } .small { fill: #9198a1; } .paper { fill: #0d1117; stroke: #3d444d; }
  .grid { stroke: #2a313c; } .axis { stroke: #656c76; } .level { stroke: #9198a1; } .over { stroke: #0d1117; }
  .better { stroke: #3fb950; fill: #3fb950; } .worse { stroke: #f85149; fill: #f85149; }
  .tie { stroke: #9198a1; fill: #9198a1; }
  .s1 { stroke: #7aa7ff; } .s2 { stroke: #f5b04c; } .s3 { stroke: #4fd1a1; } .s4 { stroke: #c792ff; }
  .s5 { stroke: #4fc9e0; } .s6 { stroke: #ff8ac4; } .s7 { stroke: #a9d65c; } .s8 { stroke: #b8b0aa; }
}
"""
COLOURS = 8


@dataclass(frozen=True)
class Axis:
    """A scale with round ticks.

    Attributes:
        low: Value at the start.
        high: Value at the end.
        ticks: Values to mark, with their texts.
    """

    low: float
    high: float
    ticks: tuple[tuple[float, str], ...]

    def share(self, value: float) -> float:
        """Where a value lies, from 0 to 1."""
        return (value - self.low) / (self.high - self.low)


def tick_text(value: float) -> str:
    """A short number: 2.5, 1,200, 40k, 3M."""
    for size, unit in ((1e9, "G"), (1e6, "M"), (1e4, "k")):
        if abs(value) >= size:
            return f"{value / (1e3 if unit == 'k' else size):g}{unit}"
    return f"{round(value, 10):,g}" if abs(value) < 1000 else f"{value:,.0f}"


def range_axis(low: float, high: float, text: Callable[[float], str] = tick_text, count: int = 5) -> Axis:
    """A scale with about ``count`` ticks at round values that reaches from ``low`` to ``high`` at least."""
    if high - low <= 1e-9 * max(abs(low), abs(high), 1e-12):
        spread = abs(high) / 2 or 0.5
        low, high = low - spread, high + spread
    base = 10.0 ** math.floor(math.log10((high - low) / count))
    step = next(f * base for f in (1, 2, 2.5, 5, 10) if (high - low) / count <= f * base * (1 + 1e-9))
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    ticks = tuple((k * step, text(k * step)) for k in range(first, last + 1))
    return Axis(first * step, last * step, ticks)


@dataclass(frozen=True)
class Gain:
    """One row of the plot of gains.

    Attributes:
        title: What was asked.
        subtitle: Who is compared with whom.
        gain: By how much it is better than the reference, as a share.
        low: Where the interval begins; None without one.
        high: Where it ends.
        verdict: ``better``, ``worse``, ``tie`` or ``unclear``; empty without an interval.
    """

    title: str
    subtitle: str
    gain: float
    low: float | None
    high: float | None
    verdict: str


def _svg(width: int, height: int, title: str, description: str, body: Sequence[str]) -> str:
    marks = "\n".join(body)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" '
        f'height="{height}" role="img" aria-labelledby="title description">\n'
        f'<title id="title">{escape(title)}</title>\n<desc id="description">{escape(description)}</desc>\n'
        f"<style>{STYLE}</style>\n"
        f'<rect class="paper" x="0.5" y="0.5" width="{width - 1}" height="{height - 1}" rx="8"/>\n'
        f"{marks}\n</svg>\n"
    )


def _text(x: float, y: float, text: str, kind: str = "", anchor: str = "start") -> str:
    return f'<text class="{kind}" x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{escape(text)}</text>'


def _cut(text: str, letters: int = LETTERS) -> str:
    return text if len(text) <= letters else f"{text[: letters - 1].rstrip()}…"


def gains_picture(gains: Sequence[Gain]) -> str:
    """Gains over the reference with their intervals, a row each."""
    title = "Gain of the learned policy over the reference, 95 % intervals"
    ends = [end for one in gains for end in (one.low, one.high, one.gain) if end is not None]
    inside = [min(max(end, -MOST_GAIN), MOST_GAIN) for end in (*ends, 0.0)]
    axis = range_axis(min(inside), max(inside, default=0.1), _tick)
    top, left, across = 52, LABELS, WIDE - LABELS - FIGURES
    bottom = top + ROW * len(gains)

    def x(value: float) -> float:
        return left + across * axis.share(min(max(value, axis.low), axis.high))

    body = [_text(16, 26, title, "title")]
    for value, text in axis.ticks:
        body.append(f'<path class="grid" d="M{x(value):.1f} {top}V{bottom}"/>')
        body.append(_text(x(value), bottom + 18, text, "small", "middle"))
    body.append(f'<path class="axis" d="M{x(0.0):.1f} {top - 4}V{bottom + 4}"/>')
    body.append(_text(x(0.0) - 6, top - 8, "worse", "small", "end"))
    body.append(_text(x(0.0) + 6, top - 8, "better", "small"))
    for number, one in enumerate(gains):
        middle = top + ROW * (number + 0.5)
        body.append(_text(16, middle - 3, _cut(one.title)))
        body.append(_text(16, middle + 13, _cut(one.subtitle, LETTERS + 5), "small"))
        body += _interval(one, x, middle, axis.low, axis.high)
        body.append(_text(WIDE - 14, middle + 4, _gain_text(one), "", "end"))
    words = "; ".join(
        f"{one.title}, {one.subtitle}: {_gain_text(one)}, {one.verdict or 'one window'}" for one in gains
    )
    return _svg(WIDE, bottom + 34, title, words, body)


def _tick(share: float) -> str:
    return "0" if abs(share) < 1e-9 else f"{100 * share:+.3g} %".replace("-", "−")


def _gain_text(one: Gain) -> str:
    if one.low is None or one.high is None:
        return percent(one.gain)
    return f"{percent(one.gain)} [{percent(one.low)}, {percent(one.high)}]".replace(" %", "%")


def _interval(one: Gain, x: Callable[[float], float], middle: float, low: float, high: float) -> list[str]:
    """A line with its ends, an arrow where it goes on, and a mark whose shape tells the verdict."""
    marks = []
    kind = one.verdict if one.verdict in ("better", "worse") else "tie"
    if one.low is not None and one.high is not None:
        a, b = x(one.low), x(one.high)
        marks.append(f'<path class="{kind}" stroke-width="2" d="M{a:.1f} {middle}H{b:.1f}"/>')
        for at, outwards, goes_on in ((a, -1, one.low < low), (b, 1, one.high > high)):
            shape = f"l{-6 * outwards} -5v10z" if goes_on else "m0 -5v10"
            marks.append(f'<path class="{kind}" stroke-width="2" d="M{at:.1f} {middle}{shape}"/>')
    at = x(one.gain)
    match one.verdict:
        case "better":
            shape = f'<circle class="better" cx="{at:.1f}" cy="{middle}" r="5.5"/>'
        case "worse":
            shape = f'<rect class="worse" x="{at - 5:.1f}" y="{middle - 5}" width="10" height="10"/>'
        case _:
            shape = f'<path class="tie" d="M{at:.1f} {middle - 7}l7 7l-7 7l-7 -7z"/>'
    return [*marks, shape]


@dataclass(frozen=True)
class CurveGroup:
    """Runs that differ in their seed alone.

    Attributes:
        name: What they are called together.
        curves: Points (samples, score) of each.
    """

    name: str
    curves: tuple[tuple[tuple[float, float], ...], ...]


@dataclass(frozen=True)
class Panel:
    """Curves that share their axes.

    Attributes:
        title: Above it.
        groups: What is drawn.
        levels: Scores of heuristics by name.
    """

    title: str
    groups: tuple[CurveGroup, ...]
    levels: tuple[tuple[str, float], ...]


PANEL = 270


def curves_picture(title: str, panels: Sequence[Panel]) -> str:
    """Validation scores against samples, a panel below the other."""
    body: list[str] = []
    for number, panel in enumerate(panels):
        body += _panel(panel, 12 + number * PANEL)
    words = "; ".join(
        f"{panel.title}: {group.name} ends at " + ", ".join(f"{curve[-1][1]:.4g}" for curve in group.curves)
        for panel in panels
        for group in panel.groups
    )
    return _svg(WIDTH, 16 + PANEL * len(panels), title, words, body)


def shown_range(panel: Panel) -> tuple[float, float]:
    """Scores to show: all, but of very bad ones only as far as the rest can still be told apart."""
    values = sorted(score for group in panel.groups for curve in group.curves for _, score in curve)
    best = max(values[-1], *(score for _, score in panel.levels), values[0])
    middling = values[len(values) // 3]
    level = min((score for _, score in panel.levels), default=best)
    low = max(values[0], min(best - 2.5 * (best - middling), level - 0.5 * (best - level)))
    return min(low, level), best


def _panel(panel: Panel, top: float) -> list[str]:
    left, right, begin, end = 74, 220, top + 34, top + PANEL - 44
    low, high = shown_range(panel)
    y_axis = range_axis(low, high)
    most = max((step for group in panel.groups for curve in group.curves for step, _ in curve), default=1.0)
    x_axis = range_axis(0.0, max(most, 1.0))
    across = WIDTH - left - right

    def x(value: float) -> float:
        return left + across * x_axis.share(value)

    def y(value: float) -> float:
        return end - (end - begin) * y_axis.share(value)

    name = f"clip{top:.0f}"
    body = [
        _text(16, top + 18, panel.title, "title"),
        f'<clipPath id="{name}"><rect x="{left}" y="{begin - 1}" width="{across}" '
        f'height="{end - begin + 2}"/></clipPath>',
    ]
    for value, text in y_axis.ticks:
        body.append(f'<path class="grid" d="M{left} {y(value):.1f}h{across}"/>')
        body.append(_text(left - 8, y(value) + 4, text, "small", "end"))
    for value, text in x_axis.ticks:
        body.append(_text(x(value), end + 18, text, "small", "middle"))
    body.append(_text(left + across / 2, end + 36, "samples", "small", "middle"))
    body.append(f'<path class="axis" d="M{left} {end}h{across}"/>')
    names = []
    for heuristic, score in panel.levels:
        body.append(f'<path class="level" d="M{left} {y(score):.1f}h{across}"/>')
        names.append(_text(left + 6, y(score) - 5, heuristic, "small over"))
    for number, group in enumerate(panel.groups):
        colour = f"s{number % COLOURS + 1}"
        for curve in group.curves:
            points = " ".join(f"{x(step):.1f},{y(score):.1f}" for step, score in curve)
            body.append(f'<polyline class="line {colour}" clip-path="url(#{name})" points="{points}"/>')
    return body + names + _legend(panel, WIDTH - right + 14, begin)


def _legend(panel: Panel, left: float, top: float) -> list[str]:
    """Names of groups, one below the other."""
    body: list[str] = []
    for number, group in enumerate(panel.groups):
        text = group.name if len(group.curves) == 1 else f"{group.name} ({len(group.curves)} seeds)"
        at = top + 12 + 18 * number
        colour = f"s{number % COLOURS + 1}"
        body.append(f'<path class="line {colour}" stroke-width="3" d="M{left} {at - 4:.1f}h18"/>')
        body.append(_text(left + 24, at, _cut(text, 30), "small"))
    return body
