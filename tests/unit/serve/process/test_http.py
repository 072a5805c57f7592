import contextlib
import http.client
import json
import socket
import stat
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from gpuyard.errors import InputError
from gpuyard.serve.process import http as serving
from gpuyard.serve.process.client import ask, job_path
from gpuyard.serve.process.http import HttpServer
from gpuyard.serve.state import ClusterState
from support.live_states import state, waiting

TOKEN = "0123456789abcdef-right"


class FakeAgent:
    def __init__(self) -> None:
        self.asked: list[Any] = []
        self.live: ClusterState | None = state(waiting("7"))
        self.is_ready = True

    def status(self) -> dict[str, Any]:
        return {"mode": "shadow"}

    def order(self) -> dict[str, Any]:
        raise RuntimeError("secret words")

    def state(self) -> ClusterState | None:
        return self.live

    def explain(self, job: str) -> dict[str, Any]:
        self.asked.append(job)
        if job == "gone":
            raise KeyError(job)
        return {"job": job}

    def eta(self, job: str) -> dict[str, Any]:
        return {"job": job, "eta": None}

    def decisions(self, since: float | None, job: str | None, limit: int) -> list[dict[str, Any]]:
        return [{"since": since, "job": job, "limit": limit}]

    def metrics(self) -> bytes:
        return b"gpuyard_leader 1.0\n"

    def ready(self) -> tuple[bool, str]:
        return self.is_ready, "fresh" if self.is_ready else "the state is 40 s old"


@pytest.fixture
def agent() -> FakeAgent:
    return FakeAgent()


@pytest.fixture
def path(tmp_path: Path, agent: FakeAgent) -> Iterator[Path]:
    server = HttpServer(agent, tmp_path / "a.socket")
    server.start()
    yield tmp_path / "a.socket"
    server.close()


@pytest.fixture
def port(tmp_path: Path, agent: FakeAgent) -> Iterator[int]:
    server = HttpServer(agent, tmp_path / "tcp.socket", "127.0.0.1:0", TOKEN)
    server.start()
    assert server.port is not None
    yield server.port
    server.close()


def raw(path: Path, request: bytes) -> tuple[int, dict[str, Any]]:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as client:
        client.settimeout(10.0)
        client.connect(str(path))
        client.sendall(request)
        answer = b""
        while piece := client.recv(65536):
            answer += piece
    head, _, body = answer.partition(b"\r\n\r\n")
    return int(head.split()[1]), json.loads(body) if body else {}


def get(path: Path, address: str) -> tuple[int, dict[str, Any]]:
    return raw(path, f"GET {address} HTTP/1.1\r\nHost: x\r\n\r\n".encode())


def test_every_endpoint_answers(path: Path, agent: FakeAgent) -> None:
    assert ask(path, "/healthz") == {"alive": True}
    assert ask(path, "/readyz") == {"ready": True, "words": "fresh"}
    assert ask(path, "/v1/status") == {"mode": "shadow"}
    assert ask(path, job_path("12_3", "explain")) == {"job": "12_3"}
    assert ask(path, job_path("12_3", "eta")) == {"job": "12_3", "eta": None}
    assert agent.live is not None
    assert ClusterState.from_json(json.dumps(ask(path, "/v1/snapshot"))) == agent.live
    with pytest.raises(InputError, match="broke off"):
        ask(path, "/metrics")  # which is no JSON


def test_decisions_are_chosen_by_moment_job_and_number(path: Path) -> None:
    assert ask(path, "/v1/decisions")["decisions"] == [{"since": None, "job": None, "limit": 100}]
    found = ask(path, "/v1/decisions?since=1700000000.5&job=1_%5B2%5D&limit=5")["decisions"]
    assert found == [{"since": 1700000000.5, "job": "1_[2]", "limit": 5}]


@pytest.mark.parametrize(
    "query", ["since=x", "since=nan", "limit=0", "limit=1e9", "limit=99999", "a=1&" * 20]
)
def test_questions_that_make_no_sense_are_refused(path: Path, query: str) -> None:
    code, answer = get(path, f"/v1/decisions?{query}")
    assert code == 400
    assert set(answer) == {"error", "do"}


@pytest.mark.parametrize(
    "address",
    ["/", "/../etc/passwd", "/v1/../../etc/passwd", "/v1/jobs/../explain/x", "/v1/jobs//eta",
     "/v1/jobs/%2e%2e/files", "/v1/jobs/" + "9" * 700 + "/eta", "/%00", "http://other/healthz/x"],
)  # fmt: skip
def test_there_is_nothing_at_other_addresses(path: Path, address: str) -> None:
    code, answer = get(path, address)
    assert code == 404
    assert "/v1/status" in answer["do"]


