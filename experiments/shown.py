"""A table of the page of results, with the comparison behind it and the policy that stands for it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from experiments.recipe import Table, Together
from experiments.running import Experiment
from experiments.standings import Standing, entry_of_run, ranked, standing, standings
from experiments.together import together
from gpuyard.errors import InputError
from gpuyard.evaluate import Comparison
from gpuyard.registry import suggest

IN_HINDSIGHT = "†"
"""Marks a policy that was picked by the very figures shown."""


@dataclass(frozen=True)
class Shown:
    """A table with its comparison.

    Attributes:
        experiment: Whose it is.
        table: As the recipe names it.
        comparison: None if it is not there yet.
        rows: Its standings.
        best: The learned policy that stands for it; None without one.
        picked: Whether that was picked by these very figures.
    """

    experiment: Experiment
    table: Table | Together
    comparison: Comparison | None
    rows: tuple[Standing, ...] = ()
    best: Standing | None = None
    picked: bool = False

    @property
    def reference(self) -> Standing | None:
        """Whom the others are measured against."""
        name = self.comparison.reference if self.comparison else None
        return next((row for row in self.rows if name in row.policies), None)


def show_all(experiment: Experiment) -> list[Shown]:
    """All tables of an experiment, and after them those that are several of them together.

    Raises:
        InputError: as ``show``, and if tables cannot be put together.
    """
    recipe = experiment.recipe
    tables = {table.evaluation: show(experiment, table) for table in recipe.table}
    return [*tables.values(), *(_show_together(experiment, one, tables) for one in recipe.together)]


def show(experiment: Experiment, table: Table) -> Shown:
    """What is known of a table.

    The policy that stands for it is the one that the recipe names, else the shipped one, else the best.

    Raises:
        InputError: if results are damaged, or have no row of the name that the recipe gives.
    """
    try:
        experiment.check_done(table.evaluation)
    except InputError:
        return Shown(experiment, table, None)
    comparison = Comparison.read(experiment.here / table.evaluation)
    shown = Shown(experiment, table, comparison, tuple(standings(comparison)))
    shipped = [one.run for one in experiment.recipe.model if one.evaluation == table.evaluation]
    if table.learned or shipped:
        label = table.learned or entry_of_run(comparison, shipped[0]).label
        best = _row(experiment, table.evaluation, comparison, shown.rows, label)
        rows = shown.rows if best in shown.rows else tuple(ranked(comparison, (*shown.rows, best)))
        return replace(shown, rows=rows, best=best)
    others = [row for row in shown.rows if comparison.reference not in row.policies]
    learned = [row for row in others if row.learned] or [row for row in others if row.role == "given"]
    return replace(shown, best=learned[0] if learned else None, picked=len(learned) > 1)


def _row(
    experiment: Experiment, name: str, comparison: Comparison, rows: Sequence[Standing], label: str
) -> Standing:
    """The row of this label; one of several seeds that share a row has one of its own."""
    found = next((row for row in rows if row.label == label), None)
    if found is not None:
        return found
    alone = {entry.label: entry for entry in comparison.shown}
    if label not in alone:
        known = dict.fromkeys([*alone, *(row.label for row in rows)])
        raise InputError(
            f"{experiment.name}: table {name}: learned = {label!r} is none of its rows{suggest(label, known)}"
        )
    return standing(comparison, [alone[label]])


def _show_together(experiment: Experiment, asked: Together, tables: Mapping[str, Shown]) -> Shown:
    parts = []
    for name, label in zip(asked.tables, asked.learned, strict=True):
        one = tables[name]
        if one.comparison is None:
            return Shown(experiment, asked, None)
        parts.append((one.comparison, _row(experiment, name, one.comparison, one.rows, label)))
    try:
        comparison = together(parts)
    except InputError as error:
        raise InputError(f"{experiment.name}: {' and '.join(asked.tables)}: {error}") from None
    rows = tuple(standings(comparison))
    return Shown(experiment, asked, comparison, rows, next(row for row in rows if row.learned))
