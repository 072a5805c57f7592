"""The outcome of a simulation: when and where each job ran."""

import hashlib
from dataclasses import dataclass

import numpy as np
import polars as pl
from numpy.typing import NDArray

STATUS_NAMES = ("completed", "timeout")
RUN_ENDINGS = (*STATUS_NAMES, "stopped", "failed")


@dataclass(frozen=True)
class Runs:
    """The pieces in which jobs ran, one entry a run, ordered by (begin, job).

    See docs/contract/simulator.md, section 14.

    Attributes:
        entry: Entry of its job in the Schedule.
        taken_us: From when on it held its GPUs.
        begin_us: When it began, by restoring if it goes on with earlier work.
        stop_us: When its progress ended.
        released_us: Until when it held its GPUs.
        ending: Index into ``RUN_ENDINGS``: how it ended.
        restore_us: Length of its restore.
        lost_us: Work that it lost, at speed 1.
        gpu_index: GPU within its node for a shared job, -1 for others.
        node_offset: Run i's allocation is ``node_offset[i]:node_offset[i + 1]`` of the next two arrays.
        node: Node ids, ascending within a run.
        node_gpus: GPUs on that node (1 for a shared job, 0 for a CPU-only one).
    """

    entry: NDArray[np.int64]
    taken_us: NDArray[np.int64]
    begin_us: NDArray[np.int64]
    stop_us: NDArray[np.int64]
    released_us: NDArray[np.int64]
    ending: NDArray[np.uint8]
    restore_us: NDArray[np.int64]
    lost_us: NDArray[np.int64]
    gpu_index: NDArray[np.int32]
    node_offset: NDArray[np.int64]
    node: NDArray[np.int32]
    node_gpus: NDArray[np.int32]

    def __len__(self) -> int:
        return len(self.entry)


@dataclass(frozen=True)
class Downtime:
    """When nodes were down, one entry a failure; one not repaired by the last finish lasts until then."""

    node: NDArray[np.int32]
    from_us: NDArray[np.int64]
    to_us: NDArray[np.int64]


@dataclass(frozen=True)
class Schedule:
    """One entry a simulated job, in workload order. Times are microseconds on the workload's clock.

    Attributes:
        job: Row of the job in the workload's frame (all rows, unless oversize jobs were dropped).
        start_us: First start.
        end_us: Finish.
        status: Index into ``STATUS_NAMES``: how the job ended.
        backfilled: Whether it started past a job that ranked before it.
        gpu_index: GPU within its node for a shared job, -1 for others.
        node_offset: Entry i's allocation is ``node_offset[i]:node_offset[i + 1]`` of the next two arrays.
        node: Node ids, ascending within a job.
        node_gpus: GPUs on that node (1 for a shared job, 0 for a CPU-only one).
        runs: The pieces in which jobs ran; None: each ran once, from start to end.
        downtime: When nodes were down; None: never.
        nodes_known: Whether jobs ran on these nodes. False for what a log records without its nodes: these
            are then one way of many, a job may have none, and metrics about nodes are None.
    """

    job: NDArray[np.int64]
    start_us: NDArray[np.int64]
    end_us: NDArray[np.int64]
    status: NDArray[np.uint8]
    backfilled: NDArray[np.bool_]
    gpu_index: NDArray[np.int32]
    node_offset: NDArray[np.int64]
    node: NDArray[np.int32]
    node_gpus: NDArray[np.int32]
    runs: Runs | None = None
    downtime: Downtime | None = None
    nodes_known: bool = True

    def __len__(self) -> int:
        return len(self.job)

    def hash(self) -> str:
        """SHA-256 over starts, ends, allocations and runs (docs/contract/simulator.md, section 13)."""
        columns = [self.start_us, self.end_us, np.diff(self.node_offset), self.node, self.node_gpus]
        if self.runs is not None:
            runs = self.runs
            columns += [runs.entry, runs.taken_us, runs.begin_us, runs.stop_us, runs.released_us]
            columns += [np.diff(runs.node_offset), runs.node, runs.node_gpus]
        digest = hashlib.sha256()
        for column in columns:
            digest.update(np.ascontiguousarray(column, dtype="<i8").tobytes())
        return digest.hexdigest()

    def pieces(self) -> Runs:
        """The runs; if there are none apart from the jobs, one a job, in the order of the jobs."""
        if self.runs is not None:
            return self.runs
        nothing = np.zeros(len(self), np.int64)
        return Runs(
            entry=np.arange(len(self), dtype=np.int64),
            taken_us=self.start_us,
            begin_us=self.start_us,
            stop_us=self.end_us,
            released_us=self.end_us,
            ending=self.status,  # RUN_ENDINGS starts with STATUS_NAMES
            restore_us=nothing,
            lost_us=nothing,
            gpu_index=self.gpu_index,
            node_offset=self.node_offset,
            node=self.node,
            node_gpus=self.node_gpus,
        )

    def frame(self) -> pl.DataFrame:
        """As a table: job, start_s, end_s, status, backfilled, gpu_index, nodes and node_gpus (lists)."""
        return pl.DataFrame(
            {
                "job": self.job,
                "start_s": self.start_us / 1e6,
                "end_s": self.end_us / 1e6,
                "status": _named(self.status, STATUS_NAMES),
                "backfilled": self.backfilled,
                "gpu_index": self.gpu_index,
                **_allocation_lists(self.node_offset, self.node, self.node_gpus),
            }
        )

    def run_frame(self) -> pl.DataFrame:
        """The runs as a table.

        Columns: entry (row of its job in ``frame``), job, taken_s, begin_s, stop_s, released_s, ending,
        restore_s, lost_s, gpu_index, nodes and node_gpus (lists).
        """
        runs = self.pieces()
        return pl.DataFrame(
            {
                "entry": runs.entry,
                "job": self.job[runs.entry],
                "taken_s": runs.taken_us / 1e6,
                "begin_s": runs.begin_us / 1e6,
                "stop_s": runs.stop_us / 1e6,
                "released_s": runs.released_us / 1e6,
                "ending": _named(runs.ending, RUN_ENDINGS),
                "restore_s": runs.restore_us / 1e6,
                "lost_s": runs.lost_us / 1e6,
                "gpu_index": runs.gpu_index,
                **_allocation_lists(runs.node_offset, runs.node, runs.node_gpus),
            }
        )


def _named(index: NDArray[np.uint8], names: tuple[str, ...]) -> pl.Series:
    return pl.Series(np.array(names)[index], dtype=pl.Enum(names))


def _allocation_lists(
    node_offset: NDArray[np.int64], node: NDArray[np.int32], node_gpus: NDArray[np.int32]
) -> dict[str, pl.Series]:
    """The nodes of each entry, and the GPUs on each, as columns of lists."""
    held = np.diff(node_offset)
    entry = np.repeat(np.arange(len(held)), held)
    lists = pl.DataFrame({"entry": entry, "nodes": node, "node_gpus": node_gpus})
    lists = lists.group_by("entry", maintain_order=True).agg("nodes", "node_gpus")
    if not held.all():  # entries without a node
        every = pl.DataFrame({"entry": np.arange(len(held))})
        lists = every.join(lists, on="entry", how="left", maintain_order="left")
        lists = lists.with_columns(pl.col("nodes", "node_gpus").fill_null([]))
    return {"nodes": lists["nodes"], "node_gpus": lists["node_gpus"]}
