"""The kill switch of an agent: a file that a living one obeys; for a dead one, jobs are given back here."""

import getpass
from pathlib import Path

from gpuyard.dashboard.live.brief import is_alive, journal_of
from gpuyard.errors import InputError
from gpuyard.serve.journal import Journal, JournalError
from gpuyard.serve.journal.contents import noted_settings
from gpuyard.serve.settings import ServeSettings
from gpuyard.serve.signs import Signs
from gpuyard.serve.slurm import SlurmAdapter
from gpuyard.serve.watchdog import release


def halt(directory: Path, why: str) -> str:
    """Let an agent act no more, and have every job returned to the cluster's scheduler.

    Returns:
        What was done, in a sentence.

    Raises:
        InputError: if no agent ever served from there, or the file cannot be written.
    """
    signs = _signs(directory)
    try:
        signs.halt(f"{getpass.getuser()} (dashboard) {why}".strip())
    except OSError as error:
        raise InputError(f"{signs.halt_file}: cannot be written ({error.strerror})") from None
    try:
        with Journal.open(journal_of(directory), readonly=True) as journal:
            number = journal.next_number() - 1
            last = journal.outlines(number)[-1] if number else None
            settings, source = noted_settings(journal), _source(journal)
    except JournalError as error:
        return f"Halted: a living agent obeys in its next round. Whether there is one is not known: {error}."
    if is_alive(signs, last, settings):
        return "Halted: the agent obeys in its next round, and returns its jobs."
    return f"Halted. {_given_back(settings, source)}"


def resume(directory: Path) -> str:
    """Let a halted agent act again.

    Raises:
        InputError: if no agent ever served from there, or the file cannot be removed.
    """
    signs = _signs(directory)
    try:
        was = signs.resume()
    except OSError as error:
        raise InputError(f"{signs.halt_file}: cannot be removed ({error.strerror})") from None
    return "The agent acts again from its next round on." if was else "It was not halted."


def _signs(directory: Path) -> Signs:
    signs = Signs(directory)
    if not signs.known and not journal_of(directory).is_file():
        raise InputError(f"{directory}: no agent has ever served from here")
    return signs


def _given_back(settings: ServeSettings, source: str) -> str:
    """Of an agent that gives no sign of life: give its jobs back in its place."""
    if not source.startswith("slurm"):
        return "No agent answers; it holds nothing once it sees the file."
    found = release(SlurmAdapter(settings), "halted")
    if found.error:
        return f"No agent answers, and no job could be returned from here: {found.error}."
    refused = [one for one in found.outcomes if not one.ok and one.code != "missing"]
    said = f"No agent answers, so {len(found.outcomes) - len(refused):,} jobs were returned from here."
    return said + (f" {len(refused):,} could not be returned: {refused[0].error}." if refused else "")


def _source(journal: Journal) -> str:
    """Which cluster an agent has served; empty if it has seen none."""
    number = journal.next_number() - 1
    return journal.state(number).source if number else ""
