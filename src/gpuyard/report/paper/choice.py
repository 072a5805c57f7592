"""Which chart of a report becomes a figure, and the file that it is written to."""

from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from gpuyard.errors import InputError, setting
from gpuyard.files import atomic_write
from gpuyard.registry import suggest
from gpuyard.report.document import parts_of
from gpuyard.report.figures import Chart
from gpuyard.report.model import Report

ENDINGS = (".pdf", ".svg", ".png")
OTHER_NAMES = {"queue-length": "queue", "per-class-waits": "by-gpus:mean-wait"}
"""Names that people try first."""


def write_figure(path: Path, report: Report, name: str, *, width_cm: float) -> str:
    """Write a chart of a report; the file appears whole or not at all.

    Args:
        path: Its ending says the format: one of ``ENDINGS``.
        report: What is shown.
        name: Of the chart, such as ``cdf-wait``; of one with choices also ``by-gpus:mean-wait``.
        width_cm: How wide it is.

    Returns:
        Title of the chart.

    Raises:
        InputError: if there is no such chart, matplotlib is missing, or the file cannot be written.
    """
    if find_spec("matplotlib") is None:
        raise InputError("figures need matplotlib: pip install 'gpuyard[figures]'")
    if not 2.0 <= width_cm <= 100.0:
        raise InputError(f"{setting('width', width_cm)}: expected 2 to 100 (cm)")
    chart = find_chart(parts_of(report, (), gantt=False, pareto=True).data["charts"], name)
    from gpuyard.report.paper.drawing import draw, save

    figure = draw(chart, width_cm)
    with atomic_write(path) as temporary:
        save(figure, temporary, path.suffix[1:])
    return str(chart["title"])


def find_chart(charts: Mapping[str, Chart], name: str) -> dict[str, Any]:
    """A chart by its name; of one with choices the first, unless the name has one.

    Raises:
        InputError: if there is none, with the names of those that there are.
    """
    id, _, choice = OTHER_NAMES.get(name, name).partition(":")
    chart = charts.get(id)
    if chart is None:
        raise InputError(f"{setting('figure', name)}: these results have no such figure{suggest(id, charts)}")
    if not (choices := chart.get("choices")):
        return dict(chart)
    words = {_word(one): one for one in choices}
    if choice and choice not in words:
        raise InputError(f"{setting('figure', name)}: expected {id}: and one of {', '.join(words)}")
    chosen = words[choice] if choice else next(iter(choices))
    return {**choices[chosen], "id": id, "title": f"{chart['title']}: {chosen}"}


def _word(text: str) -> str:
    return text.lower().replace(" ", "-")
