"""What policies are compared on, and which ones: the description of a comparison, as its file has it."""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import Any, Literal, Self

from gpuyard.config import Start
from gpuyard.errors import InputError
from gpuyard.evaluate.bootstrap import FEWEST_DISJOINT
from gpuyard.metrics.catalogue import metrics
from gpuyard.registry import suggest
from gpuyard.workload import Workload

Kind = Literal["windows", "draws", "whole", "episodes"]
Role = Literal["given", "recorded", "reference", "rival", "hindsight", "preempting", "family"]

RETURN = "return"
"""The sum of an episode's rewards, as a metric."""
UNFINISHED = "unfinished_jobs"
"""A metric of episodes alone: jobs that had not ended when the episode was cut off."""


@dataclass(frozen=True)
class Setting:
    """What policies were compared on.

    Attributes:
        workload: Its name, or that of the generator or environment.
        jobs: How many it has; 0 if they are drawn.
        fingerprint: Of the jobs, to tell whether two comparisons are over the same ones.
        cluster: As JSON; empty where every draw has its own.
        information: Settings of the simulation as JSON, ``estimates`` among them.
        part: Of the workload: ``test``, ``validation``, ``train`` or ``all``.
        kind: ``windows`` of a workload, ``draws`` of a generator, the ``whole`` part as one window, or
            ``episodes`` of an environment.
        windows: Their names: first rows, or seeds.
        jobs_per_window: Jobs of each.
        block: How many neighbouring windows make one block of the bootstrap; 1 if they are independent.
        disjoint: How many windows side by side span as much as all of them together.
        metric: What policies are compared by.
        lower_is_better: Its direction.
        environment: Of episodes: the settings of their environment, as JSON.
        left_out: Jobs of the workload, or of all draws, that can never run on the cluster.
        noise_draws: Draws of the noise of estimates that figures of a window are means over.
        price_per_kwh: Price of energy, or the tariff, if there is one.
        margins: Jobs that run before, and that arrive after, the own jobs of each window, at most; both 0:
            windows begin with an empty cluster, or with what was recorded.
        start: How windows begin: ``busy``, ``recorded`` or ``empty``.
        silent: Jobs that are in no beginning that was recorded, as the log does not say when they started.
        starts: What the test of two starts found that chose them, as JSON; None if there was none.
        guards: Limits on waits that a recommended policy keeps, as JSON; empty: none.
        asked_estimates: The setting ``estimates`` as it was asked for: ``auto`` if nobody said.
        not_tried: Backfills that no heuristic of the family was tried with, as they would take minutes.
        imported: The account of the import that the jobs come from, as JSON, if there is one.
        epoch_s: What the log's clock (UTC, since 1970) showed at time 0 of schedules; None without dates.
        recorded_waits: Of a log with starts: its mean wait next to a simulated one, as JSON
            (``gpuyard.simulation.recorded_waits``); None without.
    """

    workload: str
    jobs: int
    fingerprint: str
    cluster: Mapping[str, Any]
    information: Mapping[str, Any]
    part: str
    kind: Kind
    windows: tuple[int, ...]
    jobs_per_window: int
    block: int
    disjoint: float
    metric: str
    lower_is_better: bool
    environment: Mapping[str, Any] | None = None
    left_out: int = 0
    noise_draws: int = 1
    price_per_kwh: float | str | None = None
    imported: Mapping[str, Any] | None = None
    margins: tuple[int, int] = (0, 0)
    start: Start = "busy"
    silent: int = 0
    starts: Mapping[str, Any] | None = None
    guards: Mapping[str, Any] = field(default_factory=dict)
    asked_estimates: str = ""
    not_tried: tuple[str, ...] = ()
    epoch_s: float | None = None
    recorded_waits: Mapping[str, Any] | None = None

    @property
    def is_cold(self) -> bool:
        """Whether windows begin with an empty cluster."""
        return self.margins == (0, 0) and self.start != "recorded"

    @property
    def knows_the_future(self) -> bool:
        """Whether policies are told what no scheduler knows: true run times, or true ones with noise."""
        return self.estimates in ("exact", "noisy")

    @property
    def estimates(self) -> str:
        """What policies are told of run times."""
        return str(self.information.get("estimates", "exact"))

    @property
    def estimates_in_words(self) -> str:
        """The same, and over how many draws of their noise figures are means."""
        several = self.noise_draws > 1
        return f"{self.estimates}, means over {self.noise_draws} draws" if several else self.estimates

    @property
    def is_weak(self) -> bool:
        """Whether the windows overlap so much that intervals are likely to be too narrow."""
        return self.disjoint < FEWEST_DISJOINT

    @property
    def has_weak_intervals(self) -> bool:
        """The same where there are intervals: one window has none."""
        return len(self.windows) > 1 and self.is_weak

    def to_json(self) -> dict[str, Any]:
        """As JSON-ready values."""
        return asdict(self)

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> Self:
        """From what ``to_json`` gives.

        Raises:
            TypeError: for names that are missing or unknown.
        """
        tuples = ("windows", "margins", "not_tried")
        lists = {name: tuple(document[name]) for name in tuples if name in document}
        return cls(**{**document, **lists})


