"""A workload's description and its fidelity card as self-contained HTML pages."""

from collections.abc import Mapping, Sequence
from typing import Any

from gpuyard.report import layout
from gpuyard.report.figures import Chart, axis, rounded, time_axis
from gpuyard.report.frame import PageMaker
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
    page = PageMaker(f"Workload {summary['name']}", "What is in it")
    page.add(layout.tiles(_facts(summary)))
    jobs = [_gang_chart(summary), *_duration_charts(spread["durations"])]
    page.section("Jobs", page.figures(jobs))
    arrivals = [*_demand_charts(spread["demand"]), *_submit_charts(spread["arrivals"])]
    page.section("Arrivals", page.figures(arrivals))
    if spread["users"] is not None:
        _add_users(page, spread["users"])
    page.section("Quantiles", _quantile_table(summary))
    return page.html()


def card_page(card: FidelityCard) -> str:
    """A fidelity card."""
    counts = ", ".join(plural(card.count(severity), severity) for severity in ("warning", "note"))
    page = PageMaker(f"Workload {card.name}", f"Fidelity card: {card.count('serious')} serious, {counts}")
    page.add(layout.tiles(card_facts(card)), page.figures(_demand_charts(card.demand.model_dump())))
    findings = [_finding(finding) for finding in card.findings] or [layout.paragraph("Nothing was found.")]
    page.section("Findings", *findings)
    page.section("Checks that found nothing", layout.paragraph(", ".join(card.passed) or "none"))
    if card.skipped:
        rows = [(check.id, check.why) for check in card.skipped]
        page.section("Checks not made", layout.text_table("Checks not made", ("check", "why"), rows))
    if card.history:
        rows = [(step.name, _settings_text(step.settings)) for step in card.history]
        page.section("How it was made", layout.text_table("How it was made", ("step", "settings"), rows))
    return page.html()


def _settings_text(settings: Mapping[str, Any]) -> str:
    return ", ".join(f"{name} = {value}" for name, value in settings.items()) or "-"


def _finding(finding: FidelityFinding) -> str:
    details = [" | ".join(value) for value in finding.numbers.values() if isinstance(value, tuple)]
    return layout.finding(
        finding.severity, finding.title, finding.id, [finding.meaning, finding.remedy, *details]
    )


def _facts(summary: Mapping[str, Any]) -> dict[str, str]:
    statuses = ", ".join(f"{status} {count:,}" for status, count in summary["statuses"].items())
    facts = {
        "jobs": f"{summary['jobs']:,}",
        "span": duration(summary["span_s"]),
        "users": f"{summary['users']:,}",
        "groups": f"{summary['groups']:,}",
        "GPU hours": number(summary["gpu_hours"]),
        "ended in the log as": statuses,
    }
    if summary["load"] is not None:
        facts[f"load on {summary['cluster']}"] = f"{summary['load']:.3f}"
    return facts


def _gang_chart(summary: Mapping[str, Any]) -> Chart:
    sizes = summary["gang_sizes"]
    shown = sorted(sizes, key=lambda size: -size["jobs"])[:MOST_SIZES]
    shown = sorted(shown, key=lambda size: float(size["gpus"]))
    left_out = f" (the {MOST_SIZES} commonest of {len(sizes)})" if len(sizes) > len(shown) else ""
    return {
        "kind": "columns",
        "title": f"Gang sizes{left_out}",
        "x": axis("GPUs of a job", "1"),
        "y": axis("share", "share"),
        "labels": [f"{size['gpus']:g}" for size in shown],
        "series": _named(
            ("share of jobs", [size["share_of_jobs"] for size in shown]),
            ("share of GPU time", [size["share_of_gpu_time"] or 0.0 for size in shown]),
        ),
    }


def _duration_charts(durations: Mapping[str, Any]) -> list[Chart]:
    edges = durations["edges_s"]
    series = _named(
        ("share of jobs", durations["share_of_jobs"]), ("share of GPU time", durations["share_of_gpu_time"])
    )
    curves = _named(("jobs", durations["quantiles_s"]), ("GPU time", durations["gpu_time_quantiles_s"]))
    x = axis("duration", "s", "log")
    shares = axis("share at most as long", "share", low=0.0, high=1.0)
    lines = [{**curve, "x": curve["y"], "y": _evenly(len(curve["y"]))} for curve in curves]
    return [
        {
            "kind": "columns",
            "title": "Durations",
            "x": x,
            "y": axis("share", "share"),
            "edges": rounded(edges),
            "series": series,
        },
        {
            "kind": "lines",
            "tells": "quantiles",
            "title": "Durations, cumulative",
            "note": "Share at most as long.",
            "x": {**x, "floor": edges[0]},
            "y": shares,
            "series": lines,
        },
    ]


