"""Records of rounds as rows of tables, and back."""

import json
from dataclasses import dataclass
from typing import Any, Literal

from gpuyard.serve.records import Happened, Planned, Ranked, RoundRecord, Verdict

By = Literal["policy", "current"]

ROUND_COLUMNS = (
    *("number", "at_s", "wall_s", "mode", "control", "policy", "model", "decider", "cause", "words"),
    *("starts", "baseline", "timings_s", "pending", "left"),
)
"""Of table ``rounds``, before the numbers of its three texts."""


@dataclass(frozen=True)
class DecisionRow:
    """One decision with what is known of its round.

    Attributes:
        number: Of the round.
        at_s: The cluster's clock.
        id: Of the decision: ``ROUND-PLACE``.
        job: The job's id.
        action: ``start``, ``reorder``, ``give-back`` or ``stop``.
        rule: The rule that refused; empty if all agreed.
        words: For people.
        error: What the scheduler said; empty if it accepted or was not asked.
        decider: Whose decision it was.
        cause: Why the policy did not decide; empty if it did.
    """

    number: int
    at_s: float
    id: str
    job: str
    action: str
    rule: str
    words: str
    error: str
    decider: str
    cause: str


@dataclass(frozen=True)
class Prediction:
    """When a job was expected to start, on the cluster's clock.

    Attributes:
        job: Its id.
        number: Of the round in which that was predicted.
        by: Under which policy: the served one, or the one that comes nearest to what runs today.
        low_s: Hardly before this; None: unknown.
        mid_s: Most likely; None: not within the time that was looked ahead.
        high_s: Hardly after this; None: unknown.
    """

    job: str
    number: int
    by: By
    low_s: float | None
    mid_s: float | None
    high_s: float | None


def round_values(record: RoundRecord) -> tuple[Any, ...]:
    """Values of ``ROUND_COLUMNS``."""
    packed = {
        "starts": _planned_text(record.starts),
        "baseline": _planned_text(record.baseline),
        "timings_s": json.dumps(record.timings_s),
    }
    return tuple(
        packed[name] if name in packed else storable(getattr(record, name)) for name in ROUND_COLUMNS
    )


def ranking_text(order: tuple[Ranked, ...]) -> str:
    """An order as JSON, every float to its last bit."""
    return json.dumps([(one.job, one.score) for one in order], separators=(",", ":"))


def read_ranking(text: str) -> tuple[Ranked, ...]:
    """What ``ranking_text`` wrote."""
    return tuple(Ranked(job, score) for job, score in json.loads(text))


def read_round(
    values: tuple[Any, ...], order: tuple[Ranked, ...], verdicts: list[Any], happened: list[Any]
) -> RoundRecord:
    """A record of the values of its rows."""
    named = dict(zip(ROUND_COLUMNS, values, strict=True))
    for name in ("starts", "baseline"):
        named[name] = _read_planned(named[name])
    named["timings_s"] = json.loads(named["timings_s"])
    return RoundRecord(
        **named,
        order=order,
        verdicts=tuple(Verdict(*row) for row in verdicts),
        happened=tuple(read_happened(row) for row in happened),
    )


def verdict_values(verdict: Verdict) -> tuple[Any, ...]:
    """Values of table ``decisions`` after round and place."""
    found = (verdict.id, verdict.job, verdict.action, verdict.rule, verdict.words, verdict.error)
    return tuple(map(storable, found))


def happened_values(one: Happened) -> tuple[Any, ...]:
    """Values of table ``happened`` after round and place."""
    return storable(one.job), one.what, one.at_s, json.dumps(one.nodes)


def read_happened(row: tuple[Any, ...]) -> Happened:
    """What ``happened_values`` wrote."""
    job, what, at_s, nodes = row
    return Happened(job, what, at_s, tuple(json.loads(nodes)))


def storable(value: Any) -> Any:
    """A value that SQLite takes: halves of UTF-16 pairs, which it does not, are spelt out."""
    if isinstance(value, str) and not value.isascii():
        return value.encode("utf-8", "backslashreplace").decode()
    return value


def _planned_text(planned: tuple[Planned, ...]) -> str:
    return json.dumps([(one.job, one.nodes, one.stops) for one in planned], separators=(",", ":"))


def _read_planned(text: str) -> tuple[Planned, ...]:
    return tuple(
        Planned(job, tuple((node, gpus) for node, gpus in nodes), tuple(stops))
        for job, nodes, stops in json.loads(text)
    )
