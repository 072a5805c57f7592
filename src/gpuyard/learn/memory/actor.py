"""A network as it collects experience: its weights stay as they are for a while, and batches are small."""

import numpy as np
import torch
from torch import Tensor

from gpuyard.learn.algorithm import NotFiniteError
from gpuyard.learn.learner import to_tensors
from gpuyard.learn.memory.collector import Arrays
from gpuyard.learn.networks.heads import SchedulingNetwork
from gpuyard.network.config import RULE_KINDS
from gpuyard.network.rollout import native_network

COMPUTED_NATIVELY = ("job-scorer", *RULE_KINDS, "cross-attention", "host-attention")
"""Kinds whose forward pass on a few dozen states is quicker in the core, which skips absent rows."""


class Actor:
    """Logits and values of a network whose weights do not change any more.

    Args:
        network: Is not looked at again if it is computed natively.
        device: Where tensors live.

    Raises:
        NotFiniteError: if a weight is not a finite number.
    """

    def __init__(self, network: SchedulingNetwork, device: torch.device) -> None:
        self._network = network
        self._device = device
        self._native = None
        if device.type == "cpu" and network.config.kind in COMPUTED_NATIVELY:
            weights = {name: tensor.detach().numpy() for name, tensor in network.state_dict().items()}
            for name, values in weights.items():
                if not np.isfinite(values).all():
                    raise NotFiniteError("a weight", {"tensor": name})
            self._native = native_network(network.config, network.sizes, weights)

    @torch.no_grad()
    def __call__(self, observation: Arrays) -> tuple[Tensor, Tensor]:
        """Logits [B, A], those of illegal actions meaning nothing, and values [B]."""
        if self._native is None:
            logits, values = self._network(to_tensors(observation, self._device))
            return logits, values
        parts = (observation[name] for name in ("jobs", "nodes", "globals", "mask"))
        computed = self._native.forward_batch(*parts)
        return torch.from_numpy(computed[0]), torch.from_numpy(computed[1])
