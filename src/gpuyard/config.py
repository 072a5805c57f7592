"""Settings: how they are read and refused, and those of a simulation. Defaults live here and nowhere else."""

import os
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, model_validator

from gpuyard.errors import InputError, setting, spelt
from gpuyard.registry import suggest

Estimates = Literal["auto", "exact", "requested", "noisy", "history", "none"]
AUTO = "auto"
"""Of ``current``, what runs today: what the log says happened, where it does, else ``fifo+easy``."""
USUAL_CURRENT = "fifo+easy"
"""What is taken to run today where nobody says."""
Part = Literal["train", "validation", "test", "all"]
"""Of a workload by time: its first 60 %, the next 20 %, the last 20 %, or all of it."""
Start = Literal["busy", "recorded", "empty"]
"""How windows begin: after jobs that ran before under the same policy; with what the log says was running and
waiting; or with an empty cluster."""


def available_cores() -> int:
    """Processors that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def whole_number(value: Any) -> Any:
    """A number in text that is whole without being written as one, such as 1e6; all else as it is."""
    if isinstance(value, str):
        try:
            number = float(value)
            if number.is_integer() and abs(number) <= 2**53 and not value.strip().isdecimal():
                return int(number)
        except (ValueError, OverflowError):
            pass
    return value


def numbers_by_name(value: Any) -> Any:
    """``NAME:NUMBER`` pairs joined by commas, as a mapping; names may hold colons. All else as it is."""
    if not isinstance(value, str):
        return value
    pairs = [part.rpartition(":") for part in value.split(",")]
    if any(not colon for _, colon, _ in pairs):
        raise ValueError("expected name:number pairs joined by commas, such as vision:64,speech:32")
    names = [name for name, _, _ in pairs]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise ValueError(f"{twice!r} is given twice")
    return {name: number for name, _, number in pairs}


def numbers(value: Any) -> Any:
    """Numbers joined by commas, alone or as the one entry of a list; all else as it is."""
    alone = value[0] if isinstance(value, list) and len(value) == 1 else value
    return alone.split(",") if isinstance(alone, str) else value


Whole = Annotated[int, BeforeValidator(whole_number)]
Seed = Annotated[Whole, Field(ge=0, lt=2**63)]

_LONGEST_S = 2**32
Seconds = Annotated[float, Field(ge=0, le=_LONGEST_S)]
PositiveSeconds = Annotated[float, Field(ge=1e-6, le=_LONGEST_S)]
Weight = Annotated[float, Field(ge=0, le=1e12)]
Share = Annotated[float, Field(gt=0, le=1e12)]


class SimulationConfig(BaseModel):
    """What holds for a whole simulation, whatever the policy (docs/contract/simulator.md)."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    estimates: Estimates = "auto"
    """What policies know of run times: the truth (exact: an upper bound, no scheduler has it), the logged
    request, the truth with noise, a prediction from finished jobs (history), or nothing. auto: requested
    where the log has requests, else history."""
    noise_sigma: Annotated[float, Field(ge=0, le=10)] = 1.0
    """Standard deviation of the log of the error of ``noisy`` estimates."""
    seed: Seed = 0
    """Key of every random draw: noisy estimates, random order, random placement, failures."""
    kill_at_estimate: bool = False
    """End a job as ``timeout`` when it has run as long as its estimate."""
    locality_penalty: Annotated[float, Field(ge=0, le=1000)] = 0.0
    """Slow-down of a gang on twice the fewest nodes that could hold it: 0.2 is 20 %."""
    oversize: Literal["error", "drop"] = "error"
    """Jobs that can never run on the cluster: refuse them, or leave them out and report them."""

    usage_half_life_s: Annotated[float, Field(gt=0)] = 7 * 24 * 3600.0
    """Half-life of a user's or group's usage in ``fair-share``, s."""
    user_shares: Annotated[Mapping[str, Share], BeforeValidator(numbers_by_name)] = {}
    """Weights of users in ``fair-share`` and ``multifactor``, such as ada:2,bo:1; 1 where not given."""
    group_shares: Annotated[Mapping[str, Share], BeforeValidator(numbers_by_name)] = {}
    """Weights of groups in ``group-fair-share``; 1 where not given."""
    age_weight: Weight = 1000.0
    """Weight of a job's age in ``multifactor``."""
    fair_share_weight: Weight = 1000.0
    """Weight of the fair-share factor of its user in its group in ``multifactor``."""
    size_weight: Weight = 100.0
    """Weight of a job's share of the cluster in ``multifactor``: large jobs first."""
    partition_weight: Weight = 0.0
    """Weight of its partition's factor in ``multifactor``."""
    qos_weight: Weight = 0.0
    """Weight of its QOS's priority in ``multifactor``."""
    gpu_weight: Weight = 0.0
    """Weight of its share of the partition's GPUs in ``multifactor``."""
    cpu_weight: Weight = 0.0
    """Weight of its share of the partition's CPUs in ``multifactor``."""
    memory_weight: Weight = 0.0
    """Weight of its share of the partition's memory in ``multifactor``."""
    priority_weight: Weight = 1000.0
    """Weight of its priority in ``multifactor``."""
    max_age_s: PositiveSeconds = 7 * 24 * 3600.0
    """Wait at which age counts in full in ``multifactor``, s."""
    favor_small: bool = False
    """Small jobs first in the size factor of ``multifactor``."""
    fair_share: Literal["tree", "classic"] = "tree"
    """How ``multifactor`` compares usage with shares: Slurm's fair tree, or its older formula."""
    priority_calc_s: PositiveSeconds = 300.0
    """``multifactor`` is calculated anew at every multiple of this, s."""
    group_quotas: Annotated[Mapping[str, Annotated[int, Field(ge=0)]], BeforeValidator(numbers_by_name)] = {}
    """GPUs of each group, such as vision:64,speech:32; the other groups share the rest."""
    quota_borrowing: bool = True
    """Let groups use what others leave idle."""

    bf_interval_s: PositiveSeconds = 30.0
    """``slurm`` backfills at multiples of this, s."""
    bf_max_job_test: Annotated[Whole, Field(ge=0, lt=2**31)] = 500
    """Jobs that a backfill pass of ``slurm`` looks at; 0: all."""
    bf_max_job_part: Annotated[Whole, Field(ge=0, lt=2**31)] = 0
    """Of these, of one partition at most; 0: all."""
    bf_max_job_user: Annotated[Whole, Field(ge=0, lt=2**31)] = 0
    """Of these, of one user at most; 0: all."""
    bf_window_s: Seconds = 24 * 3600.0
    """How far ahead ``slurm`` plans, s."""
    bf_resolution_s: PositiveSeconds = 60.0
    """``slurm`` rounds the times of its plan down to multiples of this, s."""

    reschedule_s: PositiveSeconds = 60.0
    """Policies that preempt also decide at every multiple of this, s."""
    min_run_s: Seconds = 300.0
    """A job is not stopped before it has run this long, s."""
    checkpoint_s: Seconds | None = None
    """How long a stopped job keeps its GPUs, s. Not given: 3.5, 15 or 30 by gang size."""
    restore_s: Seconds | None = None
    """How long a resumed job makes no progress, s. Not given: 3.5, 15 or 30 by gang size."""
    defragment: bool = False
    """Move a running job where that makes room for one that does not fit."""
    tiresias_levels_gpu_s: Annotated[tuple[Annotated[float, Field(gt=0)], ...], BeforeValidator(numbers)] = (
        3600.0,
        36000.0,
    )
    """Attained GPU-seconds at which a job sinks to the next level of ``tiresias``."""
    starvation_s: PositiveSeconds = 8 * 3600.0
    """``tiresias`` promotes a job that has been in the queue this long, s."""

    node_mtbf_s: PositiveSeconds | None = None
    """Mean time between failures of a node, s. Not given: nodes do not fail."""
    node_mttr_s: PositiveSeconds | None = None
    """Mean time to repair, s. Not given: 3600, if nodes fail."""
    checkpoint_every_s: PositiveSeconds | None = None
    """A job whose node fails resumes from the last multiple of this, s. Not given: from its last stop."""

    sleep_after_s: Seconds | None = None
    """An idle node falls asleep after this long, s. Not given: never."""
    wake_s: Seconds | None = None
    """How long a node takes to wake, s. Not given: 60, if nodes sleep."""
    power_cap_w: Annotated[float, Field(gt=0, le=1e12)] | None = None
    """The cluster never draws more than this, W. Not given: no cap."""

    @model_validator(mode="after")
    def _check_consistent(self) -> Self:
        for name, value, needs, needed in (
            ("node_mttr_s", self.node_mttr_s, "node_mtbf_s", self.node_mtbf_s),
            ("checkpoint_every_s", self.checkpoint_every_s, "node_mtbf_s", self.node_mtbf_s),
            ("wake_s", self.wake_s, "sleep_after_s", self.sleep_after_s),
        ):
            if value is not None and needed is None:
                raise ValueError(
                    f"{setting(name)} has no effect without {setting(needs)}; give both or neither"
                )
        levels = self.tiresias_levels_gpu_s
        if any(low >= high for low, high in pairwise(levels)):
            stated = ", ".join(f"{level:g}" for level in levels)
            raise ValueError(f"{setting('tiresias_levels_gpu_s')} must ascend, but is {stated}")
        return self

    @property
    def repair_s(self) -> float:
        """Mean time to repair."""
        return 3600.0 if self.node_mttr_s is None else self.node_mttr_s

    @property
    def waking_s(self) -> float:
        """How long a node takes to wake."""
        return 60.0 if self.wake_s is None else self.wake_s


