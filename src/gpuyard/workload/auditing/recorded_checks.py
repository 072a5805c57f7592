"""Checks of what the log says really happened: starts before submits, too many GPUs in use, no starts."""

import numpy as np

from gpuyard.units import duration, plural
from gpuyard.workload.auditing.fidelity import Facts, Found, check, percent
from gpuyard.workload.identity import name_of
from gpuyard.workload.recorded import early_starts, moment_text, recorded_jobs, recorded_use


@check("recorded-overuse", needs="cluster")
def recorded_overuse(facts: Facts) -> Found | None:
    """More GPUs in use at once, by the recorded starts, than the cluster has."""
    cluster, jobs = facts.needs_cluster(), recorded_jobs(facts.workload)
    if not len(jobs):
        return None
    use = recorded_use(facts.workload, jobs, cluster.total_gpus)
    if use.peak_gpus <= cluster.total_gpus:
        return None
    share = use.over_s / use.span_s if use.span_s else 0.0
    return Found(
        "warning",
        f"at {moment_text(facts.workload, use.peak_s)} the log has {use.peak_gpus:,.10g} GPUs in use, but "
        f"{cluster.name} has {cluster.total_gpus:,}; it has too many for {duration(use.over_s)} in all",
        "What happened cannot have happened on this cluster: the row recorded of a comparison is marked as "
        "impossible, and the waits of other policies are not comparable with the log's.",
        "Give the cluster of the log as it was at its largest, or the part of the log that this one ran. "
        "Requests that are larger than what was allocated (as in SWF) have the same effect.",
        {
            "peak_gpus": use.peak_gpus,
            "cluster_gpus": cluster.total_gpus,
            "peak_s": use.peak_s,
            "share_of_time": share,
        },
    )


@check("start-before-submit")
def start_before_submit(facts: Facts) -> Found | None:
    """Jobs that started, by the log, before they were submitted."""
    early = early_starts(facts.workload)
    if not len(early):
        return None
    by_s = facts.submit_s[early] - facts.column("recorded_start_s")[early]
    return Found(
        "warning",
        f"{plural(len(early), 'job')} ({percent(len(early) / facts.jobs)}) started before being submitted, "
        f"by up to {duration(float(by_s.max()))}, such as {name_of(facts.workload, int(early[0]))}",
        "Times of the log are from different clocks or zones, or submit is not the submission. Waits of "
        "these jobs are negative, and the mean wait of the log is too small. The row recorded of a "
        "comparison is marked (negative waits).",
        "See which fields the reader takes (docs/formats/index.md), or leave the jobs out.",
        {"jobs": len(early), "share_of_jobs": len(early) / facts.jobs, "most_s": float(np.max(by_s))},
    )


@check("no-recorded-starts")
def no_recorded_starts(facts: Facts) -> Found | None:
    """Jobs of a log that does not say when they started."""
    missing = facts.jobs - len(recorded_jobs(facts.workload))
    imported = any(step.name == "import" for step in facts.workload.metadata.history)
    if not missing or (missing == facts.jobs and not imported):
        return None
    share = missing / facts.jobs
    return Found(
        "note" if missing == facts.jobs else "warning",
        "it is not known of any job when it started"
        if missing == facts.jobs
        else f"{missing:,} jobs ({percent(share)}) have no recorded start",
        "What your scheduler did cannot be a row of a comparison, or lacks these jobs.",
        "Import a log that has starts (docs/formats/index.md). Thinning, compressed time, clamped durations "
        "and wider gangs leave them out: compare before them.",
        {"jobs": missing, "share_of_jobs": share},
    )
