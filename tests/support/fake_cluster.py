"""A cluster in memory that behaves like Slurm, and an agent on it.

Jobs come held for the agent. Released jobs start on their nodes when these are free, and end after their run
time. What nobody holds is started by the cluster itself, first come, first served.
"""

import io
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from gpuyard.policies.base import Policy, as_policy
from gpuyard.policies.grammar import parse_policy
from gpuyard.serve.adapter import Action, AdapterError, GiveBack, Outcome, Reorder, Start
from gpuyard.serve.journal import Journal
from gpuyard.serve.process.agent import Agent
from gpuyard.serve.process.log import Log
from gpuyard.serve.settings import ServeSettings
from gpuyard.serve.signs import Signs
from gpuyard.serve.state import ClusterState, Ended, Job, Node, Partition, Share

NOW_S = 1_700_000_000.0


class FakeCluster:
    """Jobs, nodes and a clock that only ``tick`` moves.

    Args:
        nodes: Nodes and their GPUs.
        held: Whether jobs are held for the agent when they are submitted.
    """

    name = "fake"

    def __init__(self, nodes: dict[str, int] | None = None, held: bool = True) -> None:
        self.nodes = {
            name: Node(name, gpus, cpus=64, memory_mib=1000) for name, gpus in (nodes or {"n1": 8}).items()
        }
        self.now_s = NOW_S
        self.jobs: dict[str, Job] = {}
        self.run_s: dict[str, float] = {}
        self.pinned: dict[str, Start] = {}
        self.ended: list[Ended] = []
        self.applied: list[Action] = []
        """Everything that was asked for."""
        self.given_back_all = 0
        self.refuses: set[str] = set()
        """Jobs whose actions are refused."""
        self.vanish: set[str] = set()
        """Jobs that are gone as soon as somebody acts."""
        self.stubborn: set[str] = set()
        """Jobs that are released and do not start all the same."""
        self.fails: dict[str, AdapterError] = {}
        """What ``observe``, ``apply`` or ``give_back_all`` raises."""
        self._held = held

    # --- what users and time do

    def submit(self, id: str, gpus: int = 1, run_s: float = 100.0, **more: Any) -> None:
        """A user submits a job."""
        known: dict[str, Any] = {"user": "ada", "limit_s": 3600.0, "held": "agent" if self._held else ""}
        self.jobs[id] = Job(id, "waiting", self.now_s, gpus=gpus, **(known | more))
        self.run_s[id] = run_s

    def change(self, id: str, **values: Any) -> None:
        """Somebody else changes a job."""
        self.jobs[id] = replace(self.jobs[id], **values)

    def tick(self, seconds: float = 1.0) -> None:
        """Time passes: jobs end, and jobs start."""
        self.now_s += seconds
        for job in list(self.jobs.values()):
            if job.begin_s is not None and self.now_s >= job.begin_s + self.run_s[job.id]:
                end_s = job.begin_s + self.run_s[job.id]
                self.ended.append(Ended(job.id, end_s, self.run_s[job.id], job.begin_s))
                del self.jobs[job.id]
        for job in [job for job in self.jobs.values() if job.waits and not job.held]:
            self._start(job)

    def _start(self, job: Job) -> None:
        pinned = self.pinned.get(job.id)
        if job.id in self.stubborn:
            return
        parts = list(zip(pinned.nodes, pinned.gpus, strict=True)) if pinned else self._anywhere(job)
        if parts and all(self.free(node) >= gpus for node, gpus in parts):
            shares = tuple(Share(node, gpus) for node, gpus in parts)
            self.change(job.id, phase="running", begin_s=self.now_s, shares=shares)

    def _anywhere(self, job: Job) -> list[tuple[str, int]]:
        return next(([(name, job.gpus)] for name in self.nodes if self.free(name) >= job.gpus), [])

    def free(self, node: str) -> int:
        """GPUs that no job holds."""
        held = (share.gpus for job in self.jobs.values() for share in job.shares if share.node == node)
        return self.nodes[node].gpus - sum(held)

    # --- what an agent does

    def observe(self) -> ClusterState:
        """The cluster now."""
        self._fail("observe")
        ended, self.ended = tuple(self.ended), []
        whole = (Partition("", tuple(self.nodes), default=True),)
        jobs, nodes = tuple(self.jobs.values()), tuple(self.nodes.values())
        return ClusterState("fake 1", self.now_s, jobs, nodes, whole, ended)

    def apply(self, actions: Sequence[Action]) -> list[Outcome]:
        """Do what is asked."""
        self._fail("apply")
        return [self._apply(action) for action in actions]

    def _apply(self, action: Action) -> Outcome:
        self.applied.append(action)
        if action.job in self.vanish:
            self.jobs.pop(action.job, None)
        if action.job not in self.jobs:
            return Outcome(action, f"job {action.job}: no such job", "missing")
        if action.job in self.refuses:
            return Outcome(action, "permission denied", "refused")
        if isinstance(action, Start):
            for stop in action.stop:
                self.change(stop, phase="waiting", begin_s=None, shares=())
            self.pinned[action.job] = action
            self.change(action.job, held="", mark=action.decision)
        elif isinstance(action, Reorder):
            self.change(action.job, priority=float(action.priority), mark=action.decision)
        else:
            self._give_back(action.job)
        return Outcome(action)

    def _give_back(self, id: str) -> None:
        self.pinned.pop(id, None)
        self.change(id, held="", mark="")

    def give_back_all(self) -> list[Outcome]:
        """Return every job that is held for the agent or carries its mark."""
        self._fail("give_back_all")
        self.given_back_all += 1
        ours = [job.id for job in self.jobs.values() if job.waits and (job.held == "agent" or job.mark)]
        for id in ours:
            self._give_back(id)
        return [Outcome(GiveBack(id, "all")) for id in ours]

    def _fail(self, what: str) -> None:
        if what in self.fails:
            raise self.fails[what]

    # --- what tests ask

    def ids(self, phase: str) -> set[str]:
        """Jobs in a phase."""
        return {job.id for job in self.jobs.values() if job.phase == phase}

    def asked(self, kind: type[Action]) -> list[str]:
        """Jobs of the actions of one kind, in order."""
        return [action.job for action in self.applied if isinstance(action, kind)]


