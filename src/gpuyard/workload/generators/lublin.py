"""The workload model of Lublin and Feitelson for parallel computers.

U. Lublin, D. G. Feitelson: The workload on parallel supercomputers: modeling the characteristics of rigid
jobs. Journal of Parallel and Distributed Computing 63(11), 2003, pp. 1105-1122. The parameters below are
those of the model's reference program (Parallel Workloads Archive, lublin99): all jobs together, and batch
and interactive jobs on their own.
"""

import math
from typing import Annotated, ClassVar, Literal, Self

import numpy as np
import polars as pl
from pydantic import BaseModel, ConfigDict, Field, model_validator

from gpuyard.registry import register
from gpuyard.workload.formats import Trace
from gpuyard.workload.generators.base import DAY_S, MONDAY_S, GeneratorConfig, Positive
from gpuyard.workload.generators.draws import Floats, each, interpolate, running_total, uniforms
from gpuyard.workload.generators.gamma import gamma_cdf, gammas, redrawn_up_to
from gpuyard.workload.schema import make_workload

_KIND_STREAM = 80
_STAGE_STREAM = 81
_LOG_SIZE_STREAM = 82
_MIXTURE_STREAM = 83
_RUN_STREAM = 84  # and 85
_GAP_STREAM = 86  # and 87

_MAX_LOG_RUN = 12.0
"""Natural logarithm of the longest run time: e^12 s, 45 hours."""
_MAX_LOG_GAP = 13.0
_BUCKETS = 48
"""Half hours of a day."""
_FIRST_BUCKET = 11
"""The cycle's gamma distribution starts at this bucket, counted from 1: at 5:00."""

Probability = Annotated[float, Field(ge=0, le=1)]


class LublinParameters(BaseModel):
    """Parameters of the model for one kind of jobs, under the names of the paper."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    serial_prob: Probability
    pow2_prob: Probability
    """Share of all jobs that are parallel with a power of two as size."""
    ulow: Annotated[float, Field(ge=0, le=30)]
    """log2 of the smallest parallel job."""
    umed_below_uhi: Annotated[float, Field(ge=0, le=30)]
    """umed, where the two stages of the size distribution meet, lies this far below uhi."""
    uhi_below_system: Annotated[float, Field(ge=0, le=30)] = 0.0
    """uhi, log2 of the largest job, lies this far below log2 of the machine's size."""
    uprob: Probability
    """Share of the first stage."""
    a1: Annotated[float, Field(ge=1)]
    b1: Positive
    a2: Annotated[float, Field(ge=1)]
    b2: Positive
    pa: float
    pb: float
    """Probability of the first gamma distribution: pa * size + pb."""
    aarr: Annotated[float, Field(ge=1)]
    barr: Positive
    arar: Positive
    """Natural logarithm of the gap between arrivals in rush hours: gamma(aarr * arar, barr)."""
    anum: Positive
    bnum: Positive
    """Arrivals over the day: gamma(anum, bnum) in half hours."""


ALL_JOBS = LublinParameters(
    serial_prob=0.244, pow2_prob=0.576, ulow=0.8, umed_below_uhi=2.5, uprob=0.86,
    a1=4.2, b1=0.94, a2=312, b2=0.03, pa=-0.0054, pb=0.78,
    aarr=10.2303, barr=0.4871, arar=1.0225, anum=8.1737, bnum=3.9631,
)  # fmt: skip
BATCH = LublinParameters(
    serial_prob=0.2927, pow2_prob=0.6686, ulow=1.2, umed_below_uhi=2.0, uprob=0.875,
    a1=6.57, b1=0.823, a2=639.1, b2=0.0156, pa=-0.003, pb=0.6986,
    aarr=6.0415, barr=0.8531, arar=1.0519, anum=6.1271, bnum=5.2740,
)  # fmt: skip
INTERACTIVE = LublinParameters(
    serial_prob=0.1541, pow2_prob=0.625, ulow=1.0, umed_below_uhi=2.5, uhi_below_system=1.5, uprob=0.705,
    a1=3.8351, b1=0.6605, a2=7.073, b2=0.6856, pa=-0.0118, pb=0.9156,
    aarr=6.5510, barr=0.6621, arar=0.9797, anum=8.9186, bnum=3.6680,
)  # fmt: skip
PARAMETERS = {"all": ALL_JOBS, "batch": BATCH, "interactive": INTERACTIVE}


