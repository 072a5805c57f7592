"""What ``gpuyard simulate --out`` wrote, as a report: each policy ran once on the same jobs."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl

from gpuyard.errors import InputError
from gpuyard.metrics.classes import class_labels, class_table, common_users, several_classes
from gpuyard.report.classes import losses_without_intervals
from gpuyard.report.facts import information_text, policy_labels, read_cluster, setting_facts
from gpuyard.report.model import Change, Report, Standing
from gpuyard.report.words import answer_of_one_run, ratio_of
from gpuyard.units import plural

RESULTS = "results.json"
METRIC = "mean_bounded_slowdown"
"""What decides which policy is best: users feel how long they wait in terms of how long they run."""
SAME_JOBS = ("row", "submit_s", "duration_s", "gpus", "gpu_milli")
NEEDED = {
    *("submit_s", "duration_s", "gpus", "gpu_milli", "priority", "user", "group", "source_id", "row"),
    *("start_s", "end_s", "backfilled", "gpu_index", "nodes", "node_gpus"),
}
"""Columns of a schedule that a report reads."""


@dataclass(frozen=True)
class _Run:
    """One policy of a directory."""

    home: Path
    document: Mapping[str, Any]
    schedule: pl.DataFrame
    runs: pl.DataFrame | None

    @property
    def policy(self) -> str:
        return str(self.document["policy"])


def read_json(path: Path, keys: Sequence[str]) -> dict[str, Any]:
    """A JSON object with these keys.

    Raises:
        InputError: if the file cannot be read or is not that.
    """
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror})") from None
    except (ValueError, RecursionError) as error:
        raise InputError(f"{path}: is not valid JSON ({error}); write the results again") from None
    missing = [key for key in keys if not isinstance(document, dict) or key not in document]
    if missing:
        raise InputError(
            f"{path}: lacks {', '.join(missing)}, so it was not written by this version of gpuyard; "
            "run gpuyard simulate --out again"
        )
    assert isinstance(document, dict)
    return document


def read_simulations(directories: Sequence[Path]) -> Report:
    """One report about all policies in these directories.

    Raises:
        InputError: if files are missing, malformed, or about different jobs, clusters or settings.
    """
    runs: dict[str, _Run] = {}
    names: list[str] = []
    for directory in directories:
        results = read_json(directory / RESULTS, ("workload", "settings", "jobs", "results"))
        names.append(str(results["workload"]))
        try:
            found = _read_runs(directory, results)
        except (TypeError, AttributeError, KeyError) as error:
            raise InputError(
                f"{directory}: is damaged ({error!s:.80}); run gpuyard simulate --out again"
            ) from None
        for run in found:
            first = next(iter(runs.values()), run)
            _check_same(first, run)
            runs.setdefault(run.policy, run)
    return _report(list(runs.values()), names[0], [str(directory) for directory in directories])


def _read_runs(directory: Path, results: Mapping[str, Any]) -> list[_Run]:
    homes: dict[str, tuple[Path, dict[str, Any]]] = {}
    for path in sorted(directory.glob("*/metrics.json")):
        document = read_json(path, ("policy", "cluster", "settings", "jobs", "metrics", "schedule_hash"))
        homes[document["schedule_hash"] + document["policy"]] = (path.parent, document)
    found = []
    for result in results["results"]:
        key = str(result.get("schedule_hash")) + str(result.get("policy"))
        if key not in homes:
            raise InputError(
                f"{directory}: has no files of policy {result.get('policy')!r} as {RESULTS} describes it; "
                "run gpuyard simulate --out again"
            )
        found.append(_read_run(*homes[key]))
    if not found:
        raise InputError(f"{directory / RESULTS}: holds no results")
    return found


def _read_run(home: Path, document: dict[str, Any]) -> _Run:
    schedule = read_schedule(home / "schedule.parquet")
    expected = document["jobs"] - document.get("dropped_jobs", 0)
    if len(schedule) != expected:
        raise InputError(
            f"{home / 'schedule.parquet'}: has {plural(len(schedule), 'job')}, but metrics.json beside it "
            f"is about {expected:,}; run gpuyard simulate --out again"
        )
    pieces = home / "runs.parquet"
    return _Run(home, document, schedule, read_frame(pieces) if pieces.is_file() else None)


def read_frame(path: Path) -> pl.DataFrame:
    """A parquet file.

    Raises:
        InputError: if it cannot be read.
    """
    try:
        return pl.read_parquet(path)
    except (OSError, pl.exceptions.PolarsError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise InputError(f"{path}: cannot be read ({reason.splitlines()[0]})") from None


def read_schedule(path: Path) -> pl.DataFrame:
    """A schedule.

    Raises:
        InputError: if it cannot be read, or has other columns than this version writes.
    """
    return check_schedule(read_frame(path), str(path))


def check_schedule(frame: pl.DataFrame, where: str) -> pl.DataFrame:
    """Refuse a schedule that lacks columns."""
    if missing := sorted(NEEDED - set(frame.columns)):
        raise InputError(
            f"{where}: is a schedule of another version of gpuyard, it lacks {', '.join(missing)}; "
            "make it again"
        )
    return frame


def _check_same(first: _Run, run: _Run) -> None:
    """Refuse policies that did not run under the same conditions."""
    where = f"{first.home} and {run.home}"
    if not first.schedule.select(SAME_JOBS).equals(run.schedule.select(SAME_JOBS)):
        raise InputError(f"{where} are schedules of different jobs: they cannot be compared with each other")
    if first.document["cluster"] != run.document["cluster"]:
        raise InputError(f"{where} ran on different clusters: they cannot be compared with each other")
    own, other = first.document["settings"], run.document["settings"]
    differ = [key for key in {**own, **other} if own.get(key) != other.get(key)]
    if differ:
        key = differ[0]
        raise InputError(
            f"{where} ran with different information or settings ({key} is {own.get(key)!r} in one and "
            f"{other.get(key)!r} in the other): they cannot be compared with each other"
        )


def _report(runs: Sequence[_Run], workload: str, directories: Sequence[str]) -> Report:
    documents = {run.policy: run.document["metrics"] for run in runs}
    notes = {run.policy: " ".join(run.document.get("notes", ())) for run in runs}
    labels = policy_labels(list(documents))
    first = runs[0]
    standings = []
    for name, metrics in documents.items():
        changes = {key: Change(ratio_of(metrics, documents[first.policy], key)) for key in metrics}
        if name == first.policy:
            changes = {key: Change(None, verdict="reference") for key in metrics}
        role = "reference" if name == first.policy else ""
        standings.append(Standing(name, labels[name], "", metrics, changes, notes[name], role))
    reference = standings[0]
    standings.sort(key=lambda one: _or_infinity(one.values.get(METRIC)))
    schedules = {run.policy: run.schedule for run in runs}
    classes = _classes(schedules)
    best, settings = standings[0], first.document["settings"]
    against = reference if best is not reference else standings[min(1, len(standings) - 1)]
    cluster = read_cluster(first.document["cluster"], str(first.home / "metrics.json"))
    jobs = len(first.schedule)
    return Report(
        title=f"{workload}: {plural(len(runs), 'policy')} compared",
        subtitle=f"{plural(jobs, 'job')} on {cluster.name}, {information_text(settings)}",
        answer=answer_of_one_run(standings, METRIC, reference, lower_is_better=True),
        metric=METRIC,
        lower_is_better=True,
        standings=standings,
        best=best.name,
        subject=best.name,
        reference=reference.name,
        reference_text="the policy that was named first",
        outcomes=schedules,
        schedules=schedules,
        cluster=cluster,
        classes=classes,
        runs={run.policy: run.runs for run in runs if run.runs is not None},
        losses=losses_without_intervals(classes, best.name, against.name) if len(runs) > 1 else (),
        losses_text=f"under {best.label} than under {against.label}, in this one run (no intervals)",
        facts=setting_facts(workload, jobs, cluster, settings, directories),
    )


def _classes(schedules: Mapping[str, pl.DataFrame]) -> pl.DataFrame:
    """Metrics of classes of jobs under each policy."""
    tables = [
        class_table(frame, class_labels(frame, common_users([frame]))).with_columns(policy=pl.lit(name))
        for name, frame in schedules.items()
    ]
    return several_classes(pl.concat(tables))


def _or_infinity(value: float | None) -> float:
    return float("inf") if value is None else value
