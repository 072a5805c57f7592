"""Schedules as Chrome-trace JSON, which ui.perfetto.dev opens: nodes are processes, GPUs are threads."""

import gzip
import json
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import polars as pl

from gpuyard.errors import InputError, setting
from gpuyard.evaluate.comparison import in_full
from gpuyard.files import atomic_write
from gpuyard.report.model import Report

COUNTERS = 1
"""Process of the counters; nodes come after it."""
SHARED = 100_000
"""Threads of jobs that share a GPU, which may overlap, count from this times (the GPU's number + 1)."""
SHOWN = ("row", "user", "group", "gpus", "submit_s", "wait_s", "duration_s", "backfilled")
"""What is told of a job when its slice is selected."""
EARLIER = 1e-9
"""How far, in seconds, an end may lie after the begin that it equals: times are whole microseconds."""


class NodeLanes:
    """The GPUs of one node, taken in order of time, the lowest free ones first.

    Schedules say how many GPUs a job held on a node, not which.
    """

    def __init__(self) -> None:
        self._free_from: list[float] = []

    def take(self, begin_s: float, end_s: float, count: int) -> tuple[int, ...]:
        """Numbers of ``count`` GPUs (one at least) that are free from then on; begins must not descend."""
        wanted = max(count, 1)
        free = [k for k, at in enumerate(self._free_from) if at <= begin_s + EARLIER][:wanted]
        missing = wanted - len(free)
        free += range(len(self._free_from), len(self._free_from) + missing)
        self._free_from += [0.0] * missing
        for lane in free:
            self._free_from[lane] = end_s
        return tuple(free)


def write_perfetto(path: Path, report: Report, policy: str | None = None) -> str:
    """Write one policy's schedule.

    Args:
        path: Ends in ``.json`` or ``.json.gz``.
        report: What holds the schedules.
        policy: Full or short name; None: the one that the answer is about, else the best that has a schedule.

    Returns:
        Full name of the policy.

    Raises:
        InputError: if there is no such schedule, or the file cannot be written.
    """
    name = _find(report, policy)
    events = trace_events(report, name)
    with atomic_write(path) as temporary, _open(path, temporary) as file:
        file.write('{"displayTimeUnit":"ms","traceEvents":[\n')
        for number, event in enumerate(events):
            file.write((",\n" if number else "") + json.dumps(event, separators=(",", ":")))
        file.write("\n]}\n")
    return name


def _open(path: Path, temporary: Path) -> Any:
    if path.suffix == ".gz":
        return gzip.open(temporary, "wt", encoding="utf-8", compresslevel=6)
    return temporary.open("w", encoding="utf-8")


def _find(report: Report, policy: str | None) -> str:
    if not report.schedules:
        raise InputError(
            f"{setting('perfetto')}: these results hold no schedules; gpuyard simulate writes them"
        )
    subject_first = sorted(report.standings, key=lambda one: one.name != report.subject)
    names = {policy} if policy is None else {policy, in_full(policy)}
    for one in subject_first:
        if one.name in report.schedules and names & {None, one.name, one.label}:
            return one.name
    known = ", ".join(one.label for one in report.standings if one.name in report.schedules)
    raise InputError(f"{setting('policy', policy)}: there is no schedule of it; there are those of {known}")


def trace_events(report: Report, policy: str) -> Iterator[dict[str, Any]]:
    """The events: names of nodes and GPUs, a slice for each GPU of each run, and counters."""
    frame = report.schedules[policy]
    yield _named(COUNTERS, f"cluster under {report.label(policy)}")
    wait = (pl.col("start_s") - pl.col("submit_s")).round(6).alias("wait_s")
    jobs = frame.with_columns(wait).select("source_id", *SHOWN).to_dicts()
    lanes: dict[tuple[int, int], NodeLanes] = {}
    threads: dict[int, set[int]] = {}
    for job, begin_s, end_s, nodes, held, gpu in _pieces(frame, report.runs.get(policy)):
        slice_of = _slice(jobs[job], begin_s, end_s)
        for node, count in zip(nodes, held, strict=True):
            free = lanes.setdefault((node, gpu), NodeLanes())
            for lane in free.take(begin_s, end_s, count):
                lane += 0 if gpu < 0 else SHARED * (gpu + 1)
                threads.setdefault(node, set()).add(lane)
                yield {**slice_of, "pid": COUNTERS + 1 + node, "tid": lane + 1}
    for node, used in sorted(threads.items()):
        yield _named(COUNTERS + 1 + node, f"node {node}")
        for lane in sorted(used):
            about = {"ph": "M", "pid": COUNTERS + 1 + node, "tid": lane + 1}
            yield {**about, "name": "thread_name", "args": {"name": _thread_name(lane)}}
    yield from _counter("jobs waiting", frame, "submit_s", "start_s", pl.lit(1.0))
    yield from _counter("GPUs in use", frame, "start_s", "end_s", pl.col("gpus") * pl.col("gpu_milli") / 1000)


def _thread_name(lane: int) -> str:
    gpu, place = divmod(lane, SHARED)
    return f"GPU {gpu - 1}, shared, {place}" if gpu else f"GPU {place}"


Piece = tuple[int, float, float, list[int], list[int], int]


def _pieces(frame: pl.DataFrame, runs: pl.DataFrame | None) -> Iterable[Piece]:
    """Entry, begin, end, nodes, GPUs on them and GPU index of each run, by when it began."""
    if runs is None:
        frame = frame.with_row_index("entry")
        begin, end = "start_s", "end_s"
    else:
        frame, begin, end = runs, "taken_s", "released_s"
    columns = frame.sort(begin, maintain_order=True).select(
        "entry", begin, end, "nodes", "node_gpus", "gpu_index"
    )
    return columns.iter_rows()


def _slice(job: Mapping[str, Any], begin_s: float, end_s: float) -> dict[str, Any]:
    return {
        "ph": "X",
        "name": f"job {job['source_id'] or job['row']}",
        "cat": job["group"] or "jobs",
        "ts": round(begin_s * 1e6),
        "dur": max(round((end_s - begin_s) * 1e6), 1),
        "args": {key: job[key] for key in SHOWN},
    }


def _named(process: int, name: str) -> dict[str, Any]:
    return {"ph": "M", "pid": process, "tid": 0, "name": "process_name", "args": {"name": name}}


def _counter(
    name: str, frame: pl.DataFrame, begin: str, end: str, weight: pl.Expr
) -> Iterator[dict[str, Any]]:
    up = frame.select(pl.col(begin).alias("at"), weight.alias("change"))
    down = frame.select(pl.col(end).alias("at"), (-weight).alias("change"))
    steps = pl.concat([up, down]).group_by("at").agg(pl.col("change").sum()).sort("at")
    for at, level in steps.select("at", pl.col("change").cum_sum().round(3)).iter_rows():
        about = {"ph": "C", "pid": COUNTERS, "tid": 0, "name": name}
        yield {**about, "ts": round(at * 1e6), "args": {name: level}}
