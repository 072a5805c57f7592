"""Published results: one file per experiment, ``experiments/results/NAME.json``; pages are made of these.

Experiments take hours, and what they leave behind is too large to commit. So their figures are committed, as
numbers. Files of before November 2026 were read from pages and have the digits that were printed there.
"""

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from experiments.recipe import Recipe
from gpuyard.errors import InputError
from gpuyard.evaluate import Difference, Setting
from gpuyard.evaluate.findings import ByWindow
from gpuyard.evaluate.setting import Kind
from gpuyard.evaluate.wording import verdict_in_words
from gpuyard.files import atomic_write

Differences = Literal["arithmetic", "geometric"]
"""Ratios of means over windows, as before November 2026, or geometric means of windows' ratios."""


class _Record(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class Apart(_Record):
    """How far a policy lies from the reference; see ``gpuyard.evaluate.Difference``."""

    ratio: float | None
    low: float | None
    high: float | None
    verdict: str
    """``better``, ``worse`` or ``tie``; ``unclear`` where the interval is weak, and empty without one."""

    @classmethod
    def of(cls, found: Difference | None, setting: Setting) -> Self | None:
        """From a difference; what is not finite is None."""
        if found is None:
            return None
        verdict = verdict_in_words(found, setting)
        return cls(ratio=finite(found.ratio), low=finite(found.low), high=finite(found.high), verdict=verdict)


class Row(_Record):
    """A policy of a table, or several that differ only in their seed."""

    label: str
    policies: Annotated[tuple[str, ...], Field(exclude=True)] = ()
    """Full names, several if seeds are merged; known only where they were compared."""
    kind: Literal["learned", "tuned", "heuristic"]
    """``tuned``: a rule with a name whose numbers a search found."""
    is_reference: bool = False
    is_best_in_hindsight: bool = False
    is_best_beforehand: bool = False
    """Whether it is the fixed heuristic that was best on earlier windows, and not the reference."""
    preempts: bool = False
    """Whether it is shown as the best heuristic that stops running jobs."""
    seeds: int = 1
    value: float
    """Mean of the metric over windows and seeds."""
    lowest: float | None = None
    """Of the seeds' means; None for a single policy."""
    highest: float | None = None
    difference: Apart | None = None
    """To the reference; None for the reference itself."""
    better: int | None = None
    """How many seeds are better than the reference by themselves."""
    jct: Apart | None = None
    mean_wait_s: float | None = None
    p99_wait_s: float | None = None
    max_wait_s: float | None = None
    whole: float | None = None
    """The metric in a replay of the whole part in one go; None where there is none."""
    whole_change: float | None = None
    """How far that lies from the reference's, relative."""
    advice: str = ""
    """What to do about it, in words; empty where nothing is advised."""


class Conditions(_Record):
    """What policies were compared on."""

    kind: Kind
    part: str
    workload: str
    windows: int
    jobs: int
    """Per window."""
    estimates: str
    block: int = 1
    """Windows that are resampled together, as they overlap."""
    disjoint: float | None = None
    """How many windows that do not overlap they are worth; None where it was not noted."""
    is_weak: bool = False
    left_out: int = 0
    """Jobs that can never run on the cluster."""
    unfinished: Mapping[str, float] = {}
    """Jobs left unfinished per episode, by policy: the worst few."""
    is_cold: bool = True
    """Whether windows begin with an empty cluster, as all did before November 2026."""
    differences: Differences = "arithmetic"

    @property
    def these(self) -> str:
        """What the windows are called."""
        return self.kind if self.kind in ("draws", "episodes") else "windows"


class Hindsight(_Record):
    """The learned policy against the heuristic that turned out best on the test itself."""

    label: str
    difference: Apart
    better: int | None = None


class Loser(_Record):
    """A class of jobs that fares worse."""

    jobs: str
    metric: str
    value: float
    reference: float
    change: float | None
    """Relative; None if under the reference there is nothing to relate it to."""


class Losers(_Record):
    """Classes of jobs that fare worse than under the reference."""

    of: str
    """Label of the policy: of several seeds the first."""
    classes: tuple[Loser, ...] = ()
    more: int = 0
    """How many further classes there are."""


class Table(_Record):
    """A comparison."""

    evaluations: Annotated[tuple[str, ...], Field(min_length=1)]
    """Folders that it comes from; several for tests of different times taken together."""
    metric: str
    test: Conditions
    chosen: str = ""
    """How the reference was chosen, in words."""
    rows: tuple[Row, ...]
    """The best first."""
    learned: str | None = None
    """Label of the learned policy that stands for the table."""
    is_picked: bool = False
    """Whether that one was picked by these very figures."""
    by_window: ByWindow | None = None
    hindsight: Hindsight | None = None
    resampled: tuple[float, float] | None = None
    """The interval before it was widened, where it excludes zero and the verdict is a tie."""
    losers: Losers | None = None

    @property
    def best(self) -> Row | None:
        """The row of the learned policy that stands for the table."""
        return next((row for row in self.rows if row.label == self.learned), None)

    @property
    def reference(self) -> Row | None:
        """Whom the others are compared with."""
        return next((row for row in self.rows if row.is_reference), None)


class Cost(_Record):
    """What a step took."""

    step: str
    runs: int
    minutes: float


class Result(_Record):
    """All that is published of an experiment."""

    format: Literal[1] = 1
    steps: tuple[Mapping[str, Any], ...]
    """The commands of the recipe that the figures were computed with."""
    tables: tuple[Table, ...]
    cost: tuple[Cost, ...] = ()
    minutes: float = 0.0
    has_curves: bool = False
    """Whether there is a picture of learning curves."""

    def table(self, evaluations: tuple[str, ...]) -> Table | None:
        """The comparison of these folders."""
        return next((one for one in self.tables if one.evaluations == evaluations), None)

    def is_of(self, recipe: Recipe) -> bool:
        """Whether the recipe still has the commands that the figures were computed with."""
        return list(map(dict, self.steps)) == commands_in(recipe)

    def text(self) -> str:
        """As JSON."""
        document = {"format": self.format, **self.model_dump(mode="json", exclude_defaults=True)}
        return json.dumps(document, indent=1, allow_nan=False, ensure_ascii=False) + "\n"


def finite(value: float) -> float | None:
    """A number, or None where it is not finite."""
    return value if math.isfinite(value) else None


def commands_in(recipe: Recipe) -> list[dict[str, Any]]:
    """The steps of a recipe without what does not change figures: how many may run at once."""
    return [
        step.model_dump(mode="json", include={"name", "run", "each"}, exclude_defaults=True)
        for step in recipe.step
    ]


def read_result(path: Path) -> Result | None:
    """The results of a file; None if there is none.

    Raises:
        InputError: if it cannot be read, or is no such file.
    """
    try:
        return Result.model_validate_json(path.read_bytes())
    except FileNotFoundError:
        return None
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror})") from None
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(map(str, first["loc"]))
        raise InputError(
            f"{path}: is damaged ({place}: {first['msg']}); restore it from git, or run {path.stem} again"
        ) from None


def write_result(path: Path, result: Result) -> None:
    """Write the results of an experiment."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with atomic_write(path) as temporary:
        temporary.write_text(result.text(), encoding="utf-8")
