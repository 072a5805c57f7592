"""Figures and prose as Markdown: cells, tables, lines of at most 100 letters."""

import re
import textwrap
from collections.abc import Sequence
from html import escape

from experiments.published import Apart, Row
from gpuyard.report.words import percent
from gpuyard.units import metric_text

WIDTH = 100
_AS_IT_IS = ("|", "    ", "#", "```", "<", "!")


def cell(text: str) -> str:
    """A text in a cell of a table."""
    return " ".join(text.split()).replace("|", "\\|")


def plain(text: str) -> str:
    """Words that may come from a log, as text and nothing else."""
    return re.sub(r"([\\`*_\[\]|])", r"\\\1", escape(text, quote=False))


def code(text: str) -> str:
    """A name."""
    return f"`{cell(text)}`"


def table(headers: Sequence[str], rows: Sequence[Sequence[str]], numbers: int = 0) -> list[str]:
    """The lines of a table, and an empty one.

    Args:
        headers: Of its columns.
        rows: Their cells.
        numbers: How many columns at the end hold numbers.
    """
    aligned = ["---"] * (len(headers) - numbers) + ["---:"] * numbers
    return [f"| {' | '.join(line)} |" for line in (headers, aligned, *rows)] + [""]


def wrapped(text: str) -> list[str]:
    """Prose in lines, and an empty one; lists stay lists, and tables and pictures stay as they are."""
    lines: list[str] = []
    for block in re.split(r"\n\s*\n", text.strip("\n")):
        if block.startswith(_AS_IT_IS):
            lines += block.splitlines()
        else:
            for item in re.split(r"\n(?=[-*] )", block):
                hang = "  " if re.match(r"[-*] ", item) else ""
                lines += _filled(item, hang)
        lines.append("")
    return lines


def _filled(text: str, hang: str) -> list[str]:
    """A paragraph in lines; a number and its percent sign stay together."""
    kept = " ".join(text.split()).replace(" %", "\0%")
    filled = textwrap.wrap(
        kept, WIDTH, subsequent_indent=hang, break_long_words=False, break_on_hyphens=False
    )
    return [line.replace("\0", " ") for line in filled]


def apart_text(found: Apart | None) -> str:
    """A relative difference with its interval, which may be open above."""
    if found is None:
        return ""
    if found.low is None:
        return percent(found.ratio)
    high = "∞" if found.high is None else percent(found.high)
    return f"{percent(found.ratio)} [{percent(found.low)}, {high}]"


def verdict_text(row: Row) -> str:
    """Whether a policy is better than the reference, and how many of its seeds are."""
    if row.difference is None:
        return ""
    verdict = row.difference.verdict or "one window"
    if row.better is None or verdict in ("unclear", "one window"):
        return verdict
    return f"{verdict}; {row.better} of {row.seeds} better"


def whole_text(row: Row, metric: str) -> str:
    """The metric in a replay in one go, and how far it lies from the reference's; ``-`` without one."""
    if row.whole is None:
        return "-"
    text = metric_text(metric, row.whole)
    return text if row.whole_change is None else f"{text} ({percent(row.whole_change)})"


def wait_text(seconds: float | None) -> str:
    """A length of time; ``-`` if it is unknown."""
    return "-" if seconds is None else metric_text("wait_s", seconds)


def value_text(row: Row, metric: str) -> str:
    """A mean, with the range over seeds if there are several."""
    text = metric_text(metric, row.value)
    if row.lowest is None or row.highest is None:
        return text
    return f"{text} ({metric_text(metric, row.lowest)} to {metric_text(metric, row.highest)})"
