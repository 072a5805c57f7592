"""Rows of the home page: one for everything that was found, each read again only when its files change."""

import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from gpuyard.dashboard.feeds import plain
from gpuyard.dashboard.library import Entry, Library
from gpuyard.dashboard.live.brief import agent_facts
from gpuyard.dashboard.training.facts import run_facts
from gpuyard.dashboard.training.followed import FollowedRun
from gpuyard.errors import InputError
from gpuyard.evaluate.results.files import DOCUMENT
from gpuyard.runs.directory import CONFIG, PROGRESS, Run
from gpuyard.runs.progress import STOP_REASONS

ANSWERS_WITHIN_S = 0.5
"""Comparisons are read for so long at a time; those that are left say so, and come with the next look."""
PAGES = {"run": "/runs?run=", "results": "/compare?results=", "journal": "/live?agent="}
READING = "reading …"

Row = dict[str, Any]


class HomeRows:
    """Makes rows of what is there; one for each kind and id.

    Args:
        library: Where to look.
    """

    def __init__(self, library: Library) -> None:
        self._library = library
        self._lock = threading.Lock()  # the page and its stream of changes ask beside each other
        self._runs: dict[str, FollowedRun] = {}
        self._ended: dict[str, tuple[object, dict[str, Any]]] = {}
        self._answers: dict[str, tuple[object, dict[str, Any]]] = {}

    def look(self) -> dict[str, Any]:
        """All rows by kind, the latest change first, and notes on what could not be looked at."""
        with self._lock:
            return self._look()

    def read_runs(self) -> list[Run]:
        """All runs that can be read, as far as they have been."""
        with self._lock:
            return [followed.run for followed in self._runs.values()]

    def _look(self) -> dict[str, Any]:
        entries, notes = self._library.entries()
        self._forget({entry.id for entry in entries})
        until = time.monotonic() + ANSWERS_WITHIN_S
        rows: dict[str, list[Row]] = {"run": [], "results": [], "journal": []}
        for entry in entries:
            rows[entry.kind].append(self._row(entry, until))
        return {"home": {**rows, "notes": notes, "roots": [str(root) for root in self._library.roots]}}

    def _forget(self, there: set[str]) -> None:
        for kept in (self._runs, self._ended, self._answers):
            for id in kept.keys() - there:
                del kept[id]

    def _row(self, entry: Entry, until: float) -> Row:
        row: Row = {"id": entry.id, "kind": entry.kind, "changed_s": entry.changed_s}
        row |= {"name": entry.path.name, "where": str(entry.path), "page": PAGES[entry.kind]}
        makers: dict[str, Callable[[], dict[str, Any]]] = {
            "run": lambda: self._run(entry),
            "results": lambda: self._results(entry, until),
            "journal": lambda: agent_facts(self._library.directory(entry.id)),
        }
        try:
            return row | makers[entry.kind]()
        except InputError as error:
            return row | {"damaged": plain(error)}
        except OSError as error:
            return row | {"damaged": f"cannot be read ({error.strerror or error})"}

    def _run(self, entry: Entry) -> dict[str, Any]:
        """Facts of a run; of one that has ended, those that are known, until it is written to again."""
        directory = self._library.directory(entry.id)
        mark = _mark(directory / PROGRESS), _mark(directory / CONFIG)
        if entry.id in self._ended and self._ended[entry.id][0] == mark:
            return self._ended[entry.id][1]
        followed = self._runs.setdefault(entry.id, FollowedRun(directory, curves=False))
        try:
            followed.look()
        except InputError:
            del self._runs[entry.id]  # it may be mended
            raise
        facts = run_facts(followed)
        if followed.state in STOP_REASONS and facts["reading"] is None and not facts["resumable"]:
            self._ended[entry.id] = mark, facts
        return facts

    def _results(self, entry: Entry, until: float) -> dict[str, Any]:
        directory = self._library.directory(entry.id)
        mark = _mark(directory / DOCUMENT)
        known = self._answers.get(entry.id)
        if known is None or known[0] != mark:
            if time.monotonic() > until:
                return {"answer": READING}
            known = self._answers[entry.id] = (mark, _answer(directory))
        return known[1]


def _mark(path: Path) -> object:
    """Changes whenever a file does."""
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino


def _answer(directory: Path) -> dict[str, Any]:
    """What a comparison says, in one line."""
    from gpuyard.evaluate.findings import findings  # which loads polars
    from gpuyard.evaluate.storage import read_comparison
    from gpuyard.evaluate.wording import PAGE, sentences

    try:
        comparison = read_comparison(directory, schedules=False)
    except InputError as error:
        return {"damaged": plain(error)}
    said = sentences(comparison, findings(comparison), PAGE)
    setting = comparison.setting
    return {"answer": said[0] if said else "", "policies": len(comparison.policies), "metric": setting.metric}
