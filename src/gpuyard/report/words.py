"""Differences in words."""

import math
from collections.abc import Mapping
from dataclasses import replace

from gpuyard.evaluate.bootstrap import Difference, Verdict
from gpuyard.evaluate.wording import PAGE
from gpuyard.metrics.classes import is_far_above
from gpuyard.report.model import Standing, Tile
from gpuyard.units import metric_label, metric_text

SIDE_METRICS = ("mean_jct_s", "mean_wait_s", "p99_wait_s", "max_wait_s")
"""What stands beside every gain: an average may hide jobs that starve."""
ALARMED = ("p99_wait_s", "max_wait_s")
"""Of one run, those that are marked where they are far above the other policy's."""


def percent(ratio: float | None) -> str:
    """A relative difference with its sign: ``−12.3 %``, ``+0.4 %``, ``×6.3``."""
    if ratio is None or not math.isfinite(ratio):
        return "-"
    if ratio >= PAGE.many_times:
        return PAGE.change(ratio)
    size = 100 * abs(ratio)
    digits = 1 if size < 99.5 or size >= 100 else 2
    text = f"{size:.{digits}f} %"
    return text if float(f"{size:.{digits}f}") == 0 else f"{'−' if ratio < 0 else '+'}{text}"


def interval(change: Difference | None) -> str:
    """The interval of a difference: ``−15.0 % to −9.1 %``; empty without one."""
    if change is None or not change.has_interval:
        return ""
    return f"{percent(change.low)} to {percent(change.high)}"


def difference_words(ratio: float, metric: str, other: str) -> str:
    """``12.3 % lower mean wait than fifo``, ``6.3 times the mean wait of fifo``."""
    label = metric_label(metric)
    if ratio >= PAGE.many_times:
        return f"{percent(ratio).removeprefix('×')} times the {label} of {other}"
    return (
        f"{percent(abs(ratio)).removeprefix('+')} {'lower' if ratio < 0 else 'higher'} {label} than {other}"
    )


def relative(one: Standing, other: Standing, metric: str) -> float | None:
    """The relative difference of two policies' values."""
    return ratio_of(one.values, other.values, metric)


def ratio_of(
    values: Mapping[str, float | None], others: Mapping[str, float | None], metric: str
) -> float | None:
    """The relative difference of a value to another; None where that is not defined."""
    own, other = values.get(metric), others.get(metric)
    if own is None or other is None:
        return None
    return 0.0 if own == other else (own - other) / abs(other) if other else None


def side_figures(best: Standing, other: Standing | None, decisive: str) -> list[Tile]:
    """What stands beside a gain."""
    figures = []
    for metric in SIDE_METRICS:
        if metric != decisive and best.values.get(metric) is not None:
            value = metric_text(metric, best.values[metric])
            figures.append(_beside(best, other, metric, Tile(metric_label(metric), value, "")))
    return figures


def _beside(best: Standing, other: Standing | None, metric: str, tile: Tile) -> Tile:
    """A figure with its difference to another policy's; only those to the reference have an interval."""
    if other is None:
        return tile
    ratio = percent(relative(best, other, metric))
    own, theirs = best.changes.get(metric), other.changes.get(metric)
    change = own if own is not None and theirs is not None and theirs.verdict == "reference" else None
    span = f" ({interval(change)})" if interval(change) else ""
    remark = f"against {metric_text(metric, other.values.get(metric))} with {other.label}"
    verdict: Verdict = change.verdict if change else "one run"
    if verdict == "one run" and metric in ALARMED and _is_far(best, other, metric):
        verdict = "worse"
    return replace(tile, remark=remark, change=f"{ratio}{span}", verdict=verdict)


def _is_far(best: Standing, other: Standing, metric: str) -> bool:
    return is_far_above(best.values.get(metric), other.values.get(metric))
