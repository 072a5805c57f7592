"""A simulation in the form in which the native core takes it: units, columns and settings."""

from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import polars as pl
from numpy.typing import NDArray

from gpuyard import _core
from gpuyard.cluster.limits import has_running_limits
from gpuyard.cluster.model import Cluster
from gpuyard.config import SimulationConfig
from gpuyard.errors import InputError, setting
from gpuyard.native.information import informed
from gpuyard.native.slurm import (
    above_limits,
    add_associations,
    add_slurm_settings,
    dependency_columns,
    qos_numbers,
)
from gpuyard.policies.base import Policy
from gpuyard.policies.grammar import PolicySpec
from gpuyard.policies.heuristics import Order
from gpuyard.policies.support import check_supported, needs_power, tells_watts
from gpuyard.workload import Workload
from gpuyard.workload.core_columns import core_cluster, demand_columns, needs_of
from gpuyard.workload.identity import name_of
from gpuyard.workload.schema import microseconds

Ints = NDArray[np.int64]
History = Workload | _core.Past
"""Jobs that have finished before, or what the core keeps of them."""

NO_CAP_MW = 2**63 - 1


@dataclass(frozen=True)
class CoreInputs:
    """A simulation as the native core takes it.

    Attributes:
        cluster: Nodes and pools.
        jobs: The kept jobs.
        settings: What holds for the whole run.
        past: Finished jobs for predictions.
        kept: Rows of the workload that are simulated.
        dropped: Rows that can never run.
    """

    cluster: _core.ClusterSpec
    jobs: _core.JobTable
    settings: _core.Settings
    past: _core.Past
    kept: Ints
    dropped: Ints


def prepare(
    workload: Workload,
    cluster: Cluster,
    policy: Policy,
    config: SimulationConfig,
    history: History | None = None,
    *,
    for_learning: bool = False,
    track_gpus: bool = False,
) -> CoreInputs:
    """Convert to the core's units and columns, and deal with jobs that can never run.

    Args:
        workload: The jobs.
        cluster: What they run on.
        policy: Who decides.
        config: Settings.
        history: Jobs that have finished before, for predictions, or their sums (``past_jobs``).
        for_learning: Tell everything that could matter to a policy: users, groups, watts.
        track_gpus: Keep the state of every single GPU.

    Raises:
        InputError: for what the support matrix (docs/contract/simulator.md, section 20) says no to, and for
            jobs that
            can never run on the cluster unless they are to be dropped.
    """
    config = policy.configured(informed(config, workload))
    spec = policy.rules
    check_supported(workload, cluster, spec, config)
    sees_all = spec is None or for_learning
    with_watts = needs_power(spec, config) or (sees_all and tells_watts(cluster))
    core = core_cluster(workload, cluster, with_watts=with_watts, track_gpus=track_gpus)
    # Names become numbers only where a policy can see them: on large workloads that costs time.
    known = history if isinstance(history, Workload) else None
    sees_names = _sees_names(spec, config) or has_running_limits(cluster)
    names = _Names(workload, known) if for_learning or sees_names else None
    columns = _job_columns(workload, cluster, config, names)
    settings = core_settings(config, cluster, names)
    add_slurm_settings(settings, config, cluster, policy)
    if names is not None:
        columns["association"] = add_associations(settings, config, names, columns["user"], columns["group"])
    settings.ticks = config.defragment or policy.preempts
    jobs = _core.JobTable(core, **columns)
    placement = "anywhere" if spec is None else "consolidate" if spec.is_optimised else spec.placement
    kept = np.arange(len(workload), dtype=np.int64)
    # A policy that decides for itself may place jobs where no rule would: only what cannot be is refused.
    cap_mw = settings.power_cap_mw if spec else NO_CAP_MW
    dropped = _never_startable(workload, cluster, core, jobs, placement, config, cap_mw)
    if len(dropped):
        if config.oversize == "error" or len(dropped) == len(workload):
            raise InputError(_oversize_message(workload, cluster, dropped, placement, config))
        kept = np.delete(kept, dropped)
        columns = {name: c[kept] if isinstance(c, np.ndarray) else c for name, c in columns.items()}
    after = dependency_columns(workload, kept)
    if after or len(dropped):
        jobs = _core.JobTable(core, **columns, **after)
    past = _core.Past()
    if history is not None and names is not None:
        past = names.past(history) if isinstance(history, Workload) else history
    return CoreInputs(core, jobs, settings, past, kept, dropped)


