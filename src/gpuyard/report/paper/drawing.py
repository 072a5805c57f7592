"""Charts of reports, drawn with matplotlib: the same data, fit for print."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FixedLocator, FuncFormatter, MultipleLocator, NullLocator

from gpuyard.report.figures import Chart
from gpuyard.units import duration

COLOURS = ("#2563eb", "#c2630a", "#047857", "#8b2fd6", "#0e7490", "#c81e6f", "#4d7c0f", "#6b635d")
DASHES = (
    "-",
    (0, (6, 2)),
    (0, (1.5, 1.5)),
    (0, (6, 2, 1.5, 2)),
    (0, (10, 3)),
    (0, (5, 1, 1, 1, 1, 1)),
    ":",
    "-.",
)
"""Lines are told apart without colour too, as on the page."""
VERDICTS = {"better": "#04724d", "worse": "#b3261e", "reference": "#2158d6", "one run": "#2563eb"}
TIE = "#5b6676"
DAY_S = 86_400.0
STEPS_S = (1.0, 10.0, 60.0, 300.0, 600.0, 1800.0, 3600.0, 7200.0, 10_800.0, 21_600.0, 43_200.0)
STEPS_DAYS = (1, 2, 5, 7, 14, 28, 60, 90, 180, 365)
MOST_TICKS = 7
KNOWN_S = (1.0, 10.0, 60.0, 600.0, 3600.0, 21_600.0, 86_400.0, 604_800.0, 2_592_000.0)
STYLE: Any = {
    "font.family": "DejaVu Sans",
    "font.size": 7.0,
    "axes.linewidth": 0.6,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "lines.linewidth": 1.1,
    "pdf.fonttype": 42,
    "svg.fonttype": "none",
    "svg.hashsalt": "gpuyard",
}
"""Fonts are embedded as TrueType, which journals ask for; the same data give the same bytes."""
INCH_CM = 2.54
DOTS_PER_INCH = 300
RATIO = 0.66
ROW_CM = 0.42


def draw(chart: Chart, width_cm: float) -> Figure:
    """A chart as a figure of that width."""
    with matplotlib.rc_context(STYLE):
        rows = len(chart["rows"]) if chart["kind"] == "rows" else 0
        height_cm = rows * ROW_CM + 1.8 if rows else width_cm * RATIO
        figure = Figure(figsize=(width_cm / INCH_CM, height_cm / INCH_CM), layout="constrained")
        axes = figure.add_subplot()
        {"lines": _lines, "rows": _rows, "columns": _columns, "points": _points}[chart["kind"]](axes, chart)
        figure.canvas.draw()  # texts are laid out while the style holds
        return figure


def save(figure: Figure, path: Path, format: str) -> None:
    """Write a figure as ``pdf``, ``svg`` or ``png``; dates are left out, so that the bytes stay the same."""
    undated: dict[str, Any] = {"pdf": {"CreationDate": None}, "svg": {"Date": None}, "png": {}}[format]
    with matplotlib.rc_context(STYLE):
        figure.savefig(path, format=format, dpi=DOTS_PER_INCH, metadata=undated)


def _lines(axes: Axes, chart: Chart) -> None:
    for one in chart["series"]:
        look = {"color": _colour(one), "linestyle": _dash(one), "label": one["name"]}
        if chart.get("steps"):
            axes.step(one["x"], _numbers(one["y"]), where="post", **look)
        else:
            axes.plot(one["x"], _numbers(one["y"]), **look)
        if one.get("low"):
            axes.fill_between(one["x"], one["low"], one["high"], color=_colour(one), alpha=0.15, linewidth=0)
    for level in chart.get("levels", ()):
        axes.axhline(level["value"], color=TIE, linewidth=0.6, linestyle=":")
    _both_axes(axes, chart)
    _legend(axes, chart)


def _columns(axes: Axes, chart: Chart) -> None:
    count = len(chart["series"])
    labels = chart.get("labels")
    for number, one in enumerate(chart["series"]):
        if labels:
            places = [k + (number + 0.5) / count * 0.8 - 0.4 for k in range(len(labels))]
            axes.bar(places, one["y"], width=0.8 / count, color=_colour(one), label=one["name"])
        else:
            axes.stairs(one["y"], chart["edges"], color=_colour(one), fill=count == 1, label=one["name"])
    _both_axes(axes, chart)
    if labels:
        axes.set_xticks(range(len(labels)), labels, rotation=45, ha="right")
    _legend(axes, chart)


def _points(axes: Axes, chart: Chart) -> None:
    front = sorted((one["x"][0], one["y"][0]) for one in chart["series"] if one["best"])
    if len(front) > 1:
        axes.plot(*zip(*front, strict=True), color=TIE, linewidth=0.7, linestyle="--", zorder=1)
    for one in chart["series"]:
        edge = "black" if one["best"] else "none"
        axes.scatter(one["x"], one["y"], s=22, color=_colour(one), edgecolors=edge, linewidths=0.7, zorder=2)
        at = (one["x"][0], one["y"][0])
        axes.annotate(one["name"], at, xytext=(4, 3), textcoords="offset points", fontsize=6)
    axes.margins(0.18)
    _both_axes(axes, chart)


def _rows(axes: Axes, chart: Chart) -> None:
    names = [row["name"] for row in chart["rows"]]
    series: dict[str, str] = {}
    for place, row in enumerate(chart["rows"]):
        for dot in row["dots"]:
            if dot["value"] is None:
                continue
            verdict = dot.get("verdict")
            colour = VERDICTS.get(verdict, TIE) if verdict else _colour(dot)
            if "low" in dot:
                axes.plot([dot["low"], dot["high"]], [place, place], color=colour, linewidth=1.4, alpha=0.7)
            axes.plot([dot["value"]], [place], "o", markersize=3.4, color=colour)
            if not verdict:
                series[dot["series"]] = colour
    axes.set_yticks(range(len(names)), names)
    axes.set_ylim(len(names) - 0.4, -0.6)
    axes.grid(axis="y", linewidth=0.3, alpha=0.5)
    _axis(axes, "x", chart["x"])
    if chart["x"]["unit"] == "change":
        axes.axvline(0.0, color="black", linewidth=0.6)
    if len(series) > 1:
        marks = [
            Line2D([], [], color=colour, marker="o", linestyle="", label=name)
            for name, colour in series.items()
        ]
        axes.legend(
            handles=marks, fontsize=6, frameon=False, loc="lower left", bbox_to_anchor=(0, 1), ncols=2
        )


def _both_axes(axes: Axes, chart: Chart) -> None:
    _axis(axes, "x", chart["x"])
    _axis(axes, "y", chart["y"])
    axes.grid(linewidth=0.3, alpha=0.5)


def _axis(axes: Axes, name: str, told: Mapping[str, Any]) -> None:
    """Label, scale, bounds and the texts of values."""
    unit, scale = told["unit"], told.get("scale", "linear")
    side = axes.xaxis if name == "x" else axes.yaxis
    label = {"moment": "time since the first submit (days)"}.get(unit, told["label"])
    side.set_label_text(label)
    if scale == "log":
        _log_scale(axes, name, told)
    if "low" in told or "high" in told:
        (axes.set_xlim if name == "x" else axes.set_ylim)(told.get("low"), told.get("high"))
    elif told.get("zero") and unit != "change":
        (axes.set_xlim if name == "x" else axes.set_ylim)(0.0, None)
    if unit in ("s", "moment") and scale == "linear":
        low, high = sorted(axes.get_xlim() if name == "x" else axes.get_ylim())
        side.set_major_locator(MultipleLocator(_time_step(high - low)))
    if (text := _TEXTS.get(unit)) is not None:
        side.set_major_formatter(FuncFormatter(lambda value, _: text(value)))


def _time_step(span_s: float) -> float:
    """A step between ticks that people know."""
    steps = [*STEPS_S, *(days * DAY_S for days in STEPS_DAYS)]
    return next((step for step in steps if span_s / step <= MOST_TICKS), span_s / MOST_TICKS)


def _seconds(value: float) -> str:
    return f"{value:g} s" if abs(value) < 60 else duration(value)


def _log_scale(axes: Axes, name: str, told: Mapping[str, Any]) -> None:
    """A logarithmic axis from its floor on; of lengths of time with ticks that people know."""
    set_scale, get, put = (
        (axes.set_xscale, axes.get_xlim, axes.set_xlim)
        if name == "x"
        else (axes.set_yscale, axes.get_ylim, axes.set_ylim)
    )
    set_scale("log", nonpositive="clip")
    floor = float(told.get("floor", 0.0))
    least = axes.dataLim.x0 if name == "x" else axes.dataLim.y0
    low = floor if floor and least <= floor else get()[0]
    high = max(get()[1], low * 10)
    put(low, high)
    if told["unit"] == "s":
        side = axes.xaxis if name == "x" else axes.yaxis
        side.set_major_locator(FixedLocator([value for value in KNOWN_S if low <= value <= high]))
        side.set_minor_locator(NullLocator())


def _legend(axes: Axes, chart: Chart) -> None:
    if len(chart["series"]) > 1:
        axes.legend(fontsize=6, frameon=False, handlelength=2.6)


def _colour(one: Mapping[str, Any]) -> str:
    return COLOURS[(int(one.get("colour") or 1) - 1) % len(COLOURS)]


def _dash(one: Mapping[str, Any]) -> Any:
    return DASHES[(int(one.get("colour") or 1) - 1) % len(DASHES)]


def _numbers(values: list[float | None]) -> list[float]:
    return [float("nan") if value is None else value for value in values]


def _change(value: float) -> str:
    return f"×{1 + value:g}" if value >= 2 else f"{100 * value:+.0f} %" if value else "0 %"


_TEXTS: dict[str, Callable[[float], str]] = {
    "s": _seconds,
    "share": lambda value: f"{100 * value:.0f} %",
    "change": _change,
    "moment": lambda value: f"{value / DAY_S:.3g}",
}
