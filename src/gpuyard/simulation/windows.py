"""Windows of a workload that are held out of something, on which policies are run by the hundred.

A window begins with an empty cluster. Predictions from history begin with the jobs of the workload that would
have ended by then, had they started when they were submitted, as in environments (docs/contract/mdp.md).
"""

import math
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from copy import copy
from dataclasses import dataclass, field, replace
from typing import Self

import numpy as np
import polars as pl
from numpy.typing import NDArray
from pydantic import JsonValue

from gpuyard import _core
from gpuyard.cluster.model import Cluster
from gpuyard.config import Part as Part  # named here by those who cut windows, available_cores
from gpuyard.config import SimulationConfig, available_cores
from gpuyard.errors import InputError, setting
from gpuyard.metrics.outcomes import bounded_slowdown
from gpuyard.native.inputs import CoreInputs, Past, past_jobs, prepare
from gpuyard.policies.grammar import PolicySpec, parse_policy
from gpuyard.workload import Workload
from gpuyard.workload.generators.base import GeneratorConfig
from gpuyard.workload.schema import microseconds
from gpuyard.workload.shaping.derive import derived
from gpuyard.workload.shaping.slices import split_by_time

PARTS: tuple[Part, ...] = ("train", "validation", "test", "all")
Figures = dict[str, NDArray[np.float64]]
"""Metrics by name, one value a window."""

FIGURES = ("mean_bounded_slowdown", "mean_slowdown", "mean_wait_s", "mean_jct_s", "p99_wait_s", "max_wait_s")
VALIDATION_DRAWS = 2**62
"""Seed of the first draw of a generator that is held out of training, which never comes near it by chance."""
TEST_DRAWS = VALIDATION_DRAWS + 10**6
"""Seed of the first draw that is held out of validation too."""
MOST_KEPT_PAST = 50_000
"""Histories of more jobs than this are made anew for every run: they would fill the memory."""


@dataclass(frozen=True)
class HeldOutWindow:
    """Some jobs in a row.

    Attributes:
        name: Its first row, counted without jobs that can never run, or the seed of a draw.
        jobs: Its jobs, the first at 0.
        earlier: All jobs that the window was cut from, without those that can never run; None: there are
            none before it.
    """

    name: int
    jobs: Workload
    earlier: Workload | None = None

    def history(self) -> Workload | None:
        """Jobs that would have ended before the window begins; None if there is none."""
        if self.earlier is None or self.name < 1:
            return None
        begin_s = self.earlier.frame["submit_s"][self.name]
        before = self.earlier.frame[: self.name].filter(pl.col("submit_s") + pl.col("duration_s") <= begin_s)
        return derived(self.earlier, before, "before", {"row": self.name}) if before.height else None


def cut_windows(
    workload: Workload,
    cluster: Cluster,
    simulation: SimulationConfig,
    part: Part,
    *,
    count: int,
    jobs: int | None,
    placement: str = "consolidate",
) -> list[HeldOutWindow]:
    """Evenly spaced windows of a part of a workload by time.

    Args:
        workload: All jobs.
        cluster: What they run on.
        simulation: Settings.
        part: Of the workload: its first 60 %, the next 20 %, the last 20 % of its time, or all of it.
        count: How many; fewer, if the part has fewer.
        jobs: Of a window; None: the whole part is one.
        placement: By which jobs that can never run are found.

    Raises:
        InputError: if the part has fewer jobs than a window.
    """
    policy = parse_policy(f"fifo/{placement}")
    kept = prepare(workload, cluster, policy, simulation, for_learning=True).kept
    begin, end = (int(np.searchsorted(kept, row)) for row in part_bounds(workload, part))
    size = end - begin if jobs is None else jobs
    if end - begin < max(size, 1):
        raise InputError(
            f"windows of {size:,} jobs: the {part} part of {workload.metadata.name} has {end - begin:,}; "
            f"use shorter windows ({setting('jobs_per_window')})"
        )
    last = end - size
    rows = [int(row) for row in np.linspace(begin, last, min(count, last - begin + 1)).round()]
    frame = workload.frame[kept]
    everything = Workload(frame, workload.metadata)
    return [
        HeldOutWindow(
            row,
            derived(workload, frame[row : row + size], "window", {"start_row": row, "count": size}),
            everything,
        )
        for row in rows
    ]


def drawn_windows(generator: GeneratorConfig, first_seed: int, count: int) -> list[HeldOutWindow]:
    """Fresh draws of a generator, named by their seeds."""
    seeds = range(first_seed, first_seed + count)
    draws = (generator.model_copy(update={"seed": seed}).generate() for seed in seeds)
    return [HeldOutWindow(seed, trace.workload) for seed, trace in zip(seeds, draws, strict=True)]


def without_oversize(
    window: HeldOutWindow, cluster: Cluster, simulation: SimulationConfig, placement: str
) -> HeldOutWindow:
    """A draw without the jobs that can never run.

    Raises:
        InputError: if there are some, and the settings do not say that they are to be left out.
    """
    policy = parse_policy(f"fifo/{placement}")
    kept = prepare(window.jobs, cluster, policy, simulation, for_learning=True).kept
    if len(kept) == len(window.jobs):
        return window
    settings: dict[str, JsonValue] = {"cluster": cluster.name}
    return replace(window, jobs=derived(window.jobs, window.jobs.frame[kept], "drop-oversize", settings))


