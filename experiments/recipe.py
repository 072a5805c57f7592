"""An experiment as a file: what is asked, and the commands that answer it (docs/guide/experiments.md)."""

import itertools
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Annotated, Any, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from gpuyard.config import refusal
from gpuyard.errors import InputError
from gpuyard.files import read_toml
from gpuyard.network.model_file import HERE

Name = Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9.-]*$", max_length=80)]
TRACES = "{traces}"
"""Stands in arguments for the folder of traces, as HERE does for the experiment's own folder of results."""
PLACEHOLDER = re.compile(r"\{[A-Za-z_]\w*\}")
GRID = re.compile(r"\{grid:([a-z0-9.-]+)(?:/([a-z-]+))?\}")
"""Stands for the policy that the grid of a search found, with another placement if one is named."""
VERBS = ("workload", "train", "evaluate", "simulate")


class _Table(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Step(_Table):
    """A command, or one for every combination of some values.

    In the arguments ``{here}`` is the experiment's own folder of results, ``{traces}`` the folder of traces,
    ``{grid:RUN}`` the policy that the grid of a search found, ``{grid:RUN/PLACEMENT}`` the same with
    another placement, and ``{NAME}`` a value of ``each``. An argument
    with ``*`` stands for all files of that name.
    """

    name: Name
    run: Annotated[tuple[str, ...], Field(min_length=1)]
    """Arguments of ``gpuyard``."""
    each: Mapping[str, tuple[str | int | float, ...]] = {}
    """Values by name: the command is run once for every combination."""
    at_once: Annotated[int, Field(ge=1, le=64)] = 1
    """How many of these commands may run side by side."""

    @model_validator(mode="after")
    def _check_verb(self) -> Self:
        if self.run[0] not in VERBS:
            raise ValueError(f"run begins with a verb: {', '.join(VERBS)}; not {self.run[0]!r}")
        known = {HERE, TRACES, *(f"{{{name}}}" for name in self.each)}
        for argument in self.run:
            for found in PLACEHOLDER.findall(argument):
                if found not in known:
                    raise ValueError(
                        f"{argument}: nothing is called {found}; known: {', '.join(sorted(known))}"
                    )
        for name, values in self.each.items():
            if not values:
                raise ValueError(f"each.{name} has no values")
        return self

    def combinations(self) -> Iterator[dict[str, str]]:
        """The values of each command."""
        for values in itertools.product(*self.each.values()):
            yield dict(zip(self.each, map(str, values), strict=True))


class Table(_Table):
    """A comparison to be shown."""

    evaluation: Name
    """Folder that ``gpuyard evaluate --out`` wrote."""
    title: str
    note: str = ""
    learned: str = ""
    """Label of the row that stands for it in the overview; without: the model that is shipped, else the best
    one, which is marked as picked."""
    headline: str = ""
    """What it is called in the picture of gains; without: it is not there."""
    front: str = ""
    """What it is called in the table of the README and of the front page; without: it is not there."""

    @property
    def evaluations(self) -> tuple[str, ...]:
        """The folders that it is made of."""
        return (self.evaluation,)


class Together(_Table):
    """Tables of tests of different times, shown as one test besides."""

    tables: Annotated[tuple[Name, ...], Field(min_length=2)]
    """Evaluations of tables of this recipe, in order of time."""
    learned: tuple[str, ...]
    """Label of the row of each."""
    title: str
    note: str = ""
    headline: str = ""
    front: str = ""
    """Both as of a table."""

    @property
    def evaluations(self) -> tuple[str, ...]:
        """The folders that it is made of."""
        return self.tables


class Shipped(_Table):
    """A model that the package carries."""

    name: Name
    run: Name
    """Folder of the run that it comes from."""
    evaluation: Name
    """Folder of the comparison with its test figures."""
    why: str
    """Why this one: a sentence on how it was chosen."""
    limits: str
    """What it is not for."""


class Recipe(_Table):
    """An experiment."""

    title: str
    letter: Annotated[str, Field(pattern="^[a-z]$")]
    """The question that it belongs to; pages are listed in this order."""
    about: str
    conclusion: str = ""
    """What the figures say, written after looking at them."""
    did_not_work: str = ""
    """What was tried and did not help."""
    changed_after_test: bool = False
    """Whether steps were changed when figures of the test had been seen; its rows are marked."""
    step: Annotated[tuple[Step, ...], Field(min_length=1)]
    table: tuple[Table, ...] = ()
    together: tuple[Together, ...] = ()
    model: tuple[Shipped, ...] = ()

    @model_validator(mode="after")
    def _check_names(self) -> Self:
        names = [step.name for step in self.step]
        for name in names:
            if names.count(name) > 1:
                raise ValueError(f"two steps are called {name}")
        keys = [command.key for command in self.commands()]
        for key in keys:
            if keys.count(key) > 1:
                raise ValueError(f"two commands are called {key}; rename a step, or a value of each")
        written: dict[str, str] = {}
        for command in self.commands():
            if command.out is not None and command.out in written:
                raise ValueError(f"{written[command.out]} and {command.key} both write {command.out}")
            written |= {command.out: command.key} if command.out is not None else {}
        needed = [("table", one.evaluation) for one in self.table]
        needed += [("model", name) for one in self.model for name in (one.run, one.evaluation)]
        for kind, name in needed:
            if f"{HERE}/{name}" not in written:
                raise ValueError(f"{kind}: no step writes {name} (--out {HERE}/{name})")
        for together in self.together:
            for name in together.tables:
                if name not in {one.evaluation for one in self.table}:
                    raise ValueError(f"together: no table has the evaluation {name}")
                if together.tables.count(name) > 1:
                    raise ValueError(f"together: {name} is named twice")
            if len(together.learned) != len(together.tables):
                raise ValueError("together: learned has a row for each of its tables")
        return self

    @property
    def all_tables(self) -> tuple[Table | Together, ...]:
        """What is shown, in order."""
        return (*self.table, *self.together)

    def commands(self) -> list["Command"]:
        """Those of all steps."""
        return [command for step in self.step for command in commands_of(step)]

    def writer(self, name: str) -> "Command":
        """The command that writes a folder or file."""
        return next(command for command in self.commands() if command.out == f"{HERE}/{name}")

    def behind(self, command: "Command") -> list["Command"]:
        """Commands whose results a command uses, directly or through others, in the order of the recipe."""
        everything = self.commands()
        earlier = everything[: everything.index(command)]
        found: list[Command] = []
        for other in reversed(earlier):
            if any(one.uses(other) for one in (command, *found)):
                found.append(other)
        return found[::-1]


@dataclass(frozen=True)
class Command:
    """One command of a step, ready to run.

    Attributes:
        key: Step and values: its name among all commands of the experiment.
        arguments: Of ``gpuyard``, with ``{here}`` and ``{traces}`` still in them.
    """

    key: str
    arguments: tuple[str, ...]

    @property
    def out(self) -> str | None:
        """What it writes."""
        return option(self.arguments, "--out")

    @property
    def verb(self) -> str:
        """The first of its arguments."""
        return self.arguments[0]

    def uses(self, other: "Command") -> bool:
        """Whether what the other writes is among its arguments."""
        if other.out is None:
            return False
        written = other.out.split("/")
        whole = (GRID.sub(rf"{HERE}/\1", argument) for argument in self.arguments)
        read = [argument[argument.index(HERE) :] for argument in whole if HERE in argument]
        return any(
            len(parts) >= len(written) and all(map(fnmatchcase, written, parts))
            for parts in (path.split("/") for path in read if path != self.out)
        )

    def placed(self, here: Path, traces: Path | None, written: Sequence[str] | None = None) -> list[str]:
        """The arguments with folders filled in and names with ``*`` found.

        Args:
            here: The experiment's own folder.
            traces: Folder of traces.
            written: What commands of the recipe write; names with ``*`` stand for these alone, not for what
                another recipe has left. None: for all there is.

        Raises:
            InputError: if traces are needed and none were given, or nothing has such a name.
        """
        placed: list[str] = []
        for argument in self.arguments:
            if TRACES in argument and traces is None:
                raise InputError(f"{argument} is needed; say where traces are with --traces FOLDER")
            text = argument.replace(HERE, str(here)).replace(TRACES, str(traces))
            text = GRID.sub(lambda found: grid_policy(here / found[1], found[2]), text)
            if "*" in text and HERE in argument:
                known = None if written is None else [Path(one.replace(HERE, str(here))) for one in written]
                found = [
                    str(path)
                    for path in sorted(here.glob(argument.removeprefix(f"{HERE}/")))
                    if known is None or any(one in (path, *path.parents) for one in known)
                ]
                if not found:
                    raise InputError(f"nothing is called {text}; was the step before it run?")
                placed += found
            else:
                placed.append(text)
        return placed


def option(arguments: Sequence[str], name: str) -> str | None:
    """The value of an option among arguments; None if it is not there."""
    for place, argument in enumerate(arguments):
        if argument == name and place + 1 < len(arguments):
            return arguments[place + 1]
        if argument.startswith(f"{name}="):
            return argument.removeprefix(f"{name}=")
    return None


def grid_policy(run: Path, placement: str | None = None) -> str:
    """The policy that a search's grid found, which has a name; with another placement if one is given."""
    path = run / "search.json"
    if not path.is_file():
        raise InputError(f"{path} is not there; was the search before it run?")
    name = str(json.loads(path.read_text(encoding="utf-8"))["grid_policy"])
    return name if placement is None else f"{name.rpartition('/')[0]}/{placement}"


def commands_of(step: Step) -> list[Command]:
    """All commands of a step."""
    commands = []
    for values in step.combinations():
        suffix = "-".join(values.values())
        arguments = [_filled(argument, values) for argument in step.run]
        commands.append(Command(f"{step.name}-{suffix}" if suffix else step.name, tuple(arguments)))
    return commands


def _filled(argument: str, values: Mapping[str, str]) -> str:
    for name, value in values.items():
        argument = argument.replace(f"{{{name}}}", value)
    return argument


def read_recipe(path: Path) -> Recipe:
    """The experiment of a file.

    Raises:
        InputError: if it cannot be read, or something in it is not as expected; with the place.
    """
    tables: dict[str, Any] = read_toml(path)
    try:
        return Recipe.model_validate(tables)
    except ValidationError as error:
        raise refusal(error, str(path)) from None
