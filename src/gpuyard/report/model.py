"""What a report shows, whichever kind of result it comes from."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import polars as pl

from gpuyard.cluster.model import Cluster
from gpuyard.evaluate.bootstrap import Difference, Verdict
from gpuyard.evaluate.comparison import Loser


@dataclass(frozen=True)
class Standing:
    """A policy in the comparison.

    Attributes:
        name: In full.
        label: Short, and no other's.
        kind: ``heuristic`` or ``learned``; empty if that is not known.
        values: Means over windows, by metric.
        changes: Beside the reference, by metric.
        note: Anything to know about it.
        role: Why it is there: ``given``, ``recorded``, ``reference``, ``rival``, ``hindsight``,
            ``preempting``; empty if not known.
        breaks_limits: Whether it breaks limits on waits in the whole part.
    """

    name: str
    label: str
    kind: str
    values: Mapping[str, float | None]
    changes: Mapping[str, Difference] = field(default_factory=dict)
    note: str = ""
    role: str = ""
    breaks_limits: bool = False


@dataclass(frozen=True)
class Tile:
    """A big figure of the first screen.

    Attributes:
        name: What it is.
        value: In large type.
        remark: Below it.
        change: Beside the other policy, with its interval, if there is one.
        verdict: On the change if there is one, else on the value.
    """

    name: str
    value: str
    remark: str
    change: str = ""
    verdict: Verdict = "one run"


@dataclass(frozen=True)
class Answer:
    """What the first screen says.

    Attributes:
        sentence: Which policy is best.
        sure: How sure that is.
        figures: The big figures.
        words: More of it in words, one paragraph each.
    """

    sentence: str
    sure: str
    figures: Sequence[Tile]
    words: Sequence[str] = ()


@dataclass(frozen=True)
class Report:
    """Everything that is shown.

    Attributes:
        title: Of the page.
        subtitle: What was compared on, in a line.
        answer: What the first screen says.
        metric: The one that decides.
        lower_is_better: Which way.
        standings: The policies, the best first.
        best: Name of the best policy.
        subject: Name of the policy that the answer is about.
        reference: Name of the policy that others are compared with.
        reference_text: What the reference is, in words.
        outcomes: Of each policy, when its jobs were submitted, how long they ran, and when.
        schedules: Of each policy, where and when jobs ran (columns of ``SimulationResult.table``).
        runs: Of each policy whose jobs ran in several pieces, those.
        cluster: The cluster, if it is known.
        classes: Columns policy, by, class, jobs, and a metric each; empty if there are none.
        losses: Classes that fare worse under that policy than under the reference.
        losses_text: What they are, in words.
        other: Name of the policy that the subject is compared with; empty if there is none.
        epoch_s: What the log's clock showed at time 0 of schedules; None if the log has no dates.
        weak: Whether intervals are likely to be too narrow, so that no verdict is sure.
        windows: Of each policy, the deciding metric on each window.
        part_text: Which part of the comparison schedules show.
        outcomes_text: Which part of it outcomes show, if not all.
        facts: What was compared, by name, for the last section.
    """

    title: str
    subtitle: str
    answer: Answer
    metric: str
    lower_is_better: bool
    standings: Sequence[Standing]
    best: str
    subject: str
    reference: str | None
    reference_text: str
    outcomes: Mapping[str, pl.DataFrame]
    schedules: Mapping[str, pl.DataFrame]
    cluster: Cluster | None
    classes: pl.DataFrame
    facts: Mapping[str, str]
    runs: Mapping[str, pl.DataFrame] = field(default_factory=dict)
    losses: Sequence[Loser] = ()
    losses_text: str = ""
    epoch_s: float | None = None
    other: str = ""
    weak: bool = False
    windows: Mapping[str, Sequence[tuple[str, float]]] = field(default_factory=dict)
    part_text: str = ""
    outcomes_text: str = ""
    training: Sequence[Path] = ()

    @property
    def has_intervals(self) -> bool:
        """Whether differences come with how sure they are."""
        return any(change.has_interval for one in self.standings for change in one.changes.values())

    def label(self, policy: str) -> str:
        """The short name of a policy."""
        return next((one.label for one in self.standings if one.name == policy), policy)
