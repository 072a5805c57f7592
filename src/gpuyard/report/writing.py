"""Writing a report and, if it is asked for, a trace beside it."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gpuyard.errors import InputError, setting
from gpuyard.files import atomic_write
from gpuyard.report.document import page
from gpuyard.report.model import Report
from gpuyard.report.schedules.perfetto import write_perfetto
from gpuyard.report.sources import as_paths, read_sources
from gpuyard.report.tables import numbers_of


@dataclass(frozen=True)
class MadeReport:
    """What was written.

    Attributes:
        out: The page.
        report: What it shows.
        perfetto: The trace, if there is one.
        traced: Name of the policy whose schedule the trace is.
    """

    out: Path
    report: Report
    perfetto: Path | None
    traced: str | None

    @property
    def sentence(self) -> str:
        """Which policy is best."""
        return self.report.answer.sentence

    @property
    def sure(self) -> str:
        """How sure that is."""
        return self.report.answer.sure

    def document(self) -> dict[str, Any]:
        """As JSON."""
        report = self.report
        return {
            "out": str(self.out),
            "perfetto": None if self.perfetto is None else str(self.perfetto),
            "perfetto_policy": self.traced,
            "best": report.best,
            "about": report.subject,
            "metric": report.metric,
            "reference": report.reference,
            "answer": self.sentence,
            "sure": self.sure,
            "weak": report.weak,
            "policies": [
                {
                    "policy": one.name,
                    "value": one.values.get(report.metric),
                    **dict(zip(("ratio", "low", "high"), numbers_of(change), strict=True)),
                    "verdict": change.verdict,
                }
                for one in report.standings
                if (change := one.changes.get(report.metric))
            ],
        }


def make_report(
    out: Path,
    directories: Sequence[Path],
    *,
    metric: str | None = None,
    current: str | None = None,
    perfetto: Path | None = None,
    policy: str | None = None,
) -> MadeReport:
    """Write a page about directories; each file appears whole or not at all.

    Args:
        out: The page.
        directories: As in ``write_report``.
        metric: What decides; None: what the evaluation was made with.
        current: What runs today, which the others are compared with; None: as the evaluation says.
        perfetto: Where to write a schedule as a trace.
        policy: Whose; None: that of the policy which the answer is about.

    Raises:
        InputError: as in ``write_report``, or if there is no schedule to trace.
    """
    if policy is not None and perfetto is None:
        raise InputError(f"{setting('policy')} says whose schedule {setting('perfetto')} writes; give both")
    if perfetto is not None and perfetto.resolve() == out.resolve():
        raise InputError(f"{setting('perfetto', perfetto)}: is the page itself; give another name")
    report, runs = read_sources(as_paths(directories), metric=metric, current=current)
    text = page(report, runs)
    traced = None if perfetto is None else write_perfetto(perfetto, report, policy)
    with atomic_write(out) as temporary:
        temporary.write_text(text, encoding="utf-8")
    return MadeReport(out, report, perfetto, traced)
