"""What is known of a round afterwards: who decided, what, why not, and how long it took."""

from dataclasses import dataclass, field
from typing import Literal, NamedTuple

Decider = Literal["policy", "fallback", "nobody"]
PHASES = ("list", "encode", "decide", "guard", "apply")
"""Parts of a round whose time is measured."""


class Ranked(NamedTuple):
    """A waiting job's place in the policy's order.

    Attributes:
        job: Its id.
        score: What it was ranked by, smallest first; None where a policy has no scores.
    """

    job: str
    score: float | None = None


@dataclass(frozen=True)
class Planned:
    """A start that somebody decided.

    Attributes:
        job: Its id.
        nodes: Names of nodes and GPUs on each.
        stops: Jobs that would make room.
    """

    job: str
    nodes: tuple[tuple[str, int], ...]
    stops: tuple[str, ...] = ()


@dataclass(frozen=True)
class Verdict:
    """What the guard said about one action.

    Attributes:
        id: Of the decision, as it is written into the job's comment: ``ROUND-PLACE``.
        job: The job's id.
        action: ``start``, ``reorder``, ``give-back`` or ``stop``.
        rule: The rule that refused; empty if all agreed.
        words: For people, why it was refused, or which nodes or priority it was about.
        error: What the scheduler said when it was applied; empty if it accepted or was not asked.
    """

    id: str
    job: str
    action: str
    rule: str = ""
    words: str = ""
    error: str = ""

    @property
    def allowed(self) -> bool:
        """Whether the guard let it pass."""
        return not self.rule


@dataclass(frozen=True)
class Happened:
    """Something that the scheduler did, seen by comparing two states.

    Attributes:
        job: Its id.
        what: ``submitted``, ``started``, ``ended``, ``requeued`` or ``gone`` (left the queue unstarted).
        at_s: When, on the cluster's clock, as exactly as is known.
        nodes: Where it started; empty otherwise.
    """

    job: str
    what: Literal["submitted", "started", "ended", "requeued", "gone"]
    at_s: float
    nodes: tuple[str, ...] = ()


@dataclass(frozen=True)
class RoundRecord:
    """One round.

    Attributes:
        number: From 1, without gaps as long as the journal exists.
        at_s: The cluster's clock.
        wall_s: Unix time of the agent's host.
        mode: As of ``ServeSettings``, or ``halted``.
        control: As of ``ServeSettings``.
        policy: Name of the policy.
        model: Hash of the model or policy file; empty for heuristics.
        decider: Whose decision it was.
        cause: Why the policy did not decide; empty if it did.
        words: The same for people.
        order: The waiting jobs that the agent may act on, as the decider ranks them.
        starts: What the decider would start now.
        baseline: What the fallback would start now, whoever decided.
        verdicts: What became of each action; in shadow mode nothing is applied.
        happened: What the scheduler did since the round before.
        timings_s: Seconds of each of ``PHASES``.
        pending: Jobs that wait.
        left: Of these, those that are left to the cluster's own scheduler.
    """

    number: int
    at_s: float
    wall_s: float
    mode: str
    control: str
    policy: str
    model: str = ""
    decider: Decider = "nobody"
    cause: str = ""
    words: str = ""
    order: tuple[Ranked, ...] = ()
    starts: tuple[Planned, ...] = ()
    baseline: tuple[Planned, ...] = ()
    verdicts: tuple[Verdict, ...] = ()
    happened: tuple[Happened, ...] = ()
    timings_s: dict[str, float] = field(default_factory=dict)
    pending: int = 0
    left: int = 0
