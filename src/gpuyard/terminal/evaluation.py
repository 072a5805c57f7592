"""A comparison as a table for people and as a JSON document."""

import math
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from gpuyard.evaluate import Comparison, Difference
from gpuyard.evaluate.comparison import BESIDE, TOLD_BESIDE
from gpuyard.evaluate.findings import findings, who_loses
from gpuyard.evaluate.wording import TERMINAL, sentences, verdict_in_words
from gpuyard.terminal.tables import NARROWEST, first_that_fits, folded, plain_table
from gpuyard.units import metric_label, metric_text

STYLES = {"better": "green", "worse": "red"}


def evaluation_table(console: Console, comparison: Comparison) -> Table:
    """One row a policy, the best first: the metric, how far from the reference, and what stands beside it.

    Args:
        console: Where it will be shown; if it is narrow, rows take two lines and long names more.
        comparison: What is shown.
    """
    metric = comparison.setting.metric
    beside = [
        name
        for name in BESIDE
        if name != metric and all(comparison.knows(entry.name, name) for entry in comparison.shown)
    ]
    names = [name for name in comparison.ranking(metric) if comparison.policy(name).is_shown]

    def build(short: bool, room: int) -> Table:
        headers = ["policy", metric_label(metric).replace(" ", "\n"), "difference\n(95 % interval)"]
        headers += [metric_label(name).replace(" ", "\n") for name in beside]
        table = plain_table(*headers, right=range(1, len(headers)))
        for name in names:
            table.add_row(*_row(comparison, name, metric, beside, "\n" if short else " ", room))
        return table

    return first_that_fits(console, build) or build(True, NARROWEST)


def _row(
    comparison: Comparison, name: str, metric: str, beside: list[str], between: str, room: int
) -> list[Text]:
    entry = comparison.policy(name)
    label = folded(entry.label, room)
    label.stylize("bold" if entry.role == "given" else "")
    cells = [label, Text(metric_text(metric, comparison.mean(name), short=True))]
    is_reference = name == comparison.reference
    if is_reference or comparison.reference is None:
        cells.append(Text("reference" if is_reference else "", style="dim"))
    else:
        found = comparison.difference(name)
        interval = TERMINAL.interval(found)
        verdict = verdict_in_words(found, comparison.setting)
        told = (f"{verdict} ", STYLES.get(verdict, "")) if verdict else ""
        cells.append(
            Text.assemble(told, TERMINAL.change(found.ratio), f"{between}({interval})" if interval else "")
        )
    for one in beside:
        cell = Text(metric_text(one, comparison.mean(name, one), short=True))
        if one == "mean_jct_s" and not is_reference and comparison.reference is not None:
            cell.append(f"{between}({TERMINAL.change(comparison.difference(name, metric=one).ratio)})")
        cells.append(cell)
    return cells


def evaluation_document(comparison: Comparison) -> dict[str, Any]:
    """What ``gpuyard evaluate --json`` prints."""
    found, lost = findings(comparison), who_loses(comparison)
    return {
        "setting": comparison.setting.to_json(),
        "reference": comparison.reference,
        "chosen_on": comparison.chosen_on,
        "hindsight": comparison.hindsight,
        "results": [_result(comparison, name) for name in comparison.ranking()],
        "findings": [one.to_json() for one in (*found, *lost)],
        "summary": sentences(comparison, found),
        "who_loses": {
            entry.name: [
                {
                    "by": one.by,
                    "class": one.name,
                    "jobs": one.jobs,
                    "metric": one.metric,
                    **_difference(one.difference),
                }
                for one in comparison.who_loses(entry.name)
            ]
            for entry in comparison.shown
            if entry.role == "given" and entry.name != comparison.reference
        },
        "who_loses_in_words": sentences(comparison, lost),
    }


def _result(comparison: Comparison, name: str) -> dict[str, Any]:
    entry = comparison.policy(name)
    metrics = [column for column in comparison.windows.columns[2:] if comparison.knows(name, column)]
    differences = [
        metric
        for metric in dict.fromkeys((comparison.setting.metric, *TOLD_BESIDE))
        if comparison.reference and comparison.knows(name, metric)
    ]
    return {
        **entry.to_json(),
        "means": {metric: comparison.mean(name, metric) for metric in metrics},
        "differences": {
            metric: _difference(comparison.difference(name, metric=metric)) for metric in differences
        }
        if entry.is_shown
        else {},
    }


def _difference(found: Difference) -> dict[str, Any]:
    return {
        "ratio": found.ratio,
        "interval": [found.low, found.high],
        "verdict": None if math.isnan(found.low) else found.verdict,
        "own": found.own,
        "other": found.other,
    }
