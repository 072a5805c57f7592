"""What an audit says of a workload, and how a check is written.

A check is a function that looks at ``Facts`` and returns what it found, or None:

    @check("missing-users")
    def missing_users(facts: Facts) -> Found | None:
        '''Jobs without a user.'''
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal

import numpy as np
import polars as pl
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict

from gpuyard.cluster.model import Cluster
from gpuyard.registry import register
from gpuyard.units import duration, number, plural
from gpuyard.workload.auditing.demand import DemandSeries, Oversubscription
from gpuyard.workload.importing import ImportReport
from gpuyard.workload.schema import Step, Workload
from gpuyard.workload.shaping.derive import gpu_seconds_of, sizes_of, span_of

Severity = Literal["note", "warning", "serious"]
SEVERITIES: tuple[Severity, ...] = ("serious", "warning", "note")
Needs = Literal["cluster", "report"]
Number = float | int | str | None | tuple[str, ...]


class _Frozen(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class FidelityFinding(_Frozen):
    """Something about a workload that a simulation's reader should know."""

    id: str
    severity: Severity
    title: str
    """What was found, in one sentence with its numbers."""
    numbers: dict[str, Number]
    meaning: str
    """What it does to a simulation."""
    remedy: str
    """What to do about it: a command, a function, or what to say beside results."""


class SkippedCheck(_Frozen):
    """A check that could not be made."""

    id: str
    why: str


class EstimateQuality(_Frozen):
    """How requested run times compare with true ones, over the jobs that have both."""

    jobs: int
    share_of_jobs: float
    median_ratio: float
    """Median of estimate / duration."""
    share_underestimated: float
    """Jobs that ran longer than they asked for."""
    share_round: float
    """Estimates that are whole multiples of 5 minutes."""


class FidelityCard(_Frozen):
    """What a workload is fit for. JSON-able."""

    name: str
    source: str
    history: tuple[Step, ...]
    cluster: str | None
    cluster_gpus: int | None
    jobs: int
    span_s: float
    dates: tuple[str, str] | None
    """First and last submit on the log's own clock."""
    gpu_hours: float
    load: float | None
    """All work over the cluster's GPU time between first and last submit (area load)."""
    load_in_span: float | None
    """The same with the work that falls into the span only, if every job starts at its submit."""
    oversubscription: Oversubscription | None
    estimates: EstimateQuality | None
    demand: DemandSeries
    findings: tuple[FidelityFinding, ...]
    """The most serious first."""
    passed: tuple[str, ...]
    """Checks that found nothing."""
    skipped: tuple[SkippedCheck, ...]

    def count(self, severity: Severity) -> int:
        """How many findings are of that severity."""
        return sum(finding.severity == severity for finding in self.findings)


@dataclass(frozen=True)
class Found:
    """What a check returns."""

    severity: Severity
    title: str
    meaning: str
    remedy: str
    numbers: dict[str, Number] = field(default_factory=dict)


@dataclass(frozen=True)
class Check:
    """A registered check."""

    id: str
    summary: str
    needs: Needs | None
    run: "Callable[[Facts], Found | None]"


def check(
    id: str, needs: Needs | None = None
) -> "Callable[[Callable[[Facts], Found | None]], Callable[[Facts], Found | None]]":
    """Decorator: make a function a check of every audit."""

    def enter(function: "Callable[[Facts], Found | None]") -> "Callable[[Facts], Found | None]":
        summary = (function.__doc__ or "").strip().split("\n", 1)[0]
        register("audit-check", id)(Check(id, summary, needs, function))
        return function

    return enter


@dataclass(frozen=True)
class Facts:
    """A workload as checks look at it."""

    workload: Workload
    cluster: Cluster | None = None
    report: ImportReport | None = None

    @property
    def frame(self) -> pl.DataFrame:
        """The jobs."""
        return self.workload.frame

    @property
    def jobs(self) -> int:
        """Number of jobs."""
        return len(self.workload)

    @cached_property
    def span_s(self) -> float:
        """First to last submit."""
        return span_of(self.workload)

    @cached_property
    def submit_s(self) -> NDArray[np.float64]:
        """Submit of each job."""
        return self.column("submit_s")

    @cached_property
    def duration_s(self) -> NDArray[np.float64]:
        """Duration of each job."""
        return self.column("duration_s")

    @cached_property
    def sizes(self) -> NDArray[np.float64]:
        """GPUs of each job."""
        return sizes_of(self.workload)

    @cached_property
    def gpu_s(self) -> NDArray[np.float64]:
        """GPU-seconds of each job."""
        return gpu_seconds_of(self.workload)

    def column(self, name: str) -> NDArray[Any]:
        """A column as numpy has it."""
        values: NDArray[Any] = self.frame[name].to_numpy()
        return values

    def gpu_time_share(self, jobs: NDArray[np.bool_]) -> float:
        """Share of all GPU time that these jobs hold; 0 if there is none."""
        total = float(self.gpu_s.sum())
        return float(self.gpu_s[jobs].sum()) / total if total else 0.0

    def needs_cluster(self) -> Cluster:
        """The cluster, for checks that are made only if there is one."""
        if self.cluster is None:
            raise AssertionError("a check that looks at the cluster must say so")
        return self.cluster

    def needs_report(self) -> ImportReport:
        """The import report, for checks that are made only if there is one."""
        if self.report is None:
            raise AssertionError("a check that looks at the import report must say so")
        return self.report


def percent(share: float) -> str:
    """A share in words, with enough digits to be told from 0."""
    digits = 1 if share >= 0.01 or share == 0 else 2
    return f"{100 * share:.{digits}f} %"


def card_facts(card: FidelityCard) -> dict[str, str]:
    """What a card says at its head, in words."""
    facts = {"jobs": f"{card.jobs:,}", "span": duration(card.span_s)}
    if card.dates:
        facts["submitted"] = " to ".join(card.dates)
    facts["GPU hours"] = number(card.gpu_hours)
    if card.cluster is not None:
        facts["cluster"] = f"{card.cluster} ({plural(card.cluster_gpus or 0, 'GPU')})"
    if card.load is not None and card.load_in_span is not None:
        facts["load (all work / GPU time of the span)"] = f"{card.load:.3f}"
        facts["load within the span"] = f"{card.load_in_span:.3f}"
    if card.oversubscription is not None:
        facts["peak demand"] = f"{100 * card.oversubscription.peak:.0f} % of the GPUs"
        facts["time above 100 %"] = f"{100 * card.oversubscription.time_share:.1f} %"
    if card.estimates is not None:
        facts["estimate / duration"] = f"{card.estimates.median_ratio:.2f} at the median"
    return facts
