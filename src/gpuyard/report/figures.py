"""Charts of a report as data: what the page's script draws, and what its CSV files hold.

A chart is a dictionary: ``id``, ``title``, ``note``, ``kind`` and what that kind needs.

* ``lines``: ``x`` and ``y`` (axes) and ``series``, each with ``name``, ``colour``, ``x`` and ``y``. Names in
  ``hidden`` show when they are asked for.
  ``tells`` says what screen readers are told of a line: ``quantiles``, ``maximum``, else where it ends.
  A series may have ``low`` and ``high``, a band around it. A chart may have ``steps``: a value holds until
  the next. ``levels``, each with ``name`` and ``value``, are marked across it.
* ``columns``: ``x``, ``y`` and ``series``, each with ``name``, ``colour`` and ``y``: a column for each of the
  ``labels``, or between each two of the ``edges``.
* ``points``: ``x``, ``y`` and ``series``, each with ``name``, ``colour``, ``x`` and ``y`` (one number
  each) and ``best``: whether no other beats it on both axes.
* ``rows``: ``x`` (an axis) and ``rows``, each with ``name`` and ``dots``: ``series`` (its name), ``colour``,
  ``value`` and, for an interval, ``low`` and ``high``.

An axis has ``label``, ``unit`` (``s``, ``1``, ``share``, ``change``, ``steps``, ``minutes``, or ``moment``
with ``epoch``: what the log's clock showed at 0) and ``scale`` (``linear`` or ``log``). A chart may have
``choices`` instead: charts by name, of which one shows at a time.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from gpuyard.metrics.classes import KINDS, MEASURES, losers_first, ordered_classes
from gpuyard.metrics.outcomes import outcome_columns
from gpuyard.report.model import Report, Standing
from gpuyard.units import metric_label

MOST_LINES = 8
"""Policies in one chart; more cannot be told apart by colour or dashes."""
MOST_TANGLED = 3
"""Policies over time that can be told apart when all lines show."""
SHOWN_FIRST = "Click names to show more policies."
QUANTILES = 240
CDF_NOTE = "Share of jobs at most so high: further left and up is better."
BINS = 360
Chart = dict[str, Any]
Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Palette:
    """Which policies charts show, each with the number of its colour.

    Attributes:
        colours: By full name, from 1 on.
        labels: By full name.
    """

    colours: Mapping[str, int]
    labels: Mapping[str, str]

    @classmethod
    def of(cls, report: Report) -> "Palette":
        """What the answer is about and the reference, then what was asked for, then the best of the rest."""
        names = [one.name for one in report.standings]
        asked = [one.name for one in report.standings if one.role == "given"]
        first = [name for name in (report.subject, report.reference) if name in names]
        kept = set(list(dict.fromkeys([*first, *asked, *names]))[:MOST_LINES])
        chosen = [name for name in names if name in kept]
        labels = {one.name: one.label for one in report.standings}
        return cls({name: number for number, name in enumerate(chosen, 1)}, labels)

    def key(self, name: str) -> dict[str, Any]:
        """How a series of a policy starts."""
        return {"name": self.labels[name], "colour": self.colours[name]}


def axis(label: str, unit: str, scale: str = "linear", **bounds: float) -> dict[str, Any]:
    """An axis."""
    return {"label": label, "unit": unit, "scale": scale, **bounds}


def time_axis(epoch_s: float | None, low: float, high: float) -> dict[str, Any]:
    """An axis of moments: dates if it is known what the log's clock showed at 0, else times since then."""
    label = "time since the first submit" if epoch_s is None else "time (UTC)"
    return {**axis(label, "moment", low=low, high=high), "epoch": epoch_s}


def rounded(values: Iterable[float], digits: int = 5) -> list[float | None]:
    """Numbers with so many digits, which is more than a screen shows; null for what is not finite."""
    return [float(f"{value:.{digits}g}") if np.isfinite(value) else None for value in values]


def metric_unit(metric: str) -> str:
    """The unit that a metric's values are shown in."""
    shares = ("utilization", "_rate", "fragmentation")
    return "s" if metric.endswith("_s") else "share" if metric.endswith(shares) else "1"


def change_chart(report: Report, palette: Palette) -> Chart | None:
    """How far each policy lies from the reference, with intervals."""
    rows = []
    for one in report.standings:
        change = one.changes.get(report.metric)
        if change is None or not change.is_known:
            continue
        weak = report.weak and change.has_interval
        said = "unclear" if weak and change.ratio != 0.0 else change.verdict
        dot = {"series": said, "colour": 0, "value": _dot(change.ratio)}
        if change.has_interval:
            dot |= {"low": _dot(change.low), "high": _dot(change.high)}
        rows.append(
            {
                "name": one.label,
                "kind": one.kind,
                "dots": [dot | {"verdict": "weak" if weak else change.verdict}],
            }
        )
    if len(rows) < 2 or report.reference is None:
        return None
    label = f"{metric_label(report.metric)} against {report.label(report.reference)}"
    note = "Lines are 95 % intervals; those that cross zero are ties." if report.has_intervals else ""
    if report.weak:
        note = "Lines are 95 % intervals; they are weak, likely to be too narrow."
    return {
        "id": "change",
        "kind": "rows",
        "title": f"Difference of {label}",
        "note": f"{'Left' if report.lower_is_better else 'Right'} is better. {note}".strip(),
        "x": axis(label, "change", zero=1),
        "rows": rows,
    }


