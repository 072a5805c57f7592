"""Are the waits of a log those of the modelled cluster? What was recorded, next to a usual scheduler's."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np

from gpuyard.cluster.model import Cluster
from gpuyard.config import AUTO, SimulationConfig
from gpuyard.native.information import informed
from gpuyard.policies.family import can_run
from gpuyard.policies.grammar import PolicySpec, parse_policy
from gpuyard.simulation.find import current_policy
from gpuyard.simulation.run import SimulationResult
from gpuyard.units import duration
from gpuyard.workload import Workload
from gpuyard.workload.recorded import recorded_jobs

FACTOR, LEAST_S = 2.0, 600.0
"""The log's mean wait is unexplained from this multiple of the simulated one, and this much above it, on."""


@dataclass(frozen=True)
class RecordedWaits:
    """Mean waits of the jobs whose starts a log has.

    Attributes:
        policy: Name of the policy that was simulated.
        label: Its short name.
        jobs: How many jobs there are.
        recorded_s: Their mean wait by the log, seconds.
        simulated_s: The one under the policy.
    """

    policy: str
    label: str
    jobs: int
    recorded_s: float
    simulated_s: float

    @property
    def is_unexplained(self) -> bool:
        """Whether jobs waited far longer than the modelled cluster makes them wait."""
        rise = self.recorded_s - self.simulated_s
        return rise > LEAST_S and self.recorded_s > FACTOR * self.simulated_s

    def in_words(self) -> str:
        """What it means that the waits are unexplained."""
        return (
            f"The modelled cluster does not explain the waits of the log: {duration(self.recorded_s)} on "
            f"average, where {self.label} simulated on the same jobs gives {duration(self.simulated_s)}. "
            "Limits, reservations, maintenance or another size of the cluster may cause them, so gains "
            f"against recorded are not gains of a policy; compare with {self.label} as what runs today."
        )

    @classmethod
    def from_json(cls, document: Mapping[str, Any] | None) -> Self | None:
        """From the fields as JSON; None if there are none."""
        return None if document is None else cls(**document)


def usual_policy(
    workload: Workload, cluster: Cluster, config: SimulationConfig, placement: str
) -> PolicySpec:
    """The scheduler that is taken to run where nobody says: ``fifo+easy``, or what settings allow of it."""
    known = informed(config, workload)

    def runs(spec: PolicySpec) -> bool:
        return can_run(workload, cluster, replace(spec, placement=placement), known)

    return replace(parse_policy(current_policy(None, AUTO, runs)), placement=placement)


def recorded_waits(
    usual: PolicySpec,
    done: Sequence[SimulationResult],
    simulate: Callable[[PolicySpec], SimulationResult],
    own: range | None = None,
) -> RecordedWaits | None:
    """What jobs waited by the log, and under a usual scheduler.

    Args:
        usual: That scheduler.
        done: Runs on the same jobs, which may be its.
        simulate: Runs it, if they are not.
        own: Rows of the jobs that count; None: all.

    Returns:
        None if no job that counts has a start in the log and in the simulation.
    """
    result = next((one for one in done if one.policy == usual.name), None) or simulate(usual)
    schedule, frame = result.schedule, result.workload.frame
    jobs = np.intersect1d(recorded_jobs(result.workload), schedule.job, assume_unique=True)
    jobs = jobs if own is None else jobs[(jobs >= own.start) & (jobs < own.stop)]
    if not len(jobs):
        return None
    submit_s = frame["submit_s"].to_numpy()[jobs]
    recorded_s = frame["recorded_start_s"].to_numpy()[jobs] - submit_s
    # Rows of a schedule are in order of the workload.
    simulated_s = schedule.start_us[np.searchsorted(schedule.job, jobs)] / 1e6 - submit_s
    label = usual.name.rpartition("/")[0]
    return RecordedWaits(usual.name, label, len(jobs), float(recorded_s.mean()), float(simulated_s.mean()))
