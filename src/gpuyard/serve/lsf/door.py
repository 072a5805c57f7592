"""The socket at which LSF's scheduler plugin asks for the hosts of a job (docs/guide/serve-lsf.md).

One question a connection, in lines, so that the plugin needs no parser. Whatever goes wrong is answered by
silence or by no hosts: then LSF's own choice stands.
"""

import contextlib
import os
import re
import socket
import sys
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Self

from gpuyard.errors import InputError, setting

Choose = Callable[[str, Sequence[str]], Sequence[str]]
"""The hosts to keep of a job's candidates, by the job's key; none: any."""

SOCKET = "lsf.socket"
LARGEST_QUESTION = 16 << 20
READ_S = 0.2
"""Time that the plugin has for a question; it gives up long before."""
_KEY = re.compile(r"[A-Za-z0-9_.-]{1,64}")
_NAME = re.compile(r"[^\s\x00-\x1f\x7f]{1,255}")


class Door:
    """Answers the plugin, one question after another, in a thread of its own.

    Args:
        path: Of the socket. Only its owner can open it: run the agent as the user that LSF's daemons have.
        choose: Who chooses.
    """

    def __init__(self, path: Path, choose: Choose) -> None:
        self._path, self._choose = path, choose
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._thread = threading.Thread(target=self._serve, daemon=True, name="gpuyard-lsf")
        self._closed = threading.Event()

    def __enter__(self) -> Self:
        """Listen.

        Raises:
            InputError: if that is not possible there.
        """
        try:
            self._path.unlink(missing_ok=True)  # the state directory is locked: nobody else listens there
            before = os.umask(0o177)
            try:
                self._socket.bind(str(self._path))
            finally:
                os.umask(before)
            self._socket.listen(128)
        except OSError as error:
            self._socket.close()
            raise InputError(
                f"cannot listen on {self._path}: {error.strerror or error}; choose another "
                f"{setting('state_dir')} with a short path"
            ) from None
        # Python lets a thread compute for 5 ms before another one gets its turn: an answer has several turns.
        sys.setswitchinterval(0.0005)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Stop listening."""
        self._closed.set()
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()
        self._thread.join(2.0)
        self._path.unlink(missing_ok=True)

    def _serve(self) -> None:
        while not self._closed.is_set():
            try:
                connection, _ = self._socket.accept()
            except OSError:
                if self._closed.is_set():
                    return
                time.sleep(0.05)  # too many open files, perhaps: LSF goes on without us meanwhile
                continue
            with connection, contextlib.suppress(OSError, ValueError):
                connection.sendall(self._answer(_heard(connection)))

    def _answer(self, question: str) -> bytes:
        key, hosts = understood(question)
        try:
            chosen = self._choose(key, hosts)
        except Exception:  # nothing that goes wrong here may reach LSF's scheduler
            chosen = ()
        lines = [f"keep {host}\n" for host in chosen if _NAME.fullmatch(host)]
        return "".join([*lines, "end\n"]).encode()


def understood(question: str) -> tuple[str, list[str]]:
    """The key and the candidates of a question.

    Raises:
        ValueError: if it is none.
    """
    lines = question.split("\n")
    if lines[0] != "gpuyard 1" or lines[-2:] != ["end", ""] or len(lines) < 5:
        raise ValueError("no question of version 1")
    word, _, key = lines[1].partition(" ")
    if word != "key" or not _KEY.fullmatch(key):
        raise ValueError("no key")
    hosts = [line.removeprefix("host ") for line in lines[2:-2]]
    if any(not line.startswith("host ") for line in lines[2:-2]) or not all(map(_NAME.fullmatch, hosts)):
        raise ValueError("a line that is no host")
    return key, hosts


def _heard(connection: socket.socket) -> str:
    """All until the line ``end``.

    Raises:
        OSError: if it does not come in time.
        ValueError: if it is too long.
    """
    until = time.monotonic() + READ_S
    heard = bytearray()
    while not heard.endswith(b"\nend\n"):
        connection.settimeout(max(0.001, until - time.monotonic()))
        part = connection.recv(1 << 16)
        if not part or time.monotonic() > until:
            raise TimeoutError("half a question")
        heard += part
        if len(heard) > LARGEST_QUESTION:
            raise ValueError("a question without end")
    return heard.decode("utf-8")
