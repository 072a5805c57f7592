"""How far a simulated schedule lies from the one that a real scheduler made of the same jobs."""

from pathlib import Path

import polars as pl
from pydantic import BaseModel, ConfigDict

from experiments.fidelity.controller_log import exact_times
from gpuyard import Cluster, SimulationConfig, Workload, make_workload, simulate
from gpuyard.errors import InputError
from gpuyard.workload.formats import import_trace

CLOSE_S = 3.0
"""A simulated start up to this far from the real one counts as close, seconds."""
AGAIN = "again"
"""In place of a policy: the real scheduler, once more."""
CONTROLLER_LOG = "log/slurmctld.log"
_NUMBER = pl.col("source_id").cast(pl.Int64)
_NODES = pl.List(pl.Int64)


class Fidelity(BaseModel):
    """A simulated schedule against a real one, job by job."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    load: float
    policy: str
    jobs: int
    close: float
    """Share of jobs that start within ``CLOSE_S`` of when they really did."""
    rank_correlation: float
    """Spearman's, of the order of starts."""
    real_mean_wait_s: float
    simulated_mean_wait_s: float
    median_error_s: float
    """Of the distance between simulated and real start, either way."""
    p90_error_s: float
    waited: int
    """Jobs that really waited longer than ``CLOSE_S``: the ones that are not trivially right."""
    close_of_waited: float | None
    """Share of them that start within ``CLOSE_S`` of when they really did."""
    same_nodes: float
    """Share of jobs that run on the nodes on which they really ran."""

    @property
    def wait_ratio(self) -> float | None:
        """Simulated mean wait by the real one; None if nobody waited."""
        return self.simulated_mean_wait_s / self.real_mean_wait_s if self.real_mean_wait_s else None


def read_log(path: Path, exact: bool = False) -> Workload:
    """A recorded log as jobs that ask for the nodes they got, which is what every job of the stream does.

    Args:
        path: Of sacct's output, beside which the daemons' logs lie.
        exact: Take times from slurmctld's log, which has milliseconds, and not from sacct.

    Raises:
        InputError: if it is no log, or a job of it did not run.
    """
    jobs = import_trace([path], group="account").workload
    lines = len(path.read_text(encoding="utf-8").splitlines()) - 1
    ran = len(jobs) - jobs.frame["recorded_start_s"].null_count()
    if ran < lines:
        raise InputError(f"{path}: only {ran} of {lines} jobs ran; record it again")
    nodes = jobs.frame["recorded_nodes"].str.split("|").list.len().cast(pl.Int64).alias("nodes")
    frame = jobs.frame.drop("row").with_columns(nodes)
    epoch_s = jobs.metadata.epoch_s
    if exact:
        frame = _with_exact_times(frame.sort(_NUMBER), path.parent / CONTROLLER_LOG, epoch_s)
    return make_workload(frame, name=path.parent.name, epoch_s=epoch_s)


def _with_exact_times(frame: pl.DataFrame, log: Path, epoch_s: float) -> pl.DataFrame:
    times = exact_times(log)
    if times["job"].to_list() != frame["source_id"].cast(pl.Int64).to_list():
        raise InputError(f"{log}: is of other jobs than sacct's output; record both again")
    return frame.with_columns(
        (times["submit_s"] - epoch_s).alias("submit_s"),
        (times["start_s"] - epoch_s).alias("recorded_start_s"),
        (times["end_s"] - times["start_s"]).alias("duration_s"),
    )


def compare(
    jobs: Workload, cluster: Cluster | str, policy: str, config: SimulationConfig, load: float
) -> Fidelity:
    """Simulate a recorded log and measure the distance.

    Args:
        jobs: With recorded starts and nodes.
        cluster: The one they ran on; its nodes in the order of their names.
        policy: The one that comes nearest to the real scheduler.
        config: Its weights.
        load: Of the log, for the record.
    """
    found = simulate(jobs, cluster, policy, config).table().sort(_NUMBER)
    wait = pl.col("start_s") - pl.col("submit_s")
    other = found.select("start_s", wait_s=wait, nodes=pl.col("nodes").list.sort())
    return measure(recorded(jobs), other, policy, load)


def compare_again(jobs: Workload, again: Workload, load: float) -> Fidelity:
    """The same stream on the same scheduler, recorded twice: how far it lies from itself."""
    return measure(recorded(jobs), recorded(again), AGAIN, load)


def recorded(jobs: Workload) -> pl.DataFrame:
    """Of each job, in the order of their numbers: when it started, how long it waited, and on which nodes."""
    frame = jobs.frame.sort(_NUMBER)
    nodes = [
        sorted(int(name.removeprefix("gn")) - 1 for name in names.split("|"))  # gn1 is node 0
        for names in frame["recorded_nodes"]
    ]
    start = pl.col("recorded_start_s")
    return frame.select(
        start_s=start, wait_s=start - pl.col("submit_s"), nodes=pl.Series(nodes, dtype=_NODES)
    )


def measure(real: pl.DataFrame, other: pl.DataFrame, policy: str, load: float) -> Fidelity:
    """From two tables of the same jobs, with ``start_s``, ``wait_s`` and ``nodes`` in ascending order."""
    error = (other["start_s"] - real["start_s"]).abs()
    waited = real["wait_s"] > CLOSE_S
    starts = pl.DataFrame({"real": real["start_s"], "other": other["start_s"]})
    return Fidelity(
        load=load,
        policy=policy,
        jobs=real.height,
        close=_mean(error <= CLOSE_S),
        rank_correlation=float(starts.select(pl.corr("real", "other", method="spearman")).item()),
        real_mean_wait_s=_mean(real["wait_s"]),
        simulated_mean_wait_s=_mean(other["wait_s"]),
        median_error_s=_quantile(error, 0.5),
        p90_error_s=_quantile(error, 0.9),
        waited=int(waited.sum()),
        close_of_waited=_mean(error.filter(waited) <= CLOSE_S) if waited.any() else None,
        same_nodes=_mean(real["nodes"].cast(_NODES) == other["nodes"].cast(_NODES)),
    )


def _mean(values: pl.Series) -> float:
    return float(values.cast(pl.Float64).mean())  # type: ignore[arg-type]


def _quantile(values: pl.Series, share: float) -> float:
    return float(values.quantile(share, "linear"))  # type: ignore[arg-type]