POLICY_SETTINGS = (
    *("usage_half_life_s", "user_shares", "group_shares", "fair_share", "priority_calc_s"),
    *("age_weight", "fair_share_weight", "size_weight", "partition_weight", "qos_weight"),
    *("gpu_weight", "cpu_weight", "memory_weight", "priority_weight", "max_age_s", "favor_small"),
    *("bf_interval_s", "bf_max_job_test", "bf_max_job_part", "bf_max_job_user", "bf_window_s"),
    *("bf_resolution_s", "tiresias_levels_gpu_s", "starvation_s"),
)
"""Settings of a simulation that a policy may bring along, because nobody but its rules asks for them. All
others say what is simulated, and are the same for all policies of a comparison."""


class GuardConfig(BaseModel):
    """Limits on waits, against what runs today: a policy that breaks one is not recommended.

    They are counted in the replay of the whole part, over all jobs and by class: gang size, run time, group.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    max_p99_increase: Annotated[float, Field(ge=0, le=1000)] = 0.25
    """Most that the 99th percentile of waits may rise, of all jobs and of any class, as a share."""
    max_longest_increase: Annotated[float, Field(ge=0, le=1000)] = 0.5
    """Most that the longest wait of all may rise, as a share."""
    longest_factor: Annotated[float, Field(ge=1, le=1000)] = 3.0
    """Longest wait of any class, in longest waits of today's."""
    least_rise_s: Annotated[float, Field(ge=0, le=1e9)] = 600.0
    """Rises of waits up to this do not count, s."""
    least_jobs: Annotated[Whole, Field(ge=1, le=1_000_000)] = 100
    """Classes of fewer jobs have no 99th percentile to speak of: only their longest wait counts."""

    def tightened(self, share: float) -> "GuardConfig":
        """Limits of which only a share may be used up."""
        return GuardConfig(
            max_p99_increase=share * self.max_p99_increase,
            max_longest_increase=share * self.max_longest_increase,
            longest_factor=1.0 + share * (self.longest_factor - 1.0),
            least_rise_s=share * self.least_rise_s,
            least_jobs=self.least_jobs,
        )


