"""Checks of what jobs are and what is known of them: ids, users, statuses, estimates, the import."""

import numpy as np
import polars as pl

from gpuyard.workload.auditing.fidelity import EstimateQuality, Facts, Found, check, percent

ROUND_S = 300.0


@check("duplicated-ids")
def duplicated_ids(facts: Facts) -> Found | None:
    """Several jobs with one id of the log."""
    ids = facts.frame["source_id"]
    known = ids.filter(ids != "")
    repeated = known.filter(known.is_duplicated())
    if len(repeated) == 0:
        return None
    extra = len(repeated) - repeated.n_unique()
    return Found(
        "warning",
        f"{extra:,} jobs have an id that an earlier job has, such as {repeated[0]!r}",
        "Requeued jobs, steps, array tasks or two files that overlap: work may count twice.",
        "See what the reader merges (docs/formats/index.md); gpuyard workload shape FILE --drop-duplicates "
        "removes those that are equal in everything.",
        {"jobs": extra, "share_of_jobs": extra / facts.jobs, "first": str(repeated[0])},
    )


@check("duplicated-rows")
def duplicated_rows(facts: Facts) -> Found | None:
    """Jobs that equal another one in everything."""
    columns = [name for name in facts.frame.columns if name != "row"]
    extra = facts.jobs - facts.frame.select(pl.struct(columns).n_unique()).item()
    if not extra:
        return None
    share = extra / facts.jobs
    has_ids = bool((facts.frame["source_id"] != "").any())
    return Found(
        "serious" if has_ids and share > 0.01 else "warning" if has_ids or share > 0.01 else "note",
        f"{extra:,} jobs ({percent(share)}) equal an earlier one in everything",
        "With ids, the log was read twice in part. Without ids they may be tasks of one array that happen to "
        "be alike.",
        "gpuyard workload shape FILE --drop-duplicates --out once.parquet",
        {"jobs": extra, "share_of_jobs": share},
    )


@check("wasted-work")
def wasted_work(facts: Facts) -> Found | None:
    """GPU time of jobs that failed or were cancelled."""
    status = facts.frame["status"].cast(pl.String)
    failed = facts.gpu_time_share((status == "failed").to_numpy())
    cancelled = facts.gpu_time_share((status == "cancelled").to_numpy())
    if failed + cancelled < 0.05:
        return None
    return Found(
        "warning" if failed + cancelled > 0.3 else "note",
        f"failed jobs hold {percent(failed)} and cancelled jobs {percent(cancelled)} of the GPU time",
        "They took GPUs from others as every job does, so a replay keeps them. Without them the load is that "
        "much lower; and when a job would have failed or been cancelled may depend on when it starts.",
        "Say beside results whether they are in. To leave them out: gpuyard workload shape FILE "
        "--status completed --out completed.parquet",
        {"failed_share_of_gpu_time": failed, "cancelled_share_of_gpu_time": cancelled},
    )


@check("unknown-statuses")
def unknown_statuses(facts: Facts) -> Found | None:
    """Jobs of which the log does not say how they ended."""
    share = float((facts.frame["status"].cast(pl.String) == "unknown").mean() or 0.0)  # type: ignore[arg-type]
    if share < 0.01:
        return None
    return Found(
        "note",
        f"for {percent(share)} of the jobs it is not known how they ended",
        "Whether failed and cancelled jobs are in cannot be told, nor can they be left out.",
        "Look up in the trace's documentation which jobs it holds, and say so beside results.",
        {"share_of_jobs": share},
    )


@check("missing-users")
def missing_users(facts: Facts) -> Found | None:
    """Jobs without a user."""
    share = float((facts.frame["user"] == "").mean() or 0.0)  # type: ignore[arg-type]
    if share == 0:
        return None
    return Found(
        "warning" if share > 0.5 else "note",
        f"{percent(share)} of the jobs have no user",
        "They count as one user: fair-share orders, fairness metrics and predictions from a user's history "
        "say nothing about them.",
        "Use orders that do not look at users, and leave out fairness between users.",
        {"share_of_jobs": share},
    )


