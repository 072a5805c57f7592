"""Snapshots from plain arrays and back: how a live cluster asks a policy (docs/contract/snapshot.md)."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gpuyard import _core
from gpuyard.cluster.model import Cluster
from gpuyard.config import SimulationConfig
from gpuyard.errors import InputError
from gpuyard.native.checked import STATES, CheckedJobs, check_jobs
from gpuyard.native.columns import FINISHED, GROUPS, MIX, NODES, RESERVATIONS, USERS, Table
from gpuyard.native.inputs import core_settings
from gpuyard.native.slurm import add_slurm_settings
from gpuyard.policies.support import tells_watts
from gpuyard.workload.core_columns import core_nodes

Columns = Mapping[str, Any]


def make_snapshot(
    cluster: Cluster,
    *,
    now_s: float,
    queue: Columns | CheckedJobs,
    running: Columns | None = None,
    nodes: Columns | None = None,
    users: Columns | None = None,
    groups: Columns | None = None,
    finished: Columns | None = None,
    mix: Columns | None = None,
    reservations: Columns | None = None,
    arrivals: float = 0.0,
    arrivals_s: float | None = None,
    instant: int = 0,
    origin_s: float = 0.0,
    epoch_s: float = 0.0,
    finished_early: Sequence[str | None] = (),
    nodes_changed: bool = False,
    backfill_due: bool = True,
    calculated_s: float | None = None,
    config: SimulationConfig | None = None,
) -> _core.Snapshot:
    """A snapshot of a cluster, as every policy's ``decide`` takes it.

    Tables are mappings from names of columns to arrays or lists of one length; columns that have a default
    may be left out (docs/contract/snapshot.md lists all). All times are seconds on one clock of the caller's.

    Args:
        cluster: The cluster.
        now_s: The time now.
        queue: Waiting jobs: ``job``, ``submit_s``, ``gpus`` and more; or all jobs, checked before.
        running: Jobs that hold GPUs: ``job``, ``begin_s``, ``gpus``, where they run, and more.
        nodes: One row per node: which are down, promised to a job, idle or waking.
        users: One row per user: ``name`` and decayed ``usage``.
        groups: The same of groups.
        finished: GPU time of finished jobs, for order ``gittins``.
        mix: Jobs that have arrived by size, for placement ``fgd``.
        reservations: The plan of ``conservative``, as the last decision left it.
        arrivals: Jobs that arrived lately, each counted half after an hour, as of ``arrivals_s``.
        arrivals_s: When that was; now if None.
        instant: The number of this decision, counted from 0: order ``random`` draws by it.
        origin_s: How long the log had run at time 0 of the clock, for orders ``f1`` to ``f4``.
        epoch_s: What a calendar clock (seconds since 1970) showed at time 0, for the time of day.
        finished_early: Owners (None: the nodes that nobody owns) of whose jobs one finished now, before its
            expected end.
        nodes_changed: Whether a node failed or was repaired now.
        backfill_due: Whether ``slurm`` makes a backfill pass now.
        calculated_s: When priorities were last calculated, for order ``multifactor``; at the last multiple of
            the setting ``priority_calc_s`` if None.
        config: Settings; the defaults if None.

    Raises:
        InputError: naming table, row and column of what is missing, out of range or contradicts other rows.
    """
    config = config or SimulationConfig()
    user_table, group_table = Table("users", USERS, users), Table("groups", GROUPS, groups)
    now_us = _one_time("now_s", now_s)
    jobs = (
        queue
        if isinstance(queue, CheckedJobs)
        else _checked(cluster, queue, running, user_table, group_table)
    )
    tables: dict[str, Any] = {
        "queue": jobs.queue,
        "running": jobs.running,
        "nodes": Table("nodes", NODES, nodes, cluster.node_count).columns(now_us=now_us),
        "users": _sized(user_table, len(jobs.users), now_us),
        "groups": _sized(group_table, len(jobs.groups), now_us),
        "finished": Table("finished", FINISHED, finished).columns(),
        "mix": Table("mix", MIX, mix).columns(),
        "reservations": Table("reservations", RESERVATIONS, reservations).columns(),
        "queues": {"finished_early": _early(cluster, finished_early)},
        "moment": {
            "now_us": now_us,
            "instant": int(instant),
            "origin_s": float(origin_s),
            "epoch_us": _one_time("epoch_s", epoch_s),
            "arrivals": float(arrivals),
            "arrivals_us": now_us if arrivals_s is None else _one_time("arrivals_s", arrivals_s),
            "nodes_changed": bool(nodes_changed),
            "backfill_due": bool(backfill_due),
        },
    }
    shared = any((tables[name]["gpu_milli"] < 1000).any() for name in ("queue", "running"))
    tracked = bool(shared or "gpu_mask" in tables["running"])
    spec = core_nodes(cluster, with_watts=tells_watts(cluster), track_gpus=tracked)
    _check_named(config, user_table, group_table)
    settings = core_settings(config, cluster, jobs)
    add_slurm_settings(settings, config, cluster, None)
    last_us = settings.multifactor.calculated_us(now_us)
    tables["moment"]["calculated_us"] = (
        last_us if calculated_s is None else _one_time("calculated_s", calculated_s)
    )
    try:
        return _core.make_snapshot(spec, settings, tables, jobs.types.sets)
    except _core.SnapshotError as error:
        raise InputError(str(error)) from None


def snapshot_arrays(snapshot: _core.Snapshot, cluster: Cluster) -> dict[str, Any]:
    """What ``make_snapshot`` makes the same snapshot of, but for ``config`` and names of users and groups.

    Args:
        snapshot: Such as ``Simulator.snapshot`` returns.
        cluster: What it is of.
    """
    tables = _core.snapshot_columns(snapshot)
    sets, moment = tables.pop("type_sets"), tables.pop("moment")
    owners = (None, *cluster.owners)
    type_names = [gpu_type.name for gpu_type in cluster.gpu_types]
    named = [[type_names[number] if number >= 0 else "" for number in numbers] or None for numbers in sets]
    early = [
        owner for owner, flag in zip(owners, tables.pop("queues")["finished_early"], strict=False) if flag
    ]
    for name in ("queue", "running"):
        table = tables[name]
        queues = table.pop("queue")
        table["owner"] = [None if cluster.partitions else owners[number] for number in queues]
        for column, entries in (("partition", cluster.partitions), ("qos", cluster.qos)):
            table[column] = [entries[number].name if number >= 0 else None for number in table[column]]
        table["gpu_types"] = [named[number] for number in table.pop("type_set")]
    tables["running"]["state"] = [STATES[number] for number in tables["running"].pop("state")]
    return {
        **{name: _in_seconds(table) for name, table in tables.items()},
        "now_s": moment["now_us"] / 1e6,
        "instant": moment["instant"],
        "origin_s": moment["origin_s"],
        "epoch_s": moment["epoch_us"] / 1e6,
        "arrivals": moment["arrivals"],
        "arrivals_s": moment["arrivals_us"] / 1e6,
        "nodes_changed": moment["nodes_changed"],
        "backfill_due": moment["backfill_due"],
        "calculated_s": moment["calculated_us"] / 1e6,
        "finished_early": early,
    }


def _in_seconds(table: dict[str, Any]) -> dict[str, Any]:
    """Times as seconds, NaN for what has no end."""
    return {
        f"{name.removesuffix('_us')}_s" if name.endswith("_us") else name: (
            np.where(values == _core.ENDLESS, np.nan, values / 1e6) if name.endswith("_us") else values
        )
        for name, values in table.items()
    }


def _one_time(name: str, seconds: float) -> int:
    try:
        return round(float(seconds) * 1e6)
    except (TypeError, ValueError, OverflowError):
        raise InputError(f"{name}: {seconds!r}; expected a number of seconds") from None


def _checked(
    cluster: Cluster, queue: Columns, running: Columns | None, users: Table, groups: Table
) -> CheckedJobs:
    user_names, group_names = (_names(table, queue, running or {}) for table in (users, groups))
    return check_jobs(cluster, queue, running, user_names, group_names)


def _names(table: Table, *jobs: Columns) -> list[str]:
    """Users or groups in order of number; made up where nobody has a name."""
    given = table.names()
    if given is not None:
        return given
    column = table.name.removesuffix("s")
    found = [one[column] for one in jobs if column in one]
    values = {value for some in found for value in np.asarray(some).tolist()}
    if any(isinstance(value, str) for value in values):
        return sorted(str(value) for value in values)
    return [str(number) for number in range(max([table.rows - 1, 0, *(int(v) for v in values)]) + 1)]


def _sized(table: Table, rows: int, now_us: int) -> dict[str, NDArray[Any]]:
    if table.raw and table.rows != rows:
        raise InputError(
            f"table {table.name} has {table.rows} rows, but jobs name {rows} {table.name}; "
            "give one row for each"
        )
    table.rows = rows
    return table.columns(now_us=now_us)


def _early(cluster: Cluster, owners: Sequence[str | None]) -> NDArray[np.uint8]:
    flags = np.zeros(max(len(cluster.owners) + 1, len(cluster.partitions) + 1), np.uint8)
    for owner in owners:
        if owner is not None and owner not in cluster.owners:
            raise InputError(f"finished_early: {owner!r} owns no nodes of cluster {cluster.name}")
        flags[0 if owner is None else cluster.owners.index(owner) + 1] = 1
    return flags


def _check_named(config: SimulationConfig, users: Table, groups: Table) -> None:
    by_name = (
        ("user_shares", config.user_shares, users),
        ("group_shares", config.group_shares, groups),
        ("group_quotas", config.group_quotas, groups),
    )
    for setting, value, table in by_name:
        if value and table.names() is None:
            raise InputError(f"config.{setting} goes by name; give table {table.name} with a column name")
