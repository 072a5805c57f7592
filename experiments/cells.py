"""Cells and tables of the page of results, as Markdown."""

import math
import re
from collections.abc import Sequence
from html import escape

from experiments.standings import Standing, finite
from gpuyard.evaluate import Comparison, Difference
from gpuyard.evaluate.bootstrap import usable_block
from gpuyard.evaluate.wording import unfinished_in_words, where_chosen
from gpuyard.report.words import percent
from gpuyard.units import metric_label, metric_text, plural

MOST_JCT = 0.02
"""By how much a mean completion time may rise for the sake of another metric."""
LONGER = "‡"
WEAK = "◇"
"""Behind differences whose intervals are weak."""


def result_table(comparison: Comparison, rows: Sequence[Standing]) -> list[str]:
    """The lines of a table, one a policy, the best first."""
    metric, reference = comparison.setting.metric, comparison.reference
    label = comparison.policy(reference).label if reference else "-"
    headers = ["policy", metric_label(metric), f"against {code(label)} [95 %]", "verdict"]
    beside = [("JCT [95 %]", "jct"), ("mean wait", "mean_wait_s")]
    beside += [("p99 wait", "p99_wait_s"), ("max wait", "max_wait_s")]
    beside = [
        (header, name) for header, name in beside if any(getattr(row, name) is not None for row in rows)
    ]
    headers += [header for header, _ in beside]
    lines = [f"| {' | '.join(headers)} |", f"|---|{'---:|' * 2}---|{'---:|' * len(beside)}"]
    for row in rows:
        cells = [
            _policy(row, comparison.hindsight),
            _value(row, metric),
            difference_text(row.difference),
            verdict_text(row),
        ]
        for _, name in beside:
            cells.append(jct_text(comparison, row.jct) if name == "jct" else wait_text(getattr(row, name)))
        lines.append(f"| {' | '.join(cells)} |")
    return lines


def _policy(row: Standing, hindsight: str | None) -> str:
    roles = {"reference": "the reference"} | ({} if row.learned else {"given": "tuned rule"})
    name = f"**{code(row.label)}**" if row.learned or row.role == "given" else code(row.label)
    notes = [f"{len(row.policies)} seeds"] if row.is_merged else []
    notes += [roles[row.role]] if row.role in roles else []
    notes += ["best in hindsight"] if hindsight in row.policies else []
    return f"{name}, {', '.join(notes)}" if notes else name


def _value(row: Standing, metric: str) -> str:
    text = metric_text(metric, row.value)
    if not row.is_merged:
        return text
    return f"{text} ({metric_text(metric, min(row.seeds))} to {metric_text(metric, max(row.seeds))})"


def verdict_text(row: Standing) -> str:
    """Whether it is better than the reference, and how many seeds are."""
    if row.difference is None:
        return ""
    if not row.verdict:
        return "one window"
    if not row.is_merged or row.verdict == "unclear":
        return row.verdict
    return f"{row.verdict}; {row.better} of {len(row.policies)} better"


def difference_text(found: Difference | None) -> str:
    """A relative difference with its interval."""
    if found is None:
        return ""
    text = percent(finite(found.ratio))
    return text if math.isnan(found.low) else f"{text} [{_end(found.low)}, {_end(found.high)}]"


def _end(value: float) -> str:
    """An end of an interval, which may be open."""
    return "∞" if value == math.inf else percent(finite(value))


def jct_text(comparison: Comparison, found: Difference | None) -> str:
    """The same of completion times, marked where it is clearly more than a gain may cost."""
    weak = comparison.setting.has_weak_intervals
    longer = found is not None and found.low > MOST_JCT and not weak
    return f"{difference_text(found)} {LONGER}" if longer else difference_text(found)


def apart_text(comparison: Comparison, found: Difference | None) -> str:
    """A difference, with a mark where its interval is weak."""
    mark = f" {WEAK}" if comparison.setting.has_weak_intervals else ""
    return f"{difference_text(found)}{mark}"


def wait_text(seconds: float | None) -> str:
    """A length of time; ``-`` if it is unknown."""
    return "-" if seconds is None else metric_text("wait_s", seconds)


def where_text(comparison: Comparison) -> str:
    """What policies were compared on."""
    setting, workload = comparison.setting, plain(comparison.setting.workload)
    count, jobs = len(setting.windows), plural(setting.jobs_per_window, "job")
    places = {
        "windows": f"{plural(count, 'window')} of {jobs} of the {setting.part} part of {workload}",
        "whole": f"The {setting.part} part of {workload} as one window of {jobs}",
        "draws": f"{count:,} fresh draws of {workload}, {jobs} each",
        "episodes": f"{count:,} episodes of {workload}, {jobs} each",
    }
    text = f"{places[setting.kind]}; estimates: {setting.estimates_in_words}."
    if setting.block > 1:
        text += f" Windows overlap and are resampled in blocks of {usable_block(setting.block, count)}."
    if setting.is_weak and setting.block > 1:
        text += f" They amount to {setting.disjoint:.1f} windows side by side: the intervals are weak."
    elif setting.has_weak_intervals:
        text += " So few tell little of how they differ: the intervals are weak."
    if setting.left_out:
        text += f" Left out, as they can never run on the cluster: {plural(setting.left_out, 'job')}."
    text += "".join(f" {plain(line)}" for line in unfinished_in_words(comparison))
    if comparison.reference:
        label = comparison.policy(comparison.reference).label
        chosen = comparison.chosen_on == "validation"
        how = f"best on {where_chosen(comparison)}" if chosen else "chosen in the recipe"
        text += f" Reference: {code(label)}, {how}."
    return text


def cell(text: str) -> str:
    """A text in a cell of a table."""
    return " ".join(text.split()).replace("|", "\\|")


def plain(text: str) -> str:
    """Words that may come from a log, as text and nothing else."""
    return re.sub(r"([\\`*_\[\]|])", r"\\\1", escape(text, quote=False))


def code(text: str) -> str:
    """A name."""
    return f"`{cell(text)}`"