def _demand_charts(demand: Mapping[str, Any]) -> list[Chart]:
    count, step_s = len(demand["jobs"]), demand["step_s"]
    places = [index * step_s for index in range(count + 1)]
    named = _STEP_NAMES.get(step_s, duration(step_s))
    of_cluster = demand["gpus"] is not None
    in_system, submitted = _held(demand["in_system"]), _held(demand["submitted"])
    usual = sorted(submitted)[int(0.95 * (len(submitted) - 1))]
    high = max(*in_system, usual, 1.1 if of_cluster else 0.0)
    load = _named(("submitted work", submitted), ("busy if all started at submit", in_system))
    label, kind = ("share of the GPUs", "share") if of_cluster else ("GPUs", "1")
    common = {
        "kind": "lines",
        "tells": "maximum",
        "steps": True,
        "x": time_axis(demand["epoch_s"], 0.0, count * step_s),
    }
    return [
        {
            **common,
            "title": f"Demand by {named}",
            "note": f"{label[0].upper()}{label[1:]}; peaks of submitted work may be cut off.",
            "y": axis(label, kind, low=0.0, high=high or 1.0),
            "levels": [{"name": "all GPUs", "value": 1.0}] if of_cluster else [],
            "series": [{**one, "x": places} for one in load],
        },
        {
            **common,
            "title": f"Jobs submitted by {named}",
            "y": axis("jobs", "1", low=0.0),
            "series": [{**one, "x": places} for one in _named(("jobs", _held(demand["jobs"])))],
        },
    ]


def _submit_charts(arrivals: Mapping[str, Any]) -> list[Chart]:
    hours = "hour of the day (log's own clock)"
    if not arrivals["dated"]:
        hours = "hours since the first submit, modulo 24"
    by_hour = _count_chart("Submits by hour", [str(hour) for hour in range(24)], arrivals["by_hour"], hours)
    if arrivals["by_weekday"] is None:
        return [by_hour]
    title = "Submits by day of the week"
    return [by_hour, _count_chart(title, WEEKDAYS, arrivals["by_weekday"], "day of the week")]


def _named(*series: tuple[str, Sequence[float] | None]) -> list[Chart]:
    """Series that are known, each with its own colour."""
    return [
        {"name": name, "colour": number, "y": rounded(values)}
        for number, (name, values) in enumerate(series, 1)
        if values is not None
    ]


def _evenly(count: int) -> list[float]:
    """Shares from none to all."""
    return [round(index / (count - 1), 6) for index in range(count)]


def _held(values: Sequence[float]) -> list[float]:
    """The values of steps, the last held to its end."""
    return [*values, values[-1]]


def _count_chart(title: str, labels: Sequence[str], counts: Sequence[int], x_label: str) -> Chart:
    return {
        "kind": "columns",
        "title": title,
        "x": axis(x_label, "1"),
        "y": axis("jobs", "1"),
        "labels": list(labels),
        "series": _named(("jobs", counts)),
    }


def _add_users(page: PageMaker, users: Mapping[str, Any]) -> None:
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
    said, charts = f"{plural(users['users'], 'user')}.", []
    if users["lorenz"] is not None:
        said += (
            f" Gini coefficient of GPU time over users: {users['gini']:.2f} (0 = all alike, 1 = one has all)."
        )
        charts.append(_lorenz_chart(users["lorenz"]))
    table = layout.text_table("Users", columns, rows, numbers=(1, 2, 3))
    page.section("Users", page.figures(charts, table), intro=said)


def _lorenz_chart(lorenz: Sequence[float]) -> Chart:
    shares = _evenly(len(lorenz))
    lines = _named(("users, the smallest first", lorenz), ("if all were alike", shares))
    return {
        "kind": "lines",
        "title": "GPU time over users (Lorenz curve)",
        "note": "Share of GPU time of so many users.",
        "x": axis("share of users", "share", low=0.0, high=1.0),
        "y": axis("share of GPU time", "share", low=0.0, high=1.0),
        "series": [{**line, "x": shares} for line in lines],
    }


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
    return layout.text_table("Quantiles", ("of jobs", *names), rows, numbers=range(1, len(names) + 1))


def _percent(share: float | None) -> str:
    return "-" if share is None else f"{100 * share:.1f} %"
