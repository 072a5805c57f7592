"""The steps of every comparison: choose the reference, run all policies, put the results together.

Where policies run is a ``Source``: windows of a log, draws of a generator, or episodes of an environment.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Protocol

import numpy as np
import polars as pl

from gpuyard.errors import InputError, setting
from gpuyard.evaluate.bootstrap import Floats
from gpuyard.evaluate.comparison import ChosenOn, Comparison, WholeReplay
from gpuyard.evaluate.config import BEST
from gpuyard.evaluate.contenders import Contender, with_labels, without_doubles
from gpuyard.evaluate.setting import Role, Setting
from gpuyard.evaluate.tables import CLASS_SCHEMA, window_frame, window_row
from gpuyard.simulation.recorded_waits import RecordedWaits
from gpuyard.simulation.windows import Part

Figures = Mapping[str, Mapping[str, Floats]]
"""Of each policy by name: metrics by name, one value per window."""
Progress = Callable[[str, int, int], None]
"""Told what is being done, how much of it is done, and of how much."""

CHOSEN_IN: dict[Part, tuple[Part, ...]] = {
    "test": ("train", "validation"),
    "validation": ("train",),
    "train": ("validation",),
    "all": ("validation",),
}
"""In which parts the best fixed heuristic is chosen, by the part that policies are compared on."""


def no_progress(stage: str, done: int, total: int) -> None:
    """For callers who do not want to know."""


@dataclass(frozen=True)
class Outcomes:
    """What policies that are shown did on all windows.

    Attributes:
        rows: Of the table of windows.
        classes: Metrics by class of jobs; empty where they are not known.
        jobs: When each job ran, where that is kept.
        schedules: Of the first window, by policy.
        whole: The whole part replayed in one go, where that is done.
        notes: What to know about runs of policies, by name.
        marks: What keeps policies from being comparable, by name.
        waits: Whether the modelled cluster explains what was recorded; None if that has no row.
    """

    rows: Sequence[Mapping[str, Any]]
    classes: pl.DataFrame = field(default_factory=lambda: pl.DataFrame(schema=CLASS_SCHEMA))
    jobs: pl.DataFrame | None = None
    schedules: Mapping[str, pl.DataFrame] = field(default_factory=dict)
    whole: WholeReplay | None = None
    notes: Mapping[str, str] = field(default_factory=dict)
    marks: Mapping[str, Sequence[str]] = field(default_factory=dict)
    waits: RecordedWaits | None = None


class Source(Protocol):
    """Where policies are compared."""

    @property
    def setting(self) -> Setting:
        """What they are compared on."""

    def contender(self, name: str) -> Contender:
        """A policy by name, if it can run here and would be compared fairly."""

    def family(self) -> list[Contender]:
        """Every fixed heuristic that can run here, but those that preempt."""

    def preempting(self) -> list[Contender]:
        """Heuristics that stop running jobs."""

    def slower(self, ranked: Sequence[str]) -> list[Contender]:
        """More heuristics that are worth trying when these are the best of the family, the best first."""

    def ranked(self, contenders: Sequence[Contender], stage: str, *, validation: bool = False) -> Figures:
        """Few metrics of the better ones of heuristics, the best first.

        They run on the compared windows, or on those of other parts on which heuristics are chosen.
        """

    def run(self, contenders: Sequence[Contender], stage: str) -> Outcomes:
        """All that is kept of policies on the compared windows."""


def evaluate(
    source: Source,
    given: Iterable[Contender],
    *,
    current: str,
    all_heuristics: bool,
    assumed: bool = False,
    recorded: Contender | None = None,
) -> Comparison:
    """Compare policies with what runs today, and with the best fixed heuristic.

    Args:
        source: On what.
        given: Those that were asked for.
        current: What runs today, from which differences are counted: a policy, or ``best``, the best fixed
            heuristic on windows of other parts.
        all_heuristics: Whether to run every fixed heuristic, to name the one that was best beforehand and the
            one that is best in hindsight.
        assumed: Whether nobody said that this is what runs today.
        recorded: What the log says happened, which is shown whatever the reference; None: it does not say.

    Raises:
        InputError: if the reference cannot run here, or no heuristic is best.
    """
    by_choice = current == BEST
    family = source.family() if all_heuristics or by_choice else []
    rival = None
    if by_choice or (all_heuristics and family):
        rival, family = _best_heuristic(source, family)
    reference = source.contender(current) if not by_choice else rival
    assert reference is not None
    reference = reference.assumed() if assumed else reference
    figures: Figures = {}
    if all_heuristics:
        figures = source.ranked(family, "every heuristic")
    hindsight = next(iter(figures), None)
    roles: dict[str, Role] = {}
    if hindsight is not None:
        roles[hindsight] = "hindsight"
    if rival is not None:
        roles[rival.name] = "rival"
    roles |= {one.name: one.beside().entry.role for one in given}
    roles[reference.name] = "reference"
    best = [one for one in family if one.name in roles]
    happened = [] if recorded is None or recorded.name == reference.name else [recorded]
    shown = without_doubles([*happened, reference, *given, *best, *_best_preempting(source, all_heuristics)])
    in_roles = [one.in_role(roles.get(one.name, one.entry.role)) for one in with_labels(shown)]
    names = {one.name for one in shown}
    others = [one for one in family if one.name in figures and one.name not in names]
    chosen_on: ChosenOn = "validation" if by_choice else "given"
    return _put_together(
        source,
        in_roles,
        others,
        figures,
        Choice(reference.name, chosen_on, rival.name if rival else None, hindsight),
    )


@dataclass(frozen=True)
class Choice:
    """Who policies are measured against.

    Attributes:
        reference: What runs today.
        chosen_on: How that is known.
        rival: The fixed heuristic that was best on earlier windows.
        hindsight: The one that is best on the compared ones.
    """

    reference: str
    chosen_on: ChosenOn
    rival: str | None
    hindsight: str | None


def _best_heuristic(source: Source, family: list[Contender]) -> tuple[Contender, list[Contender]]:
    """The best fixed heuristic on windows of other parts, and all that were tried."""
    if not family:
        raise InputError(
            "no fixed heuristic can run with these settings, so none is best; say which policy runs today "
            f"({setting('current', 'POLICY')})"
        )
    found = source.ranked(family, "choosing the best heuristic", validation=True)
    if not found:
        raise InputError(
            f"metric {source.setting.metric} is not known here, so no heuristic is best by it; compare by "
            f"another metric, or say which policy runs today ({setting('current', 'POLICY')})"
        )
    if more := source.slower(list(found)):
        family = [*family, *more]
        last = [one for one in family if one.name in found]
        found = source.ranked([*last, *more], "with other backfills", validation=True)
    best = next(iter(found))
    return next(one for one in family if one.name == best), family


def _best_preempting(source: Source, wanted: bool) -> list[Contender]:
    """The best of the heuristics that stop running jobs, on the compared windows."""
    ones = source.preempting() if wanted else []
    best = next(iter(source.ranked(ones, "heuristics that preempt")), None) if ones else None
    return [one.in_role("preempting") for one in ones if one.name == best]


def ranked_by(figures: Figures, of: Setting) -> Figures:
    """Figures of policies from the best to the worst, without those of which the metric is not known.

    By the mean logarithm where less is better and all values are positive, else by the mean.
    """
    sign = 1.0 if of.lower_is_better else -1.0
    known = {name: found for name, found in figures.items() if np.isfinite(found[of.metric]).all()}
    logs = of.lower_is_better and all((found[of.metric] > 0).all() for found in known.values())

    def level(name: str) -> float:
        values = known[name][of.metric]
        return float(np.log(values).mean() if logs else sign * values.mean())

    return {name: known[name] for name in sorted(known, key=level)}


def _check_known(of: Setting, outcomes: Outcomes) -> None:
    """Refuse a metric that no policy has a value of.

    Raises:
        InputError: saying what to do.
    """
    if any(row.get(of.metric) is not None for row in outcomes.rows):
        return
    alone = "" if of.is_cold else f", or with {setting('cold', True)} if a stretch of a run does not have it"
    raise InputError(f"metric {of.metric} is not known here; compare by another{alone}")


def _put_together(
    source: Source,
    shown: Sequence[Contender],
    others: Sequence[Contender],
    figures: Figures,
    choice: Choice,
) -> Comparison:
    outcomes = source.run(shown, "policies")
    _check_known(source.setting, outcomes)
    rows = [
        window_row(one.name, window, {name: column[i] for name, column in figures[one.name].items()})
        for one in others
        for i, window in enumerate(source.setting.windows)
    ]
    marked = [one.entry.marked(outcomes.marks.get(one.name, ())) for one in shown]
    entries = [entry.noted(outcomes.notes.get(entry.name, "")) for entry in marked]
    waits = None if outcomes.waits is None else asdict(outcomes.waits)
    return Comparison(
        setting=replace(source.setting, recorded_waits=waits),
        policies=(*entries, *(one.entry for one in others)),
        reference=choice.reference,
        chosen_on=choice.chosen_on,
        rival=choice.rival,
        hindsight=choice.hindsight,
        windows=window_frame([*outcomes.rows, *rows]),
        classes=outcomes.classes,
        jobs=outcomes.jobs,
        schedules=outcomes.schedules,
        whole=outcomes.whole,
    )
