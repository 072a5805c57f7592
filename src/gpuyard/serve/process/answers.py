"""What the agent says when it is asked: over its socket, and so on the command line."""

import time
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from gpuyard.serve.decision.guard import in_scope
from gpuyard.serve.decision.select_host import select_host
from gpuyard.serve.journal import Journal
from gpuyard.serve.process.agent import HALTED, Agent
from gpuyard.serve.process.metrics import Metrics
from gpuyard.serve.state import ClusterState, Job
from gpuyard.serve.waits.explaining import explain_job
from gpuyard.serve.waits.forecaster import Forecaster


class Answers:
    """Answers questions about an agent. Called by threads of the HTTP server, beside the rounds.

    Args:
        agent: Whom they are about.
        metrics: Its counters.
        forecaster: Who knows when jobs will start.
    """

    def __init__(self, agent: Agent, metrics: Metrics, forecaster: Forecaster) -> None:
        self.agent, self._metrics, self._forecaster = agent, metrics, forecaster
        self._began = time.time()

    def status(self) -> dict[str, Any]:
        """How the agent does, in one document."""
        agent, record, state = self.agent, self.agent.last_record, self.agent.last_state
        ready, why_not = self.ready()
        found: dict[str, Any] = {
            "alive": True,
            "ready": ready,
            "why_not": why_not,
            "mode": HALTED if agent.signs.halted else agent.settings.mode,
            "control": agent.settings.control,
            "policy": agent.policy.name,
            "fallback": agent.settings.fallback,
            "model": agent.model,
            "started_s": self._began,
            "errors": list(agent.errors),
            "state_dir": str(agent.settings.state_dir),
            "interval_s": agent.settings.interval_s,
            "fallbacks": sum(agent.fallbacks.values()),
            "fallback_causes": dict(agent.fallbacks),
        }
        if record is not None:
            found |= {
                "round": record.number,
                "round_at_s": record.wall_s,
                "age_s": max(0.0, time.time() - record.wall_s),
                "decider": record.decider,
                "cause": record.cause,
                "words": record.words,
                "pending": record.pending,
                "left": record.left,
                "would_start": len(record.starts),
                "timings_s": record.timings_s,
                "refused": sum(not verdict.allowed for verdict in record.verdicts),
            }
        if state is not None:
            found |= {
                "source": state.source,
                "running": len(state.running),
                "held": sum(job.held == "agent" for job in state.jobs),
                "in_flight": len(agent.memory.in_flight),
                "acts_on": sum(self._acts_on(job) for job in state.waiting),
                "gpus": sum(node.gpus for node in state.nodes),
                "gpus_in_use": sum(job.gpus for job in state.running),
                "closed_nodes": sum(bool(node.closed) for node in state.nodes),
                "oldest_wait_s": max((state.now_s - job.submit_s for job in state.waiting), default=0.0),
                "notes": list(state.notes),
            }
        return found

    def order(self) -> dict[str, Any]:
        """The waiting jobs as the policy ranks them, and what it would start now."""
        record, state = self.agent.last_record, self.agent.last_state
        if record is None or state is None:
            return {"round": None, "order": [], "starts": [], "left": []}
        left = self.agent.left
        return {
            "round": record.number,
            "at_s": record.at_s,
            "policy": record.policy,
            "decider": record.decider,
            "order": [
                {
                    "place": place,
                    "job": ranked.job,
                    "score": ranked.score,
                    "acts": self._acts_on(state.by_id[ranked.job]),
                    "gpus": state.by_id[ranked.job].gpus,
                    "waited_s": max(0.0, state.now_s - state.by_id[ranked.job].submit_s),
                }
                for place, ranked in enumerate(record.order, start=1)
                if ranked.job in state.by_id
            ],
            "starts": [asdict(planned) for planned in record.starts],
            "left": [{"job": job, "why": why} for job, why in left.items()],
        }

    def state(self) -> ClusterState | None:
        """The last state."""
        return self.agent.last_state

    def explain(self, job: str) -> dict[str, Any]:
        """Why a job waits."""
        state = self._need_state()
        ours = job in state.by_id and self._acts_on(state.by_id[job])
        # Whoever decides about the job is whom the forecast must be of.
        forecast = self._forecaster.latest if ours else self._forecaster.current
        found = explain_job(state, job, self.agent.last_record, self.agent.settings, forecast)
        return {**found, "decided_by": "the agent" if ours else "the scheduler's own policy"}

    def eta(self, job: str) -> dict[str, Any]:
        """When a job will start, under the policy and under what runs today."""
        if job not in self._need_state().by_id:
            raise LookupError(job)
        latest, current = self._forecaster.latest, self._forecaster.current
        if latest is None:
            return {"job": job, "eta": None, "reason": "no forecast has been made yet; ask again in a minute"}
        return {**latest.of(job), "current": None if current is None else current.of(job)}

    def decisions(self, since: float | None, job: str | None, limit: int) -> list[dict[str, Any]]:
        """The latest decisions, from the journal."""
        with Journal.open(self.agent.settings.journal, readonly=True) as journal:
            return [asdict(row) for row in journal.decisions(job=job, since_s=since, limit=limit)]

    def metrics(self) -> bytes:
        """For Prometheus."""
        return self._metrics.render()

    def ready(self) -> tuple[bool, str]:
        """Whether decisions are made on a fresh state."""
        age_s = self.agent.state_age_s
        if age_s is None:
            return False, "the cluster has not been observed yet"
        if age_s > self.agent.settings.max_age_s:
            return False, f"the cluster was last observed {age_s:.0f} s ago"
        if self.agent.errors:
            return False, self.agent.errors[0]
        return True, ""

    def select_host(self, job: str, candidates: Sequence[str]) -> tuple[str, ...]:
        """The nodes that a job should get of its candidates; none: the scheduler's own choice."""
        agent = self.agent
        state, record = agent.last_state, agent.last_record
        if state is None or record is None or agent.signs.halted or not self.ready()[0]:
            return ()
        return select_host(job, candidates, state, record, agent.settings)

    def _acts_on(self, job: Job) -> bool:
        """Whether a waiting job is one that the agent acts on now."""
        return in_scope(job, self.agent.settings) and not job.left and not self.agent.signs.halted

    def _need_state(self) -> ClusterState:
        state = self.agent.last_state
        if state is None:
            raise LookupError("the cluster has not been observed yet")
        return state
