"""Names and shapes of a network's tensors, by its settings (docs/contract/networks.md)."""

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from gpuyard.errors import InputError
from gpuyard.network.config import RULE_KINDS, NetworkConfig
from gpuyard.network.sizes import MISSING, NetworkSizes

Shapes = dict[str, tuple[int, ...]]
HOST_KINDS = ("select-host", "rank-hosts")


def expected_tensors(config: NetworkConfig, sizes: NetworkSizes) -> Shapes:
    """The tensors of a network.

    Raises:
        InputError: if the network does not go with the environment.
    """
    check_suits(config, sizes)
    shapes = _BY_KIND[config.kind](config, sizes)
    if config.residual == "rule":
        shapes |= {f"rule.{name}": shape for name, shape in _rule(config, sizes).items()}
    return shapes


def check_tensors(
    config: NetworkConfig, sizes: NetworkSizes, tensors: Mapping[str, NDArray[np.float32]]
) -> None:
    """Raise an InputError unless these are the tensors of such a network, all of them finite numbers."""
    shapes = expected_tensors(config, sizes)
    for name, shape in shapes.items():
        if name not in tensors:
            raise InputError(f"network {config.kind}: tensor {name} is missing")
        found = tuple(tensors[name].shape)
        if found != shape:
            raise InputError(
                f"network {config.kind}: tensor {name} has shape {list(found)}; expected {list(shape)}"
            )
        if not np.isfinite(tensors[name]).all():
            raise InputError(f"network {config.kind}: tensor {name} holds numbers that are not finite")
    unknown = sorted(set(tensors) - set(shapes))
    if unknown:
        raise InputError(f"network {config.kind}: it has no tensor {unknown[0]}")


def check_suits(config: NetworkConfig, sizes: NetworkSizes) -> None:
    """Raise an InputError unless the network can act in an environment of these sizes."""
    hosts = sizes.kind in HOST_KINDS
    if (config.kind == "host-attention") != hosts and config.kind != "mlp":
        other = "host-attention or mlp" if hosts else "job-scorer, cross-attention or mlp"
        raise InputError(f"network {config.kind} is not for {sizes.kind}; use {other}")
    if (config.kind in RULE_KINDS or config.residual == "rule") and sizes.kind != "select-job":
        raise InputError(f"a rule chooses among jobs, which {sizes.kind} does not; use residual = 'base'")
    if config.kind == "state-rule" and not sizes.global_columns:
        raise InputError(
            "the weights of a state-rule depend on columns of globals, but the environment has none; add "
            "some to its global_features, or use network.kind = 'rule'"
        )
    for column, number, needed in (
        ("base_choice", sizes.job_base_choice, _needs_job_choice(config, sizes)),
        ("base_choice", sizes.node_base_choice, hosts and config.residual == "base"),
        ("base_waits", sizes.base_waits, sizes.kind.startswith("select-job") and config.residual == "base"),
        ("base_pool", sizes.base_pool, sizes.kind == "select-job-and-pool" and config.residual == "base"),
    ):
        if needed and number == MISSING:
            raise InputError(
                f"network {config.kind} with residual {config.residual!r} needs column {column}, which is "
                "not among the features of the environment; add it, or leave the features out to have all"
            )


def _needs_job_choice(config: NetworkConfig, sizes: NetworkSizes) -> bool:
    if sizes.kind == "accept-or-skip":
        return config.kind in ("job-scorer", "cross-attention")
    return sizes.kind.startswith("select-job") and config.residual == "base"


def _linear(name: str, inputs: int, outputs: int, *, bias: bool = True) -> Shapes:
    shapes: Shapes = {f"{name}.weight": (outputs, inputs)}
    if bias:
        shapes[f"{name}.bias"] = (outputs,)
    return shapes


def _norm(name: str, width: int) -> Shapes:
    return {f"{name}.weight": (width,), f"{name}.bias": (width,)}


