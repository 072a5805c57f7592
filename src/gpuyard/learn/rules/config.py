"""Settings of the search for a rule (docs/algorithms/search.md)."""

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from gpuyard.config import AUTO, GuardConfig, Seed
from gpuyard.policies.grammar import LARGEST_EXPONENT, parse_policy

SearchMetric = Literal["mean_bounded_slowdown", "mean_slowdown", "mean_wait_s", "mean_jct_s"]
Share = Annotated[float, Field(ge=0, le=1000)]
Exponent = Annotated[float, Field(gt=0, le=LARGEST_EXPONENT)]
Positive = Annotated[float, Field(gt=0, le=1e9)]
Windows = Annotated[int, Field(ge=1, le=100_000)]


class SearchConfig(GuardConfig):
    """How to search for a rule: what is a good one, on which windows, and how long to look."""

    metric: SearchMetric = "mean_bounded_slowdown"
    """What shall be small: the mean over windows of its logarithm."""
    current: Annotated[str, Field(min_length=1)] = AUTO
    """What runs today, which limits on waits are counted from: a policy, or auto: what the log recorded,
    where it has starts, else fifo+easy."""
    max_jct_increase: Share | None = 0.02
    """Most that the mean completion time may exceed that of the heuristic where it is least, as a share of
    it; None: no limit."""
    max_p99_wait_increase: Share | None = None
    """The same for the 99th percentile of waits."""
    limits_from: Annotated[str, Field(min_length=1)] | None = None
    """Policy that limits on windows are counted from; None: the fixed heuristic with the least mean
    completion time on the training windows."""
    grid_on: Literal["train", "both"] = "train"
    """Windows that the grid is tried on. ``both``: those of training and of validation, and limits must be
    kept on each, which is safer where one of them has a stretch that hides what the other costs."""
    penalty: Annotated[float, Field(gt=0, le=1e6)] = 10.0
    """Charge for each unit above a limit, in logarithms of the metric."""

    train_windows: Windows = 64
    """Evenly spaced over the training part of the workload (its first 60 %)."""
    validation_windows: Windows = 24
    """Evenly spaced over the next 20 %."""
    jobs_per_window: Annotated[int, Field(ge=2, le=1_000_000)] = 1024
    """Jobs of each window."""
    cold: bool = False
    """Begin windows with an empty cluster, instead of a busy one."""

    exponents: Annotated[tuple[Exponent, ...], Field(min_length=1)] = (0.25, 0.5, 0.75, 1.0, 1.5, 2.0)
    """Of the order ``power:A``."""
    express_t0_s: tuple[Positive, ...] = (60.0, 300.0, 1200.0, 3600.0, 10800.0)
    """T0 of the express lane, seconds; to have none is always tried too."""
    express_k: tuple[Positive, ...] = (0.01, 0.02, 0.05, 0.1, 0.2)
    """K of the express lane."""
    backfills: Annotated[tuple[Literal["strict", "greedy", "easy"], ...], Field(min_length=1)] = (
        "greedy",
        "easy",
    )
    """Ways of backfilling that are tried."""
    placement: Annotated[str, Field(min_length=1)] = "consolidate"
    """Of everything that is tried."""
    first_windows: Windows = 4
    """Windows on which everything is tried; each further round takes the best part and 3 times as many."""
    kept_share: Annotated[float, Field(gt=0, le=1)] = 0.25
    """The part that enters the next round."""
    guarded: Annotated[int, Field(ge=1, le=1000)] = 3
    """How many of the best policies of the grid are held against the limits on waits, with ageing bounds."""
    also_guarded: tuple[Annotated[str, Field(min_length=1)], ...] = (
        "wfp3+easy",
        "unicep+easy",
        "wspt+easy",
        "fifo+easy-sjf",
    )
    """Policies that are held against the limits besides, with ageing bounds: in the first two a job's claim
    grows with its wait."""
    ages: tuple[Annotated[float, Field(gt=0, le=100)], ...] = (0.1, 0.2, 0.3, 0.45, 0.6, 0.8)
    """Ageing bounds that are tried, in longest waits of today: jobs that have waited so long go first."""
    least_age: Annotated[float, Field(ge=0, le=100)] = 0.5
    """The shortest of them, in 99th-percentile waits of today: a bound far below the waits of a jam makes
    everyone old, and what is left is first come, first served. 0: as short as ``ages`` says."""
    guard_share: Annotated[float, Field(gt=0, le=1)] = 0.6
    """Share of the limits on waits that may be used up on the jobs searched on."""
    guard_windows: Windows = 24
    """Training windows on which policies with ageing bounds are compared."""
    refinements: Annotated[int, Field(ge=0, le=100)] = 4
    """Rounds in which the numbers of the best rule are moved a little, one at a time."""

    generations: Annotated[int, Field(ge=0, le=1_000_000)] = 40
    """Of CMA-ES; 0: the grid alone."""
    seconds: Annotated[float, Field(gt=0)] | None = None
    """Stop CMA-ES after this time even if generations are left. Then results depend on the machine."""
    population: Annotated[int, Field(ge=4, le=10_000)] = 16
    """Rules of a generation."""
    sigma: Annotated[float, Field(gt=0, le=10)] = 0.12
    """First step size; 1 is a large change of any one weight."""
    windows_per_generation: Windows = 20
    """Drawn from the training windows, the same for the whole population."""
    check_every: Annotated[int, Field(ge=1)] = 5
    """Generations between looks at all training and validation windows."""
    rows: Annotated[int, Field(ge=1, le=65_536)] = 64
    """Waiting jobs that the rule chooses among."""
    least_gain: Annotated[float, Field(ge=0, le=10)] = 0.01
    """By how much a more complicated policy must be better on the validation windows to be chosen, in
    logarithms of the metric: 0.01 is 1 %."""

    seed: Seed = 0
    """Of windows drawn and of CMA-ES; a run's ``training.seed`` sets it."""
    threads: Annotated[int, Field(ge=1, le=1024)] | None = None
    """None: one per processor. Results do not depend on it."""

    @model_validator(mode="after")
    def _check_consistent(self) -> Self:
        if bool(self.express_t0_s) != bool(self.express_k):
            raise ValueError("express_t0_s and express_k go together; give values for both, or none for both")
        parse_policy(f"fifo/{self.placement}")
        for name in (*self.also_guarded, *([] if self.limits_from is None else [self.limits_from])):
            parse_policy(name)
        for name in ("exponents", "express_t0_s", "express_k", "backfills", "ages"):
            values = getattr(self, name)
            if len(set(values)) < len(values):
                raise ValueError(f"{name} has a value twice: {', '.join(map(str, values))}")
        return self
