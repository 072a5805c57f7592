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

TITLES = {"heuristic": "best fixed heuristic", "grid": "grid", "rule": "tuned rule"}
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
    """What was found, and what to do with it."""
    chosen, reference, grid = (summary[name] for name in ("chosen", "reference", "grid_policy"))
    took = f"{duration(sum(summary['seconds'].values()))} of searching."
    policy = {"heuristic": reference, "grid": grid, "rule": directory}[chosen]
    use = f"gpuyard simulate JOBS --cluster CLUSTER --policy {policy}"
    start = f"gpuyard train ppo --init-from {directory}"
    if chosen == "heuristic":
        return [
            f"Nothing that keeps the limits was clearly better than {reference}. {took}",
            f"{grid}, the best of the grid, {_against_reference(summary, 'grid')}.",
            f"Use the heuristic: {use}",
            f"The run holds the best of the grid all the same; a network can start from it: {start}",
        ]
    what = "The tuned rule" if chosen == "rule" else grid
    return [
        f"{what} {_against_reference(summary, chosen)}. {took}",
        f"Use it: {use}",
        f"Train a network that starts from it: {start}",
    ]


def _against_reference(summary: Summary, kind: str) -> str:
    own, usual = (summary["judged"][one]["validation"] for one in (kind, "heuristic"))
    ratio, jct = (own[name] / usual[name] - 1 for name in ("mean_bounded_slowdown", "mean_jct_s"))
    return (
        f"has {100 * ratio:+.0f} % mean bounded slowdown and {100 * jct:+.1f} % mean completion time against "
        f"{summary['reference']} on validation windows"
    )
