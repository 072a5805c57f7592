"""What every live scheduler offers the daemon: to observe it, and to act on it."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from gpuyard.serve.state import ClusterState

MARK = "gpuyard:"
"""What the agent's words in a job's comment begin with."""

HELD_MARK = f"{MARK}held"
"""The word in the comment of a job that was held for the agent when it was submitted."""


class AdapterError(Exception):
    """A scheduler that does not answer, or answers with something else than expected.

    Attributes:
        code: One word for counters: ``timeout``, ``exit``, ``parse``, ``refused``, ``missing``.
    """

    def __init__(self, message: str, code: str = "exit") -> None:
        super().__init__(message)
        self.code = code


@dataclass(frozen=True, slots=True)
class Start:
    """Let a held job start now, on these nodes and no others.

    Attributes:
        job: Its id.
        nodes: Names of nodes.
        decision: The decision, for the job's comment.
        stop: Jobs that are requeued first to make room.
        gpus: GPUs on each of the nodes, as the policy counts.
    """

    job: str
    nodes: tuple[str, ...]
    decision: str
    stop: tuple[str, ...] = ()
    gpus: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Reorder:
    """Give a waiting job a priority; the scheduler starts it when it will.

    Attributes:
        job: Its id.
        priority: Larger goes first.
        decision: The decision, for the job's comment.
    """

    job: str
    priority: int
    decision: str


@dataclass(frozen=True, slots=True)
class GiveBack:
    """Return a job to the scheduler: not held, no nodes prescribed, its priority the scheduler's own.

    Attributes:
        job: Its id.
        why: For the record.
    """

    job: str
    why: str


Action = Start | Reorder | GiveBack


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of an action.

    Attributes:
        action: What was tried.
        error: What the scheduler said; empty if it accepted.
        code: As of ``AdapterError``; empty if it accepted.
        seconds: How long that took.
    """

    action: Action
    error: str = ""
    code: str = ""
    seconds: float = 0.0

    @property
    def ok(self) -> bool:
        """Whether the scheduler accepted."""
        return not self.error


class Adapter(Protocol):
    """A live scheduler. Only ``observe`` is called in shadow mode."""

    @property
    def name(self) -> str:
        """Such as ``slurm``."""

    def observe(self) -> ClusterState:
        """The cluster now.

        Raises:
            AdapterError: if it cannot be known; nothing is guessed.
        """

    def apply(self, actions: Sequence[Action]) -> list[Outcome]:
        """Try each action, in this order; one that fails does not keep the others from being tried."""

    def give_back_all(self) -> list[Outcome]:
        """Return every job that carries the agent's mark, without need of anything the agent remembers.

        Raises:
            AdapterError: if the jobs cannot be listed.
        """
