"""slurmrestd: both transports, tokens, errors, and the way back to commands."""

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest

from gpuyard.serve.adapter import AdapterError, Start
from gpuyard.serve.slurm.actions import Actions
from gpuyard.serve.slurm.commands import Commands
from gpuyard.serve.slurm.jobs import Known
from gpuyard.serve.slurm.rest import Rest, RestFirst

TOKEN = "eyJhbGciOi.secret"


class Service(HTTPServer):
    """Answers as slurmrestd of some version does."""

    version = "v0.0.42"
    refuses = ""
    broken = False

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.posted: list[tuple[str, Any]] = []


class Handler(BaseHTTPRequestHandler):
    server: Service

    def do_GET(self) -> None:
        if self.headers.get("X-SLURM-USER-TOKEN") != TOKEN:
            self._answer(401, {})
        elif f"/{self.server.version}/" not in self.path:
            self._answer(404, {})
        elif self.server.broken:
            self._answer(200, None)
        else:
            self._answer(200, {"jobs": [], "nodes": [], "errors": []})

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.server.posted.append((self.path.rpartition("/")[2], body))
        if self.server.refuses:
            self._answer(422, {"errors": [{"error": self.server.refuses, "error_number": 1}]})
        else:
            self._answer(200, {"errors": []})

    def _answer(self, status: int, body: Any) -> None:
        raw = b'{"jobs": [' if body is None else json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(raw)))
        self.end_headers()
        self.wfile.write(raw)

    def log_message(self, *_: Any) -> None:
        """Silent."""


@pytest.fixture
def service() -> Iterator[Service]:
    server = Service()
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


def client(service: Service, place: Path, token: str = TOKEN) -> Rest:
    file = place / "token"
    file.write_text(f"{token}\n")
    return Rest(f"http://127.0.0.1:{service.server_port}", file, "agent", 2.0)


class Recorder(Commands):
    def __init__(self) -> None:
        self.calls: list[tuple[str, ...]] = []

    def text(self, *command: str) -> str:
        self.calls.append(command[1:])
        return ""


def test_the_newest_version_that_answers_is_used(service: Service, tmp_path: Path) -> None:
    rest = client(service, tmp_path)
    assert rest.get("jobs")["jobs"] == []
    assert rest.pins
    service.version = "v0.0.38"
    old = client(service, tmp_path)
    old.get("jobs")
    assert not old.pins


def test_tokens_are_in_no_message(service: Service, tmp_path: Path) -> None:
    for token in ("wrong.secret", "broken\x00secret"):
        with pytest.raises(AdapterError) as caught:
            client(service, tmp_path, token).get("jobs")
        assert "secret" not in str(caught.value)


@pytest.mark.parametrize("token", ["", "\n"])
def test_an_empty_token_file_is_said(service: Service, tmp_path: Path, token: str) -> None:
    with pytest.raises(AdapterError, match="is empty"):
        client(service, tmp_path, token).get("jobs")


def test_torn_answers_are_errors_and_commands_take_over(service: Service, tmp_path: Path) -> None:
    first = RestFirst(client(service, tmp_path))
    assert first.get("jobs") is not None
    assert first.notes == ()
    service.broken = True
    assert first.get("jobs") is None
    assert "commands are used instead of slurmrestd" in first.notes[0]
    service.broken = False
    assert first.get("jobs") is None  # it is left alone for a while
    first._pause_ends_s = 0.0
    assert first.get("jobs") is not None
    assert first.notes == ()


def test_nobody_there_is_an_error_at_once(tmp_path: Path) -> None:
    for address in (f"unix:{tmp_path}/nothing", "http://127.0.0.1:1"):
        first = RestFirst(Rest(address))
        assert first.get("jobs") is None
        assert "cannot be reached" in first.notes[0]
    with pytest.raises(AdapterError, match="no address"):
        Rest("slurm.example")


def test_a_start_goes_over_rest_where_the_version_takes_nodes(service: Service, tmp_path: Path) -> None:
    first, recorder = RestFirst(client(service, tmp_path)), Recorder()
    first.get("jobs")
    known = {"7": Known("7", ("7",), "site; gpuyard:held", held="agent")}
    assert Actions(recorder, first).apply([Start("7", ("gn1", "gn2"), "3-1")], known)[0].ok
    assert recorder.calls == []
    assert service.posted == [
        ("7", {"required_nodes": ["gn1", "gn2"], "admin_comment": "site; gpuyard:3-1@gn[1-2]"}),
        ("7", {"hold": False}),
    ]


@pytest.mark.parametrize("words", ['Disabled key: "required_nodes"', "Requested node configuration"])
def test_a_start_that_rest_refuses_goes_by_command(service: Service, tmp_path: Path, words: str) -> None:
    first, recorder = RestFirst(client(service, tmp_path)), Recorder()
    first.get("jobs")
    service.refuses = words
    known = {"7": Known("7", ("7",), "gpuyard:held", held="agent")}
    assert Actions(recorder, first).apply([Start("7", ("gn1",), "3-1")], known)[0].ok
    assert [call[0] for call in recorder.calls] == ["update", "release"]


def test_old_versions_and_tasks_of_arrays_are_written_by_command(service: Service, tmp_path: Path) -> None:
    service.version = "v0.0.38"
    first, recorder = RestFirst(client(service, tmp_path)), Recorder()
    first.get("jobs")
    known = {"7": Known("7", ("7",), "gpuyard:held", held="agent")}
    assert Actions(recorder, first).apply([Start("7", ("gn1",), "3-1")], known)[0].ok
    assert service.posted == []
    assert len(recorder.calls) == 2
