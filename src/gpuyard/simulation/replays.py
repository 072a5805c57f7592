"""The same jobs replayed several times, each submit a little later: how long jobs wait is one draw of many.

On a busy cluster a start that moves by seconds changes who waits in the next jam. The 99th percentile of the
waits of a class differs by half from one replay to the next, under the same policy; its median does not.
"""

from collections.abc import Callable
from dataclasses import replace

import polars as pl

from gpuyard.metrics.guards import guarded_labels, typical_waits, wait_table
from gpuyard.simulation.run import SimulationResult
from gpuyard.simulation.windows import HeldOutWindow
from gpuyard.workload.schema import Workload, make_workload
from gpuyard.workload.shaping.draws import uniforms_by_row

REPLAYS = 5
"""The log as it is, and so many less one with other submit times."""
JITTER_S = 60.0
"""Submits come later by up to this."""
MOST_KEPT = 200_000
"""Longer windows are made anew for every policy: they would fill the memory."""
STREAM = 13
"""Of random draws (docs/contract/simulator.md, section 2)."""


def jittered(window: HeldOutWindow, number: int) -> HeldOutWindow:
    """A window whose jobs are submitted up to a minute later, by chance; number 0 is the window itself."""
    if number == 0:
        return window
    frame, metadata = window.jobs.frame, window.jobs.metadata
    later = JITTER_S * uniforms_by_row(number, STREAM, frame["row"].to_numpy())
    if window.beginning is not None:
        later[: window.own.start] = 0.0  # what ran and waited when it began did so then
    moved = frame.with_columns((pl.col("submit_s") + pl.Series(later)).alias("submit_s"))
    jobs = make_workload(moved, name=metadata.name, origin_s=metadata.origin_s, where=metadata.name)
    return replace(window, jobs=Workload(jobs.frame, metadata))


class Replays:
    """The jobs of a window with several sets of submit times, made once for all policies that run on them.

    Args:
        window: The jobs.
    """

    def __init__(self, window: HeldOutWindow) -> None:
        self.window = window
        self._kept: dict[int, tuple[HeldOutWindow, pl.DataFrame]] = {}

    def typical_waits(
        self,
        run: Callable[[HeldOutWindow], SimulationResult],
        replays: int = REPLAYS,
        *,
        first: SimulationResult | None = None,
    ) -> pl.DataFrame:
        """Medians of waits over replays.

        Args:
            run: Runs a policy on them.
            replays: How many; 1 for what cannot be replayed otherwise, such as what was recorded.
            first: What ``run`` gives for the window itself, where that is known already.
        """
        tables = []
        for number in range(replays):
            window, labels = self._replay(number)
            result = first if number == 0 and first is not None else run(window)
            tables.append(waits_of(result, window.own, labels))
        return typical_waits(tables)

    def _replay(self, number: int) -> tuple[HeldOutWindow, pl.DataFrame]:
        """The window of one replay, and the classes of its jobs."""
        found = self._kept.get(number)
        if found is None:
            window = jittered(self.window, number)
            found = window, guarded_labels(window.jobs.frame)
            if len(window.jobs) <= MOST_KEPT:
                self._kept[number] = found
        return found


def waits_of(result: SimulationResult, own: range, labels: pl.DataFrame) -> pl.DataFrame:
    """How long the jobs that count waited, as in ``wait_table``.

    Args:
        result: Of all jobs.
        own: Which of them count.
        labels: The classes of all jobs.
    """
    rows = result.schedule.job
    counts = (rows >= own.start) & (rows < own.stop)
    jobs = result.workload.frame.select("submit_s", "duration_s")[rows[counts]].with_columns(
        pl.Series("start_s", result.schedule.start_us[counts] / 1e6),
        pl.Series("end_s", result.schedule.end_us[counts] / 1e6),
    )
    return wait_table(jobs, labels[rows[counts]])
