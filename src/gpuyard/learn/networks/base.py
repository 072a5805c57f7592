"""What all networks share: the form of inputs and outputs, and the policy that their logits start from."""

from collections.abc import Mapping
from typing import ClassVar

import torch
from torch import Tensor, nn

from gpuyard.network.config import RULE_KINDS, NetworkConfig
from gpuyard.network.sizes import MISSING, NetworkSizes
from gpuyard.network.tensors import HOST_KINDS

Observation = Mapping[str, Tensor]
"""``jobs`` [B, K, F], ``nodes`` [B, N, G], ``globals`` [B, D] in the network's dtype and ``mask`` [B, A]."""

LEAST_REFUSAL = 1e-3
"""A rule's logit of a row that is legal but not admitted stays this far below the no-op's, as an exponent."""


class SchedulingNetwork(nn.Module):
    """Maps observations to logits of actions and values of states.

    A kind of network is a subclass registered as ``@register("network", name)`` that has the parameters of
    ``expected_tensors`` and tells its own logits and values in ``correction``.

    Attributes:
        config: Its settings.
        sizes: Of the environment it acts in.
    """

    unrectified: ClassVar[frozenset[str]] = frozenset()
    """Linear layers, by the first part of their names, that no ReLU follows; apart from outputs."""

    def __init__(self, config: NetworkConfig, sizes: NetworkSizes) -> None:
        super().__init__()
        self.config = config
        self.sizes = sizes
        if config.residual == "rule":
            self.rule = FrozenRule(sizes)

    @property
    def inputs(self) -> tuple[str, ...]:
        """Parts of the observation that it looks at."""
        nodes = self.config.kind not in ("job-scorer", *RULE_KINDS)
        return ("jobs", "nodes", "globals", "mask") if nodes else ("jobs", "globals", "mask")

    def correction(self, observation: Observation) -> tuple[Tensor, Tensor]:
        """Logits [B, A] that are added to those of the residual's policy, and values [B]."""
        raise NotImplementedError

    def fix_weights(self) -> None:
        """Compute once what follows from the weights alone; for weights that will not change any more."""

    def forward(self, observation: Observation) -> tuple[Tensor, Tensor]:
        """Logits [B, A], those of illegal actions meaning nothing (``masked_logits``), and values [B]."""
        logits, value = self.correction(observation)
        if self.config.residual == "base":
            logits = logits + self.config.strength * base_choices(observation, self.sizes)
        elif self.config.residual == "rule":
            logits = logits + rule_logits(self.rule, observation, self.sizes, self.config.strength)
        return logits, value


class FrozenLinear(nn.Module):
    """The tensors of a linear layer that is not trained."""

    def __init__(self, inputs: int, outputs: int, *, bias: bool) -> None:
        super().__init__()
        self.register_buffer("weight", torch.zeros(outputs, inputs))
        self.register_buffer("bias", torch.zeros(outputs) if bias else None)


class FrozenRule(nn.Module):
    """A searched rule that a residual starts from."""

    def __init__(self, sizes: NetworkSizes) -> None:
        super().__init__()
        self.score = FrozenLinear(sizes.job_columns, 1, bias=False)
        self.gate_jobs = FrozenLinear(sizes.job_columns, 1, bias=True)
        if sizes.global_columns:
            self.gate_globals = FrozenLinear(sizes.global_columns, 1, bias=False)


