"""Checks of how long jobs ran: cut, missing, piled up."""

import numpy as np

from gpuyard.units import duration, plural
from gpuyard.workload.auditing.fidelity import Facts, Found, check, percent


def _worth_naming(facts: Facts, share: float) -> float:
    """How many like jobs are more than chance."""
    return max(5.0, share * facts.jobs)


@check("clamped-durations")
def clamped_durations(facts: Facts) -> Found | None:
    """Many jobs of exactly the longest duration: longer ones were cut to it."""
    cap_s = float(facts.duration_s.max())
    at_cap = facts.duration_s == cap_s
    count = int(at_cap.sum())
    just_below = int(((facts.duration_s >= 0.9 * cap_s) & ~at_cap).sum())
    constant = len(np.unique(facts.duration_s)) < 3
    if constant or count < _worth_naming(facts, 0.0005) or count <= just_below:
        return None
    share = facts.gpu_time_share(at_cap)
    return Found(
        "serious" if share >= 0.2 else "warning",
        f"{count:,} jobs last exactly {duration(cap_s)}, the maximum, with {percent(share)} of GPU time",
        "A cap was laid on durations, in the log or by whoever made the file. What ran beyond it is lost: "
        "the load is too low, and long jobs do less harm than they did.",
        "Take the log without the cap if it can be had. gpuyard workload shape FILE --load L --cluster C "
        "restores a load, not the long jobs; name the cap beside results.",
        {"cap_s": cap_s, "jobs": count, "share_of_jobs": count / facts.jobs, "share_of_gpu_time": share},
    )


@check("duration-spikes")
def duration_spikes(facts: Facts) -> Found | None:
    """Durations that pile up at single values below the maximum, such as time limits."""
    values, counts = np.unique(facts.duration_s, return_counts=True)
    candidates = np.flatnonzero(
        (counts >= max(10, 0.002 * facts.jobs)) & (values >= 60) & (values < values[-1])
    )
    totals = np.concatenate(([0], np.cumsum(counts)))
    spikes = []
    for index in candidates[np.argsort(-counts[candidates], kind="stable")]:
        value, count = float(values[index]), int(counts[index])
        low, high = np.searchsorted(values, (0.9 * value, 1.1 * value))
        expected = (int(totals[high] - totals[low]) - count) / (0.2 * value)  # in a second like this one
        if count >= 20 * max(expected, 0.5):
            spikes.append((value, count))
    if not spikes:
        return None
    longest_s = max(value for value, _ in spikes)
    jobs = sum(count for _, count in spikes)
    above = facts.gpu_time_share(facts.duration_s > longest_s)
    named = tuple(f"{duration(value)}: {count:,} jobs" for value, count in spikes[:5])
    return Found(
        "note",
        f"durations pile up at {len(spikes)} values ({'; '.join(named)})",
        "Time limits, scripts that sleep, or rounding. Jobs that were ended at a limit would have run on: "
        "their true durations are longer.",
        "Keep them, and count those that ended as timeout: gpuyard workload shape FILE --status timeout "
        "--out limited.parquet",
        {
            "spikes": len(spikes),
            "jobs": jobs,
            "share_of_jobs": jobs / facts.jobs,
            "share_of_gpu_time_above": above,
            "where": named,
        },
    )


@check("cut-at-end")
def cut_at_end(facts: Facts) -> Found | None:
    """Many jobs that end at one instant at or after the last submit: they were still running."""
    ends_s = np.round(facts.submit_s + facts.duration_s)
    values, counts = np.unique(ends_s[ends_s >= facts.span_s], return_counts=True)
    if len(values) == 0 or counts.max() < _worth_naming(facts, 0.0005):
        return None
    end_s, count = float(values[counts.argmax()]), int(counts.max())
    share = facts.gpu_time_share(ends_s == end_s)
    return Found(
        "serious" if share >= 0.2 else "warning",
        f"{count:,} jobs end at the same instant, {end_s:.0f} s; they hold {percent(share)} of the GPU time",
        "These jobs were still running when the log was taken, and what they have run so far stands in for "
        "their duration. True durations are longer.",
        "Leave off the end of the trace by about a long job's duration (--to), or name it beside results.",
        {"end_s": end_s, "jobs": count, "share_of_jobs": count / facts.jobs, "share_of_gpu_time": share},
    )


@check("missing-running-jobs")
def missing_running_jobs(facts: Facts) -> Found | None:
    """Fewer jobs that outlast the log than durations promise: only finished jobs were logged."""
    left_s = facts.span_s - facts.submit_s
    ordered = np.sort(facts.duration_s)
    longer = 1.0 - np.searchsorted(ordered, left_s, side="right") / facts.jobs
    expected, found = float(longer.sum()), int((facts.duration_s > left_s).sum())
    if expected < 10 or found >= 0.2 * expected:
        return None
    outlast = "outlasts" if found == 1 else "outlast"
    return Found(
        "warning",
        f"{plural(found, 'job')} {outlast} the last submit where {expected:,.0f} would be expected",
        "Jobs that had not finished when the log was taken are missing, the long ones above all. Towards the "
        "end of the trace the load is too low and jobs are too short.",
        "Leave off the end of the trace by about a long job's duration: gpuyard workload shape FILE "
        f"--to {max(facts.span_s - float(np.quantile(ordered, 0.99)), 0):.0f} --out cut.parquet",
        {"expected_jobs": expected, "jobs": found},
    )


@check("tiny-jobs")
def tiny_jobs(facts: Facts) -> Found | None:
    """Jobs of a second or less."""
    tiny = facts.duration_s <= 1.0
    share = float(tiny.mean())
    if share < 0.01:
        return None
    return Found(
        "note",
        f"{percent(share)} of the jobs last a second or less",
        "They failed at once or their duration was rounded. They take no GPU time, but they count as jobs: "
        "slowdowns (though not bounded ones) are theirs.",
        "Leave them out if they are not your subject: gpuyard workload shape FILE --duration 1.001- "
        "--out longer.parquet",
        {"jobs": int(tiny.sum()), "share_of_jobs": share},
    )


@check("heavy-tail")
def heavy_tail(facts: Facts) -> Found | None:
    """Most GPU time in very few jobs."""
    top = max(facts.jobs // 100, 1)
    total = float(facts.gpu_s.sum())
    if facts.jobs < 100 or total == 0:
        return None
    share = float(np.sort(facts.gpu_s)[-top:].sum()) / total
    if share < 0.5:
        return None
    return Found(
        "note",
        f"the largest 1 % of the jobs hold {percent(share)} of the GPU time",
        "A few jobs decide how busy the cluster is. Averages over short windows jump, and two windows of the "
        "same trace may have very different loads.",
        "Compare policies on many paired windows and give intervals.",
        {"share_of_gpu_time": share, "jobs": top},
    )
