"""Checks of when jobs were submitted: holes, ends, grids."""

import numpy as np
from numpy.typing import NDArray

from gpuyard.units import duration, plural
from gpuyard.workload.auditing.fidelity import Facts, Found, check, percent

DAY_S, HOUR_S = 86400.0, 3600.0
SPARSE = 0.1
"""A day with less than this part of a usual day's submits is nearly silent."""


@check("silence")
def silence(facts: Facts) -> Found | None:
    """Stretches of a day or more without a submit, far longer than usual gaps."""
    gaps_s = np.diff(facts.submit_s)
    if len(gaps_s) < 10:
        return None
    limit_s = max(DAY_S, 10 * float(np.quantile(gaps_s, 0.99)))
    bulk_s = _dense_from(facts.submit_s, facts.span_s) or 0.0  # what lies before is told by thin-start
    long = np.flatnonzero((gaps_s > limit_s) & (facts.submit_s[:-1] >= bulk_s))
    if len(long) == 0:
        return None
    longest = int(long[gaps_s[long].argmax()])
    start_s, gap_s, share = facts.submit_s[longest], gaps_s[longest], gaps_s[long].sum() / facts.span_s
    return Found(
        "warning" if share > 0.02 else "note",
        f"{plural(len(long), 'long gap')} without a submit, the longest {duration(gap_s)} "
        f"from {start_s:.0f} s on",
        "The cluster or its log was down, or jobs were left out. Queues drain there, loads averaged over the "
        "span are too low, and windows that cross a gap are not like others.",
        f"Simulate the parts apart: gpuyard workload shape FILE --from {start_s + gap_s:.0f} --out b.parquet",
        {
            "gaps": len(long),
            "longest_s": float(gap_s),
            "longest_from_s": float(start_s),
            "share_of_span": float(share),
        },
    )


@check("thin-start")
def thin_start(facts: Facts) -> Found | None:
    """A few jobs long before the bulk: they were queued or running when the log began."""
    cut_s = _dense_from(facts.submit_s, facts.span_s)
    if cut_s is None:
        return None
    early = int((facts.submit_s < cut_s).sum())
    return Found(
        "serious" if cut_s > 0.02 * facts.span_s else "warning",
        f"the first {early:,} jobs are spread over {duration(cut_s)} before the bulk begins",
        "The log covers that time only in part (jobs that were already queued or running when it began). "
        "The cluster looks idle there, and the load over the span is too low.",
        f"Cut it off: gpuyard workload shape FILE --from {cut_s:.0f} --out cut.parquet",
        {"jobs_before": early, "bulk_from_s": cut_s, "share_of_span": cut_s / facts.span_s},
    )


@check("thin-end")
def thin_end(facts: Facts) -> Found | None:
    """A few jobs long after the bulk: the log's coverage stops before its last job."""
    mirrored = facts.span_s - facts.submit_s[::-1]
    tail_s = _dense_from(mirrored, facts.span_s)
    if tail_s is None:
        return None
    cut_s = facts.span_s - tail_s
    late = int((facts.submit_s > cut_s).sum())
    return Found(
        "warning",
        f"the last {late:,} jobs are spread over {duration(tail_s)} after the bulk has ended",
        "Coverage stops before the last job. The load over the span is too low, and a test split at the end "
        "of the trace holds next to nothing.",
        f"Cut it off: gpuyard workload shape FILE --to {cut_s:.0f} --out cut.parquet",
        {"jobs_after": late, "bulk_to_s": cut_s, "share_of_span": tail_s / facts.span_s},
    )


def _dense_from(submit_s: NDArray[np.float64], span_s: float) -> float | None:
    """Where the bulk begins, if at least two nearly silent days lie before it."""
    days = int(span_s // DAY_S)
    if days < 14:
        return None
    counts = np.bincount(np.minimum((submit_s / DAY_S).astype(np.int64), days))[:days]
    usual = float(np.median(counts))
    dense = np.flatnonzero(counts >= max(SPARSE * usual, 1.0))
    if usual == 0 or len(dense) == 0 or dense[0] < 2:
        return None
    first = float(dense[0]) * DAY_S
    hours = np.bincount(
        ((submit_s[(submit_s >= first) & (submit_s < first + DAY_S)] - first) / HOUR_S).astype(int)
    )
    busy = np.flatnonzero(hours >= max(SPARSE * usual / 24, 2.0))
    return first + (float(busy[0]) * HOUR_S if len(busy) else 0.0)


@check("uneven-arrivals")
def uneven_arrivals(facts: Facts) -> Found | None:
    """Half of the jobs within a small part of the span."""
    half = (facts.jobs + 1) // 2
    if facts.jobs < 20 or facts.span_s == 0:
        return None
    lengths_s = facts.submit_s[half - 1 :] - facts.submit_s[: facts.jobs - half + 1]
    start = int(lengths_s.argmin())
    share = float(lengths_s[start]) / facts.span_s
    if share >= 0.1:
        return None
    from_s, to_s = float(facts.submit_s[start]), float(facts.submit_s[start] + lengths_s[start])
    return Found(
        "serious" if share < 0.02 else "warning",
        f"half of the jobs arrive within {percent(share)} of the span, from {from_s:.0f} s to {to_s:.0f} s",
        "The average load says little: the cluster is idle for most of the time and flooded for a short one. "
        "Splits by time give parts of very different sizes.",
        f"Look at the busy part by itself: gpuyard workload shape FILE --from {from_s:.0f} --to {to_s:.0f} "
        "--out busy.parquet",
        {"share_of_span": share, "from_s": from_s, "to_s": to_s},
    )


@check("rate-change")
def rate_change(facts: Facts) -> Found | None:
    """Many times more jobs a day in one third of the trace than in another."""
    days = int(facts.span_s // DAY_S)
    if days < 15:
        return None
    counts = np.bincount((facts.submit_s / DAY_S).astype(np.int64), minlength=days)[:days]
    first, last = (float(np.median(part)) for part in (counts[: days // 3], counts[-(days // 3) :]))
    ratio = max(first, last) / max(min(first, last), 1.0)
    if ratio < 4:
        return None
    return Found(
        "warning",
        f"{first:,.0f} jobs on a usual day in the first third of the span, {last:,.0f} in the last",
        "Users, the cluster or what was logged changed on the way. Training on the first part and testing on "
        "the last compares two different worlds.",
        "Look at the chart of jobs over time and choose a part that is steady, with "
        "gpuyard workload shape FILE --from A --to B --out part.parquet",
        {"jobs_a_day_first_third": first, "jobs_a_day_last_third": last, "ratio": ratio},
    )


@check("coarse-submit-times")
def coarse_submit_times(facts: Facts) -> Found | None:
    """Submit times rounded to minutes, hours or days."""
    if facts.jobs < 20 or facts.span_s == 0:
        return None
    for grid_s in (DAY_S, HOUR_S, 600.0, 60.0):
        _, counts = np.unique(np.round(facts.submit_s % grid_s, 3) % grid_s, return_counts=True)
        share = float(counts.max()) / facts.jobs
        if share >= 0.95 and facts.span_s >= grid_s:
            at_once = int(np.unique(facts.submit_s, return_counts=True)[1].max())
            return Found(
                "warning" if grid_s > 60 else "note",
                f"{percent(share)} of submit times lie on a grid of {duration(grid_s)}",
                f"Jobs arrive in batches of up to {at_once:,} that never were, and wait for each other. "
                "Waits below the grid mean nothing.",
                "Import a log with finer times if there is one; else compare waits only beyond the grid.",
                {"grid_s": grid_s, "share_of_jobs": share, "most_at_once": at_once},
            )
    return None
