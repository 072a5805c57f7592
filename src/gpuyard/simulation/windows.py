"""Windows of a workload that are held out of something, on a cluster that is busy before and after them.

The jobs before a window run under the same policy first, those after it arrive while its own jobs wait and
run; only its own jobs count (docs/contract/windows.md). Predictions from history begin with the jobs of the
workload that would have ended before the first of all these, had they started when they were submitted.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import polars as pl
from pydantic import JsonValue

from gpuyard import _core
from gpuyard.cluster.model import Cluster
from gpuyard.config import Part as Part  # named here by those who cut windows
from gpuyard.config import SimulationConfig
from gpuyard.errors import InputError, setting
from gpuyard.native.beginning import Beginning
from gpuyard.native.inputs import past_jobs, prepare
from gpuyard.policies.grammar import parse_policy
from gpuyard.workload import Workload
from gpuyard.workload.generators.base import GeneratorConfig
from gpuyard.workload.shaping.derive import derived
from gpuyard.workload.shaping.slices import split_by_time

PARTS: tuple[Part, ...] = ("train", "validation", "test", "all")
VALIDATION_DRAWS = 2**62
"""Seed of the first draw of a generator that is held out of training, which never comes near it by chance."""
TEST_DRAWS = VALIDATION_DRAWS + 10**6
"""Seed of the first draw that is held out of validation too."""


@dataclass(frozen=True)
class Margins:
    """How many jobs keep the cluster busy around a window.

    Attributes:
        before: Jobs that run before its own ones, at most.
        after: Jobs that arrive after them, at most.
    """

    before: int = 0
    after: int = 0


COLD = Margins()
"""Windows begin with an empty cluster and end when the last of their own jobs does."""


@dataclass(frozen=True)
class HeldOutWindow:
    """Some jobs in a row, with those before and after them that keep the cluster busy.

    Attributes:
        name: The row of its first own job, counted without jobs that can never run, or the seed of a draw.
        jobs: All of its jobs, the first at 0.
        own: Which of them count.
        earlier: All jobs that the window was cut from, without those that can never run; None: there are
            none before it.
        beginning: What was really running when its first own job came; None: the cluster is empty when the
            first of its jobs comes.
    """

    name: int
    jobs: Workload
    own: range
    earlier: Workload | None = None
    beginning: Beginning | None = None

    @property
    def first(self) -> int:
        """The row of the first of all its jobs, in ``earlier``."""
        return self.name - self.own.start

    def history(self) -> Workload | None:
        """Jobs that would have ended before the first of its jobs came; None if there is none.

        With a beginning: those that really had ended when its first own job came.
        """
        if self.earlier is not None and self.beginning is not None:
            return self._ended(self.earlier)
        if self.earlier is None or self.first < 1:
            return None
        begin_s = self.earlier.frame["submit_s"][self.first]
        before = self.earlier.frame[: self.first].filter(pl.col("submit_s") + pl.col("duration_s") <= begin_s)
        return derived(self.earlier, before, "before", {"row": self.first}) if before.height else None

    @cached_property
    def past(self) -> _core.Past:
        """The same jobs as the core keeps them, which holds far less memory."""
        history = self.history()
        return _core.Past() if history is None else past_jobs(self.jobs, history)

    def _ended(self, earlier: Workload) -> Workload | None:
        moment_s = earlier.frame["submit_s"][self.name]
        end_s = pl.col("recorded_start_s") + pl.col("duration_s")
        before = earlier.frame[: self.name].filter(end_s <= moment_s)
        return derived(earlier, before, "before", {"row": self.name}) if before.height else None

    def shortened(self, jobs: int) -> "HeldOutWindow":
        """The same with so many jobs less after it."""
        settings: dict[str, JsonValue] = {"jobs": jobs}
        frame = self.jobs.frame[: len(self.jobs) - jobs]
        return replace(self, jobs=derived(self.jobs, frame, "shorten", settings))

    def saturated(self, backlog: int) -> "HeldOutWindow":
        """The same after a jam: this many jobs more before it, all submitted when the first one is.

        Raises:
            ValueError: of a window that was not cut from a workload.
        """
        if self.earlier is None:
            raise ValueError("a draw has no jobs before it")
        more = min(backlog, self.first)
        frame = self.earlier.frame[self.first - more : self.name - self.own.start + len(self.jobs)]
        begin_s = frame["submit_s"][more]
        at_once = pl.col("submit_s").clip(lower_bound=begin_s)
        jobs = derived(self.earlier, frame.with_columns(at_once), "jam", {"jobs": more})
        own = range(self.own.start + more, self.own.stop + more)
        return replace(self, jobs=jobs, own=own)


def cut_windows(
    workload: Workload,
    cluster: Cluster,
    simulation: SimulationConfig,
    part: Part,
    *,
    count: int,
    jobs: int | None,
    placement: str = "consolidate",
    margins: Margins = COLD,
) -> list[HeldOutWindow]:
    """Evenly spaced windows of a part of a workload by time.

    Their own jobs and those after them lie in the part; those before may lie in an earlier one.

    Args:
        workload: All jobs.
        cluster: What they run on.
        simulation: Settings.
        part: Of the workload: its first 60 %, the next 20 %, the last 20 % of its time, or all of it.
        count: How many; fewer, if the part has fewer.
        jobs: Of a window; None: the whole part is one.
        placement: By which jobs that can never run are found.
        margins: Jobs around each window; fewer after it if the part has no room for them.

    Raises:
        InputError: if the part has fewer jobs than a window.
    """
    cutter = WindowCutter(workload, cluster, simulation, placement)
    return cutter.cut(part, count=count, jobs=jobs, margins=margins)


class WindowCutter:
    """Cuts windows out of a workload whose jobs that can never run were found once.

    Attributes:
        jobs: All jobs but those.
        begins_recorded: Whether windows begin with what was really running; then no jobs run before them.

    Args:
        workload: All jobs.
        cluster: What they run on.
        simulation: Settings.
        placement: By which jobs that can never run are found.
    """

    begins_recorded = False

    def __init__(
        self, workload: Workload, cluster: Cluster, simulation: SimulationConfig, placement: str
    ) -> None:
        policy = parse_policy(f"fifo/{placement}")
        kept = prepare(workload, cluster, policy, simulation, for_learning=True).kept
        self._workload, self._kept = workload, kept
        self.jobs = Workload(workload.frame[kept], workload.metadata)
        self._bounds: dict[Part, tuple[int, int]] = {}

    def bounds(self, part: Part) -> tuple[int, int]:
        """The first row of a part, and one past its last."""
        if part not in self._bounds:
            begin, end = (int(np.searchsorted(self._kept, row)) for row in part_bounds(self._workload, part))
            self._bounds[part] = (begin, end)
        return self._bounds[part]

    def cut(
        self, part: Part, *, count: int, jobs: int | None, margins: Margins = COLD
    ) -> list[HeldOutWindow]:
        """As ``cut_windows`` does."""
        begin, end = self.bounds(part)
        size = end - begin if jobs is None else jobs
        if end - begin < max(size, 1):
            raise InputError(
                f"windows of {size:,} jobs: the {part} part of {self._workload.metadata.name} has "
                f"{end - begin:,}; use shorter windows ({setting('jobs_per_window')})"
            )
        after = min(margins.after, end - begin - size)
        last = end - size - after
        rows = [int(row) for row in np.linspace(begin, last, min(count, last - begin + 1)).round()]
        return [self._at(row, size, Margins(min(margins.before, row), after)) for row in rows]

    def _at(self, row: int, size: int, margins: Margins) -> HeldOutWindow:
        first, end = row - margins.before, row + size + margins.after
        settings: dict[str, JsonValue] = {"start_row": first, "count": end - first}
        jobs = derived(self.jobs, self.jobs.frame[first:end], "window", settings)
        return HeldOutWindow(row, jobs, range(margins.before, margins.before + size), self.jobs)


def drawn_windows(
    generator: GeneratorConfig, first_seed: int, count: int, margins: Margins = COLD
) -> list[HeldOutWindow]:
    """Fresh draws of a generator, named by their seeds.

    Args:
        generator: Its settings; a draw has as many own jobs as they say.
        first_seed: Of the first draw.
        count: How many.
        margins: Jobs drawn around the own ones.
    """
    own = generator.jobs
    longer = generator.model_copy(update={"jobs": margins.before + own + margins.after})
    seeds = range(first_seed, first_seed + count)
    draws = (longer.model_copy(update={"seed": seed}).generate() for seed in seeds)
    counted = range(margins.before, margins.before + own)
    return [HeldOutWindow(seed, trace.workload, counted) for seed, trace in zip(seeds, draws, strict=True)]


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
    own = range(*(int(np.searchsorted(kept, row)) for row in (window.own.start, window.own.stop)))
    return replace(
        window, own=own, jobs=derived(window.jobs, window.jobs.frame[kept], "drop-oversize", settings)
    )


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
