"""What is printed of a rule for Slurm: lines, commands, a script, and what is lost."""

import math
import textwrap
from dataclasses import dataclass, field
from typing import Any

from gpuyard.policies.slurm_lines.routing import Routing

WIDTH = 96
COMMANDS = "Commands, run once by an administrator:"
LUA = "job_submit.lua, beside slurm.conf:"


@dataclass(frozen=True)
class SlurmLines:
    """A rule as Slurm's configuration.

    Attributes:
        policy: Full name of the rule.
        conf: Lines of slurm.conf.
        commands: Of ``sacctmgr``, for what is not in slurm.conf.
        lua: A script for job_submit/lua that gives jobs their partition or QOS; empty: none is needed.
        losses: What the rule does and the lines do not, in whole sentences.
        notes: What to know before they are used, in whole sentences.
        routing: What the script does, as the simulation does it.
    """

    policy: str
    conf: tuple[str, ...]
    commands: tuple[str, ...] = ()
    lua: str = ""
    losses: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    routing: Routing = field(default_factory=Routing)

    def text(self) -> str:
        """All of it as a part of slurm.conf: what does not belong there is in comments."""
        parts = [
            *_comment(f"The lines that come nearest to {self.policy} (gpuyard policies export)."),
            *self.conf,
        ]
        if self.commands:
            parts += ["", f"# {COMMANDS}", *(f"#   {one}" for one in self.commands)]
        if self.lua:
            parts += ["", f"# {LUA}", *(f"#   {line}".rstrip() for line in self.lua.splitlines())]
        for title, sentences in (("What is lost", self.losses), ("Notes", self.notes)):
            if sentences:
                parts += ["", f"# {title}:"]
                parts += [line for one in sentences for line in _comment(one, "# * ", "#   ")]
        return "\n".join(parts) + "\n"

    def document(self) -> dict[str, Any]:
        """The same as JSON."""
        return {
            "policy": self.policy,
            "conf": list(self.conf),
            "commands": list(self.commands),
            "lua": self.lua,
            "losses": list(self.losses),
            "notes": list(self.notes),
        }


def _comment(text: str, first: str = "# ", other: str = "# ") -> list[str]:
    return textwrap.wrap(
        text,
        WIDTH,
        initial_indent=first,
        subsequent_indent=other,
        break_long_words=False,
        break_on_hyphens=False,
    )


def minutes_of(seconds: float) -> int:
    """Whole minutes, at least one: what Slurm takes most lengths of time in."""
    return max(1, math.ceil(seconds / 60.0))


def slurm_time(seconds: float) -> str:
    """A length of time as slurm.conf has it, days-hours:minutes:seconds, rounded up to minutes."""
    hours, minutes = divmod(minutes_of(seconds), 60)
    return f"{hours // 24}-{hours % 24:02d}:{minutes:02d}:00"