def window_chart(report: Report, palette: Palette) -> Chart | None:
    """The deciding metric on each window."""
    series = [
        {
            **palette.key(name),
            "x": list(range(1, len(report.windows[name]) + 1)),
            "y": rounded(value for _, value in report.windows[name]),
        }
        for name in palette.colours
        if name in report.windows
    ]
    if not series:
        return None
    return {
        "id": "windows",
        "kind": "lines",
        "title": f"{metric_label(report.metric).capitalize()} on each window",
        "note": "The same windows for all policies: differences are taken within a window.",
        "x": axis("window", "1", low=1.0, high=float(len(series[0]["x"]))),
        "y": axis(metric_label(report.metric), metric_unit(report.metric), scale_of(series, "y")),
        "series": series,
    }


def cdf_charts(report: Report, palette: Palette) -> list[Chart]:
    """How wait, completion time and bounded slowdown are spread over jobs."""
    measures = {
        "wait_s": ("Wait", "s"),
        "jct_s": ("Completion time", "s"),
        "bounded_slowdown": ("Bounded slowdown", "1"),
    }
    shares = np.linspace(0.0, 1.0, QUANTILES + 1)
    spread: dict[str, dict[str, Floats]] = {}
    for name in palette.colours:
        if name in report.outcomes:
            frame = report.outcomes[name].select(outcome_columns()).drop_nulls()
            if len(frame):
                spread[name] = {key: np.quantile(frame[key].to_numpy(), shares) for key in measures}
    charts = []
    for key, (title, unit) in measures.items():
        series = [
            {**palette.key(name), "x": rounded(values[key]), "y": rounded(shares)}
            for name, values in spread.items()
        ]
        if series:
            charts.append(
                {
                    "id": f"cdf-{key.removesuffix('_s').replace('_', '-')}",
                    "kind": "lines",
                    "tells": "quantiles",
                    "title": f"{title} of jobs",
                    "note": f"{CDF_NOTE} {report.outcomes_text}".strip(),
                    "x": axis(title.lower(), unit, "log", floor=1.0),
                    "y": axis("share of jobs", "share", low=0.0, high=1.0),
                    "series": series,
                }
            )
    return charts


def time_charts(report: Report, palette: Palette) -> list[Chart]:
    """GPUs in use and jobs waiting over time."""
    frames = {name: report.schedules[name] for name in palette.colours if name in report.schedules}
    if not frames:
        return []
    begin = min(float(frame["submit_s"].min() or 0.0) for frame in frames.values())  # type: ignore[arg-type]
    end = max(float(frame["end_s"].max() or 0.0) for frame in frames.values())  # type: ignore[arg-type]
    edges = np.linspace(begin, max(end, begin + 1.0), BINS + 1)
    gpus = report.cluster.total_gpus if report.cluster else 0
    middles = rounded((edges[:-1] + edges[1:]) / 2, 6)
    waiting, busy = [], []
    for name, frame in frames.items():
        submit, start, stop = (frame[key].to_numpy() for key in ("submit_s", "start_s", "end_s"))
        size = (frame["gpus"] * frame["gpu_milli"] / 1000).to_numpy()
        in_queue = time_means(submit, start, np.ones(len(frame)), edges)
        pieces = report.runs.get(name)
        if pieces is not None:
            start, stop = (pieces[key].to_numpy() for key in ("taken_s", "released_s"))
            size = size[pieces["entry"].to_numpy()]
        held = time_means(start, stop, size, edges) / max(gpus, 1)
        key = {**palette.key(name), "x": middles}
        waiting.append({**key, "y": rounded(in_queue, 4)})
        busy.append({**key, "y": rounded(held, 4)})
    time = time_axis(report.epoch_s, begin, float(edges[-1]))
    hidden = _in_the_background(report, palette, list(frames))
    note = report.part_text
    charts = [
        _over_time("queue", "Jobs waiting", "number of jobs waiting", axis("jobs", "1", low=0.0), waiting)
    ]
    if gpus:
        use = axis("GPUs in use", "share", low=0.0, high=1.0)
        charts.insert(0, _over_time("utilisation", "GPUs in use", "share of all GPUs", use, busy))
    note = f"{note} {SHOWN_FIRST}" if hidden else note
    told = {"x": time, "hidden": hidden}
    return [{**chart, **told, "note": f"{chart['note']} {note}".strip()} for chart in charts]


