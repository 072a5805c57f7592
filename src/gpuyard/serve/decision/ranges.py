"""Whether a learned policy is shown something that it has never seen in training, in words."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gpuyard.cluster.model import Cluster
from gpuyard.network.observed import ColumnRange, Observed, held_rows
from gpuyard.network.policy import LearnedPolicy
from gpuyard.network.transfer import other_cluster
from gpuyard.policies.base import Policy
from gpuyard.serve.decision.choosing import RangeCheck
from gpuyard.serve.decision.snapshot import LiveSnapshot

SLACK_SHARE = 0.1
"""Of the range seen: a sample of training does not meet the extremes of all of it."""
LEAST_SLACK = 0.05
"""For columns that hardly varied; all columns are of the order of 1."""
LEAST_SHARE = 0.05
"""Share of the jobs (or nodes) in view that must be unlike those of training: one odd job is no other
world."""
_NAMED = 3
"""Columns that are named in words; the worst first."""

Rows = NDArray[np.float32]


def range_check(policy: Policy) -> RangeCheck | None:
    """Says what of a snapshot a policy has never seen; None if nothing is known of what it saw.

    Raises:
        InputError: if what the model file has of it cannot be read.
    """
    if not isinstance(policy, LearnedPolicy):
        return None
    observed = Observed.of(policy.model)
    if observed is None:
        return None
    parts = (
        _Part("of a job", "jobs", _repeated(observed.jobs)),
        _Part("of a node", "nodes", _repeated(observed.nodes)),
        _Part("", "", _repeated(observed.globals)),
    )

    def check(live: LiveSnapshot) -> str:
        if not live.queue:  # nothing to decide on
            return ""
        return unseen_in_words(parts, policy.observe(live.snapshot))

    return check


def range_notes(policy: Policy, cluster: Cluster) -> tuple[str, ...]:
    """What to know of a policy before it serves a cluster that it was not trained on, a sentence each."""
    if not isinstance(policy, LearnedPolicy):
        return ()
    notes = [f"policy {policy.name} {difference}" for difference in other_cluster(policy.model, cluster)]
    if Observed.of(policy.model) is None:
        notes.append(
            f"policy {policy.name} does not say which values it saw in training, so what it is shown is not "
            "compared with that; train the model again to have it compared"
        )
    return tuple(notes)


@dataclass(frozen=True)
class _Part:
    """Columns of one part of an observation.

    Attributes:
        whose: What a row is, for people; empty for the one row of ``globals``.
        many: The same of several rows.
        columns: With the values that were seen.
    """

    whose: str
    many: str
    columns: tuple[ColumnRange, ...]


@dataclass(frozen=True)
class _Unseen:
    """A value that was not seen in training.

    Attributes:
        words: Which.
        excess: How far it lies outside, in units of the slack.
    """

    words: str
    excess: float


def unseen_in_words(parts: tuple[_Part, ...], observation: tuple[Rows, ...]) -> str:
    """What of an observation was not seen in training; empty if nothing that matters."""
    both = [(part, np.atleast_2d(rows)) for part, rows in zip(parts, observation, strict=True)]
    if broken := [words for part, rows in both for words in _not_finite(part, rows)]:
        return "; ".join(broken[:_NAMED])
    found = [unseen for part, rows in both for unseen in _outside(part, rows)]
    found.sort(key=lambda one: -one.excess)
    more = f"; and {len(found) - _NAMED} more columns" if len(found) > _NAMED else ""
    return "; ".join(one.words for one in found[:_NAMED]) + more


def _not_finite(part: _Part, rows: Rows) -> Iterator[str]:
    for number in np.flatnonzero(~np.isfinite(rows).all(axis=0)):
        yield f"{_title(part, int(number))}: not a finite number"


def _outside(part: _Part, rows: Rows) -> Iterator[_Unseen]:
    """Columns outside their ranges, if enough rows are concerned."""
    rows = held_rows(rows) if part.whose else rows
    least, largest = (np.array([getattr(one, name) for one in part.columns]) for name in ("least", "largest"))
    slack = np.maximum(SLACK_SHARE * (largest - least), LEAST_SLACK)
    excess = np.maximum(least - rows, rows - largest) / slack
    concerned = int((excess > 1.0).any(axis=1).sum())
    if not concerned or concerned < LEAST_SHARE * len(rows):
        return
    for number in np.flatnonzero((excess > 1.0).any(axis=0)):
        column, worst = part.columns[number], int(excess[:, number].argmax())
        count = int((excess[:, number] > 1.0).sum())
        share = f" ({count:,} of {len(rows):,} {part.many})" if len(rows) > 1 else ""
        words = (
            f"{_title(part, int(number))}: {rows[worst, number]:.2f}, in training {column.least:.2f} to "
            f"{column.largest:.2f}{share}"
        )
        yield _Unseen(words, float(excess[worst, number]))


def _title(part: _Part, number: int) -> str:
    return f"{part.columns[number].name} {part.whose}".rstrip()


def _repeated(columns: tuple[ColumnRange, ...]) -> tuple[ColumnRange, ...]:
    """Columns of the same name, such as those of pools, numbered from 0."""
    names = [one.name for one in columns]
    return tuple(
        ColumnRange(
            f"{one.name} {names[:number].count(one.name)}" if names.count(one.name) > 1 else one.name,
            one.least,
            one.largest,
        )
        for number, one in enumerate(columns)
    )
