"""What a synthetic workload looks like. ``synthetic`` draws it."""

from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, Self

from pydantic import BeforeValidator, Field, model_validator

from gpuyard.config import Whole
from gpuyard.errors import setting
from gpuyard.registry import register
from gpuyard.workload.generators.base import GeneratorConfig, Weight
from gpuyard.workload.generators.shapes import Arrivals, Durations, Lognormal, Poisson

if TYPE_CHECKING:
    from gpuyard.workload.formats import Trace


def _mix(value: Any) -> Any:
    """``VALUE:WEIGHT`` pairs joined by commas, alone or as the one entry of a list; all else as it is."""
    alone = value[0] if isinstance(value, list) and len(value) == 1 else value
    if not isinstance(alone, str):
        return value
    pairs = [part.split(":") for part in alone.split(",")]
    if any(len(pair) != 2 for pair in pairs):
        raise ValueError("expected value:weight pairs joined by commas, such as 1:0.7,8:0.3")
    return pairs


GangSize = Annotated[int, Field(ge=1, le=1_000_000)]
Correlation = Annotated[float, Field(ge=-1, le=1)]
Share = Annotated[float, Field(ge=0, le=1)]


@register("workload-generator", "synthesize")
class SynthConfig(GeneratorConfig):
    """What a synthetic workload looks like. Mixes are lists of (value, weight), of any total weight."""

    step: ClassVar[str] = "synthesize"

    cluster_gpus: Annotated[Whole, Field(ge=1, le=100_000_000)] = 512
    """GPUs of the cluster that ``load`` refers to."""
    load: Annotated[float, Field(gt=0, le=1000)] = 0.9
    """Work that arrives, as a share of what the cluster can do."""
    arrivals: Arrivals = Poisson()
    """``all-at-once``, ``uniform``, ``poisson``, ``bursty``, ``diurnal`` or ``markov``, with settings such as
    bursty:centres=4,spread=0.1."""
    gang_mix: Annotated[tuple[tuple[GangSize, Weight], ...], BeforeValidator(_mix)] = (
        (1, 0.70),
        (2, 0.10),
        (4, 0.15),
        (8, 0.05),
    )
    """GPUs of jobs and how common they are: GPUs:weight, joined by commas."""
    durations: Durations = Lognormal()
    """``lognormal``, ``uniform``, ``pareto`` or ``heavy-tail``, with settings such as pareto:alpha=1.5."""
    duration_median_s: Annotated[float, Field(gt=0, le=1e9)] = 600.0
    """Median duration, s."""
    duration_sigma: Annotated[float, Field(ge=0, le=10)] = 1.8
    """Standard deviation of the natural logarithm of the duration."""
    duration_min_s: Annotated[float, Field(ge=1e-6, le=1e9)] = 10.0
    """Shortest duration, s."""
    duration_max_s: Annotated[float, Field(ge=1e-6, le=1e9)] = 86_400.0
    """Longest duration, s."""
    duration_with_gpus: Correlation = 0.0
    """Correlation of the normal scores of duration and gang size: above 0, large gangs run longer."""
    duration_with_priority: Correlation = 0.0
    """The same for duration and priority: below 0, short jobs are more important."""
    whole_seconds: bool = False
    """Round submit times (down) and durations (to the nearest, at least 1) to seconds, as many logs do."""
    users: Annotated[Whole, Field(ge=1, le=1_000_000)] = 20
    """Number of users."""
    user_activity: Literal["zipf", "uniform"] = "zipf"
    """How unevenly users submit; ``zipf``: the k-th user in proportion to 1/k."""
    user_habits: Annotated[float, Field(ge=0, lt=1)] = 0.0
    """Share of the variance of durations and gang sizes (of their scores) that lies between users."""
    groups: Annotated[Whole, Field(ge=0, le=1_000_000)] = 4
    """Groups that users belong to in turn; 0 leaves the group empty."""
    priority_mix: Annotated[tuple[tuple[float, Weight], ...], BeforeValidator(_mix)] = ((1.0, 1.0),)
    """Priorities of jobs and how common they are: priority:weight, joined by commas."""
    overestimation: Annotated[float, Field(ge=1, le=1000)] | None = None
    """Mean of estimate / duration; an exponential draw of its own for each job. Not given: no estimates."""
    underestimated_share: Share = 0.0
    """Share of jobs whose estimate is too short, 20 % to 100 % of the duration."""
    round_estimates: bool = False
    """Round estimates as people do, to 5 min, 1 h, 1 d and the like: up, or down if too short."""

    @model_validator(mode="after")
    def _check_mixes_and_bounds(self) -> Self:
        for name, mix in (("gang_mix", self.gang_mix), ("priority_mix", self.priority_mix)):
            if not sum(weight for _, weight in mix) > 0:
                raise ValueError(f"{setting(name)} needs at least one value with a weight above 0")
        largest = max(size for size, weight in self.gang_mix if weight > 0)
        if largest > self.cluster_gpus:
            raise ValueError(
                f"{setting('gang_mix')} has jobs of {largest} GPUs, more than the {self.cluster_gpus} of the "
                f"cluster ({setting('cluster_gpus')})"
            )
        if self.duration_min_s > self.duration_max_s:
            raise ValueError(f"{setting('duration_min_s')} must not exceed {setting('duration_max_s')}")
        if self.overestimation is None and (self.underestimated_share or self.round_estimates):
            raise ValueError(
                f"{setting('underestimated_share')} and {setting('round_estimates')} need "
                f"{setting('overestimation')}, such as 2.5"
            )
        return self

    @property
    def is_steady(self) -> bool:
        """Not where all jobs come at once, or in bursts whose number is set."""
        return self.arrivals.kind not in ("all-at-once", "bursty")

    def generate(self) -> "Trace":
        """Draw the workload."""
        from gpuyard.workload.formats import Trace
        from gpuyard.workload.synthetic import synthesize

        return Trace(synthesize(self))
