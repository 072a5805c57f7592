"""A rule's lines while they are made: weights, backfilling, accounts, and what gets lost on the way."""

from dataclasses import dataclass, field
from typing import Any

from gpuyard.cluster.imports.slurm_policy import BACKFILL, MULTIFACTOR, NO_DECAY_S, TRES, WEIGHTS
from gpuyard.cluster.model import Cluster
from gpuyard.config import SimulationConfig
from gpuyard.policies.grammar import PolicySpec
from gpuyard.policies.slurm_lines.lines import minutes_of, slurm_time
from gpuyard.policies.slurm_lines.routing import Lane, PriorityQos, ScoreClasses
from gpuyard.workload import Workload

_KEYS = {
    "age_weight": "PriorityWeightAge",
    "fair_share_weight": "PriorityWeightFairshare",
    "size_weight": "PriorityWeightJobSize",
    "partition_weight": "PriorityWeightPartition",
    "qos_weight": "PriorityWeightQOS",
}
"""As slurm.conf(5) writes the keys that the import reads in lower case."""
_TRES = {"cpu": "CPU", "mem": "Mem", "gres/gpu": "GRES/gpu"}
ALL_JOBS = 1_000_000
"""The largest that Slurm takes for ``bf_max_job_test``."""
_FINER = 1000
"""Weights that are not whole are multiplied by this: Slurm's are."""

assert {key.lower() for key in _KEYS.values()} == set(WEIGHTS)


@dataclass
class Draft:
    """Lines in the making.

    Attributes:
        rule: What is exported.
        config: Settings that it runs under.
        workload: The log, if there is one.
        cluster: The cluster, if there is one.
        most_classes: Classes of jobs by what they request, at most.
        weights: Settings of ``multifactor``: weights above 0, and others; empty: first come, first served.
        scheduler: Lines of the backfill rule.
        commands: Of ``sacctmgr``.
        losses: What the rule does and the lines do not.
        notes: What to know.
        classes: Partitions that jobs get.
        qos: QOSes that jobs get.
    """

    rule: PolicySpec
    config: SimulationConfig
    workload: Workload | None
    cluster: Cluster | None
    most_classes: int
    weights: dict[str, Any] = field(default_factory=dict)
    scheduler: list[str] = field(default_factory=list)
    commands: list[str] = field(default_factory=list)
    losses: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    classes: ScoreClasses | None = None
    qos: Lane | PriorityQos | None = None

    def add_sched(self, options: dict[str, float]) -> None:
        """Backfilling with settings by their names here, in their units here."""
        slurm = {BACKFILL[name][0]: name for name in BACKFILL if name != "max_job_bf"}
        written = [f"{slurm[name]}={_option(name, value)}" for name, value in options.items()]
        self.scheduler = [
            "SchedulerType=sched/backfill",
            f"SchedulerParameters={','.join((*written, 'bf_continue'))}",
        ]

    def priority_lines(self) -> list[str]:
        """Lines of the order."""
        if not self.weights:
            return ["PriorityType=priority/basic"]
        weights = _whole_weights(self)
        lines = [f"PriorityType={MULTIFACTOR}"]
        lines += [f"{key}={weights.get(name, 0)}" for name, key in _KEYS.items()]
        tres = [f"{_TRES[part]}={weights[name]}" for part, name in TRES.items() if weights.get(name)]
        if tres:
            lines += [f"PriorityWeightTRES={','.join(tres)}", "AccountingStorageTRES=gres/gpu"]
        return lines + self._other_priority_lines()

    def _other_priority_lines(self) -> list[str]:
        usual = self.config
        max_age_s = float(self.weights.get("max_age_s", usual.max_age_s))
        half_life_s, calc_s = usual.usage_half_life_s, usual.priority_calc_s
        for name, value in (
            ("max_age_s", max_age_s),
            ("usage_half_life_s", half_life_s),
            ("priority_calc_s", calc_s),
        ):
            if value % 60.0 and value < NO_DECAY_S:
                self.losses.append(f"{name} is {value:g} s; Slurm has whole minutes, so it is rounded up.")
        lines = [
            f"PriorityMaxAge={slurm_time(max_age_s)}",
            f"PriorityFavorSmall={'YES' if self.weights.get('favor_small') else 'NO'}",
            f"PriorityDecayHalfLife={'0' if half_life_s >= NO_DECAY_S else slurm_time(half_life_s)}",
            f"PriorityCalcPeriod={minutes_of(calc_s)}",
        ]
        return lines + (["PriorityFlags=NO_FAIR_TREE"] if self.weights.get("fair_share") == "classic" else [])


def _whole_weights(draft: Draft) -> dict[str, int]:
    names = (*_KEYS, *TRES.values())
    weights = {name: float(draft.weights.get(name, 0.0)) for name in names}
    if all(value.is_integer() for value in weights.values()):
        return {name: int(value) for name, value in weights.items()}
    draft.losses.append(f"Slurm's weights are whole numbers: all are multiplied by {_FINER:,} and rounded.")
    return {name: round(_FINER * value) for name, value in weights.items()}


def _option(name: str, value: float) -> int:
    if name == "bf_window_s":
        return minutes_of(value)
    if name == "bf_max_job_test" and value == 0:
        return ALL_JOBS
    return max(1, round(value)) if name.endswith("_s") else int(value)
