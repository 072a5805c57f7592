"""Settings of a network (docs/contract/networks.md). Defaults live here and nowhere else."""

from typing import Annotated, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

NetworkKind = Literal["mlp", "job-scorer", "cross-attention", "host-attention", "rule", "state-rule"]
RULE_KINDS = ("rule", "state-rule")
"""Linear in the columns of jobs, without values of states."""
Residual = Literal["none", "base", "rule"]


class NetworkConfig(BaseModel):
    """What a network is made of."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    kind: NetworkKind = "job-scorer"
    width: Annotated[int, Field(ge=1, le=4096)] = 32
    """Numbers in a hidden layer."""
    depth: Annotated[int, Field(ge=1, le=16)] = 2
    """Hidden layers of mlp, layers a row goes through in job-scorer, attention layers of cross-attention."""
    heads: Annotated[int, Field(ge=1, le=64)] = 1
    """Of cross-attention; they share the width."""
    residual: Residual = "none"
    """What the logits start from: nothing, the choice of the base policy, or a searched rule."""
    strength: Annotated[float, Field(gt=0, le=100)] = 4.0
    """How much the logits of a residual's choice stand out."""

    @model_validator(mode="after")
    def _check_consistent(self) -> Self:
        if self.kind == "cross-attention" and self.width % self.heads:
            raise ValueError(f"width {self.width} must be a multiple of heads {self.heads}")
        if self.kind in RULE_KINDS and self.residual != "none":
            raise ValueError("a rule starts from itself; leave residual out")
        return self
