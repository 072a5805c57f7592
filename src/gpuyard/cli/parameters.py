"""Options of the command line that stand for settings of a model, and the way from one to the other.

Nothing heavy is imported here: ``--help`` must be quick. An option that was not given is None, and the
model's own default holds. A test compares the defaults that the help texts state with the models'.
"""

from __future__ import annotations

import math
import re
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeVar

from cyclopts import Parameter

from gpuyard.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cyclopts import Token
    from pydantic import BaseModel

    from gpuyard.workload import SynthConfig

    Model = TypeVar("Model", bound=BaseModel)


def _whole(_: object, tokens: Sequence[Token]) -> int:
    """A number as it was written; cyclopts itself would round 6.5."""
    text = tokens[0].value
    try:
        return int(text)
    except ValueError:
        pass
    try:
        number = float(text)  # Such as 1e6.
    except ValueError:
        number = math.nan
    if number.is_integer() and abs(number) <= 2**53:
        return int(number)
    raise ValueError(f"{text} is not a whole number")


Whole = Annotated[int, Parameter(converter=_whole)]

WITHOUT_UNIT = {
    "tiresias_levels_gpu_s": "tiresias_levels",
    "power_cap_w": "power_cap",
    **{
        f"{name}_s": name
        for name in (
            *("usage_half_life", "max_age", "reschedule", "min_run", "checkpoint", "restore", "starvation"),
            *("node_mtbf", "node_mttr", "checkpoint_every", "sleep_after", "wake"),
        )
    },
}
"""Settings whose option leaves out the unit, which its help states."""


@Parameter(name="*", group="Jobs")
@dataclass(frozen=True)
class SynthOptions:
    """What a synthetic workload looks like."""

    jobs: Annotated[Whole | None, Parameter(help="Number of jobs. (default: 10000)")] = None
    load: Annotated[
        float | None,
        Parameter(help="Work that arrives, as a share of what the cluster can do. (default: 0.9)"),
    ] = None
    seed: Annotated[Whole | None, Parameter(help="Same seed, same jobs, on every machine. (default: 0)")] = (
        None
    )
    name: Annotated[str | None, Parameter(help="Name of the workload. (default: synthetic)")] = None
    arrivals: Annotated[
        str | None,
        Parameter(
            help="all-at-once, uniform, poisson, bursty, diurnal or markov, with settings such as "
            "bursty:centres=4,spread=0.1. (default: poisson)"
        ),
    ] = None
    gang_mix: Annotated[
        str | None,
        Parameter(help="GPUs:weight of jobs, by commas. (default: 1:0.7,2:0.1,4:0.15,8:0.05)"),
    ] = None
    durations: Annotated[
        str | None,
        Parameter(
            help="lognormal, uniform, pareto or heavy-tail, with settings such as pareto:alpha=1.5. "
            "(default: lognormal)"
        ),
    ] = None
    duration_median_s: Annotated[float | None, Parameter(help="Median duration, s. (default: 600.0)")] = None
    duration_sigma: Annotated[
        float | None, Parameter(help="Spread of durations, in logarithms. (default: 1.8)")
    ] = None
    duration_min_s: Annotated[float | None, Parameter(help="Shortest duration, s. (default: 10.0)")] = None
    duration_max_s: Annotated[float | None, Parameter(help="Longest duration, s. (default: 86400.0)")] = None
    duration_with_gpus: Annotated[
        float | None,
        Parameter(help="Correlation of duration and gang size, -1 to 1. (default: 0.0)"),
    ] = None
    duration_with_priority: Annotated[
        float | None,
        Parameter(help="Correlation of duration and priority, -1 to 1. (default: 0.0)"),
    ] = None
    whole_seconds: Annotated[
        bool | None, Parameter(help="Round times to seconds, as many logs do. (default: False)", negative=())
    ] = None
    users: Annotated[Whole | None, Parameter(help="Number of users. (default: 20)")] = None
    user_activity: Annotated[
        Literal["zipf", "uniform"] | None, Parameter(help="How unevenly users submit. (default: zipf)")
    ] = None
    user_habits: Annotated[
        float | None,
        Parameter(help="How much of durations and gang sizes is the user's habit, 0 to 1. (default: 0.0)"),
    ] = None
    groups: Annotated[Whole | None, Parameter(help="Groups that users belong to in turn. (default: 4)")] = (
        None
    )
    priority_mix: Annotated[
        str | None, Parameter(help="priority:weight of jobs, by commas. (default: 1:1)")
    ] = None
    overestimation: Annotated[
        float | None,
        Parameter(help="Mean of estimate / duration; without it there are no estimates. (default: None)"),
    ] = None
    underestimated_share: Annotated[
        float | None, Parameter(help="Share of jobs that ask for too little time. (default: 0.0)")
    ] = None
    round_estimates: Annotated[
        bool | None,
        Parameter(help="Ask for 15 min, 1 h, 1 d and the like, as people do. (default: False)", negative=()),
    ] = None

    def config(self, cluster_gpus: int | None) -> SynthConfig:
        """The settings as the generator takes them; ``cluster_gpus`` is what the load refers to."""
        from gpuyard.workload import SynthConfig

        given = given_options(self)
        for mix in ("gang_mix", "priority_mix"):
            if mix in given:
                given[mix] = parse_mix(option_name(mix), given[mix])
        if cluster_gpus is not None:
            given["cluster_gpus"] = cluster_gpus
        return validated(SynthConfig, given)


def given_options(options: Any) -> dict[str, Any]:
    """Those that were given, by field."""
    return {name: value for name, value in asdict(options).items() if value is not None}


def validated(model: type[Model], given: dict[str, Any]) -> Model:
    """A model made from options, by field; what is wrong is told by the option's name."""
    from pydantic import ValidationError

    try:
        return model(**given)
    except ValidationError as error:
        problem = error.errors()[0]
        message = problem["msg"].removeprefix("Value error, ")
        if not problem["loc"]:
            fields = "|".join(name for name in model.model_fields if "_" in name)
            raise InputError(
                re.sub(rf"\b({fields})\b", lambda found: option_name(found[0]), message)
            ) from None
        name = str(problem["loc"][0])
        raise InputError(f"{option_name(name)} {given[name]}: {message[0].lower()}{message[1:]}") from None


def option_name(name: str) -> str:
    """How a field is written on the command line."""
    if name == "cluster_gpus":
        return "the GPUs of --cluster"
    return f"--{WITHOUT_UNIT.get(name, name).replace('_', '-')}"


def parse_mix(option: str, text: str) -> list[tuple[float, float]]:
    """Pairs of value and weight."""
    try:
        pairs = [tuple(map(float, part.split(":"))) for part in text.split(",")]
        return [(value, weight) for value, weight in pairs]
    except ValueError:
        raise InputError(
            f"{option} {text!r}: expected value:weight pairs joined by commas, such as 1:0.7,8:0.3"
        ) from None
