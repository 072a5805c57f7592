"""The networks of docs/contract/networks.md as torch modules. Only training imports them."""

from gpuyard.learn.networks.base import Observation, SchedulingNetwork
from gpuyard.learn.networks.heads import dueling, make_network, masked_logits

__all__ = ["Observation", "SchedulingNetwork", "dueling", "make_network", "masked_logits"]
