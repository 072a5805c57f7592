"""Parts of the page as HTML. Every text goes through ``escape``."""

from collections.abc import Iterable, Mapping, Sequence
from html import escape
from typing import Any

from gpuyard.evaluate.bootstrap import Difference, Verdict
from gpuyard.evaluate.comparison import Loser
from gpuyard.report.figures import Palette
from gpuyard.report.losers import Shift
from gpuyard.report.model import Answer, Report, Standing, Tile
from gpuyard.report.words import interval, percent
from gpuyard.units import kept_together, metric_label, metric_text

COLUMNS = (
    *("mean_bounded_slowdown", "mean_wait_s", "p99_wait_s", "max_wait_s", "mean_jct_s", "gpu_utilization"),
    *("jain_fairness", "finish_time_fairness_p95", "energy_kwh", "return"),
)
"""Metrics of the comparison table, those that are known; the deciding one comes first."""
MOST_LOSSES = 40
LONG_VALUE = 20
"""Characters from which on a tile's value is set smaller."""
CLASS_NAMES = {
    "gpus": "jobs of {} GPUs",
    "priority": "priority {}",
    "group": "group {}",
    "user": "user {}",
    "partition": "partition {}",
    "runtime": "jobs that run {}",
}
ROLES = {
    "given": "asked for",
    "recorded": "what happened",
    "reference": "reference",
    "rival": "best beforehand",
    "hindsight": "best in hindsight",
    "preempting": "preempts",
}
"""Badges of policies: why they are there."""
VERDICT_SIGNS = {"better": "▲", "worse": "▼", "tie": "≈", "reference": "◆", "one run": ""}


def breakable(name: str) -> str:
    """A text with names of policies that may go on in a new line after their parts."""
    return unbroken(name).replace("+", "+<wbr>").replace("/", "/<wbr>")


def unbroken(text: str) -> str:
    """A text, as HTML, whose numbers do not part from their percent signs and units."""
    return kept_together(escape(text), "&nbsp;")


def section(id: str, heading: str, *parts: str, intro: str = "") -> str:
    """A part of the page with its heading; empty if there is nothing in it."""
    body = "".join(parts)
    if not body:
        return ""
    said = f'<p class="intro">{escape(intro)}</p>' if intro else ""
    name = escape(id)
    title = f'<h2 id="{name}-title">{escape(heading)}</h2>'
    return f'<section id="{name}" aria-labelledby="{name}-title">{title}{said}{body}</section>'


def answer_section(answer: Answer, chart: str, who: str = "", *, weak: bool = False) -> str:
    """The first screen: the answer, its figures, who gains and loses, and the chart."""
    tiles = "".join(_tile(tile, weak) for tile in answer.figures)
    words = "".join(f"<p>{unbroken(text)}</p>" for text in answer.words)
    more = f"<details class='words' open><summary>In words</summary>{words}</details>" if words else ""
    return (
        '<section id="answer" aria-labelledby="answer-title">'
        f'<h2 id="answer-title" class="answer">{breakable(answer.sentence)}</h2>'
        f'<p class="sure">{unbroken(answer.sure)}</p>'
        f'<dl class="tiles">{tiles}</dl>{who}{chart}{more}</section>'
    )


def _tile(tile: Tile, weak: bool) -> str:
    colour = verdict_class(tile.verdict, weak)
    noted = " <small>weak</small>" if colour == "weak" else ""
    change = f'<dd class="change {colour}">{unbroken(tile.change)}{noted}</dd>' if tile.change else ""
    value = unbroken(tile.value)
    if not tile.change and tile.verdict != "one run":
        value = f'<span class="{colour}">{value}{noted}</span>'
    remark = f'<dd class="remark">{unbroken(tile.remark)}</dd>' if tile.remark else ""
    return f"<div><dt>{escape(tile.name)}</dt><dd>{value}</dd>{change}{remark}</div>"


def verdict_class(verdict: Verdict, weak: bool) -> str:
    """The class that colours a difference; where intervals are weak, none is called better or worse."""
    return "weak" if weak and verdict in ("better", "worse", "tie") else verdict.replace(" ", "-")


