"""A workload's description and its fidelity card as self-contained HTML pages."""

from collections.abc import Mapping, Sequence
from typing import Any

from gpuyard.report.pages import charts, web_page
from gpuyard.report.pages.charts import Series
from gpuyard.units import duration, number, plural
from gpuyard.workload.auditing.fidelity import FidelityCard, FidelityFinding, card_facts
from gpuyard.workload.distributions import WEEKDAYS

MOST_SIZES = 16
_STEP_NAMES = {60.0: "minute", 600.0: "10 minutes", 3600.0: "hour", 21600.0: "6 hours", 86400.0: "day"}


def description_page(summary: Mapping[str, Any], spread: Mapping[str, Any]) -> str:
    """What is in a workload.

    Args:
        summary: From ``describe``.
        spread: From ``distributions``.
    """
    arrivals = spread["arrivals"]
    figures = [
        _gang_chart(summary),
        *_duration_charts(spread["durations"]),
        *_demand_charts(spread["demand"]),
    ]
    hours = (
        "hour of the day (log's own clock)"
        if arrivals["dated"]
        else "hours since the first submit, modulo 24"
    )
    figures.append(
        _count_chart("Submits by hour", [str(hour) for hour in range(24)], arrivals["by_hour"], hours)
    )
    if arrivals["by_weekday"] is not None:
        figures.append(_count_chart("Submits by day of the week", WEEKDAYS, arrivals["by_weekday"], ""))
    sections = [web_page.tiles(_facts(summary)), web_page.charts(*figures)]
    if spread["users"] is not None:
        sections.append(_user_section(spread["users"]))
    sections.append(web_page.section("Quantiles", _quantile_table(summary)))
    return web_page.page(f"Workload {summary['name']}", "What is in it", sections)


def card_page(card: FidelityCard) -> str:
    """A fidelity card."""
    counts = ", ".join(plural(card.count(severity), severity) for severity in ("warning", "note"))
    subtitle = f"Fidelity card: {card.count('serious')} serious, {counts}"
    findings = [_finding(finding) for finding in card.findings] or [web_page.paragraph("Nothing was found.")]
    sections = [
        web_page.tiles(card_facts(card)),
        web_page.charts(*_demand_charts(card.demand.model_dump())),
        web_page.section("Findings", *findings),
        web_page.section("Checks that found nothing", web_page.paragraph(", ".join(card.passed) or "none")),
    ]
    if card.skipped:
        rows = [(check.id, check.why) for check in card.skipped]
        sections.append(web_page.section("Checks not made", web_page.html_table(("check", "why"), rows)))
    if card.history:
        rows = [(step.name, _settings_text(step.settings)) for step in card.history]
        sections.append(web_page.section("How it was made", web_page.html_table(("step", "settings"), rows)))
    return web_page.page(f"Workload {card.name}", subtitle, sections)


def _settings_text(settings: Mapping[str, Any]) -> str:
    return ", ".join(f"{name} = {value}" for name, value in settings.items()) or "-"


def _finding(finding: FidelityFinding) -> str:
    details = [" | ".join(value) for value in finding.numbers.values() if isinstance(value, tuple)]
    return web_page.finding(
        finding.severity, finding.title, finding.id, [finding.meaning, finding.remedy, *details]
    )


def _facts(summary: Mapping[str, Any]) -> dict[str, str]:
    facts = {
        "jobs": f"{summary['jobs']:,}",
        "span": duration(summary["span_s"]),
        "users": f"{summary['users']:,}",
        "groups": f"{summary['groups']:,}",
        "GPU hours": number(summary["gpu_hours"]),
        "ended as": ", ".join(f"{status} {count:,}" for status, count in summary["statuses"].items()),
    }
    if summary["load"] is not None:
        facts[f"load on {summary['cluster']}"] = f"{summary['load']:.3f}"
    return facts


def _gang_chart(summary: Mapping[str, Any]) -> str:
    sizes = summary["gang_sizes"]
    shown = sorted(sizes, key=lambda size: -size["jobs"])[:MOST_SIZES]
    shown = sorted(shown, key=lambda size: float(size["gpus"]))
    jobs = [size["share_of_jobs"] for size in shown]
    work = [size["share_of_gpu_time"] or 0.0 for size in shown]
    left_out = f" (the {MOST_SIZES} commonest of {len(sizes)})" if len(sizes) > len(shown) else ""
    return charts.bar_chart(
        f"Gang sizes{left_out}",
        [f"{size['gpus']:g}" for size in shown],
        [Series("share of jobs", jobs), Series("share of GPU time", work)],
        charts.share_axis("share", max(*jobs, *work)),
        "GPUs of a job",
    )


