"""A live agent in one row: its mode, its last round, what alarms."""

import time
from pathlib import Path
from typing import Any

from gpuyard.runs.progress import is_being_written
from gpuyard.serve.journal import Journal
from gpuyard.serve.journal.contents import noted_settings
from gpuyard.serve.records import RoundRecord
from gpuyard.serve.settings import ServeSettings
from gpuyard.serve.signs import LOCK, Signs

STALE_ROUNDS = 5
"""A last round older than this many intervals is stale."""
LEAST_STALE_S = 10.0
DEAD_AFTER_S = 60.0
"""A heartbeat that is older is none."""


def journal_of(directory: Path) -> Path:
    """The journal in a state directory."""
    return ServeSettings(state_dir=directory).journal


def agent_facts(directory: Path) -> dict[str, Any]:
    """How an agent does, from its files alone.

    Raises:
        JournalError: if the journal cannot be read.
    """
    with Journal.open(journal_of(directory), readonly=True) as journal:
        number = journal.next_number() - 1
        last = journal.outlines(number)[-1] if number else None
        settings = noted_settings(journal)
    return facts_of(Signs(directory), last, settings)


def is_alive(signs: Signs, last: RoundRecord | None, settings: ServeSettings) -> bool:
    """Whether an agent lives: it holds its lock, or, where that may not be looked at, it was heard of lately.

    Only agents that act have a heartbeat.
    """
    if is_being_written(signs.directory / LOCK):
        return True
    silence_s = signs.silence_s()
    return not _is_old(last, settings) or (silence_s is not None and silence_s < DEAD_AFTER_S)


def _is_old(last: RoundRecord | None, settings: ServeSettings) -> bool:
    if last is None:
        return True
    return time.time() - last.wall_s > max(STALE_ROUNDS * settings.interval_s, LEAST_STALE_S)


def facts_of(signs: Signs, last: RoundRecord | None, settings: ServeSettings) -> dict[str, Any]:
    """The same, of what has been read."""
    alive, stale = is_alive(signs, last, settings), _is_old(last, settings)
    # Who stops takes the heartbeat away; it stays behind where an agent that acts was killed.
    dead = not alive and signs.silence_s() is not None
    mode = "halted" if signs.halted else "dead" if dead else settings.mode if alive else "stopped"
    return {
        "mode": mode,
        "policy": settings.policy if last is None else last.policy,
        "control": settings.control,
        "halted": signs.halted,
        "alive": alive,
        "round": None if last is None else last.number,
        "last_s": None if last is None else last.wall_s,
        "stale_round": stale,
        "pending": None if last is None else last.pending,
        "decider": None if last is None else last.decider,
        "alarms": _alarms(last, halted=signs.halted, dead=dead, stale=stale and alive),
    }


def _alarms(last: RoundRecord | None, *, halted: bool, dead: bool, stale: bool) -> list[str]:
    found = []
    if halted:
        found.append("halted: every job is the scheduler's own")
    if dead:
        found.append("its heartbeat has stopped: the agent died, and the watchdog returns its jobs")
    if stale:
        found.append(f"its last round is older than {STALE_ROUNDS} rounds take")
    if last is not None and last.decider != "policy" and not halted:
        why = last.words or last.cause
        found.append(f"the policy did not decide the last round{f': {why}' if why else ''}")
    return found
