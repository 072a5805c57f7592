"""How policies are compared. Defaults live here and nowhere else."""

from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import BeforeValidator, Field, ValidationError

from gpuyard.config import AUTO, GuardConfig, Part, Start, Whole, refusal
from gpuyard.errors import InputError, setting

BEST = "best"
"""``current`` of episodes: the fixed heuristic that is best on validation episodes."""


def _none_if_zero(value: Any) -> Any:
    return None if value in (0, "0") and value is not False else value


class EvaluationConfig(GuardConfig):
    """On which windows, by which metric and against whom policies are compared."""

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
    current: str = AUTO
    """What runs today, and what differences are against: a policy, or ``auto``: what the log recorded, where
    it has starts, else fifo+easy."""
    all_heuristics: bool = False
    """Also run every fixed heuristic: shows the one that was best on earlier windows, the one that is best in
    hindsight, and those that preempt."""
    choosing_windows: Annotated[Whole, Field(ge=1, le=1_000_000)] = 24
    """Windows of training and validation on which the best fixed heuristic is chosen."""
    window_start: Start = "busy"
    """How windows begin: busy, after jobs that ran before under the same policy; recorded, with what the log
    says was running and waiting; empty, and then they end by draining."""
    cold: bool = False
    """Short for an empty start, as in many papers. Waits are then far shorter than on a running cluster."""
    whole: bool = True
    """Also replay the whole part in one go with every policy that is shown."""
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

    @property
    def begins(self) -> Start:
        """How windows begin, whichever of both settings says it.

        Raises:
            InputError: if both are given and contradict each other.
        """
        if self.cold and self.window_start != "empty" and "window_start" in self.model_fields_set:
            raise InputError(
                f"{setting('cold')} begins windows with an empty cluster, which "
                f"{setting('window_start', self.window_start)} does not; use one of them"
            )
        return "empty" if self.cold else self.window_start


def read_evaluation(settings: Mapping[str, Any]) -> EvaluationConfig:
    """Settings from keyword arguments.

    Raises:
        InputError: naming the setting that is wrong.
    """
    try:
        return EvaluationConfig.model_validate(dict(settings))
    except ValidationError as error:
        raise refusal(error, known=lambda _: EvaluationConfig.model_fields) from None