def _duration_charts(durations: Mapping[str, Any]) -> list[str]:
    edges = durations["edges_s"]
    series = [Series("share of jobs", durations["share_of_jobs"])]
    curves = [Series("jobs", durations["quantiles_s"])]
    if durations["share_of_gpu_time"] is not None:
        series.append(Series("share of GPU time", durations["share_of_gpu_time"]))
        curves.append(Series("GPU time", durations["gpu_time_quantiles_s"]))
    x = charts.duration_axis("duration", edges[0], edges[-1])
    y = charts.share_axis("share", max(max(one.values) for one in series))
    return [
        charts.histogram("Durations", edges, series, x, y),
        charts.cdf_chart("Durations, cumulative", curves, x),
    ]


def _demand_charts(demand: Mapping[str, Any]) -> list[str]:
    count, step_s = len(demand["jobs"]), demand["step_s"]
    unit_s, unit = (86400.0, "days") if count * step_s > 3 * 86400 else (3600.0, "hours")
    x_values = [index * step_s / unit_s for index in range(count + 1)]
    x = charts.linear_axis(f"{unit} since the first submit", x_values[-1], count=8)
    x = charts.Axis(0.0, x_values[-1], x.label, tuple(tick for tick in x.ticks if tick[0] <= x_values[-1]))
    named = _STEP_NAMES.get(step_s, duration(step_s))
    of_cluster = demand["gpus"] is not None
    in_system, submitted = _held(demand["in_system"]), _held(demand["submitted"])
    usual = sorted(submitted)[int(0.95 * (len(submitted) - 1))]
    high = max(*in_system, usual, 1.1 if of_cluster else 0.0)
    y = charts.share_axis("of the GPUs", high) if of_cluster else charts.linear_axis("GPUs", high)
    series = [Series("submitted work", submitted), Series("busy if all started at submit", in_system)]
    load = charts.line_chart(
        f"Demand by {named}",
        [x_values, x_values],
        series,
        x,
        y,
        steps=True,
        limit=(1.0, "all GPUs") if of_cluster else None,
    )
    jobs = _held(demand["jobs"])
    arrivals = charts.line_chart(
        f"Jobs submitted by {named}",
        [x_values],
        [Series("jobs", jobs)],
        x,
        charts.linear_axis("jobs", max(jobs)),
        steps=True,
    )
    return [load, arrivals]


def _held(values: Sequence[float]) -> list[float]:
    """The values of steps, the last held to its end."""
    return [*values, values[-1]]


def _count_chart(title: str, labels: Sequence[str], counts: Sequence[int], x_label: str) -> str:
    axis = charts.linear_axis("jobs", max(counts))
    return charts.bar_chart(title, labels, [Series("jobs", counts)], axis, x_label)


def _user_section(users: Mapping[str, Any]) -> str:
    rows = [
        (
            entry["user"],
            f"{entry['jobs']:,}",
            _percent(entry["share_of_jobs"]),
            _percent(entry["share_of_gpu_time"]),
        )
        for entry in users["top"]
    ]
    columns = ("user", "jobs", "share of jobs", "share of GPU time")
    table = web_page.html_table(columns, rows, numbers=(1, 2, 3))
    said = f"{plural(users['users'], 'user')}."
    figures = ""
    if users["lorenz"] is not None:
        said += (
            f" Gini coefficient of GPU time over users: {users['gini']:.2f} (0 = all alike, 1 = one has all)."
        )
        shares = [index / (len(users["lorenz"]) - 1) for index in range(len(users["lorenz"]))]
        figures = charts.line_chart(
            "GPU time over users (Lorenz curve)",
            [shares, shares],
            [Series("users, the smallest first", users["lorenz"]), Series("if all were alike", shares)],
            charts.share_axis("share of users"),
            charts.share_axis("share of GPU time"),
        )
    return web_page.section(
        "Users", web_page.paragraph(said), web_page.charts(figures, f"<figure>{table}</figure>")
    )


def _quantile_table(summary: Mapping[str, Any]) -> str:
    names = ("p10", "p25", "p50", "p75", "p90", "p99", "max", "mean")
    rows = []
    for label, key in (
        ("duration", "duration_s"),
        ("gap between submits", "interarrival_s"),
        ("GPUs", "gpus"),
    ):
        if summary[key] is not None:
            shown = number if key == "gpus" else duration
            rows.append((label, *(shown(float(summary[key][name])) for name in names)))
    return web_page.html_table(("of jobs", *names), rows, numbers=range(1, len(names) + 1))


def _percent(share: float | None) -> str:
    return "-" if share is None else f"{100 * share:.1f} %"