@dataclass(frozen=True)
class PolicyEntry:
    """A policy of a comparison.

    Attributes:
        name: Full name: of a heuristic by its grammar, of a learned policy or a policy file the path it was
            opened by.
        label: Short, and told apart from all others.
        kind: What it is.
        source: The path of its model or policy file; None for heuristics by name.
        placement: The rule that places jobs.
        role: Why it is there: ``given`` by the user, what the log ``recorded`` beside another reference, the
            ``reference``, the heuristic that was best in ``hindsight``, the ``rival`` that was best on
            earlier windows, a ``preempting`` one, or one of the ``family`` of fixed heuristics, which are
            run for few metrics only and without schedules.
        note: Something to know, in words; empty if there is nothing.
        rules: Of a policy file: the policy's name that it states, with its placement; else empty.
        settings: Those that a policy file states.
        is_assumed: Whether it is the reference because nobody said what runs today.
        calibration: How closely it reproduces a log, as its policy file says, as JSON; empty if that is not
            known.
    """

    name: str
    label: str
    kind: Literal["heuristic", "learned", "recorded"]
    source: str | None
    placement: str
    role: Role = "given"
    note: str = ""
    rules: str = ""
    settings: Mapping[str, Any] = field(default_factory=dict)
    is_assumed: bool = False
    calibration: Mapping[str, Any] = field(default_factory=dict)

    @property
    def is_shown(self) -> bool:
        """Whether it has a row in tables; the family has not."""
        return self.role != "family"

    def marked(self, marks: Sequence[str]) -> Self:
        """The same with a label that says what keeps it from being comparable, if something does."""
        return replace(self, label=f"{self.label} ({', '.join(marks)})") if marks else self

    def beside(self) -> Self:
        """The same as one of those that are compared with a reference; nobody asks what was recorded."""
        return replace(self, role="recorded" if self.kind == "recorded" else "given", is_assumed=False)

    def noted(self, note: str) -> Self:
        """The same with something more to know."""
        return replace(self, note="; ".join(filter(None, (self.note, note))))

    def to_json(self) -> dict[str, Any]:
        """As JSON-ready values."""
        return asdict(self)

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> Self:
        """From what ``to_json`` gives."""
        known = {one.name for one in fields(cls)}
        return cls(**{name: value for name, value in document.items() if name in known})


@dataclass(frozen=True)
class Outline:
    """What a directory of results says of itself, without its tables.

    Attributes:
        setting: What policies were compared on.
        policies: Who they are.
        reference: Name of the policy that the others are measured against.
        schedules: Files of schedules by policy.
        executions: Files of the stays of jobs on GPUs by policy, of those whose jobs ran in pieces.
    """

    setting: Setting
    policies: tuple[PolicyEntry, ...]
    reference: str | None
    schedules: Mapping[str, Path]
    executions: Mapping[str, Path]


def fingerprint_of(workload: Workload) -> str:
    """A checksum of when jobs come, how long they run and what they ask for."""
    digest = hashlib.sha256()
    for name in ("submit_s", "duration_s", "gpus", "gpu_milli", "cpus", "memory_mib", "priority"):
        digest.update(workload.frame[name].to_numpy().tobytes())
    if workload.has("nodes"):  # else the checksum stays as it was without the column
        digest.update(workload.frame["nodes"].fill_null(0).to_numpy().tobytes())
    return digest.hexdigest()[:32]


def offset_of(metric: str) -> float | None:
    """What is added to a metric before logarithms are taken, where some values are 0; None: no logarithms."""
    if metric == RETURN:
        return None
    unit = metrics()[metric].unit if metric in metrics() else "jobs"
    return 1.0 if unit in ("s", "jobs") else 0.0


def has_direction(metric: str) -> bool:
    """Whether more or less of a metric is better, so that policies can be compared by it."""
    return metric in (RETURN, UNFINISHED) or (
        metric in metrics() and metrics()[metric].direction != "neutral"
    )


def lower_is_better(metric: str, known: tuple[str, ...] | None = None) -> bool:
    """The direction of a metric that policies can be compared by.

    Args:
        metric: Its name.
        known: Metrics that there are; None: those of schedules.

    Raises:
        InputError: for a metric that is unknown, or of which neither more nor less is better.
    """
    names = tuple(metrics()) if known is None else known
    if metric not in names:
        raise InputError(f"unknown metric {metric!r}{suggest(metric, dict.fromkeys(names))}")
    if metric in (RETURN, UNFINISHED):
        return metric == UNFINISHED
    known_direction = metrics()[metric].direction if metric in metrics() else "neutral"
    if known_direction == "neutral":
        raise InputError(
            f"metric {metric}: neither more nor less of it is better; compare by another, such as "
            "mean_bounded_slowdown"
        )
    return known_direction == "lower"
