"""What the policy wanted compared with what the scheduler did, from the journal alone."""

import statistics
from bisect import bisect_left
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from gpuyard.serve.journal import Journal, Prediction
from gpuyard.serve.journal.contents import rounds
from gpuyard.serve.records import RoundRecord

SOON_ROUNDS = 10
"""A start that the policy wanted counts as made soon if the scheduler made it within this many rounds."""
GAP_FACTOR = 10
"""A pause this many times as long as the usual time between rounds is one in which the agent did not run."""


@dataclass(frozen=True)
class JobTimes:
    """One job's start.

    Attributes:
        job: Its id.
        wanted_s: When the policy first would have started it; None: in no round before it started.
        started_s: When the scheduler started it; None: not within the journal.
    """

    job: str
    wanted_s: float | None
    started_s: float | None

    @property
    def change_s(self) -> float | None:
        """How much later the policy would have started it; negative: earlier; None if a time is unknown."""
        if self.wanted_s is None or self.started_s is None:
            return None
        return self.wanted_s - self.started_s


@dataclass
class Pairs:
    """Pairs of jobs that waited together, of which the scheduler started one first.

    Attributes:
        agree: The policy ranked that one first, too.
        disagree: It ranked the other one first.
    """

    agree: int = 0
    disagree: int = 0

    def count(self, place: int, others: Sequence[int]) -> None:
        """Add the pairs of a job that started and others that went on waiting, by ascending rank."""
        before = bisect_left(others, place)
        self.disagree += before
        self.agree += len(others) - before

    @property
    def correlation(self) -> float | None:
        """Kendall's: 1 if all agree, -1 if none does; None without pairs."""
        both = self.agree + self.disagree
        return (self.agree - self.disagree) / both if both else None


@dataclass(frozen=True)
class PredictionError:
    """First predictions of jobs' starts against real ones.

    Attributes:
        jobs: Jobs with both.
        median_s: Of the absolute error.
        p90_s: Of the absolute error.
        bias_s: Median of predicted less real: positive if predicted too late.
        inside: Share of real starts between the low and the high prediction; None where these are missing.
    """

    jobs: int
    median_s: float
    p90_s: float
    bias_s: float
    inside: float | None


@dataclass
class ShadowReport:
    """What the policy wanted compared with what the scheduler did.

    Attributes:
        policies: Names of the policies that were served.
        first_s: The cluster's clock at the first round; None without rounds.
        last_s: The same at the last one.
        rounds: Rounds.
        decided: Of these, those that the policy decided.
        jobs: Jobs that waited or started.
        starts: What the scheduler started.
        compared: Of these, starts of jobs that were ranked in the round before, which the policy decided.
        agreed: Of these, starts that the policy wanted in that round, too.
        baseline_agreed: Of those compared, starts that the fallback wanted.
        wanted: Jobs that the policy wanted to start.
        wanted_soon: Of these, jobs that the scheduler started within the next ``SOON_ROUNDS`` rounds.
        wanted_later: Started after that.
        wanted_never: Not started within the journal.
        order: Start order against the policy's ranking.
        order_same_size: The same among jobs of equal size and partition, which cannot overtake each other by
            fitting into smaller gaps.
        times: Each job's start.
        predictions: Errors of predictions, under the policy and under what runs today.
        missing: What this report cannot tell, in sentences.
    """

    policies: list[str] = field(default_factory=list)
    first_s: float | None = None
    last_s: float | None = None
    rounds: int = 0
    decided: int = 0
    jobs: int = 0
    starts: int = 0
    compared: int = 0
    agreed: int = 0
    baseline_agreed: int = 0
    wanted: int = 0
    wanted_soon: int = 0
    wanted_later: int = 0
    wanted_never: int = 0
    order: Pairs = field(default_factory=Pairs)
    order_same_size: Pairs = field(default_factory=Pairs)
    times: list[JobTimes] = field(default_factory=list)
    predictions: dict[str, PredictionError] = field(default_factory=dict)
    missing: list[str] = field(default_factory=list)

    @property
    def agreement(self) -> float | None:
        """Share of the scheduler's starts that the policy wanted, too; None without any to compare."""
        return self.agreed / self.compared if self.compared else None

    @property
    def baseline_agreement(self) -> float | None:
        """The same of the fallback."""
        return self.baseline_agreed / self.compared if self.compared else None

    def to_json(self) -> dict[str, Any]:
        """Ready for JSON."""
        return asdict(self) | {
            "agreement": self.agreement,
            "baseline_agreement": self.baseline_agreement,
            "order": asdict(self.order) | {"correlation": self.order.correlation},
            "order_same_size": asdict(self.order_same_size)
            | {"correlation": self.order_same_size.correlation},
            "times": [asdict(one) | {"change_s": one.change_s} for one in self.times],
        }