@register("workload-generator", "lublin")
class LublinConfig(GeneratorConfig):
    """Settings of the model."""

    step: ClassVar[str] = "lublin"

    name: str = "lublin"
    processors: Annotated[int, Field(ge=2, le=1_000_000)] = 256
    """Size of the machine; processors are taken as GPUs."""
    kind: Literal["all", "batch", "interactive"] | LublinParameters = "all"
    """Which jobs, or parameters of one's own."""
    load: Annotated[float, Field(gt=0, le=1000)] | None = None
    """If given, the gaps of rush hours are scaled to about this load of the machine. None: as modelled."""

    @property
    def parameters(self) -> LublinParameters:
        """The parameters that hold."""
        return PARAMETERS[self.kind] if isinstance(self.kind, str) else self.kind

    @model_validator(mode="after")
    def _check_stages(self) -> Self:
        if _stages(self)[1] < self.parameters.ulow:
            raise ValueError("processors: the machine is too small for the sizes of this kind of jobs")
        return self

    def generate(self) -> Trace:
        """Draw the workload; time 0 is midnight of a Monday, though the model has no week."""
        sizes = draw_sizes(self)
        runs_s = draw_runs(self, sizes)
        frame = pl.DataFrame(
            {
                "submit_s": np.floor(draw_arrivals(self, running_total(sizes * runs_s))),
                "duration_s": runs_s,
                "gpus": pl.Series(sizes, dtype=pl.Int32),
            }
        )
        return Trace(
            make_workload(frame, name=self.name, epoch_s=MONDAY_S, source="lublin", history=self.history())
        )


def _stages(config: LublinConfig) -> tuple[float, float, float]:
    """ulow, umed and uhi of the two-stage uniform distribution of log2 of the size."""
    parameters = config.parameters
    uhi = math.log2(config.processors) - parameters.uhi_below_system
    return parameters.ulow, uhi - parameters.umed_below_uhi, uhi


def draw_sizes(config: LublinConfig) -> Floats:
    """Processors of each job: serial, a power of two, or any number."""
    parameters, (ulow, umed, uhi) = config.parameters, _stages(config)
    kind = uniforms(config.seed, _KIND_STREAM, config.jobs)
    in_first = uniforms(config.seed, _STAGE_STREAM, config.jobs) < parameters.uprob
    u = uniforms(config.seed, _LOG_SIZE_STREAM, config.jobs)
    log_size = np.where(in_first, ulow + u * (umed - ulow), umed + u * (uhi - umed))
    is_power = kind < parameters.serial_prob + parameters.pow2_prob
    log_size = np.where(is_power, np.floor(log_size + 0.5), log_size)
    sizes = np.floor(each(lambda x: math.pow(2.0, x), log_size) + 0.5)
    return np.where(kind < parameters.serial_prob, 1.0, np.minimum(sizes, config.processors))


def draw_runs(config: LublinConfig, sizes: Floats) -> Floats:
    """Run times, whole seconds: exp of a hyper-gamma draw whose mixture depends on the size."""
    parameters = config.parameters
    first_prob = np.clip(parameters.pa * sizes + parameters.pb, 0.0, 1.0)

    def hyper_gamma(attempt: int) -> Floats:
        is_first = uniforms(config.seed, _MIXTURE_STREAM + attempt, config.jobs) < first_prob
        shape = np.where(is_first, parameters.a1, parameters.a2)
        scale = np.where(is_first, parameters.b1, parameters.b2)
        return gammas(config.seed, _RUN_STREAM + attempt, shape) * scale

    return np.floor(each(math.exp, redrawn_up_to(_MAX_LOG_RUN, hyper_gamma)))


def draw_arrivals(config: LublinConfig, work_s: float) -> Floats:
    """Submit times: gaps of rush hours, on a clock that runs as fast as arrivals come at that time of day.

    Args:
        config: Settings.
        work_s: Processor-seconds of all jobs, which a given load refers to.
    """
    parameters = config.parameters
    shape = np.full(config.jobs, parameters.aarr * parameters.arar)

    def log_gaps(attempt: int) -> Floats:
        return gammas(config.seed, _GAP_STREAM + attempt, shape) * parameters.barr

    logs = redrawn_up_to(_MAX_LOG_GAP, log_gaps)
    clock_s = np.cumsum(each(math.exp, logs))
    if config.load is not None:
        clock_s *= work_s / (config.processors * config.load) / clock_s[-1]
    weights = daily_cycle(parameters.anum, parameters.bnum)
    passed_s = np.concatenate([[0.0], np.cumsum(weights)]) * (DAY_S / _BUCKETS)
    days = np.floor(clock_s / passed_s[-1])
    half_hours_s = np.arange(_BUCKETS + 1, dtype=np.float64) * (DAY_S / _BUCKETS)
    submits: Floats = days * DAY_S + interpolate(clock_s - days * passed_s[-1], passed_s, half_hours_s)
    return submits


def daily_cycle(anum: float, bnum: float) -> Floats:
    """Relative rate of arrivals in each half hour from midnight, of mean 1."""
    weights = np.empty(_BUCKETS)
    for i in range(_FIRST_BUCKET, _FIRST_BUCKET + _BUCKETS):
        share = gamma_cdf(i + 0.5, anum, bnum) - gamma_cdf(i - 0.5, anum, bnum)
        weights[(i - 1) % _BUCKETS] = share
    cycle: Floats = weights / (running_total(weights) / _BUCKETS)
    return cycle
