"""Policies that a calibration tries by name, and how it varies the settings of the best of them."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from gpuyard.cluster.model import Cluster
from gpuyard.config import SimulationConfig
from gpuyard.policies.grammar import PolicySpec, parse_policy
from gpuyard.policies.policy_file import TunedPolicy, parse_rules
from gpuyard.workload import Workload

YARDSTICK = "fifo+easy"
"""What every calibrated policy is compared with."""
MULTIFACTOR = "multifactor"
PLAIN = ("fifo+strict", "fifo+greedy", "sjf+easy", "saf+easy", "fifo+slurm", "fair-share+easy")
CONSERVATIVE = "fifo+conservative"
MOST_CONSERVATIVE = 5000
"""Jobs of a half up to which a plan for every waiting job is quick."""
MIXES: Mapping[str, Mapping[str, Any]] = {
    "age": {"age_weight": 1000.0},
    "age and fair share": {"age_weight": 1000.0, "fair_share_weight": 1000.0},
    "fair share first": {"age_weight": 1000.0, "fair_share_weight": 10000.0},
    "large first": {"age_weight": 1000.0, "size_weight": 10000.0},
    "small first": {"age_weight": 1000.0, "size_weight": 10000.0, "favor_small": True},
}
WEIGHTS = (
    *("age_weight", "fair_share_weight", "size_weight"),
    *("priority_weight", "partition_weight", "qos_weight"),
)
WEIGHT_STEPS = (0.0, 0.1, 0.3, 3.0, 10.0)
WEIGHTS_FROM_NOTHING = (100.0, 1000.0, 10000.0)
TIME_STEPS = (0.04, 0.2, 5.0, 25.0)
BACKFILL_STEPS: Mapping[str, tuple[float | int, ...]] = {
    "bf_interval_s": (1.0, 10.0, 30.0, 60.0, 180.0, 600.0),
    "bf_window_s": (3600.0, 86400.0, 7 * 86400.0),
    "bf_max_job_test": (20, 100, 500, 5000),
    "bf_resolution_s": (1.0, 60.0, 600.0),
}


@dataclass(frozen=True)
class Candidate:
    """A policy to try.

    Attributes:
        label: What people call it.
        policy: Its rules, with settings of its own or without.
        is_given: Whether the user asked for it.
    """

    label: str
    policy: PolicySpec
    is_given: bool = False

    @property
    def settings(self) -> dict[str, Any]:
        """Settings of its own."""
        return dict(self.policy.settings) if isinstance(self.policy, TunedPolicy) else {}

    def varied(self, **changes: Any) -> "Candidate":
        """The same rules under other settings."""
        return tuned(self.policy, {**self.settings, **changes}, self.label.partition(" (")[0] + " (fitted)")


def tuned(policy: PolicySpec, settings: Mapping[str, Any], label: str) -> Candidate:
    """Rules with settings of their own."""
    if isinstance(policy, TunedPolicy):
        return Candidate(label, replace(policy, settings=dict(settings), path=label))
    rules = {part: getattr(policy, part) for part in PolicySpec.__dataclass_fields__}
    return Candidate(label, TunedPolicy(**rules, path=label, settings=dict(settings)))


def named_candidates(workload: Workload, cluster: Cluster, own: Iterable[str]) -> list[Candidate]:
    """The policies that are tried by name: the user's own, then the cheap ones first.

    Args:
        workload: The jobs of the first half.
        cluster: What they run on.
        own: Policies or policy files of the user.

    Raises:
        InputError: for a name of the user's that is unknown.
    """
    names = [*PLAIN]
    names += ["priority+easy"] if _varies(workload, "priority") else []
    names += [CONSERVATIVE] if len(workload) <= MOST_CONSERVATIVE else []
    found = [_given(name) for name in own]
    found.append(Candidate(YARDSTICK, parse_policy(YARDSTICK)))
    found += [Candidate(name, parse_policy(name)) for name in names]
    extra = {name: 1000.0 if name in relevant_weights(workload, cluster) else 0.0 for name in WEIGHTS[3:]}
    nothing = {"fair_share_weight": 0.0, "size_weight": 0.0}
    for backfill in ("slurm", "easy"):
        rules = f"{MULTIFACTOR}+{backfill}"
        for name, mix in MIXES.items():
            found.append(tuned(parse_policy(rules), {**nothing, **extra, **mix}, f"{rules} ({name})"))
    once: dict[str, Candidate] = {}
    for one in found:
        once.setdefault(one.label, one)
    return list(once.values())


def _given(name: str) -> Candidate:
    policy = parse_rules(name)
    label = policy.title if isinstance(policy, TunedPolicy) else name
    return Candidate(label, policy, is_given=True)


def relevant_weights(workload: Workload, cluster: Cluster) -> list[str]:
    """Weights of ``multifactor`` that make a difference to these jobs on this cluster."""
    relevant = {
        "age_weight": True,
        "fair_share_weight": _varies(workload, "user") or _varies(workload, "group"),
        "size_weight": _varies(workload, "gpus") or _varies(workload, "cpus"),
        "priority_weight": _varies(workload, "priority"),
        "partition_weight": len({one.priority_job_factor for one in cluster.partitions}) > 1,
        "qos_weight": len({one.priority for one in cluster.qos}) > 1,
    }
    return [name for name in WEIGHTS if relevant[name]]


def _varies(workload: Workload, column: str) -> bool:
    return workload.has(column) and workload.frame[column].n_unique() > 1


def variations(
    candidate: Candidate, config: SimulationConfig, workload: Workload, cluster: Cluster
) -> dict[str, list[Any]]:
    """Other values of the settings that the rules of a candidate go by, by setting.

    Args:
        candidate: Whose.
        config: Settings that all policies share.
        workload: The jobs.
        cluster: What they run on.
    """
    now = candidate.policy.configured(config)
    found: dict[str, list[Any]] = {}
    order = candidate.policy.order
    if order == MULTIFACTOR:
        for name in relevant_weights(workload, cluster):
            found[name] = list(_weights(getattr(now, name)))
        found["max_age_s"] = [now.max_age_s * step for step in TIME_STEPS]
        found["favor_small"] = [not now.favor_small]
        if now.fair_share_weight:
            found["fair_share"] = ["classic" if now.fair_share == "tree" else "tree"]
    if order == "fair-share" or (order == MULTIFACTOR and now.fair_share_weight):
        found["usage_half_life_s"] = [now.usage_half_life_s * step for step in TIME_STEPS]
    if candidate.policy.backfill == "slurm":
        for name, values in BACKFILL_STEPS.items():
            found[name] = [value for value in values if value != getattr(now, name)]
    return found


def _weights(now: float) -> Iterator[float]:
    """Other values of a weight; 0 leaves its term out."""
    yield from (now * step for step in WEIGHT_STEPS) if now else WEIGHTS_FROM_NOTHING
