"""A comparison as a notebook shows it."""

from gpuyard.evaluate.comparison import BESIDE, Comparison
from gpuyard.evaluate.wording import PAGE
from gpuyard.units import html_table, metric_label, metric_text


def comparison_html(comparison: Comparison) -> str:
    """Who is compared, and a row per policy, the best first, with its difference to the reference."""
    metric = comparison.setting.metric
    shown = {entry.name: entry.label for entry in comparison.shown}
    beside = [name for name in BESIDE if name != metric and all(comparison.knows(one, name) for one in shown)]
    heads = ["policy", metric_label(metric), "difference", "95 % interval", *map(metric_label, beside)]
    rows = [
        [
            label,
            metric_text(metric, comparison.mean(name)),
            *_difference(comparison, name),
            *(metric_text(other, comparison.mean(name, other)) for other in beside),
        ]
        for name in comparison.ranking()
        if (label := shown.get(name))
    ]
    return html_table(repr(comparison), [heads, *rows])


def _difference(comparison: Comparison, name: str) -> tuple[str, str]:
    """To the reference, and its interval; texts that are empty where there are none."""
    if comparison.reference is None:
        return "", ""
    if name == comparison.reference:
        return "reference", ""
    found = comparison.difference(name)
    return (PAGE.change(found.ratio), PAGE.interval(found)) if found.is_known else ("-", "")
