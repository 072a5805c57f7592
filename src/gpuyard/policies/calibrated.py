"""How closely a policy reproduces a log: the table ``calibration`` of a policy file."""

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

from gpuyard.units import duration, plural

Verdict = Literal["good", "fair", "poor"]
Seconds = Annotated[float, Field(ge=0)]
Share = Annotated[float, Field(ge=0, le=1)]


class CalibrationFigures(BaseModel):
    """What ``gpuyard calibrate`` measured on the second half of a log (docs/guide/calibrate.md)."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    log: str
    """As the user named it."""
    nodes: Annotated[int, Field(ge=1)]
    """Of the cluster that the policy was fitted on."""
    jobs: Annotated[int, Field(ge=1)]
    """That were compared."""
    verdict: Verdict
    median_error_s: Seconds
    """Half of the simulated waits are at most this far from the recorded ones."""
    p90_error_s: Seconds
    """Nine of ten are."""
    correlation: Annotated[float, Field(ge=-1, le=1)] | None = None
    """Of mean waits by hour; None where they do not change."""
    share_within: Share
    """Of jobs whose wait is within 10 % or 60 s."""
    wait_ratio: Seconds | None = None
    """Simulated mean wait over the recorded one; None if nobody waited."""
    least_difference: Seconds
    """Relative differences of mean waits below this cannot be told apart from the policy's own error."""

    def sentence(self, label: str) -> str:
        """All of it in words.

        Args:
            label: What the policy is called.
        """
        return (
            f"{label} reproduces {self.log}: {self.verdict}. On {plural(self.jobs, 'job')} that it was not "
            f"fitted to, half of the waits are within {duration(self.median_error_s)} of the recorded ones, "
            f"90 % within {duration(self.p90_error_s)}. {self.meaning()}"
        )

    def meaning(self) -> str:
        """What that means for answers to what-if questions."""
        if self.verdict == "poor":
            return "Do not rest decisions on comparisons with it."
        return (
            f"Differences of mean waits below {percent(self.least_difference)} cannot be told apart from its "
            "error."
        )


def percent(share: float) -> str:
    """A share in whole percent, at least 1."""
    return f"{max(1, round(100 * share)):,} %"
