"""The adapter of a scheduler that sends its states, and carries out itself what it is told."""

import re
from collections.abc import Sequence
from dataclasses import replace

from gpuyard.errors import InputError
from gpuyard.serve.adapter import Action, AdapterError, Outcome
from gpuyard.serve.decision.live_cluster import live_cluster
from gpuyard.serve.state import ClusterState, Job

_NODE_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")


class PostedCluster:
    """A cluster as its last state has it. What is applied is only noted: the sender acts."""

    def __init__(self) -> None:
        self._state: ClusterState | None = None
        self.actions: list[Action] = []
        """What the sender is to do about the last state."""

    @property
    def name(self) -> str:
        """What it is."""
        return "http"

    def give(self, state: ClusterState) -> None:
        """Take a state for the next round."""
        self._state, self.actions = state, []

    def observe(self) -> ClusterState:
        """The state that was given.

        Raises:
            AdapterError: if there is none yet.
        """
        if self._state is None:
            raise AdapterError("no state has been sent yet", "state")
        return self._state

    def apply(self, actions: Sequence[Action]) -> list[Outcome]:
        """Note what the sender is to do."""
        self.actions = list(actions)
        return [Outcome(action) for action in actions]

    def give_back_all(self) -> list[Outcome]:
        """Nothing: the sender holds its jobs, and must release them when no answer comes."""
        return []


def check_posted(state: ClusterState) -> None:
    """Refuse a state whose parts do not fit together.

    Raises:
        InputError: naming the part.
    """
    state.check()
    known = state.node_by_name
    for name in known:
        if not _NODE_NAME.fullmatch(name):
            raise InputError(f"node {name!r}: expected letters, digits, dots, dashes and underscores")
    for partition in state.partitions:
        strange = [name for name in partition.nodes if name not in known]
        if strange:
            raise InputError(f"partition {partition.name!r} has node {strange[0]!r}, which is not listed")
    try:
        live_cluster(state)
    except ValueError as error:
        if isinstance(error, InputError):
            raise
        raise InputError(f"the nodes and partitions make no cluster: {_first(error)}") from None


def _first(error: ValueError) -> str:
    """The first problem of a model that could not be made."""
    problems = getattr(error, "errors", None)
    return str(problems()[0]["msg"]) if callable(problems) else str(error)


def asked_about(state: ClusterState, job: Job, candidates: Sequence[str] | None) -> ClusterState:
    """A state in which one job may start on some nodes, and nothing else may.

    Args:
        state: As it is.
        job: Which job; it need not be listed yet.
        candidates: Names of nodes; None: any.
    """
    allowed = None if candidates is None else frozenset(candidates)
    others = [
        replace(one, left=one.left or "not asked about") if one.waits else one
        for one in state.jobs
        if one.id != job.id
    ]
    asked = replace(job, held="agent", left="")
    nodes = tuple(
        node
        if node.closed or allowed is None or node.name in allowed
        else replace(node, closed="no candidate")
        for node in state.nodes
    )
    return replace(state, jobs=(*others, asked), nodes=nodes)
