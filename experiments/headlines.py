"""The README's table of results, from the same files as the page."""

from collections.abc import Sequence
from pathlib import Path

from experiments.cells import apart_text, cell, code, jct_text
from experiments.shown import IN_HINDSIGHT, Shown
from gpuyard.errors import InputError
from gpuyard.evaluate.setting import UNFINISHED
from gpuyard.files import atomic_write
from gpuyard.units import metric_text

BEGIN = "<!-- The next table is written by gpuyard experiments page. -->"
END = "<!-- End of the table. -->"
COLUMNS = ("", "reference", "learned", "difference [95 %]", "mean completion time [95 %]")


def write_headlines(rows: Sequence[str], readme: Path) -> None:
    """Put a table between two marks in a file.

    Args:
        rows: Those of ``headline_row``.
        readme: The file; everything outside the marks stays.

    Raises:
        InputError: if the file cannot be read or does not have the marks.
    """
    try:
        text = readme.read_text(encoding="utf-8")
    except OSError as error:
        raise InputError(f"{readme}: {error.strerror}") from None
    begin, _, rest = text.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not end:
        raise InputError(f"{readme}: expected the lines {BEGIN} and {END}, between which the table goes")
    lines = ["| " + " | ".join(COLUMNS) + " |", "|" + "---|" * len(COLUMNS), *rows]
    with atomic_write(readme) as temporary:
        temporary.write_text("\n\n".join([begin + BEGIN, "\n".join(lines), END + after]), encoding="utf-8")


def headline_row(shown: Shown) -> str | None:
    """The line of a table that has a headline and a learned policy; None without."""
    best, reference, comparison = shown.best, shown.reference, shown.comparison
    if not shown.table.headline or best is None or comparison is None:
        return None
    metric = comparison.setting.metric
    difference = apart_text(comparison, best.difference)
    doubt = {"tie": ": a tie", "unclear": ": unclear"}.get(best.verdict, "")
    cells = [
        cell(shown.table.headline),
        "" if reference is None else f"{metric_text(metric, reference.value)} ({code(reference.label)})",
        f"{metric_text(metric, best.value)} ({code(best.label)}){IN_HINDSIGHT if shown.picked else ''}",
        f"{difference}{doubt}",
        "" if UNFINISHED in comparison.windows.columns else jct_text(comparison, best.jct),
    ]
    return f"| {' | '.join(cells)} |"
