"""A comparison as a table for people and as a JSON document."""

import math
from functools import partial
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from gpuyard.evaluate import Comparison, Difference
from gpuyard.evaluate.comparison import BESIDE, TOLD_BESIDE
from gpuyard.evaluate.findings import advice, findings, who_loses
from gpuyard.evaluate.wording import TERMINAL, sentences, verdict_in_words
from gpuyard.terminal.tables import NARROWEST, first_that_fits, folded, plain_table
from gpuyard.units import metric_label, metric_text

STYLES = {"better": "green", "worse": "red"}


def evaluation_table(console: Console, comparison: Comparison) -> Table:
    """One row per policy: what was recorded, the reference, then the best; and how far from the reference.

    Beside it stand completion time and the longest waits: of the whole part in one go, where it was replayed.

    Args:
        console: Where it will be shown; if it is narrow, rows take two lines and long names more.
        comparison: What is shown.
    """
    metric, whole = comparison.setting.metric, comparison.whole is not None
    names = [name for name in comparison.ranking(metric) if comparison.policy(name).is_shown]
    names.sort(key=lambda name: (comparison.policy(name).kind != "recorded", name != comparison.reference))
    others = [name for name in BESIDE if name != metric]
    beside = [name for name in others if all(_knows(comparison, one, name) for one in names)]

    def build(short: bool, room: int, told: list[str]) -> Table:
        headers = ["policy", metric_label(metric).replace(" ", "\n"), "difference\n(95 % interval)"]
        headers += ["in one go\n(whole part)"] if whole else []
        headers += [metric_label(name).replace(" ", "\n") for name in told]
        table = plain_table(*headers, right=range(1, len(headers)))
        for name in names:
            table.add_row(*_row(comparison, name, metric, told, "\n" if short else " ", room))
        return table

    # Where there is no room the longest wait stays longest: it is what a gain is bought with most often.
    for told in (beside, [name for name in beside if name != "p99_wait_s"], beside[-1:], []):
        if (table := first_that_fits(console, partial(build, told=told))) is not None:
            return table
    return build(True, NARROWEST, [])


def _knows(comparison: Comparison, policy: str, metric: str) -> bool:
    return _beside(comparison, policy, metric) is not None


def _beside(comparison: Comparison, policy: str, metric: str) -> float | None:
    """A metric of the whole part, where it was replayed, else its mean over windows."""
    if comparison.whole is not None:
        value = comparison.whole_rows()[policy].get(metric)
        return None if value is None else float(value)
    return comparison.mean(policy, metric) if comparison.knows(policy, metric) else None


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
    if comparison.whole is not None:
        cells.append(_in_one_go(comparison, name, metric))
    for one in beside:
        value = _beside(comparison, name, one)
        cell = Text("-" if value is None else metric_text(one, value, short=True))
        if not is_reference and comparison.reference is not None and value is not None:
            cell.append(f"{between}({_change(comparison, name, one)})")
        cells.append(cell)
    return cells


def _in_one_go(comparison: Comparison, name: str, metric: str) -> Text:
    whole = comparison.in_whole(name, metric)
    if whole is None:
        return Text("-")
    value = metric_text(metric, whole.own, short=True)
    return Text(value if name == comparison.reference else f"{value} ({TERMINAL.change(whole.ratio)})")


def _change(comparison: Comparison, name: str, metric: str) -> str:
    whole = comparison.in_whole(name, metric)
    found = comparison.difference(name, metric=metric) if whole is None else whole
    return TERMINAL.change(found.ratio)


def evaluation_document(comparison: Comparison) -> dict[str, Any]:
    """What ``gpuyard evaluate --json`` prints."""
    found, lost = findings(comparison), who_loses(comparison)
    return {
        "setting": comparison.setting.to_json(),
        "reference": comparison.reference,
        "chosen_on": comparison.chosen_on,
        "rival": comparison.rival,
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
        **_advice(comparison, name),
    }


def _advice(comparison: Comparison, name: str) -> dict[str, Any]:
    """What to do about a policy, and what it does in the whole part in one go."""
    row = comparison.whole_rows().get(name)
    whole = None if row is None else {key: value for key, value in row.items() if key != "policy"}
    found: dict[str, Any] = {"whole": whole}
    if comparison.setting.kind in ("windows", "draws") and comparison.policy(name).is_shown:
        is_reference = name == comparison.reference or comparison.reference is None
        found["advice"] = None if is_reference else advice(comparison, name)
        found["broken_limits"] = [vars(one) for one in comparison.broken_limits(name)]
    return found


def _difference(found: Difference) -> dict[str, Any]:
    return {
        "ratio": found.ratio,
        "interval": [found.low, found.high],
        "verdict": None if math.isnan(found.low) else found.verdict,
        "own": found.own,
        "other": found.other,
    }