@pytest.mark.parametrize(
    "job", ["../../etc", "a b", "<script>", "1_[0-9%2]", "é\n\0", "'; drop", "%41", "?x=1#y"]
)
def test_ids_with_odd_characters_arrive_as_they_are_and_come_back_escaped(
    path: Path, agent: FakeAgent, job: str
) -> None:
    assert ask(path, job_path(job, "explain")) == {"job": job}
    assert agent.asked == [job]


def test_a_job_that_is_not_there_is_not_found(path: Path) -> None:
    code, answer = get(path, "/v1/jobs/gone/explain")
    assert (code, answer["error"]) == (404, "there is no job 'gone'")
    with pytest.raises(InputError, match="there is no job 'gone'; give the id"):
        ask(path, job_path("gone", "explain"))


def test_an_agent_that_is_not_ready_says_why(path: Path, agent: FakeAgent) -> None:
    agent.is_ready, agent.live = False, None
    assert get(path, "/readyz") == (
        503,
        {"error": "not ready: the state is 40 s old", "do": "see /v1/status"},
    )
    assert get(path, "/v1/snapshot")[0] == 503
    assert get(path, "/healthz")[0] == 200


def test_an_error_inside_is_not_told_outside(path: Path) -> None:
    code, answer = get(path, "/v1/order")
    assert code == 500
    assert "secret" not in json.dumps(answer)


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "OPTIONS", "BREW"])
def test_nothing_can_be_written(path: Path, method: str) -> None:
    code, answer = raw(path, f"{method} /v1/halt HTTP/1.1\r\nContent-Length: 3\r\n\r\nabc".encode())
    assert code == 405
    assert "gpuyard serve halt" in answer["do"]


def test_head_has_no_body(path: Path) -> None:
    assert raw(path, b"HEAD /healthz HTTP/1.1\r\n\r\n") == (200, {})


@pytest.mark.parametrize(
    ("request_bytes", "code"),
    [
        (b"GET /" + b"a" * 100_000 + b" HTTP/1.1\r\n\r\n", 431),
        (b"GET / HTTP/1.1\r\n" + b"X: y\r\n" * 10_000 + b"\r\n", 431),
        (b"GET / HTTP/1.1\r\n" + b"X: y\r\n" * 500 + b"\r\n", 431),
        (b"nonsense\r\n\r\n", 400),
        (b"GET / HTTP/9.9\r\n\r\n", 505),
        (b"\x16\x03\x01\x02\x00\r\n\r\n", 400),
    ],
)
def test_requests_that_are_too_long_or_none_are_refused(path: Path, request_bytes: bytes, code: int) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as client:
        client.settimeout(10.0)
        client.connect(str(path))
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            client.sendall(request_bytes)
        try:
            answer = client.recv(65536)
        except ConnectionResetError:
            answer = b""  # it was refused before all of it was sent
    assert answer[:12] in (b"HTTP/1.1 %d" % code, b"")
    assert ask(path, "/healthz")


@contextlib.contextmanager
def slow_clients(path: Path, count: int) -> Iterator[list[socket.socket]]:
    """Clients that have sent a part of their request."""
    with contextlib.ExitStack() as stack:
        clients = [
            stack.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)) for _ in range(count)
        ]
        for client in clients:
            client.settimeout(10.0)
            client.connect(str(path))
            client.sendall(b"GET /heal")
        yield clients


