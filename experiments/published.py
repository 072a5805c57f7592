"""What the page of results says of an experiment, kept where its results are not.

Results are not part of the repository, and all experiments take hours. A section of the page therefore has a
comment with what else is drawn and tabled of its experiment, and with a fingerprint of the recipe. Where
nothing was run and the recipe is still that one, the page says what it said before.
"""

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from pydantic import BaseModel, ConfigDict, ValidationError

from experiments.pictures import Gain
from experiments.recipe import Recipe, commands_of
from experiments.running import Experiment
from gpuyard.errors import InputError

DID_NOT_WORK = "## What did not work"
"""What follows the sections of experiments."""
BEGIN = "<!-- What it says, from the recipe. -->"
END = "<!-- End of what it says. -->"

_ANCHOR = re.compile(r'^<a id="experiment-([^"\n]+)"></a>\n', re.MULTILINE)
_COMMENT = re.compile(r"<!-- (.*) -->\n")


class _Frozen(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", ser_json_inf_nan="strings")


class Row(_Frozen):
    """What stands of a table outside its own section."""

    overview: str
    """Its line of the overview."""
    headline: str | None
    """Its line of the README's table, if it has one."""
    gain: Gain | None
    """As it is drawn; None without a reference."""


class Record(_Frozen):
    """What stands of an experiment outside its own section."""

    recipe: str
    """Its fingerprint."""
    shown: int
    """How many of its tables are there."""
    state: str
    """What the overview says of tables that have no row; empty if all have one."""
    rows: tuple[Row, ...]

    def comment(self) -> str:
        """As a comment of HTML, which nothing in it can end."""
        text = self.model_dump_json().replace(">", r"\u003e")
        escaped = re.sub("(?<=-)-", r"\\u002d", text)
        return f"<!-- {escaped} -->"


@dataclass(frozen=True)
class Account:
    """What the pages say of an experiment.

    Attributes:
        experiment: Of which.
        section: Its section.
        record: What stands elsewhere.
    """

    experiment: Experiment
    section: str
    record: Record

    @property
    def is_whole(self) -> bool:
        """Whether all of its tables are there."""
        recipe = self.experiment.recipe
        return 0 < self.record.shown == len(recipe.table) + len(recipe.together)


@dataclass(frozen=True)
class Published:
    """A page of results as it was written before.

    Attributes:
        path: Where it is.
        sections: What follows the anchor of each experiment, by name.
    """

    path: Path
    sections: Mapping[str, str]

    @classmethod
    def read(cls, path: Path) -> "Published":
        """The page of a file; without sections if there is none.

        Raises:
            InputError: if it cannot be read.
        """
        try:
            text = path.read_text(encoding="utf-8")
        except FileNotFoundError:
            return cls(path, {})
        except (OSError, UnicodeDecodeError) as error:
            raise InputError(f"{path}: cannot be read ({error})") from None
        _, *parts = _ANCHOR.split(text.partition(f"\n{DID_NOT_WORK}\n")[0])
        return cls(path, dict(zip(parts[::2], parts[1::2], strict=True)))

    def account(self, experiment: Experiment) -> Account | None:
        """What the page says of an experiment, with what people say of it now.

        Returns:
            None if the page says nothing, or if it was written from another recipe.

        Raises:
            InputError: if the section is damaged.
        """
        text = self.sections.get(experiment.name, "")
        if text[:1] in ("", "\n"):
            return None
        comment = _COMMENT.match(text)
        try:
            record = Record.model_validate_json(comment[1] if comment else "")
        except ValidationError as error:
            raise self._damaged(experiment, f"its comment: {error.errors()[0]['msg']}") from None
        if record.recipe != fingerprint(experiment.recipe):
            return None
        before, begin, rest = text.partition(BEGIN)
        _, end, after = rest.partition(END)
        if not (begin and end):
            raise self._damaged(experiment, f"expected the lines {BEGIN} and {END}")
        said = "\n".join(what_it_says(experiment.recipe))
        section = f"{anchor_line(experiment)}\n{before}{said.rstrip()}{after.rstrip()}\n"
        return Account(experiment, section, record)

    def with_figures(self) -> list[str]:
        """Names of the experiments whose sections have the comment that stands beside figures."""
        return [name for name, text in self.sections.items() if _COMMENT.match(text)]

    def _damaged(self, experiment: Experiment, what: str) -> InputError:
        return InputError(
            f"{self.path}: the section {anchor(experiment)} is damaged ({what}); "
            f"restore the page, or run {experiment.name} again"
        )


def fingerprint(recipe: Recipe) -> str:
    """Of what tables and figures depend on: not of what people say of them, nor of what only cards show."""
    parts = {
        "page": recipe.model_dump(
            mode="json", include={"title", "letter", "about", "table", "together"}, exclude_defaults=True
        ),
        "steps": [[step.name, [one.arguments for one in commands_of(step)]] for step in recipe.step],
        "models": [[one.name, one.run, one.evaluation] for one in recipe.model],
    }
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()[:32]


def what_it_says(recipe: Recipe) -> list[str]:
    """The lines of what people say of the figures, between marks."""
    said = recipe.conclusion.strip()
    return [BEGIN, "", *([f"**What it says.** {said}", ""] if said else []), END, ""]


def anchor(experiment: Experiment) -> str:
    """What links to a section name."""
    return f"experiment-{experiment.name}"


def anchor_line(experiment: Experiment) -> str:
    """The first line of a section."""
    return f'<a id="{anchor(experiment)}"></a>'
