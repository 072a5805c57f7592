"""A live agent in one row: its mode, its last round, what alarms."""

import time
from pathlib import Path
from typing import Any

from gpuyard.serve.journal import Journal
from gpuyard.serve.journal.replay import noted_settings
from gpuyard.serve.records import RoundRecord
from gpuyard.serve.settings import ServeSettings
from gpuyard.serve.signs import Signs

STALE_ROUNDS = 5
"""A last round older than this many intervals is stale."""
DEAD_AFTER_S = 60.0
"""An agent whose heartbeat is older, or gone, is taken for dead."""


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


def facts_of(signs: Signs, last: RoundRecord | None, settings: ServeSettings) -> dict[str, Any]:
    """The same, of what has been read."""
    now_s = time.time()
    silence_s = signs.silence_s(now_s)
    stopped, dead = silence_s is None, silence_s is not None and silence_s > DEAD_AFTER_S
    age_s = None if last is None else max(0.0, now_s - last.wall_s)
    stale = age_s is None or age_s > max(STALE_ROUNDS * settings.interval_s, 10.0)
    mode = "halted" if signs.halted else "dead" if dead else "stopped" if stopped else settings.mode
    return {
        "mode": mode,
        "acts": settings.acts,
        "policy": settings.policy if last is None else last.policy,
        "control": settings.control,
        "interval_s": settings.interval_s,
        "halted": signs.halted,
        "alive": not (dead or stopped),
        "round": None if last is None else last.number,
        "last_s": None if last is None else last.wall_s,
        "stale_round": stale,
        "pending": None if last is None else last.pending,
        "decider": None if last is None else last.decider,
        "alarms": _alarms(last, halted=signs.halted, dead=dead, stale=stale and not stopped),
    }


def _alarms(last: RoundRecord | None, *, halted: bool, dead: bool, stale: bool) -> list[str]:
    found = []
    if halted:
        found.append("halted: every job is the scheduler's own")
    if dead:
        found.append("no heartbeat: the agent died, and the watchdog returns its jobs")
    elif stale:
        found.append(f"its last round is older than {STALE_ROUNDS} rounds take")
    if last is not None and last.decider != "policy":
        why = last.words or last.cause
        found.append(f"the policy did not decide the last round{f': {why}' if why else ''}")
    return found
