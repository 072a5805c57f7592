"""Training runs as one self-contained HTML page: curves, validations, what the policy does, settings."""

from collections.abc import Mapping, Sequence
from typing import Any

from gpuyard.report import layout
from gpuyard.report.figures import Chart
from gpuyard.report.frame import PageMaker
from gpuyard.report.pages.action_charts import action_charts
from gpuyard.report.training import Across, Level, RunCharts
from gpuyard.runs.curves import Curve, curve_label, short_number, short_policy, update_curves
from gpuyard.runs.directory import POLICY, STATE_TEXTS, Run, Validation
from gpuyard.runs.progress import Record
from gpuyard.runs.summary import COMPARISON, comparison_rows, run_names, settings_of, verdict
from gpuyard.units import duration, metric_label

MOST_LEVELS = 6
"""Heuristics marked in a chart: the best ones of each run."""
SCORE = ""
"""Stands for the score among the metrics of a validation."""


def runs_page(runs: Sequence[Run], *, across: Across = "steps") -> str:
    """One page about one or several runs, their curves laid over each other.

    Args:
        runs: At least one.
        across: What curves are drawn over.
    """
    names = run_names(runs)
    draw = RunCharts(across, names)
    title = f"Training run {names[0]}" if len(runs) == 1 else f"{len(runs)} training runs"
    page = PageMaker(title, _subtitle(runs))
    page.add(_head(runs, names))
    curves = [update_curves(run.progress.records) for run in runs]
    every = list(dict.fromkeys(name for one in curves for name in one))
    episodes = [name for name in every if name.startswith("episode/")]
    others = [name for name in every if name not in episodes]
    said = "On held-out windows. Dotted lines are heuristics on the same windows."
    page.section("Validation", page.figures(validation_charts(runs, names, draw)), intro=said)
    for heading, shown in (("Episodes while training", episodes), ("Learning", others)):
        page.section(heading, page.figures([curve_chart(name, names, curves, draw) for name in shown]))
    said = "Measured with the validations; columns show the last one."
    page.section("What the policy does", page.figures(action_charts(runs, names, draw)), intro=said)
    if not every and not any(run.validations for run in runs):
        page.add(layout.paragraph("Nothing has been trained yet: there are no curves to show."))
    page.section(*settings_table(runs, names))
    page.section("Data", *_files(page, runs, names), intro="Every value that was written, as CSV.")
    return page.html()


def _subtitle(runs: Sequence[Run]) -> str:
    if len(runs) > 1:
        return ", ".join(dict.fromkeys(run.algorithm or "unknown algorithm" for run in runs))
    return f"{runs[0].algorithm or 'unknown algorithm'}, {STATE_TEXTS[runs[0].state]}"


def _head(runs: Sequence[Run], names: Sequence[str]) -> str:
    if len(runs) > 1:
        return layout.text_table("Runs", COMPARISON, comparison_rows(runs, names), numbers=range(3, 6))
    run = runs[0]
    facts = {"algorithm": run.algorithm or "-", "samples": f"{run.last_step:,}"}
    facts["time of training"] = duration(run.progress.elapsed_s)
    if run.best is not None:
        facts["best validation score"] = short_number(run.best.score)
        facts["reached after"] = f"{run.best.step:,} samples"
    said = verdict(run)
    return layout.tiles(facts) + (layout.paragraph(said) if said else "")


def curve_chart(
    name: str, names: Sequence[str], curves: Sequence[Mapping[str, Curve]], draw: RunCharts
) -> Chart:
    """The chart of one curve, of those runs that have it."""
    lines = {run: of[name] for run, of in zip(names, curves, strict=True) if name in of}
    label = curve_label(name)
    return draw.lines(_title(label), (label, _unit(name)), lines)


def _title(label: str) -> str:
    return label[:1].upper() + label[1:]


def _unit(name: str) -> str:
    return "s" if name.endswith("_s") and not name.endswith("per_s") else "1"


