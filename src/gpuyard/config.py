"""Settings of a simulation. Defaults live here and nowhere else."""

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

Estimates = Literal["exact", "requested", "noisy", "none"]


class SimulationConfig(BaseModel):
    """What holds for a whole simulation, whatever the policy (docs/simulator.md)."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    estimates: Estimates = "exact"
    """What policies are told of run times: the truth, the logged request, the truth with noise or nothing."""
    noise_sigma: Annotated[float, Field(ge=0, le=10)] = 1.0
    """Standard deviation of the log of the error of ``noisy`` estimates."""
    seed: Annotated[int, Field(ge=0, lt=2**63)] = 0
    """Key of every random draw: noisy estimates, random order, random placement."""
    kill_at_estimate: bool = False
    """End a job as ``timeout`` when it has run as long as its estimate."""
    locality_penalty: Annotated[float, Field(ge=0, le=1000)] = 0.0
    """Relative slow-down of a gang for each node beyond the fewest, in units of the fewest."""
    usage_half_life_s: Annotated[float, Field(gt=0)] = 7 * 24 * 3600.0
    """Half-life of a user's usage in ``fair-share``, in seconds."""
    oversize: Literal["error", "drop"] = "error"
    """What to do with a job that can never run on the cluster: refuse, or leave it out and report it."""
