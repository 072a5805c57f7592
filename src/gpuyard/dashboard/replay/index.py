"""One policy's schedule in memory, in the form that pictures and queues are made from."""

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from gpuyard import _core
from gpuyard.errors import InputError
from gpuyard.evaluate.setting import Outline
from gpuyard.evaluate.storage import read_table
from gpuyard.report.facts import read_cluster
from gpuyard.workload.schema import microseconds

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
COLUMNS = [
    *("row", "source_id", "user", "group", "priority", "submit_s", "duration_s", "gpus", "gpu_milli"),
    *("start_s", "end_s", "backfilled"),
]
NAMES = ("user", "group")
PLACES = ["gpu_index", "nodes", "node_gpus"]
PIECES = ["entry", "taken_s", "released_s", *PLACES]


@dataclass(frozen=True)
class ReplayIndex:
    """A schedule.

    Attributes:
        policy: Full name of the policy.
        jobs: ``COLUMNS``, one row a job; names of users and groups are of a type ``Enum``.
        bars: The jobs on GPUs.
        node_gpus: GPUs of each node.
        epoch_s: What the log's clock showed at time 0; None if the log has no dates.
        began_s: The first moment.
        ended_s: The last one.
        held_from_s: When each stay of a job on GPUs began.
        held_to_s: When it ended.
        held_gpus: GPUs of each stay.
    """

    policy: str
    jobs: pl.DataFrame
    bars: _core.Bars
    node_gpus: NDArray[np.int32]
    epoch_s: float | None
    began_s: float
    ended_s: float
    held_from_s: Floats
    held_to_s: Floats
    held_gpus: Floats

    def __len__(self) -> int:
        return self.jobs.height

    @property
    def total_gpus(self) -> int:
        """GPUs of the cluster."""
        return int(self.node_gpus.sum())

    @property
    def memory_bytes(self) -> int:
        """What it takes of the memory."""
        held = self.held_from_s.nbytes + self.held_to_s.nbytes + self.held_gpus.nbytes
        return int(self.jobs.estimated_size()) + self.bars.memory_bytes + held + 24 * len(self)

    @cached_property
    def submit_s(self) -> Floats:
        """When each job was submitted."""
        return self.jobs["submit_s"].to_numpy()

    @cached_property
    def start_s(self) -> Floats:
        """When each job first started."""
        return self.jobs["start_s"].to_numpy()

    @cached_property
    def by_submit(self) -> Ints:
        """Places of the jobs by submit time."""
        return np.argsort(self.submit_s, kind="stable")


def read_index(outline: Outline, policy: str, where: str) -> ReplayIndex:
    """Read a policy's schedule.

    Args:
        outline: The directory of results.
        policy: Full name.
        where: The directory, for messages.

    Raises:
        InputError: if there is no such schedule, or it cannot be read.
    """
    path = outline.schedules.get(policy)
    if path is None:
        raise InputError(f"{where}: holds no schedule of {policy}; gpuyard simulate --out writes schedules")
    jobs = read_table(path, COLUMNS)
    if not len(jobs):
        raise InputError(f"{path}: holds no jobs")
    jobs = jobs.with_columns(pl.col(name).cast(pl.Enum(jobs[name].unique().sort())) for name in NAMES)
    pieces = _pieces(path, outline.executions.get(policy), jobs)
    node_gpus = _node_gpus(outline, pieces, where)
    bars, held_gpus = _bars(node_gpus, pieces, path)
    return ReplayIndex(
        policy=policy,
        jobs=jobs,
        bars=bars,
        node_gpus=node_gpus,
        epoch_s=outline.setting.epoch_s,
        began_s=float(jobs["submit_s"].min()),  # type: ignore[arg-type]
        ended_s=float(jobs["end_s"].max()),  # type: ignore[arg-type]
        held_from_s=pieces["taken_s"].to_numpy(),
        held_to_s=pieces["released_s"].to_numpy(),
        held_gpus=held_gpus * (jobs["gpu_milli"].gather(pieces["entry"]).to_numpy() / 1000),
    )


def _pieces(schedule: Path, executions: Path | None, jobs: pl.DataFrame) -> pl.DataFrame:
    """The stays of jobs on GPUs, as ``PIECES``."""
    if executions is None:
        places = read_table(schedule, PLACES)
        times = jobs.select(taken_s="start_s", released_s="end_s")
        pieces = pl.concat([times, places], how="horizontal").with_row_index("entry")
        return pieces.with_columns(pl.col("entry").cast(pl.Int64))
    pieces = read_table(executions, PIECES)
    if not pieces["entry"].is_between(0, len(jobs) - 1).all():
        raise InputError(f"{executions}: is damaged, it is about other jobs; make the results again")
    return pieces


def _node_gpus(outline: Outline, pieces: pl.DataFrame, where: str) -> NDArray[np.int32]:
    """GPUs of each node; where the cluster is not known, what jobs have held at most."""
    if outline.setting.cluster:
        cluster = read_cluster(outline.setting.cluster, where)
        gpus, counts = zip(*((group.gpus, group.count) for group in cluster.nodes), strict=True)
        return np.repeat(np.array(gpus, np.int32), counts)
    nodes, held = (_flat(pieces[name]) for name in ("nodes", "node_gpus"))
    return np.full(int(nodes.max(initial=0)) + 1, max(int(held.max(initial=0)), 1), np.int32)


def _bars(node_gpus: NDArray[np.int32], pieces: pl.DataFrame, path: Path) -> tuple[_core.Bars, Floats]:
    """The jobs on GPUs, and how many GPUs each stay held."""
    counts = pieces["nodes"].list.len().fill_null(0).to_numpy().astype(np.int64)
    held = _flat(pieces["node_gpus"])
    columns: list[Any] = [
        pieces["entry"].to_numpy().astype(np.int32),
        *(microseconds(pieces[name]) for name in ("taken_s", "released_s")),
        pieces["gpu_index"].to_numpy().astype(np.int32),
        np.concatenate([[0], np.cumsum(counts)]).astype(np.int64),
        *(_flat(pieces["nodes"]), held),
    ]
    try:
        bars = _core.Bars(node_gpus, *columns)
    except ValueError as error:
        raise InputError(f"{path}: is damaged, {error}; make the results again") from None
    stays = np.repeat(np.arange(len(counts)), counts)
    return bars, np.bincount(stays, weights=held.astype(np.float64), minlength=len(counts)).astype(np.float64)


def _flat(lists: pl.Series) -> NDArray[np.int32]:
    """All entries of a column of lists, one after the other."""
    return lists.explode(empty_as_null=False).drop_nulls().to_numpy().astype(np.int32)
