"""An agent, followed through its journal: facts, charts, the cluster now, decisions, agreement."""

import math
import time
from collections import deque
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from gpuyard.dashboard.live.brief import facts_of, journal_of
from gpuyard.dashboard.live.charts import cluster_charts, node_list, round_charts
from gpuyard.dashboard.live.decisions import decision_rows
from gpuyard.errors import InputError
from gpuyard.serve.journal import Journal
from gpuyard.serve.journal.contents import noted_settings
from gpuyard.serve.journal.shadow import ShadowComparison
from gpuyard.serve.records import RoundRecord
from gpuyard.serve.settings import ServeSettings
from gpuyard.serve.signs import Signs
from gpuyard.serve.state import ClusterState
from gpuyard.units import duration

MOST_OUTLINES = 3600
"""Rounds in charts: an hour at one per second."""
MOST_RECORDS = 300
"""Rounds that are compared with what the scheduler did, before those that come while the page is open."""
MOST_DECISIONS = 200
AT_ONCE = 50
"""Rounds that are read in full at a time."""
READ_WITHIN_S = 0.3
"""Rounds that take longer to read come with the next look."""
COMPARE_EVERY_S = 5.0


class FollowedAgent:
    """Everything that a page says of one agent.

    Args:
        directory: Its state directory.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._signs = Signs(directory)
        self._state: ClusterState | None = None
        self._journal: Journal | None = None
        self._forget()

    def _forget(self) -> None:
        self._outlines: deque[RoundRecord] = deque(maxlen=MOST_OUTLINES)
        self._decisions: deque[dict[str, Any]] = deque(maxlen=MOST_DECISIONS)
        self._before: RoundRecord | None = None
        self._read_to = 0
        self._comparison: ShadowComparison | None = None
        self._compared_s = -math.inf
        self._is_new = False

    def look(self) -> dict[str, Any]:
        """What has changed.

        Raises:
            InputError: if the journal cannot be read.
        """
        journal = self._open()
        try:
            settings = noted_settings(journal)
            fresh = self._read_outlines(journal)
            events: dict[str, Any] = {"facts": self._facts(settings, journal, fresh)}
            if fresh and self._state is not None:
                events["charts"] = [*round_charts(self._outlines), *cluster_charts(self._state)]
                events["nodes"] = node_list(self._state)
            return events | self._read_records(journal)
        except InputError:
            self._close()
            raise

    def close(self) -> None:
        """Close the journal."""
        self._close()

    def _open(self) -> Journal:
        if self._journal is not None and not journal_of(self._directory).is_file():
            self._close()
        if self._journal is None:
            self._journal = Journal.open(journal_of(self._directory), readonly=True)
        return self._journal

    def _close(self) -> None:
        if self._journal is not None:
            self._journal.close()
            self._journal = None
            self._forget()

    def _read_outlines(self, journal: Journal) -> bool:
        """Read the rounds that are new; whether there are any."""
        known = self._outlines[-1].number if self._outlines else 0
        newest = journal.next_number() - 1
        first = max(known + 1, newest - MOST_OUTLINES + 1)
        found = journal.outlines(first, MOST_OUTLINES) if newest >= first else []
        self._outlines.extend(found)
        return bool(found)

    def _facts(self, settings: ServeSettings, journal: Journal, fresh: bool) -> dict[str, Any]:
        last = self._outlines[-1] if self._outlines else None
        if last is not None and fresh:
            self._state = journal.state(last.number)
        state = self._state
        facts = facts_of(self._signs, last, settings)
        return facts | {"tiles": _tiles(self._outlines, state), "notes": list(state.notes) if state else []}

    def _read_records(self, journal: Journal) -> dict[str, Any]:
        """Read rounds in full, as far as time allows: decisions, and whether the scheduler did the same.

        Nothing is said before the rounds that were there at first have been read.
        """
        newest = journal.next_number() - 1
        if self._comparison is None:
            self._comparison = ShadowComparison(journal)
            self._read_to = max(0, newest - MOST_RECORDS)
        until, before = time.monotonic() + READ_WITHIN_S, self._read_to
        while self._read_to < newest and time.monotonic() < until:
            for record in journal.records(self._read_to + 1, AT_ONCE):
                self._comparison.take(record)
                self._decisions.extendleft(decision_rows(record, self._before))
                self._before, self._read_to = record, record.number
        self._is_new = self._is_new or self._read_to > before
        if not self._is_new or self._read_to < newest:
            return {}
        found: dict[str, Any] = {"decisions": list(self._decisions)}
        if time.monotonic() - self._compared_s > COMPARE_EVERY_S:
            found["shadow"] = _agreement(self._comparison)
            self._compared_s, self._is_new = time.monotonic(), False
        return found


def _tiles(outlines: Sequence[RoundRecord], state: ClusterState | None) -> dict[str, str]:
    if not outlines or state is None:
        return {"rounds": "none yet"}
    last = outlines[-1]
    recent = [one for one in outlines if one.wall_s > last.wall_s - 60.0]
    gpus, used = sum(node.gpus for node in state.nodes), sum(job.gpus for job in state.running)
    oldest_s = max((state.now_s - job.submit_s for job in state.waiting), default=None)
    return {
        "decided by": last.decider if last.decider == "nobody" else f"the {last.decider}",
        "rounds in the last minute": f"{len(recent):,}",
        "waiting": f"{last.pending:,}",
        "left to the scheduler": f"{last.left:,}",
        "running": f"{len(state.running):,}",
        "GPUs in use": f"{used:,} of {gpus:,}",
        "held by the agent": f"{sum(job.held == 'agent' for job in state.jobs):,}",
        "longest wait": "-" if oldest_s is None else duration(max(0.0, oldest_s)),
        "cluster": state.source,
    }


def _agreement(comparison: ShadowComparison) -> dict[str, Any]:
    report = comparison.finish()
    return {
        "agreement": report.agreement,
        "baseline": report.baseline_agreement,
        "compared": report.compared,
        "rounds": report.rounds,
        "correlation": report.order.correlation,
        "predictions": {
            by: {"jobs": one.jobs, "median": duration(one.median_s), "inside": one.inside}
            for by, one in report.predictions.items()
        },
        "missing": report.missing,
    }
