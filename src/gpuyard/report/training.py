"""Training curves of runs as charts, several runs laid over each other."""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Literal

from gpuyard.errors import InputError
from gpuyard.report.figures import Chart, axis, rounded
from gpuyard.runs.curves import Curve, by_importance, curve_label, short_number, update_curves
from gpuyard.runs.directory import Run, open_run
from gpuyard.runs.summary import run_names
from gpuyard.units import duration

Across = Literal["steps", "minutes"]
Level = tuple[float, str]
"""A value to mark across a chart, and its name."""

MOST_POINTS = 160
"""A line with more points is drawn as means of neighbours, in a band from the least to the greatest."""
MOST_STRETCH = 1.5
"""A level further off the lines than this many times their height is named below the title."""
MOST_CURVES = 6
MOST_RUNS = 8
"""Runs of a report; there are as many colours."""
SHOWN_FIRST = ("episode/return", "episode/mean_bounded_slowdown")


def training_runs(given: Sequence[Path], sources: Sequence[Path]) -> list[Run]:
    """The runs that were given, and those that learned policies come from, as far as they are still there.

    Raises:
        InputError: if one that was given cannot be read.
    """
    found = {path.resolve(): open_run(path) for path in given}
    for source in sources:
        home = source if source.is_dir() else source.parent
        if home.resolve() in found or not (home / "progress.jsonl").is_file():
            continue
        try:
            found[home.resolve()] = open_run(home)
        except InputError:
            continue  # it has changed since it was evaluated; the comparison does not need it
    return list(found.values())[:MOST_RUNS]


class RunCharts:
    """Makes charts of some runs, over samples or over minutes; a run has one colour in all of them."""

    def __init__(self, across: Across, names: Sequence[str]) -> None:
        self._across = across
        self._label = "samples" if across == "steps" else "minutes of training"
        self._colours = {name: number % MOST_RUNS + 1 for number, name in enumerate(names)}

    def lines(
        self, title: str, y: tuple[str, str], curves: Mapping[str, Curve], levels: Sequence[Level] = ()
    ) -> Chart:
        """A chart of curves, each with at least one point.

        Args:
            title: Above it.
            y: What is upwards, and its unit.
            curves: Of each run.
            levels: To compare with, the most important one first.
        """
        series = [self._line(run, curve) for run, curve in curves.items()]
        values = [value for curve in curves.values() for value in curve.values]
        near = _near(levels, min(values), max(values))
        last = max(place for curve in curves.values() for place in self._places(curve)) or 1.0
        text = duration if y[1] == "s" else short_number
        far = ", ".join(f"{name} {text(value)}" for value, name in levels if (value, name) not in near)
        return {
            "kind": "lines",
            "title": title,
            "note": f"Too far off to be shown: {far}." if far else "",
            "x": axis(self._label, "1", low=0.0, high=float(last)),
            "y": _value_axis(*y, [*values, *(value for value, _ in near)]),
            "levels": [{"name": name, "value": rounded([value])[0]} for value, name in near],
            "series": series,
        }

    def columns(
        self, title: str, labels: Sequence[str], axes: tuple[str, str], shares: Mapping[str, Sequence[float]]
    ) -> Chart:
        """A chart of shares for each label.

        Args:
            title: Above it.
            labels: Across.
            axes: What is across, and of what the shares are.
            shares: Of each run.
        """
        series = [self._key(run) | {"y": rounded(values)} for run, values in shares.items()]
        return {
            "kind": "columns",
            "title": title,
            "note": f"{axes[1].capitalize()}.",
            "x": axis(axes[0], "1"),
            "y": axis(axes[1], "share"),
            "labels": list(labels),
            "series": series,
        }

    def histogram(
        self, title: str, edges: Sequence[float], axes: tuple[str, str], run: str, shares: Sequence[float]
    ) -> Chart:
        """A chart of shares of one run between edges."""
        chart = self.columns(title, (), axes, {run: shares})
        del chart["labels"]
        x = axis(axes[0], "1", low=float(edges[0]), high=float(edges[-1]))
        return chart | {"x": x, "edges": rounded(edges, 9)}

    def _key(self, run: str) -> Chart:
        return {"name": run, "colour": self._colours[run]}

    def _places(self, curve: Curve) -> Sequence[float]:
        return curve.steps if self._across == "steps" else curve.minutes

    def _line(self, run: str, curve: Curve) -> Chart:
        groups = _groups(curve.values)
        line = self._key(run) | {"x": rounded(map(_mean, _groups(self._places(curve))), 7)}
        line["y"] = rounded(map(_mean, groups))
        if len(groups) < len(curve.values):
            line |= {"low": rounded(map(min, groups)), "high": rounded(map(max, groups))}
        return line


def _groups(values: Sequence[float]) -> list[Sequence[float]]:
    size = math.ceil(len(values) / MOST_POINTS)
    return [values[first : first + size] for first in range(0, len(values), size)]


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


def _near(levels: Sequence[Level], low: float, high: float) -> list[Level]:
    """The first level, and those that leave room for the lines and for it."""
    if not levels:
        return []
    low, high = min(low, levels[0][0]), max(high, levels[0][0])
    room = MOST_STRETCH * (high - low)
    return [level for level in levels if max(low - level[0], level[0] - high, 0.0) <= room]


def _value_axis(label: str, unit: str, values: Sequence[float]) -> Chart:
    low, high = min(values), max(values)
    if high - low <= 1e-9 * max(abs(low), abs(high)):
        spread = abs(high) / 2 or 0.5
        return axis(label, unit, low=low - spread, high=high + spread)
    # So much change that the scale may as well start from nothing.
    wide = 0 < low < 0.5 * high or 0.5 * low < high < 0
    return axis(label, unit, zero=1) if wide else axis(label, unit)


def training_charts(runs: Sequence[Run]) -> list[Chart]:
    """Validation scores, then the curves that matter most, those of all runs laid over each other."""
    names = run_names(runs)
    draw = RunCharts("steps", names)
    charts = _validation_charts(runs, names, draw)
    curves = [update_curves(run.progress.records) for run in runs]
    order = by_importance({name for one in curves for name in one})
    first = [name for name in SHOWN_FIRST if name in order]
    for name in [*first, *(one for one in order if one not in first)][:MOST_CURVES]:
        lines = {run: of[name] for run, of in zip(names, curves, strict=True) if name in of}
        label = curve_label(name)
        id = f"curve-{name}".replace("/", "-").replace("_", "-")
        charts.append({"id": id, **draw.lines(f"Training: {label}", (label, "1"), lines)})
    return charts


def _validation_charts(runs: Sequence[Run], names: Sequence[str], draw: RunCharts) -> list[Chart]:
    lines = {}
    for name, run in zip(names, runs, strict=True):
        curve = Curve()
        for one in run.validations:
            curve.append(one.step, one.elapsed_s or 0.0, one.score)
        if curve.values:
            lines[name] = curve
    if not lines:
        return []
    best = [found for run in runs if (found := run.best_heuristic()) is not None]
    levels = [(value, name) for name, value in dict(best).items() if math.isfinite(value)]
    chart = draw.lines("Validation score while training", ("score", "1"), lines, levels)
    note = "On held-out windows; thin dotted line: the best heuristic on the same windows."
    return [{"id": "validation", **chart, "note": f"{note} {chart['note']}".strip()}]
