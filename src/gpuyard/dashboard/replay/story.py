"""Why a job waited: the simulation of its schedule once more, with questions to the policy.

It runs in a process of its own, which takes the memory for all jobs with it when it ends.
"""

import json
import os
import subprocess
import sys
import threading
from collections import OrderedDict
from dataclasses import asdict
from pathlib import Path
from typing import Any

import polars as pl
from pydantic import ValidationError

from gpuyard.config import SimulationConfig, refusal
from gpuyard.errors import InputError
from gpuyard.evaluate.setting import Outline
from gpuyard.evaluate.storage import read_outline, read_table
from gpuyard.policies.base import RECORDED
from gpuyard.policies.grammar import PolicySpec
from gpuyard.report.facts import read_cluster
from gpuyard.simulation.explain import JobStory, explain_job
from gpuyard.simulation.explain_text import periods, reasons, sentences
from gpuyard.simulation.find import find_policy
from gpuyard.workload.schema import SCHEMA, SPARSE, Workload, make_workload

MOST_STORIES = 200
"""Stories that are kept: people come back to a job."""
LONGEST_S = 180
NICE = 5
SAME_S = 1e-3
Name = tuple[str, str, int, float, int]
DAY_S = 86_400.0


class Stories:
    """Tells stories, one at a time, and keeps the last ones."""

    def __init__(self) -> None:
        self._kept: OrderedDict[Name, dict[str, Any]] = OrderedDict()
        self._lock = threading.Lock()

    def tell(
        self, directory: Path, outline: Outline, policy: str, row: int, ahead_s: float = 0.0
    ) -> dict[str, Any]:
        """Why a job of a replay started when it did, ready for JSON.

        Args:
            directory: The results.
            outline: The same, read.
            policy: Full name of the policy.
            row: The job's row in the log.
            ahead_s: How far the clock of whoever reads is ahead of UTC, at most a day.

        Raises:
            InputError: if reasons of this schedule cannot be told, with why.
        """
        _check(outline, policy)
        path = outline.schedules[policy]
        ahead_s = min(max(ahead_s, -DAY_S), DAY_S)
        name = (str(directory), policy, row, ahead_s, path.stat().st_mtime_ns if path.is_file() else 0)
        with self._lock:
            if name not in self._kept:
                self._kept[name] = _ask(directory, policy, row, ahead_s)
                if len(self._kept) > MOST_STORIES:
                    self._kept.popitem(last=False)
            return self._kept[name]


def _ask(directory: Path, policy: str, row: int, ahead_s: float) -> dict[str, Any]:
    command = [sys.executable, "-m", __name__, str(directory), policy, str(row), str(ahead_s)]
    try:
        done = subprocess.run(command, capture_output=True, timeout=LONGEST_S, check=False)
    except subprocess.TimeoutExpired:
        raise InputError(
            f"the reasons of this job were not found within {LONGEST_S} s; gpuyard explain has no such limit"
        ) from None
    try:
        told: dict[str, Any] = json.loads(done.stdout)
    except ValueError:
        last = done.stderr.decode("utf-8", "replace").strip().rsplit("\n", 1)[-1]
        raise InputError(f"the reasons of this job could not be found ({last[:200]})") from None
    if "error" in told:
        raise InputError(told["error"])
    return told


def main(directory: str, policy: str, row: str, ahead_s: str) -> None:
    """Print a story, or why there is none, as JSON."""
    os.nice(NICE)
    try:
        told = _tell(read_outline(Path(directory)), policy, int(row), float(ahead_s))
    except InputError as error:
        told = {"error": str(error)}
    json.dump(told, sys.stdout)


def _check(outline: Outline, policy: str) -> None:
    if outline.setting.kind != "whole":
        raise InputError(
            "these results are of windows, which begin on a busy cluster; reasons are told of whole replays, "
            "as gpuyard simulate --out writes them"
        )
    if policy == RECORDED:
        raise InputError("this is what the log says; nobody knows the reasons of whoever decided it")
    entry = next((one for one in outline.policies if one.name == policy), None)
    if entry is None or policy not in outline.schedules:
        raise InputError(f"these results hold no schedule of {policy}")
    if entry.kind == "learned":
        raise InputError("this policy is a network, which has no reasons to tell; look at a heuristic")


def _tell(outline: Outline, policy: str, row: int, ahead_s: float) -> dict[str, Any]:
    _check(outline, policy)
    config, table = _config(outline), read_table(outline.schedules[policy])
    found = table.filter(pl.col("row") == row)
    if not len(found):
        raise InputError(f"row {row}: this schedule has no such job")
    if config.estimates != "requested":  # which looks at all jobs
        table = table.filter(pl.col("submit_s") <= found["end_s"][0])
    jobs, cluster = _workload(outline, table, ahead_s), read_cluster(outline.setting.cluster, "these results")
    told = explain_job(jobs, cluster, _rules(outline, policy), config, f"row:{row}")
    if abs(told.start_s - found["start_s"][0]) > SAME_S:
        raise InputError(
            "the simulation of today starts this job at another time than the schedule says: it was made by "
            "another version, or with jobs that finished before; make the results again"
        )
    return _document(told)


def _workload(outline: Outline, table: pl.DataFrame, ahead_s: float) -> Workload:
    """The jobs of a schedule as they were before it; those that were left out did not matter to it."""
    frame = table.drop("nodes").rename({"nodes_asked": "nodes"}, strict=False)
    frame = frame.select(name for name in SCHEMA if name in frame.columns)
    kept = [name for name in frame.columns if name not in SPARSE or frame[name].null_count() < len(frame)]
    first_s = frame["submit_s"].min()
    if first_s == 0.0:
        epoch_s = outline.setting.epoch_s
        clock_s = 0.0 if epoch_s is None else epoch_s + ahead_s
        return make_workload(frame.select(kept), name=outline.setting.workload, epoch_s=clock_s)
    raise InputError(
        "the first jobs of the log were left out of this schedule, so that its clock begins before its first "
        "job; gpuyard explain tells reasons from the log itself"
    )


def _rules(outline: Outline, policy: str) -> PolicySpec:
    entry = next(one for one in outline.policies if one.name == policy)
    rules = find_policy(entry.rules or policy).rules
    if rules is None:
        raise InputError(f"policy {policy} has no reasons to tell")
    return rules


def _config(outline: Outline) -> SimulationConfig:
    try:
        return SimulationConfig.model_validate(dict(outline.setting.information))
    except ValidationError as error:
        raise InputError(f"{refusal(error, 'these results have settings of another version')}") from None


def _document(told: JobStory) -> dict[str, Any]:
    """Sentences, but for the one on the clock, and the wait as spans of one reason each."""
    words = reasons(told)
    spans = [
        {
            "from_s": span.from_s,
            "to_s": span.to_s,
            "reason": words[span.reason],
            "detail": span.detail,
            "head": None if span.head is None else {**asdict(span.head), "name": str(span.head)},
        }
        for span in periods(told)
    ]
    overtakers = [
        {"row": one.job.row, "name": str(one.job), "gpus": one.gpus, "start_s": one.start_s}
        for one in told.overtakers[:10]
    ]
    return {
        "sentences": sentences(told)[: None if told.epoch_s is None else -1],
        "spans": spans,
        "overtakers": overtakers,
    }


if __name__ == "__main__":
    main(*sys.argv[1:])
