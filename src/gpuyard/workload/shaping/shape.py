"""Cutting and changing workloads: functions from Workload to Workload that write down what they did.

Every function here leaves its input as it is and adds a step to ``metadata.history``. Rows keep their
original ``row``, which keys random draws, and ``origin_s`` their offset from the start of the trace.
``shape`` applies several of them in a fixed order.
"""

from pathlib import Path

from gpuyard.cluster.model import Cluster
from gpuyard.cluster.scaling import shrink_cluster
from gpuyard.errors import InputError, setting
from gpuyard.workload.schema import Workload
from gpuyard.workload.shaping.amend import (
    clamp_durations,
    estimates_from,
    exact_estimates,
    noisy_estimates,
    read_estimates,
    relabel_groups,
    round_estimates,
    widen_gangs,
)
from gpuyard.workload.shaping.config import ShapeConfig
from gpuyard.workload.shaping.merge import merge
from gpuyard.workload.shaping.rescale import (
    area_load,
    compress_time,
    demand_in_span,
    factor_to_load,
    level_load,
    resample_days,
    to_load,
)
from gpuyard.workload.shaping.slices import (
    Splits,
    between,
    drop_duplicates,
    keep,
    moment,
    split_by_time,
    thin,
    window,
)

__all__ = [
    "ShapeConfig",
    "Splits",
    "area_load",
    "between",
    "clamp_durations",
    "compress_time",
    "demand_in_span",
    "drop_duplicates",
    "estimates_from",
    "exact_estimates",
    "keep",
    "level_load",
    "merge",
    "moment",
    "noisy_estimates",
    "relabel_groups",
    "resample_days",
    "round_estimates",
    "shape",
    "shrink_cluster",
    "split_by_time",
    "thin",
    "to_load",
    "widen_gangs",
    "window",
]

ESTIMATES_GRAMMAR = "exact, noisy[:SIGMA], round[:OVERESTIMATION], or a CSV or parquet file"


def shape(workload: Workload, config: ShapeConfig, cluster: Cluster | None = None) -> Workload:
    """Take the configured steps, in the order of ``ShapeConfig``'s fields.

    Args:
        workload: The jobs.
        config: What to do.
        cluster: What a load refers to.

    Raises:
        InputError: from the first step that makes no sense.
    """
    workload = _selected(workload, config)
    if config.thin is not None:
        workload = thin(workload, config.thin, config.seed)
    if config.resample_days is not None:
        workload = resample_days(
            workload, config.resample_days, config.seed, keep_weekdays=config.keep_weekdays
        )
    if config.clamp_max_s is not None or config.clamp_min_s is not None:
        workload = clamp_durations(workload, min_s=config.clamp_min_s, max_s=config.clamp_max_s)
    if config.widen is not None or config.widen_to is not None:
        if config.widen is None or config.widen_to is None:
            raise InputError(
                "wider gangs need their share and their most GPUs "
                f"({setting('widen')}, {setting('widen_to')})"
            )
        workload = widen_gangs(workload, config.widen, config.widen_to, config.seed)
    if config.relabel_groups:
        workload = relabel_groups(workload, dict(config.relabel_groups))
    if config.compress is not None:
        workload = compress_time(workload, config.compress)
    if config.load is not None:
        if cluster is None:
            raise InputError(f"a load needs the cluster that it refers to ({setting('cluster')})")
        if config.level_days is None:
            workload = to_load(workload, cluster, config.load)
        else:
            workload = level_load(workload, cluster, config.load, config.level_days)
    elif config.level_days is not None:
        raise InputError(f"{setting('level_days')} needs {setting('load')}: the load of every stretch")
    return _with_estimates(workload, config)


def shrink_to_load(workload: Workload, cluster: Cluster, load: float) -> Cluster:
    """The cluster, shrunk in its own shape until the workload's load on it is about ``load``.

    Raises:
        InputError: if the present load is higher already.
    """
    factor = factor_to_load(workload, cluster, load)
    if factor < 1:
        raise InputError(
            f"the load of {workload.metadata.name} on {cluster.name} is {load / factor:.3g} already, above "
            f"{load:g}; a smaller cluster cannot lower it. "
            f"Stretch time ({setting('load')} without {setting('cluster_out')})"
        )
    return shrink_cluster(cluster, 1 / factor)


def _selected(workload: Workload, config: ShapeConfig) -> Workload:
    if config.start is not None or config.end is not None:
        start_s = None if config.start is None else moment(workload, config.start)
        # A share of 100 % is the end itself, the last job included.
        to_the_end = config.end is None or config.end.strip() == "100%"
        workload = between(workload, start_s, None if to_the_end else moment(workload, config.end or ""))
    if config.drop_duplicates:
        workload = drop_duplicates(workload)
    if config.statuses or config.groups or config.users or config.gpus != (None, None) or _limits(config):
        workload = keep(
            workload,
            statuses=config.statuses,
            groups=config.groups,
            users=config.users,
            gpus=config.gpus,
            duration_s=config.duration_s,
        )
    if config.split is not None:
        workload = getattr(split_by_time(workload, config.shares), config.split)
    if config.first_job is not None or config.job_count is not None:
        first = config.first_job or 0
        workload = window(workload, first, config.job_count or max(len(workload) - first, 0))
    return workload


def _limits(config: ShapeConfig) -> bool:
    return config.duration_s != (None, None)


def _with_estimates(workload: Workload, config: ShapeConfig) -> Workload:
    if config.estimates is None:
        return workload
    kind, _, value = config.estimates.partition(":")
    if kind == "exact" and not value:
        return exact_estimates(workload)
    if kind in ("noisy", "round"):
        try:
            number = float(value) if value else None
        except ValueError:
            raise InputError(f"estimates {config.estimates!r}: expected {ESTIMATES_GRAMMAR}") from None
        if kind == "noisy":
            return noisy_estimates(workload, 1.0 if number is None else number, config.seed)
        return round_estimates(workload, 3.0 if number is None else number, config.seed)
    path = Path(config.estimates)
    if not path.exists():
        raise InputError(f"estimates {config.estimates!r}: no such file; expected {ESTIMATES_GRAMMAR}")
    return estimates_from(workload, read_estimates(path), source=path.name)
