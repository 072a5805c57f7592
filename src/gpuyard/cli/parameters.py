"""Parameters of verbs: settings of models as flags, and what several verbs take.

A setting is declared once, in its model: the flag has the field's type, description and default.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated

from cyclopts import Group, Parameter, Token
from pydantic import BaseModel
from pydantic.fields import FieldInfo

from gpuyard.cli.inputs import HELP, flag
from gpuyard.config import SimulationConfig, whole_number


class RareGroup(Group):
    """Settings that few need: ``--help`` leaves them out, ``--help-all`` shows them."""

    @property
    def show(self) -> bool:
        """Whether help has them."""
        return HELP.shows_all


RARE = {name: RareGroup(name) for name in ("Fairness", "Slurm", "Preemption", "Failures", "Power")}


def settings(
    model: type[BaseModel],
    group: str,
    *,
    parts: Mapping[str, str] | None = None,
    names: Mapping[str, str] | None = None,
    without: Sequence[str] = (),
) -> Parameter:
    """Flags for the fields of a model, as a parameter that takes the model.

    Args:
        model: Its fields are given their flags.
        group: Heading of the flags in the help.
        parts: Other headings, by the field from which on they hold.
        names: Flags of fields that are spelt otherwise than elsewhere.
        without: Fields that have no flag.
    """
    for name, field in model.model_fields.items():
        group = (parts or {}).get(name, group)
        if name in without:
            field.metadata.append(Parameter(parse=False, show=False))
        else:
            spelling = f"--{names[name]}" if names and name in names else flag(name)
            field.metadata.append(_parameter(field, spelling, group))
    return Parameter(name="*")


def _parameter(field: FieldInfo, name: str, group: str) -> Parameter:
    is_shape, is_list = isinstance(field.default, BaseModel), isinstance(field.default, tuple)
    is_table = isinstance(field.default, Mapping)
    is_switch = field.annotation is bool and field.default is False
    return Parameter(
        name=name,
        group=RARE.get(group, group),
        show_default=_text(field.default) or False,
        negative=() if is_switch or is_list or is_table else None,
        n_tokens=1 if is_list else None,
        accepts_keys=False if is_shape else None,
        metavar="TEXT" if is_shape or is_list or is_table else None,
    )


def _text(default: object) -> str:
    """A default as it would be typed; empty where there is nothing to type."""
    if isinstance(default, tuple):
        return ",".join(
            ":".join(f"{part:g}" for part in value) if isinstance(value, tuple) else f"{value:g}"
            for value in default
            if value is not None
        )
    return "" if default is None or default is False or default == {} else str(default)


def _whole(_: object, tokens: Sequence[Token]) -> int:
    """A number as it was written; cyclopts itself would round 6.5."""
    text = tokens[0].value
    try:
        return int(whole_number(text))
    except ValueError:
        raise ValueError(f"{text} is not a whole number") from None


Whole = Annotated[int, Parameter(converter=_whole)]
Flag = Parameter(negative=(), show_default=False)
Repeated = Parameter(negative=())
Json = Annotated[
    bool, Flag, Parameter(help="Print one JSON document on standard output and nothing else there.")
]
ClusterText = Annotated[
    str | None,
    Parameter(help="A shorthand such as 64x8 (nodes x GPUs), a preset's name, or a TOML file."),
]
WorkloadText = Annotated[
    str, Parameter(help="A file of jobs in any known format, or a built-in workload such as demo.")
]
OutFile = Annotated[Path, Parameter(help="The file to write: .csv, .csv.gz or .parquet.")]

Simulation = Annotated[
    SimulationConfig,
    settings(
        SimulationConfig,
        "Simulation",
        parts={
            "usage_half_life_s": "Fairness",
            "bf_interval_s": "Slurm",
            "reschedule_s": "Preemption",
            "node_mtbf_s": "Failures",
            "sleep_after_s": "Power",
        },
    ),
]
"""Settings of a simulation; every policy runs under the same ones."""
SIMULATION = SimulationConfig()
