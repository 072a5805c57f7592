"""Seeded synthetic workloads: arrivals, a mix of gang sizes, durations, users and estimates.

Every column has its own random streams of the core's counter-based generator (docs/guide/generators.md), and
numpy does nothing but exact arithmetic in a fixed order: a seed gives the same bits on every machine.
"""

from typing import Annotated, ClassVar, Literal, Self

import numpy as np
import polars as pl
from pydantic import Field, model_validator

from gpuyard.registry import register
from gpuyard.workload.formats import Trace
from gpuyard.workload.generators.arrivals import Arrivals, Poisson, arrival_times, start_epoch_s
from gpuyard.workload.generators.base import GeneratorConfig, Weight
from gpuyard.workload.generators.draws import Floats, choose, running_total, uniforms
from gpuyard.workload.generators.durations import Durations, Lognormal, draw_durations
from gpuyard.workload.generators.estimates import draw_estimates
from gpuyard.workload.generators.users import Links, draw_users, linked, named
from gpuyard.workload.schema import Workload, make_workload

_GANG_STREAM = 18
_PRIORITY_STREAM = 20

GangSize = Annotated[int, Field(ge=1, le=1_000_000)]
Correlation = Annotated[float, Field(ge=-1, le=1)]
Share = Annotated[float, Field(ge=0, le=1)]


@register("workload-generator", "synthesize")
class SynthConfig(GeneratorConfig):
    """What a synthetic workload looks like. Mixes are lists of (value, weight), of any total weight."""

    step: ClassVar[str] = "synthesize"

    cluster_gpus: Annotated[int, Field(ge=1, le=100_000_000)] = 512
    """GPUs of the cluster that ``load`` refers to."""
    load: Annotated[float, Field(gt=0, le=1000)] = 0.9
    """GPU-seconds of work that arrive in a second, divided by ``cluster_gpus``."""
    arrivals: Arrivals = Poisson()
    """``all-at-once``, ``uniform``, ``poisson``, ``bursty``, ``diurnal`` or ``markov``, with settings."""
    gang_mix: tuple[tuple[GangSize, Weight], ...] = ((1, 0.70), (2, 0.10), (4, 0.15), (8, 0.05))
    """GPUs of a job and how common that is."""
    durations: Durations = Lognormal()
    """``lognormal``, ``uniform``, ``pareto`` or ``heavy-tail``, with settings."""
    duration_median_s: Annotated[float, Field(gt=0, le=1e9)] = 600.0
    duration_sigma: Annotated[float, Field(ge=0, le=10)] = 1.8
    """Standard deviation of the natural logarithm of the duration."""
    duration_min_s: Annotated[float, Field(ge=1e-6, le=1e9)] = 10.0
    duration_max_s: Annotated[float, Field(ge=1e-6, le=1e9)] = 86_400.0
    duration_with_gpus: Correlation = 0.0
    """Correlation of the normal scores of duration and gang size: above 0, large gangs run longer."""
    duration_with_priority: Correlation = 0.0
    """The same for duration and priority: below 0, short jobs are more important."""
    whole_seconds: bool = False
    """Round submit times (down) and durations (to the nearest, at least 1) to seconds, as many logs do."""
    users: Annotated[int, Field(ge=1, le=1_000_000)] = 20
    user_activity: Literal["zipf", "uniform"] = "zipf"
    """``zipf``: the k-th user submits in proportion to 1/k."""
    user_habits: Annotated[float, Field(ge=0, lt=1)] = 0.0
    """Share of the variance of durations and gang sizes (of their scores) that lies between users."""
    groups: Annotated[int, Field(ge=0, le=1_000_000)] = 4
    """Users belong to groups in turn: user k to group k modulo ``groups``; 0 leaves the group empty."""
    priority_mix: tuple[tuple[float, Weight], ...] = ((1.0, 1.0),)
    overestimation: Annotated[float, Field(ge=1, le=1000)] | None = None
    """Mean of estimate / duration. A job's own factor is 1 + (overestimation - 1) times an exponential draw
    of mean 1, so it is enough. None: no estimates."""
    underestimated_share: Share = 0.0
    """Share of jobs whose estimate is too short, 20 % to 100 % of the duration."""
    round_estimates: bool = False
    """Round estimates as people do, to 5 min, 1 h, 1 d and the like: up, or down if too short."""

    @model_validator(mode="after")
    def _check_mixes_and_bounds(self) -> Self:
        for name, mix in (("gang_mix", self.gang_mix), ("priority_mix", self.priority_mix)):
            if not sum(weight for _, weight in mix) > 0:
                raise ValueError(f"{name} needs at least one value with a weight above 0")
        largest = max(size for size, weight in self.gang_mix if weight > 0)
        if largest > self.cluster_gpus:
            raise ValueError(
                f"gang_mix has jobs of {largest} GPUs, more than cluster_gpus = {self.cluster_gpus}"
            )
        if self.duration_min_s > self.duration_max_s:
            raise ValueError("duration_min_s must not exceed duration_max_s")
        if self.overestimation is None and (self.underestimated_share or self.round_estimates):
            raise ValueError("underestimated_share and round_estimates need overestimation, such as 2.5")
        return self

    def generate(self) -> Trace:
        """Draw the workload."""
        return Trace(synthesize(self))


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