def part_bounds(workload: Workload, part: Part) -> tuple[int, int]:
    """The first row of a part, and one past its last."""
    if part == "all":
        return 0, len(workload)
    begin = 0
    parts = split_by_time(workload)
    for name, jobs in zip(parts._fields, parts, strict=True):
        if name == part:
            return begin, begin + len(jobs)
        begin += len(jobs)
    raise ValueError(part)


def overlapping(rows: Sequence[int], jobs: int) -> int:
    """How many windows, on average, begin within one of them: 1 if none overlap."""
    if len(rows) < 2:
        return 1
    spacing = (rows[-1] - rows[0]) / (len(rows) - 1)
    return max(1, math.ceil(jobs / spacing))


def disjoint_equivalent(rows: Sequence[int], jobs: int) -> float:
    """How many windows side by side span as much as these; as many as there are if none overlap."""
    return min(float(len(rows)), (rows[-1] - rows[0] + jobs) / jobs)


@dataclass(frozen=True)
class _Prepared:
    """A window as the core takes it."""

    window: HeldOutWindow
    inputs: CoreInputs
    submit_us: NDArray[np.int64]
    duration_s: NDArray[np.float64]
    kept_past: list[Past] = field(default_factory=list)

    @classmethod
    def of(
        cls, window: HeldOutWindow, cluster: Cluster, policy: PolicySpec, simulation: SimulationConfig
    ) -> Self:
        frame = window.jobs.frame
        inputs = prepare(window.jobs, cluster, policy, simulation, for_learning=True)
        duration_us = np.maximum(microseconds(frame["duration_s"]), 1)
        return cls(window, inputs, microseconds(frame["submit_s"]), duration_us / 1e6)

    def past(self) -> Past:
        """Finished jobs for predictions."""
        if self.kept_past:
            return self.kept_past[0]
        history = self.window.history()
        past = [] if history is None else past_jobs(self.window.jobs, history)
        if len(past) <= MOST_KEPT_PAST:
            self.kept_past.append(past)
        return past

    def run(self, policies: Sequence[PolicySpec]) -> list[tuple[float, ...]]:
        """The metrics of ``FIGURES`` for each policy, by the formulas of docs/contract/metrics.md."""
        predicts = [self.inputs.settings.predict or policy.predicts for policy in policies]
        past = self.past() if any(predicts) else []
        return [
            self._run(policy.compile(), past if looks_back else [])
            for policy, looks_back in zip(policies, predicts, strict=True)
        ]

    def _run(self, policy: _core.Policy, past: Past) -> tuple[float, ...]:
        inputs = self.inputs
        arrays = _core.simulate(inputs.cluster, inputs.jobs, policy, inputs.settings, None, past)
        wait_s = (arrays["start_us"] - self.submit_us) / 1e6
        jct_s = (arrays["end_us"] - self.submit_us) / 1e6
        return (
            float(bounded_slowdown(jct_s, self.duration_s).mean()),
            float((jct_s / self.duration_s).mean()),
            float(wait_s.mean()),
            float(jct_s.mean()),
            float(np.percentile(wait_s, 99)),
            float(wait_s.max()),
        )


class WindowSet:
    """Windows prepared once, on which native policies are run by the thousand.

    Attributes:
        rows: Names of the windows.
        predicts: Whether estimates are predictions from history.
    """

    def __init__(
        self,
        windows: Sequence[HeldOutWindow],
        cluster: Cluster,
        simulation: SimulationConfig,
        placement: str = "consolidate",
    ) -> None:
        policy = parse_policy(f"fifo/{placement}")
        self.rows = tuple(window.name for window in windows)
        self.predicts = simulation.estimates == "history"
        self._windows = [_Prepared.of(window, cluster, policy, simulation) for window in windows]

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
        """What ``cut_windows`` cuts."""
        windows = cut_windows(
            workload, cluster, simulation, part, count=count, jobs=jobs, placement=placement
        )
        return cls(windows, cluster, simulation, placement)

    def joined(self, other: Self) -> Self:
        """These windows, then those of another set with the same settings."""
        both = copy(self)
        both.rows = (*self.rows, *other.rows)
        both._windows = [*self._windows, *other._windows]
        return both

    def spread(self, count: int) -> list[int]:
        """Numbers of ``count`` of the windows, evenly spaced."""
        return sorted({round(i) for i in np.linspace(0, len(self) - 1, min(count, len(self)))})

    def run(
        self,
        policies: Sequence[PolicySpec],
        which: Iterable[int] | None = None,
        threads: int | None = None,
        progress: Callable[[int], None] | None = None,
    ) -> list[Figures]:
        """Run policies on windows, all by default, on all processors.

        Args:
            policies: Native ones.
            which: Numbers of windows.
            threads: None: one a processor.
            progress: Told how many windows are done.

        Returns:
            What each policy reached on each of the windows.
        """
        numbers = list(range(len(self)) if which is None else which)
        with ThreadPoolExecutor(threads or available_cores()) as pool:
            found = []
            for rows in pool.map(lambda number: self._windows[number].run(policies), numbers):
                found.append(rows)
                if progress:
                    progress(len(found))
        table = np.array(found, dtype=np.float64).reshape(len(numbers), len(policies), len(FIGURES))
        return [{name: table[:, p, i].copy() for i, name in enumerate(FIGURES)} for p in range(len(policies))]
