"""Compare: the report's tables and charts over any set of results."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from html import escape
from typing import Any

import polars as pl
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from gpuyard.dashboard.compare.gathering import differ_in_cluster, gather, of_policies, on_windows
from gpuyard.dashboard.library import Entry
from gpuyard.dashboard.site import Site
from gpuyard.errors import InputError
from gpuyard.evaluate.comparison import Comparison
from gpuyard.evaluate.setting import has_direction
from gpuyard.evaluate.storage import read_outline
from gpuyard.metrics.classes import KINDS
from gpuyard.report import layout
from gpuyard.report.document import Parts, parts_of
from gpuyard.report.model import Report
from gpuyard.report.pages.evaluation import evaluation_report
from gpuyard.report.training import training_runs
from gpuyard.units import metric_label

TITLE, PATH = "Compare", "/compare"
MOST_RESULTS = 12
"""Results that are compared with each other, at most."""
MOST_OFFERED = 200


def routes(site: Site) -> Sequence[Route]:
    """The page: what is compared stands in its address."""

    def show(request: Request) -> Response:
        asked = request.query_params
        offered = [entry for entry in site.library.entries()[0] if entry.kind == "results"][:MOST_OFFERED]
        ids = list(dict.fromkeys(asked.getlist("results")))
        if not ids:
            return _choice(site, offered)
        if len(ids) > MOST_RESULTS:
            raise InputError(f"{len(ids)} results: at most {MOST_RESULTS} are compared with each other")
        whole, notes = gather([site.library.directory(id) for id in ids])
        mixed = differ_in_cluster([site.library.directory(id) for id in ids])
        report = _report(_narrowed(whole, asked.getlist("policy"), _windows(asked, whole)), asked, ids)
        parts = parts_of(report, training_runs([], ()), gantt=False, pareto=True)
        form = _form(offered, ids, whole, report, asked)
        said = "".join(map(layout.paragraph, notes))
        return site.page(
            report.title, form + said + _without_shares(parts, mixed), path=PATH, script="compare.js",
            data=parts.data, subtitle=report.subtitle, styles=("compare.css",),
        )  # fmt: skip

    return [Route(PATH, show)]


def _without_shares(parts: Parts, mixed: bool) -> str:
    """The page's body; without the chart of shares of GPUs where those are of several clusters."""
    if not mixed:
        return parts.body
    chart = parts.data["charts"].pop("utilisation", None)
    return parts.body.replace(layout.figure(chart), "")


def _windows(asked: Mapping[str, str], whole: Comparison) -> tuple[int, int]:
    def number(name: str, usual: int) -> int:
        text = asked.get(name, "")
        if text and not text.isdecimal():
            raise InputError(f"{name} {text!r}: expected the number of a window")
        return int(text[:9]) if text else usual

    return number("first", 1), number("last", len(whole.setting.windows))


def _narrowed(whole: Comparison, policies: Sequence[str], windows: tuple[int, int]) -> Comparison:
    found = on_windows(whole, *windows)
    return of_policies(found, policies) if policies else found


def _report(comparison: Comparison, asked: Mapping[str, str], ids: Sequence[str]) -> Report:
    if metric := asked.get("metric"):
        comparison = comparison.by_metric(metric)
    if current := asked.get("current"):
        comparison = comparison.with_current(current)
    report = evaluation_report(comparison, [id.partition("/")[2] for id in ids])
    classes = asked.get("classes", "")
    if classes and classes in KINDS:
        report = replace(report, classes=report.classes.filter(pl.col("by") == classes))
    return report


def _choice(site: Site, offered: Sequence[Entry]) -> Response:
    if not offered:
        said = "No results were found. gpuyard simulate --out and gpuyard evaluate --out write them."
        return site.page(TITLE, layout.paragraph(said), path=PATH)
    intro = layout.paragraph("Choose results over the same jobs; those on other clusters may be among them.")
    fields = intro + _results_field(offered, []) + _button("Compare")
    body = f'<form class="pick-form" method="get">{fields}</form>'
    return site.page(TITLE, body, path=PATH, styles=("compare.css",))


def _button(text: str) -> str:
    return f'<button type="submit" class="plain-button">{escape(text)}</button>'


def _results_field(offered: Sequence[Entry], chosen: Sequence[str]) -> str:
    """A box for each; those that are chosen first, in their order: the first one gives the cluster's name."""
    place = {id: number for number, id in enumerate(chosen)}
    boxes = "".join(
        f'<label><input type="checkbox" name="results" value="{escape(entry.id)}"'
        f"{' checked' if entry.id in chosen else ''}> {_result_name(entry)}</label>"
        for entry in sorted(offered, key=lambda entry: place.get(entry.id, len(place)))
    )
    return f'<fieldset class="choices"><legend>Results</legend>{boxes}</fieldset>'


def _result_name(entry: Entry) -> str:
    try:
        setting = read_outline(entry.path).setting
        about = f"{setting.workload} on {setting.cluster.get('name', 'clusters of its own')}"
    except InputError:
        about = "cannot be read"
    return f'{escape(entry.path.name)} <span class="remark">{escape(about)}</span>'


def _form(offered: Sequence[Entry], ids: Sequence[str], whole: Comparison, report: Report, asked: Any) -> str:
    shown = {entry.name: entry.label for entry in whole.shown}
    metrics = [name for name in whole.windows.columns[2:] if has_direction(name)]
    known = {name: metric_label(name) for name in metrics if _all_know(whole, name)}
    chosen = asked.getlist("policy") or list(shown)
    policies = "".join(
        f'<label><input type="checkbox" name="policy" value="{escape(name)}"'
        f"{' checked' if name in chosen else ''}> {escape(label)}</label>"
        for name, label in shown.items()
    )
    kinds = {"": "all", **{kind: kind for kind in KINDS}}
    fields = [
        _select("Metric", "metric", known, report.metric),
        _select("Compared with", "current", shown, report.reference or ""),
        _select("Classes", "classes", kinds, asked.get("classes", "")),
        _window_fields(len(whole.setting.windows), asked),
    ]
    return (
        '<details class="pick"><summary>Choose results, policies, metric, classes and windows</summary>'
        f'<form class="pick-form" method="get">{_results_field(offered, ids)}'
        f'<fieldset class="choices"><legend>Policies</legend>{policies}</fieldset>'
        f'<div class="toolbar">{"".join(fields)}{_button("Show")}</div></form></details>'
    )


def _all_know(comparison: Comparison, metric: str) -> bool:
    return all(comparison.knows(entry.name, metric) for entry in comparison.shown)


def _select(label: str, name: str, options: Mapping[str, str], chosen: str) -> str:
    inner = "".join(
        f'<option value="{escape(value)}"{" selected" if value == chosen else ""}>{escape(text)}</option>'
        for value, text in options.items()
    )
    return f'<label>{escape(label)} <select name="{escape(name)}">{inner}</select></label>'


def _window_fields(count: int, asked: Mapping[str, str]) -> str:
    if count < 2:
        return ""
    return "".join(
        f'<label>{label} <input type="number" name="{name}" min="1" max="{count}" '
        f'value="{escape(asked.get(name, str(usual)))}"></label>'
        for label, name, usual in (("Windows from", "first", 1), ("to", "last", count))
    )
