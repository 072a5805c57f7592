"""Is a workload fit to be simulated, and what must be said beside results?"""

import importlib

from gpuyard.cluster.model import Cluster
from gpuyard.registry import registered
from gpuyard.workload.auditing.demand import demand_series, oversubscription
from gpuyard.workload.auditing.fidelity import (
    SEVERITIES,
    Check,
    Facts,
    FidelityCard,
    FidelityFinding,
    Found,
    Needs,
    SkippedCheck,
)
from gpuyard.workload.auditing.job_checks import estimate_quality
from gpuyard.workload.importing import ImportReport
from gpuyard.workload.schema import Workload
from gpuyard.workload.shaping.derive import date_text, has_dates
from gpuyard.workload.shaping.rescale import area_load, demand_in_span

_HOMES = (
    "arrival_checks",
    "duration_checks",
    "job_checks",
    "load_checks",
    "recorded_checks",
    "import_checks",
)
_WHY_SKIPPED: dict[Needs, str] = {
    "cluster": "needs a cluster (--cluster)",
    "report": "needs the import report, which lies beside imported files",
}


def audit_checks() -> dict[str, Check]:
    """All checks by id."""
    for home in _HOMES:
        importlib.import_module(f"gpuyard.workload.auditing.{home}")
    return dict(registered("audit-check"))


def audit(
    workload: Workload, cluster: Cluster | None = None, report: ImportReport | None = None
) -> FidelityCard:
    """Look a workload over before it is simulated.

    Args:
        workload: The jobs.
        cluster: What they shall run on; without it, load and fit are not looked at.
        report: The account of the import that made the workload.

    Returns:
        What was found, the most serious first, which checks found nothing, and demand over time.
    """
    facts = Facts(workload, cluster, report)
    findings: list[FidelityFinding] = []
    passed: list[str] = []
    skipped: list[SkippedCheck] = []
    for id, entry in audit_checks().items():
        if entry.needs is not None and getattr(facts, entry.needs) is None:
            skipped.append(SkippedCheck(id=id, why=_WHY_SKIPPED[entry.needs]))
        elif (found := entry.run(facts)) is not None:
            findings.append(_finding(id, found))
        else:
            passed.append(id)
    findings.sort(key=lambda finding: SEVERITIES.index(finding.severity))
    return _card(facts, tuple(findings), tuple(passed), tuple(skipped))


def _finding(id: str, found: Found) -> FidelityFinding:
    return FidelityFinding(
        id=id,
        severity=found.severity,
        title=found.title,
        numbers=found.numbers,
        meaning=found.meaning,
        remedy=found.remedy,
    )


def _card(
    facts: Facts,
    findings: tuple[FidelityFinding, ...],
    passed: tuple[str, ...],
    skipped: tuple[SkippedCheck, ...],
) -> FidelityCard:
    workload, cluster = facts.workload, facts.cluster
    gpus = cluster.total_gpus if cluster else None
    return FidelityCard(
        name=workload.metadata.name,
        source=workload.metadata.source,
        history=workload.metadata.history,
        cluster=cluster.name if cluster else None,
        cluster_gpus=gpus,
        jobs=facts.jobs,
        span_s=facts.span_s,
        dates=(date_text(workload, 0.0), date_text(workload, facts.span_s)) if has_dates(workload) else None,
        gpu_hours=float(facts.gpu_s.sum()) / 3600,
        load=area_load(workload, cluster) if cluster else None,
        load_in_span=demand_in_span(workload, cluster) if cluster else None,
        oversubscription=oversubscription(workload, gpus) if gpus else None,
        estimates=estimate_quality(facts),
        demand=demand_series(workload, gpus),
        findings=findings,
        passed=passed,
        skipped=skipped,
    )
