"""Workloads on a terminal: what is in one, the import report, the fidelity card, and distributions."""

from collections.abc import Mapping, Sequence
from itertools import pairwise
from os.path import commonpath, relpath
from pathlib import Path
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from gpuyard.terminal.tables import plain_table
from gpuyard.units import duration, plural
from gpuyard.workload.auditing.fidelity import SEVERITIES, FidelityCard, FidelityFinding, card_facts
from gpuyard.workload.distributions import WEEKDAYS
from gpuyard.workload.importing import Finding, ImportReport, ImportWarning
from gpuyard.workload.survey import SurveyEntry

BAR_WIDTH = 24
SPARK_WIDTH = 48
_EIGHTHS = " ▏▎▍▌▋▊▉"
_LEVELS = " ▁▂▃▄▅▆▇█"
STYLES = {"serious": "bold red", "warning": "yellow", "note": "cyan"}


def bar(share: float, width: int = BAR_WIDTH) -> str:
    """A bar of at most ``width`` columns, in eighths of a column."""
    eighths = round(max(min(share, 1.0), 0.0) * width * 8)
    full, rest = divmod(eighths, 8)
    return "█" * full + (_EIGHTHS[rest] if rest else "")


def sparkline(values: Sequence[float]) -> str:
    """One column a value, as high as its share of the largest."""
    largest = max(values, default=0)
    if not largest:
        return _LEVELS[0] * len(values)
    return "".join(_LEVELS[0 if value <= 0 else max(round(value / largest * 8), 1)] for value in values)


def description_tables(summary: Mapping[str, Any]) -> Group:
    """What is in a workload: facts, quantiles and the mix of gang sizes."""
    return Group(_facts(summary), "", _quantile_table(summary), "", _gang_table(summary))


def _facts(summary: Mapping[str, Any]) -> Table:
    table = Table(box=None, show_header=False, pad_edge=False)
    load = summary["load"]
    share = summary["estimates"]["jobs"]
    ratio = summary["estimates"]["median_estimate_over_duration"]
    facts = {
        "workload": summary["name"],
        "jobs": f"{summary['jobs']:,}",
        "span": duration(summary["span_s"]),
        "users, groups": f"{summary['users']:,}, {summary['groups']:,}",
        "GPU hours": f"{summary['gpu_hours']:,.1f}",
        "CPU-only jobs": f"{summary['cpu_only_jobs']:,}",
        "shared-GPU jobs": f"{summary['shared_gpu_jobs']:,}",
        "load": "give --cluster to see it"
        if summary["cluster"] is None
        else f"{'-' if load is None else f'{load:.3f}'} on {summary['cluster']}",
        "estimates": f"{share:,} jobs, median estimate / duration {ratio:.2f}" if share else "none",
        "ended in the log as": ", ".join(
            f"{status} {count:,}" for status, count in summary["statuses"].items()
        ),
    }
    for name, value in facts.items():
        table.add_row(Text(name, style="bold"), Text(value))
    return table


def _quantile_table(summary: Mapping[str, Any]) -> Table:
    rows = {"duration": "duration_s", "gap between submits": "interarrival_s", "GPUs": "gpus"}
    names = ("p10", "p50", "p90", "p99", "max", "mean")
    table = plain_table("of jobs", *names, right=range(1, 7))
    for label, key in rows.items():
        if summary[key] is not None:
            shown = _quantile if key == "gpus" else _short_duration
            table.add_row(label, *(shown(summary[key][name]) for name in names))
    return table


def _quantile(value: float) -> str:
    return f"{value:.3g}"


def _short_duration(value: float) -> str:
    return duration(value, short=True)


def _gang_table(summary: Mapping[str, Any]) -> Table:
    table = plain_table("GPUs of a job", "jobs", "share of jobs", "share of GPU time", right=range(4))
    sizes = summary["gang_sizes"]
    shown = sizes if len(sizes) <= 16 else sorted(sizes, key=lambda size: -size["jobs"])[:15]
    for size in sorted(shown, key=lambda size: float(size["gpus"])):
        shares = (
            "-" if size[key] is None else f"{100 * size[key]:.1f} %"
            for key in ("share_of_jobs", "share_of_gpu_time")
        )
        table.add_row(f"{size['gpus']:g}", f"{size['jobs']:,}", *shares)
    if len(shown) < len(sizes):
        table.add_row("others", f"{sum(s['jobs'] for s in sizes) - sum(s['jobs'] for s in shown):,}", "", "")
    return table


