"""What a policy does with the states it is in: how sure it is, what it picks, what it expects."""

from typing import Any

import numpy as np
import torch

from gpuyard.learn.learner import to_tensors
from gpuyard.learn.memory.collector import Collector
from gpuyard.learn.networks.heads import SchedulingNetwork, masked_logits

RANKS = 16
"""Rows of the window that are counted one by one; the rest together."""
BINS = 10


@torch.no_grad()
def action_record(network: SchedulingNetwork, collector: Collector) -> dict[str, Any]:
    """The choices and values in the environments' present states, as a record of ``progress.jsonl``."""
    device = next(iter(network.state_dict().values())).device
    logits, values = network(to_tensors(collector.observation, device))
    mask = torch.from_numpy(collector.observation["mask"]).to(device)
    counts, edges = np.histogram(values.cpu().numpy(), bins=BINS)
    histogram = {"edges": edges.tolist(), "counts": counts.tolist()}
    if collector.env.model.kind == "rank-hosts":
        return {"values": {"value_histogram": histogram}}
    probabilities = torch.softmax(masked_logits(logits, mask), -1)
    chosen = probabilities.argmax(-1).cpu().numpy()
    sure = probabilities.max(-1).values.cpu().numpy()
    record = {
        "rank_histogram": _ranks(chosen, collector).tolist(),
        "value_histogram": histogram,
        "probability_of_choice": np.histogram(sure, bins=BINS, range=(0.0, 1.0))[0].tolist(),
    }
    if collector.env.model.kind.startswith("select-job"):
        record["noop_share"] = float(np.mean(chosen == logits.shape[-1] - 1))
    return {"values": record}


def _ranks(chosen: np.ndarray, collector: Collector) -> np.ndarray:
    """How often each of the first rows (or hosts) was chosen, and the rest."""
    model = collector.env.model
    rows = chosen
    if model.kind.startswith("select-job"):
        choices = model.pools if model.kind == "select-job-and-pool" else 1
        rows = chosen[chosen < model.actions - 1] // choices
    return np.bincount(np.minimum(rows, RANKS), minlength=RANKS + 1)
