"""The outcome of a simulation: when and where each job ran."""

import hashlib
from dataclasses import dataclass

import numpy as np
import polars as pl
from numpy.typing import NDArray

STATUS_NAMES = ("completed", "timeout")


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

    def __len__(self) -> int:
        return len(self.job)

    def hash(self) -> str:
        """SHA-256 over starts, ends and allocations (docs/simulator.md, section 13)."""
        digest = hashlib.sha256()
        for column in (self.start_us, self.end_us, np.diff(self.node_offset), self.node, self.node_gpus):
            digest.update(np.ascontiguousarray(column, dtype="<i8").tobytes())
        return digest.hexdigest()

    def frame(self) -> pl.DataFrame:
        """As a table: job, start_s, end_s, status, backfilled, gpu_index, nodes and node_gpus (lists)."""
        lists = pl.DataFrame(
            {
                "entry": np.repeat(np.arange(len(self)), np.diff(self.node_offset)),
                "nodes": self.node,
                "node_gpus": self.node_gpus,
            }
        )
        lists = lists.group_by("entry", maintain_order=True).agg("nodes", "node_gpus")
        return pl.DataFrame(
            {
                "job": self.job,
                "start_s": self.start_us / 1e6,
                "end_s": self.end_us / 1e6,
                "status": pl.Series(np.array(STATUS_NAMES)[self.status], dtype=pl.Enum(STATUS_NAMES)),
                "backfilled": self.backfilled,
                "gpu_index": self.gpu_index,
                "nodes": lists["nodes"],
                "node_gpus": lists["node_gpus"],
            }
        )