def shadow_report(journal: Journal, since_s: float | None = None) -> ShadowReport:
    """Compare what the policy wanted with what the scheduler did.

    Args:
        journal: Of an agent, in shadow mode for a comparison with a scheduler that it does not touch.
        since_s: Only rounds from this time on, on the cluster's clock.

    Raises:
        JournalError: if it cannot be read.
    """
    comparison = ShadowComparison(journal)
    for record in rounds(journal, journal.numbers()):
        if since_s is None or record.at_s >= since_s:
            comparison.take(record)
    return comparison.finish()


class ShadowComparison:
    """Takes one round after the other.

    Args:
        journal: Where states and predictions of these rounds are.
    """

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self._report = ShadowReport()
        self._previous: RoundRecord | None = None
        self._first_number = 0
        self._seen: set[str] = set()
        self._wanted: dict[str, tuple[int, float]] = {}  # first round and time, of jobs not started then
        self._started: dict[str, tuple[int, float]] = {}
        self._sizes: dict[str, tuple[int, int, str]] = {}
        self._steps_s: list[float] = []
        self._left = self._unseen = self._acted = 0

    def take(self, record: RoundRecord) -> None:
        """Count a round; they come in ascending order."""
        report = self._report
        if record.policy not in report.policies:
            report.policies.append(record.policy)
        if report.first_s is None:
            report.first_s, self._first_number = record.at_s, record.number
        report.last_s = record.at_s
        report.rounds += 1
        report.decided += record.decider == "policy"
        self._acted += record.mode in ("canary", "active")
        self._left = max(self._left, record.left)
        # What the first round saw had happened before there was anything to compare it with.
        if self._previous is not None:
            self._steps_s.append(record.at_s - self._previous.at_s)
            self._take_starts(record, self._previous)
        self._seen |= {one.job for one in record.order}
        if record.decider == "policy":
            for planned in record.starts:
                self._wanted.setdefault(planned.job, (record.number, record.at_s))
        self._previous = record

    def _take_starts(self, record: RoundRecord, before: RoundRecord) -> None:
        started = {one.job: one.at_s for one in record.happened if one.what == "started"}
        rank = {one.job: place for place, one in enumerate(before.order)}
        wanted, baseline = ({one.job for one in plan} for plan in (before.starts, before.baseline))
        for job, at_s in started.items():
            self._report.starts += 1
            self._seen.add(job)
            self._started.setdefault(job, (record.number, at_s))  # not when it was requeued
            if job not in rank:
                self._unseen += 1
            elif before.decider == "policy":
                self._report.compared += 1
                self._report.agreed += job in wanted
                self._report.baseline_agreed += job in baseline
        if before.decider == "policy" and any(job in rank for job in started):
            self._take_pairs(started, rank, before.number)

    def _take_pairs(self, started: dict[str, float], rank: dict[str, int], number: int) -> None:
        """Each start against all that waited with it and went on waiting."""
        if not rank.keys() <= self._sizes.keys():
            state = self._journal.state(number)
            self._sizes |= {job.id: (job.gpus, job.nodes, job.partition) for job in state.waiting}
        waiting: list[int] = []
        alike: dict[Any, list[int]] = {}
        for job, place in rank.items():  # ascending
            if job not in started:
                waiting.append(place)
                alike.setdefault(self._sizes.get(job), []).append(place)
        for job in started.keys() & rank.keys():
            self._report.order.count(rank[job], waiting)
            self._report.order_same_size.count(rank[job], alike.get(self._sizes.get(job), []))

    def finish(self) -> ShadowReport:
        """The report so far; more rounds may follow."""
        report = self._report
        report.jobs = len(self._seen)
        report.wanted = len(self._wanted)
        for job, (number, _) in self._wanted.items():
            start = self._started.get(job)
            if start is None:
                report.wanted_never += 1
            elif start[0] - number <= SOON_ROUNDS:
                report.wanted_soon += 1
            else:
                report.wanted_later += 1
        report.times = self._times()
        predictions = self._journal.predictions(since_number=self._first_number)
        for by in ("policy", "current"):
            error = _prediction_error((one for one in predictions if one.by == by), self._started)
            if error is not None:
                report.predictions[by] = error
        report.missing = self._missing(bool(predictions))
        return report

    def _times(self) -> list[JobTimes]:
        jobs = sorted(
            self._started.keys() | self._wanted.keys(),
            key=lambda job: (
                self._started.get(job, (0, float("inf")))[1],
                self._wanted.get(job, (0, 0.0)),
                job,
            ),
        )
        return [JobTimes(job, _moment(self._wanted, job), _moment(self._started, job)) for job in jobs]

    def _missing(self, predicted: bool) -> list[str]:
        report = self._report
        usual_s = statistics.median(self._steps_s) if self._steps_s else 0.0
        gaps = sum(step > GAP_FACTOR * usual_s for step in self._steps_s) if usual_s > 0 else 0
        back = sum(step < 0 for step in self._steps_s)
        undecided = report.rounds - report.decided
        jumped = "The cluster's clock went back {:,} times: times across that are not to be trusted."
        sentences = {
            "There are no rounds to compare.": int(not report.rounds),
            "{:,} rounds were not decided by the policy and are not compared.": undecided,
            "{:,} starts were of jobs that the round before did not rank: submitted in between, or left to "
            "the scheduler.": self._unseen,
            "Up to {:,} jobs at a time were left to the scheduler and are in no ranking.": self._left,
            "In {:,} rounds the agent acted: starts then were partly its own.": self._acted,
            "The agent paused {:,} times: starts in between are compared with the last round before.": gaps,
            jumped: back,
            "{:,} jobs that the policy would have started had not started when the journal ended.":
            report.wanted_never,
            "Several policies were served; their figures are added up.": int(len(report.policies) > 1),
            "No start times were predicted, so there are no errors of predictions.": int(not predicted),
        }  # fmt: skip
        found = [sentence.format(count) for sentence, count in sentences.items() if count]
        return [
            *found,
            "A job that the policy would have started and the scheduler did not is still wanted in the "
            "next round: times show what each wanted first, not what a cluster under the policy would have "
            "become.",
        ]


