"""Seeded synthetic workloads: arrivals, a mix of gang sizes, durations, users and estimates.

Every column has its own random streams of the core's counter-based generator (docs/guide/generators.md), and
numpy does nothing but exact arithmetic in a fixed order: a seed gives the same bits on every machine.
"""

import numpy as np
import polars as pl

from gpuyard.workload.generators.arrivals import arrival_times, start_epoch_s
from gpuyard.workload.generators.draws import Floats, choose, running_total, uniforms
from gpuyard.workload.generators.durations import draw_durations
from gpuyard.workload.generators.estimates import draw_estimates
from gpuyard.workload.generators.users import Links, draw_users, linked, named
from gpuyard.workload.schema import Workload, make_workload
from gpuyard.workload.synthetic_config import SynthConfig

_GANG_STREAM = 18
_PRIORITY_STREAM = 20


def synthesize(config: SynthConfig) -> Workload:
    """Draw a workload.

    Arrivals are spread over the time in which the drawn jobs amount to exactly the load that was asked
    for; so the realised load does not wander with a few very long jobs.
    """
    user = draw_users(config.seed, config.jobs, config.users, config.user_activity)
    durations, gpus, priority = linked(
        config.seed,
        user,
        _durations(config),
        _pick(config, _GANG_STREAM, config.gang_mix),
        _pick(config, _PRIORITY_STREAM, config.priority_mix),
        Links(config.duration_with_gpus, config.duration_with_priority, config.user_habits),
    )
    columns: dict[str, pl.Series | Floats] = {
        "submit_s": _submits(config, running_total(gpus * durations)),
        "duration_s": durations,
        "gpus": pl.Series(gpus, dtype=pl.Int32),
        "user": named("u", config.users, user),
        "priority": priority,
    }
    if config.groups:
        columns["group"] = named("g", config.groups, user % config.groups)
    if config.overestimation is not None:
        columns["estimate_s"] = _estimates(config, durations, config.overestimation)
    return make_workload(
        pl.DataFrame(columns),
        name=config.name,
        epoch_s=start_epoch_s(config.arrivals),
        source="synthetic",
        history=config.history(),
    )


DEMO = SynthConfig(name="demo", seed=1, jobs=2_000, cluster_gpus=64, load=0.95, users=12, overestimation=2.5)


def demo_workload() -> Workload:
    """The workload of ``gpuyard demo``: 2,000 jobs at load 0.95 for the ``demo`` cluster (64 GPUs)."""
    return synthesize(DEMO)


def _durations(config: SynthConfig) -> Floats:
    drawn = draw_durations(
        config.durations,
        config.seed,
        config.jobs,
        median_s=config.duration_median_s,
        sigma=config.duration_sigma,
        low_s=config.duration_min_s,
        high_s=config.duration_max_s,
    )
    return np.maximum(np.rint(drawn), 1.0) if config.whole_seconds else drawn


def _submits(config: SynthConfig, gpu_seconds: float) -> Floats:
    span_s = gpu_seconds / (config.cluster_gpus * config.load)
    submits = arrival_times(config.arrivals, config.seed, config.jobs, span_s)
    return np.floor(submits) if config.whole_seconds else submits


def _estimates(config: SynthConfig, durations: Floats, mean_factor: float) -> Floats:
    estimates = draw_estimates(
        config.seed, durations, mean_factor, config.underestimated_share, config.round_estimates
    )
    return np.ceil(estimates) if config.whole_seconds else estimates


def _pick(
    config: SynthConfig, stream: int, mix: tuple[tuple[int, float], ...] | tuple[tuple[float, float], ...]
) -> Floats:
    values = np.array([value for value, _ in mix], dtype=np.float64)
    return values[choose(uniforms(config.seed, stream, config.jobs), [weight for _, weight in mix])]
