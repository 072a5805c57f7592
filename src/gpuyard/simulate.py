"""Run a policy over a workload on a cluster."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import polars as pl
from numpy.typing import NDArray

from gpuyard import _core
from gpuyard.cluster import Cluster, parse_cluster
from gpuyard.config import SimulationConfig
from gpuyard.errors import InputError
from gpuyard.metrics import compute_breakdown, compute_metrics
from gpuyard.policies.base import PolicySpec, parse_policy
from gpuyard.schedule import Schedule
from gpuyard.workload import Workload, read_workload
from gpuyard.workload.core_columns import core_cluster, demand_columns

Ints = NDArray[np.int64]
Progress = Callable[[int], None]


class Decider(Protocol):
    """A policy that decides for itself: anything with ``decide(snapshot) -> Decision``."""

    def decide(self, snapshot: _core.Snapshot) -> _core.Decision:
        """What to start now."""


@dataclass(frozen=True)
class SimulationResult:
    """What a policy did.

    Attributes:
        workload: The jobs, dropped ones included.
        cluster: The cluster.
        policy: Full name of the policy.
        config: Settings of the simulation.
        schedule: When and where each job ran.
        dropped: Rows left out because they can never run on the cluster (``oversize = drop``).
        elapsed_s: Wall time of the simulation, seconds.
    """

    workload: Workload
    cluster: Cluster
    policy: str
    config: SimulationConfig
    schedule: Schedule
    dropped: Ints
    elapsed_s: float

    def metrics(self, price_per_kwh: float | None = None) -> dict[str, float | int | None]:
        """All metrics by name (docs/metrics.md); None where the inputs do not tell.

        Args:
            price_per_kwh: Price of energy, in any currency; without it ``energy_cost`` is None.
        """
        return compute_metrics(self.workload, self.cluster, self.schedule, price_per_kwh=price_per_kwh)

    def breakdown(self, by: str) -> pl.DataFrame:
        """Metrics of each class of jobs; ``by`` is ``priority``, ``group`` or ``gpus``."""
        return compute_breakdown(self.workload, self.cluster, self.schedule, by)

    def table(self) -> pl.DataFrame:
        """The workload's jobs with when and where each ran, one row a simulated job."""
        outcome = self.schedule.frame().rename({"status": "outcome"}).drop("job")
        return pl.concat([self.workload.frame[self.schedule.job], outcome], how="horizontal")


def simulate(
    workload: Workload | str | Path,
    cluster: Cluster | str,
    policy: PolicySpec | Decider | str = "fifo",
    config: SimulationConfig | None = None,
    *,
    progress: Progress | None = None,
) -> SimulationResult:
    """Run a workload to its end under a policy.

    Args:
        workload: The jobs, or the path of a file of them in any known format.
        cluster: A cluster, or what ``parse_cluster`` takes, such as ``64x8``.
        policy: A policy's name, such as ``sjf+easy``, or an object with ``decide(snapshot) -> Decision``.
        config: Settings; the defaults if None.
        progress: Called now and then with the number of jobs finished so far.

    Raises:
        InputError: for a name that is unknown, a file that cannot be read, jobs that can never run on the
            cluster, or something of another kind than expected.
    """
    workload = read_workload(workload) if isinstance(workload, str | Path) else workload
    _check_kinds(workload, policy)
    cluster = parse_cluster(cluster) if isinstance(cluster, str) else cluster
    policy = parse_policy(policy) if isinstance(policy, str) else policy
    config = config or SimulationConfig()
    began = time.perf_counter()
    inputs = prepare(workload, cluster, policy, config)
    if isinstance(policy, PolicySpec):
        arrays = _core.simulate(inputs.cluster, inputs.jobs, policy.compile(), inputs.settings, progress)
    else:
        arrays = _run_decider(inputs, policy, progress)
    arrays["backfilled"] = arrays["backfilled"].view(np.bool_)
    schedule = Schedule(job=inputs.kept, **arrays)
    name = policy.name if isinstance(policy, PolicySpec) else type(policy).__name__
    elapsed_s = time.perf_counter() - began
    return SimulationResult(workload, cluster, name, config, schedule, inputs.dropped, elapsed_s)


def _check_kinds(workload: object, policy: object) -> None:
    if not isinstance(workload, Workload):
        raise InputError(
            f"workload is a {type(workload).__name__}; expected a Workload, as read_workload and the "
            "generators return it, or the path of a file of jobs"
        )
    if not isinstance(policy, PolicySpec | str) and not callable(getattr(policy, "decide", None)):
        raise InputError(
            f"policy is a {type(policy).__name__}; expected a policy's name, such as 'sjf+easy', or an "
            "object with decide(snapshot) -> Decision"
        )


def _run_decider(inputs: "CoreInputs", policy: Decider, progress: Progress | None) -> dict[str, NDArray[Any]]:
    simulator = _core.Simulator(inputs.cluster, inputs.jobs, inputs.settings)
    while simulator.advance():
        if len(simulator.waiting):
            decision = policy.decide(simulator.snapshot())
            if not isinstance(decision, _core.Decision):
                raise InputError(
                    f"{type(policy).__name__}.decide() returned {_kind(decision)}; expected a Decision, "
                    "an empty one to start nothing"
                )
            simulator.apply(decision)
        if progress:
            progress(simulator.finished)
    if len(simulator.waiting):
        raise InputError(
            f"{type(policy).__name__} left {len(simulator.waiting)} jobs waiting, job {simulator.waiting[0]} "
            "first, with nothing running and nothing to arrive; decide() must start every job in the end"
        )
    return simulator.schedule()


