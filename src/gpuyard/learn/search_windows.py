"""Windows of a workload, prepared once, on which native policies are run by the thousand."""

import os
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Literal, Self

import numpy as np
from numpy.typing import NDArray

from gpuyard import _core
from gpuyard.cluster import Cluster
from gpuyard.config import SimulationConfig
from gpuyard.errors import InputError
from gpuyard.policies.base import PolicySpec, parse_policy
from gpuyard.preparation import CoreInputs, microseconds, prepare
from gpuyard.workload import Workload
from gpuyard.workload.shaping.derive import derived
from gpuyard.workload.shaping.slices import split_by_time

Part = Literal["train", "validation", "test"]
Figures = dict[str, NDArray[np.float64]]
"""Metrics by name, one value a window."""

FIGURES = ("mean_bounded_slowdown", "mean_slowdown", "mean_wait_s", "mean_jct_s", "p99_wait_s", "max_wait_s")


@dataclass(frozen=True)
class _Window:
    inputs: CoreInputs
    submit_us: NDArray[np.int64]
    duration_s: NDArray[np.float64]

    def run(self, policy: _core.Policy) -> tuple[float, ...]:
        """The metrics of ``FIGURES``, by the formulas of docs/metrics.md."""
        inputs = self.inputs
        arrays = _core.simulate(inputs.cluster, inputs.jobs, policy, inputs.settings, None, inputs.past)
        wait_s = (arrays["start_us"] - self.submit_us) / 1e6
        jct_s = (arrays["end_us"] - self.submit_us) / 1e6
        return (
            float(np.maximum(1.0, jct_s / np.maximum(self.duration_s, 10.0)).mean()),
            float((jct_s / self.duration_s).mean()),
            float(wait_s.mean()),
            float(jct_s.mean()),
            float(np.percentile(wait_s, 99)),
            float(wait_s.max()),
        )


class WindowSet:
    """Evenly spaced windows of one part of a workload.

    Attributes:
        rows: The first row of each, counted without jobs that can never run: its name as an episode.
    """

    def __init__(self, rows: Sequence[int], windows: Sequence[_Window]) -> None:
        self.rows = tuple(rows)
        self._windows = tuple(windows)

    def __len__(self) -> int:
        return len(self.rows)

    @classmethod
    def of(
        cls,
        workload: Workload,
        cluster: Cluster,
        simulation: SimulationConfig,
        part: Part,
        *,
        count: int,
        jobs: int,
        placement: str = "consolidate",
    ) -> Self:
        """Windows of a part by time, each from an empty cluster.

        Args:
            workload: All jobs.
            cluster: What they run on.
            simulation: Settings.
            part: Of the workload: its first 60 %, the next 20 % or the last 20 % of its time.
            count: How many; fewer, if the part has fewer.
            jobs: Of a window.
            placement: By which jobs that can never run are found.

        Raises:
            InputError: if the part has fewer jobs than a window.
        """
        policy = parse_policy(f"fifo/{placement}")
        kept = prepare(workload, cluster, policy, simulation, for_learning=True).kept
        begin, end = (int(np.searchsorted(kept, row)) for row in _bounds(workload, part))
        if end - begin < jobs:
            raise InputError(
                f"windows of {jobs:,} jobs: the {part} part of {workload.metadata.name} has {end - begin:,}; "
                "use shorter windows (jobs_per_window)"
            )
        last = end - jobs
        rows = [int(row) for row in np.linspace(begin, last, min(count, last - begin + 1)).round()]
        frame = workload.frame[kept]
        windows = []
        for row in rows:
            part_of = derived(workload, frame[row : row + jobs], "window", {"start_row": row, "count": jobs})
            inputs = prepare(part_of, cluster, policy, simulation, for_learning=True)
            duration_us = np.maximum(microseconds(part_of.frame["duration_s"]), 1)
            windows.append(_Window(inputs, microseconds(part_of.frame["submit_s"]), duration_us / 1e6))
        return cls(rows, windows)

    def spread(self, count: int) -> list[int]:
        """Numbers of ``count`` of the windows, evenly spaced."""
        return sorted({round(i) for i in np.linspace(0, len(self) - 1, min(count, len(self)))})

    def run(
        self, policies: Sequence[PolicySpec], which: Iterable[int] | None = None, threads: int | None = None
    ) -> list[Figures]:
        """Run policies on windows, all by default, on all processors.

        Returns:
            What each policy reached on each of the windows.
        """
        numbers = list(range(len(self)) if which is None else which)
        compiled = [policy.compile() for policy in policies]
        tasks = [(self._windows[number], policy) for policy in compiled for number in numbers]
        with ThreadPoolExecutor(threads or len(os.sched_getaffinity(0))) as pool:
            found = list(pool.map(lambda task: task[0].run(task[1]), tasks))
        table = np.array(found, dtype=np.float64).reshape(len(policies), len(numbers), len(FIGURES))
        return [{name: table[p, :, i].copy() for i, name in enumerate(FIGURES)} for p in range(len(policies))]


def _bounds(workload: Workload, part: Part) -> tuple[int, int]:
    begin = 0
    parts = split_by_time(workload)
    for name, jobs in zip(parts._fields, parts, strict=True):
        if name == part:
            return begin, begin + len(jobs)
        begin += len(jobs)
    raise ValueError(part)
