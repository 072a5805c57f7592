"""Charts of runs laid over each other: curves, validations, limits, seeds as a band, settings and scores."""

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from gpuyard.dashboard.training.followed import FollowedRun
from gpuyard.evaluate.bootstrap import student_quantile
from gpuyard.report.figures import Chart, axis, rounded
from gpuyard.report.pages.action_charts import action_charts
from gpuyard.report.pages.training import curve_chart, validation_charts
from gpuyard.report.training import Across, RunCharts
from gpuyard.runs.curves import Curve
from gpuyard.runs.directory import Run
from gpuyard.runs.summary import run_names, settings_of
from gpuyard.units import plural

SEED = "seed"
BAND_POINTS = 160
MOST_VALUES = 24
"""Values of a setting that are shown as rows of their own."""
MOST_SETTINGS = 30


def training_chart_list(followed: Sequence[FollowedRun], across: Across, *, seeds: bool) -> list[Chart]:
    """Everything that is drawn of some runs, those that matter most first; each chart has an id.

    Args:
        followed: At least one.
        across: What curves are drawn over.
        seeds: Draw runs that differ in their seed alone as one line, in a band with the interval of its mean.
    """
    runs = [one.run for one in followed]
    names = run_names(runs)
    draw = RunCharts(across, names)
    curves = [one.curves for one in followed]
    every = list(dict.fromkeys(name for one in curves for name in one))
    charts = [*validation_charts(runs, names, draw), *_limit_charts(runs, names, draw)]
    charts += [curve_chart(name, names, curves, draw) for name in every]
    if seeds:
        groups = seed_groups(runs, names)
        charts = [_banded(chart, groups) for chart in charts]
    charts += action_charts(runs, names, draw)
    return _with_ids(charts)


def _limit_charts(runs: Sequence[Run], names: Sequence[str], draw: RunCharts) -> list[Chart]:
    """How far above their limits waits are, of runs that have ever broken one."""
    lines = {}
    for name, run in zip(names, runs, strict=True):
        if any(one.broken for one in run.validations):
            lines[name] = Curve()
            for one in run.validations:
                worst = max((limit.excess for limit in one.broken), default=1.0)
                lines[name].append(one.step, one.elapsed_s or 0.0, worst)
    if not lines:
        return []
    chart = draw.lines("Waits against their limits", ("times the limit", "1"), lines, [(1.0, "limit")])
    note = "The worst class of jobs in each validation; 1: all limits are kept."
    return [chart | {"note": f"{note} {chart['note']}".strip()}]


def _with_ids(charts: Iterable[Chart]) -> list[Chart]:
    """Charts by their titles, which stay the same while a run goes on."""
    found: dict[str, Chart] = {}
    for chart in charts:
        base = re.sub(r"[^a-z0-9]+", "-", chart["title"].lower()).strip("-") or "chart"
        free = next(id for id in (base, *(f"{base}-{k}" for k in range(2, 1000))) if id not in found)
        found[free] = {**chart, "id": free}
    return list(found.values())


def seed_groups(runs: Sequence[Run], names: Sequence[str]) -> dict[str, list[str]]:
    """Names of runs by what their line is called if all seeds of the same settings are one."""
    alike: dict[str, list[tuple[str, Run]]] = {}
    for name, run in zip(names, runs, strict=True):
        settings = settings_of({key: value for key, value in run.config.items() if key != SEED})
        alike.setdefault(repr(sorted(settings.items())), []).append((name, run))
    groups = {}
    for some in alike.values():
        members = [name for name, _ in some]
        more = f" and {plural(len(members) - 1, 'more seed')}" if len(members) > 1 else ""
        groups[f"{members[0]}{more}"] = members
    return groups


def _banded(chart: Chart, groups: Mapping[str, Sequence[str]]) -> Chart:
    series = {one["name"]: one for one in chart["series"]}
    merged: list[Chart] = []
    for label, members in groups.items():
        some = [series[name] for name in members if name in series]
        if len(some) == 1:
            merged.append({**some[0], "name": label})
        elif some and (band := _band(some)) is not None:
            merged.append({"name": label, "colour": some[0]["colour"], **band})
    note = f"{chart['note']} Band: 95 % interval of the mean over seeds.".strip()
    return {**chart, "series": merged, "note": note}


def _band(series: Sequence[Chart]) -> Chart | None:
    """The mean of lines where all of them are known, with the interval of Student's t."""
    low = max(one["x"][0] for one in series)
    high = min(one["x"][-1] for one in series)
    if not high >= low:
        return None
    steps = sorted({x for one in series for x in one["x"] if low <= x <= high})
    x = np.asarray(steps[:: math.ceil(len(steps) / BAND_POINTS)], dtype=float)
    values = np.array([np.interp(x, one["x"], np.asarray(one["y"], dtype=float)) for one in series])
    mean = values.mean(axis=0)
    half = student_quantile(len(series) - 1) * values.std(axis=0, ddof=1) / math.sqrt(len(series))
    return {"x": rounded(x, 7), "y": rounded(mean), "low": rounded(mean - half), "high": rounded(mean + half)}


def settings_chart(runs: Sequence[Run]) -> Chart | None:
    """Best scores by the value of a setting, for each setting in which runs differ; None without any."""
    scored = [(run, run.best.score) for run in runs if run.best is not None and run.best.score is not None]
    settings = [settings_of(run.config) for run, _ in scored]
    every = dict.fromkeys(key for one in settings for key in one)
    choices: dict[str, Chart] = {}
    for key in every:
        values = [one.get(key, "-") for one in settings]
        if 1 < len(set(values)) <= MOST_VALUES and len(choices) < MOST_SETTINGS:
            choices[key] = _by_value(values, scored)
    if not choices:
        return None
    metrics = {run.metric for run, _ in scored}
    note = "" if len(metrics) == 1 else " The scores are of different metrics: do not compare them."
    title = "Settings against score"
    told = {key: {**chart, "note": chart["note"] + note} for key, chart in choices.items()}
    return {"id": "settings-against-score", "kind": "rows", "title": title, "note": "", "choices": told}


def _by_value(values: Sequence[str], scored: Sequence[tuple[Run, float]]) -> Chart:
    rows: dict[str, list[Any]] = {}
    for value, (run, score) in zip(values, scored, strict=True):
        rows.setdefault(value, []).append({"series": run.name, "value": score, "colour": 1})
    ordered = sorted(rows, key=_as_number)
    return {
        "kind": "rows",
        "note": "Each dot is the best score of a run.",
        "x": axis("best validation score", "1"),
        "rows": [{"name": value, "dots": rows[value]} for value in ordered],
    }


def _as_number(text: str) -> tuple[float, str]:
    try:
        return float(text), ""
    except ValueError:
        return math.inf, text
