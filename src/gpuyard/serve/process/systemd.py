"""Talking to systemd (sd_notify), and the unit files that come with gpuyard."""

import os
import socket
from collections.abc import Mapping
from importlib import resources

FILES = "files"
"""Folder of this package with unit files and an example of settings."""


class Notifier:
    """Tells systemd how the agent does; says nothing where systemd did not start it.

    Args:
        environment: As systemd sets it; the process's own if None.
    """

    def __init__(self, environment: Mapping[str, str] | None = None) -> None:
        known = os.environ if environment is None else environment
        self._address = known.get("NOTIFY_SOCKET", "")
        self._watchdog_us = known.get("WATCHDOG_USEC", "")
        self._watchdog_pid = known.get("WATCHDOG_PID", "")

    @property
    def watchdog_s(self) -> float | None:
        """How often systemd wants a sign of life at least, seconds; None if it does not."""
        mine = not self._watchdog_pid or self._watchdog_pid == str(os.getpid())
        if not mine or not self._watchdog_us.isdecimal() or int(self._watchdog_us) == 0:
            return None
        return int(self._watchdog_us) / 1e6

    def ready(self, status: str = "") -> bool:
        """The agent has decided for the first time; whether systemd was told."""
        return self._send("READY=1", status)

    def alive(self, status: str = "") -> bool:
        """A round has ended well."""
        return self._send("WATCHDOG=1", status)

    def reloading(self) -> bool:
        """Settings are read again; ``ready`` follows."""
        return self._send("RELOADING=1", "")

    def stopping(self, status: str = "") -> bool:
        """The agent gives jobs back and ends."""
        return self._send("STOPPING=1", status)

    def _send(self, word: str, status: str) -> bool:
        # What is not a path or an abstract name is not for us (sd_notify(3)).
        if self._address[:1] not in ("/", "@"):
            return False
        line = " ".join(status.split())
        text = f"{word}\nSTATUS={line}" if line else word
        address = f"\0{self._address[1:]}" if self._address[0] == "@" else self._address
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as channel:
                channel.settimeout(1.0)
                channel.connect(address)
                channel.sendall(text.encode())
        except OSError:
            return False  # an agent without systemd works as well
        return True


def shipped_files() -> dict[str, str]:
    """Texts of what an installation needs, by name: unit files, an example of settings, submit scripts."""
    folders = (
        resources.files("gpuyard.serve.process") / FILES,
        resources.files("gpuyard.serve.slurm") / FILES,
        resources.files("gpuyard.serve.lsf") / FILES,
    )
    entries = [entry for folder in folders for entry in folder.iterdir() if entry.is_file()]
    return {
        entry.name: entry.read_text(encoding="utf-8") for entry in sorted(entries, key=lambda one: one.name)
    }
