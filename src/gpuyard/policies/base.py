"""What a policy is: something that decides on a snapshot, and a few hooks for running it."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Literal, Protocol

if TYPE_CHECKING:
    from gpuyard import _core
    from gpuyard.cluster.model import Cluster
    from gpuyard.config import SimulationConfig
    from gpuyard.policies.grammar import PolicySpec
    from gpuyard.workload import Workload

SHIPPED = "model:"
"""What names of models begin with that come with gpuyard."""

RECORDED = "recorded"
"""The policy that replays what a log says really happened."""


Backfills = Literal["if-changed", "if-calculated", "always"]
"""When backfill passes as Slurm makes them are due, of the multiples of ``bf_interval_s`` at which jobs wait:
if something happened since the last, if priorities were calculated anew too, or at all of them
(docs/contract/slurm.md, section 5)."""


class Decider(Protocol):
    """All that a policy must be: anything with ``decide(snapshot) -> Decision``.

    If it has a true attribute ``preempts``, it is also asked at every multiple of ``reschedule_s``; if it has
    an attribute ``backfills`` (see ``Backfills``), at multiples of ``bf_interval_s``. What it counts in an
    attribute ``counters`` is reported with the results.
    """

    def decide(self, snapshot: "_core.Snapshot") -> "_core.Decision":
        """What to start now."""


class Policy(ABC):
    """A policy with a name and the hooks that a simulation asks; what they return by default is plain.

    Whatever a decision depends on is in the snapshot: a policy remembers nothing from one to the next.
    """

    @property
    @abstractmethod
    def name(self) -> str:
        """As results call it."""

    @abstractmethod
    def decide(self, snapshot: "_core.Snapshot") -> "_core.Decision":
        """What to start now."""

    @property
    def rules(self) -> "PolicySpec | None":
        """What it is made of, if it is an order, a backfill, an admission and a placement."""
        return None

    @property
    def preempts(self) -> bool:
        """Whether it may stop running jobs."""
        return False

    @property
    def backfills(self) -> Backfills | None:
        """When it makes backfill passes as Slurm does; None if it does not."""
        return None

    @property
    def counters(self) -> Mapping[str, int]:
        """What it counted, such as how often a solver was replaced."""
        return {}

    def configured(self, config: "SimulationConfig") -> "SimulationConfig":
        """Settings that it runs under: those that all share, or some of its own instead."""
        return config

    def native(self) -> "_core.Policy | None":
        """The policy as the core runs it by itself; None if it has to be asked."""
        return None

    def for_run(self) -> "Policy":
        """Who is asked in one run: itself, or one whose counters begin at 0."""
        return self

    def check_supported(self, workload: "Workload", cluster: "Cluster", config: "SimulationConfig") -> None:
        """Raise an InputError unless the policy can run these jobs on this cluster."""
        from gpuyard.policies.support import check_supported  # which knows the rules

        check_supported(workload, cluster, self.rules, self.configured(config))

    def notes(self, workload: "Workload", cluster: "Cluster", config: "SimulationConfig") -> tuple[str, ...]:
        """What to know about a run of it over these jobs on this cluster under these settings."""
        return ()

    def impossible(self, workload: "Workload", cluster: "Cluster", config: "SimulationConfig") -> str | None:
        """Why its schedule of these jobs cannot be on this cluster, in a sentence; None if it can."""
        return None


class ReplayingPolicy(Policy):
    """A policy that runs a whole workload in the core by a way of its own."""

    @abstractmethod
    def replay(
        self,
        workload: "Workload",
        cluster: "Cluster",
        config: "SimulationConfig",
        history: "Workload | None" = None,
        progress: Callable[[int], None] | None = None,
    ) -> tuple[Any, dict[str, Any]]:
        """Run all jobs to their end: the simulation as the core took it, and the arrays of the schedule."""


class OwnPolicy(Policy):
    """Somebody's own object with ``decide``."""

    def __init__(self, decider: Decider) -> None:
        self._decider = decider

    @property
    def name(self) -> str:
        """What kind of object it is."""
        return type(self._decider).__name__

    @property
    def preempts(self) -> bool:
        """Whether the object says so."""
        return bool(getattr(self._decider, "preempts", False))

    @property
    def backfills(self) -> Backfills | None:
        """When it makes backfill passes, as it states."""
        stated: Backfills | None = getattr(self._decider, "backfills", None)
        return stated

    @property
    def counters(self) -> Mapping[str, int]:
        """Those of the object, if it has any."""
        counters: Mapping[str, int] = getattr(self._decider, "counters", {})
        return counters

    def decide(self, snapshot: "_core.Snapshot") -> "_core.Decision":
        """What the object starts now."""
        return self._decider.decide(snapshot)


def as_policy(policy: Policy | Decider) -> Policy:
    """The policy, or somebody's own object as one."""
    return policy if isinstance(policy, Policy) else OwnPolicy(policy)