def figure(chart: Mapping[str, Any] | None) -> str:
    """The place of a chart, which the script fills."""
    if chart is None:
        return ""
    name, note = escape(chart["id"]), escape(chart.get("note", ""))
    return (
        f'<figure id="figure-{name}" data-chart="{name}"><figcaption><h3>{escape(chart["title"])}</h3>'
        f'<p class="note">{note}</p></figcaption></figure>'
    )


def figures(charts: Sequence[Mapping[str, Any] | None], *beside: str) -> str:
    """Charts side by side, as far as there is room, with other HTML after them."""
    shown = "".join([*map(figure, charts), *(f"<figure>{html}</figure>" for html in beside)])
    return f'<div class="figures">{shown}</div>' if shown else ""


def tiles(facts: Mapping[str, str]) -> str:
    """Names and values in a row of boxes."""
    boxes = []
    for name, value in facts.items():
        mark = ' class="long"' if len(value) > LONG_VALUE else ""
        boxes.append(f"<div><dt>{escape(name)}</dt><dd{mark}>{escape(value)}</dd></div>")
    return f'<dl class="tiles">{"".join(boxes)}</dl>'


def paragraph(text: str) -> str:
    """A text beside charts and tables."""
    return f'<p class="intro">{escape(text)}</p>'


def text_table(
    label: str, columns: Sequence[str], rows: Iterable[Sequence[str]], *, numbers: Sequence[int] = ()
) -> str:
    """A table of texts, which ``label`` names; columns in ``numbers`` are aligned to the right."""
    heads = "".join(
        f'<th scope="col" data-kind="{"number" if index in numbers else "text"}">{escape(column)}</th>'
        for index, column in enumerate(columns)
    )
    body = "".join(f"<tr>{_text_cells(row, numbers)}</tr>" for row in rows)
    table = f"<table><thead><tr>{heads}</tr></thead><tbody>{body}</tbody></table>"
    return f"{_wide(label)}{table}</div>"


def _text_cells(row: Sequence[str], numbers: Sequence[int]) -> str:
    return "".join(
        f'<td class="number">{escape(text)}</td>' if index in numbers else f"<td>{escape(text)}</td>"
        for index, text in enumerate(row)
    )


def finding(severity: str, title: str, id: str, lines: Iterable[str]) -> str:
    """A box with a coloured severity (serious, warning or note)."""
    said = "".join(f"<p>{escape(line)}</p>" for line in lines)
    return (
        f'<div class="finding {escape(severity)}-finding">'
        f'<h3><span class="severity">{escape(severity)}</span>{escape(title)}</h3>'
        f'{said}<p class="note"><code>{escape(id)}</code></p></div>'
    )


def file_button(name: str) -> str:
    """What downloads rows that the page holds under this name."""
    return f'<button type="button" data-csv="{escape(name)}">{escape(name)}.csv</button>'


def comparison_table(report: Report, palette: Palette) -> str:
    """A row a policy, with differences to the reference and verdicts; the script makes it sortable."""
    known = table_metrics(report)
    heads = [_head("policy", "text")]
    if report.has_intervals:
        heads.append(_head("verdict", "text"))
    if report.reference is not None and len(report.standings) > 1:
        heads.append(_head(f"against {report.label(report.reference)}", "number"))
    order = "ascending" if report.lower_is_better else "descending"
    heads += [
        _head(metric_label(metric), "number", order if metric == report.metric else "") for metric in known
    ]
    standings = sorted(report.standings, key=lambda one: one.kind != "recorded")
    rows = "".join(_row(one, known, report, palette) for one in standings)
    caption = f"Policies by {metric_label(report.metric)}, the best first."
    if standings[0].kind == "recorded":
        caption += " What your scheduler did stands above them."
    if report.has_intervals:
        caption += " Means over all windows; differences are to the reference, with 95 % intervals."
    if report.weak:
        caption += " The intervals are weak: no verdict is sure."
    return (
        f'<p class="intro">{escape(caption)}</p>{_wide("Comparison of policies")}'
        '<table class="sortable" id="policies">'
        f'<caption class="visually-hidden">{escape(caption)}</caption>'
        f"<thead><tr>{''.join(heads)}</tr></thead>"
        f"<tbody>{rows}</tbody></table></div>{_csv_button('policies', 'Policies compared')}"
    )


