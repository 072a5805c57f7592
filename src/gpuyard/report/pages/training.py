"""Training runs as one self-contained HTML page: curves, validations, what the policy does, settings."""

import csv
import io
from collections.abc import Mapping, Sequence

from gpuyard.report.pages import web_page
from gpuyard.report.pages.action_charts import action_section
from gpuyard.report.pages.run_figures import Across, FigureMaker, Level
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
    draw = FigureMaker(across, names)
    curves = [update_curves(run.progress.records) for run in runs]
    every = list(dict.fromkeys(name for one in curves for name in one))
    episodes = [name for name in every if name.startswith("episode/")]
    others = [name for name in every if name not in episodes]
    sections = [_head(runs, names), _validation_section(runs, names, draw)]
    for heading, shown in (("Episodes while training", episodes), ("Learning", others)):
        if figures := [_curve_figure(name, names, curves, draw) for name in shown]:
            sections.append(web_page.section(heading, web_page.charts(*figures)))
    sections.append(action_section(runs, names, draw))
    if not every and not any(run.validations for run in runs):
        sections.append(web_page.paragraph("Nothing has been trained yet: there are no curves to show."))
    sections += [_settings_section(runs, names), _files_section(runs, names)]
    title = f"Training run {names[0]}" if len(runs) == 1 else f"{len(runs)} training runs"
    return web_page.page(title, _subtitle(runs), filter(None, sections))


def _subtitle(runs: Sequence[Run]) -> str:
    if len(runs) > 1:
        return ", ".join(dict.fromkeys(run.algorithm or "unknown algorithm" for run in runs))
    return f"{runs[0].algorithm or 'unknown algorithm'}, {STATE_TEXTS[runs[0].state]}"


def _head(runs: Sequence[Run], names: Sequence[str]) -> str:
    if len(runs) > 1:
        table = web_page.html_table(COMPARISON, comparison_rows(runs, names), numbers=range(3, 6))
        return f'<div class="scroll">{table}</div>'
    run = runs[0]
    facts = {"algorithm": run.algorithm or "-", "samples": f"{run.last_step:,}"}
    facts["time of training"] = duration(run.progress.elapsed_s)
    if run.best is not None:
        facts["best validation score"] = short_number(run.best.score)
        facts["reached after"] = f"{run.best.step:,} samples"
    said = verdict(run)
    return web_page.tiles(facts) + (web_page.paragraph(said) if said else "")


def _curve_figure(
    name: str, names: Sequence[str], curves: Sequence[Mapping[str, Curve]], draw: FigureMaker
) -> str:
    lines = [draw.line(run, of[name]) for run, of in zip(names, curves, strict=True) if name in of]
    label = curve_label(name)
    return draw.figure(_title(label), _with_unit(name, label), lines)


def _title(label: str) -> str:
    return label[:1].upper() + label[1:]


def _with_unit(name: str, label: str) -> str:
    return f"{label}, s" if name.endswith("_s") and not name.endswith("per_s") else label


def _validation_section(runs: Sequence[Run], names: Sequence[str], draw: FigureMaker) -> str:
    checked = {name: run for name, run in zip(names, runs, strict=True) if run.validations}
    told = (run.validations[-1].metrics[POLICY] for run in checked.values())
    scores = {name: _validation_curve(run, SCORE) for name, run in checked.items()}
    figures = []
    for metric in (SCORE, *dict.fromkeys(name for one in told for name in one if name != "score")):
        curves = {name: _validation_curve(run, metric) for name, run in checked.items()}
        lines = [draw.line(name, curve) for name, curve in curves.items() if curve.values]
        if lines and (metric == SCORE or curves != scores):  # the score may be one of the metrics
            title, label = _validation_labels(metric, next(iter(checked.values())))
            figures.append(draw.figure(title, label, lines, _levels(checked, metric)))
    if not figures:
        return ""
    said = "On held-out windows. Dotted lines are heuristics on the same windows."
    return web_page.section("Validation", web_page.paragraph(said), web_page.charts(*figures))


def _validation_labels(metric: str, run: Run) -> tuple[str, str]:
    if metric == SCORE:
        return "Validation score", f"score, {'higher' if run.higher_is_better else 'lower'} is better"
    label = metric_label(metric)
    return f"Validation: {label}", _with_unit(metric, label)


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
            (value, f"{short_policy(policy)} {short_number(value)}" + (f" ({run})" if run else ""))
            for run, value in shown.items()
        ]
    return levels


def _settings_section(runs: Sequence[Run], names: Sequence[str]) -> str:
    settings = [settings_of(run.config) for run in runs]
    every = list(dict.fromkeys(key for one in settings for key in one))
    if len(runs) == 1:
        rows = [(key, settings[0][key]) for key in every]
        return web_page.section("Settings", web_page.html_table(("setting", "value"), rows)) if rows else ""
    rows_of_all = [(key, *(one.get(key, "-") for one in settings)) for key in every]
    differ = [row for row in rows_of_all if len(set(row[1:])) > 1]
    if not differ:
        return web_page.section("Settings", web_page.paragraph("All runs have the same settings."))
    table = web_page.html_table(("setting", *names), differ)
    return web_page.section("Settings that differ", f'<div class="scroll">{table}</div>')


def _files_section(runs: Sequence[Run], names: Sequence[str]) -> str:
    links = []
    for name, run in zip(names, runs, strict=True):
        for event, what in (("update", "updates"), ("validation", "validations")):
            if records := run.progress.of(event):
                safe = "".join(letter if letter.isalnum() or letter in "-_." else "-" for letter in name)
                links.append(web_page.download(f"{safe}-{what}.csv", "text/csv", _csv(records)))
    said = "Every value that was written, as CSV."
    return web_page.section("Data", web_page.paragraph(said), " &nbsp; ".join(links)) if links else ""


def _csv(records: Sequence[Record]) -> str:
    """Records as a table: their own fields, then their values by name."""
    known = ("step", "update", "elapsed_s", "samples_per_s", "score", "better")
    fields = [name for name in known if any(name in record for record in records)]
    values = list(dict.fromkeys(name for record in records for name in record["values"]))
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow([*fields, *values])
    for record in records:
        row = [*(record.get(name) for name in fields), *(record["values"].get(name) for name in values)]
        writer.writerow(["" if value is None else value for value in row])
    return text.getvalue()
