"""The server: bound to this machine, it prints its address, and ends cleanly."""

import ipaddress
import secrets
import socket
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from urllib.parse import urlsplit

import uvicorn

from gpuyard.dashboard.access import Access
from gpuyard.dashboard.app import make_app
from gpuyard.dashboard.feeds import Feeds
from gpuyard.dashboard.library import Library
from gpuyard.errors import InputError, setting

USUAL_PORT = 8642
"""Taken if it is free and no other is asked for, so that bookmarks keep leading somewhere."""
SHORTEST_TOKEN = 16
STOP_WITHIN_S = 2


@dataclass(frozen=True)
class Place:
    """Where the server listens.

    Attributes:
        host: An address or name.
        port: 0: the usual one, else any that is free.
    """

    host: str = "127.0.0.1"
    port: int = 0

    @classmethod
    def parse(cls, text: str) -> "Place":
        """From ``HOST``, ``HOST:PORT`` or ``:PORT``.

        Raises:
            InputError: if it is none of these.
        """
        try:
            parts = urlsplit(f"//{text}")
            found = cls(parts.hostname or "127.0.0.1", parts.port or 0)
        except ValueError:
            parts, found = urlsplit(""), cls()
        if not text or parts.path or parts.username is not None or parts.netloc != text:
            raise InputError(f"{setting('listen')} {text!r}: expected HOST:PORT, such as 127.0.0.1:8642")
        return found

    @property
    def is_local(self) -> bool:
        """Whether only this machine reaches it."""
        if self.host == "localhost":
            return True
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return False

    def bind(self) -> socket.socket:
        """A socket that listens there.

        Raises:
            InputError: if the address cannot be had.
        """
        ports = [self.port] if self.port else [USUAL_PORT, 0]
        for port in ports:
            try:
                family = socket.getaddrinfo(self.host, port, type=socket.SOCK_STREAM)[0][0]
                return socket.create_server((self.host, port), family=family)
            except OSError as error:
                reason = error.strerror or str(error)
        raise InputError(
            f"{setting('listen')} {self.host}:{self.port}: cannot be had ({reason}); give another"
        )


def _chosen_token(file: Path | None) -> str:
    """The token of a file, else a random one.

    Raises:
        InputError: if the file cannot be read, others may read it, or the token is short.
    """
    if file is None:
        return secrets.token_urlsafe(24)
    from gpuyard.serve.process.service import read_token  # which loads what an agent needs

    text = read_token(file, "token_file") or ""
    if len(text) < SHORTEST_TOKEN or not text.isascii() or not text.isprintable() or " " in text:
        raise InputError(
            f"{setting('token_file')} {file}: expected one line of at least {SHORTEST_TOKEN} letters and "
            "digits; make it with python3 -c 'import secrets; print(secrets.token_urlsafe())'"
        )
    return text


class Dashboard(uvicorn.Server):
    """A server that ends its streams when it is told to stop, so that nothing has to be waited for.

    Args:
        library: What it shows.
        place: Where it listens.
        token_file: Where the token lies; without one, it is drawn.

    Raises:
        InputError: if others could reach it without a token of their own, or the address cannot be had.
    """

    def __init__(self, library: Library, place: Place, token_file: Path | None = None) -> None:
        if not place.is_local and token_file is None:
            raise InputError(
                f"{setting('listen')} {place.host}: other machines reach that address; it needs "
                f"{setting('token_file')}, or an ssh tunnel to the dashboard on 127.0.0.1"
            )
        self.token = _chosen_token(token_file)
        self._feeds = Feeds()
        access = Access(self.token, () if place.is_local else _names(place.host))
        app = make_app(library, access, feeds=self._feeds)
        super().__init__(
            uvicorn.Config(
                app, log_level="warning", access_log=False, server_header=False, proxy_headers=False,
                ws="none", timeout_graceful_shutdown=STOP_WITHIN_S,
            )
        )  # fmt: skip
        self._socket = place.bind()
        self._host = place.host

    @property
    def url(self) -> str:
        """What a browser opens."""
        host = f"[{self._host}]" if ":" in self._host else self._host
        return f"http://{host}:{self._socket.getsockname()[1]}/?token={self.token}"

    def serve_until_stopped(self) -> None:
        """Serve until SIGINT or SIGTERM."""
        # Ctrl-C is how it ends; uvicorn passes the signal on once it has stopped.
        with self._socket, suppress(KeyboardInterrupt):
            self.run(sockets=[self._socket])

    def close(self) -> None:
        """Give the address back, of a server that is not to serve."""
        self._socket.close()

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Stop, with all streams of events."""
        self._feeds.close()
        super().handle_exit(sig, frame)


def _names(host: str) -> set[str]:
    """Names under which others find this machine."""
    own = socket.gethostname()
    return {host, own, socket.getfqdn(own)}
