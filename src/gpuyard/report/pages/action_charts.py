"""What a policy does, in charts: how often it waits, which jobs it picks, how sure it is, what it expects.

They are drawn from the ``actions`` records of ``progress.jsonl``; what a record lacks is left out.
"""

import math
from collections.abc import Sequence
from typing import Any

from gpuyard.report.figures import Chart
from gpuyard.report.training import RunCharts
from gpuyard.runs.curves import Curve
from gpuyard.runs.directory import Run

MOST_RANKS = 16
"""Ranks with a bar of their own; those after them are taken together."""


def action_charts(runs: Sequence[Run], names: Sequence[str], draw: RunCharts) -> list[Chart]:
    """Charts of what policies do, the latest state of each run; none if no run reports it."""
    lasts = {}
    for name, run in zip(names, runs, strict=True):
        if records := run.progress.of("actions"):
            lasts[name] = records[-1]["values"]
    return [
        *_share_over_time(runs, names, draw),
        *_ranks(draw, {name: _counts(last.get("rank_histogram")) for name, last in lasts.items()}),
        *_sureness(draw, {name: _counts(last.get("probability_of_choice")) for name, last in lasts.items()}),
        *(one for name, last in lasts.items() for one in _expectations(draw, name, last, len(runs) > 1)),
    ]


def _share_over_time(runs: Sequence[Run], names: Sequence[str], draw: RunCharts) -> list[Chart]:
    lines = {}
    for name, run in zip(names, runs, strict=True):
        curve, elapsed_s = Curve(), 0.0
        for record in run.progress.records:
            elapsed_s = record.get("elapsed_s") or elapsed_s
            share = record["values"].get("noop_share") if record["event"] == "actions" else None
            if isinstance(share, (int, float)):
                curve.append(record["step"], elapsed_s, share)
        if curve.values:
            lines[name] = curve
    return [draw.lines("Decisions to wait", ("share of decisions", "share"), lines)] if lines else []


def _ranks(draw: RunCharts, counts: dict[str, list[float]]) -> list[Chart]:
    counts = {name: _capped(one) for name, one in counts.items() if sum(one) > 0}
    if not counts:
        return []
    length = max(map(len, counts.values()))
    labels = [str(rank) for rank in range(length)]
    if length > MOST_RANKS:
        labels[-1] += "+"
    shares = {name: _shares(one, length) for name, one in counts.items()}
    title = "Which row was picked"
    return [
        draw.columns(title, labels, ("row of the observation (a job or a host)", "share of picks"), shares)
    ]


def _capped(counts: Sequence[float]) -> list[float]:
    if len(counts) <= MOST_RANKS:
        return list(counts)
    return [*counts[:MOST_RANKS], sum(counts[MOST_RANKS:])]


def _sureness(draw: RunCharts, counts: dict[str, list[float]]) -> list[Chart]:
    counts = {name: one for name, one in counts.items() if sum(one) > 0}
    if not counts:
        return []
    bins = max(map(len, counts.values()))
    labels = [f"{100 * k / bins:.0f}-{100 * (k + 1) / bins:.0f}" for k in range(bins)]
    shares = {name: _shares(one, bins) for name, one in counts.items()}
    title = "How sure the policy was of its choice"
    return [draw.columns(title, labels, ("probability of the choice, %", "share of decisions"), shares)]


def _expectations(draw: RunCharts, name: str, last: dict[str, Any], several: bool) -> list[Chart]:
    """The distribution of values, one chart per run: scales differ."""
    told = last.get("value_histogram")
    edges = _numbers(told.get("edges")) if isinstance(told, dict) else []
    counts = _counts(told.get("counts")) if isinstance(told, dict) else []
    if len(edges) != len(counts) + 1 or sum(counts) <= 0 or edges != sorted(set(edges)):
        return []
    title = "Return that the policy expects" + (f": {name}" if several else "")
    return [draw.histogram(title, edges, ("value", "share of states"), name, _shares(counts, len(counts)))]


def _shares(counts: Sequence[float], length: int) -> list[float]:
    total = sum(counts)
    return [count / total for count in counts] + [0.0] * (length - len(counts))


def _numbers(values: Any) -> list[float]:
    if not isinstance(values, list):
        return []
    whole = all(isinstance(one, (int, float)) and math.isfinite(one) for one in values)
    return [float(one) for one in values] if whole else []


def _counts(values: Any) -> list[float]:
    counts = _numbers(values)
    return counts if all(count >= 0 for count in counts) else []
