"""The policy ``recorded``: what the cluster's own scheduler did, as the log has it."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from gpuyard import _core
from gpuyard.cluster.model import Cluster
from gpuyard.config import SimulationConfig
from gpuyard.errors import InputError
from gpuyard.policies.base import RECORDED, ReplayingPolicy
from gpuyard.policies.grammar import DEFAULT_PLACEMENT
from gpuyard.simulation.recorded_nodes import recorded_places
from gpuyard.units import plural
from gpuyard.workload import Workload
from gpuyard.workload.core_columns import never_placeable
from gpuyard.workload.recorded import (
    early_starts,
    moment_text,
    recorded_jobs,
    recorded_times_us,
    recorded_use,
)

Ints = NDArray[np.int64]


@dataclass(frozen=True)
class ReplayedRows:
    """Which jobs of a workload are in a replay.

    Attributes:
        kept: Their rows.
        dropped: Rows of the others.
    """

    kept: Ints
    dropped: Ints


class RecordedPolicy(ReplayingPolicy):
    """Starts every job when it really started. It decides nothing, and no start is ever moved.

    Jobs of which the log has no start are left out, and counted. Where the log uses more GPUs than the
    cluster has, the result says so and stays as the log has it.
    """

    @property
    def name(self) -> str:
        """As results call it."""
        return RECORDED

    def decide(self, snapshot: _core.Snapshot) -> NoReturn:
        """Refuse: what happened is no rule.

        Raises:
            InputError: always.
        """
        raise InputError(
            f"policy {RECORDED}: replays what a log says happened, which is no rule that could decide about "
            "other jobs; simulate with it, or take a policy that stands for your scheduler, such as fifo+easy"
        )

    def check_supported(self, workload: Workload, cluster: Cluster, config: SimulationConfig) -> None:
        """Raise an InputError unless the log says of some job when it started."""
        if not len(_rows(workload, cluster, config).kept):
            raise InputError(
                f"policy {RECORDED}: workload {workload.metadata.name} does not say when its jobs really "
                "started (column recorded_start_s); import a log that has starts, before its arrivals, "
                "durations or gangs are changed"
            )

    def notes(self, workload: Workload, cluster: Cluster, config: SimulationConfig) -> tuple[str, ...]:
        """How many jobs are left out, and how many have waits that cannot be."""
        silent, early = len(workload) - len(recorded_jobs(workload)), len(early_starts(workload))
        jobs = plural(len(workload), "job")
        left_out = f"{RECORDED}: {silent:,} of {jobs} have no recorded start and are left out"
        negative = (
            f"{RECORDED}: {early:,} of {jobs} started before being submitted, so their waits are negative: "
            "waits of this row are too short"
        )
        return (*((left_out,) if silent else ()), *((negative,) if early else ()))

    def impossible(self, workload: Workload, cluster: Cluster, config: SimulationConfig) -> str | None:
        """Why the log cannot have happened on this cluster; None if it can."""
        kept = _rows(workload, cluster, config).kept
        use = recorded_use(workload, kept, cluster.total_gpus)
        if use.peak_gpus <= cluster.total_gpus:
            return None
        return (
            f"{RECORDED}: impossible on {cluster.name}: at {moment_text(workload, use.peak_s)} "
            f"{use.peak_gpus:,.10g} of {cluster.total_gpus:,} GPUs in use"
        )

    def replay(
        self,
        workload: Workload,
        cluster: Cluster,
        config: SimulationConfig,
        history: Workload | None = None,
        progress: Callable[[int], None] | None = None,
    ) -> tuple[ReplayedRows, dict[str, Any]]:
        """The rows that are replayed, and the arrays of the schedule."""
        self.check_supported(workload, cluster, config)
        rows = _rows(workload, cluster, config)
        start_us, end_us = recorded_times_us(workload, rows.kept)
        places = recorded_places(workload, rows.kept, cluster)
        count = len(rows.kept)
        if progress:
            progress(count)
        return rows, {
            "start_us": start_us,
            "end_us": end_us,
            "status": np.zeros(count, np.uint8),
            "backfilled": np.zeros(count, np.uint8),
            "gpu_index": places.gpu_index,
            "node_offset": places.node_offset,
            "node": places.node,
            "node_gpus": places.node_gpus,
            "nodes_known": places.are_known,
        }


def _rows(workload: Workload, cluster: Cluster, config: SimulationConfig) -> ReplayedRows:
    """Jobs with a recorded start; without those that every policy leaves out (``oversize = drop``)."""
    kept = recorded_jobs(workload)
    if config.oversize == "drop":
        kept = np.setdiff1d(kept, never_placeable(workload, cluster, DEFAULT_PLACEMENT), assume_unique=True)
    dropped = np.setdiff1d(np.arange(len(workload), dtype=np.int64), kept, assume_unique=True)
    return ReplayedRows(kept, dropped)
