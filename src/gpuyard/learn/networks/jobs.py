"""Networks without attention: one for any environment, one that scores jobs, and linear rules."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn.functional import linear as apply_linear

from gpuyard.learn.networks.base import (
    Observation,
    SchedulingNetwork,
    actions_of_rows,
    linear,
    present_rows,
    rule_logits,
)
from gpuyard.learn.networks.row_layers import mean_and_largest, rectified_rows
from gpuyard.network.config import NetworkConfig
from gpuyard.network.sizes import NetworkSizes
from gpuyard.registry import register


@register("network", "mlp")
class FlatNetwork(SchedulingNetwork):
    """All numbers of the observation into one row of hidden layers."""

    def __init__(self, config: NetworkConfig, sizes: NetworkSizes) -> None:
        super().__init__(config, sizes)
        inputs = sizes.rows * sizes.job_columns + sizes.tokens * sizes.node_columns + sizes.global_columns
        widths = [inputs] + config.depth * [config.width]
        self.hidden = nn.ModuleList(linear(widths[i], widths[i + 1]) for i in range(config.depth))
        self.policy = linear(config.width, sizes.actions)
        self.value = linear(config.width, 1)

    def correction(self, observation: Observation) -> tuple[Tensor, Tensor]:
        """Logits and values, both by the last hidden layer."""
        jobs, nodes = observation["jobs"], observation["nodes"]
        if self.sizes.job_present >= 0:  # else absent rows are zeros already
            jobs = jobs * present_rows(jobs, self.sizes.job_present)[:, :, None]
        if self.sizes.node_present >= 0:
            nodes = nodes * present_rows(nodes, self.sizes.node_present)[:, :, None]
        x = torch.cat([jobs.flatten(1), nodes.flatten(1), observation["globals"]], 1)
        for layer in self.hidden:
            x = layer(x).relu_()
        return self.policy(x), self.value(x).squeeze(-1)


@register("network", "job-scorer")
class JobScorer(SchedulingNetwork):
    """One scorer shared by all jobs, which sees a summary of all of them."""

    rows: Sequence[nn.Linear]

    def __init__(self, config: NetworkConfig, sizes: NetworkSizes) -> None:
        super().__init__(config, sizes)
        width = config.width
        self.encode_jobs = linear(sizes.job_columns, width)
        if sizes.global_columns:
            self.encode_globals = linear(sizes.global_columns, width)
        self.context = linear(3 * width, width)
        if config.depth > 1:
            self.add_module("rows", nn.ModuleList(linear(width, width) for _ in range(config.depth - 1)))
            self.rows_context = nn.ModuleList([linear(width, width, bias=False)])
        self.policy = linear(width, sizes.choices_per_row)
        self.noop = linear(width, 1)
        self.value_hidden = linear(width, width)
        self.value = linear(width, 1)

    def correction(self, observation: Observation) -> tuple[Tensor, Tensor]:
        """Logits of rows and of the no-op, and values by the summary."""
        jobs = observation["jobs"]
        present = present_rows(jobs, self.sizes.job_present)
        rows = rectified_rows(jobs, self.encode_jobs, present=present)
        context = self._context(rows, present, observation["globals"])
        shared = self.rows_context[0](context) if self.config.depth > 1 else None
        for layer in self.rows if self.config.depth > 1 else ():
            rows = rectified_rows(rows, layer, shared=shared)
            shared = None
        logits = actions_of_rows(self.policy(rows), self.noop(context), observation, self.sizes)
        value = self.value(self.value_hidden(context).relu_())
        return logits, value.squeeze(-1)

    def _context(self, rows: Tensor, present: Tensor, overall: Tensor) -> Tensor:
        shares = present / present.sum(1, keepdim=True).clamp(min=1)
        mean, largest = mean_and_largest(rows, shares)
        if self.sizes.global_columns:
            state = torch.cat([mean, largest, self.encode_globals(overall).relu_()], 1)
            return apply_linear(state, self.context.weight, self.context.bias).relu_()
        weight = self.context.weight[:, : 2 * self.config.width]
        return apply_linear(torch.cat([mean, largest], 1), weight, self.context.bias).relu_()


@register("network", "rule")
class Rule(SchedulingNetwork):
    """A linear score and a linear admission gate: what search tunes."""

    def __init__(self, config: NetworkConfig, sizes: NetworkSizes) -> None:
        super().__init__(config, sizes)
        self.score = linear(sizes.job_columns, 1, bias=False)
        self.gate_jobs = linear(sizes.job_columns, 1)
        if sizes.global_columns:
            self.gate_globals = linear(sizes.global_columns, 1, bias=False)

    def correction(self, observation: Observation) -> tuple[Tensor, Tensor]:
        """Logits by score and gate; values are 0."""
        logits = rule_logits(self, observation, self.sizes, self.config.strength)
        return logits, torch.zeros_like(logits[:, 0])


@register("network", "state-rule")
class StateRule(Rule):
    """A rule whose weights depend on the state of the whole cluster: one order by day, another at night."""

    def __init__(self, config: NetworkConfig, sizes: NetworkSizes) -> None:
        super().__init__(config, sizes)
        self.score_state = linear(sizes.global_columns, sizes.job_columns, bias=False)
        self.gate_state = linear(sizes.global_columns, sizes.job_columns, bias=False)
