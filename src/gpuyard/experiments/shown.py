"""A table of the page of results, with the comparison behind it and the policy that stands for it."""

from dataclasses import dataclass

from gpuyard.errors import InputError
from gpuyard.evaluate import Comparison
from gpuyard.experiments.recipe import Table, Together
from gpuyard.experiments.running import Experiment
from gpuyard.experiments.standings import Standing, entry_of_run, standing, standings
from gpuyard.experiments.together import together
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
    return [
        *(show(experiment, table) for table in recipe.table),
        *(_show_together(experiment, one) for one in recipe.together),
    ]


def _show_together(experiment: Experiment, asked: Together) -> Shown:
    by_name = {table.evaluation: table for table in experiment.recipe.table}
    parts = []
    for name, learned in zip(asked.tables, asked.learned, strict=True):
        shown = show(experiment, by_name[name].model_copy(update={"learned": learned}))
        if shown.comparison is None or shown.best is None:
            return Shown(experiment, asked, None)
        parts.append((shown.comparison, shown.best))
    try:
        comparison = together(parts)
    except InputError as error:
        raise InputError(f"{experiment.name}: {' and '.join(asked.tables)}: {error}") from None
    rows = tuple(standings(comparison))
    return Shown(experiment, asked, comparison, rows, next(row for row in rows if row.learned))


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
    rows = tuple(standings(comparison))
    if table.learned:
        alone = {one.label: standing(comparison, [one]) for one in comparison.shown}
        known = alone | {row.label: row for row in rows}
        if table.learned not in known:
            raise InputError(
                f"{experiment.name}: table {table.evaluation}: learned = {table.learned!r} is none of its "
                f"rows{suggest(table.learned, known)}"
            )
        return _shown(experiment, table, comparison, rows, known[table.learned])
    shipped = [one.run for one in experiment.recipe.model if one.evaluation == table.evaluation]
    if shipped:
        entry = entry_of_run(comparison, shipped[0])
        return _shown(experiment, table, comparison, rows, standing(comparison, [entry]))
    others = [row for row in rows if comparison.reference not in row.policies]
    learned = [row for row in others if row.learned] or [row for row in others if row.role == "given"]
    best = learned[0] if learned else None
    return Shown(experiment, table, comparison, rows, best, picked=len(learned) > 1)


def _shown(
    experiment: Experiment, table: Table, comparison: Comparison, rows: tuple[Standing, ...], best: Standing
) -> Shown:
    """With a row for the one that stands for the table, also if it is one of several seeds."""
    if best.label not in {row.label for row in rows}:
        sign = 1.0 if comparison.setting.lower_is_better else -1.0
        rows = tuple(sorted((*rows, best), key=lambda row: (sign * row.value, row.label)))
    return Shown(experiment, table, comparison, rows, best)
