"""Answers to schedulers that ask, each a round of the agent: decided, guarded and recorded."""

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, TypeVar

from gpuyard.errors import InputError
from gpuyard.serve.adapter import Action, GiveBack, Reorder, Start
from gpuyard.serve.process.agent import Agent
from gpuyard.serve.process.routes import AnswerError
from gpuyard.serve.records import RoundRecord
from gpuyard.serve.remote.documents import HostQuestion
from gpuyard.serve.remote.posted import PostedCluster, asked_about, check_posted
from gpuyard.serve.state import ClusterState, Job, Node

Row = TypeVar("Row", Job, Node)


class Decisions:
    """Decides about states that were sent, one after another.

    Args:
        agent: Who decides.
        cluster: Its adapter.
    """

    def __init__(self, agent: Agent, cluster: PostedCluster) -> None:
        self.agent, self._cluster = agent, cluster

    def decide(self, state: ClusterState) -> dict[str, Any]:
        """What to do about a state.

        Raises:
            AnswerError: if nothing can be decided.
        """
        record = self._round(state)
        return {
            "round": record.number,
            "mode": record.mode,
            "control": record.control,
            "policy": record.policy,
            "decider": record.decider,
            "cause": record.cause,
            "words": record.words,
            "state_hash": self._cluster.observe().hash,
            "order": [{"job": one.job, "score": _finite(one.score)} for one in record.order],
            "starts": [
                {"job": one.job, "nodes": _nodes(one.nodes), "stops": list(one.stops)}
                for one in record.starts
            ],
            "actions": [_action(one) for one in self._cluster.actions],
            "refused": [
                {"job": one.job, "action": one.action, "rule": one.rule, "words": one.words}
                for one in record.verdicts
                if not one.allowed
            ],
            "left": [{"job": job, "why": why} for job, why in self.agent.left.items()],
        }

    def select_host(self, question: HostQuestion) -> dict[str, Any]:
        """Where to start one job.

        Raises:
            AnswerError: if the job or the state is not known, or nothing can be decided.
        """
        state = question.state or self.agent.last_state
        if state is None:
            raise AnswerError(409, "no state has been sent yet", "send one with the question")
        job = _job(question, state)
        self.agent.memory.in_flight.pop(job.id, None)  # whoever asks again did not start it
        record = self._round(asked_about(state, job, question.candidates))
        refused = next((one.words for one in record.verdicts if one.job == job.id and not one.allowed), "")
        start = next((one for one in record.starts if one.job == job.id and not refused), None)
        why = refused or self.agent.left.get(job.id, "") or "it starts on none of them now"
        return {
            "job": job.id,
            "host": None if start is None else start.nodes[0][0],
            "nodes": [] if start is None else _nodes(start.nodes),
            "decider": record.decider,
            "why": "" if start is not None else why,
        }

    def _round(self, state: ClusterState) -> RoundRecord:
        try:
            check_posted(state)
        except InputError as error:
            raise AnswerError(422, str(error), "send a state as /v1/openapi.json describes it") from None
        self._cluster.give(_with_known_rows(state, self.agent.last_state))
        record = self.agent.round()
        if record is not None and record.cause == "state":
            raise AnswerError(422, record.words, "send a state as /v1/openapi.json describes it")
        if record is None or self.agent.errors:
            why = self.agent.errors[0] if self.agent.errors else "no round was made"
            raise AnswerError(503, why, "do what the scheduler would do by itself; see the agent's log")
        return record


def _with_known_rows(state: ClusterState, before: ClusterState | None) -> ClusterState:
    """The same state with the objects of the one before where nothing changed: what follows knows these."""
    if before is None:
        return state
    jobs = tuple([_known(job, before.by_id.get(job.id)) for job in state.jobs])
    nodes = tuple([_known(node, before.node_by_name.get(node.name)) for node in state.nodes])
    return replace(state, jobs=jobs, nodes=nodes)


def _known(row: Row, before: Row | None) -> Row:
    return before if before is not None and before == row else row


def _job(question: HostQuestion, state: ClusterState) -> Job:
    if isinstance(question.job, Job):
        return question.job
    found = state.by_id.get(question.job)
    if found is None or not found.waits:
        raise AnswerError(404, f"there is no job {question.job!r} that waits", "send the job itself")
    return found


def _finite(score: float | None) -> float | None:
    return score if score is not None and math.isfinite(score) else None


def _nodes(parts: Sequence[tuple[str, int]]) -> list[dict[str, Any]]:
    return [{"node": node, "gpus": gpus} for node, gpus in parts]


def _action(action: Action) -> dict[str, Any]:
    match action:
        case Start(job, nodes, decision, stop, gpus):
            parts = _nodes(list(zip(nodes, gpus, strict=True)))
            return {"action": "start", "job": job, "nodes": parts, "stops": list(stop), "decision": decision}
        case Reorder(job, priority, decision):
            return {"action": "reorder", "job": job, "priority": priority, "decision": decision}
        case GiveBack(job, why):
            return {"action": "give-back", "job": job, "why": why}
