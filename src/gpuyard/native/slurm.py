"""What docs/contract/slurm.md adds to a simulation: priorities, limits, dependencies, Slurm's backfilling."""

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import numpy as np
import polars as pl
from numpy.typing import NDArray

from gpuyard import _core
from gpuyard.cluster.limits import WHOSE, running_limits
from gpuyard.cluster.model import Cluster, Partition, Qos
from gpuyard.config import SimulationConfig
from gpuyard.errors import InputError
from gpuyard.policies.base import Policy
from gpuyard.workload import Workload
from gpuyard.workload.core_columns import fewest_nodes, partition_numbers
from gpuyard.workload.identity import name_of

Ints = NDArray[np.int64]
Numbers = NDArray[np.int32]


class Owners(Protocol):
    """Names of users and groups, in order of their numbers."""

    users: list[str]
    groups: list[str]


def add_slurm_settings(
    settings: _core.Settings, config: SimulationConfig, cluster: Cluster, policy: Policy | None
) -> None:
    """Weights, limits and, for a policy that backfills as Slurm does, its parameters."""
    factors = settings.multifactor
    factors.age, factors.fair_share = config.age_weight, config.fair_share_weight
    factors.size, factors.partition, factors.qos = (
        config.size_weight,
        config.partition_weight,
        config.qos_weight,
    )
    factors.gpus, factors.cpus, factors.memory = config.gpu_weight, config.cpu_weight, config.memory_weight
    factors.priority, factors.max_age_s = config.priority_weight, config.max_age_s
    factors.favor_small, factors.classic = config.favor_small, config.fair_share == "classic"
    factors.calc_us = max(1, round(config.priority_calc_s * 1e6))
    largest = max((entry.priority for entry in cluster.qos), default=0)
    factors.qos_factor = [entry.priority / largest if largest else 0.0 for entry in cluster.qos]
    tables: tuple[tuple[bool, Sequence[Partition | Qos]], ...] = (
        (False, cluster.partitions),
        (True, cluster.qos),
    )
    for of_qos, entries in tables:
        for number, entry in enumerate(entries):
            for name, most in running_limits(entry).items():
                what = {"jobs": most} if "jobs" in name else {"milli": 1000 * most}
                settings.add_limit(of_qos, number, WHOSE[name], **what)
    slurm = settings.slurm
    slurm.max_jobs, slurm.max_jobs_of_partition = config.bf_max_job_test, config.bf_max_job_part
    slurm.max_jobs_of_user = config.bf_max_job_user
    slurm.window_us = round(config.bf_window_s * 1e6)
    slurm.resolution_us = max(1, round(config.bf_resolution_s * 1e6))
    backfills = None if policy is None else policy.backfills
    slurm.interval_us = max(1, round(config.bf_interval_s * 1e6)) if backfills else 0
    slurm.goes_by_calc, slurm.always_changed = backfills == "if-calculated", backfills == "always"


def add_associations(
    settings: _core.Settings, config: SimulationConfig, names: Owners, user: Numbers, group: Numbers
) -> Numbers:
    """Tells the settings of the users in their groups; returns the number of each job's."""
    pairs, numbers = np.unique(group.astype(np.int64) * len(names.users) + user, return_inverse=True)
    factors = settings.multifactor
    factors.association_group = (pairs // len(names.users)).tolist()
    users = (pairs % len(names.users)).tolist()
    factors.association_share = [config.user_shares.get(names.users[number], 1.0) for number in users]
    factors.group_share = [config.group_shares.get(name, 1.0) for name in names.groups]
    association: Numbers = numbers.astype(np.int32)
    return association


def qos_numbers(workload: Workload, cluster: Cluster) -> Numbers | None:
    """Each job's QOS as a number of the cluster's, -1 for none; None where no job has one."""
    if not cluster.qos or not workload.has("qos"):
        return None
    known = {entry.name: number for number, entry in enumerate(cluster.qos)}
    numbers: Numbers = (
        workload.column("qos").replace_strict(known, default=-1, return_dtype=pl.Int32).to_numpy()
    )
    return numbers


def dependency_columns(workload: Workload, kept: Ints) -> dict[str, Any]:
    """Which kept jobs each kept job comes after, as offsets and numbers; empty where none does.

    Raises:
        InputError: naming jobs that wait for one another.
    """
    if not workload.has("after"):
        return {}
    position = np.full(len(workload), -1, np.int64)
    position[kept] = np.arange(len(kept))
    known = dict(zip(workload.frame["source_id"].to_list(), position.tolist(), strict=True))
    after = [_known(text, known) for text in workload.column("after").gather(kept).to_list()]
    offset = np.concatenate(([0], np.cumsum([len(some) for some in after])))
    if offset[-1] == 0:
        return {}
    numbers = np.array([job for some in after for job in some], np.int64)
    _check_acyclic(workload, kept, after, numbers, offset)
    return {"after_offset": offset.astype(np.int64), "after": numbers}


def _known(text: str | None, known: Mapping[str, int]) -> list[int]:
    found = {known.get(name, -1) for name in text.split("|")} if text else set()
    return sorted(found - {-1})


def _check_acyclic(
    workload: Workload, kept: Ints, after: Sequence[Sequence[int]], numbers: Ints, offset: Ints
) -> None:
    own = np.repeat(np.arange(len(after)), np.diff(offset))
    if (numbers < own).all():  # each comes after jobs that were submitted before it
        return
    left = {job: set(some) for job, some in enumerate(after) if some}
    free = [job for job in range(len(after)) if job not in left]
    followers: dict[int, list[int]] = {}
    for job, some in left.items():
        for other in some:
            followers.setdefault(other, []).append(job)
    while free:
        done = free.pop()
        for job in followers.get(done, ()):
            left[job].discard(done)
            if not left[job]:
                del left[job]
                free.append(job)
    if left:
        names = [str(name_of(workload, int(kept[number]))) for number in _on_circle(left)[:4]]
        raise InputError(
            f"workload {workload.metadata.name}: {', '.join(names)} wait for one another (column after), so "
            "none can ever start; correct the column, or leave it out"
        )


def _on_circle(left: Mapping[int, set[int]]) -> list[int]:
    path = [min(left)]
    while True:
        following = min(left[path[-1]])
        if following in path:
            return path[path.index(following) :]
        path.append(following)


def above_limits(workload: Workload, cluster: Cluster) -> Ints:
    """Positions of jobs that a limit of their partition or QOS never lets start."""
    above = np.zeros(len(workload), bool)
    milli = workload.frame["gpus"].to_numpy().astype(np.int64) * workload.frame["gpu_milli"].to_numpy()
    request_s = workload.frame["estimate_s"].fill_null(0.0).to_numpy()
    tables: tuple[tuple[Sequence[Partition | Qos], Numbers | None], ...] = (
        (cluster.partitions, partition_numbers(workload.frame, cluster)),
        (cluster.qos, qos_numbers(workload, cluster)),
    )
    for entries, number in tables:
        for index, entry in enumerate(entries):
            its = np.zeros(len(workload), bool) if number is None else number == index
            names = ("max_gpus_per_job", "max_gpus_per_user", "max_gpus_per_group", "max_gpus")
            most = [value for name in names if (value := getattr(entry, name, None)) is not None]
            if most:
                above |= its & (milli > 1000 * min(most))
            if entry.max_time_s is not None:
                above |= its & (np.rint(request_s * 1e6) > round(entry.max_time_s * 1e6))
            if isinstance(entry, Partition) and entry.max_nodes is not None:
                above |= its & (fewest_nodes(workload.frame, cluster, entry) > entry.max_nodes)
    return np.flatnonzero(above)