def _moment(found: dict[str, tuple[int, float]], job: str) -> float | None:
    return found[job][1] if job in found else None


def _prediction_error(
    predictions: Iterable[Prediction], started: dict[str, tuple[int, float]]
) -> PredictionError | None:
    """Of each job's first prediction: the one from furthest away."""
    first: dict[str, Prediction] = {}
    for one in predictions:
        if one.job in started and one.mid_s is not None and one.number < started[one.job][0]:
            first.setdefault(one.job, one)
    if not first:
        return None
    late = [one.mid_s - started[job][1] for job, one in first.items() if one.mid_s is not None]
    sizes = sorted(map(abs, late))
    bounded = [
        one.low_s <= started[job][1] <= one.high_s
        for job, one in first.items()
        if one.low_s is not None and one.high_s is not None
    ]
    return PredictionError(
        jobs=len(late),
        median_s=statistics.median(sizes),
        p90_s=_quantile(sizes, 0.9),
        bias_s=statistics.median(late),
        inside=sum(bounded) / len(bounded) if bounded else None,
    )


def _quantile(ascending: list[float], share: float) -> float:
    """Linear between neighbours, as numpy has it."""
    position = share * (len(ascending) - 1)
    low = int(position)
    high = min(low + 1, len(ascending) - 1)
    return ascending[low] + (position - low) * (ascending[high] - ascending[low])
