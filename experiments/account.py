"""An experiment and what is published of it: what pages are made of."""

from collections.abc import Iterator
from dataclasses import dataclass

from experiments.published import Result, Table
from experiments.recipe import Recipe, Together
from experiments.recipe import Table as Asked


@dataclass(frozen=True)
class Account:
    """An experiment and what is published of it.

    Attributes:
        name: Of the experiment.
        recipe: What was asked, and what people say of it.
        result: Its figures; None if there are none.
    """

    name: str
    recipe: Recipe
    result: Result | None

    def tables(self) -> Iterator[tuple[Asked | Together, Table | None]]:
        """The tables that the recipe names, each with its figures."""
        for asked in self.recipe.all_tables:
            yield asked, self.result.table(asked.evaluations) if self.result else None

    def known(self) -> list[tuple[Asked | Together, Table]]:
        """The tables that have figures."""
        return [(asked, found) for asked, found in self.tables() if found is not None]

    @property
    def is_whole(self) -> bool:
        """Whether all of its tables are there."""
        tables = list(self.tables())
        return bool(tables) and all(found is not None for _, found in tables)