def refusal(
    error: ValidationError,
    where: str = "",
    *,
    prefix: Sequence[str] | None = None,
    known: Callable[[tuple[int | str, ...]], Mapping[str, Any]] | None = None,
) -> InputError:
    """What pydantic found wrong first, as an error in our words. Every such finding becomes one here.

    Args:
        error: What pydantic raised.
        where: A file, a format or the like that the values come from; without it they are settings.
        prefix: Names of the tables that the values stand in; None: of a model without tables, where what lies
            deeper is part of a value.
        known: Names that there are at a place, for an unknown one.
    """
    # A misspelt key is also a missing one; the spelling is what the user wants to hear of.
    problem = min(error.errors(), key=lambda entry: entry["type"] != "extra_forbidden")
    place = (*(prefix or ()), *problem["loc"])
    name = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in place).lstrip(".")
    start = f"{where}: " if where else ""
    if problem["type"] == "extra_forbidden":
        near = suggest(str(place[-1]), known(problem["loc"][:-1])) if known else ""
        return InputError(f"{start}unknown key {name}{near}")
    words = _in_words(problem)
    if where:
        words = spelt(words, lambda key, value: key if value is None else f"{key} = {value}")
    if not name:
        return InputError(start + words)
    value = problem["input"]
    if isinstance(value, list) and len(value) == 1:  # as the command line gives what may be repeated
        value = value[0]
    shown = value if isinstance(value, str | int | float | bool) and problem["type"] != "missing" else None
    if where:
        return InputError(f"{start}{name}: {words}{'' if shown is None else f' (is {shown!r})'}")
    if prefix is not None or len(place) == 1:
        return InputError(f"{setting(name, shown)}: {words}")
    within = name.removeprefix(str(place[0])).lstrip(".") + ("" if shown is None else f" {shown!r}")
    return InputError(f"{setting(str(place[0]))}: {within}: {words}")


