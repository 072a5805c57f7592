"""The bursty workload of a small shared machine: short jobs are narrow and important, long ones wide."""

import math
from typing import Annotated, ClassVar

import numpy as np
import polars as pl
from pydantic import Field

from gpuyard.registry import register
from gpuyard.workload.formats import Trace
from gpuyard.workload.generators.arrivals import burst_times
from gpuyard.workload.generators.base import GeneratorConfig, Positive
from gpuyard.workload.generators.draws import Floats, each, integers, uniforms
from gpuyard.workload.generators.durations import log_uniform
from gpuyard.workload.generators.shapes import Bursty
from gpuyard.workload.schema import make_workload

_IS_LONG_STREAM = 64
_DURATION_STREAM = 65
_GPU_STREAM = 66
_PRIORITY_STREAM = 67

_SHORT_SHARE = 0.85


@register("workload-generator", "bursty")
class BurstyConfig(GeneratorConfig):
    """Settings; the defaults are the published workload."""

    step: ClassVar[str] = "bursty"

    name: str = "bursty-8gpu"
    jobs: Annotated[int, Field(ge=1, le=100_000_000)] = 400
    max_gpus: Annotated[int, Field(ge=1, le=1_000_000)] = 8
    max_priority: Annotated[int, Field(ge=1, le=1_000_000)] = 10
    max_duration_s: Positive = 10_000.0
    """Longest duration D, and the span of arrivals, seconds."""
    bursts: Bursty = Bursty()
    """Six centres, 80 % of the jobs, a standard deviation of 3 % of the span."""

    @property
    def is_steady(self) -> bool:
        """More jobs are larger bursts, not more of them."""
        return False

    def generate(self) -> Trace:
        """Draw the workload. ``epoch_s`` keeps the time of the first arrival on the clock of the formulas."""
        durations = draw_bursty_durations(self)
        d = durations / self.max_duration_s
        columns = {
            "submit_s": burst_times(self.bursts, self.seed, self.jobs, self.max_duration_s),
            "duration_s": durations,
            "gpus": gpus_of(d, self._integers(_GPU_STREAM, self.max_gpus), self.max_gpus),
            "priority": priority_of(
                d, self._integers(_PRIORITY_STREAM, self.max_priority), self.max_priority
            ),
        }
        frame = pl.DataFrame(columns).cast({"gpus": pl.Int32}).sort("submit_s", maintain_order=True)
        return Trace(make_workload(frame, name=self.name, source="bursty", history=self.history()))

    def _integers(self, stream: int, high: int) -> Floats:
        return integers(self.seed, stream, self.jobs, 1, high).astype(np.float64)


def draw_bursty_durations(config: BurstyConfig) -> Floats:
    """85 % uniform from 1 % to 8 % of the longest, 15 % log-uniform from 8 % to 100 % of it, seconds."""
    u = uniforms(config.seed, _DURATION_STREAM, config.jobs)
    is_long = uniforms(config.seed, _IS_LONG_STREAM, config.jobs) >= _SHORT_SHARE
    share = np.where(is_long, log_uniform(u, 0.08, 1.0), 0.01 + 0.07 * u)
    durations: Floats = share * config.max_duration_s
    return durations


def gpus_of(d: Floats, chance: Floats, most: int) -> Floats:
    """round(0.3 chance + 0.7 (1 + floor(d^0.6 (most-1)))) within 1..most, half to even.

    Args:
        d: Durations as a share of the longest.
        chance: Whole numbers drawn from 1..most.
        most: Largest gang.
    """
    wide = 1.0 + np.floor(each(lambda x: math.pow(x, 0.6), d) * (most - 1))
    return np.clip(np.rint(0.3 * chance + 0.7 * wide), 1, most)


def priority_of(d: Floats, chance: Floats, most: int) -> Floats:
    """round(0.4 chance + 0.6 (1 + floor((1-d)^0.8 (most-1)))) within 1..most, half to even."""
    urgent = 1.0 + np.floor(each(lambda x: math.pow(x, 0.8), 1.0 - np.minimum(d, 1.0)) * (most - 1))
    return np.clip(np.rint(0.4 * chance + 0.6 * urgent), 1, most)
