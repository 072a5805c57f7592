"""Settings of an environment (docs/contract/mdp.md). Defaults live here and nowhere else."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any, Literal, Self

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, model_validator

from gpuyard import _core
from gpuyard.config import Estimates, PositiveSeconds, Seed, SimulationConfig, refusal, whole_number
from gpuyard.errors import InputError
from gpuyard.registry import suggest

if TYPE_CHECKING:
    from gpuyard.workload import Workload

Kind = Literal["select-job", "select-job-and-pool", "select-host", "rank-hosts", "accept-or-skip"]
HOST_KINDS = ("select-host", "rank-hosts")

Split = Literal["all", "train", "validation", "test"]
Count = Annotated[int, Field(ge=1, le=100_000_000)]
AUTO: Literal["auto"] = "auto"
MOST_AROUND = 100_000_000


def _checked_around(value: Any) -> Any:
    """One message for whatever is neither a number of jobs nor ``auto``."""
    value = whole_number(value)
    if isinstance(value, str) and value.strip().isdecimal():
        value = int(value)
    if value == AUTO or (
        isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= MOST_AROUND
    ):
        return value
    raise ValueError(f"expected a whole number from 0 to {MOST_AROUND:,}, or auto")


Around = Annotated[int | Literal["auto"], BeforeValidator(_checked_around)]
"""Jobs before or after a window; ``auto``: as many as keep the cluster busy, where that can be found."""

BASELINE_METRICS = (
    "mean_bounded_slowdown",
    "mean_wait_s",
    "mean_jct_s",
    "mean_slowdown",
    "gpu_utilization",
)


class EnvConfig(BaseModel):
    """What an environment is like, apart from its jobs and its cluster."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    base_policy: str | None = None
    """Orders the window, places jobs and is shown in the observation; None: wspt+easy, fifo+easy without
    estimates, fifo+greedy where hosts are chosen."""
    window: Annotated[int, Field(ge=1, le=65_536)] | None = None
    """Rows of waiting jobs; None: 64, or 1 where hosts are chosen."""
    step_mode: Literal["instant", "event", "tick", "blocking"] = "instant"
    tick_s: PositiveSeconds = 60.0
    """How far the clock moves in ``tick`` mode."""
    blocking_backfill: bool | Literal["before-shadow"] = False
    """In ``blocking`` mode, start what does not delay the job that is waited for: all of it as ``easy`` does,
    or only what ends before that job can start, as some published simulators do."""

    tokens: Literal["nodes", "classes"] = "nodes"
    lookahead: Literal["off", "per_gpu", "sorted", "cdf"] = "sorted"
    lookahead_horizon_s: PositiveSeconds = 6 * 3600.0
    flatten: bool = False
    """Observations as one vector."""
    job_features: tuple[str, ...] | None = None
    """Columns of ``jobs``, by name; None: all."""
    node_features: tuple[str, ...] | None = None
    global_features: tuple[str, ...] | None = None

    rewards: Mapping[str, float] = {"slowdown": 1.0}
    """Weights of the terms of the reward."""
    per_job: bool = True
    """Divide jct, wait, slowdown and completions by the number of jobs of the episode."""
    baseline: str = "fifo+easy"
    """The policy that ``versus_baseline`` compares with."""
    baseline_metric: str = "mean_bounded_slowdown"
    invalid: Literal["raise", "noop"] = "raise"
    """What an action does that cannot be executed."""
    invalid_penalty: Annotated[float, Field(ge=0, le=1e9)] = 1.0

    split: Split = "all"
    """The part of the workload, by time, that episodes are drawn from."""
    jobs_per_episode: Count | None = None
    """None: 256, or all if there are fewer; with a generator, as many as it draws."""
    warmup_jobs: Around = AUTO
    """Jobs before the window that fill the cluster under the base policy; auto: so many that it no longer
    matters how the cluster began, 0 for draws of a generator and in published setups."""
    cooldown_jobs: Around = AUTO
    """Jobs after the window that keep the cluster busy until the window's own jobs have finished; auto: as
    many as make a difference, else 0 as above."""
    generator_seeds: Annotated[tuple[Seed, ...], Field(min_length=1)] | None = None
    """Draws to choose from; None: a new one for every episode."""
    horizon_factor: Annotated[float, Field(gt=0, le=1e6)] | None = None
    """Truncate at the last arrival + this x work / GPUs; None: never."""
    max_steps: Count | None = None

    estimates: Estimates | None = None
    """Short for that setting of ``simulation``."""
    simulation: SimulationConfig = SimulationConfig()

    @model_validator(mode="after")
    def _check_names(self) -> Self:
        for names, known in (
            (self.job_features, _core.JOB_COLUMNS + _core.ASKED_JOB_COLUMNS),
            (self.node_features, _core.NODE_COLUMNS),
            (self.global_features, _core.GLOBAL_COLUMNS + _core.ASKED_GLOBAL_COLUMNS),
        ):
            _check_all("feature", names or (), [column[0] for column in known])
            if names is not None and len(set(names)) < len(names):
                raise ValueError(f"a feature is named twice in {', '.join(names)}")
        _check_all("reward term", tuple(self.rewards), _core.REWARD_TERMS)
        if not any(self.rewards.values()):
            raise ValueError(f"rewards has no term with a weight; known: {', '.join(_core.REWARD_TERMS)}")
        _check_all("baseline_metric", (self.baseline_metric,), BASELINE_METRICS)
        return self

    @model_validator(mode="after")
    def _check_consistent(self) -> Self:
        horizon_terms = [
            name for name in ("backlog", "finish_early") if self.rewards.get(name) and not self.horizon_factor
        ]
        if horizon_terms:
            raise ValueError(
                f"reward term {horizon_terms[0]} needs a horizon; set horizon_factor, such as 1.3"
            )
        if self.blocking_backfill and self.step_mode != "blocking":
            raise ValueError('blocking_backfill has no effect without step_mode="blocking"')
        if any(self.around) and self.rewards.get("versus_baseline"):
            what = "follow a warm-up" if self.around[0] else "be followed by a cool-down"
            raise ValueError(f"versus_baseline compares whole runs and cannot {what}; leave one out")
        if self.simulated.estimates == "history" and self.rewards.get("versus_baseline"):
            raise ValueError(
                "versus_baseline has no predictions of its own and cannot be combined with estimates history"
            )
        if self.estimates is not None and self.simulation.estimates not in ("auto", "exact", self.estimates):
            raise ValueError(
                f"estimates is {self.estimates}, but simulation.estimates {self.simulation.estimates}"
            )
        return self

    @property
    def simulated(self) -> SimulationConfig:
        """The settings of the simulation."""
        if self.estimates is None:
            return self.simulation
        return self.simulation.model_copy(update={"estimates": self.estimates})

    def informed(self, workload: "Workload") -> "EnvConfig":
        """The same for these jobs: what ``estimates = auto`` means with them is filled in.

        Raises:
            InputError: if that does not go with the other settings.
        """
        from gpuyard.native.information import informed  # which loads the core

        known = informed(self.simulated, workload).estimates
        if known == self.simulated.estimates:
            return self
        simulation = self.simulation.model_copy(update={"estimates": known})
        return read_settings({**dict(self), "estimates": None, "simulation": simulation})

    @property
    def around(self) -> tuple[int, int]:
        """Jobs of warm-up and of cool-down; ``auto`` counts as 0 until it is settled."""
        both = (self.warmup_jobs, self.cooldown_jobs)
        before, after = (0 if isinstance(jobs, str) else jobs for jobs in both)
        return before, after

    @property
    def is_settled(self) -> bool:
        """Whether warm-up and cool-down are numbers."""
        return AUTO not in (self.warmup_jobs, self.cooldown_jobs)

    def settled(self, warmup_jobs: int = 0, cooldown_jobs: int = 0) -> "EnvConfig":
        """The same with these numbers of jobs where it says ``auto``."""
        found = {"warmup_jobs": warmup_jobs, "cooldown_jobs": cooldown_jobs}
        changes = {name: jobs for name, jobs in found.items() if getattr(self, name) == AUTO}
        return self.model_copy(update=changes) if changes else self

    def window_of(self, kind: str) -> int:
        """Rows of waiting jobs."""
        return self.window or (1 if kind in HOST_KINDS else 64)

    def base_policy_of(self, kind: str) -> str:
        """The name of the base policy."""
        if self.base_policy is not None:
            return self.base_policy
        if kind in HOST_KINDS:
            return "fifo+greedy"
        return "fifo+easy" if self.simulated.estimates == "none" else "wspt+easy"


def _check_all(what: str, names: tuple[str, ...], known: Any) -> None:
    for name in names:
        if name not in known:
            raise ValueError(f"unknown {what} {name!r}{suggest(name, dict.fromkeys(known))}")


def read_settings(settings: Mapping[str, Any]) -> EnvConfig:
    """Settings from keyword arguments.

    Raises:
        InputError: naming the setting that is wrong, and what is close to an unknown one.
    """
    for name in settings:
        if name not in EnvConfig.model_fields:
            known = dict.fromkeys(("workload", "generator", "cluster", "preset", *EnvConfig.model_fields))
            raise InputError(f"unknown setting {name!r} of an environment{suggest(name, known)}")
    try:
        return EnvConfig.model_validate(dict(settings))
    except ValidationError as error:
        raise refusal(error, "environment") from None
