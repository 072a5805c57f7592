"""The page of a report: its sections, and what they show."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

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
from gpuyard.report.frame import framed, resource
from gpuyard.report.losers import extremes
from gpuyard.report.model import Report
from gpuyard.report.pareto import pareto_chart
from gpuyard.report.schedules.gantt import gantt_data
from gpuyard.report.tables import table_files
from gpuyard.report.training import training_charts
from gpuyard.runs.directory import Run
from gpuyard.units import metric_label

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


@dataclass(frozen=True)
class Parts:
    """What a page about a report shows, in whichever frame.

    Attributes:
        links: Names of sections by their ids.
        body: HTML.
        data: What its script draws: ``charts``, ``gantt`` and ``tables``.
        packed: Blocks of schedules by name, for the chart of the cluster.
    """

    links: Mapping[str, str]
    body: str
    data: Mapping[str, Any]
    packed: Mapping[str, str] | None


def page(report: Report, runs: Sequence[Run]) -> str:
    """The whole page."""
    parts = parts_of(report, runs)
    return framed(report.title, report.subtitle, parts.links, parts.body, parts.data, parts.packed)


def parts_of(report: Report, runs: Sequence[Run], *, gantt: bool = True, pareto: bool = False) -> Parts:
    """What a page shows.

    Args:
        report: What it is about.
        runs: Training runs whose curves are shown.
        gantt: Also draw the cluster, where there are schedules.
        pareto: Also draw two metrics against each other.
    """
    palette = Palette.of(report)
    answer_chart = change_chart(report, palette)
    beside = [pareto_chart(report, palette)] if pareto else []
    charts: dict[str, list[Chart | None]] = {
        "comparison": [*beside, window_chart(report, palette)],
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
    drawn = gantt_data(report, _subject_first(report, palette)) if gantt else None
    sections = _sections(report, palette, charts, drawn is not None)
    body = [
        layout.answer_section(report.answer, layout.figure(answer_chart), _who(report), weak=report.weak),
        *sections.values(),
    ]
    every = [answer_chart, *(chart for some in charts.values() for chart in some)]
    data = {
        "charts": {chart["id"]: chart for chart in every if chart is not None},
        "gantt": drawn[0] if drawn else None,
        "tables": table_files(report),
    }
    links = {key: _SECTIONS[key] for key, html in sections.items() if html}
    return Parts(links, "\n".join(filter(None, body)), data, drawn[1] if drawn else None)


def _who(report: Report) -> str:
    """Who gains and who loses most, of the policies that the answer is about."""
    if not report.other:
        return ""
    where = "in windows, " if report.has_intervals else ""
    said = f"{where}under {report.label(report.subject)}, compared with {report.label(report.other)}"
    return layout.who_table(extremes(report.classes, report.subject, report.other), said)


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