def _mlp(config: NetworkConfig, sizes: NetworkSizes) -> Shapes:
    inputs = sizes.rows * sizes.job_columns + sizes.tokens * sizes.node_columns + sizes.global_columns
    shapes: Shapes = {}
    for layer in range(config.depth):
        shapes |= _linear(f"hidden.{layer}", inputs if layer == 0 else config.width, config.width)
    return shapes | _linear("policy", config.width, sizes.actions) | _linear("value", config.width, 1)


def _job_scorer(config: NetworkConfig, sizes: NetworkSizes) -> Shapes:
    width = config.width
    shapes = _linear("encode_jobs", sizes.job_columns, width)
    if sizes.global_columns:
        shapes |= _linear("encode_globals", sizes.global_columns, width)
    shapes |= _linear("context", 3 * width, width)
    for layer in range(config.depth - 1):
        shapes |= _linear(f"rows.{layer}", width, width)
    if config.depth > 1:
        shapes |= _linear("rows_context.0", width, width, bias=False)
    return (
        shapes
        | _linear("policy", width, sizes.choices_per_row)
        | _linear("noop", width, 1)
        | _linear("value_hidden", width, width)
        | _linear("value", width, 1)
    )


def _cross_attention(config: NetworkConfig, sizes: NetworkSizes) -> Shapes:
    width = config.width
    shapes: Shapes = {"noop_token": (width,)}
    shapes |= _linear("encode_jobs", sizes.job_columns, width)
    shapes |= _linear("encode_nodes", sizes.node_columns, width)
    if sizes.global_columns:
        shapes |= _linear("encode_globals", sizes.global_columns, width)
    for layer in range(config.depth):
        for name in ("query", "key", "value_proj", "out", "pool"):
            shapes |= _linear(f"{name}.{layer}", width, width)
        shapes |= _norm(f"norm.{layer}", width) | _norm(f"norm2.{layer}", width)
        shapes |= _linear(f"up.{layer}", width, 2 * width) | _linear(f"down.{layer}", 2 * width, width)
    return (
        shapes
        | _linear("policy", width, sizes.choices_per_row)
        | _linear("noop", width, 1)
        | _linear("value_hidden", 2 * width, width)
        | _linear("value", width, 1)
    )


def _host_attention(config: NetworkConfig, sizes: NetworkSizes) -> Shapes:
    width = config.width
    shapes = _linear("encode_nodes.0", sizes.node_columns, width) | _linear("encode_nodes.1", width, width)
    shapes |= _linear("encode_job.0", sizes.job_columns + sizes.global_columns, width)
    shapes |= _linear("encode_job.1", width, width)
    for name in ("query", "key", "attended", "host_hidden"):
        shapes |= _linear(name, width, width)
    for name in ("job_hidden", "state_hidden"):
        shapes |= _linear(name, width, width, bias=False)
    return (
        shapes
        | _linear("policy", width, 1)
        | _linear("value_hidden", 2 * width, width)
        | _linear("value", width, 1)
    )


def _rule(config: NetworkConfig, sizes: NetworkSizes) -> Shapes:
    shapes = _linear("score", sizes.job_columns, 1, bias=False) | _linear("gate_jobs", sizes.job_columns, 1)
    if sizes.global_columns:
        shapes |= _linear("gate_globals", sizes.global_columns, 1, bias=False)
    return shapes


def _state_rule(config: NetworkConfig, sizes: NetworkSizes) -> Shapes:
    leaning = {
        f"{name}_state.weight": (sizes.job_columns, sizes.global_columns) for name in ("score", "gate")
    }
    return _rule(config, sizes) | leaning


_BY_KIND = {
    "mlp": _mlp,
    "job-scorer": _job_scorer,
    "cross-attention": _cross_attention,
    "host-attention": _host_attention,
    "rule": _rule,
    "state-rule": _state_rule,
}
