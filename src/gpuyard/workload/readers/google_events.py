"""Events of jobs and their tasks, folded into jobs piece by piece, for Google's traces of 2011 and 2019.

A job is a gang of its tasks, from the first time one is scheduled to the last time one stops. What is kept
between the pieces grows with the number of tasks, not of events.
"""

from collections.abc import Mapping
from pathlib import Path

import polars as pl

from gpuyard.workload.importing import ImportLog
from gpuyard.workload.readers.csv_jobs import Rule, without
from gpuyard.workload.readers.requests import with_numbers
from gpuyard.workload.schema import MAX_TIME_S

SUBMIT, SCHEDULE, EVICT, FAIL, FINISH, KILL, LOST, OTHER = range(8)
"""What an event is, here; each trace has its own numbers."""

_STOPS = (EVICT, FAIL, FINISH, KILL, LOST)
_AFTER_TRACE_US = 2**63 - 1
"""Time of what happened after the trace's end; 0 is before its start."""

_KINDS = 16
_TASKS_AT_ONCE = 2_000_000
_LINES = 2**40

EVENT_COLUMNS = {
    "time": pl.Int64, "job": pl.Int64, "task": pl.Int64, "kind": pl.Int8, "cpu": pl.Float64,
    "memory": pl.Float64, "priority": pl.Float64, "scheduling_class": pl.String, "user": pl.String,
    "reserves": pl.Boolean, "line": pl.Int64,
}  # fmt: skip
"""What ``EventFold`` takes: µs; ``task`` null for an event of the job itself; ``cpu`` and ``memory``
as parts of the largest machine; ``reserves`` for what only holds resources for other jobs."""


