"""The two tables that are quoted most, as rows of files: full names, plain numbers, units in heads."""

import math
from typing import Any

from gpuyard.evaluate.bootstrap import Difference
from gpuyard.evaluate.comparison import Loser
from gpuyard.report.layout import table_metrics
from gpuyard.report.model import Report, Standing

Rows = list[list[Any]]


def table_files(report: Report) -> dict[str, Rows]:
    """Rows by the name of the table, the first with heads."""
    return {"policies": policy_rows(report), "losses": loss_rows(report)}


def policy_rows(report: Report) -> Rows:
    """A row a policy: each metric, its difference to the reference as a share, and the interval's ends."""
    metrics = table_metrics(report)
    heads = ["policy", "kind", "role", "verdict", "weak"]
    for metric in metrics:
        heads += [metric, *(f"{metric}_{part}" for part in ("change", "low", "high"))]
    return [heads, *(_policy_row(one, metrics, report) for one in report.standings)]


def _policy_row(one: Standing, metrics: list[str], report: Report) -> list[Any]:
    found = one.changes.get(report.metric)
    verdict = found.verdict if found else "one run"
    row: list[Any] = [one.name, one.kind, one.role, verdict, "yes" if report.weak else "no"]
    for metric in metrics:
        row += [one.values.get(metric), *numbers_of(one.changes.get(metric))]
    return row


def loss_rows(report: Report) -> Rows:
    """A row a class and metric that is worse, all of them: the page shows the first ones."""
    return [
        ["by", "class", "jobs", "metric", "before", "now", "change", "low", "high"],
        *map(_loss_row, report.losses),
    ]


def numbers_of(change: Difference | None) -> list[float | None]:
    """The ratio and the ends of the interval; null where they are not known, and of the reference."""
    if change is None or change.verdict == "reference":
        return [None, None, None]
    return [one if math.isfinite(one) else None for one in (change.ratio, change.low, change.high)]


def _loss_row(loss: Loser) -> list[Any]:
    values = (loss.difference.other, loss.difference.own, *numbers_of(loss.difference))
    return [loss.by, loss.name, loss.jobs, loss.metric, *values]
