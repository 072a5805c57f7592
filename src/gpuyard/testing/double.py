"""What the tests of adapters need to know and to do behind an adapter's back."""

from abc import ABC, abstractmethod
from collections.abc import Iterable
from pathlib import Path
from typing import Any, ClassVar

from gpuyard.serve.adapter import Adapter

FAULTS = ("hang", "garbage", "partial", "down")
"""What may be wrong with a scheduler: it does not answer, answers nonsense, half an answer, or an error."""


class SchedulerDouble(ABC):
    """A scheduler, real or not, that a test submits jobs to and looks into.

    At the beginning it has at least two nodes of at least two free GPUs each, and no jobs. What it cannot do
    it leaves out of ``faults`` and ``can``; the tests of these are skipped and say so.

    Args:
        place: An empty directory of the test.
    """

    faults: ClassVar[frozenset[str]] = frozenset(FAULTS)
    """Of ``FAULTS``, those that ``fault`` knows."""
    can: ClassVar[frozenset[str]] = frozenset({"hold", "order", "vanish", "clock", "run", "unpin"})
    """``hold``: jobs are held for the agent, and by their users. ``order``: priorities can be written.
    ``vanish``: a job can be cancelled. ``clock``: the scheduler's clock can jump. ``run``: jobs start.
    ``unpin``: nodes can be taken back from a job that was released and has not started."""

    def __init__(self, place: Path) -> None:
        self.place = place

    # --- what the tests look through

    @abstractmethod
    def adapter(self) -> Adapter:
        """A new adapter, as an agent that has just begun has it: it remembers nothing.

        Its commands or requests must give up within a second or two, or the tests of faults take long.
        """

    # --- what users and time do

    @abstractmethod
    def submit(self, gpus: int = 1, name: str = "job", held: str = "agent") -> str:
        """Submit a job that asks for GPUs on as few nodes as possible; its id as the adapter has it.

        Args:
            gpus: In all; never more than one node has.
            name: Whatever users call it.
            held: ``agent``: as jobs enter for an agent with ``start`` control. ``user``: held by its user.
                Empty: held by nobody.
        """

    def vanish(self, job: str) -> None:
        """Cancel a job: the scheduler does not know it any more, though lists of a moment ago do."""
        raise NotImplementedError

    def run(self) -> None:
        """Let time pass until the scheduler has started what it may start."""
        raise NotImplementedError

    def clock(self, seconds: float) -> None:
        """Let the scheduler's clock jump, back if negative; jobs keep the times that they have."""
        raise NotImplementedError

    def fault(self, name: str) -> None:
        """Let every request fail like this from now on; empty: none."""
        raise NotImplementedError

    # --- what the scheduler itself says, not the adapter

    @abstractmethod
    def is_held(self, job: str) -> bool:
        """Whether the scheduler keeps a job from starting until somebody releases it."""

    @abstractmethod
    def nodes_of(self, job: str) -> frozenset[str]:
        """Where a job runs, or the only nodes on which it may; empty if it waits and may run anywhere."""

    def order(self) -> list[str]:
        """Jobs that nobody holds, in the order in which the scheduler would consider them."""
        raise NotImplementedError

    @abstractmethod
    def account(self) -> Any:
        """All that can be written to jobs, in a form that can be compared."""

    def close(self) -> None:  # noqa: B027 (most have nothing to end)
        """End what was begun. Called once, after every test."""


def held_ones(double: SchedulerDouble, jobs: Iterable[str]) -> set[str]:
    """Those of these jobs that are held."""
    return {job for job in jobs if double.is_held(job)}