def table_metrics(report: Report) -> list[str]:
    """Metrics of the comparison table, the deciding one first."""
    return [
        metric
        for metric in dict.fromkeys((report.metric, *COLUMNS))
        if metric == report.metric or tells_apart(report, metric)
    ]


def _csv_button(table: str, title: str) -> str:
    """What downloads a table; the script makes the file out of the values in it."""
    return (
        f'<p class="foot"><button type="button" data-csv="{escape(table)}" '
        f'aria-label="Download “{escape(title)}” as CSV">CSV</button></p>'
    )


def tells_apart(report: Report, metric: str) -> bool:
    """Whether a metric is known, and tells anything: with one user only, all is fair."""
    known = {one.values[metric] for one in report.standings if one.values.get(metric) is not None}
    return bool(known) and not (metric == "jain_fairness" and known == {1.0})


def _head(text: str, kind: str, order: str = "") -> str:
    sort = f' aria-sort="{order}"' if order else ""
    return f'<th scope="col" data-kind="{kind}"{sort}><button type="button">{escape(text)}</button></th>'


def _row(one: Standing, metrics: Sequence[str], report: Report, palette: Palette) -> str:
    colour = palette.colours.get(one.name)
    mark = f'<i class="swatch series-{colour}"></i>' if colour else '<i class="swatch"></i>'
    badges = [one.kind] if one.kind == "learned" else []
    badges += [ROLES[one.role]] if one.role in ROLES else []
    kind = "".join(
        f' <span class="kind {badge.replace(" ", "-")}">{escape(badge)}</span>' for badge in badges
    )
    note = f'<span class="remark">{escape(one.note)}</span>' if one.note else ""
    name = f'<th scope="row" title="{escape(one.name)}">{mark}{breakable(one.label)}{kind}{note}</th>'
    change = one.changes.get(report.metric)
    cells = [name]
    if report.has_intervals:
        broken = '<span class="remark worse">breaks limits on waits</span>' if one.breaks_limits else ""
        cells.append(f"<td>{_verdict(change, report.weak)}{broken}</td>")
    if report.reference is not None and len(report.standings) > 1:
        cells.append(_change_cell(change))
    cells += [_value_cell(one, metric, report) for metric in metrics]
    subject = ' class="subject"' if one.name == report.subject else ""
    return f"<tr{subject}>{''.join(cells)}</tr>"


def _verdict(change: Difference | None, weak: bool) -> str:
    if change is None:
        return ""
    name = verdict_class(change.verdict, weak)
    unclear = name == "weak" and change.ratio != 0.0
    sign, text = ("?", "unclear") if unclear else (VERDICT_SIGNS[change.verdict], change.verdict)
    return f'<span class="verdict {name}"><span aria-hidden="true">{sign}</span> {escape(text)}</span>'


def _change_cell(change: Difference | None) -> str:
    if change is not None and change.verdict == "reference":
        return '<td class="number" data-value="0">reference</td>'
    if change is None or not change.is_known:
        return '<td class="number">-</td>'
    span = interval(change)
    small = f'<span class="remark">{unbroken(span)}</span>' if span else ""
    return f'<td class="number" data-value="{change.ratio!r}">{unbroken(percent(change.ratio))}{small}</td>'


def _value_cell(one: Standing, metric: str, report: Report) -> str:
    value, change = one.values.get(metric), one.changes.get(metric)
    if value is None:
        return '<td class="number">-</td>'
    small = ""
    if metric != report.metric and change is not None and change.is_known and change.verdict != "reference":
        name = verdict_class(change.verdict, report.weak)
        hint = f' title="95 % interval {escape(interval(change))}"' if change.has_interval else ""
        small = f'<span class="remark {name}"{hint}>{unbroken(percent(change.ratio))}</span>'
    text = escape(metric_text(metric, value, short=True))
    return f'<td class="number" data-value="{float(value)!r}">{text}{small}</td>'


