"""The agent's answers over HTTP: on a unix socket always, on TCP only to those who have the token.

Every connection has a thread, one request, a bounded size and a bounded time; the agent's rounds never wait.
"""

import contextlib
import hmac
import http.client
import ipaddress
import os
import re
import socket
import socketserver
import ssl
import stat
import threading
import time
from http.server import BaseHTTPRequestHandler
from io import BytesIO
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from gpuyard.errors import InputError, setting
from gpuyard.serve.process.routes import (
    JSON,
    Addresses,
    Agent,
    AnswerError,
    Request,
    Routes,
    answer_of,
    json_bytes,
)

LARGEST_HEAD = 16_384
"""Bytes of a request without its body, at most."""
LARGEST_BODY = 16 << 20
"""Bytes of a body, at most: a state with 20,000 jobs, or 1,000 nodes as Kubernetes describes them."""
_SMALL_BODY = 1 << 20
_LARGE_BODIES = 8
"""Bodies of more than that which are read at one time; they bound the memory that clients can take."""
READ_S = 5.0
"""Time that a client has to send its request, seconds."""
WRITE_S = 20.0
"""Time that a client has to take the answer, seconds."""
MOST_CLIENTS = 256
"""Connections at one time; further ones are turned away."""
_LONGEST_SOCKET_PATH = 107


class _Handler(BaseHTTPRequestHandler):
    """One request of one connection."""

    server: "_Server"
    protocol_version = "HTTP/1.1"

    def setup(self) -> None:
        """Read the whole request first: a client that sends slowly costs a thread for ``READ_S``, no more."""
        self.connection = self.request
        self.rfile, self.wfile = BytesIO(), BytesIO()
        self._refused: AnswerError | None = None
        self._until = time.monotonic() + READ_S
        self._unread = False
        if self.server.tls is not None:
            self.request.settimeout(READ_S)
            self.connection = self.server.tls.wrap_socket(self.request, server_side=True)
        try:
            self.rfile = BytesIO(_read_head(self.connection, self._until))
        except AnswerError as error:
            self._refused = error

    def handle(self) -> None:
        """Answer once."""
        self.close_connection = True
        self.requestline, self.request_version, self.command = "", self.protocol_version, ""
        if self._refused is not None:
            return self._fail(self._refused)
        self.raw_requestline = self.rfile.readline(LARGEST_HEAD)
        if not self.raw_requestline or not self.parse_request():
            return None
        try:
            self._answer(200, *self._route())
        except AnswerError as error:
            self._fail(error)
        except Exception as error:  # a client must learn that it failed, and the daemon must not
            kind = type(error).__name__
            self._fail(AnswerError(500, f"the agent could not answer ({kind})", "see the agent's log"))
        return None

    def finish(self) -> None:
        """Send the answer in one piece."""
        answer = self.wfile.getvalue()  # type: ignore[attr-defined]
        try:
            self.connection.settimeout(WRITE_S)
            self.connection.sendall(answer)
            if self._unread:
                self._drain()
        except OSError:
            pass  # the client left, or is too slow
        if self.connection is not self.request:
            self.connection.close()

    def _drain(self) -> None:
        """Take what the client still sends: closing before that would throw the answer away."""
        self.connection.shutdown(socket.SHUT_WR)
        until = time.monotonic() + 1.0
        with contextlib.suppress(AnswerError):
            while True:
                _receive(self.connection, until, 1 << 20)

    def _route(self) -> tuple[bytes, str]:
        self._check_allowed()
        try:
            parts = urlsplit(self.path)
        except ValueError:
            raise AnswerError(400, "the address cannot be read", "send a plain path") from None
        method = "GET" if self.command == "HEAD" else self.command
        path = self._own_path(parts.path)
        route = self.server.addresses.find(method, path)
        body = self._body() if method == "POST" else b""
        return answer_of(route, Request(method, path, parts.query, body))

    def _body(self) -> bytes:
        """What a POST brings along: JSON of a known and bounded length."""
        self._unread = True
        if self.headers.get("Transfer-Encoding"):
            raise AnswerError(411, "the body's length is not known", "send Content-Length")
        if self.headers.get_content_type() != JSON:
            raise AnswerError(415, "the body is not JSON", "send Content-Type: application/json")
        length = self.headers.get("Content-Length", "")
        if not re.fullmatch(r"[0-9]{1,12}", length):
            raise AnswerError(411, "the body's length is not known", "send Content-Length")
        if int(length) > LARGEST_BODY:
            raise AnswerError(413, f"the body is longer than {LARGEST_BODY} bytes", "send a shorter one")
        if int(length) <= _SMALL_BODY:
            return self._read_body(int(length))
        if not self.server.large_bodies.acquire(blocking=False):
            raise AnswerError(503, "too many long requests at once", "ask again in a second")
        try:
            return self._read_body(int(length))
        finally:
            self.server.large_bodies.release()

    def _read_body(self, length: int) -> bytes:
        body = bytearray(self.rfile.read(length))
        while len(body) < length:
            body += _receive(self.connection, self._until, length - len(body))
        self._unread = False
        return bytes(body)

    def handle_expect_100(self) -> bool:
        """Have the body sent; curl waits for that before long ones."""
        self.connection.sendall(b"HTTP/1.1 100 Continue\r\n\r\n")
        return True

    def _check_allowed(self) -> None:
        token = self.server.token
        if token is not None:
            given = self.headers.get("Authorization", "").encode("utf-8", "replace")
            in_path = self.path.startswith("/token/") and self.path.split("/")[2].encode("utf-8", "replace")
            if not hmac.compare_digest(given, b"Bearer " + token.encode()) and not (
                in_path and hmac.compare_digest(in_path, token.encode())
            ):
                raise AnswerError(401, "the token is missing or wrong", "send Authorization: Bearer TOKEN")
        if self.command not in ("GET", "HEAD", "POST"):
            raise AnswerError(
                405, f"{self.command} is not possible", "use GET; to stop it, gpuyard serve halt",
                "GET, HEAD, POST",
            )  # fmt: skip

    def _own_path(self, path: str) -> str:
        """Without the token, which callers that cannot send headers put at its beginning."""
        if self.server.token is None or not path.startswith("/token/"):
            return path
        return "/" + path.removeprefix("/token/").partition("/")[2]

    def _fail(self, error: AnswerError) -> None:
        body = json_bytes({"error": error.error, "do": error.do})
        self._answer(error.code, body, JSON, error.allow)

    def _answer(self, code: int, body: bytes, kind: str, allow: str = "") -> None:
        headers = [
            f"HTTP/1.1 {code} {http.client.responses.get(code, '')}",
            f"Content-Type: {kind}",
            f"Content-Length: {len(body)}",
            "Connection: close",
            "Cache-Control: no-store",
            "X-Content-Type-Options: nosniff",
            *(["WWW-Authenticate: Bearer"] if code == 401 else []),
            *([f"Allow: {allow}"] if allow else []),
        ]
        head = "\r\n".join([*headers, "", ""]).encode("ascii")
        self.wfile.write(head if self.command == "HEAD" else head + body)

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
        """What the standard library finds wrong with a request, in our form."""
        self._fail(AnswerError(int(code), message or explain or "bad request", "send a plain request"))

    def log_message(self, format: str, *args: Any) -> None:
        """Requests are not logged: probes would fill the log."""


