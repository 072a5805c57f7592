"""The two tables that are quoted most, as rows of files: full names, plain numbers, units in heads."""

from typing import Any

from gpuyard.report.layout import table_metrics
from gpuyard.report.model import Change, Loss, Report, Standing

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
    verdict = one.changes.get(report.metric, Change(None)).verdict
    row: list[Any] = [one.name, one.kind, one.role, verdict, "yes" if report.weak else "no"]
    for metric in metrics:
        change = one.changes.get(metric, Change(None))
        row += [one.values.get(metric), change.ratio, change.low, change.high]
    return row


def loss_rows(report: Report) -> Rows:
    """A row a class and metric that is worse, all of them: the page shows the first ones."""
    return [
        ["by", "class", "jobs", "metric", "before", "now", "change", "low", "high"],
        *map(_loss_row, report.losses),
    ]


def _loss_row(loss: Loss) -> list[Any]:
    change = loss.change
    values = (loss.other, loss.own, change.ratio, change.low, change.high)
    return [loss.by, loss.name, loss.jobs, loss.metric, *values]
