"""Gives all jobs back when the agent is dead. Needs neither the agent, nor its policy, nor its journal."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from gpuyard.serve.adapter import Adapter, AdapterError, Outcome
from gpuyard.serve.process.log import Log


@dataclass(frozen=True)
class Look:
    """What one look at the agent found.

    Attributes:
        alive: Whether its heartbeat is young enough, and nobody asked it to halt.
        why: What is wrong; empty if it is alive.
        outcomes: What became of the jobs that were given back.
        error: Why jobs could not be listed; empty if they could, or there was no need.
        silence_s: How long ago the last heartbeat was; None if there is none.
    """

    alive: bool
    why: str = ""
    outcomes: tuple[Outcome, ...] = ()
    error: str = ""
    silence_s: float | None = None

    @property
    def ok(self) -> bool:
        """Whether nothing is left to do."""
        return not self.error and all(one.ok or one.code == "missing" for one in self.outcomes)


class Life(Protocol):
    """Where an agent shows that it lives."""

    @property
    def halted(self) -> bool:
        """Whether somebody asked it to keep its hands off."""

    def silence_s(self, now_s: float | None = None) -> float | None:
        """How long ago it last showed life; None: never."""


def look(signs: Life, adapter: Adapter, silence_s: float, now_s: float | None = None) -> Look:
    """Give all jobs back if the agent has shown no life for too long, or was halted.

    Args:
        signs: Where the agent shows life: its state directory, or its Lease.
        adapter: The cluster.
        silence_s: How long the agent may be silent, seconds.
        now_s: The time; None: now.
    """
    try:
        silent_s, halted = signs.silence_s(now_s), signs.halted
    except AdapterError as error:  # who cannot ask cannot give back either
        return Look(False, "the agent's Lease cannot be read", error=str(error))
    if halted:
        why = "the agent is halted"
    elif silent_s is None:
        why = "there is no heartbeat"
    elif silent_s > silence_s:
        why = f"the last heartbeat was {silent_s:.0f} s ago"
    else:
        return Look(True, silence_s=silent_s)
    return release(adapter, why)


def release(adapter: Adapter, why: str) -> Look:
    """Give back every job that carries the agent's mark."""
    try:
        return Look(False, why, tuple(adapter.give_back_all()))
    except AdapterError as error:
        return Look(False, why, error=str(error))


def watch(
    signs: Life,
    adapter: Adapter,
    silence_s: float,
    log: Log,
    every_s: float = 5.0,
    go_on: Callable[[], bool] = lambda: True,
) -> None:
    """Look again and again.

    Args:
        signs: Of the agent's state directory.
        adapter: The cluster.
        silence_s: How long the agent may be silent, seconds.
        log: Where to say what was done.
        every_s: Time from one look to the next, seconds.
        go_on: Asked before every look.
    """
    log.info("watching", watchdog_s=silence_s, every_s=every_s)
    said: tuple[str, str] | None = None
    while go_on():
        found = look(signs, adapter, silence_s)
        if found.outcomes or (found.error, found.error and found.why[:12]) != said:
            report(found, log)
        said = (found.error, found.error and found.why[:12])
        time.sleep(every_s)


def report(found: Look, log: Log) -> None:
    """Say what was done, if anything was."""
    if found.error:
        log.error("jobs could not be given back", why=found.why, error=found.error)
    elif found.outcomes:
        refused = [one for one in found.outcomes if not one.ok and one.code != "missing"]
        log.warning("gave jobs back", jobs=len(found.outcomes), refused=len(refused), why=found.why)
