"""The agent's answers over HTTP: on a unix socket always, on TCP only to those who have the token.

Every connection has a thread, one request, a bounded size and a bounded time; the agent's rounds never wait.
"""

import hmac
import http.client
import ipaddress
import json
import math
import os
import re
import socket
import socketserver
import stat
import threading
import time
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler
from io import BytesIO
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import parse_qs, unquote, urlsplit

from gpuyard.errors import InputError, setting
from gpuyard.serve.state import ClusterState

LARGEST_HEAD = 16_384
"""Bytes of a request, at most."""
READ_S = 5.0
"""Time that a client has to send its request, seconds."""
WRITE_S = 20.0
"""Time that a client has to take the answer, seconds."""
MOST_CLIENTS = 128
"""Connections at one time; further ones are turned away."""
MOST_DECISIONS = 10_000
_LONGEST_SOCKET_PATH = 107
_JSON = "application/json"
_JOB = re.compile(r"/v1/jobs/([^/]{1,600})/(explain|eta)")


class Agent(Protocol):
    """What answers are made of. Its methods are called by many threads at once."""

    def status(self) -> dict[str, Any]:
        """How the agent does."""

    def order(self) -> dict[str, Any]:
        """The waiting jobs as the policy ranks them."""

    def state(self) -> ClusterState | None:
        """The last state; None before the first round."""

    def explain(self, job: str) -> dict[str, Any]:
        """Why a job waits. Raises a LookupError for a job that is not there."""

    def eta(self, job: str) -> dict[str, Any]:
        """When a job will start. Raises a LookupError for a job that is not there."""

    def decisions(self, since: float | None, job: str | None, limit: int) -> list[dict[str, Any]]:
        """The latest decisions since a moment, of one job or of all."""

    def metrics(self) -> bytes:
        """For Prometheus."""

    def ready(self) -> tuple[bool, str]:
        """Whether decisions are made on a fresh state, and why not."""


class _AnswerError(Exception):
    """A request that is answered with an error: its code, what is wrong and what to do."""

    def __init__(self, code: int, error: str, do: str) -> None:
        super().__init__(error)
        self.code, self.error, self.do = code, error, do


class _Handler(BaseHTTPRequestHandler):
    """One request of one connection."""

    server: "_Server"
    protocol_version = "HTTP/1.1"

    def setup(self) -> None:
        """Read the whole request first: a client that sends slowly costs a thread for ``READ_S``, no more."""
        self.connection = self.request
        self.rfile, self.wfile = BytesIO(), BytesIO()
        self._refused: _AnswerError | None = None
        try:
            self.rfile = BytesIO(_read_head(self.connection))
        except _AnswerError as error:
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
        except _AnswerError as error:
            self._fail(error)
        except Exception as error:  # a client must learn that it failed, and the daemon must not
            kind = type(error).__name__
            self._fail(_AnswerError(500, f"the agent could not answer ({kind})", "see the agent's log"))
        return None

    def finish(self) -> None:
        """Send the answer in one piece."""
        answer = self.wfile.getvalue()  # type: ignore[attr-defined]
        try:
            self.connection.settimeout(WRITE_S)
            self.connection.sendall(answer)
        except OSError:
            pass  # the client left, or is too slow

    def _route(self) -> tuple[bytes, str]:
        self._check_allowed()
        parts = urlsplit(self.path)
        agent = self.server.agent
        if parts.path == "/metrics":
            return agent.metrics(), "text/plain; version=0.0.4; charset=utf-8"
        if parts.path == "/v1/snapshot":
            state = agent.state()
            if state is None:
                raise _AnswerError(503, "no state has been observed yet", "ask again after the first round")
            return state.json_text.encode(), _JSON
        return _json_bytes(self._document(parts.path, parts.query)), _JSON

    def _document(self, path: str, query: str) -> Any:
        agent = self.server.agent
        plain: dict[str, Callable[[], Any]] = {
            "/healthz": lambda: {"alive": True},
            "/readyz": lambda: _readiness(agent),
            "/v1/status": agent.status,
            "/v1/order": agent.order,
            "/v1/decisions": lambda: {"decisions": agent.decisions(*_decision_query(query))},
        }
        if path in plain:
            return plain[path]()
        found = _JOB.fullmatch(path)
        if found is None:
            listed = ", ".join([*plain, "/metrics", "/v1/snapshot", "/v1/jobs/ID/explain", "/v1/jobs/ID/eta"])
            raise _AnswerError(404, "there is nothing at this address", f"use one of {listed}")
        job = unquote(found[1])
        try:
            return (agent.explain if found[2] == "explain" else agent.eta)(job)
        except LookupError:
            raise _AnswerError(404, f"there is no job {job!r}", "give the id of a job that waits") from None

    def _check_allowed(self) -> None:
        token = self.server.token
        if token is not None:
            given = self.headers.get("Authorization", "")
            if not hmac.compare_digest(given.encode("utf-8", "replace"), b"Bearer " + token.encode()):
                raise _AnswerError(401, "the token is missing or wrong", "send Authorization: Bearer TOKEN")
        if self.command not in ("GET", "HEAD"):
            raise _AnswerError(
                405, f"{self.command} is not possible", "use GET; to stop it, gpuyard serve halt"
            )

    def _fail(self, error: _AnswerError) -> None:
        body = _json_bytes({"error": error.error, "do": error.do})
        self._answer(error.code, body, _JSON)

    def _answer(self, code: int, body: bytes, kind: str) -> None:
        headers = [
            f"HTTP/1.1 {code} {http.client.responses.get(code, '')}",
            f"Content-Type: {kind}",
            f"Content-Length: {len(body)}",
            "Connection: close",
            "Cache-Control: no-store",
            "X-Content-Type-Options: nosniff",
            *(["WWW-Authenticate: Bearer"] if code == 401 else []),
            *(["Allow: GET, HEAD"] if code == 405 else []),
        ]
        head = "\r\n".join([*headers, "", ""]).encode("ascii")
        self.wfile.write(head if self.command == "HEAD" else head + body)

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
        """What the standard library finds wrong with a request, in our form."""
        self._fail(_AnswerError(int(code), message or explain or "bad request", "send a plain GET request"))

    def log_message(self, format: str, *args: Any) -> None:
        """Requests are not logged: probes would fill the log."""