def test_fifty_slow_clients_keep_nobody_waiting_and_are_sent_away(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(serving, "READ_S", 2.0)
    with slow_clients(path, 50) as clients:
        began = time.monotonic()
        for _ in range(20):
            assert ask(path, "/healthz", 5.0) == {"alive": True}
        assert time.monotonic() - began < 2.0
        for client in clients:
            with contextlib.suppress(BrokenPipeError):
                client.sendall(b"t")  # a byte now and then gives no more time
        assert {client.recv(4096)[:12] for client in clients} == {b"HTTP/1.1 408"}
    assert time.monotonic() - began < 6.0


def test_more_clients_than_there_is_room_for_are_turned_away(path: Path) -> None:
    with slow_clients(path, serving.MOST_CLIENTS):
        time.sleep(0.3)
        with pytest.raises(InputError, match="broke off"):
            ask(path, "/healthz", 5.0)
    deadline = time.monotonic() + 5.0
    while time.monotonic() < deadline:
        with contextlib.suppress(InputError):
            assert ask(path, "/healthz", 5.0)
            return
        time.sleep(0.05)
    pytest.fail("the places were not freed")


def test_a_client_that_does_not_read_holds_up_nobody(
    path: Path, agent: FakeAgent, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(serving, "WRITE_S", 0.5)
    monkeypatch.setattr(agent, "metrics", lambda: b"x" * 50_000_000)
    before = threading.active_count()
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as client:
        client.connect(str(path))
        client.sendall(b"GET /metrics HTTP/1.1\r\n\r\n")
        assert ask(path, "/healthz", 5.0)
        deadline = time.monotonic() + 10.0
        while threading.active_count() > before and time.monotonic() < deadline:
            time.sleep(0.05)
        assert threading.active_count() <= before


def test_only_its_user_may_use_the_socket(path: Path) -> None:
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_a_group_may_be_let_in(tmp_path: Path, agent: FakeAgent) -> None:
    server = HttpServer(agent, tmp_path / "g.socket", mode=0o660)
    server.start()
    assert stat.S_IMODE((tmp_path / "g.socket").stat().st_mode) == 0o660
    server.close()
    assert not (tmp_path / "g.socket").exists()


def test_a_stale_socket_is_replaced_but_not_one_that_somebody_listens_on(
    path: Path, agent: FakeAgent
) -> None:
    with pytest.raises(InputError, match="another agent answers"):
        HttpServer(agent, path).start()
    assert ask(path, "/healthz")
    stale = path.with_name("stale.socket")
    left = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    left.bind(str(stale))
    left.close()
    server = HttpServer(agent, stale)
    server.start()
    assert ask(stale, "/healthz")
    server.close()


def test_a_file_that_is_no_socket_is_left_alone(tmp_path: Path, agent: FakeAgent) -> None:
    mine = tmp_path / "thesis"
    mine.write_text("all of it")
    with pytest.raises(InputError, match="is no socket"):
        HttpServer(agent, mine).start()
    assert mine.read_text() == "all of it"


@pytest.mark.parametrize(
    ("where", "words"),
    [(Path("x" * 200), "too long"), (Path("missing/a.socket"), "cannot listen")],
)
def test_a_socket_that_cannot_be_made_is_an_error_that_says_what_to_do(
    tmp_path: Path, agent: FakeAgent, where: Path, words: str
) -> None:
    with pytest.raises(InputError, match=words):
        HttpServer(agent, tmp_path / where).start()


def test_clients_say_so_if_no_agent_is_there(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"no agent answers at .*start one with gpuyard serve"):
        ask(tmp_path / "none.socket", "/v1/status")
    left = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    left.bind(str(tmp_path / "dead.socket"))
    left.close()
    with pytest.raises(InputError, match="no agent answers"):
        ask(tmp_path / "dead.socket", "/v1/status")


def test_clients_do_not_wait_for_ever(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as silent:
        silent.bind(str(tmp_path / "silent.socket"))
        silent.listen()
        with pytest.raises(InputError, match=r"did not answer within 0\.2 s"):
            ask(tmp_path / "silent.socket", "/v1/status", 0.2)


def tcp(port: int, **headers: str) -> tuple[int, bytes]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5.0)
    try:
        connection.request("GET", "/metrics", headers=headers)
        response = connection.getresponse()
        return response.status, response.read()
    finally:
        connection.close()


def test_over_tcp_the_token_is_needed(port: int) -> None:
    assert tcp(port, Authorization=f"Bearer {TOKEN}") == (200, b"gpuyard_leader 1.0\n")
    assert tcp(port)[0] == 401


@pytest.mark.parametrize(
    "given",
    [
        "Bearer wrong",
        "Bearer",
        "",
        TOKEN,
        f"Basic {TOKEN}",
        f"bearer {TOKEN}",
        f"Bearer {TOKEN}x",
        "Bearer é",
    ],
)
def test_wrong_tokens_are_refused_and_never_told(port: int, given: str) -> None:
    code, body = tcp(port, Authorization=given)
    assert code == 401
    assert TOKEN.encode() not in body


@pytest.mark.parametrize(
    ("listen", "token", "words"),
    [
        ("127.0.0.1:0", None, "needs a token"),
        ("0.0.0.0:0", None, "needs a token"),
        ("127.0.0.1:0", "short", "at least 16"),
        ("127.0.0.1:0", "sixteen or more\n", "printable"),
        ("localhost:80", TOKEN, "not a name"),
        ("127.0.0.1", TOKEN, "expected an address"),
        ("127.0.0.1:99999", TOKEN, "expected an address"),
        (":80", TOKEN, "expected an address"),
    ],
)
def test_no_port_is_opened_without_token_or_clear_address(
    tmp_path: Path, agent: FakeAgent, listen: str, token: str | None, words: str
) -> None:
    with pytest.raises(InputError, match=words):
        HttpServer(agent, tmp_path / "n.socket", listen, token).start()
    assert not (tmp_path / "n.socket").exists()


def test_a_port_that_is_taken_leaves_no_socket_behind(tmp_path: Path, agent: FakeAgent, port: int) -> None:
    with pytest.raises(InputError, match="cannot listen"):
        HttpServer(agent, tmp_path / "n.socket", f"127.0.0.1:{port}", TOKEN).start()
    assert not (tmp_path / "n.socket").exists()
