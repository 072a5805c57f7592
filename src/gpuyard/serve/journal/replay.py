"""Every recorded round decided again: by the same policy, to the last bit, or by another one.

The states are those that really were. What another policy would have started changes none of them, so a
replay says what it wanted at each moment, not what a cluster under it would have become.
"""

import hashlib
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Protocol

from gpuyard.errors import InputError
from gpuyard.policies.base import Policy
from gpuyard.policies.policy_file import SUFFIX
from gpuyard.serve.journal import Journal
from gpuyard.serve.journal.contents import noted_settings, rounds
from gpuyard.serve.records import Planned, Ranked, RoundRecord
from gpuyard.serve.settings import ServeSettings
from gpuyard.serve.state import ClusterState
from gpuyard.simulation.find import find_policy

MOST_DIFFERENCES = 1000
"""Rounds whose differences are listed; all are counted."""


class Decided(Protocol):
    """What a policy made of a state."""

    @property
    def order(self) -> tuple[Ranked, ...]:
        """Its ranking."""

    @property
    def starts(self) -> tuple[Planned, ...]:
        """What it would start."""


Decide = Callable[[ClusterState, str, Policy, ServeSettings], Decided]
"""From a state, the memory as JSON, a policy and settings."""


@dataclass(frozen=True)
class Difference:
    """A round that was decided otherwise than recorded.

    Attributes:
        number: Of the round.
        at_s: The cluster's clock.
        decider: Who decided it.
        order_differs: Whether the ranking or a score differs.
        recorded: Jobs that only the record starts.
        replayed: Jobs that only the replay starts.
        moved: Jobs that both start, on other nodes or in place of other jobs.
        error: Why the policy could not decide it; empty if it could.
    """

    number: int
    at_s: float
    decider: str
    order_differs: bool = False
    recorded: tuple[str, ...] = ()
    replayed: tuple[str, ...] = ()
    moved: tuple[str, ...] = ()
    error: str = ""


@dataclass(frozen=True)
class Shift:
    """When a job would have started.

    Attributes:
        job: Its id.
        wanted_s: When the policy of the replay first would have started it; None: in no recorded round.
        started_s: When it really started; None: not within the journal.
    """

    job: str
    wanted_s: float | None
    started_s: float | None

    @property
    def change_s(self) -> float | None:
        """How much later than it did; negative: earlier; None if one of the times is unknown."""
        if self.wanted_s is None or self.started_s is None:
            return None
        return self.wanted_s - self.started_s


@dataclass
class ReplayReport:
    """What a replay found.

    Attributes:
        policy: The one that decided now; empty: whoever had decided each round.
        rounds: Rounds that were decided again.
        skipped: Rounds in which nobody had decided.
        same: Rounds with the same decision. Without ``policy``: order, scores, starts and their nodes, to the
            last bit. With it: the same jobs started.
        failed: Rounds that could not be decided.
        differing: Rounds that differ.
        differences: The first of these.
        shifts: Jobs that the policy would have started or that did start, in the order of real starts. Only
            with ``policy``.
        notes: What to know about it.
    """

    policy: str = ""
    rounds: int = 0
    skipped: int = 0
    same: int = 0
    failed: int = 0
    differing: int = 0
    differences: list[Difference] = field(default_factory=list)
    shifts: list[Shift] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    @property
    def agrees(self) -> bool:
        """Whether every round was decided as recorded."""
        return self.same == self.rounds

    @property
    def same_share(self) -> float | None:
        """Share of rounds with the same decision; None without rounds."""
        return self.same / self.rounds if self.rounds else None

    def to_json(self) -> dict[str, Any]:
        """Ready for JSON."""
        shifts = [asdict(one) | {"change_s": one.change_s} for one in self.shifts]
        return asdict(self) | {"agrees": self.agrees, "same_share": self.same_share, "shifts": shifts}


def replay(
    journal: Journal,
    policy: str | None = None,
    *,
    since: int = 0,
    until: int | None = None,
    settings: ServeSettings | None = None,
    decide: Decide | None = None,
    find: Callable[[str], Policy] = find_policy,
    progress: Callable[[int, int], None] | None = None,
) -> ReplayReport:
    """Decide recorded rounds again.

    Args:
        journal: Where they are recorded.
        policy: Who decides; None: for each round whoever did, and the decision must be the same.
        since: First round.
        until: Last round; None: the newest.
        settings: Of the agent; None: those that the journal notes.
        decide: Decides on a state; None: as the agent does.
        find: Gives the policy of a name.
        progress: Takes rounds done, and rounds in all.

    Raises:
        InputError: if there is no such policy, or the journal cannot be read.
    """
    settings = settings or noted_settings(journal)
    replaying = _Replay(policy, settings, decide or _as_the_agent, find)
    numbers = journal.numbers(since, until)
    for done, record in enumerate(rounds(journal, numbers), 1):
        replaying.take(record, journal)
        if progress is not None:
            progress(done, len(numbers))
    return replaying.finish()