def _read_head(connection: socket.socket) -> bytes:
    """All bytes of a request up to the empty line."""
    until = time.monotonic() + READ_S
    head = b""
    while b"\r\n\r\n" not in head and b"\n\n" not in head:
        left_s = until - time.monotonic()
        if left_s <= 0:
            raise _AnswerError(408, "the request took too long to arrive", "send it in one piece")
        connection.settimeout(left_s)
        try:
            piece = connection.recv(LARGEST_HEAD)
        except OSError:
            piece = b""
        if not piece and time.monotonic() < until:
            raise _AnswerError(400, "the request ended before its empty line", "send a plain GET request")
        head += piece
        if len(head) > LARGEST_HEAD:
            raise _AnswerError(431, f"the request is longer than {LARGEST_HEAD} bytes", "send a shorter one")
    return head


def _readiness(agent: Agent) -> dict[str, Any]:
    ready, why = agent.ready()
    if not ready:
        raise _AnswerError(503, f"not ready: {why}", "see /v1/status")
    return {"ready": True, "words": why}


def _decision_query(query: str) -> tuple[float | None, str | None, int]:
    try:
        given = {name: values[-1] for name, values in parse_qs(query, max_num_fields=10).items()}
        since = float(given["since"]) if "since" in given else None
        limit = int(given.get("limit", "100"))
    except ValueError:
        raise _AnswerError(
            400, "since or limit is not a number", "use ?since=UNIX_TIME&job=ID&limit=100"
        ) from None
    if (since is not None and not math.isfinite(since)) or not 1 <= limit <= MOST_DECISIONS:
        raise _AnswerError(400, "since or limit is out of range", f"use a limit of 1 to {MOST_DECISIONS}")
    return since, given.get("job"), limit


def _json_bytes(document: Any) -> bytes:
    return json.dumps(document, ensure_ascii=True, default=str).encode() + b"\n"


class _Server(socketserver.ThreadingMixIn, socketserver.TCPServer):
    daemon_threads = True
    block_on_close = False
    allow_reuse_address = True
    request_queue_size = 128

    def __init__(self, address: Any, family: int, agent: Agent, token: str | None, mode: int) -> None:
        self.address_family = family
        self.agent, self.token, self._mode = agent, token, mode
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
        return self._places.acquire(blocking=False)

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
    """

    def __init__(
        self, agent: Agent, socket_path: Path, listen: str | None = None, token: str | None = None,
        mode: int = 0o600,
    ) -> None:  # fmt: skip
        self._agent, self._path, self._mode = agent, socket_path, mode
        self._listen, self._token = listen, token
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
            self._add(_Server(str(self._path), socket.AF_UNIX, self._agent, None, self._mode))
            self._inode = self._path.stat().st_ino
            if address is not None:
                self._add(_Server(address[1], address[0], self._agent, self._token, 0))
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
