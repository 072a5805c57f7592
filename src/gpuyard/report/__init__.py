"""Reports: one self-contained HTML file that says which policy is best, by how much, and how sure that is."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gpuyard.evaluate.comparison import Comparison

__all__ = ["write_report"]


def write_report(
    path: str | Path, sources: "Sequence[str | Path | Comparison]", *, runs: Sequence[Path] = ()
) -> None:
    """Write a report; the file appears whole or not at all.

    Args:
        path: The HTML file.
        sources: Comparisons, directories of ``gpuyard evaluate`` or of ``gpuyard simulate --out``, and
            directories of training runs, whose curves are shown.
        runs: More directories of training runs.

    Raises:
        InputError: if there is nothing to compare, results are not over the same jobs, cluster and
            information, a file is malformed or of another version, or the report cannot be written.
    """
    from gpuyard.files import atomic_write, check_target
    from gpuyard.report.document import page
    from gpuyard.report.sources import read_sources

    check_target(path)
    report, training = read_sources(sources, runs)
    text = page(report, training)
    with atomic_write(path) as temporary:
        temporary.write_text(text, encoding="utf-8")