def model_hash(policy: str) -> str:
    """SHA-256 of the file of a learned policy, or of a policy file; empty for policies that only have a name.

    Raises:
        InputError: if there is no such policy.
    """
    if policy.endswith(SUFFIX):
        return _file_hash(Path(policy))
    if getattr(find_policy(policy), "model", None) is None:
        return ""
    from gpuyard.network.model_file import find_model  # what learned policies need takes time to load

    return _file_hash(find_model(policy))


def _file_hash(path: Path) -> str:
    try:
        return hashlib.sha256(path.read_bytes()).hexdigest()
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror})") from None


def _as_the_agent(state: ClusterState, memory: str, policy: Policy, settings: ServeSettings) -> Decided:
    from gpuyard.serve.decision.deciding import decide_on  # which loads numpy and the core
    from gpuyard.serve.decision.memory import Memory

    return decide_on(state, Memory.from_json(memory), policy, settings)


class _Replay:
    def __init__(
        self, policy: str | None, settings: ServeSettings, decide: Decide, find: Callable[[str], Policy]
    ) -> None:
        self._settings, self._decide, self._find = settings, decide, find
        self._other = None if policy is None else find(policy)
        self._policies: dict[str, Policy] = {}
        self._models: set[tuple[str, str]] = set()
        self._wanted_s: dict[str, float] = {}
        self._started_s: dict[str, float] = {}
        self.report = ReplayReport(policy or "")

    def take(self, record: RoundRecord, journal: Journal) -> None:
        for one in record.happened:
            if one.what == "started":
                self._started_s.setdefault(one.job, one.at_s)  # not when it was requeued
        if record.decider == "nobody":
            self.report.skipped += 1
            return
        self.report.rounds += 1
        state, memory = journal.state(record.number), journal.memory(record.number)
        try:
            made = self._decide(state, memory, self._decider(record), self._settings_of(record))
        except Exception as error:  # a policy may raise anything, and the other rounds are still to come
            self.report.failed += 1
            self._differs(Difference(record.number, record.at_s, record.decider, error=_words(error)))
            return
        for planned in made.starts:
            self._wanted_s.setdefault(planned.job, record.at_s)
        difference = _compare(record, made)
        jobs_differ = difference.recorded or difference.replayed
        exact = self._other is None
        if jobs_differ or (
            exact and (difference.order_differs or difference.moved or _reordered(record, made))
        ):
            self._differs(difference)
        else:
            self.report.same += 1

    def _settings_of(self, record: RoundRecord) -> ServeSettings:
        """The settings with mode and control of the round: which jobs a policy may rank goes by them."""
        update = {"mode": record.mode, "control": record.control}
        return self._settings.model_copy(update=update)

    def _decider(self, record: RoundRecord) -> Policy:
        if self._other is not None:
            return self._other
        name = record.policy if record.decider == "policy" else self._settings.fallback
        if record.decider == "policy":
            self._models.add((name, record.model))
        if name not in self._policies:
            self._policies[name] = self._find(name)
        return self._policies[name]

    def _differs(self, difference: Difference) -> None:
        self.report.differing += 1
        if len(self.report.differences) < MOST_DIFFERENCES:
            self.report.differences.append(difference)

    def finish(self) -> ReplayReport:
        report = self.report
        if self._other is not None:
            jobs = sorted(
                self._wanted_s.keys() | self._started_s.keys(),
                key=lambda job: (self._started_s.get(job, float("inf")), self._wanted_s.get(job, 0.0), job),
            )
            report.shifts = [Shift(job, self._wanted_s.get(job), self._started_s.get(job)) for job in jobs]
            report.notes.append(
                "The states are those that really were: what this policy would have started changes none of "
                "them."
            )
        report.notes += [note for name, hash in sorted(self._models) for note in _model_notes(name, hash)]
        if report.skipped:
            report.notes.append(f"In {report.skipped:,} of the rounds nobody had decided; they are left out.")
        return report


def _compare(record: RoundRecord, made: Decided) -> Difference:
    before = {planned.job: planned for planned in record.starts}
    now = {planned.job: planned for planned in made.starts}
    return Difference(
        record.number,
        record.at_s,
        record.decider,
        order_differs=_bits(record.order) != _bits(made.order),
        recorded=tuple(job for job in before if job not in now),
        replayed=tuple(job for job in now if job not in before),
        moved=tuple(job for job, planned in before.items() if job in now and now[job] != planned),
    )


def _reordered(record: RoundRecord, made: Decided) -> bool:
    return [planned.job for planned in record.starts] != [planned.job for planned in made.starts]


def _bits(order: tuple[Ranked, ...]) -> list[tuple[str, str | None]]:
    """Floats by their bits: 0.0 and -0.0 differ."""
    return [(one.job, None if one.score is None else float(one.score).hex()) for one in order]


def _model_notes(name: str, recorded: str) -> list[str]:
    try:
        present = model_hash(name)
    except InputError as error:
        return [f"Whether policy {name} is what it was cannot be told: {error}"]
    if present == recorded:
        return []
    return [
        f"The file of policy {name} is not the one that decided (recorded {recorded[:12] or 'none'}, "
        f"present {present[:12] or 'none'}): differences may be its own."
    ]


def _words(error: Exception) -> str:
    return str(error).strip().split("\n", 1)[0] or type(error).__name__
