"""Networks of docs/contract/networks.md as torch modules, and what algorithms do with their logits.

    network = make_network(NetworkConfig(kind="job-scorer", residual="base"), NetworkSizes.of(env.model))
    logits, value = network(observation)
    log_probabilities = masked_logits(logits, observation["mask"]).log_softmax(-1)

A newcomer is a subclass of ``SchedulingNetwork`` under ``@register("network", name)``, its tensors listed in
``gpuyard.network.tensors``; tests over the registry then hold it to what the others keep.
"""

import math
from collections.abc import Mapping

import torch
from torch import Tensor, nn

from gpuyard.errors import InputError
from gpuyard.learn.networks import attention, jobs  # noqa: F401 (register their networks)
from gpuyard.learn.networks.base import Observation, SchedulingNetwork
from gpuyard.network.config import RULE_KINDS, NetworkConfig
from gpuyard.network.sizes import NetworkSizes
from gpuyard.network.tensors import HOST_KINDS, check_suits
from gpuyard.registry import lookup

__all__ = ["Observation", "SchedulingNetwork", "dueling", "make_network", "masked_logits"]

POLICY_OUTPUTS = ("policy", "noop")
POLICY_GAIN = 0.01
"""Of untrained outputs: nearly uniform, so that exploration is."""
TOKEN_DEVIATION = 0.02


def make_network(
    config: NetworkConfig,
    sizes: NetworkSizes,
    *,
    seed: int | None = None,
    rule: Mapping[str, Tensor] | None = None,
) -> SchedulingNetwork:
    """An untrained network.

    Args:
        config: What it is made of.
        sizes: Of the environment it is to act in.
        seed: Of its weights; without one they are drawn from torch's global generator.
        rule: Tensors of a rule, by their names in a network of kind ``rule``: what a residual starts from,
            or what the network is if its kind is ``rule``. Without it a rule starts the first legal row.

    Raises:
        InputError: if the network does not go with the environment, or the rule not with the network.
    """
    check_suits(config, sizes)
    if sizes.kind in HOST_KINDS and sizes.tokens != sizes.actions:
        raise InputError(
            f"{sizes.kind} has {sizes.actions} hosts but its observation {sizes.tokens} rows of nodes; "
            "networks that choose hosts need tokens = 'nodes'"
        )
    network: SchedulingNetwork = lookup("network", config.kind)(config, sizes)
    _initialise(network, None if seed is None else torch.Generator().manual_seed(seed))
    if rule is not None:
        _take_rule(network, rule)
    return network


def masked_logits(logits: Tensor, mask: Tensor) -> Tensor:
    """Logits with those of illegal actions (mask 0) set to the lowest number of the dtype.

    Softmax makes of them probabilities of exactly 0, without a gradient. They are finite, so that nothing
    becomes NaN: neither probability times logarithm, nor a row without any legal action.
    """
    return logits.masked_fill(mask == 0, torch.finfo(logits.dtype).min)


def dueling(logits: Tensor, value: Tensor, mask: Tensor) -> Tensor:
    """Values of actions [B, A]: the state's value and by how much each is better than the mean legal one.

    Those of illegal actions mean nothing.
    """
    legal = (mask != 0).to(logits.dtype)
    mean = (logits * legal).sum(-1, keepdim=True) / legal.sum(-1, keepdim=True).clamp(min=1)
    return logits + (value.unsqueeze(-1) - mean)


def _initialise(network: SchedulingNetwork, generator: torch.Generator | None) -> None:
    """Orthogonal matrices and biases of 0; zeros where an untrained network is to leave a policy as it is."""
    for name, module in network.named_modules():
        if isinstance(module, nn.Linear):
            gain = _gain(network, name.split(".")[0])
            if gain:
                nn.init.orthogonal_(module.weight, gain, generator=generator)
            else:
                nn.init.zeros_(module.weight)
            if module.bias is not None:
                nn.init.zeros_(module.bias)
    for name, parameter in network.named_parameters(recurse=False):
        if name.endswith("_token"):
            nn.init.normal_(parameter, std=TOKEN_DEVIATION, generator=generator)


def _gain(network: SchedulingNetwork, layer: str) -> float:
    if network.config.kind in RULE_KINDS:
        return 0.0
    if layer in POLICY_OUTPUTS:
        return POLICY_GAIN if network.config.residual == "none" else 0.0
    return 1.0 if layer == "value" or layer in network.unrectified else math.sqrt(2)


def _take_rule(network: SchedulingNetwork, rule: Mapping[str, Tensor]) -> None:
    if network.config.residual != "rule" and network.config.kind not in RULE_KINDS:
        raise InputError("a rule was given to a network that starts from none; set residual = 'rule'")
    holder = network.rule if network.config.residual == "rule" else network
    own = {name: tensor for name, tensor in holder.state_dict().items() if "_state." not in name}
    given = {name: torch.as_tensor(tensor) for name, tensor in rule.items()}
    if own.keys() != given.keys():
        raise InputError(
            f"a rule has the tensors {', '.join(own)}, but {', '.join(given) or 'none'} were given"
        )
    for name, tensor in given.items():
        if tensor.shape != own[name].shape:
            raise InputError(
                f"tensor {name} of the rule has shape {tuple(tensor.shape)}, but the environment asks for "
                f"{tuple(own[name].shape)}; use a rule found in an environment with the same features"
            )
    holder.load_state_dict(given, strict=False)