@check("dominant-user")
def dominant_user(facts: Facts) -> Found | None:
    """One user with more than half of the jobs or of the GPU time."""
    frame = facts.frame.select("user", gpu_s=pl.Series(facts.gpu_s)).filter(pl.col("user") != "")
    users = frame.group_by("user").agg(jobs=pl.len(), gpu_s=pl.col("gpu_s").sum())
    if users.height < 2:
        return None
    total = float(facts.gpu_s.sum())
    best: tuple[float, str, str] | None = None
    for what, column, whole in (("jobs", "jobs", facts.jobs), ("GPU time", "gpu_s", total)):
        top = users.sort(column, "user", descending=[True, False]).row(0, named=True)
        share = top[column] / whole if whole else 0.0
        if share > 0.5 and (best is None or share > best[0]):
            best = (share, what, top["user"])
    if best is None:
        return None
    share, what, user = best
    return Found(
        "note",
        f"user {user!r} has {percent(share)} of the {what}",
        "Averages over jobs are mostly about this one user.",
        "Look at results by group or user, or leave the user out (--user NAME keeps the others you name).",
        {"user": user, "share": share, "of": what},
    )


@check("few-jobs")
def few_jobs(facts: Facts) -> Found | None:
    """Too few jobs to split and compare."""
    if facts.jobs >= 1000:
        return None
    return Found(
        "note",
        f"{facts.jobs:,} jobs are few",
        "Differences between policies are mostly chance; split in three, little is left to test on.",
        "Take a longer log, or draw more days: gpuyard workload shape FILE --resample-days N --out b.parquet",
        {"jobs": facts.jobs},
    )


def estimate_quality(facts: Facts) -> EstimateQuality | None:
    """How good estimates are; None if there are none."""
    known = facts.frame["estimate_s"].is_not_null().to_numpy()
    if not known.any():
        return None
    estimate_s, duration_s = facts.column("estimate_s")[known], facts.duration_s[known]
    return EstimateQuality(
        jobs=int(known.sum()),
        share_of_jobs=float(known.mean()),
        median_ratio=float(np.median(estimate_s / duration_s)),
        share_underestimated=float((estimate_s < duration_s).mean()),
        share_round=float((estimate_s % ROUND_S == 0).mean()),
    )


@check("no-estimates")
def no_estimates(facts: Facts) -> Found | None:
    """Jobs without a requested run time."""
    quality = estimate_quality(facts)
    share = quality.share_of_jobs if quality else 0.0
    if share > 0.99:
        return None
    return Found(
        "warning" if share > 0 else "note",
        "no job has a requested run time" if share == 0 else f"{percent(1 - share)} of the jobs lack one",
        "estimates = requested is not possible or knows some jobs only; a job without counts as endless. "
        "With estimates = exact, policies know what no real scheduler knows.",
        "Compare under --estimates noisy as well, or make some: gpuyard workload shape FILE "
        "--estimates round:3 --out asked.parquet",
        {"share_of_jobs_with_estimate": share},
    )


@check("poor-estimates")
def poor_estimates(facts: Facts) -> Found | None:
    """Requested run times far from the true ones."""
    quality = estimate_quality(facts)
    if quality is None or (quality.median_ratio <= 3 and quality.share_underestimated <= 0.1):
        return None
    return Found(
        "warning",
        f"estimates are {quality.median_ratio:.1f} times the duration at the median, "
        f"{percent(quality.share_underestimated)} are too short, {percent(quality.share_round)} are "
        "multiples of 5 min",
        "Backfilling and shortest-first orders decide by them. Where requests are poor, easy can do worse "
        "than greedy, and what holds with exact estimates need not hold.",
        "Compare policies under --estimates requested as well as exact.",
        quality.model_dump(),
    )


@check("estimates-equal-durations")
def estimates_equal_durations(facts: Facts) -> Found | None:
    """Estimates that are the true durations: filled in afterwards."""
    known = facts.frame["estimate_s"].is_not_null().to_numpy()
    if known.sum() < 5:
        return None
    equal = float((facts.column("estimate_s")[known] == facts.duration_s[known]).mean())
    if equal < 0.9:
        return None
    return Found(
        "warning",
        f"{percent(equal)} of the estimates equal the duration to the last digit",
        "They were filled in from the durations: estimates = requested is estimates = exact by another name.",
        "Use --estimates noisy or none, or make requests: gpuyard workload shape FILE --estimates round:3 "
        "--out asked.parquet",
        {"share_of_estimates": equal},
    )