def validation_charts(runs: Sequence[Run], names: Sequence[str], draw: RunCharts) -> list[Chart]:
    """Charts of what runs reached on held-out windows, with heuristics as levels."""
    checked = {name: run for name, run in zip(names, runs, strict=True) if run.validations}
    told = (run.validations[-1].metrics[POLICY] for run in checked.values())
    scores = {name: _validation_curve(run, SCORE) for name, run in checked.items()}
    charts = []
    for metric in (SCORE, *dict.fromkeys(name for one in told for name in one if name != "score")):
        curves = {name: _validation_curve(run, metric) for name, run in checked.items()}
        lines = {name: curve for name, curve in curves.items() if curve.values}
        if lines and (metric == SCORE or curves != scores):  # the score may be one of the metrics
            charts.append(_validation_chart(metric, checked, lines, draw))
    return charts


def _validation_chart(
    metric: str, checked: Mapping[str, Run], lines: Mapping[str, Curve], draw: RunCharts
) -> Chart:
    levels = _levels(checked, metric)
    if metric != SCORE:
        label = metric_label(metric)
        return draw.lines(f"Validation: {label}", (label, _unit(metric)), lines, levels)
    higher = next(iter(checked.values())).higher_is_better
    chart = draw.lines("Validation score", ("score", "1"), lines, levels)
    return chart | {"note": f"{'Higher' if higher else 'Lower'} is better. {chart['note']}".strip()}


def _validation_curve(run: Run, metric: str) -> Curve:
    curve = Curve()
    for one in run.validations:
        curve.append(one.step, one.elapsed_s or 0.0, _value(one, POLICY, metric))
    return curve


def _value(done: Validation, policy: str, metric: str) -> float | None:
    if metric != SCORE:
        return done.metrics[policy].get(metric)
    return done.score if policy == POLICY else done.scores.get(policy)


def _levels(checked: Mapping[str, Run], metric: str) -> list[Level]:
    """Heuristics to mark; where runs were validated on different windows, with the name of the run."""
    found: dict[str, dict[str, float]] = {}
    for name, run in checked.items():
        last, higher = run.validations[-1], run.higher_is_better
        ranked = sorted(last.scores, key=lambda policy: last.scores[policy], reverse=higher)
        for policy in (ranked or [one for one in last.metrics if one != POLICY])[:MOST_LEVELS]:
            if (value := _value(last, policy, metric)) is not None:
                found.setdefault(policy, {})[name] = value
    levels = []
    for policy, values in found.items():
        same = len({f"{value:.6g}" for value in values.values()}) == 1
        shown = {"": next(iter(values.values()))} if same else values
        levels += [
            (value, short_policy(policy) + (f" ({run})" if run else "")) for run, value in shown.items()
        ]
    return levels


def settings_table(runs: Sequence[Run], names: Sequence[str]) -> tuple[str, str]:
    """A heading and what stands under it."""
    settings = [settings_of(run.config) for run in runs]
    every = list(dict.fromkeys(key for one in settings for key in one))
    if len(runs) == 1:
        rows = [(key, settings[0][key]) for key in every]
        return "Settings", layout.text_table("Settings", ("setting", "value"), rows) if rows else ""
    rows_of_all = [(key, *(one.get(key, "-") for one in settings)) for key in every]
    differ = [row for row in rows_of_all if len(set(row[1:])) > 1]
    if not differ:
        return "Settings", layout.paragraph("All runs have the same settings.")
    heading = "Settings that differ"
    return heading, layout.text_table(heading, ("setting", *names), differ)


def _files(page: PageMaker, runs: Sequence[Run], names: Sequence[str]) -> list[str]:
    return [
        page.file(f"{name}-{what}", _rows(records)) + " "
        for name, run in zip(names, runs, strict=True)
        for event, what in (("update", "updates"), ("validation", "validations"))
        if (records := run.progress.of(event))
    ]


def _rows(records: Sequence[Record]) -> list[list[Any]]:
    """Records as a table: their own fields, then their values by name."""
    known = ("step", "update", "elapsed_s", "samples_per_s", "score", "better")
    fields = [name for name in known if any(name in record for record in records)]
    values = list(dict.fromkeys(name for record in records for name in record["values"]))
    rows: list[list[Any]] = [[*fields, *values]]
    for record in records:
        own = (record.get(name) for name in fields)
        rows.append([*own, *(record["values"].get(name) for name in values)])
    return rows
