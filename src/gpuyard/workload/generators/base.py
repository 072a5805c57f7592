"""What all generators have in common: settings that can be written down and read back.

Settings load neither numpy nor polars, so that the command line can describe them quickly.
"""

import re
from abc import abstractmethod
from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

from pydantic import BaseModel, ConfigDict, Field

from gpuyard.config import Seed, Whole
from gpuyard.registry import suggest

if TYPE_CHECKING:
    from gpuyard.workload.formats import Trace
    from gpuyard.workload.schema import Step

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
    """Name of the workload."""
    seed: Seed = 0
    """Same seed, same jobs, on every machine."""
    jobs: Annotated[Whole, Field(ge=1, le=100_000_000)] = 10_000
    """Number of jobs."""

    @property
    def is_steady(self) -> bool:
        """Whether jobs keep coming in the same way, however many there are: a longer draw is more of it."""
        return True

    @abstractmethod
    def generate(self) -> "Trace":
        """Draw the workload, and the cluster if that is drawn too."""

    def history(self) -> "tuple[Step, ...]":
        """The step from which ``presets.remake`` makes the same workload again."""
        from gpuyard.workload.schema import Step

        return (Step(name=self.step, settings=self.model_dump(mode="json")),)


class Shape(BaseModel):
    """One of several ways to draw something, told apart by ``kind``.

    It can be written as text, ``KIND[:KEY=VALUE,...]``, lists with slashes: ``markov:rates=1/10``.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    kind: str

    def __str__(self) -> str:
        values = {
            name: (getattr(self, name), field.default) for name, field in type(self).model_fields.items()
        }
        changed = (f"{name}={_text(value)}" for name, (value, default) in values.items() if value != default)
        settings = ",".join(changed)
        return f"{self.kind}:{settings}" if settings else self.kind


def shape_reader(*models: type[Shape]) -> Callable[[Any], Any]:
    """A validator that turns the text of a shape into what one of the models is made from.

    Names that none of them has are answered with the closest ones. What is not text is left alone.
    """
    kinds = {model.model_fields["kind"].default: model for model in models}

    def read(value: Any) -> Any:
        if not isinstance(value, str):
            return value
        found = _SHORTHAND.fullmatch(value)
        if found is None:
            raise ValueError("expected KIND or KIND:KEY=VALUE,KEY=VALUE, lists with slashes")
        kind = found["kind"]
        if kind not in kinds:
            raise ValueError(f"unknown kind {kind!r}{suggest(kind, kinds)}")
        parts = filter(None, (found["settings"] or "").split(","))
        settings = dict(_read_setting(part, kinds[kind]) for part in parts)
        return {"kind": kind, **settings}

    return read


def _read_setting(part: str, model: type[Shape]) -> tuple[str, str | list[str]]:
    key, equals, text = part.partition("=")
    known = {name: None for name in model.model_fields if name != "kind"}
    if not equals:
        raise ValueError(f"expected KEY=VALUE in {part!r}")
    if key not in known:
        raise ValueError(f"unknown setting {key!r}{suggest(key, known) if known else '; there are none'}")
    return key, text.split("/") if "/" in text else text


def _text(value: Any) -> str:
    return "/".join(map(str, value)) if isinstance(value, tuple) else str(value)
