"""Seeded synthetic workloads: Poisson arrivals, a mix of gang sizes, lognormal durations.

Every column has its own random stream of the core's counter-based generator (docs/simulator.md, section 2),
and numpy does nothing but exact arithmetic in a fixed order: a seed gives the same bits on every machine.
"""

import math
from typing import Annotated, Literal, Self

import numpy as np
import polars as pl
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field, model_validator

from gpuyard.workload.schema import Step, Workload, make_workload

_GAP_STREAM = 16
_DURATION_STREAM = 17
_GANG_STREAM = 18
_USER_STREAM = 19
_PRIORITY_STREAM = 20
_ESTIMATE_STREAM = 21

Weight = Annotated[float, Field(ge=0, le=1e9)]
GangSize = Annotated[int, Field(ge=1, le=1_000_000)]


class SynthConfig(BaseModel):
    """What a synthetic workload looks like. Mixes are lists of (value, weight), of any total weight."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    name: str = "synthetic"
    seed: Annotated[int, Field(ge=0, lt=2**63)] = 0
    jobs: Annotated[int, Field(ge=1, le=100_000_000)] = 10_000
    cluster_gpus: Annotated[int, Field(ge=1, le=100_000_000)] = 512
    """GPUs of the cluster that ``load`` refers to."""
    load: Annotated[float, Field(gt=0, le=1000)] = 0.9
    """GPU-seconds of work that arrive in a second, divided by ``cluster_gpus``."""
    gang_mix: tuple[tuple[GangSize, Weight], ...] = ((1, 0.70), (2, 0.10), (4, 0.15), (8, 0.05))
    """GPUs of a job and how common that is."""
    duration_median_s: Annotated[float, Field(gt=0, le=1e9)] = 600.0
    duration_sigma: Annotated[float, Field(ge=0, le=10)] = 1.8
    """Standard deviation of the natural logarithm of the duration."""
    duration_min_s: Annotated[float, Field(ge=1e-6, le=1e9)] = 10.0
    duration_max_s: Annotated[float, Field(ge=1e-6, le=1e9)] = 86_400.0
    whole_seconds: bool = False
    """Round submit times (down) and durations (to the nearest, at least 1) to seconds, as many logs do."""
    users: Annotated[int, Field(ge=1, le=1_000_000)] = 20
    user_activity: Literal["zipf", "uniform"] = "zipf"
    """``zipf``: the k-th user submits in proportion to 1/k."""
    groups: Annotated[int, Field(ge=0, le=1_000_000)] = 4
    """Users belong to groups in turn: user k to group k modulo ``groups``; 0 leaves the group empty."""
    priority_mix: tuple[tuple[float, Weight], ...] = ((1.0, 1.0),)
    overestimation: Annotated[float, Field(ge=1, le=1000)] | None = None
    """Mean of estimate / duration. A job's own factor is 1 + (overestimation - 1) times an exponential draw
    of mean 1, so nobody asks for too little. None: no estimates."""

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
        return self


def synthesize(config: SynthConfig) -> Workload:
    """Draw a workload.

    Arrivals are a Poisson process, seen over the time in which the drawn jobs amount to exactly
    the load that was asked for; so the realised load does not wander with a few very long jobs.
    """
    durations = _durations(config)
    gpus = _pick(
        config, _GANG_STREAM, [size for size, _ in config.gang_mix], [share for _, share in config.gang_mix]
    )
    submits = _submits(config, float(np.cumsum(gpus * durations)[-1]))
    user = _users(config)
    columns: dict[str, pl.Series | NDArray[np.float64]] = {
        "submit_s": submits,
        "duration_s": durations,
        "gpus": pl.Series(gpus, dtype=pl.Int32),
        "user": _named("u", config.users, user),
        "priority": _pick(
            config,
            _PRIORITY_STREAM,
            [value for value, _ in config.priority_mix],
            [w for _, w in config.priority_mix],
        ),
    }
    if config.groups:
        columns["group"] = _named("g", config.groups, user % config.groups)
    if config.overestimation is not None:
        columns["estimate_s"] = _estimates(config, durations, config.overestimation)
    step = Step(name="synthesize", settings=config.model_dump(mode="json"))
    return make_workload(pl.DataFrame(columns), name=config.name, source="synthetic", history=(step,))


def demo_workload() -> Workload:
    """The workload of ``gpuyard demo``: 2,000 jobs at load 0.95 for the ``demo`` cluster (64 GPUs)."""
    return synthesize(
        SynthConfig(name="demo", seed=1, jobs=2_000, cluster_gpus=64, load=0.95, users=12, overestimation=2.5)
    )


def _durations(config: SynthConfig) -> NDArray[np.float64]:
    from gpuyard import _core

    mu = math.log(config.duration_median_s)
    drawn = _core.lognormals(config.seed, _DURATION_STREAM, config.jobs, mu, config.duration_sigma)
    clipped = np.clip(drawn, config.duration_min_s, config.duration_max_s)
    return np.maximum(np.rint(clipped), 1.0) if config.whole_seconds else clipped


def _submits(config: SynthConfig, gpu_seconds: float) -> NDArray[np.float64]:
    """A Poisson process given its number of arrivals: partial sums of gaps, scaled to the span.

    Sums are running sums because their order of addition is fixed; numpy's other sums depend on the machine.
    """
    from gpuyard import _core

    span_s = gpu_seconds / (config.cluster_gpus * config.load)
    arrivals = np.cumsum(_core.exponentials(config.seed, _GAP_STREAM, config.jobs + 1))
    submits: NDArray[np.float64] = arrivals[:-1] / arrivals[-1] * span_s
    return np.floor(submits) if config.whole_seconds else submits


def _estimates(config: SynthConfig, durations: NDArray[np.float64], mean: float) -> NDArray[np.float64]:
    from gpuyard import _core

    excess = _core.exponentials(config.seed, _ESTIMATE_STREAM, config.jobs)
    estimates: NDArray[np.float64] = durations * (1.0 + (mean - 1.0) * excess)
    return np.ceil(estimates) if config.whole_seconds else estimates


def _users(config: SynthConfig) -> NDArray[np.int64]:
    weights = [1.0 / rank if config.user_activity == "zipf" else 1.0 for rank in range(1, config.users + 1)]
    return _choose(config, _USER_STREAM, weights)


def _pick(
    config: SynthConfig, stream: int, values: list[int] | list[float], weights: list[float]
) -> NDArray[np.float64]:
    return np.array(values, dtype=np.float64)[_choose(config, stream, weights)]


def _choose(config: SynthConfig, stream: int, weights: list[float]) -> NDArray[np.int64]:
    """For each job the index of a weight, drawn in proportion to the weights."""
    from gpuyard import _core

    cumulative = np.cumsum(np.array(weights, dtype=np.float64))
    draws = _core.uniforms(config.seed, stream, config.jobs) * cumulative[-1]
    # A product rounded up to the total would fall past the end, or onto trailing weights of 0.
    last = int(np.flatnonzero(np.array(weights))[-1])
    chosen: NDArray[np.int64] = np.minimum(np.searchsorted(cumulative, draws, side="right"), last)
    return chosen


def _named(prefix: str, count: int, index: NDArray[np.int64]) -> pl.Series:
    return pl.Series([f"{prefix}{i}" for i in range(count)]).gather(index)
