"""How policies are compared. Defaults live here and nowhere else."""

from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from gpuyard.config import Part, Whole, refusal

BEST = "best"
"""``against``: the fixed heuristic that is best on windows of another part."""


def _none_if_zero(value: Any) -> Any:
    return None if value in (0, "0") and value is not False else value


class EvaluationConfig(BaseModel):
    """On which windows, by which metric and against whom policies are compared."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    windows: Annotated[Whole, Field(ge=1, le=1_000_000)] = 40
    """How many windows; fewer if the part has fewer."""
    jobs_per_window: Annotated[
        Annotated[Whole, Field(ge=1, le=100_000_000)] | None, BeforeValidator(_none_if_zero)
    ] = 1024
    """Jobs of a window; 0 (or None) makes the whole part one window, which gives no interval."""
    part: Part = "test"
    """Of the workload by time: 60 % train, then 20 % validation, 20 % test; or all of it."""
    draws: bool = False
    """Windows are fresh draws: of the built-in workload, or like the part of the jobs."""
    first_draw: Annotated[Whole, Field(ge=0, lt=2**62)] | None = None
    """Seed of the first draw. Not given: far from those of training and validation."""
    noise_draws: Annotated[Whole, Field(ge=1, le=1000)] = 1
    """With noisy estimates: draws of the noise; a window's figures are means over them."""
    metric: str = "mean_bounded_slowdown"
    """What policies are compared by, and heuristics chosen by (docs/contract/metrics.md)."""
    against: str = BEST
    """The reference: a policy, or ``best``, the best fixed heuristic on validation windows."""
    validation_windows: Annotated[Whole, Field(ge=1, le=1_000_000)] = 24
    """Windows on which the best fixed heuristic is chosen."""
    all_heuristics: bool | None = None
    """Run every fixed heuristic, to name the best in hindsight. Not given: if the reference is ``best``."""
    usual: bool = True
    """Run usual heuristics as well as the given policies."""
    placement: str | None = None
    """Where jobs go, the same for all. Not given: as the policies say."""
    any_placement: bool = False
    """Let placements differ, to see what they are worth; heuristics that are added take the first one's."""
    transfer: bool = False
    """Allow models trained with other estimates or on another cluster, and say so."""
    keep_jobs: bool = True
    """Keep when each job ran, on as many windows as is reasonable."""
    threads: Annotated[Whole, Field(ge=1, le=4096)] | None = None
    """Threads to simulate with. Not given: one per processor."""


def read_evaluation(settings: Mapping[str, Any]) -> EvaluationConfig:
    """Settings from keyword arguments.

    Raises:
        InputError: naming the setting that is wrong.
    """
    try:
        return EvaluationConfig.model_validate(dict(settings))
    except ValidationError as error:
        raise refusal(error, known=lambda _: EvaluationConfig.model_fields) from None
