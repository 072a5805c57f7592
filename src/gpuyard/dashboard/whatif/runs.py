"""Questions that are being answered: started, watched and cancelled."""

import json
import shutil
import subprocess
import sys
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gpuyard.cluster.model import Cluster
from gpuyard.config import AUTO
from gpuyard.dashboard.library import Library
from gpuyard.dashboard.whatif.question import BUILT_IN, Question, base_cluster, changed_cluster, find_log
from gpuyard.dashboard.whatif.work import PROGRESS, TASK
from gpuyard.errors import InputError
from gpuyard.evaluate.replay import NONE
from gpuyard.evaluate.results.files import holds_results
from gpuyard.files import atomic_write

FOLDER = "what-if"
STATE = ".state"
MOST_AT_ONCE = 2
MOST_KEPT = 50
"""Questions that the page lists, the newest ones."""
STOPS_WITHIN_S = 5.0


@dataclass
class Answering:
    """A question that was asked.

    Attributes:
        name: Of its results.
        question: What was asked.
        clusters: The cluster as it is, if there are changes, and the one that was asked about.
        ids: Of the results, once they are there.
        folder: Where the process tells how far it is.
        asked_s: When, Unix time.
        process: The one that works on it; None: the results were there.
        state: ``running``, ``done``, ``cancelled`` or ``failed``.
        said: Why it failed.
    """

    name: str
    question: Question
    clusters: list[Cluster]
    ids: list[str]
    folder: Path
    asked_s: float
    process: "subprocess.Popen[bytes] | None" = None
    state: str = "running"
    said: str = ""

    def look(self) -> None:
        """See whether it has ended, and how."""
        if self.state != "running" or (self.process is not None and self.process.poll() is None):
            return
        told = self.progress()
        if self.process is None or self.process.returncode == 0:
            self.state = "done"
        else:
            self.state = "failed"
            self.said = str(told.get("error", f"its process ended with code {self.process.returncode}"))
        self.clean()

    def progress(self) -> dict[str, Any]:
        """What the process told last."""
        try:
            told = json.loads((self.folder / PROGRESS).read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return {}
        return told if isinstance(told, dict) else {}

    def cancel(self) -> None:
        """End its process, by its own id."""
        if self.state == "running" and self.process is not None:
            self.process.terminate()
            try:
                self.process.wait(STOPS_WITHIN_S)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
            self.state = "cancelled"
            self.clean()

    def clean(self) -> None:
        """Remove what the process wrote for us alone."""
        shutil.rmtree(self.folder, ignore_errors=True)

    def document(self) -> dict[str, Any]:
        """For the page."""
        told = self.progress() if self.state == "running" else {}
        total = told.get("total") or 0
        return {
            "name": self.name,
            "state": self.state,
            "said": self.said,
            "question": self.question.model_dump(mode="json"),
            "cluster": self.clusters[-1].name,
            "share": min(told.get("done", 0) / total, 1.0) if total else 0.0,
            "label": told.get("label", ""),
            "asked_s": self.asked_s,
            "ids": self.ids if self.state == "done" else [],
        }


class WhatIfRuns:
    """All questions of a server: the source of the page's stream of changes.

    Args:
        library: Where logs are read; results are written below its first root.
    """

    def __init__(self, library: Library) -> None:
        self._library = library
        self._lock = threading.Lock()
        self._asked: dict[str, Answering] = {}

    def look(self) -> dict[str, Any]:
        """All questions, the newest first."""
        with self._lock:
            for one in self._asked.values():
                one.look()
            return {"runs": [one.document() for one in reversed(self._asked.values())]}

    def start(self, question: Question) -> dict[str, Any]:
        """Begin to answer; if the results are there, that is all.

        Raises:
            InputError: if the question leads nowhere, or too many are being answered.
        """
        log = find_log(self._library, question.log)
        base = base_cluster(self._library, question.cluster)
        questions = [question.unchanged, question] if question.changes else [question]
        clusters = [changed_cluster(base, one.changes) for one in questions]
        names = [one.name(cluster) for one, cluster in zip(questions, clusters, strict=True)]
        with self._lock:
            known = self._asked.get(names[-1])
            if known is not None:
                known.look()
                if known.state == "running":
                    return known.document()
            made = self._answering(question, clusters, names)
            if made.process is None and not self._all_there(names):
                self._begin(made, names, log)
            self._asked.pop(made.name, None)
            self._asked[made.name] = made
            self._forget()
            made.look()
            return made.document()

    def cancel(self, name: str) -> dict[str, Any]:
        """End the work on a question.

        Raises:
            InputError: if there is none of that name.
        """
        with self._lock:
            found = self._asked.get(name)
            if found is None:
                raise InputError(f"{name}: nothing of that name was asked since the dashboard began")
            found.look()
            found.cancel()
            return found.document()

    def _home(self) -> Path:
        return self._library.roots[0] / FOLDER

    def _answering(self, question: Question, clusters: list[Cluster], names: list[str]) -> Answering:
        ids = [f"0/{FOLDER}/{name}" for name in names]
        return Answering(names[-1], question, clusters, ids, self._home() / STATE / names[-1], time.time())

    def _all_there(self, names: list[str]) -> bool:
        return all(holds_results(self._home() / name) for name in names)

    def _begin(self, made: Answering, names: list[str], log: Path | None) -> None:
        running = [one for one in self._asked.values() if one.state == "running"]
        for one in running:
            one.look()
        if sum(one.state == "running" for one in running) >= MOST_AT_ONCE:
            raise InputError(f"{MOST_AT_ONCE} questions are being answered; wait for one, or cancel it")
        home = self._home()
        if home.is_symlink():
            raise InputError(f"{home}: is a link; results are written to directories only")
        answers = [
            {
                "cluster": cluster.model_dump(mode="json", exclude_none=True),
                "out": str(home / name),
                "current": NONE if cluster is not made.clusters[0] else AUTO,
            }
            for cluster, name in zip(made.clusters, names, strict=True)
            if not holds_results(home / name)
        ]
        built_in = made.question.log.removeprefix(BUILT_IN) if log is None else None
        task = {
            "file": None if log is None else str(log),
            "built_in": built_in,
            "policies": made.question.policies,
            "config": made.question.config().model_dump(mode="json"),
            "answers": answers,
        }
        try:
            made.folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise InputError(f"{made.folder}: cannot be written ({error.strerror})") from None
        with atomic_write(made.folder / TASK) as temporary:
            temporary.write_text(json.dumps(task), encoding="utf-8")
        command = [sys.executable, "-m", "gpuyard.dashboard.whatif.work", str(made.folder)]
        made.process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
            start_new_session=True,
        )  # fmt: skip

    def _forget(self) -> None:
        """Leave out the oldest ones that have ended."""
        ended = [name for name, one in self._asked.items() if one.state != "running"]
        for name in ended[: max(len(self._asked) - MOST_KEPT, 0)]:
            del self._asked[name]