def _read_head(connection: socket.socket, until: float) -> bytes:
    """All bytes of a request up to the empty line, and what came with them."""
    head = b""
    while b"\r\n\r\n" not in head and b"\n\n" not in head:
        head += _receive(connection, until, LARGEST_HEAD)
        if len(head) > LARGEST_HEAD and b"\r\n\r\n" not in head[:LARGEST_HEAD]:
            raise AnswerError(431, f"the request is longer than {LARGEST_HEAD} bytes", "send a shorter one")
    return head


def _receive(connection: socket.socket, until: float, most: int) -> bytes:
    """The next bytes of a request, as long as it has time."""
    left_s = until - time.monotonic()
    piece = b""
    if left_s > 0:
        connection.settimeout(left_s)
        with contextlib.suppress(OSError):  # too late, or the client left
            piece = connection.recv(min(most, 1 << 20))
    if piece:
        return piece
    if time.monotonic() >= until:
        raise AnswerError(408, "the request took too long to arrive", "send it in one piece")
    raise AnswerError(400, "the request ended before its end was sent", "send a plain request")


_BUSY = (
    b"HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\nConnection: close\r\nRetry-After: 1\r\n\r\n"
)


class _Server(socketserver.ThreadingMixIn, socketserver.TCPServer):
    daemon_threads = True
    block_on_close = False
    allow_reuse_address = True
    request_queue_size = 256

    def __init__(
        self,
        address: Any,
        family: int,
        addresses: Addresses,
        token: str | None,
        mode: int,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self.address_family = family
        self.addresses, self.token, self._mode, self.tls = addresses, token, mode, tls
        self.large_bodies = threading.BoundedSemaphore(_LARGE_BODIES)
        self._places = threading.BoundedSemaphore(MOST_CLIENTS)
        super().__init__(address, _Handler)

    def server_bind(self) -> None:
        """Nobody can connect before the socket listens, so that its rights are set in time."""
        super().server_bind()
        if self.address_family == socket.AF_UNIX:
            Path(str(self.server_address)).chmod(self._mode)

    def get_request(self) -> tuple[socket.socket, Any]:
        connection, client = super().get_request()
        if self.address_family != socket.AF_UNIX:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return connection, client

    def verify_request(self, request: Any, client_address: Any) -> bool:
        """Turn clients away with an answer, as far as they take it at once."""
        if self._places.acquire(blocking=False):
            return True
        with contextlib.suppress(OSError):
            request.setblocking(False)
            request.send(_BUSY)
        return False

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._places.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A connection that broke is its client's matter."""


class HttpServer:
    """Answers in threads of its own from ``start`` to ``close``.

    Args:
        agent: Who knows the answers.
        socket_path: Where the unix socket is made.
        listen: Also an address such as ``127.0.0.1:9200`` or ``[::1]:9200``.
        token: What clients of that address must send.
        mode: Rights of the unix socket: 0600 for its user alone, 0660 for its group too.
        further: Addresses besides those that every agent has.
        tls: Certificate of the TCP address; None: it speaks plain HTTP.
    """

    def __init__(
        self, agent: Agent, socket_path: Path, listen: str | None = None, token: str | None = None,
        mode: int = 0o600, further: Routes | None = None, tls: ssl.SSLContext | None = None,
    ) -> None:  # fmt: skip
        self._addresses, self._path, self._mode = Addresses(agent, further), socket_path, mode
        self._listen, self._token = listen, token
        self._tls = tls
        self._servers: list[_Server] = []
        self._inode: int | None = None

    def start(self) -> None:
        """Listen.

        Raises:
            InputError: if another agent answers there, the address cannot be had, or the token is missing.
        """
        address = None if self._listen is None else _tcp_address(self._listen, self._token)
        _clear_stale(self._path)
        try:
            self._add(_Server(str(self._path), socket.AF_UNIX, self._addresses, None, self._mode))
            self._inode = self._path.stat().st_ino
            if address is not None:
                self._add(_Server(address[1], address[0], self._addresses, self._token, 0, self._tls))
        except OSError as error:
            self.close()
            raise InputError(
                f"the agent cannot listen on {self._path}{f' and {self._listen}' if self._listen else ''}: "
                f"{error.strerror or error}; choose another {setting('state_dir')} or {setting('listen')}"
            ) from None

    @property
    def port(self) -> int | None:
        """The TCP port; None without one."""
        tcp = [one for one in self._servers if one.address_family != socket.AF_UNIX]
        return int(tcp[0].socket.getsockname()[1]) if tcp else None

    def close(self) -> None:
        """Stop listening, and remove the unix socket if it is still ours."""
        for server in self._servers:
            server.shutdown()
            server.server_close()
        self._servers = []
        try:
            if self._inode is not None and self._path.stat().st_ino == self._inode:
                self._path.unlink()
        except OSError:
            pass

    def _add(self, server: _Server) -> None:
        self._servers.append(server)
        threading.Thread(target=server.serve_forever, args=(0.2,), daemon=True, name="gpuyard-http").start()


def _tcp_address(listen: str, token: str | None) -> tuple[int, tuple[str, int]]:
    host, _, port = listen.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    if not host or not port.isdecimal() or int(port) > 65535:
        raise InputError(
            f"{setting('listen', listen)}: expected an address such as 127.0.0.1:9200 or [::1]:9200"
        )
    try:
        version = ipaddress.ip_address(host).version
    except ValueError:
        raise InputError(
            f"{setting('listen', listen)}: expected the number of an address, not a name"
        ) from None
    if not token or len(token) < 16 or not token.isascii() or not token.isprintable():
        raise InputError(
            f"{setting('listen', listen)} needs a token of at least 16 printable characters in "
            f"{setting('token_file')}; make one with: openssl rand -hex 32"
        )
    return (socket.AF_INET6 if version == 6 else socket.AF_INET), (host, int(port))


def _clear_stale(path: Path) -> None:
    """Remove a socket that nobody listens on; anything else is somebody's."""
    if len(os.fsencode(path)) > _LONGEST_SOCKET_PATH:
        raise InputError(
            f"the path of the socket {path} is too long; choose a shorter {setting('state_dir')}"
        )
    try:
        kind = path.lstat().st_mode
    except FileNotFoundError:
        return
    if not stat.S_ISSOCK(kind):
        raise InputError(f"{path} is no socket; move it away, or choose another {setting('state_dir')}")
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.settimeout(1.0)
        try:
            probe.connect(str(path))
        except (ConnectionRefusedError, FileNotFoundError):
            path.unlink(missing_ok=True)
            return
        except OSError as error:
            raise InputError(f"{path}: cannot tell whether an agent answers there: {error}") from None
    raise InputError(
        f"another agent answers at {path}; end that one, or choose another {setting('state_dir')}"
    )
