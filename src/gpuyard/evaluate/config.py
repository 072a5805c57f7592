"""How policies are compared. Defaults live here and nowhere else."""

from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from gpuyard.errors import InputError
from gpuyard.registry import suggest
from gpuyard.simulation.windows import Part

BEST = "best"
"""``against``: the fixed heuristic that is best on windows of another part."""


class EvaluationConfig(BaseModel):
    """On which windows, by which metric and against whom policies are compared."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    windows: Annotated[int, Field(ge=1, le=1_000_000)] = 40
    """How many; fewer if the part has fewer."""
    jobs_per_window: Annotated[int, Field(ge=1, le=100_000_000)] | None = 1024
    """None: the whole part is one window, of which no interval can be told."""
    part: Part = "test"
    """Of the workload, by time: its first 60 %, the next 20 %, the last 20 %, or all of it."""
    draws: bool = False
    """Windows are fresh draws of a generator, each with its own seed."""
    first_draw: Annotated[int, Field(ge=0, lt=2**62)] | None = None
    """Seed of the first draw; None: far from those of training and validation."""
    noise_draws: Annotated[int, Field(ge=1, le=1000)] = 1
    """Draws of the noise of noisy estimates; a window's figures are means over them."""
    metric: str = "mean_bounded_slowdown"
    """What policies are compared by, and heuristics chosen by."""
    against: str = BEST
    """The reference: a policy, or ``best``, the best fixed heuristic on validation windows."""
    validation_windows: Annotated[int, Field(ge=1, le=1_000_000)] = 24
    """Windows on which the best fixed heuristic is chosen."""
    all_heuristics: bool | None = None
    """Run every fixed heuristic on the compared windows too, to name the best in hindsight; None: if the
    reference is the best of them."""
    usual: bool = True
    """Run usual heuristics beside the given policies."""
    placement: str | None = None
    """Of every policy; None: that of the given ones."""
    any_placement: bool = False
    """Let placements differ, to see what they are worth; heuristics that are added take the first one's."""
    transfer: bool = False
    """Let learned policies run with other information or on another cluster than they were trained with."""
    keep_jobs: bool = True
    """Keep when each job ran, on as many windows as is reasonable."""
    threads: Annotated[int, Field(ge=1, le=4096)] | None = None
    """None: one a processor."""


def read_evaluation(settings: Mapping[str, Any]) -> EvaluationConfig:
    """Settings from keyword arguments.

    Raises:
        InputError: naming the setting that is wrong.
    """
    for name in settings:
        if name not in EvaluationConfig.model_fields:
            known = dict.fromkeys(EvaluationConfig.model_fields)
            raise InputError(f"unknown setting {name!r} of an evaluation{suggest(name, known)}")
    try:
        return EvaluationConfig.model_validate(dict(settings))
    except ValidationError as error:
        problem = error.errors()[0]
        place = ".".join(map(str, problem["loc"][:1]))
        raise InputError(f"{place} {problem['input']!r}: {problem['msg']}") from None