def _in_the_background(report: Report, palette: Palette, names: Sequence[str]) -> list[str]:
    """Labels of policies whose lines show when they are asked for: many lines over time are one tangle."""
    first = {report.subject, report.reference}
    if len(names) <= MOST_TANGLED or not first & set(names):
        return []
    return [palette.labels[name] for name in names if name not in first]


def _over_time(id: str, title: str, what: str, y: Chart, series: list[Chart]) -> Chart:
    note = f"Mean {what} in each of {BINS} spans of time."
    told = {"kind": "lines", "tells": "maximum", "title": f"{title} over time"}
    return {"id": id, **told, "note": note, "y": y, "series": series}


def time_means(begin: Floats, end: Floats, weight: Floats, edges: Floats) -> Floats:
    """The time mean, in each bin, of the summed weight of spans that cover it.

    Args:
        begin: When spans begin.
        end: When they end.
        weight: Of each span.
        edges: Of the bins, ascending.
    """

    def integral(times: Floats) -> Floats:
        """Of what has begun by then: for each edge, the sum of weight x time since."""
        order = np.argsort(times, kind="stable")
        placed, total = times[order], np.concatenate([[0.0], np.cumsum(weight[order])])
        moment = np.concatenate([[0.0], np.cumsum(weight[order] * placed)])
        count = np.searchsorted(placed, edges)
        return np.asarray(total[count] * edges - moment[count])

    return np.asarray(np.diff(integral(begin) - integral(end)) / np.diff(edges)).clip(0.0)


def class_charts(report: Report, palette: Palette) -> list[Chart]:
    """The measures of each class of jobs."""
    titles = {"gpus": "size in GPUs", "runtime": "run time"}
    charts = []
    for by in KINDS:
        title = titles.get(by, by)
        if report.classes.is_empty() or report.classes.filter(pl.col("by") == by).is_empty():
            continue
        names = _losers_first(report, by)
        choices = {
            metric_label(metric): _class_rows(report, palette, by, metric, names)
            for metric in MEASURES
            if metric in report.classes.columns
        }
        charts.append({"id": f"by-{by}", "title": f"By {title}", "choices": choices})
    return charts


def _losers_first(report: Report, by: str) -> list[str]:
    """Classes of a kind, the one that loses most first, as the tables of ``simulate --by`` have them."""
    table = report.classes.filter(pl.col("by") == by)
    waits: dict[str, dict[str, float | None]] = {}
    for policy, name, wait_s in table.select("policy", "class", "mean_wait_s").iter_rows():
        waits.setdefault(policy, {})[name] = wait_s
    judged = [one.name for one in report.standings if one.role != "recorded"]
    return losers_first(ordered_classes(report.classes, by), waits, report.reference or report.other, judged)


def _class_rows(report: Report, palette: Palette, by: str, metric: str, names: Sequence[str]) -> Chart:
    found = report.classes.filter(pl.col("by") == by)
    value = {(row["policy"], row["class"]): row for row in found.iter_rows(named=True)}
    rows = []
    for name in names:
        dots, jobs = [], 0
        for policy, colour in palette.colours.items():
            row = value.get((policy, name))
            if row is not None and row[metric] is not None:
                jobs = row["jobs"]
                label = palette.labels[policy]
                dots.append({"series": label, "colour": colour, "value": _dot(row[metric])})
        rows.append({"name": name or "(none)", "count": jobs, "dots": dots})
    unit = metric_unit(metric)
    return {
        "kind": "rows",
        "note": "A dot a policy. Left is better. The class whose mean wait rises most comes first.",
        "x": axis(metric_label(metric), unit, "log", floor=1.0),
        "rows": rows,
    }


def metric_chart(report: Report, metric: str, title: str, note: str) -> Chart | None:
    """One metric of all policies."""
    known = [one for one in report.standings if one.values.get(metric) is not None]
    if len(known) < 1:
        return None

    def row(one: Standing) -> Chart:
        return {
            "name": one.label,
            "dots": [{"series": one.label, "colour": 1, "value": _dot(one.values[metric] or 0.0)}],
        }

    rows = [row(one) for one in known]
    id = metric.replace("_", "-")
    return {"id": id, "kind": "rows", "title": title, "note": note, "x": _metric_axis(metric), "rows": rows}


def _metric_axis(metric: str) -> Chart:
    bounds = {"low": 0.0, "high": 1.0} if metric == "jain_fairness" else {"zero": 1}
    return axis(metric_label(metric), metric_unit(metric), **bounds)


def scale_of(series: Sequence[Mapping[str, Any]], key: str) -> str:
    """Logarithmic where values spread over more than an order of magnitude and a half."""
    values = [value for one in series for value in one[key] if value is not None]
    return "log" if values and min(values) > 0 and max(values) > 30 * min(values) else "linear"


def _dot(value: float) -> float | None:
    """A number with more digits than a line's: scripts round it for people, as tables round the whole one."""
    return rounded([value], 9)[0]