def rule_logits(rule: nn.Module, observation: Observation, sizes: NetworkSizes, strength: float) -> Tensor:
    """Logits [B, A] whose largest is the best-scored row that the gate admits, else the no-op.

    Args:
        rule: Holds the linear layers ``score``, ``gate_jobs`` and, unless there are no globals,
            ``gate_globals``; one whose weights depend on the state also ``score_state`` and ``gate_state``.
        observation: Of an environment that selects jobs.
        sizes: Of that environment.
        strength: The logit of the no-op; the best row's is twice as large.
    """
    jobs, overall = observation["jobs"], observation["globals"]
    legal = observation["mask"][:, :-1] != 0
    scores = _by_state(rule, "score", "score_state", jobs, overall)
    gate = _by_state(rule, "gate_jobs", "gate_state", jobs, overall) + _tensor(rule, "gate_jobs.bias")
    if sizes.global_columns:
        gate = gate + nn.functional.linear(overall, _tensor(rule, "gate_globals.weight"))
    open_ = gate >= 0
    if sizes.running != MISSING:
        open_ = open_ | (overall[:, sizes.running, None] == 0)
    admitted = legal & open_
    lowest = torch.finfo(scores.dtype).min
    best = scores.masked_fill(~admitted, lowest).amax(1, keepdim=True)
    below_best = torch.where(admitted, scores - best, 0.0)  # kept finite, so that gradients are
    rows = torch.where(admitted, 1 + below_best.exp(), gate.clamp(max=-LEAST_REFUSAL).exp())
    return strength * torch.cat([rows, torch.ones_like(rows[:, :1])], 1)


def _by_state(rule: nn.Module, layer: str, leaning: str, jobs: Tensor, overall: Tensor) -> Tensor:
    """A linear layer of rows [B, K], its weights moved by the state if the rule has a layer for that."""
    weight = _tensor(rule, f"{layer}.weight")
    if not hasattr(rule, leaning):
        return nn.functional.linear(jobs, weight).squeeze(-1)
    weights = nn.functional.linear(overall, _tensor(rule, f"{leaning}.weight"), weight[0])
    return torch.matmul(jobs, weights.unsqueeze(-1)).squeeze(-1)


def base_choices(observation: Observation, sizes: NetworkSizes) -> Tensor:
    """1 where an action [B, A] is what the base policy does, else 0."""
    jobs, overall = observation["jobs"], observation["globals"]
    if sizes.kind in HOST_KINDS:
        return observation["nodes"][:, :, sizes.node_base_choice]
    if sizes.kind == "accept-or-skip":
        skip = torch.zeros_like(jobs[:, 0, :1])
        return torch.cat([skip, skip + 1], 1)
    rows = jobs[:, :, sizes.job_base_choice]
    if sizes.kind == "select-job-and-pool":
        pools = overall[:, None, sizes.base_pool : sizes.base_pool + sizes.pools]
        rows = (rows[:, :, None] * pools).flatten(1)
    return torch.cat([rows, overall[:, sizes.base_waits, None]], 1)


def present_rows(rows: Tensor, column: int) -> Tensor:
    """1 where a row [B, R] of ``jobs`` or ``nodes`` [B, R, F] stands for something, else 0.

    Args:
        rows: The part of the observation.
        column: The one that tells; if MISSING, rows of zeros are absent.
    """
    present = (rows != 0).any(-1) if column == MISSING else rows[:, :, column] != 0
    return present.to(rows.dtype)


def actions_of_rows(scores: Tensor, noop: Tensor, observation: Observation, sizes: NetworkSizes) -> Tensor:
    """Logits [B, A] out of those of rows [B, K, P] and of the no-op [B, 1]."""
    if sizes.kind != "accept-or-skip":
        return torch.cat([scores.flatten(1), noop], 1)
    jobs = observation["jobs"]
    offered = jobs[:, :, sizes.job_base_choice] * present_rows(jobs, sizes.job_present)
    return torch.cat([noop, (offered * scores.squeeze(-1)).sum(1, keepdim=True)], 1)


def linear(inputs: int, outputs: int, *, bias: bool = True) -> nn.Linear:
    """A linear layer whose tensors are yet to be filled."""
    return nn.Linear(inputs, outputs, bias=bias, device="meta").to_empty(device="cpu")


def _tensor(module: nn.Module, name: str) -> Tensor:
    holder, _, attribute = name.rpartition(".")
    tensor: Tensor = getattr(module.get_submodule(holder), attribute)
    return tensor
