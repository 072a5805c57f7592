"""The process that answers a question: it replays, tells how far it is, and writes results in one piece."""

import json
import os
import shutil
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gpuyard.cluster.model import Cluster
from gpuyard.config import SimulationConfig
from gpuyard.errors import InputError
from gpuyard.evaluate.replay import NONE, find_contenders, replay_comparison, run_policies, with_current
from gpuyard.files import atomic_write
from gpuyard.workload import Workload
from gpuyard.workload.formats import import_trace
from gpuyard.workload.generators import preset_workload

TASK, PROGRESS = "task.json", "progress.json"
NICE = 10
TELL_EVERY_S = 0.2


@dataclass
class Telling:
    """Writes down how far the work is.

    Attributes:
        folder: Where.
        parent: The server: without it, nobody waits for the answer.
        total: Jobs of all replays.
        done: Those of replays that have ended.
    """

    folder: Path
    parent: int
    total: int = 0
    done: int = 0
    _last_s: float = 0.0

    def start(self, jobs: int, label: str) -> Callable[[int], None]:
        """A replay begins; what is returned is told how many of its jobs have finished."""
        before = self.done
        self.done += jobs
        self.tell(before, label)

        def finished(count: int) -> None:
            if time.monotonic() - self._last_s > TELL_EVERY_S:
                self.tell(before + count, label)

        return finished

    def tell(self, done: int, label: str) -> None:
        """Write the state, or end if the server has gone."""
        if os.getppid() != self.parent:
            sys.exit("the dashboard has ended")
        self._last_s = time.monotonic()
        self.write({"done": done, "total": self.total, "label": label})

    def write(self, document: dict[str, Any]) -> None:
        """Replace the file of progress."""
        with atomic_write(self.folder / PROGRESS) as temporary:
            temporary.write_text(json.dumps(document), encoding="utf-8")


def main(folder: str) -> int:
    """Work on the task in a folder."""
    os.nice(NICE)
    telling = Telling(Path(folder), os.getppid())
    try:
        _work(json.loads((telling.folder / TASK).read_text(encoding="utf-8")), telling)
    except InputError as error:
        telling.write({"error": str(error)})
        return 1
    return 0


def _work(task: dict[str, Any], telling: Telling) -> None:
    telling.tell(0, "reading the log")
    jobs, source = _jobs(task)
    config = SimulationConfig.model_validate(task["config"])
    answers = [(Cluster.model_validate(one["cluster"]), Path(one["out"])) for one in task["answers"]]
    currents = [one["current"] for one in task["answers"]]
    contenders = [
        with_current(find_contenders(task["policies"]), jobs, cluster, config, current)
        for (cluster, _), current in zip(answers, currents, strict=True)
    ]
    telling.total = len(jobs) * sum(map(len, contenders))
    for (cluster, out), others in zip(answers, contenders, strict=True):
        _answer(jobs, source, cluster, others, config, out, telling)
    telling.write({"done": telling.total, "total": telling.total, "label": "done"})


def _jobs(task: dict[str, Any]) -> tuple[Workload, str]:
    if task["file"] is None:
        return preset_workload(task["built_in"]).workload, task["built_in"]
    return import_trace([task["file"]]).workload, task["file"]


def _answer(
    jobs: Workload,
    source: str,
    cluster: Cluster,
    contenders: Sequence[Any],
    config: SimulationConfig,
    out: Path,
    telling: Telling,
) -> None:
    def start(label: str) -> Callable[[int], None]:
        return telling.start(len(jobs), f"{label} on {cluster.name}")

    runs = run_policies(jobs, cluster, contenders, config, start_run=start, current=NONE)
    telling.tell(telling.done, f"writing the results of {cluster.name}")
    unfinished = telling.folder / "results"
    shutil.rmtree(unfinished, ignore_errors=True)
    replay_comparison(source, runs).write(unfinished)
    if not out.exists():
        unfinished.rename(out)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