_WORDS = {
    "missing": "is missing",
    "greater_than": "expected more than {gt}",
    "greater_than_equal": "expected {ge} or more",
    "less_than": "expected less than {lt}",
    "less_than_equal": "expected {le} or less",
    "multiple_of": "expected a multiple of {multiple_of}",
    "finite_number": "expected a finite number",
    "literal_error": "expected {expected}",
    "too_short": "expected at least {min_length} entries, not {actual_length}",
    "too_long": "expected at most {max_length} entries, not {actual_length}",
    "string_too_short": "expected at least {min_length} characters",
    "string_too_long": "expected at most {max_length} characters",
    "string_type": "expected text",
    "string_pattern_mismatch": "expected text that matches {pattern}",
    "json_invalid": "is not valid JSON ({error})",
    **dict.fromkeys(("int_parsing", "int_type", "int_from_float"), "is not a whole number"),
    "int_parsing_size": "is too large",
    **dict.fromkeys(("float_parsing", "float_type"), "is not a number"),
    **dict.fromkeys(("bool_parsing", "bool_type"), "expected true or false"),
    **dict.fromkeys(("dict_type", "mapping_type", "model_type", "model_attributes_type"), "expected a table"),
    **dict.fromkeys(("list_type", "tuple_type"), "expected a list"),
}


def _in_words(problem: Any) -> str:
    kind, given = problem["type"], problem.get("ctx", {})
    if kind == "literal_error" and isinstance(problem["input"], str):
        listed: str = given["expected"]
        choices = listed.replace("'", "").replace(" or ", ", ").split(", ")
        near = suggest(problem["input"], dict.fromkeys(choices))
        return f"expected {listed}" + (near if near.endswith("?") else "")
    if kind in _WORDS:
        return _WORDS[kind].format_map({key: _number(value) for key, value in given.items()})
    message: str = problem["msg"].removeprefix("Value error, ").replace("Input should be", "expected")
    return message if message[:2].isupper() or message[:1] == "`" else message[:1].lower() + message[1:]


def _number(value: Any) -> Any:
    return f"{value:,}" if isinstance(value, int) else f"{value:g}" if isinstance(value, float) else value