def _kind(value: object) -> str:
    return "None" if value is None else f"a {type(value).__name__}"


@dataclass(frozen=True)
class CoreInputs:
    """A simulation as the native core takes it.

    Attributes:
        cluster: Nodes and pools.
        jobs: The kept jobs.
        settings: What holds for the whole run.
        kept: Rows of the workload that are simulated.
        dropped: Rows that can never run.
    """

    cluster: _core.ClusterSpec
    jobs: _core.JobTable
    settings: _core.Settings
    kept: Ints
    dropped: Ints


def prepare(
    workload: Workload, cluster: Cluster, policy: PolicySpec | Decider, config: SimulationConfig
) -> CoreInputs:
    """Convert to the core's units and columns, and deal with jobs that can never run."""
    spec = core_cluster(workload, cluster)
    # Names of users become numbers only where a policy can see them: on large workloads that costs time.
    order = policy.order if isinstance(policy, PolicySpec) else None
    with_users = order == "fair-share" or order not in _core.order_names()
    columns = _job_columns(workload, cluster, config, with_users)
    settings = _core.Settings(
        config.seed, config.kill_at_estimate, config.locality_penalty, config.usage_half_life_s
    )
    jobs = _core.JobTable(spec, **columns)
    placement = policy.placement if isinstance(policy, PolicySpec) else "anywhere"
    kept = np.arange(len(workload), dtype=np.int64)
    dropped = _core.never_placeable(spec, jobs, placement)
    if len(dropped):
        if config.oversize == "error" or len(dropped) == len(workload):
            raise InputError(_oversize_message(workload, cluster, dropped, placement))
        kept = np.delete(kept, dropped)
        columns = {name: c[kept] if isinstance(c, np.ndarray) else c for name, c in columns.items()}
        jobs = _core.JobTable(spec, **columns)
    return CoreInputs(spec, jobs, settings, kept, dropped)


def _job_columns(
    workload: Workload, cluster: Cluster, config: SimulationConfig, with_users: bool
) -> dict[str, Any]:
    """The core's columns. Those that hold nothing but the default are left out."""
    frame = workload.frame
    duration_us = microseconds(frame["duration_s"])
    row = frame["row"].to_numpy()
    columns: dict[str, Any] = {
        "submit_us": microseconds(frame["submit_s"]),
        "duration_us": duration_us,
        "estimate_us": _estimates(workload, config, duration_us, row),
        "origin_s": workload.metadata.origin_s,
    }
    if (frame["priority"] != 1.0).any():
        columns["priority"] = frame["priority"].to_numpy()
    if frame["deadline_s"].null_count() < len(frame):
        columns["deadline_us"] = _microseconds_or_endless(frame["deadline_s"])
    if not np.array_equal(row, np.arange(len(row))):
        columns["row"] = row
    if with_users:
        users = frame["user"].rank("dense").to_numpy().astype(np.int32) - 1
        columns |= {"user": users, "users": int(users.max()) + 1}
    return columns | demand_columns(frame, cluster)


def _estimates(workload: Workload, config: SimulationConfig, duration_us: Ints, row: Ints) -> Ints:
    """What the scheduler is told (docs/simulator.md, section 4)."""
    match config.estimates:
        case "exact":
            return duration_us
        case "noisy":
            return _core.noisy_estimates(duration_us, row, config.seed, config.noise_sigma)
        case "none":
            return np.full(len(workload), _core.ENDLESS, dtype=np.int64)
    requested = workload.frame["estimate_s"]
    if requested.null_count() == len(requested):
        raise InputError(
            f"workload {workload.metadata.name} has no estimate_s, so estimates = requested tells nothing; "
            "use exact, noisy or none"
        )
    return _microseconds_or_endless(requested)


def microseconds(seconds: pl.Series) -> Ints:
    """Seconds as int64 microseconds, rounded half to even."""
    return np.rint(seconds.to_numpy() * 1e6).astype(np.int64)


def _microseconds_or_endless(seconds: pl.Series) -> Ints:
    missing = seconds.is_null().to_numpy()
    return np.where(missing, _core.ENDLESS, microseconds(seconds.fill_null(0.0)))


def _oversize_message(workload: Workload, cluster: Cluster, rows: Ints, placement: str) -> str:
    job = workload.frame.row(int(rows[0]), named=True)
    label = f"job {rows[0]}" + (f" (source_id {job['source_id']})" if job["source_id"] else "")
    needs = [f"{job['gpus']} GPUs"] if job["gpu_milli"] == 1000 else [f"{job['gpu_milli'] / 1000:g} GPU"]
    needs += [f"{job['cpus']} CPUs"] if job["cpus"] else []
    needs += [f"{job['memory_mib']} MiB"] if job["memory_mib"] else []
    needs += [f"of type {' or '.join(job['gpu_types'])}"] if job["gpu_types"] else []
    needs += [f"on the nodes of group {job['group']}"] if job["group"] in cluster.owners else []
    others = f", nor can {len(rows) - 1:,} others" if len(rows) > 1 else ""
    return (
        f"{label} of workload {workload.metadata.name} needs {', '.join(needs)} and can never run on cluster "
        f"{cluster.name} with placement {placement}{others}; use a larger cluster or another placement, "
        "or leave such jobs out, counted and reported, with --oversize drop"
    )