def _sees_names(policy: PolicySpec | None, config: SimulationConfig) -> bool:
    """Whether the policy may look at users or groups; any that is not native may."""
    if policy is None or not isinstance(policy.order_rule, Order):
        return True
    by_user = policy.backfill == "slurm" and config.bf_max_job_user > 0
    return (
        policy.order_rule.sees_names or config.estimates == "history" or bool(config.group_quotas) or by_user
    )


class _Names:
    """Users and groups of a workload as numbers, in order of name; those of its history follow."""

    def __init__(self, workload: Workload, history: Workload | None) -> None:
        frames = [workload.frame] if history is None else [workload.frame, history.frame]
        self.users = workload.frame["user"].unique().sort().to_list()
        self.groups = workload.frame["group"].unique().sort().to_list()
        self._user = _numbers(self.users, [frame["user"] for frame in frames])
        self._group = _numbers(self.groups, [frame["group"] for frame in frames])

    def columns(self, frame: pl.DataFrame) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
        """Numbers of each job's user and group."""
        user, group = (
            frame[name].replace_strict(known, return_dtype=pl.Int32).to_numpy()
            for name, known in (("user", self._user), ("group", self._group))
        )
        return user, group

    def past(self, history: Workload) -> _core.Past:
        """Finished jobs as the core takes them."""
        user, group = self.columns(history.frame)
        duration_us = np.maximum(microseconds(history.frame["duration_s"]), 1)
        gpus = history.frame["gpus"].to_numpy().astype(np.int32)
        return _core.Past(user, group, gpus, _milli(history), duration_us)


def past_jobs(workload: Workload, history: Workload) -> _core.Past:
    """Finished jobs as the core takes them beside the jobs of a workload."""
    return _Names(workload, history).past(history)


def _numbers(first: list[str], columns: list[pl.Series]) -> dict[str, int]:
    names = dict.fromkeys(first)
    for column in columns[1:]:
        names |= dict.fromkeys(column.unique().sort().to_list())
    return {name: number for number, name in enumerate(names)}


def _us(seconds: float) -> int:
    return round(seconds * 1e6)


class Owners(Protocol):
    """Names of users and groups, in order of their numbers."""

    @property
    def users(self) -> list[str]:
        """Of users."""

    @property
    def groups(self) -> list[str]:
        """Of groups."""


def core_settings(config: SimulationConfig, cluster: Cluster, names: Owners | None) -> _core.Settings:
    """The settings in the core's units."""
    settings = _core.Settings()
    for name in ("seed", "kill_at_estimate", "locality_penalty", "usage_half_life_s", "defragment"):
        setattr(settings, name, getattr(config, name))
    settings.predict = config.estimates == "history"
    settings.reschedule_us = max(1, _us(config.reschedule_s))
    settings.min_run_us = _us(config.min_run_s)
    settings.checkpoint_us = -1 if config.checkpoint_s is None else _us(config.checkpoint_s)
    settings.restore_us = -1 if config.restore_s is None else _us(config.restore_s)
    settings.tiresias_levels_gpu_s = list(config.tiresias_levels_gpu_s)
    settings.starvation_us = max(1, _us(config.starvation_s))
    if config.node_mtbf_s is not None:
        settings.mtbf_us, settings.mttr_us = max(1, _us(config.node_mtbf_s)), max(1, _us(config.repair_s))
        every_s = config.checkpoint_every_s
        settings.checkpoint_every_us = 0 if every_s is None else max(1, _us(every_s))
    if config.sleep_after_s is not None:
        settings.sleep_after_us, settings.wake_us = _us(config.sleep_after_s), _us(config.waking_s)
    if config.power_cap_w is not None:
        settings.power_cap_mw = round(config.power_cap_w * 1000)
    if names is not None:
        _add_shares(settings, config, cluster, names)
    return settings


def _add_shares(settings: _core.Settings, config: SimulationConfig, cluster: Cluster, names: Owners) -> None:
    if config.user_shares:
        settings.user_weight = [config.user_shares.get(user, 1.0) for user in names.users]
    if config.group_shares:
        settings.group_weight = [config.group_shares.get(group, 1.0) for group in names.groups]
    if config.group_quotas:
        left = cluster.total_gpus - sum(config.group_quotas.values())
        quotas = {group: number for number, group in enumerate(config.group_quotas, start=1)}
        settings.quota_milli = [1000 * gpus for gpus in (left, *config.group_quotas.values())]
        settings.quota_of_group = [quotas.get(group, 0) for group in names.groups]
        settings.quota_borrowing = config.quota_borrowing


