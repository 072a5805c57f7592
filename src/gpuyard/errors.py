"""The one exception that means: the input is at fault, and here is what to do."""

import re
from collections.abc import Callable

_SETTING = re.compile(r"`([a-z][a-z0-9_]*(?:\.[A-Za-z0-9_*]+)*)(?:=([^`]*))?`")


class InputError(ValueError):
    """Bad input. The message says where (file, line, key), what is wrong and what was expected.

    Settings in it are written by ``setting``, so that whoever shows the message can spell them: the command
    line as flags. It prints one paragraph and exits with code 2.
    """


def setting(name: str, value: object = None) -> str:
    """A setting in a message, marked so that it is still known after the message has been passed on as text.

    Args:
        name: Of the field, with those of its tables before it: ``environment.envs``.
        value: What to set it to; None only names it.
    """
    return f"`{name}`" if value is None else f"`{name}={value}`"


def settings_in(message: str) -> list[str]:
    """Names of the settings in a message."""
    return [found[1] for found in _SETTING.finditer(message)]


def spelt(message: str, spell: Callable[[str, str | None], str]) -> str:
    """The message with every setting as ``spell`` writes its name and value."""
    return _SETTING.sub(lambda found: spell(found[1], found[2]), message)
