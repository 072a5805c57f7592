"""Decisions as rows: what the policy wanted, what the baseline would have done, what the guard said."""

from collections.abc import Iterator
from typing import Any

from gpuyard.serve.records import Planned, RoundRecord, Verdict

Row = dict[str, Any]
MOST_NODES = 4


def decision_rows(record: RoundRecord, before: RoundRecord | None) -> list[Row]:
    """What a round decided that the one before had not, by job."""
    known = {} if before is None else dict(_told(before))
    return [
        {"key": f"{record.number}-{job}", "round": record.number, "at_s": record.wall_s, "job": job, **told}
        for job, told in _told(record)
        if known.get(job) != told
    ]


def _told(record: RoundRecord) -> Iterator[tuple[str, Row]]:
    wanted = {one.job: one for one in record.starts}
    baseline = {one.job: one for one in record.baseline}
    verdicts = {one.job: one for one in record.verdicts}
    for job in dict.fromkeys((*verdicts, *wanted, *baseline)):
        verdict = verdicts.get(job)
        yield (
            job,
            {
                "by": record.decider,
                "wanted": _start(wanted.get(job)) or (_other(verdict) if verdict else "does not start it"),
                "baseline": _start(baseline.get(job)) or "does not start it",
                "same": _nodes(wanted.get(job)) == _nodes(baseline.get(job)),
                "guard": "" if verdict is None else "allowed" if verdict.allowed else verdict.rule,
                "words": "" if verdict is None or verdict.allowed else verdict.words,
                "error": "" if verdict is None else verdict.error,
            },
        )


def _nodes(planned: Planned | None) -> object:
    return None if planned is None else planned.nodes


def _start(planned: Planned | None) -> str:
    if planned is None:
        return ""
    names = [f"{name} ({gpus})" if gpus else name for name, gpus in planned.nodes[:MOST_NODES]]
    left = len(planned.nodes) - MOST_NODES
    return f"start on {', '.join(names)}{f' and {left} more' if left > 0 else ''}"


def _other(verdict: Verdict) -> str:
    return verdict.action if verdict.action != "start" else "start"
