"""The steps of every comparison: choose the reference, run all policies, put the results together.

Where policies run is a ``Source``: windows of a log, draws of a generator, or episodes of an environment.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
import polars as pl

from gpuyard.errors import InputError
from gpuyard.evaluate.bootstrap import Floats
from gpuyard.evaluate.comparison import ChosenOn, Comparison
from gpuyard.evaluate.config import BEST
from gpuyard.evaluate.contenders import Contender, with_labels, without_doubles
from gpuyard.evaluate.setting import Setting
from gpuyard.evaluate.tables import CLASS_SCHEMA, window_frame, window_row
from gpuyard.simulation.windows import Part

Figures = Mapping[str, Mapping[str, Floats]]
"""Of each policy by name: metrics by name, one value per window."""
Progress = Callable[[str, int, int], None]
"""Told what is being done, how much of it is done, and of how much."""

CHOSEN_IN: dict[Part, Part] = {
    "test": "validation",
    "validation": "train",
    "train": "validation",
    "all": "validation",
}
"""In which part the best fixed heuristic is chosen, by the part that policies are compared on."""


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
    """

    rows: Sequence[Mapping[str, Any]]
    classes: pl.DataFrame = field(default_factory=lambda: pl.DataFrame(schema=CLASS_SCHEMA))
    jobs: pl.DataFrame | None = None
    schedules: Mapping[str, pl.DataFrame] = field(default_factory=dict)


class Source(Protocol):
    """Where policies are compared."""

    @property
    def setting(self) -> Setting:
        """What they are compared on."""

    def contender(self, name: str) -> Contender:
        """A policy by name, if it can run here and would be compared fairly."""

    def usual(self) -> list[Contender]:
        """Heuristics that are always shown."""

    def family(self) -> list[Contender]:
        """Every fixed heuristic that can run here."""

    def slower(self, ranked: Sequence[str]) -> list[Contender]:
        """More heuristics that are worth trying when these are the best of the family, the best first."""

    def figures(self, contenders: Sequence[Contender], stage: str, *, validation: bool = False) -> Figures:
        """Few metrics of heuristics, on the compared windows or on those for validation."""

    def run(self, contenders: Sequence[Contender], stage: str) -> Outcomes:
        """All that is kept of policies on the compared windows."""


def evaluate(
    source: Source, given: Iterable[Contender], *, against: str, all_heuristics: bool | None
) -> Comparison:
    """Compare policies.

    Args:
        source: On what.
        given: Those that were asked for.
        against: The reference: a policy, or ``best``, the best fixed heuristic on validation windows.
        all_heuristics: Whether to run every fixed heuristic, to name the best in hindsight; None: if the
            reference is the best of them.

    Raises:
        InputError: if the reference cannot run here, or no heuristic is best.
    """
    by_choice = against == BEST
    everything = by_choice if all_heuristics is None else all_heuristics
    family = source.family() if everything or by_choice else []
    if by_choice:
        reference, family = _best_heuristic(source, family)
    else:
        reference = source.contender(against)
    usual = source.usual()
    shown = without_doubles([*given, reference, *usual])
    fixed = without_doubles([*family, *usual]) if everything else []
    figures = source.figures(fixed, "every heuristic") if fixed else {}
    hindsight = next(iter(_ranked(figures, source.setting)), None)
    names = {one.name for one in shown}
    shown += [one for one in fixed if one.name == hindsight and one.name not in names]
    chosen_on: ChosenOn = "validation" if by_choice else "given"
    others = [one for one in fixed if one.name not in {one.name for one in shown}]
    in_roles = [_in_its_role(one, reference.name, hindsight) for one in with_labels(shown)]
    return _put_together(source, in_roles, others, figures, reference.name, chosen_on, hindsight)


def _best_heuristic(source: Source, family: list[Contender]) -> tuple[Contender, list[Contender]]:
    """The best fixed heuristic on validation windows, and all that were tried."""
    if not family:
        raise InputError(
            "no fixed heuristic can run with these settings, so none is best; say against which policy"
        )
    found = dict(source.figures(family, "choosing the best heuristic", validation=True))
    ranked = _ranked(found, source.setting)
    if not ranked:
        raise InputError(
            f"metric {source.setting.metric} is not known here, so no heuristic is best by it; compare by "
            "another metric, or say against which policy"
        )
    if more := source.slower(ranked):
        found |= source.figures(more, "with other backfills", validation=True)
    family = [*family, *more]
    best = _ranked(found, source.setting)[0]
    return next(one for one in family if one.name == best), family


def _ranked(figures: Figures, setting: Setting) -> list[str]:
    """Policies from the best mean of the metric to the worst, without those of which it is not known."""
    sign = 1.0 if setting.lower_is_better else -1.0
    means = {name: sign * float(np.mean(found[setting.metric])) for name, found in figures.items()}
    return sorted((name for name, mean in means.items() if np.isfinite(mean)), key=lambda name: means[name])


def _in_its_role(contender: Contender, reference: str, hindsight: str | None) -> Contender:
    if contender.name == reference:
        return contender.in_role("reference")
    if contender.name == hindsight and contender.entry.role != "given":
        return contender.in_role("hindsight")
    return contender


def _put_together(
    source: Source,
    shown: Sequence[Contender],
    others: Sequence[Contender],
    figures: Figures,
    reference: str,
    chosen_on: ChosenOn,
    hindsight: str | None,
) -> Comparison:
    outcomes = source.run(shown, "policies")
    rows = [
        window_row(one.name, window, {name: column[i] for name, column in figures[one.name].items()})
        for one in others
        for i, window in enumerate(source.setting.windows)
    ]
    return Comparison(
        setting=source.setting,
        policies=tuple(one.entry for one in (*shown, *others)),
        reference=reference,
        chosen_on=chosen_on,
        hindsight=hindsight,
        windows=window_frame([*outcomes.rows, *rows]),
        classes=outcomes.classes,
        jobs=outcomes.jobs,
        schedules=outcomes.schedules,
    )
