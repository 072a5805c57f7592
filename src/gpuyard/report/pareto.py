"""Charts of two metrics at once: which policies no other one beats on both."""

from collections.abc import Sequence

from gpuyard.evaluate.setting import has_direction, lower_is_better
from gpuyard.report.figures import Chart, Palette, axis, metric_unit, rounded, scale_of
from gpuyard.report.model import Report
from gpuyard.units import metric_label

ACROSS = ("mean_jct_s", "p99_wait_s", "finish_time_fairness_p95", "jain_fairness", "energy_kwh")
"""Metrics that are set against the deciding one, where they are known."""
DOWN = "mean_bounded_slowdown"


def pareto_chart(report: Report, palette: Palette) -> Chart | None:
    """Policies as points: a metric of slowdown against another, which is to be chosen; None without any."""
    down = DOWN if any(one.values.get(DOWN) is not None for one in report.standings) else report.metric
    choices = {}
    for metric in ACROSS:
        if metric != down and (points := _points(report, palette, metric, down)):
            choices[metric_label(metric)] = points
    if not choices:
        return None
    return {"id": "pareto", "title": f"{metric_label(down).capitalize()} against", "choices": choices}


def _points(report: Report, palette: Palette, across: str, down: str) -> Chart | None:
    known = {
        one.name: (float(one.values[across] or 0.0), float(one.values[down] or 0.0))
        for one in report.standings
        if one.name in palette.colours
        and one.values.get(across) is not None
        and one.values.get(down) is not None
    }
    if len(known) < 2 or len(set(known.values())) < 2:
        return None
    best = unbeaten(list(known.values()), [_sign(across), _sign(down)])
    series = [
        {**palette.key(name), "x": rounded([x]), "y": rounded([y]), "best": is_best}
        for (name, (x, y)), is_best in zip(known.items(), best, strict=True)
    ]
    way = "left" if _sign(across) > 0 else "right"
    return {
        "kind": "points",
        "note": f"A point per policy; further {way} and lower is better. The line joins those that no other "
        "beats on both.",
        "x": axis(metric_label(across), metric_unit(across), scale_of(series, "x")),
        "y": axis(metric_label(down), metric_unit(down), scale_of(series, "y")),
        "series": series,
    }


def _sign(metric: str) -> int:
    return 1 if not has_direction(metric) or lower_is_better(metric) else -1


def unbeaten(points: Sequence[Sequence[float]], signs: Sequence[int]) -> list[bool]:
    """Of each point, whether no other is at least as good in all and better in one.

    Args:
        points: Values of each, in the same order.
        signs: Of each value 1 if less is better, else -1.
    """
    signed = [[sign * value for sign, value in zip(signs, point, strict=True)] for point in points]
    return [
        not any(all(a <= b for a, b in zip(other, own, strict=True)) and other != own for other in signed)
        for own in signed
    ]
