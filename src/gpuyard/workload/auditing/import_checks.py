"""Checks of what an import had to leave out, repair or assume."""

import re

from gpuyard.workload.auditing.fidelity import Facts, Found, check, percent

_ABOUT_TIMES = re.compile(r"\b(submit\w*|start\w*|end\w*|time\w*|date\w*|duration|ran|run|clock)\b", re.I)


@check("rejected-rows", needs="report")
def rejected_rows(facts: Facts) -> Found | None:
    """Rows of the log that became no job."""
    report = facts.needs_report()
    rows, stated = report.left_out()
    if not rows:
        return None
    share = rows / stated
    return Found(
        "serious" if share > 0.1 else "warning" if share > 0.01 else "note",
        f"{rows:,} of {stated:,} rows ({percent(share)}) became no job",
        "What they asked of the cluster is missing from the simulation.",
        "See the reasons and first places in the import report; correct the log or name them beside results.",
        {
            "rows": rows,
            "share_of_rows": share,
            "reasons": tuple(f"{finding.rows:,}: {finding.reason}" for finding in report.rejected[:5]),
        },
    )


@check("import-warnings", needs="report")
def import_warnings(facts: Facts) -> Found | None:
    """What the import warned of and no other check looks at."""
    warnings = [w for w in facts.needs_report().warnings if w.id not in ("rejected-rows", "no-gpus")]
    if not warnings:
        return None
    return Found(
        "serious",
        "; ".join(warning.text for warning in warnings),
        "The import warned of this: results on these jobs are doubtful.",
        "; ".join(warning.remedy for warning in warnings),
        {"warnings": tuple(warning.id for warning in warnings)},
    )


@check("bad-times", needs="report")
def bad_times(facts: Facts) -> Found | None:
    """Rows with missing, negative or contradictory times."""
    report = facts.needs_report()
    concerned = [f for f in (*report.rejected, *report.repaired) if _ABOUT_TIMES.search(f.reason)]
    rows = sum(finding.rows for finding in concerned)
    if not rows:
        return None
    share = rows / report.rows_read
    return Found(
        "warning" if share > 0.01 else "note",
        f"{rows:,} rows ({percent(share)}) had times that were missing, negative or contradictory",
        "Rows without a run time are jobs that never started or had not ended; they are left out or were "
        "repaired, and the cluster was busier than the simulation shows.",
        "See the first places in the import report.",
        {
            "rows": rows,
            "share_of_rows": share,
            "reasons": tuple(f"{finding.rows:,}: {finding.reason}" for finding in concerned[:5]),
        },
    )


@check("repaired-rows", needs="report")
def repaired_rows(facts: Facts) -> Found | None:
    """Rows that were changed to become a valid job."""
    report = facts.needs_report()
    rows = sum(finding.rows for finding in report.repaired)
    if not rows:
        return None
    share = rows / report.rows_read
    return Found(
        "warning" if share > 0.05 else "note",
        f"{rows:,} rows ({percent(share)}) were changed to become a job",
        "These jobs are partly guesses.",
        "See the reasons and first places in the import report.",
        {
            "rows": rows,
            "share_of_rows": share,
            "reasons": tuple(f"{finding.rows:,}: {finding.reason}" for finding in report.repaired[:5]),
        },
    )


@check("assumptions", needs="report")
def assumptions(facts: Facts) -> Found | None:
    """Units and conventions that the files do not state."""
    assumed = facts.needs_report().assumed
    if not assumed:
        return None
    return Found(
        "note",
        f"reading the log took {len(assumed)} assumption{'s' if len(assumed) > 1 else ''}",
        "If one is wrong, every number is.",
        "Check them against the trace's documentation.",
        {"assumptions": len(assumed), "what": tuple(assumed)},
    )
