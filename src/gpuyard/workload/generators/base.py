"""What all generators have in common: settings that can be written down, and a way back from them."""

import re
from abc import abstractmethod
from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Self

from pydantic import BaseModel, ConfigDict, Field, JsonValue, model_validator

from gpuyard.cluster import Cluster
from gpuyard.errors import InputError
from gpuyard.registry import lookup
from gpuyard.workload.formats import Trace
from gpuyard.workload.schema import Step, Workload

MONDAY_S = 4 * 86_400.0
"""00:00 of a Monday on the clock of ``epoch_s``: 1970-01-05, UTC."""

DAY_S = 86_400.0
WEEK_S = 7 * DAY_S

_SHORTHAND = re.compile(r"(?P<kind>[a-z-]+)(:(?P<settings>.+))?")

Positive = Annotated[float, Field(gt=0, le=1e12)]
Weight = Annotated[float, Field(ge=0, le=1e9)]


class GeneratorConfig(BaseModel):
    """Settings of a generator. Together with the program they determine every bit of the workload."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    step: ClassVar[str]
    """Name of the generator in a workload's history; registered as ``workload-generator``."""

    name: str = "synthetic"
    seed: Annotated[int, Field(ge=0, lt=2**63)] = 0
    jobs: Annotated[int, Field(ge=1, le=100_000_000)] = 10_000

    @abstractmethod
    def generate(self) -> Trace:
        """Draw the workload, and the cluster if that is drawn too."""

    def history(self) -> tuple[Step, ...]:
        """The step from which ``remake`` makes the same workload again."""
        return (Step(name=self.step, settings=self.model_dump(mode="json")),)


def remake(workload: Workload) -> Trace:
    """Make a generated workload again from its history alone.

    Raises:
        InputError: if it was not made by a generator, or was changed afterwards.
    """
    history = workload.metadata.history
    if len(history) != 1:
        raise InputError(f"workload {workload.metadata.name!r} was not made by a generator alone")
    config: type[GeneratorConfig] = lookup("workload-generator", history[0].name)
    return config.model_validate(history[0].settings).generate()


class Shape(BaseModel):
    """One of several ways to draw something, told apart by ``kind``.

    It can be written as text, ``KIND[:KEY=VALUE,...]``, lists with slashes: ``markov:rates=1/10``.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    kind: str

    def __str__(self) -> str:
        changed = {name: getattr(self, name) for name in self.model_fields_set - {"kind"}}
        settings = ",".join(f"{name}={_text(value)}" for name, value in sorted(changed.items()))
        return f"{self.kind}:{settings}" if settings else self.kind


def read_shape(value: Any) -> Any:
    """Turn the text of a shape into what its model is made from; leaves everything else alone."""
    if not isinstance(value, str):
        return value
    found = _SHORTHAND.fullmatch(value)
    if found is None:
        raise ValueError("expected KIND or KIND:KEY=VALUE,KEY=VALUE such as bursty:centres=4,spread=0.1")
    settings: dict[str, JsonValue] = {"kind": found["kind"]}
    for part in filter(None, (found["settings"] or "").split(",")):
        key, equals, text = part.partition("=")
        if not equals:
            raise ValueError(f"expected KEY=VALUE in {part!r}")
        settings[key] = list(text.split("/")) if "/" in text else text
    return settings


def _text(value: Any) -> str:
    return "/".join(map(str, value)) if isinstance(value, tuple) else str(value)
