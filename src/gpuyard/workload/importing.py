"""The account that every import gives of itself: what was read, kept, rejected, repaired and assumed."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from pydantic import BaseModel, ConfigDict

from gpuyard.errors import InputError, setting

FIRST_LINES = 5
"""How many places of a finding are named."""

NAMED_REASONS = 3
"""How many reasons a summary names."""


class Finding(BaseModel):
    """Rows of the input with one thing in common."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    reason: str
    rows: int
    first: tuple[str, ...] = ()
    """Where the first of them are, such as ``jobs.csv:17``."""
    parts: bool = False
    """Whether they are no jobs of their own but parts of one, such as steps."""


class ImportWarning(BaseModel):
    """Something about an import that makes every result on it doubtful."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    id: str
    """Such as ``no-gpus``."""
    text: str
    """What is wrong, in one sentence with its numbers."""
    remedy: str
    """What to do about it."""


class ImportReport(BaseModel):
    """What became of every row: ``rows_read = jobs + merged + all rejected``."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    format: str
    files: tuple[str, ...]
    rows_read: int
    jobs: int
    merged: int
    """Rows that went into a job together with others: steps, attempts, events, tasks."""
    merged_parts: int = 0
    """Of these, the ones that are never jobs of their own: steps."""
    rejected: tuple[Finding, ...] = ()
    repaired: tuple[Finding, ...] = ()
    assumed: tuple[str, ...] = ()
    """Units and conventions that the files do not state."""
    warnings: tuple[ImportWarning, ...] = ()
    """What makes results doubtful; none of them may be missed."""
    not_modelled: tuple[str, ...] = ()
    """What the files have and a simulation does not use."""
    workload_sha256: str | None = None
    """SHA-256 of the workload file that the import wrote: the report is about that file and no other."""

    def left_out(self) -> tuple[int, int]:
        """Rows that became no job, and of how many that state one: parts of jobs, such as steps, do not."""
        rejected = sum(finding.rows for finding in self.rejected if not finding.parts)
        parts = sum(finding.rows for finding in self.rejected if finding.parts)
        return rejected, self.rows_read - self.merged_parts - parts

    def summary(self) -> str | None:
        """In a few words what is not as the files have it; None if every row is a job as it stands."""
        rejected = sum(finding.rows for finding in self.rejected)
        repaired = sum(finding.rows for finding in self.repaired)
        said = [f"WARNING: {warning.text}" for warning in self.warnings]
        if rejected:
            reasons = [f"{finding.reason} {finding.rows:,}" for finding in self.rejected[:NAMED_REASONS]]
            more = ["..."] if len(self.rejected) > NAMED_REASONS else []
            said.append(
                f"{rejected:,} of {self.rows_read:,} rows became no job ({', '.join(reasons + more)})"
            )
        if repaired:
            said.append(f"{repaired:,} of {self.rows_read:,} rows were repaired")
        if self.assumed:
            said.append(f"{len(self.assumed)} convention{'s' if len(self.assumed) > 1 else ''} assumed")
        return "; ".join(said) or None


@dataclass
class _Tally:
    rows: int = 0
    first: list[str] = field(default_factory=list)
    parts: bool = False


