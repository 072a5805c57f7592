"""What of a rule's gain is left if Slurm runs the lines that come nearest to it."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from gpuyard.cluster.model import Cluster
from gpuyard.config import AUTO, GuardConfig, SimulationConfig
from gpuyard.evaluate.contenders import contender_of
from gpuyard.evaluate.replay import METRIC, NONE, PolicyRun, run_policies
from gpuyard.metrics.guards import BrokenLimit, broken_limits, guarded_labels
from gpuyard.policies.base import RECORDED
from gpuyard.policies.grammar import PolicySpec
from gpuyard.policies.slurm_lines.lines import SlurmLines
from gpuyard.policies.slurm_lines.reading import ReadLines, read_lines
from gpuyard.simulation.find import current_policy, find_policy
from gpuyard.simulation.replays import waits_of
from gpuyard.workload import Workload

StartRun = Callable[[str], Callable[[int], None]]


@dataclass(frozen=True)
class ExportGain:
    """Replays of a log: what runs today, a rule, and the lines that come nearest to it.

    Attributes:
        current: Of what runs today.
        rule: Of the rule.
        lines: Of the lines as they were printed.
        read: What the printed lines say.
        broken: Limits on waits that the lines break against today, the worst first.
        rule_broken: Those that the rule itself breaks.
    """

    current: PolicyRun
    rule: PolicyRun
    lines: PolicyRun
    read: ReadLines
    broken: tuple[BrokenLimit, ...]
    rule_broken: tuple[BrokenLimit, ...]

    @property
    def values(self) -> tuple[float, float, float]:
        """Mean bounded slowdown today, under the rule, and under the lines."""
        today, rule, lines = (
            float(run.metrics[METRIC] or 0.0) for run in (self.current, self.rule, self.lines)
        )
        return today, rule, lines

    @property
    def gain_left(self) -> float | None:
        """Share of the rule's gain that the lines have; None if the rule gains nothing."""
        today, rule, lines = self.values
        return (today - lines) / (today - rule) if rule < today else None

    @property
    def recommended(self) -> bool:
        """Whether the lines are better than what runs today, and make nobody wait far longer."""
        today, _, lines = self.values
        return lines < today and not self.broken

    def document(self) -> dict[str, Any]:
        """The same as JSON."""
        rows = {"current": self.current, "rule": self.rule, "lines": self.lines}
        return {
            "metric": METRIC,
            **{name: {"policy": run.policy, "metrics": dict(run.metrics)} for name, run in rows.items()},
            "simulated_as": self.read.policy.grammar,
            "settings": dict(self.read.policy.settings),
            "partitions": [one.model_dump(exclude_none=True) for one in self.read.cluster.partitions],
            "qos": [one.model_dump(exclude_none=True) for one in self.read.cluster.qos],
            "gain_left": self.gain_left,
            "broken_limits": [vars(one) for one in self.broken],
            "rule_broken_limits": [vars(one) for one in self.rule_broken],
            "recommended": self.recommended,
        }


def export_gain(
    rule: PolicySpec,
    lines: SlurmLines,
    workload: Workload,
    cluster: Cluster,
    config: SimulationConfig,
    *,
    current: str = AUTO,
    start_run: StartRun | None = None,
) -> ExportGain:
    """Replay a log under what runs today, a rule, and its printed lines.

    Args:
        rule: The rule.
        lines: What is printed of it.
        workload: The jobs.
        cluster: What they run on today.
        config: Settings, the same for all but what the lines state.
        current: What runs today: a policy, or ``auto``: what the log recorded, else ``fifo+easy``.
        start_run: Told which policy runs next.

    Raises:
        InputError: before anything is simulated if a combination is wrong.
    """
    read = read_lines(lines.text(), cluster)
    routed = lines.routing.routed(workload)
    read.policy.check_supported(routed, read.cluster, config)
    today = find_policy(current_policy(workload, current))
    asked = [contender_of(one, "given") for one in (today, rule)]
    different = asked if today.name != rule.name else asked[:1]
    runs = run_policies(workload, cluster, different, config, start_run=start_run, current=NONE)
    printed = contender_of(read.policy, "given")
    runs += run_policies(routed, read.cluster, [printed], config, start_run=start_run, current=NONE)
    labels = guarded_labels(workload.frame)
    waits = [waits_of(run.result, range(len(workload)), labels) for run in runs]
    recorded = today.name == RECORDED
    broken = [tuple(broken_limits(one, waits[0], GuardConfig(), recorded=recorded)) for one in waits]
    return ExportGain(runs[0], runs[-2], runs[-1], read, broken[-1], broken[-2])
