"""What a search found, as a table and sentences for people."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rich.table import Table

from gpuyard.runs.directory import SUMMARY, Run
from gpuyard.units import duration, number

Summary = Mapping[str, Any]
"""The contents of ``search.json``."""

TITLES = {
    "current": "what runs today",
    "heuristic": "best fixed heuristic",
    "grid": "tuned rule",
    "rule": "evolved rule",
}
METRICS = ("mean_bounded_slowdown", "mean_jct_s", "p99_wait_s", "max_wait_s")
RULE = "linear score and gate"
GAP = 2


def search_summary(run: Run) -> Summary | None:
    """What a search found; None if the run was none, or has not ended."""
    file = run.file(SUMMARY)
    return None if file is None else json.loads(file.read_text(encoding="utf-8"))


def search_table(summary: Summary, width: int) -> Table:
    """Heuristic, grid and rule on the validation windows.

    Names of policies are never cut: rather, metrics that find no room are left out.
    """
    judged = summary["judged"]
    shown = [name for name in METRICS if name in judged["heuristic"]["validation"]]
    names = {kind: RULE if kind == "rule" else one["name"] for kind, one in judged.items()}
    rows = {kind: [_cell(name, one["validation"][name]) for name in shown] for kind, one in judged.items()}
    table = Table(box=None, pad_edge=False, title="On validation windows", title_justify="left")
    table.add_column("", no_wrap=True)
    table.add_column("policy", no_wrap=True, min_width=max(map(len, names.values())))
    taken = sum(max(len(text) for text in texts.values()) for texts in (TITLES, names)) + GAP
    columns: list[str] = []
    headings = [name.removesuffix("_s").replace("_", " ") for name in shown]
    values = [max(len(row[index]) for row in rows.values()) for index in range(len(shown))]
    if taken + sum(GAP + max(len(h), v) for h, v in zip(headings, values, strict=True)) > width:
        headings = [heading.replace(" ", "\n") for heading in headings]
    for heading, value in zip(headings, values, strict=True):
        wide = GAP + max(value, *map(len, heading.split("\n")))
        if columns and taken + wide > width:
            break
        table.add_column(heading, justify="right", no_wrap=True)
        taken += wide
        columns.append(heading)
    table.width = taken if taken > width else None  # on a terminal that is narrower still
    for kind, cells in rows.items():
        chosen = "bold" if kind == summary["chosen"] else ""
        table.add_row(TITLES[kind], names[kind], *cells[: len(columns)], style=chosen)
    return table


def _cell(metric: str, value: float) -> str:
    return duration(value) if metric.endswith("_s") else number(value)


def search_in_words(summary: Summary, directory: Path) -> list[str]:
    """What was found, whether to use it, and what it would do to waits."""
    chosen, judged = summary["chosen"], summary["judged"]
    took = f"{duration(sum(summary['seconds'].values()))} of searching."
    policy, unguarded = summary["policy"] or directory, summary["unguarded"]
    if chosen == "current":
        lines = [
            "Nothing is recommended: nothing that keeps the limits on waits is clearly better than "
            f"{summary['current']}, which runs today. {took}"
        ]
    else:
        lines = [
            f"{policy}: recommended. It {_against(summary, judged[chosen], 'current')}, and keeps the limits "
            f"on waits in the whole training and validation part. {took}",
            f"Check it on jobs that were held out: gpuyard evaluate {policy} --on JOBS --cluster CLUSTER",
        ]
    if unguarded["broken"] and unguarded["name"] != policy:
        gain = _against(summary, unguarded, "current")
        lines.append(f"{unguarded['name']}: not recommended: {_price(unguarded)}. It {gain}.")
    if chosen not in ("current", "heuristic"):
        heuristic = judged["heuristic"]
        price = f" That one is not recommended: {_price(heuristic)}." if heuristic["broken"] else ""
        against = _against(summary, judged[chosen], "heuristic")
        lines.append(f"{policy} {against}.{price}")
    return [*lines, f"Train a network that starts from it: gpuyard train ppo --init-from {directory}"]


def _price(judged: Mapping[str, Any]) -> str:
    """The worst that a policy does to waits."""
    from gpuyard.evaluate.wording import limit_in_words  # which loads polars
    from gpuyard.metrics.guards import BrokenLimit

    return limit_in_words(BrokenLimit(**judged["broken"][0]))


def _against(summary: Summary, own: Mapping[str, Any], kind: str) -> str:
    other = summary["judged"][kind]
    ratio, jct = (
        own["validation"][name] / other["validation"][name] - 1
        for name in ("mean_bounded_slowdown", "mean_jct_s")
    )
    title = "the best fixed heuristic, " if kind == "heuristic" else ""
    return (
        f"has {100 * ratio:+.0f} % mean bounded slowdown and {100 * jct:+.1f} % mean completion time against "
        f"{title}{other['name']}, on validation windows"
    )