def _never_startable(
    workload: Workload,
    cluster: Cluster,
    core: _core.ClusterSpec,
    jobs: _core.JobTable,
    placement: str,
    config: SimulationConfig,
    power_cap_mw: int,
) -> Ints:
    never = _core.never_placeable(core, jobs, placement, power_cap_mw)
    if cluster.partitions or cluster.qos:
        never = np.union1d(never, above_limits(workload, cluster)).astype(np.int64)
    if not config.group_quotas or config.quota_borrowing:
        return never
    over = np.flatnonzero(_milli(workload) > _quota_milli(workload, cluster, config))
    both: Ints = np.union1d(never, over).astype(np.int64)
    return both


def _milli(workload: Workload) -> Ints:
    frame = workload.frame
    milli: Ints = frame["gpus"].to_numpy().astype(np.int64) * frame["gpu_milli"].to_numpy()
    return milli


def _quota_milli(workload: Workload, cluster: Cluster, config: SimulationConfig) -> Ints:
    """What each job's group may hold, thousandths of GPUs."""
    left = cluster.total_gpus - sum(config.group_quotas.values())
    quotas = workload.frame["group"].replace_strict(
        dict(config.group_quotas), default=left, return_dtype=pl.Int64
    )
    milli: Ints = quotas.to_numpy().astype(np.int64) * 1000
    return milli


def _job_columns(
    workload: Workload, cluster: Cluster, config: SimulationConfig, names: _Names | None
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
        "epoch_us": round(workload.metadata.epoch_s * 1e6),
    }
    if (frame["priority"] != 1.0).any():
        columns["priority"] = frame["priority"].to_numpy()
    if frame["deadline_s"].null_count() < len(frame):
        columns["deadline_us"] = _microseconds_or_endless(frame["deadline_s"])
    if not np.array_equal(row, np.arange(len(row))):
        columns["row"] = row
    qos = qos_numbers(workload, cluster)
    if qos is not None:
        columns["qos"] = qos
    if names is not None:
        user, group = names.columns(frame)
        columns |= {"user": user, "group": group, "users": len(names.users), "groups": len(names.groups)}
    return columns | demand_columns(frame, cluster)


def _estimates(workload: Workload, config: SimulationConfig, duration_us: Ints, row: Ints) -> Ints:
    """What the scheduler is told (docs/contract/simulator.md, section 4)."""
    match config.estimates:
        case "exact":
            return duration_us
        case "noisy":
            return _core.noisy_estimates(duration_us, row, config.seed, config.noise_sigma)
        case "none" | "history":  # what history tells is found out as the simulation goes
            return np.full(len(workload), _core.ENDLESS, dtype=np.int64)
    requested = workload.frame["estimate_s"]
    if requested.null_count() == len(requested):
        raise InputError(
            f"workload {workload.metadata.name} has no estimate_s, so estimates = requested tells nothing; "
            "use exact, noisy, history or none"
        )
    return _microseconds_or_endless(requested)


def _microseconds_or_endless(seconds: pl.Series) -> Ints:
    missing = seconds.is_null().to_numpy()
    return np.where(missing, _core.ENDLESS, microseconds(seconds.fill_null(0.0)))


def _oversize_message(
    workload: Workload, cluster: Cluster, rows: Ints, placement: str, config: SimulationConfig
) -> str:
    job = workload.frame.row(int(rows[0]), named=True)
    needs = [needs_of(job)]
    needs += [f"of type {' or '.join(job['gpu_types'])}"] if job["gpu_types"] else []
    needs += [f"on the nodes of group {job['group']}"] if job["group"] in cluster.owners else []
    limits = [f"under a power cap of {config.power_cap_w:g} W"] if config.power_cap_w else []
    limits += ["within the limits of its partition or QOS"] if cluster.partitions or cluster.qos else []
    limits += ["within its group's quota"] if config.group_quotas and not config.quota_borrowing else []
    under = f" {' and '.join(limits)}" if limits else ""
    others = f", nor can {len(rows) - 1:,} others" if len(rows) > 1 else ""
    return (
        f"{name_of(workload, int(rows[0]))} of workload {workload.metadata.name} needs "
        f"{', '.join(needs)} and can never run on cluster "
        f"{cluster.name} with placement {placement}{under}{others}; use a larger cluster or another "
        f"placement, or leave such jobs out, counted and reported, with {setting('oversize', 'drop')}"
    )