def import_table(report: ImportReport) -> RenderableType:
    """What became of the rows of an import."""
    table = plain_table("rows", "what became of them", "first at", right=(0,))
    table.add_row(f"{report.rows_read:,}", "read", "")
    table.add_row(f"{report.jobs:,}", "jobs", "")
    if report.merged:
        table.add_row(f"{report.merged:,}", "merged into another row's job", "")
    for label, style, findings in (
        ("rejected", "yellow", report.rejected),
        ("repaired", "cyan", report.repaired),
    ):
        for finding in findings:
            table.add_row(
                f"{finding.rows:,}", Text(f"{label}: {finding.reason}", style=style), _places(finding)
            )
    heading = f"format {report.format}: {', '.join(report.files)}"
    assumed = [Text(f"Assumed: {text}.", style="dim") for text in report.assumed]
    if report.not_modelled:
        assumed.append(Text(f"Not modelled: {'; '.join(report.not_modelled)}.", style="dim"))
    warnings = [part for warning in report.warnings for part in (Text(""), _warning(warning))]
    return Group(Text(heading), "", table, *([Text(""), *assumed] if assumed else []), *warnings)


def _warning(warning: ImportWarning) -> Text:
    return Text.assemble((f"WARNING: {warning.text}.", "bold red"), f"\nWhat to do: {warning.remedy}.")


def _places(finding: Finding) -> Text:
    return Text(", ".join(finding.first[:2]) + (", ..." if finding.rows > 2 else ""), style="dim")


def card_table(card: FidelityCard) -> RenderableType:
    """A fidelity card: facts, findings with what they mean and what to do, and what was not looked at."""
    facts = Table(box=None, show_header=False, pad_edge=False)
    facts.add_row(Text("workload", style="bold"), Text(card.name))
    for name, value in card_facts(card).items():
        facts.add_row(Text(name, style="bold"), Text(value))
    facts.add_row(Text("demand over time", style="bold"), Text(sparkline(_coarse(card.demand.in_system))))
    findings: list[RenderableType] = [part for finding in card.findings for part in _finding(finding)]
    counts = ", ".join(f"{card.count(s)} {s}" for s in SEVERITIES)
    ended = f"{plural(len(card.findings), 'finding')} ({counts}); {len(card.passed)} checks found nothing."
    skipped = {check.why for check in card.skipped}
    missing = [Text(f"Not looked at: {why}.", style="dim") for why in sorted(skipped)]
    return Group(facts, "", *findings, Text(ended), *missing)


def _finding(finding: FidelityFinding) -> list[RenderableType]:
    heading = Text.assemble((finding.severity.upper(), STYLES[finding.severity]), f"  {finding.title}")
    grid = Table.grid(padding=(0, 1))
    grid.add_column(width=2)
    grid.add_column()
    grid.add_row("", Text(finding.meaning, style="dim"))
    grid.add_row("", Text(finding.remedy))
    for value in finding.numbers.values():
        if isinstance(value, tuple):
            grid.add_row("", Text("; ".join(value), style="dim"))
    grid.add_row("", Text(finding.id, style="dim italic"))
    return [heading, grid, Text("")]


def _coarse(values: Sequence[float], columns: int = SPARK_WIDTH) -> list[float]:
    """At most ``columns`` values, each the largest of its part."""
    if len(values) <= columns:
        return list(values)
    cuts = [round(index * len(values) / columns) for index in range(columns + 1)]
    return [max(values[start:end]) for start, end in pairwise(cuts)]


def distribution_tables(spread: Mapping[str, Any]) -> RenderableType:
    """Durations, arrivals and users as tables with bars."""
    parts: list[RenderableType] = [_duration_table(spread["durations"]), "", _arrival_table(spread)]
    if spread["users"] is not None:
        parts += ["", _user_table(spread["users"])]
    return Group(*parts)


def _duration_table(durations: Mapping[str, Any]) -> Table:
    """Two bins of the histogram a line, which is half a decade."""
    table = plain_table(
        "duration from", "jobs", "share of jobs", "", "share of GPU time", "", right=(0, 1, 2, 4)
    )
    shares = durations["share_of_jobs"]
    work = durations["share_of_gpu_time"] or [0.0] * len(shares)
    lines = [
        (
            durations["edges_s"][at],
            *(sum(column[at : at + 2]) for column in (durations["jobs"], shares, work)),
        )
        for at in range(0, len(shares), 2)
    ]
    widest = max(max(share, used) for _, _, share, used in lines)
    for start_s, jobs, share, used in lines:
        table.add_row(
            duration(start_s),
            f"{jobs:,}",
            f"{100 * share:.1f} %",
            Text(bar(share / widest, 16), style="blue"),
            f"{100 * used:.1f} %",
            Text(bar(used / widest, 16), style="yellow"),
        )
    return table


def _arrival_table(spread: Mapping[str, Any]) -> Table:
    table = Table(box=None, show_header=False, pad_edge=False)
    arrivals, demand = spread["arrivals"], spread["demand"]
    clock = "hour 0 to 23" if arrivals["dated"] else "hours since the first submit, modulo 24"
    rows = [("submits by hour", sparkline(arrivals["by_hour"]), clock)]
    if arrivals["by_weekday"] is not None:
        week = f"{WEEKDAYS[0]} to {WEEKDAYS[-1]}"
        rows.append(("submits by weekday", sparkline(arrivals["by_weekday"]), week))
    step = duration(demand["step_s"] * max(len(demand["jobs"]) / SPARK_WIDTH, 1))
    rows.append(("submits over time", sparkline(_coarse(demand["jobs"])), f"about {step} a column"))
    rows.append(
        ("demand over time", sparkline(_coarse(demand["in_system"])), "GPUs if all started at submit")
    )
    for name, line, note in rows:
        table.add_row(Text(name, style="bold"), Text(line, style="blue"), Text(note, style="dim"))
    return table


