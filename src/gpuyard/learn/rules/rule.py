"""The second half of the search: a linear score and gate, started at a policy and tuned by CMA-ES.

A rule (docs/contract/networks.md, kind ``rule``) starts the best-scored of the jobs that its gate admits.
What follows says which weights make it act like a policy, and how far CMA-ES may move each of them in one
step.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import NDArray

from gpuyard.cluster.model import Cluster
from gpuyard.errors import InputError
from gpuyard.network.config import NetworkConfig
from gpuyard.network.sizes import NetworkSizes
from gpuyard.observation.config import EnvConfig
from gpuyard.policies.grammar import PolicySpec
from gpuyard.workload import Workload

Tensors = dict[str, NDArray[np.float32]]
Weights = dict[str, float]
"""By name of the column; ``bias`` is the constant."""

LONGEST_S = 2_592_000.0
"""The run time at which the columns ``estimate`` and ``area`` reach 1 (docs/contract/observation.md)."""
LOG_LONGEST = math.log1p(LONGEST_S)
HELD_BACK = 2.0
"""How far the gate is closed to jobs that the backfill holds back; shares of the cluster are at most 1."""
LAST = 60.0
"""Puts jobs without an estimate behind all others: no score by estimate is as large."""
STEEP = 50.0
"""Weight of waiting in an order of arrival."""


@dataclass(frozen=True)
class Rule:
    """A score and a gate, linear in columns of the observation."""

    score: Weights
    gate: Weights
    overall: Weights
    """Of the columns of ``globals``, in the gate."""

    def tensors(self, jobs: tuple[str, ...], overall: tuple[str, ...]) -> Tensors:
        """As a network of kind ``rule`` has them.

        Args:
            jobs: Columns of ``jobs``.
            overall: Columns of ``globals``.
        """
        tensors = {
            "score.weight": _row(self.score, jobs),
            "gate_jobs.weight": _row(self.gate, jobs),
            "gate_jobs.bias": np.array([self.gate.get("bias", 0.0)], dtype=np.float32),
        }
        return tensors | ({"gate_globals.weight": _row(self.overall, overall)} if overall else {})

    def moved(self, steps: "Rule", by: NDArray[np.float64]) -> "Rule":
        """The rule with each weight that ``steps`` names moved by so many of its steps."""
        moves = iter(by.tolist())
        parts = []
        for own, step in ((self.score, steps.score), (self.gate, steps.gate), (self.overall, steps.overall)):
            parts.append(own | {name: own.get(name, 0.0) + size * next(moves) for name, size in step.items()})
        return Rule(*parts)

    @property
    def size(self) -> int:
        """Number of weights."""
        return len(self.score) + len(self.gate) + len(self.overall)


@dataclass(frozen=True)
class RuleModel:
    """A rule with the environment that it acts in.

    Attributes:
        tensors: Of the network.
        network: Its settings, of kind ``rule``.
        environment: Of the environment; its base policy orders the window and places jobs.
        sizes: Of its observations and actions.
    """

    tensors: Tensors
    network: NetworkConfig
    environment: EnvConfig
    sizes: NetworkSizes


def _row(weights: Mapping[str, float], columns: tuple[str, ...]) -> NDArray[np.float32]:
    for name in weights:
        if name != "bias" and name not in columns:
            raise InputError(f"a rule needs column {name}, which is not among the features; leave them out")
    # A column that stands several times (one for each pool) shares its weight.
    return np.array([[weights.get(name, 0.0) / columns.count(name) for name in columns]], dtype=np.float32)


def rule_of(policy: PolicySpec, gpus: int, *, some_unknown: bool) -> Rule:
    """The rule that acts like a policy, up to rounding.

    The columns hold ln(1 + r) and ln(1 + r n) where the policy has ln r and ln r n: that matters only between
    jobs of a few seconds.

    Args:
        policy: With an order of ``power``, ``fifo``, ``lifo``, ``smallest`` or ``largest``.
        gpus: Of the cluster.
        some_unknown: Whether jobs without an estimate occur.

    Raises:
        InputError: for another order.
    """
    score = _score_of(policy, gpus)
    gate: Weights = {"bias": 1.0, "free_after": 0.0, "estimate": 0.0}
    if policy.admission:
        t0_s, k = policy.admission.t0_s, policy.admission.k
        gate = {"bias": k * math.log1p(t0_s), "free_after": 1.0, "estimate": -k * LOG_LONGEST}
        if some_unknown:  # they count as long
            gate["estimate_known"] = HELD_BACK
            gate["bias"] -= HELD_BACK
    if some_unknown and "estimate" in score:
        score["estimate_known"] = LAST
    # What a backfill holds back is not told for every row; but the base policy's choice is never held back.
    if policy.backfill == "strict":
        gate = gate | {"base_choice": HELD_BACK, "bias": gate["bias"] - HELD_BACK}
    elif policy.backfill != "greedy":
        gate = gate | {"before_shadow": HELD_BACK, "base_choice": HELD_BACK, "bias": gate["bias"] - HELD_BACK}
    return Rule(score, gate, {})


def _score_of(policy: PolicySpec, gpus: int) -> Weights:
    log_area, log_gpus = math.log1p(LONGEST_S * gpus), math.log1p(gpus)
    match policy.order_name:
        case "power":
            return {"area": -log_area, "estimate": -(policy.order_parameter - 1.0) * LOG_LONGEST}
        case "smallest":
            return {"gpus_log": -log_gpus}
        case "largest":
            return {"gpus_log": log_gpus}
        case "fifo":
            return {"wait": STEEP}
        case "lifo":
            return {"wait": -STEEP}
    raise InputError(
        f"order {policy.order} is not linear in the columns of the observation; use power:A, fifo, lifo, "
        "smallest or largest"
    )


@dataclass(frozen=True)
class Units:
    """How much columns that are shares of the cluster typically vary from job to job.

    Attributes:
        gpus: Of the cluster.
        gang: Of the column ``gpus``.
        nodes: Of ``nodes_needed``.
        node: GPUs of the largest node, as a share of the cluster: what ``fragmentation`` can change by.
    """

    gpus: int
    gang: float
    nodes: float
    node: float

    @classmethod
    def of(cls, workload: Workload, cluster: Cluster) -> Self:
        """Of the jobs of a workload."""
        gangs = workload.frame["gpus"].to_numpy()
        gpus = cluster.total_gpus
        largest = max(group.gpus for group in cluster.nodes)
        count = sum(group.count for group in cluster.nodes)
        gang = max(float(gangs.std()), 1.0) / gpus
        nodes = max(float(np.ceil(gangs / largest).std()), 1.0) / count
        return cls(gpus, gang, nodes, largest / gpus)


def steps_of(units: Units, *, told: bool, some_unknown: bool) -> Rule:
    """How much a step of 1 moves each weight: about as much as to matter for typical jobs.

    That is 1 in the logarithm of a score, and a fifth of the cluster in the gate.

    Args:
        units: Of the columns that are shares of the cluster.
        told: Whether there are estimates.
        some_unknown: Whether jobs without an estimate occur.
    """
    log_area, log_gpus = math.log1p(LONGEST_S * units.gpus), math.log1p(units.gpus)
    gangs = {"gpus": 1 / units.gang, "nodes_needed": 1 / units.nodes, "fragmentation": 1 / units.node}
    score = {"gpus_log": log_gpus, "wait": 2.0, "free_after": 2.0, "base_choice": 1.0, "user_share": 1.0}
    gate = {"bias": 0.2, "gpus_log": 0.1 * log_gpus, "wait": 0.3, "free_after": 0.5, "base_choice": 0.3}
    gate |= {"user_share": 0.2}
    score |= {name: 0.5 * step for name, step in gangs.items()}
    gate |= {name: 0.1 * step for name, step in gangs.items()}
    overall = {"queue": 0.2, "demand": 0.2, "arrivals": 0.2, "running": 0.2, "gpu_use": 0.2, "shadow": 0.2}
    if told:
        score |= {"estimate": LOG_LONGEST, "area": log_area, "slowdown": 2.0, "before_shadow": 1.0}
        gate |= {"estimate": 0.05 * LOG_LONGEST, "area": 0.05 * log_area, "slowdown": 0.3}
        gate |= {"before_shadow": 0.3}
    if some_unknown:
        score["estimate_known"] = 2.0
        gate["estimate_known"] = 0.3
    return Rule(score, gate, overall)