class ImportLog:
    """Where a reader writes down what it does with each row.

    Args:
        strict: Refuse what is ambiguous instead of assuming something.
    """

    def __init__(self, *, strict: bool = True) -> None:
        self.strict = strict
        self.rows_read = 0
        self.merged = 0
        self.merged_parts = 0
        self._rejected: dict[str, _Tally] = {}
        self._repaired: dict[str, _Tally] = {}
        self._assumed: dict[str, None] = {}
        self._warnings: dict[str, ImportWarning] = {}
        self._not_modelled: dict[str, None] = {}

    def read(self, rows: int) -> None:
        """Count rows of the input, whatever becomes of them."""
        self.rows_read += rows

    def merge(self, rows: int, *, parts: bool = False) -> None:
        """Count rows that became part of a job that has another row already.

        Args:
            rows: How many.
            parts: They are never jobs of their own, such as steps.
        """
        self.merged += rows
        self.merged_parts += rows if parts else 0

    def reject(self, reason: str, file: str, lines: Iterable[int], *, parts: bool = False) -> None:
        """Rows that become no job, and why.

        Args:
            reason: Why.
            file: Where they are.
            lines: Their line numbers there.
            parts: They would not have been jobs of their own, but parts of one.
        """
        _add(self._rejected, reason, file, lines, parts=parts)

    def repair(self, reason: str, file: str, lines: Iterable[int]) -> None:
        """Rows that were changed to become a valid job."""
        _add(self._repaired, reason, file, lines)

    def assume(self, text: str) -> None:
        """A unit or convention that the input does not state."""
        self._assumed[text] = None

    def warn(self, id: str, text: str, remedy: str) -> None:
        """Something that makes results doubtful; of each id the last counts."""
        self._warnings[id] = ImportWarning(id=id, text=text, remedy=remedy)

    def warns_of(self, id: str) -> bool:
        """Whether there is a warning of this id."""
        return id in self._warnings

    def leave_out(self, text: str) -> None:
        """Something that the input has and a simulation does not use."""
        self._not_modelled[text] = None

    def ambiguous(self, what: str, assumption: str, remedy: str) -> None:
        """Something that can be read in two ways: refused if strict, else assumed.

        Args:
            what: What is ambiguous, and where.
            assumption: How it is read if not strict.
            remedy: How to say what it is.

        Raises:
            InputError: if strict.
        """
        if self.strict:
            raise InputError(
                f"{what}; {remedy}, or give {setting('strict', False)} to assume that {assumption}"
            )
        self.assume(f"{what}: assumed that {assumption}")

    def report(self, format: str, files: Iterable[str], jobs: int) -> ImportReport:
        """The account, which must balance.

        Raises:
            InputError: if no job is left.
            AssertionError: if a reader lost a row without a word.
        """
        rejected = sum(tally.rows for tally in self._rejected.values())
        if self.rows_read != jobs + self.merged + rejected:
            raise AssertionError(
                f"format {format} lost rows: read {self.rows_read}, but {jobs} jobs, {self.merged} merged "
                f"and {rejected} rejected"
            )
        return ImportReport(
            format=format,
            files=tuple(files),
            rows_read=self.rows_read,
            jobs=jobs,
            merged=self.merged,
            merged_parts=self.merged_parts,
            rejected=_findings(self._rejected),
            repaired=_findings(self._repaired),
            assumed=tuple(self._assumed),
            warnings=tuple(self._warnings.values()),
            not_modelled=tuple(self._not_modelled),
        )

    def nothing_left(self, source: str, advice: Mapping[str, str] = MappingProxyType({})) -> InputError:
        """The error for an input of which no job is left, with the reasons.

        Args:
            source: Names of the files.
            advice: What to do, by reason; that of the most common reason is given.
        """
        reasons = "; ".join(
            f"{finding.rows} rows: {finding.reason} (first at {finding.first[0]})"
            for finding in _findings(self._rejected)
            if finding.first
        )
        main = next(iter(_findings(self._rejected)), None)
        remedy = advice.get(main.reason) if main else None
        return InputError(
            f"{source}: no job is left of {self.rows_read} rows. {reasons or 'It has no rows'}"
            + (f"; {remedy}" if remedy else "")
        )


def _add(
    tallies: dict[str, _Tally], reason: str, file: str, lines: Iterable[int], *, parts: bool = False
) -> None:
    places = [int(line) for line in lines]
    if not places:
        return
    tally = tallies.setdefault(reason, _Tally(parts=parts))
    tally.rows += len(places)
    room = FIRST_LINES - len(tally.first)
    if room > 0:
        tally.first += [f"{file}:{line}" for line in sorted(places)[:room]]


def _findings(tallies: dict[str, _Tally]) -> tuple[Finding, ...]:
    ordered = sorted(tallies.items(), key=lambda item: -item[1].rows)
    return tuple(
        Finding(reason=reason, rows=t.rows, first=tuple(t.first), parts=t.parts) for reason, t in ordered
    )
