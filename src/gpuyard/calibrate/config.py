"""How a calibration searches. Defaults live here and nowhere else."""

from typing import Annotated

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from gpuyard.config import Seed, Whole, numbers


class CalibrationConfig(BaseModel):
    """How long to search, and for what."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    minutes: Annotated[float, Field(gt=0, le=100_000)] = 5.0
    """Search for so long at most. The two replays of the report come after that."""
    trials: Annotated[Whole, Field(ge=1, le=1_000_000)] = 120
    """Replays of the first half at most."""
    node_factors: Annotated[
        tuple[Annotated[float, Field(ge=0.1, le=10)], ...], BeforeValidator(numbers), Field(max_length=100)
    ] = (0.8, 0.85, 0.9, 0.95, 1.05, 1.1, 1.15, 1.2)
    """Sizes of the cluster to try besides the given one, in multiples of its nodes. 1: only the given one."""
    search_seed: Seed = 0
    """Key of the random order in which weights are varied."""
