"""What a journal holds besides single rounds: all of them in turn, and the settings of its agent."""

from collections.abc import Iterator

from gpuyard.serve.journal.database import JournalError
from gpuyard.serve.journal.store import Journal
from gpuyard.serve.records import RoundRecord
from gpuyard.serve.settings import ServeSettings

SETTINGS_NOTE = "settings"
"""The journal's note that holds the settings of the agent as JSON."""
_BATCH = 200


def rounds(journal: Journal, numbers: list[int]) -> Iterator[RoundRecord]:
    """The records of these ascending numbers, read a few at a time."""
    position = numbers[0] if numbers else 0
    while numbers and position <= numbers[-1]:
        found = journal.records(position, _BATCH)
        yield from (record for record in found if record.number <= numbers[-1])
        if not found:
            return
        position = found[-1].number + 1


def noted_settings(journal: Journal) -> ServeSettings:
    """The settings that the agent noted in its journal.

    Raises:
        JournalError: if there are none, or they are of another gpuyard.
    """
    text = journal.note(SETTINGS_NOTE)
    if text is None:
        raise JournalError(f"{journal.path}: holds no settings, so no agent has served with it yet")
    try:
        return ServeSettings.model_validate_json(text)
    except ValueError as error:
        raise JournalError(f"{journal.path}: its settings are of another gpuyard ({error})") from None
