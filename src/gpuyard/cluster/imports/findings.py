"""What became of every line of a scheduler's configuration: nothing is ignored silently."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Literal

Status = Literal["used", "no-effect", "not-modelled", "unknown"]
"""Of a key: it shaped the cluster or the policy; it does not concern who runs when and where; it does, and
the simulator does not do that; or nobody knows it."""

STATUSES: tuple[Status, ...] = ("used", "no-effect", "not-modelled", "unknown")


@dataclass(frozen=True)
class Finding:
    """A key of a configuration.

    Attributes:
        where: File and line, as in ``slurm.conf:12``.
        key: As it is written there; options of a list follow after a dot.
        status: What became of it.
        remark: What that means; empty where there is nothing to say.
    """

    where: str
    key: str
    status: Status
    remark: str = ""


@dataclass
class Findings:
    """All of them, in the order of the files."""

    found: list[Finding] = field(default_factory=list)

    def add(self, where: str, key: str, status: Status, remark: str = "") -> None:
        """Note what became of a key."""
        self.found.append(Finding(where, key, status, remark))

    def __iter__(self) -> Iterator[Finding]:
        return iter(self.found)
