"""Structured logs on stderr: one JSON object per line, or lines for people on a terminal."""

import json
import math
import sys
import threading
import time
from typing import Any, Literal, TextIO

Level = Literal["debug", "info", "warning", "error"]
LEVELS: tuple[Level, ...] = ("debug", "info", "warning", "error")
SECRET = ("token", "password", "secret", "authorization", "jwt", "credential")
"""Fields whose names hold one of these words are never written."""
HIDDEN = "***"
_LONGEST = 2_000
"""Characters of one text that are written; the rest of a longer one is cut off."""


class Log:
    """Writes events. Nothing that happens to the stream reaches the caller: no log is worth a round.

    Args:
        stream: Where to; stderr if None.
        level: The least level that is written.
        for_people: Lines for people instead of JSON; None: if the stream is a terminal.
    """

    def __init__(
        self, stream: TextIO | None = None, level: Level = "info", for_people: bool | None = None
    ) -> None:
        self._stream = stream
        self._least = LEVELS.index(level)
        self._for_people = for_people
        self._secrets: tuple[str, ...] = ()
        self._lock = threading.Lock()

    def hide(self, secret: str) -> None:
        """Never write this text, wherever it may appear."""
        if secret.strip():
            self._secrets = (*self._secrets, secret.strip())

    def debug(self, event: str, **fields: Any) -> None:
        """Something that only its developers want to know."""
        self.write("debug", event, fields)

    def info(self, event: str, **fields: Any) -> None:
        """Something that an operator wants to find later."""
        self.write("info", event, fields)

    def warning(self, event: str, **fields: Any) -> None:
        """Something that an operator should look at."""
        self.write("warning", event, fields)

    def error(self, event: str, **fields: Any) -> None:
        """Something that does not work."""
        self.write("error", event, fields)

    def write(self, level: Level, event: str, fields: dict[str, Any]) -> None:
        """Write an event.

        Args:
            level: Its level.
            event: What happened, in kebab-case, the same for all events of a kind.
            fields: What it was about. ``time``, ``level`` and ``event`` are taken.
        """
        if LEVELS.index(level) < self._least:
            return
        stream = self._stream if self._stream is not None else sys.stderr
        try:
            known = {name: self._shown(name, value) for name, value in fields.items()}
            people = stream.isatty() if self._for_people is None else self._for_people
            line = _for_people(level, event, known) if people else _as_json(level, event, known)
            with self._lock:
                stream.write(line + "\n")
                stream.flush()
        except (OSError, ValueError, TypeError, AttributeError, RecursionError):
            return  # closed, a full disk, or an object that cannot be written

    def _shown(self, name: str, value: Any) -> Any:
        if any(word in name.lower() for word in SECRET):
            return HIDDEN
        if isinstance(value, dict):
            return {str(key): self._shown(str(key), entry) for key, entry in value.items()}
        if isinstance(value, list | tuple | set | frozenset):
            return [self._shown(name, entry) for entry in value]
        if isinstance(value, float) and not math.isfinite(value):
            return None
        if value is None or isinstance(value, bool | int | float):
            return value
        return self._without_secrets(str(value))

    def _without_secrets(self, text: str) -> str:
        for secret in self._secrets:
            text = text.replace(secret, HIDDEN)
        return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…"


def _as_json(level: Level, event: str, fields: dict[str, Any]) -> str:
    now_s = time.time()
    stamp = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(now_s)) + f".{int(now_s % 1 * 1000):03d}Z"
    return json.dumps({**fields, "time": stamp, "level": level, "event": event}, ensure_ascii=True)


def _for_people(level: Level, event: str, fields: dict[str, Any]) -> str:
    shown = (f"{name}={_one_line(value)}" for name, value in fields.items())
    mark = "" if level in ("debug", "info") else f"{level}: "
    return " ".join([time.strftime("%H:%M:%S"), f"{mark}{_escaped(event)}", *shown])


def _one_line(value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(value)
    return _escaped(json.dumps(text, ensure_ascii=False) if " " in text or not text else text)


def _escaped(text: str) -> str:
    """Names come from the cluster: none of them may move the cursor or begin a line."""
    return "".join(letter if letter.isprintable() else f"\\u{ord(letter):04x}" for letter in text)