def who_table(rows: Sequence[tuple[str, Shift | None, Shift | None]], said: str) -> str:
    """Who gains most and who loses most, a row a kind of class; empty if nobody does."""
    if not rows:
        return ""
    body = "".join(
        f'<tr><th scope="row">by {escape(title)}</th>'
        f"{_shift_cell(gain, 'better')}{_shift_cell(loss, 'worse')}</tr>"
        for title, gain, loss in rows
    )
    heads = "".join(f'<th scope="col">{text}</th>' for text in ("", "gains most", "loses most"))
    return (
        f'<div id="who"><h3>Who gains, who loses</h3><p class="note">Waits {escape(said)}; '
        f'<a href="#classes">all classes</a></p>{_wide("Who gains, who loses")}'
        f"<table><thead><tr>{heads}</tr></thead><tbody>{body}</tbody></table></div></div>"
    )


def _shift_cell(shift: Shift | None, verdict: str) -> str:
    if shift is None:
        return '<td class="muted">nobody</td>'
    name = CLASS_NAMES.get(shift.by, f"{shift.by} {{}}").format(shift.name or "(none)")
    name = "jobs of 1 GPU" if (shift.by, shift.name) == ("gpus", "1") else name
    before, now = (metric_text(shift.metric, value) for value in (shift.before, shift.now))
    told = unbroken(f"{metric_label(shift.metric)} {before} → {now}")
    return (
        f'<td>{unbroken(name)}: <span class="{verdict}">{unbroken(percent(shift.ratio))}</span>'
        f'<span class="remark">{told}</span></td>'
    )


def losses_table(losses: Sequence[Loser], said: str) -> str:
    """Who fares worse, the largest rise first."""
    if not said:
        return ""
    if not losses:
        return f'<h3>Who loses</h3><p class="intro">No class of jobs fares worse {escape(said)}.</p>'
    rows = "".join(map(_loss_row, losses[:MOST_LOSSES]))
    more = (
        f"<p class='intro'>{len(losses) - MOST_LOSSES} more are left out.</p>"
        if len(losses) > MOST_LOSSES
        else ""
    )
    heads = "".join(
        _head(text, kind)
        for text, kind in (
            *(("class", "text"), ("jobs", "number"), ("metric", "text"), ("before", "number")),
            *(("now", "number"), ("change", "number")),
        )
    )
    return (
        f'<h3>Who loses</h3><p class="intro">Classes of jobs that fare worse {escape(said)}.</p>'
        f'{_wide("Who loses")}<table class="sortable" id="losses"><thead><tr>{heads}</tr></thead>'
        f"<tbody>{rows}</tbody></table></div>{more}{_csv_button('losses', 'Who loses')}"
    )


def _loss_row(loss: Loser) -> str:
    def value(number: float) -> str:
        text = metric_text(loss.metric, number, short=True)
        return f'<td class="number" data-value="{number!r}">{escape(text)}</td>'

    name = escape(CLASS_NAMES.get(loss.by, f"{loss.by} {{}}").format(loss.name or "(none)"))
    return (
        f'<tr><th scope="row">{name}</th><td class="number" data-value="{loss.jobs}">{loss.jobs:,}</td>'
        f"<td>{escape(metric_label(loss.metric))}</td>{value(loss.difference.other)}{value(loss.difference.own)}"
        f"{_change_cell(loss.difference)}</tr>"
    )


def _wide(label: str) -> str:
    """The start of a box that scrolls sideways, by keys too."""
    return f'<div class="scroll" tabindex="0" role="region" aria-label="{escape(label)}">'


def facts_list(facts: Mapping[str, str]) -> str:
    """Names and values, one a line."""
    rows = "".join(f"<div><dt>{escape(key)}</dt><dd>{escape(text)}</dd></div>" for key, text in facts.items())
    return f'<dl class="facts">{rows}</dl>'
