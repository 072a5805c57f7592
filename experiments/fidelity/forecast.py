"""How well a simulation that begins with the real state says what a real scheduler does next.

Over a whole log, small differences grow: a job that starts a second later changes who comes next. A forecast
of some seconds measures the rules and not the growth of differences, as one does with weather.
"""

import numpy as np
import polars as pl
from pydantic import BaseModel, ConfigDict

from experiments.fidelity.comparison import CLOSE_S, recorded
from gpuyard import Cluster, SimulationConfig, Workload, simulate
from gpuyard.errors import InputError
from gpuyard.native.beginning import Beginning, Nodes

AHEAD_S = (10, 30, 60)
"""How far ahead forecasts look, seconds."""


class Forecast(BaseModel):
    """Forecasts of one log, from moments that lie as far apart as they look ahead."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    load: float
    policy: str
    ahead_s: int
    starts: int
    """Real starts that were to be said."""
    close: float
    """Share of them that the simulation has within ``CLOSE_S``."""
    waiting: int
    """Real starts of jobs that were in the queue at the moment of the forecast."""
    close_of_waiting: float | None


def forecast(
    jobs: Workload, cluster: Cluster | str, policy: str, config: SimulationConfig, load: float, ahead_s: int
) -> Forecast:
    """Simulate from the real state at regular moments, and compare what starts up to the next one.

    Args:
        jobs: With recorded starts and nodes, in the order of their numbers.
        cluster: The one they ran on.
        policy: The one that comes nearest to the real scheduler.
        config: Its weights.
        load: Of the log, for the record.
        ahead_s: How far to look ahead, seconds.

    Raises:
        InputError: if nothing starts later than that.
    """
    real = recorded(jobs)
    submit_s = jobs.frame["submit_s"].to_numpy()
    start_s = real["start_s"].to_numpy()
    nodes = _nodes(real, jobs.frame["gpus"])
    if start_s.max() < ahead_s:
        raise InputError(
            f"the log ends before {ahead_s} s, so that nothing is left to forecast; record more jobs"
        )
    close, was_waiting = [], []
    for moment_s in range(ahead_s, int(start_s.max()) + 1, ahead_s):
        due = (start_s >= moment_s) & (start_s < moment_s + ahead_s)
        if not due.any():
            continue
        given = np.flatnonzero(start_s < moment_s)
        starts_us = np.rint(start_s[given] * 1e6).astype(np.int64)
        beginning = Beginning(moment_s * 1_000_000, given, starts_us, tuple(nodes[row] for row in given))
        found = simulate(jobs, cluster, policy, config, beginning=beginning).table()["start_s"].to_numpy()
        close.append(np.abs(found[due] - start_s[due]) <= CLOSE_S)
        was_waiting.append(submit_s[due] < moment_s)
    return _forecast(np.concatenate(close), np.concatenate(was_waiting), policy, load, ahead_s)


def _forecast(close: np.ndarray, waiting: np.ndarray, policy: str, load: float, ahead_s: int) -> Forecast:
    return Forecast(
        load=load,
        policy=policy,
        ahead_s=ahead_s,
        starts=len(close),
        close=float(close.mean()),
        waiting=int(waiting.sum()),
        close_of_waiting=float(close[waiting].mean()) if waiting.any() else None,
    )


def _nodes(real: pl.DataFrame, gpus: pl.Series) -> list[Nodes]:
    """Nodes of each job with its GPUs there, which every job of the stream has in equal parts."""
    return [
        tuple((node, count // len(places)) for node in places)
        for places, count in zip(real["nodes"].to_list(), gpus.to_list(), strict=True)
    ]
