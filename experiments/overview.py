"""The overview of the page of results: a row for every table, and the picture of gains."""

from collections import Counter
from collections.abc import Sequence

from experiments.cells import (
    LONGER,
    MOST_JCT,
    WEAK,
    apart_text,
    cell,
    code,
    jct_text,
    verdict_text,
    wait_text,
)
from experiments.headlines import headline_row
from experiments.pictures import Gain
from experiments.published import Account, Record, Row, anchor, fingerprint
from experiments.running import Experiment
from experiments.shown import IN_HINDSIGHT, Shown
from experiments.standings import finite
from gpuyard.units import metric_label, metric_text, plural

COLUMNS = (
    *("experiment", "metric", "reference", "learned", "difference [95 %]", "verdict", "JCT [95 %]"),
    *("mean wait", "p99 wait", "max wait"),
)

SEEN = "§"
"""Beside experiments whose recipes were changed after their test had been seen."""


def record_of(experiment: Experiment, tables: Sequence[Shown]) -> Record:
    """What stands of an experiment in the overview, in the README's table and in the picture of gains."""
    known = [table for table in tables if table.best is not None]
    state = "not complete" if not experiment.is_complete else "without a learned policy to show"
    return Record(
        recipe=fingerprint(experiment.recipe),
        shown=sum(table.comparison is not None for table in tables),
        state=state if len(known) < len(tables) or not tables else "",
        rows=tuple(
            Row(
                overview=_overview_row(table, several=len(tables) > 1),
                headline=headline_row(table),
                gain=_gain(table),
            )
            for table in known
        ),
    )


def overview(accounts: Sequence[Account], picture: str) -> str:
    """The part of the page that has all experiments at a glance.

    Args:
        accounts: In order.
        picture: Path of the picture of gains.
    """
    lines = [
        "## At a glance",
        "",
        *_tally(accounts),
        f"| | {' | '.join(COLUMNS)} |",
        f"|{'---|' * (len(COLUMNS) + 1)}",
    ]
    for one in accounts:
        lines += [marked(row.overview, 1, one) for row in one.record.rows]
        if one.record.state:
            letter, link = one.experiment.recipe.letter, link_to(one.experiment)
            lines.append(f"| {letter} | {link} | {one.record.state} |{' |' * (len(COLUMNS) - 2)}")
    lines += [
        "",
        "Differences are relative to the reference; of a bounded slowdown less is better, of a return more.",
        "Waits are means over windows: the learned policy's, and in brackets the reference's.",
        f"{LONGER}: all of the interval of the mean JCT lies above +{100 * MOST_JCT:g} % of the reference's "
        "(training may have counted its limit from another heuristic, which the recipe names). It is not set "
        "where windows are few. That JCT stayed below is shown only where the upper end is.",
        f"{WEAK}: the windows amount to fewer than five side by side: the interval is weak, and whatever its "
        "ends, the verdict is that it is unclear.",
        f'{SEEN}: steps were changed after figures of the test had been seen; "What did not work" says how.',
        "",
    ]
    if any(one.record.rows for one in accounts):
        lines += [f"![Gains over the reference, with intervals]({picture})", ""]
    return "\n".join(lines)


def _tally(accounts: Sequence[Account]) -> list[str]:
    """How often the learned policy is better, and how often not."""
    told = Counter(row.gain.verdict for one in accounts for row in one.record.rows if row.gain)
    words = (
        ("better", "better in"),
        ("tie", "tied in"),
        ("unclear", "unclear, as windows are few, in"),
        ("worse", "worse in"),
        ("", "without a verdict, as there is one window, in"),
    )
    parts = [f"{text} {told[verdict]}" for verdict, text in words if told[verdict]]
    if not parts:
        return []
    rows = plural(sum(told.values()), "row")
    of = f"Against the reference the learned policy is, of {rows}, {', '.join(parts)}."
    return [f"{of} Rows are not independent: several are of the same jobs.", ""]


def marked(row: str, column: int, account: Account) -> str:
    """A row of a table with a mark in one of its cells if its recipe was changed after the test was seen."""
    if not account.experiment.recipe.changed_after_test:
        return row
    cells = row.split(" | ")
    return " | ".join([*cells[:column], f"{cells[column]} {SEEN}", *cells[column + 1 :]])


def headlines_of(accounts: Sequence[Account]) -> list[str]:
    """The rows of the README's table."""
    return [
        marked(row.headline, 0, one)
        for one in accounts
        for row in one.record.rows
        if row.headline is not None
    ]


def gains_of(rows: Sequence[Row]) -> list[Gain]:
    """What the picture of gains shows: tables with a headline, or all if none has one."""
    known = [(row, row.gain) for row in rows if row.gain is not None]
    return [gain for row, gain in known if row.headline is not None] or [gain for _, gain in known]


def link_to(experiment: Experiment) -> str:
    """A link to the section of an experiment."""
    return f"[{cell(experiment.recipe.title)}](#{anchor(experiment)})"


def _overview_row(shown: Shown, *, several: bool) -> str:
    best, reference = shown.best, shown.reference
    assert best is not None
    assert shown.comparison is not None
    metric, link = shown.comparison.setting.metric, link_to(shown.experiment)
    mark = f" {IN_HINDSIGHT}" if shown.picked else ""
    cells = [
        shown.experiment.recipe.letter,
        f"{link}: {cell(shown.table.title)}" if several else link,
        metric_label(metric),
        "-" if reference is None else f"{code(reference.label)} {metric_text(metric, reference.value)}",
        f"{code(best.label)}{mark} {metric_text(metric, best.value)}",
        apart_text(shown.comparison, best.difference),
        verdict_text(best),
        jct_text(shown.comparison, best.jct),
        *(
            f"{wait_text(getattr(best, name))} ({wait_text(getattr(reference, name) if reference else None)})"
            for name in ("mean_wait_s", "p99_wait_s", "max_wait_s")
        ),
    ]
    return f"| {' | '.join(cells)} |"


def _gain(shown: Shown) -> Gain | None:
    best, comparison = shown.best, shown.comparison
    if best is None or best.difference is None or comparison is None:
        return None
    sign = -1.0 if comparison.setting.lower_is_better else 1.0
    ends = [finite(sign * end) for end in (best.difference.low, best.difference.high)]
    low, high = ends if sign > 0 else ends[::-1]
    several = len(shown.experiment.recipe.table) > 1
    who = f"{best.label} against {shown.reference.label if shown.reference else '?'}"
    headline = shown.table.headline
    return Gain(
        headline or f"({shown.experiment.recipe.letter}) {shown.experiment.recipe.title}",
        f"{shown.table.title}: {who}" if several and not headline else who,
        sign * best.difference.ratio,
        low,
        high,
        best.verdict,
    )
