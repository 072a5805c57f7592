"""Numbers that change in the course of training: learning rates, exploration."""

import math
from typing import Annotated, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

ScheduleKind = Literal["constant", "linear", "exponential", "cosine", "warmup-cosine"]


class Schedule(BaseModel):
    """From ``start`` to ``end`` while training goes from 0 to 1."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    schedule: ScheduleKind = "constant"
    """The way from one to the other."""
    start: Annotated[float, Field(ge=0)]
    """The number at first."""
    end: Annotated[float, Field(ge=0)] = 0.0
    """The number at last. Not used by ``constant``; above 0 for ``exponential``."""
    warmup: Annotated[float, Field(ge=0, lt=1)] = 0.05
    """Of ``warmup-cosine``: the share of training in which the number rises to ``start``."""

    @model_validator(mode="after")
    def _check_positive(self) -> Self:
        if self.schedule == "exponential" and not (self.start > 0 and self.end > 0):
            raise ValueError("an exponential schedule goes from a number above 0 to a number above 0")
        return self

    def at(self, progress: float) -> float:
        """The number when this share of training is done."""
        x = min(max(progress, 0.0), 1.0)
        if self.schedule == "constant":
            return self.start
        if self.schedule == "linear":
            return self.start + (self.end - self.start) * x
        if self.schedule == "exponential":
            return math.exp(math.log(self.start) + (math.log(self.end) - math.log(self.start)) * x)
        if self.schedule == "warmup-cosine" and self.warmup > 0:
            if x < self.warmup:
                return self.start * x / self.warmup
            x = (x - self.warmup) / (1.0 - self.warmup)
        return self.end + (self.start - self.end) * 0.5 * (1.0 + math.cos(math.pi * x))
