"""The range of values that a network saw in training, column by column, as its model file has it.

See docs/formats/model-file.md.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from gpuyard.errors import InputError
from gpuyard.network.model_file import ModelFile

KEY = "observed"
"""Of the entry in ``training`` of a model file."""
_DIGITS = 6
"""Of values in the file: far finer than any difference that matters."""

Rows = NDArray[np.float32]


@dataclass(frozen=True)
class ColumnRange:
    """Values that a column took.

    Attributes:
        name: Of the column.
        least: The least of them.
        largest: The largest of them.
    """

    name: str
    least: float
    largest: float


@dataclass(frozen=True)
class Observed:
    """What a network saw in training.

    Attributes:
        observations: How many were looked at.
        jobs: Columns of ``jobs`` in order, over rows that hold a job.
        nodes: Columns of ``nodes`` in order, over rows that hold a node.
        globals: Columns of ``globals`` in order.
    """

    observations: int
    jobs: tuple[ColumnRange, ...]
    nodes: tuple[ColumnRange, ...]
    globals: tuple[ColumnRange, ...]

    @classmethod
    def of(cls, model: ModelFile) -> Self | None:
        """What a model file has of it; None if it has nothing.

        Raises:
            InputError: if the entry cannot be read, or is not of the model's columns.
        """
        document = model.training.get(KEY)
        if document is None:
            return None
        try:
            found = cls.from_json(document)
        except (KeyError, TypeError, ValueError) as error:
            raise InputError(f"{KEY} of a model: cannot be read ({error}); train the model again") from None
        sizes = model.sizes
        wanted = (sizes.job_columns, sizes.node_columns, sizes.global_columns)
        if (len(found.jobs), len(found.nodes), len(found.globals)) != wanted:
            raise InputError(f"{KEY} of a model: is of other columns than the model's; train the model again")
        return found

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> Self:
        """As ``to_json`` wrote it.

        Raises:
            KeyError, TypeError, ValueError: if it is something else.
        """
        jobs, nodes, overall = (
            tuple(_column(*entry) for entry in document[part]) for part in ("jobs", "nodes", "globals")
        )
        return cls(int(document["observations"]), jobs, nodes, overall)

    def to_json(self) -> dict[str, Any]:
        """As a JSON document: per part a list of names, least and largest values in order of columns."""
        parts = {"jobs": self.jobs, "nodes": self.nodes, "globals": self.globals}
        return {
            "observations": self.observations,
            **{
                part: [[one.name, round(one.least, _DIGITS), round(one.largest, _DIGITS)] for one in columns]
                for part, columns in parts.items()
            },
        }


def _column(name: Any, least: Any, largest: Any) -> ColumnRange:
    found = ColumnRange(str(name), float(least), float(largest))
    if not (math.isfinite(found.least) and found.least <= found.largest < math.inf):
        raise ValueError(f"column {name} from {least} to {largest}")
    return found


def held_rows(rows: Rows) -> Rows:
    """The rows that hold a job or node: the others are 0 throughout."""
    held: Rows = rows[(rows != 0).any(axis=-1)]
    return held
