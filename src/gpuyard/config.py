"""Settings of a simulation. Defaults live here and nowhere else."""

from collections.abc import Mapping
from itertools import pairwise
from typing import Annotated, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

Estimates = Literal["exact", "requested", "noisy", "history", "none"]

_LONGEST_S = 2**32
Seconds = Annotated[float, Field(ge=0, le=_LONGEST_S)]
PositiveSeconds = Annotated[float, Field(ge=1e-6, le=_LONGEST_S)]
Weight = Annotated[float, Field(ge=0, le=1e12)]
Share = Annotated[float, Field(gt=0, le=1e12)]


class SimulationConfig(BaseModel):
    """What holds for a whole simulation, whatever the policy (docs/contract/simulator.md)."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    estimates: Estimates = "exact"
    """What policies are told of run times: the truth, the logged request, the truth with noise, a prediction
    from finished jobs or nothing."""
    noise_sigma: Annotated[float, Field(ge=0, le=10)] = 1.0
    """Standard deviation of the log of the error of ``noisy`` estimates."""
    seed: Annotated[int, Field(ge=0, lt=2**63)] = 0
    """Key of every random draw: noisy estimates, random order, random placement, failures."""
    kill_at_estimate: bool = False
    """End a job as ``timeout`` when it has run as long as its estimate."""
    locality_penalty: Annotated[float, Field(ge=0, le=1000)] = 0.0
    """Relative slow-down of a gang for each node beyond the fewest, in units of the fewest."""
    oversize: Literal["error", "drop"] = "error"
    """What to do with a job that can never run on the cluster: refuse, or leave it out and report it."""

    usage_half_life_s: Annotated[float, Field(gt=0)] = 7 * 24 * 3600.0
    """Half-life of a user's or group's usage in ``fair-share``, in seconds."""
    user_shares: Mapping[str, Share] = {}
    """Weights of users in ``fair-share`` and ``multifactor``; 1 where not given."""
    group_shares: Mapping[str, Share] = {}
    """Weights of groups in ``group-fair-share``; 1 where not given."""
    age_weight: Weight = 1000.0
    """Weight of a job's age in ``multifactor``."""
    size_weight: Weight = 100.0
    """Weight of a job's share of the cluster in ``multifactor``: large jobs first."""
    fair_share_weight: Weight = 1000.0
    """Weight of its user's fair-share factor in ``multifactor``."""
    priority_weight: Weight = 1000.0
    """Weight of its priority in ``multifactor``."""
    max_age_s: PositiveSeconds = 7 * 24 * 3600.0
    """Wait at which the age factor of ``multifactor`` is 1."""
    group_quotas: Mapping[str, Annotated[int, Field(ge=0)]] = {}
    """GPUs of each group; the other groups share what is left of the cluster."""
    quota_borrowing: bool = True
    """Let groups use what others leave idle."""

    reschedule_s: PositiveSeconds = 60.0
    """Policies that preempt also decide at every multiple of this."""
    min_run_s: Seconds = 300.0
    """A run is not stopped before it is this long."""
    checkpoint_s: Seconds | None = None
    """How long a stopped job keeps its GPUs; None: 3.5, 15 or 30 s for up to 8, up to 32 or more GPUs."""
    restore_s: Seconds | None = None
    """How long a job that goes on takes before it makes progress; None: 3.5, 15 or 30 s by gang size."""
    defragment: bool = False
    """Move a running job where that makes room for one that does not fit."""
    tiresias_levels_gpu_s: tuple[Annotated[float, Field(gt=0)], ...] = (3600.0, 36000.0)
    """Attained GPU-seconds at which a job sinks to the next level of ``tiresias``."""
    starvation_s: PositiveSeconds = 8 * 3600.0
    """``tiresias`` promotes a job that has been in the queue this long."""

    node_mtbf_s: PositiveSeconds | None = None
    """Mean time between failures of a node; None: nodes do not fail."""
    node_mttr_s: PositiveSeconds | None = None
    """Mean time to repair; one hour if nodes fail and it is not given."""
    checkpoint_every_s: PositiveSeconds | None = None
    """A job whose node fails goes on from the last multiple of this; None: from its last stop."""

    sleep_after_s: Seconds | None = None
    """An idle node falls asleep after this long; None: never."""
    wake_s: Seconds | None = None
    """How long a node takes to wake; one minute if nodes sleep and it is not given."""
    power_cap_w: Annotated[float, Field(gt=0, le=1e12)] | None = None
    """The cluster never draws more than this; None: no cap."""

    @model_validator(mode="after")
    def _check_consistent(self) -> Self:
        for name, value, needs, needed in (
            ("node_mttr_s", self.node_mttr_s, "node_mtbf_s", self.node_mtbf_s),
            ("checkpoint_every_s", self.checkpoint_every_s, "node_mtbf_s", self.node_mtbf_s),
            ("wake_s", self.wake_s, "sleep_after_s", self.sleep_after_s),
        ):
            if value is not None and needed is None:
                raise ValueError(f"{name} has no effect without {needs}; give both or neither")
        levels = self.tiresias_levels_gpu_s
        if any(low >= high for low, high in pairwise(levels)):
            raise ValueError(
                f"tiresias_levels_gpu_s must ascend, but is {', '.join(f'{x:g}' for x in levels)}"
            )
        return self

    @property
    def repair_s(self) -> float:
        """Mean time to repair."""
        return 3600.0 if self.node_mttr_s is None else self.node_mttr_s

    @property
    def waking_s(self) -> float:
        """How long a node takes to wake."""
        return 60.0 if self.wake_s is None else self.wake_s