class Untouchable(FakeCluster):
    """A cluster that may be looked at and nothing more."""

    def apply(self, actions: Sequence[Action]) -> list[Outcome]:
        """Fail the test."""
        raise AssertionError(f"apply was called with {actions}")

    def give_back_all(self) -> list[Outcome]:
        """Fail the test."""
        raise AssertionError("give_back_all was called")


class Clock:
    """A monotonic clock for the agent that tests set."""

    def __init__(self) -> None:
        self.s = 0.0

    def __call__(self) -> float:
        return self.s


class Served:
    """An agent on a fake cluster, with a journal and a state directory of its own.

    Args:
        directory: Where its files go.
        cluster: The cluster.
        policy: Who decides.
        settings: Of the agent, beyond active mode with start control.
    """

    def __init__(
        self, directory: Path, cluster: FakeCluster, policy: Policy | str = "fifo+easy", **settings: Any
    ) -> None:
        chosen = as_policy(parse_policy(policy)) if isinstance(policy, str) else policy
        usual = {"policy": chosen.name, "mode": "active", "control": "start", "deadline_ms": 60_000.0}
        self.settings = ServeSettings(**(usual | settings), state_dir=directory)
        self.cluster, self.clock, self.said = cluster, Clock(), io.StringIO()
        self.signs = Signs(directory)
        self.signs.make()
        self.journal = Journal.open(self.settings.journal)
        fallback = parse_policy(self.settings.fallback)
        self.agent = Agent(
            self.settings, cluster, chosen, fallback, self.journal, self.signs, Log(self.said),
            monotonic=self.clock,
        )  # fmt: skip

    def round(self, seconds: float = 1.0) -> Any:
        """One round, and the time to the next."""
        record = self.agent.round()
        self.cluster.tick(seconds)
        self.clock.s += seconds
        return record

    def rounds(self, count: int, seconds: float = 1.0) -> list[Any]:
        """Several."""
        return [self.round(seconds) for _ in range(count)]

    def close(self) -> None:
        """Stop the agent."""
        self.agent.stop()
        self.journal.close()
