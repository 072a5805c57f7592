"""The page as one file: parts, data, style and script, and a policy that forbids the network."""

import base64
import hashlib
import json
from collections.abc import Mapping, Sequence
from html import escape
from importlib.resources import files
from string import Template
from typing import Any

import gpuyard
from gpuyard.report import layout
from gpuyard.report.figures import (
    Chart,
    Palette,
    cdf_charts,
    change_chart,
    class_charts,
    metric_chart,
    time_charts,
    window_chart,
)
from gpuyard.report.gantt import gantt_data
from gpuyard.report.model import Report
from gpuyard.report.tables import table_files
from gpuyard.report.training import training_charts
from gpuyard.runs.directory import Run
from gpuyard.units import metric_label

SCRIPTS = (
    *("format", "figures", "rows", "lines", "tables", "packing", "bars", "canvas", "gantt", "details"),
    "start",
)
"""Files of the page's script, in the order in which they are put together."""
FAIRNESS = {
    "jain_fairness": ("Jain's index of users", "1 if all users' mean bounded slowdowns are alike."),
    "finish_time_fairness_p95": (
        "Finish-time fairness, 95th percentile",
        "Completion time over that with an equal share of time for each user present: 1 or less is fair.",
    ),
    "energy_kwh": ("Energy", "Of the whole cluster over the whole time, kWh."),
    "energy_cost": ("Cost of energy", "At the price that was given."),
}
_SECTIONS = {
    "comparison": "Policies",
    "jobs": "Jobs",
    "time": "Over time",
    "gantt": "Cluster",
    "classes": "Who gains",
    "fairness": "Fairness",
    "training": "Training",
    "setting": "Setting",
}


def page(report: Report, runs: Sequence[Run]) -> str:
    """The whole page."""
    palette = Palette.of(report)
    answer_chart = change_chart(report, palette)
    charts: dict[str, list[Chart | None]] = {
        "comparison": [window_chart(report, palette)],
        "jobs": list(cdf_charts(report, palette)),
        "time": list(time_charts(report, palette)),
        "classes": list(class_charts(report, palette)),
        "fairness": [
            metric_chart(report, metric, *told)
            for metric, told in FAIRNESS.items()
            if layout.tells_apart(report, metric)
        ],
        "training": list(training_charts(runs)),
    }
    gantt = gantt_data(report, _subject_first(report, palette))
    sections = _sections(report, palette, charts, gantt is not None)
    body = [
        layout.answer_section(report.answer, layout.figure(answer_chart), weak=report.weak),
        *sections.values(),
    ]
    every = [answer_chart, *(chart for some in charts.values() for chart in some)]
    data = {
        "charts": {chart["id"]: chart for chart in every if chart is not None},
        "gantt": gantt[0] if gantt else None,
        "tables": table_files(report),
    }
    links = "".join(f'<a href="#{key}">{_SECTIONS[key]}</a>' for key, html in sections.items() if html)
    return _assembled(report, links, "\n".join(filter(None, body)), data, gantt[1] if gantt else {})


def _subject_first(report: Report, palette: Palette) -> list[str]:
    """Policies of charts, in the order in which they are offered where one shows at a time."""
    return sorted(palette.colours, key=lambda name: name != report.subject)


def _sections(
    report: Report, palette: Palette, charts: Mapping[str, Sequence[Chart | None]], gantt: bool
) -> dict[str, str]:
    shown = {key: layout.figures(some) for key, some in charts.items()}
    table = layout.comparison_table(report, palette)
    losses = layout.losses_table(report.losses, report.losses_text) if shown["classes"] else ""
    return {
        "comparison": layout.section("comparison", "Policies compared", table, shown["comparison"]),
        "jobs": layout.section("jobs", "How jobs fared", shown["jobs"]),
        "time": layout.section("time", "Over time", shown["time"]),
        "gantt": resource("gantt.html").replace("$part", escape(report.part_text)) if gantt else "",
        "classes": layout.section("classes", "Who gains, who loses", losses, shown["classes"]),
        "fairness": layout.section("fairness", "Fairness and energy", shown["fairness"]),
        "training": layout.section("training", "Training", shown["training"]),
        "setting": layout.section("setting", "What was compared", layout.facts_list(_facts(report))),
    }


def _facts(report: Report) -> dict[str, str]:
    way = "lower is better" if report.lower_is_better else "higher is better"
    facts = {**report.facts, "decided by": f"{metric_label(report.metric)}, {way}"}
    if report.reference is not None:
        facts["reference"] = f"{report.reference}, {report.reference_text}"
    return facts


def _assembled(report: Report, links: str, body: str, data: Any, packed: Mapping[str, str]) -> str:
    style = resource("style.css")
    script = '"use strict";(() => {\n' + "\n".join(resource(f"{name}.js") for name in SCRIPTS) + "\n})();"
    blocks = "".join(
        f'<script type="text/plain" id="packed-{escape(name)}">{text}</script>\n'
        for name, text in packed.items()
    )
    return Template(resource("page.html")).substitute(
        title=escape(report.title),
        subtitle=escape(report.subtitle),
        policy=f"default-src 'none'; script-src {_digest(script)}; style-src {_digest(style)}",
        style=style,
        links=links,
        body=body,
        data=script_json(data),
        script=script,
        packed=blocks,
        version=escape(gpuyard.__version__),
    )


def script_json(document: Any) -> str:
    """JSON that may stand inside a script element: nothing in it can end the element or open a comment."""
    text = json.dumps(document, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    for letter in "<>&\u2028\u2029":
        text = text.replace(letter, f"\\u{ord(letter):04x}")
    return text


def resource(name: str) -> str:
    """A file of the folder ``page``."""
    return files("gpuyard.report").joinpath("assets", name).read_text(encoding="utf-8")


def _digest(text: str) -> str:
    """How a content security policy names an inline script or style."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"
