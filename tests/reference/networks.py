"""Networks as docs/contract/networks.md defines them: numpy in float64, one state at a time."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gpuyard.network.config import NetworkConfig
from gpuyard.network.sizes import NetworkSizes

Array = NDArray[Any]


class ReferenceNetwork:
    """A network over tensors by name."""

    def __init__(self, config: NetworkConfig, sizes: NetworkSizes, tensors: Mapping[str, Array]) -> None:
        self.config = config
        self.sizes = sizes
        self.tensors = {name: np.asarray(values, np.float64) for name, values in tensors.items()}

    def forward(self, jobs: Array, nodes: Array, overall: Array, mask: Array) -> tuple[Array, float]:
        """Logits of all actions, those of illegal ones meaning nothing, and the value."""
        jobs, nodes, overall = (np.asarray(part, np.float64) for part in (jobs, nodes, overall))
        by_kind = {
            "mlp": self._mlp,
            "job-scorer": self._job_scorer,
            "cross-attention": self._cross_attention,
            "host-attention": self._host_attention,
            "rule": lambda *parts: (self._rule("", *parts), 0.0),
            "state-rule": lambda *parts: (self._rule("", *parts), 0.0),
        }
        logits, value = by_kind[self.config.kind](jobs, nodes, overall, mask)
        if self.config.residual == "base":
            logits = logits + self.config.strength * self._base(jobs, nodes, overall)
        elif self.config.residual == "rule":
            logits = logits + self._rule("rule.", jobs, nodes, overall, mask)
        return logits, float(value)

    def _linear(self, name: str, x: Array) -> Array:
        y = x @ self.tensors[f"{name}.weight"].T
        return y + self.tensors[f"{name}.bias"] if f"{name}.bias" in self.tensors else y

    def _norm(self, name: str, x: Array) -> Array:
        scaled = (x - x.mean(1, keepdims=True)) / np.sqrt(x.var(1, keepdims=True) + 1e-5)
        return scaled * self.tensors[f"{name}.weight"] + self.tensors[f"{name}.bias"]

    def _actions(self, scores: Array, noop: Array, jobs: Array) -> Array:
        if self.sizes.kind != "accept-or-skip":
            return np.concatenate([scores.ravel(), noop])
        offered = jobs[:, self.sizes.job_base_choice] * present(jobs, self.sizes.job_present)
        return np.concatenate([noop, [(offered * scores[:, 0]).sum()]])

    def _mlp(self, jobs: Array, nodes: Array, overall: Array, mask: Array) -> tuple[Array, float]:
        jobs = jobs * present(jobs, self.sizes.job_present)[:, None]
        nodes = nodes * present(nodes, self.sizes.node_present)[:, None]
        x = np.concatenate([jobs.ravel(), nodes.ravel(), overall])
        for layer in range(self.config.depth):
            x = relu(self._linear(f"hidden.{layer}", x))
        return self._linear("policy", x), self._linear("value", x)[0]

    def _job_scorer(self, jobs: Array, nodes: Array, overall: Array, mask: Array) -> tuple[Array, float]:
        rows = relu(self._linear("encode_jobs", jobs))
        there = rows[present(jobs, self.sizes.job_present)]
        none = np.zeros(self.config.width)
        mean, largest = (there.mean(0), there.max(0)) if len(there) else (none, none)
        seen = relu(self._linear("encode_globals", overall)) if len(overall) else none
        context = relu(self._linear("context", np.concatenate([mean, largest, seen])))
        for layer in range(self.config.depth - 1):
            rows = self._linear(f"rows.{layer}", rows)
            rows = relu(rows + self._linear("rows_context.0", context) if layer == 0 else rows)
        logits = self._actions(self._linear("policy", rows), self._linear("noop", context), jobs)
        return logits, self._linear("value", relu(self._linear("value_hidden", context)))[0]

    def _cross_attention(self, jobs: Array, nodes: Array, overall: Array, mask: Array) -> tuple[Array, float]:
        noop = self.tensors["noop_token"] + (self._linear("encode_globals", overall) if len(overall) else 0.0)
        tokens = np.vstack([self._linear("encode_jobs", jobs), noop])
        counts = np.append(present(jobs, self.sizes.job_present), True)
        seen = self._linear("encode_nodes", nodes[present(nodes, self.sizes.node_present)])
        for i in range(self.config.depth):
            tokens = tokens + self._linear(
                f"out.{i}", self._attention(i, self._norm(f"norm.{i}", tokens), seen)
            )
            shared = self._linear(f"pool.{i}", tokens[counts].mean(0))
            raised = relu(self._linear(f"up.{i}", self._norm(f"norm2.{i}", tokens) + shared))
            tokens = tokens + self._linear(f"down.{i}", raised)
        state = np.concatenate([tokens[counts].mean(0), tokens[-1]])
        logits = self._actions(self._linear("policy", tokens[:-1]), self._linear("noop", tokens[-1]), jobs)
        return logits, self._linear("value", relu(self._linear("value_hidden", state)))[0]

    def _attention(self, layer: int, tokens: Array, nodes: Array) -> Array:
        out = np.zeros_like(tokens)
        if not len(nodes):
            return out
        query, key, value = (
            self._linear(f"{name}.{layer}", x)
            for name, x in (("query", tokens), ("key", nodes), ("value_proj", nodes))
        )
        width = self.config.width // self.config.heads
        for head in range(self.config.heads):
            own = slice(head * width, (head + 1) * width)
            out[:, own] = softmax(query[:, own] @ key[:, own].T / np.sqrt(width)) @ value[:, own]
        return out

    def _host_attention(self, jobs: Array, nodes: Array, overall: Array, mask: Array) -> tuple[Array, float]:
        hosts, job = nodes, np.concatenate([jobs[0], overall])
        for layer in range(2):
            hosts = relu(self._linear(f"encode_nodes.{layer}", hosts))
            job = relu(self._linear(f"encode_job.{layer}", job))
        there = hosts[present(nodes, self.sizes.node_present)]
        state = np.zeros(self.config.width)
        if len(there):
            scores = self._linear("key", there) @ self._linear("query", job) / np.sqrt(self.config.width)
            state = softmax(scores[None])[0] @ self._linear("attended", there)
        shared = self._linear("job_hidden", job) + self._linear("state_hidden", state)
        logits = self._linear("policy", relu(self._linear("host_hidden", hosts) + shared))[:, 0]
        hidden = relu(self._linear("value_hidden", np.concatenate([job, state])))
        return logits, self._linear("value", hidden)[0]

    def _rule(self, prefix: str, jobs: Array, nodes: Array, overall: Array, mask: Array) -> Array:
        strength = self.config.strength
        score = self._linear(f"{prefix}score", jobs)[:, 0]
        gate = self._linear(f"{prefix}gate_jobs", jobs)[:, 0]
        if self.config.kind == "state-rule":
            score = score + jobs @ self.tensors["score_state.weight"] @ overall
            gate = gate + jobs @ self.tensors["gate_state.weight"] @ overall
        if len(overall):
            gate = gate + self._linear(f"{prefix}gate_globals", overall)[0]
        idle = self.sizes.running >= 0 and overall[self.sizes.running] == 0
        admitted = (mask[:-1] != 0) & ((gate >= 0) | idle)
        best = score[admitted].max() if admitted.any() else 0.0
        rows = strength * np.exp(np.minimum(gate, -1e-3))
        rows[admitted] = strength * (1 + np.exp(score[admitted] - best))
        return np.append(rows, strength)

    def _base(self, jobs: Array, nodes: Array, overall: Array) -> Array:
        sizes = self.sizes
        if sizes.kind == "accept-or-skip":
            return np.array([0.0, 1.0])
        if not sizes.kind.startswith("select-job"):
            return nodes[:, sizes.node_base_choice]
        rows = jobs[:, sizes.job_base_choice]
        if sizes.kind == "select-job-and-pool":
            rows = np.outer(rows, overall[sizes.base_pool : sizes.base_pool + sizes.pools]).ravel()
        return np.append(rows, overall[sizes.base_waits])


def relu(x: Array) -> Array:
    """What is not negative."""
    return np.maximum(x, 0.0)


def softmax(x: Array) -> Array:
    """Of each row."""
    powers = np.exp(x - x.max(1, keepdims=True))
    return powers / powers.sum(1, keepdims=True)


def present(rows: Array, column: int) -> Array:
    """Whether rows stand for something."""
    return (rows != 0).any(1) if column < 0 else rows[:, column] != 0