class EventFold:
    """Takes events in order of time, piece by piece, and makes jobs of them."""

    def __init__(self) -> None:
        self._files: list[Path] = []
        self._tasks: list[pl.DataFrame] = []
        self._jobs: list[pl.DataFrame] = []

    def add(self, events: pl.DataFrame, path: Path) -> None:
        """Fold a piece of a file, with the columns ``EVENT_COLUMNS``."""
        if path not in self._files:
            self._files.append(path)
        place = pl.col("line") + self._files.index(path) * _LINES
        events = events.with_columns(place=place, key=pl.col("time") * _KINDS + pl.col("kind"))
        self._jobs.append(_job_state(events))
        self._tasks.append(_task_state(events.filter(pl.col("task").is_not_null())))
        if sum(part.height for part in self._tasks[1:]) > _TASKS_AT_ONCE:
            self._compact()

    def _compact(self) -> None:
        if self._tasks:
            self._tasks = [_merged_tasks(pl.concat(self._tasks, how="diagonal"))]
            self._jobs = [_merged_jobs(pl.concat(self._jobs, how="diagonal"))]

    def jobs(self, gpus_per_machine: float) -> pl.DataFrame:
        """One row a job, whatever became of it.

        Columns of the state and, over all tasks: ``width``, ``start_us``, ``end_us``, ``unstopped`` (tasks
        that run beyond the trace), ``evictions``, ``cpu``, ``memory``, ``gpus`` (rounded up a task) and
        ``outcome``, the kind of stop that says how it ended. Parts of the largest machine are summed up.
        """
        self._compact()
        ran = pl.col("last_us").is_not_null()
        tasks = self._tasks[0].with_columns(
            gpus=(pl.col("cpu") * gpus_per_machine).round(9).ceil(),
            stop_kind=pl.col("stop") % _KINDS,
            # A task that was never scheduled can be killed while it waits, which ends no run.
            end_us=pl.when(ran).then(pl.col("stop") // _KINDS),
            unstopped=(ran & pl.col("stop").is_null()).cast(pl.Int64),
        )
        widths = tasks.group_by("job").agg(
            width=pl.len().cast(pl.Int64),
            start_us=pl.col("first_us").min(),
            end_us=pl.col("end_us").max(),
            unstopped=pl.col("unstopped").sum(),
            evictions=pl.col("evictions").sum(),
            cpu=pl.col("cpu").sum(),
            memory=pl.col("memory").sum(),
            gpus=pl.col("gpus").sum(),
            outcome=_outcome(pl.col("stop_kind")),
        )
        jobs = self._jobs[0].join(widths, on="job", how="left").sort("place")
        return jobs.with_columns(outcome=pl.coalesce(pl.col("last_stop") % _KINDS, "outcome"))

    def reject(self, jobs: pl.DataFrame, reason: str, log: ImportLog) -> None:
        """Write down jobs, by their first events, that cannot be kept."""
        for (number,), part in jobs.group_by(pl.col("place") // _LINES, maintain_order=True):
            log.reject(reason, self._files[int(str(number))].name, part["place"] % _LINES)


# Below, what an aggregate needs is made beforehand, a column each: aggregates of expressions are several
# times slower than those of plain columns.


def _job_state(events: pl.DataFrame) -> pl.DataFrame:
    time, kind = pl.col("time"), pl.col("kind")
    inside = (time > 0) & (time < _AFTER_TRACE_US)
    stops = pl.col("task").is_null() & inside & kind.is_in([FAIL, FINISH, KILL, LOST])
    made = events.select(
        "job",
        "place",
        "reserves",
        "priority",
        "scheduling_class",
        "user",
        before=time == 0,
        submit_us=pl.when(inside & (kind == SUBMIT)).then(time),
        last_stop=pl.when(stops).then(pl.col("key")),
        rows=pl.lit(1, dtype=pl.Int64),
    )
    return _merged_jobs(made)


def _merged_jobs(parts: pl.DataFrame) -> pl.DataFrame:
    # The largest of users and classes: a job has one of each, but for rows that leave it out.
    return parts.group_by("job").agg(
        pl.col("rows").sum(),
        pl.col("place", "submit_us").min(),
        pl.col("before", "reserves", "priority", "last_stop", "scheduling_class", "user").max(),
    )


def _task_state(events: pl.DataFrame) -> pl.DataFrame:
    time, kind = pl.col("time"), pl.col("kind")
    inside = (time > 0) & (time < _AFTER_TRACE_US)
    scheduled = pl.when(inside & (kind == SCHEDULE)).then(time)
    made = events.select(
        "job",
        "task",
        "cpu",
        "memory",
        first_us=scheduled,
        last_us=scheduled,
        stop=pl.when(inside & kind.is_in(_STOPS)).then(pl.col("key")),
        evictions=(kind == EVICT).cast(pl.Int64),
    )
    return _merged_tasks(made)


def _merged_tasks(parts: pl.DataFrame) -> pl.DataFrame:
    """One row a task; ``stop`` is its first stop after it was last scheduled.

    A task that waits again after an eviction can still be killed, but its run ended with the eviction. Of a
    task that is not scheduled in these parts, the first stop is kept: an earlier part may schedule it.
    """
    tasks = parts.group_by("job", "task").agg(
        pl.col("first_us", "stop").min(),
        pl.col("last_us", "cpu", "memory").max(),
        pl.col("evictions").sum(),
    )
    stopped_before = pl.col("stop") // _KINDS <= pl.col("last_us").fill_null(-1)
    again = tasks.filter(stopped_before)
    if again.height == 0:
        return tasks
    stops = parts.select("job", "task", "stop").join(
        again.select("job", "task", "last_us"), on=["job", "task"]
    )
    after = stops.filter(pl.col("stop") // _KINDS > pl.col("last_us"))
    after = after.group_by("job", "task").agg(pl.col("stop").min())
    again = again.drop("stop").join(after, on=["job", "task"], how="left")
    return pl.concat([tasks.filter(~stopped_before.fill_null(False)), again], how="diagonal")


def _outcome(stops: pl.Expr) -> pl.Expr:
    """Of a job whose own end is not logged: the worst end of a task."""
    chosen = pl.when((stops == KILL).any()).then(KILL).when((stops == FAIL).any()).then(FAIL)
    return chosen.when((stops == FINISH).all()).then(FINISH).otherwise(LOST).cast(pl.Int64)


def checked_events(
    rows: pl.DataFrame, kinds: Mapping[str, int], path: Path, log: ImportLog, *, of_tasks: bool
) -> pl.DataFrame:
    """Events as ``EventFold`` takes them; rows that are none are rejected.

    Args:
        rows: Text columns of a trace under the names of ``EVENT_COLUMNS``, with ``type`` in place of
            ``kind``; ``time``, ``job``, ``type`` and ``line`` at least.
        kinds: What each type of event is.
        path: The file they are from.
        log: Where rows are rejected.
        of_tasks: Whether a row without a task is wrong.
    """
    absent = [name for name in EVENT_COLUMNS if name not in rows.columns and name not in ("kind", "reserves")]
    rows = rows.with_columns(pl.lit(None, dtype=pl.String).alias(name) for name in absent)
    if "reserves" not in rows.columns:
        rows = rows.with_columns(reserves=pl.lit(False))
    rows = with_numbers(rows, ("cpu", "memory", "priority"), path, log)
    # Not by way of floats: ids and times need all their digits.
    ids = [pl.col(name).cast(pl.Int64, strict=False) for name in ("time", "job", "task")]
    kind = pl.col("type").replace_strict(kinds, default=None, return_dtype=pl.Int8).alias("kind")
    time, task = pl.col("time"), pl.col("task")
    rules: list[Rule] = [
        ("time is no whole number of microseconds", time.is_null() | (time < 0)),
        (f"time is beyond {MAX_TIME_S} s", (time > MAX_TIME_S * 10**6) & (time < _AFTER_TRACE_US)),
        ("the job's id is no whole number", pl.col("job").is_null()),
        ("the task's index is no whole number", task.is_null() if of_tasks else pl.lit(False)),
        ("type of event is unknown", pl.col("kind").is_null()),
        ("a request is negative", (pl.col("cpu") < 0) | (pl.col("memory") < 0)),
    ]
    events = without(rows.with_columns(*ids, kind), rules, path, log)
    return events.select(pl.col(name).cast(dtype) for name, dtype in EVENT_COLUMNS.items())
