"""The same jobs replayed several times, each submit a little later: how long jobs wait is one draw of many.

On a busy cluster a start that moves by seconds changes who waits in the next jam. The 99th percentile of the
waits of a class differs by half from one replay to the next, under the same policy; its median does not.
"""

from collections.abc import Callable
from dataclasses import replace

import polars as pl

from gpuyard.metrics.classes import class_labels
from gpuyard.metrics.guards import typical_waits, wait_table
from gpuyard.simulation.run import SimulationResult
from gpuyard.simulation.windows import HeldOutWindow
from gpuyard.workload.schema import Workload, make_workload
from gpuyard.workload.shaping.draws import uniforms_by_row

REPLAYS = 5
"""The log as it is, and so many less one with other submit times."""
JITTER_S = 60.0
"""Submits come later by up to this."""
STREAM = 13
"""Of random draws (docs/contract/simulator.md, section 2)."""


def jittered(window: HeldOutWindow, number: int) -> HeldOutWindow:
    """A window whose jobs are submitted up to a minute later, by chance; number 0 is the window itself."""
    if number == 0:
        return window
    frame, metadata = window.jobs.frame, window.jobs.metadata
    later = JITTER_S * uniforms_by_row(number, STREAM, frame["row"].to_numpy())
    moved = frame.with_columns((pl.col("submit_s") + pl.Series(later)).alias("submit_s"))
    jobs = make_workload(moved, name=metadata.name, origin_s=metadata.origin_s, where=metadata.name)
    return replace(window, jobs=Workload(jobs.frame, metadata))


def waits_of(result: SimulationResult, own: range) -> pl.DataFrame:
    """How long the jobs that count waited, as in ``wait_table``."""
    rows = result.schedule.job
    counts = (rows >= own.start) & (rows < own.stop)
    frame = result.workload.frame[rows[counts]]
    jobs = frame.select("submit_s", "duration_s").with_columns(
        pl.Series("start_s", result.schedule.start_us[counts] / 1e6),
        pl.Series("end_s", result.schedule.end_us[counts] / 1e6),
    )
    return wait_table(jobs, class_labels(frame, ()))


def typical_waits_of(
    window: HeldOutWindow,
    run: Callable[[HeldOutWindow], SimulationResult],
    replays: int = REPLAYS,
    *,
    first: SimulationResult | None = None,
) -> pl.DataFrame:
    """Medians of waits over replays.

    Args:
        window: The jobs.
        run: Runs a policy on them.
        replays: How many; 1 for what cannot be replayed otherwise, such as what was recorded.
        first: What ``run`` gives for the window itself, where that is known already.
    """
    tables = [waits_of(run(window) if first is None else first, window.own)]
    tables += [waits_of(run(jittered(window, number)), window.own) for number in range(1, replays)]
    return typical_waits(tables)
