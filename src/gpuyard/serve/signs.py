"""Signs in files of the state directory: a heartbeat, a request to halt, and who leads.

Whoever must act when the agent is dead (the watchdog, ``gpuyard serve halt``, Slurm's submit script) reads
and writes these and nothing else. Loads nothing heavy.
"""

import contextlib
import fcntl
import os
import time
from collections.abc import Iterator
from pathlib import Path

from gpuyard.errors import InputError, setting

HEARTBEAT, HALT, LOCK, SCHEDULER = "heartbeat", "halt", "lock", "scheduler"


class Signs:
    """Files of one state directory.

    Args:
        directory: The state directory; ``make`` makes it.
    """

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.heartbeat = directory / HEARTBEAT
        self.halt_file = directory / HALT

    def make(self) -> None:
        """Make the directory.

        Raises:
            InputError: if it cannot be made or written to.
        """
        try:
            self.directory.mkdir(parents=True, exist_ok=True)
            usable = os.access(self.directory, os.W_OK | os.X_OK)
        except OSError as error:
            raise InputError(f"{setting('state_dir')} {self.directory}: {error.strerror}") from None
        if not usable:
            raise InputError(f"{setting('state_dir')} {self.directory}: no permission to write there")

    def beat(self, now_s: float | None = None) -> bool:
        """Say that the agent lives and that what it holds is in good hands. The submit script reads it.

        Returns:
            Whether that could be written; an old heartbeat is the truth otherwise.
        """
        text = f"{int(time.time() if now_s is None else now_s)}\n"
        temporary = self.heartbeat.with_name(f".{HEARTBEAT}.{os.getpid()}")
        try:
            temporary.write_text(text, encoding="ascii")
            temporary.chmod(0o644)  # slurmctld reads it, as another user
            temporary.replace(self.heartbeat)
        except OSError:
            with contextlib.suppress(OSError):
                temporary.unlink(missing_ok=True)
            return self._beat_in_place(text)
        return True

    def _beat_in_place(self, text: str) -> bool:
        """A full disk has no room for another file, while the journal may still have some of its own."""
        try:
            with self.heartbeat.open("r+", encoding="ascii") as file:
                file.write(text)
        except OSError:
            return False
        return True

    def stop_beating(self) -> None:
        """Say that the agent holds nothing any more."""
        with contextlib.suppress(OSError):
            self.heartbeat.unlink(missing_ok=True)

    def silence_s(self, now_s: float | None = None) -> float | None:
        """How long ago the last heartbeat was; None if there is none, or one of the future."""
        try:
            beat_s = float(self.heartbeat.read_text(encoding="ascii").split()[0])
        except (OSError, ValueError, IndexError):
            return None
        silence_s = (time.time() if now_s is None else now_s) - beat_s
        return silence_s if silence_s > -60.0 else None

    @property
    def scheduler(self) -> str:
        """Whose cluster the agent of this directory serves; empty if none has served."""
        try:
            return (self.directory / SCHEDULER).read_text(encoding="ascii").strip()
        except (OSError, ValueError):
            return ""

    def remember(self, scheduler: str) -> None:
        """Say whose cluster is served: whoever acts when the agent is dead must know.

        Raises:
            InputError: if another one's was served from here: its jobs would be forgotten.
        """
        before = self.scheduler
        if before and before != scheduler:
            raise InputError(
                f"{self.directory} is the state of an agent that serves {before}; give another "
                f"{setting('state_dir')} for {scheduler}"
            )
        if not before:
            (self.directory / SCHEDULER).write_text(f"{scheduler}\n", encoding="ascii")

    @property
    def known(self) -> bool:
        """Whether an agent ever served from here."""
        return any((self.directory / name).exists() for name in (LOCK, HEARTBEAT))

    @property
    def halted(self) -> bool:
        """Whether somebody asked the agent to keep its hands off. What cannot be read counts as yes."""
        try:
            self.halt_file.stat()
        except FileNotFoundError:
            return False
        except OSError:
            return True
        return True

    def halt(self, why: str) -> None:
        """Ask the agent to keep its hands off from its next round on."""
        self.make()
        self.halt_file.write_text(f"{time.strftime('%Y-%m-%d %H:%M:%S')} {why}\n", encoding="utf-8")
        self.halt_file.chmod(0o644)

    def resume(self) -> bool:
        """Let the agent act again; whether it was halted."""
        was = self.halted
        self.halt_file.unlink(missing_ok=True)
        return was

    @contextlib.contextmanager
    def leadership(self) -> Iterator[None]:
        """Be the only agent of this directory; the system ends that with the process.

        Raises:
            InputError: if another agent is.
        """
        self.make()
        descriptor = os.open(self.directory / LOCK, os.O_RDWR | os.O_CREAT, 0o600)
        try:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                raise InputError(
                    f"another agent serves from {self.directory}; stop it, or give another "
                    f"{setting('state_dir')}"
                ) from None
            yield
        finally:
            os.close(descriptor)