def _user_table(users: Mapping[str, Any]) -> RenderableType:
    table = plain_table("user", "jobs", "share of jobs", "share of GPU time", "", right=(1, 2, 3))
    for entry in users["top"]:
        used = entry["share_of_gpu_time"]
        table.add_row(
            Text(entry["user"]),
            f"{entry['jobs']:,}",
            f"{100 * entry['share_of_jobs']:.1f} %",
            "-" if used is None else f"{100 * used:.1f} %",
            Text(bar(used or 0.0), style="yellow"),
        )
    said = f"{plural(users['users'], 'user')}"
    if users["gini"] is not None:
        said += f"; Gini coefficient of GPU time {users['gini']:.2f} (0 = all alike, 1 = one has all)"
    return Group(table, Text(said, style="dim"))


def preset_table(named: Sequence[tuple[str, str]], clusters: Mapping[str, str | None]) -> Table:
    """Built-in workloads with the clusters they are meant for."""
    table = plain_table("workload", "cluster", "what it is")
    table.columns[0].no_wrap = table.columns[1].no_wrap = True
    for name, what in named:
        table.add_row(Text(name, style="bold"), Text(clusters[name] or "drawn"), Text(what))
    return table


SURVEY_COLUMNS = (
    *("file", "format", "rows", "jobs", "rejected", "span, d", "GPUs p50/p90/max"),
    *("run time p50/p90/p99, s", "GPU-hours", "note"),
)


def survey_cells(entry: SurveyEntry) -> list[str]:
    """A file of jobs as a row of ``SURVEY_COLUMNS``."""
    figures, note = entry.figures, entry.reason or ""
    if figures is None:
        return [entry.file, entry.format or "", *["-"] * 7, f"refused: {note}"]
    notes = [f"with {', '.join(entry.companions)}"] if entry.companions else []
    notes += ["read leniently"] if entry.lenient else []
    return [
        entry.file,
        entry.format or "",
        *(f"{count:,}" for count in (figures.rows_read, figures.jobs, figures.rejected)),
        f"{figures.span_s / 86_400:,.1f}",
        "/".join(f"{value:,g}" for value in figures.gpus.values()),
        "/".join(f"{value:,.0f}" for value in figures.duration_s.values()),
        f"{figures.gpu_hours:,.0f}",
        "; ".join(notes),
    ]


def survey_table(entries: Sequence[SurveyEntry]) -> RenderableType:
    """Files of jobs with their figures; below them notes on them, those that are refused, and other files."""
    folder = commonpath([str(Path(entry.file).parent) for entry in entries]) if len(entries) > 1 else ""
    folder = "" if folder == "." else folder
    names = {entry.file: relpath(entry.file, folder) if folder else entry.file for entry in entries}
    table = plain_table(*(name.replace(" p50", "\np50") for name in SURVEY_COLUMNS[:-1]), right=range(2, 9))
    for column in table.columns:
        column.no_wrap, column.overflow = False, "fold"
    table.columns[0].min_width = min(max(map(len, names.values())), 8)
    notes: list[RenderableType] = []
    refused: list[RenderableType] = []
    others = plain_table("not a workload", "why")
    for entry in entries:
        name, *cells, note = survey_cells(entry)
        heading = (f"{names[name]} ({entry.format}): ", "bold")
        if entry.figures is not None:
            table.add_row(*map(Text, (names[name], *cells)))
            notes += [Text.assemble(heading, note)] if note else []
        elif entry.format is not None:
            refused.append(Text.assemble(heading, entry.reason or ""))
        else:
            others.add_row(Text(names[name]), Text(entry.reason or "", style="dim"))
    blocks: list[list[RenderableType]] = [[Text(f"files below {folder}", style="dim")]] if folder else []
    blocks += [[table]] if table.rows else []
    blocks += [[Text("notes", style="bold"), *notes]] if notes else []
    blocks += [[Text("refused", style="bold"), *refused]] if refused else []
    blocks += [[others]] if others.rows else []
    return Group(*(part for place, block in enumerate(blocks) for part in ([""] if place else []) + block))


def survey_markdown(entries: Sequence[SurveyEntry]) -> str:
    """The same as Markdown."""
    lines = [_markdown_row(SURVEY_COLUMNS), "|---|---|--:|--:|--:|--:|--:|--:|--:|---|"]
    lines += [_markdown_row(survey_cells(entry)) for entry in entries if entry.format is not None]
    others = [f"* {entry.file}: {entry.reason}" for entry in entries if entry.format is None]
    return "\n".join([*lines, *(["", "Not workloads:", "", *others] if others else [])])


def _markdown_row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |"
