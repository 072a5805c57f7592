"""Who waits longest under a policy, and who far longer than under another, in a line."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from gpuyard.terminal.tables import ALARM
from gpuyard.units import duration, plural


@dataclass(frozen=True)
class PolicyWaits:
    """Waits of classes of jobs under a policy.

    Attributes:
        policy: Its short name.
        other: That of the policy which it is compared with.
        waits: Classes (``gpuyard.metrics.classes.ClassWait``), the longest wait first.
    """

    policy: str
    other: str
    waits: Sequence[Any]

    @property
    def worst(self) -> Any:
        """The class with the longest waits; None if no class has jobs enough."""
        return self.waits[0] if self.waits else None

    @property
    def losers(self) -> list[Any]:
        """Classes that wait far longer than under the other policy, the largest rise first."""
        found = [one for one in self.waits if one.is_far_above]
        return sorted(found, key=lambda one: -one.p99_wait_s / max(one.other_s, 1.0))


def loser_note(waits: PolicyWaits) -> str:
    """Whose waits rise most, and how many classes more."""
    first, *more = waits.losers
    rest = (
        f"; {plural(len(more), 'more class')[:-1]}es" if len(more) > 1 else "; 1 more class" if more else ""
    )
    text = (
        f"{waits.policy}: jobs of {first.short} wait {duration(first.p99_wait_s)} (p99), under {waits.other} "
        f"{duration(first.other_s)}{rest}."
    )
    return f"{ALARM} {text}".replace("jobs of runs", "jobs that run")
