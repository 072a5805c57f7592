"""Networks in which jobs attend to nodes, and hosts are seen through attention.

Keys and values are linear in what they are made of, and the weights of attention sum up to 1. Both networks
use that: matrices that follow each other are multiplied before they meet the batch, so that attention runs
over the few columns of the observation (or once a state) instead of over the width. Results are those of the
definition in docs/contract/networks.md but for rounding.
"""

import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn.functional import linear as apply_linear
from torch.nn.functional import pad

from gpuyard.learn.networks.base import (
    Observation,
    SchedulingNetwork,
    actions_of_rows,
    linear,
    present_rows,
)
from gpuyard.learn.networks.row_layers import HIDING, rectified_rows, rows_and_one_more
from gpuyard.network.config import NetworkConfig
from gpuyard.network.sizes import NetworkSizes
from gpuyard.registry import register

COLUMNS_AT_ONCE = 16
"""Small matrix products are fastest at multiples of this."""


@register("network", "cross-attention")
class CrossAttention(SchedulingNetwork):
    """Jobs, and a token that stands for the no-op, attend to nodes."""

    unrectified = frozenset(
        {"encode_jobs", "encode_nodes", "encode_globals", "query", "key", "value_proj", "out", "pool", "down"}
    )
    query: Sequence[nn.Linear]  # of every layer
    key: Sequence[nn.Linear]
    value_proj: Sequence[nn.Linear]
    out: Sequence[nn.Linear]
    pool: Sequence[nn.Linear]
    up: Sequence[nn.Linear]
    down: Sequence[nn.Linear]
    norm: Sequence[nn.LayerNorm]
    norm2: Sequence[nn.LayerNorm]

    def __init__(self, config: NetworkConfig, sizes: NetworkSizes) -> None:
        super().__init__(config, sizes)
        width, layers = config.width, range(config.depth)
        self._fixed: list[tuple[Tensor, Tensor, Tensor]] = []
        self.columns = math.ceil((sizes.node_columns + 2) / COLUMNS_AT_ONCE) * COLUMNS_AT_ONCE
        self.noop_token = nn.Parameter(torch.zeros(width))
        self.encode_jobs = linear(sizes.job_columns, width)
        self.encode_nodes = linear(sizes.node_columns, width)
        if sizes.global_columns:
            self.encode_globals = linear(sizes.global_columns, width)
        for name in ("query", "key", "value_proj", "out", "pool"):
            self.add_module(name, nn.ModuleList(linear(width, width) for _ in layers))
        for name in ("norm", "norm2"):
            self.add_module(name, nn.ModuleList(nn.LayerNorm(width) for _ in layers))
        self.add_module("up", nn.ModuleList(linear(width, 2 * width) for _ in layers))
        self.add_module("down", nn.ModuleList(linear(2 * width, width) for _ in layers))
        self.policy = linear(width, sizes.choices_per_row)
        self.noop = linear(width, 1)
        self.value_hidden = linear(2 * width, width)
        self.value = linear(width, 1)

    def correction(self, observation: Observation) -> tuple[Tensor, Tensor]:
        """Logits of the jobs' tokens and the no-op's, and values by the no-op's token and the mean of all."""
        jobs = observation["jobs"]
        nodes = self._node_table(observation["nodes"])
        picks = self._mean_and_last(jobs)
        noop = self.noop_token.expand(jobs.shape[0], -1)
        if self.sizes.global_columns:
            noop = noop + self.encode_globals(observation["globals"])
        tokens = rows_and_one_more(jobs, self.encode_jobs, noop)
        for layer in range(self.config.depth):
            tokens = self._attend(layer, tokens, nodes)
            mean = torch.bmm(picks[:, :1], tokens).squeeze(1)
            shared = apply_linear(self.pool[layer](mean), self.up[layer].weight)
            hidden = rectified_rows(self.norm2[layer](tokens), self.up[layer], shared=shared)
            tokens = _added(tokens, hidden, self.down[layer].weight, self.down[layer].bias)
        state = torch.bmm(picks, tokens)
        rows = self.policy(tokens)[:, :-1]
        logits = actions_of_rows(rows, self.noop(state[:, 1]), observation, self.sizes)
        value = self.value(self.value_hidden(state.flatten(1)).relu_())
        return logits, value.squeeze(-1)

    def fix_weights(self) -> None:
        """Join matrices once."""
        self._fixed = [self._joined_weights(layer) for layer in range(self.config.depth)]

    def _mean_and_last(self, jobs: Tensor) -> Tensor:
        """Weights [B, 2, T] that make of tokens their mean, absent ones left out, and the last of them."""
        present = present_rows(jobs, self.sizes.job_present)
        one = torch.ones_like(present[:, :1])
        last = torch.cat([torch.zeros_like(present), one], 1)
        present = torch.cat([present, one], 1)
        return torch.stack([present / present.sum(1, keepdim=True), last], 1)

    def _node_table(self, nodes: Tensor) -> Tensor:
        """Nodes [B, N, C]: their G columns, 1, 0 and zeros; G zeros, 0, -HIDING and zeros if absent."""
        present = present_rows(nodes, self.sizes.node_present)[:, :, None]
        unused = torch.zeros_like(present).expand(-1, -1, self.columns - self.sizes.node_columns - 2)
        return torch.cat([nodes * present, present, (present - 1) * HIDING, unused], 2)

    def _attend(self, layer: int, tokens: Tensor, nodes: Tensor) -> Tensor:
        """Tokens [B, T, W] and what they draw from nodes; every head is further rows of queries."""
        batch, count, _ = tokens.shape
        query_weight, query_bias, out_weight = (
            self._fixed[layer] if self._fixed else self._joined_weights(layer)
        )
        queries = apply_linear(self.norm[layer](tokens), query_weight, query_bias)
        queries = queries.view(batch, count * self.config.heads, -1)
        weights = torch.bmm(queries, nodes.transpose(1, 2)).softmax(-1)
        drawn = torch.bmm(weights, nodes).view(batch, count, -1)
        return _added(tokens, drawn, out_weight, self.out[layer].bias)

    def _joined_weights(self, layer: int) -> tuple[Tensor, Tensor, Tensor]:
        """Weights and biases of queries against rows of ``_node_table``, and weights of outputs from them."""
        query, key, value, out = (part[layer] for part in (self.query, self.key, self.value_proj, self.out))
        heads, width = self.config.heads, self.config.width
        encode = torch.cat([self.encode_nodes.weight, self.encode_nodes.bias[:, None]], 1)  # [W, G + 1]
        at_one = (self.sizes.node_columns, 0)  # biases stand in the column of 1
        keys = (key.weight @ encode + pad(key.bias[:, None], at_one)).view(heads, width // heads, -1)
        keys = keys.transpose(1, 2) / math.sqrt(width // heads)  # [H, G + 1, W / H]
        query_weight = keys @ query.weight.view(heads, width // heads, width)
        query_bias = (keys @ query.bias.view(heads, -1, 1)).squeeze(-1)
        values = (value.weight @ encode + pad(value.bias[:, None], at_one)).view(heads, width // heads, -1)
        out_weight = out.weight.view(width, heads, -1).transpose(0, 1) @ values  # [H, W, G + 1]
        unused = self.columns - self.sizes.node_columns - 1
        query_bias = pad(pad(query_bias, (0, 1), value=1.0), (0, unused - 1))  # -HIDING counts in full
        return (
            pad(query_weight, (0, 0, 0, unused)).view(-1, width),
            query_bias.view(-1),
            pad(out_weight, (0, unused)).transpose(0, 1).reshape(width, -1),
        )


def _added(rows: Tensor, inputs: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """Rows [B, R, W] plus a linear layer of inputs [B, R, I]."""
    flat = torch.addmm(rows.flatten(0, 1), inputs.flatten(0, 1), weight.t())
    return flat.add_(bias).view(rows.shape)


@register("network", "host-attention")
class HostAttention(SchedulingNetwork):
    """One scorer shared by all hosts, however many, that sees the job and the hosts as the job does."""

    unrectified = frozenset({"query", "key", "attended"})
    encode_nodes: Sequence[nn.Linear]
    encode_job: Sequence[nn.Linear]
    query: nn.Linear
    key: nn.Linear
    attended: nn.Linear
    host_hidden: nn.Linear
    job_hidden: nn.Linear
    state_hidden: nn.Linear

    def __init__(self, config: NetworkConfig, sizes: NetworkSizes) -> None:
        super().__init__(config, sizes)
        width = config.width
        for name, inputs in (
            ("encode_nodes", sizes.node_columns),
            ("encode_job", sizes.job_columns + sizes.global_columns),
        ):
            self.add_module(name, nn.ModuleList([linear(inputs, width), linear(width, width)]))
        for name in ("query", "key", "attended", "host_hidden"):
            self.add_module(name, linear(width, width))
        for name in ("job_hidden", "state_hidden"):
            self.add_module(name, linear(width, width, bias=False))
        self.policy = linear(width, 1)
        self.value_hidden = linear(2 * width, width)
        self.value = linear(width, 1)

    def correction(self, observation: Observation) -> tuple[Tensor, Tensor]:
        """Logits of hosts, and values by the job and what it draws from the hosts."""
        hosts = observation["nodes"]
        present = present_rows(hosts, self.sizes.node_present)
        for layer in self.encode_nodes:
            hosts = rectified_rows(hosts, layer)
        job = torch.cat([observation["jobs"][:, 0], observation["globals"]], 1)
        for layer in self.encode_job:
            job = layer(job).relu_()
        state = self._attended(job, hosts, present)
        shared = self.job_hidden(job) + self.state_hidden(state)
        hidden = rectified_rows(hosts, self.host_hidden, shared=shared)
        value = self.value(self.value_hidden(torch.cat([job, state], 1)).relu_())
        return self.policy(hidden).squeeze(-1), value.squeeze(-1)

    def _attended(self, job: Tensor, hosts: Tensor, present: Tensor) -> Tensor:
        """What the job draws from hosts [B, W]: one vector a state, so matrices meet it and not the hosts."""
        query = self.query(job) / math.sqrt(self.config.width)
        against_hosts = query @ self.key.weight
        offset = query @ self.key.bias
        scores = torch.bmm(hosts, against_hosts[:, :, None]).squeeze(-1) + offset[:, None]
        weights = (scores + (present - 1) * HIDING).softmax(1) * present
        drawn = torch.bmm(weights[:, None], hosts).squeeze(1)
        some = present.amax(1, keepdim=True)  # 0 where no host is present
        return apply_linear(drawn, self.attended.weight) + some * self.attended.bias
