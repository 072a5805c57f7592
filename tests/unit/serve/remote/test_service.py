"""A scheduler that asks over HTTP: the same policy, guard and journal, and nothing breaks the service."""

import http.client
import json
import shutil
import socket
import sqlite3
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, seed
from hypothesis import settings as examples
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi import checks as conformance

from gpuyard.serve.journal import Journal
from gpuyard.serve.journal.replay import replay
from gpuyard.serve.process import http as serving
from gpuyard.serve.process.client import ask
from gpuyard.serve.remote.documents import DecisionOut, HostAnswer, openapi, openapi_text
from gpuyard.serve.settings import ServeSettings
from gpuyard.serve.state import Share
from support.live_states import NOW_S, node, running, state, waiting
from support.paths import ROOT
from support.remote_services import post, remote_service

TOKEN = "0123456789abcdef-right"
CHECKS = [
    not_a_server_error,
    conformance.status_code_conformance,
    conformance.content_type_conformance,
    conformance.response_schema_conformance,
]


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServeSettings]:
    directory = tmp_path_factory.mktemp("remote")
    token = directory / "token"
    token.write_text(TOKEN + "\n", encoding="ascii")
    token.chmod(0o600)
    listen = f"127.0.0.1:{free_port()}"
    with remote_service(directory / "s", listen=listen, token_file=token, max_age_s=1e6) as settings:
        yield settings


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def test_a_state_gets_a_decision_that_the_guard_passed_and_the_journal_replays(tmp_path: Path) -> None:
    seen = state(
        running("1", Share("n1", 8)),
        waiting("long", 8, limit_s=7200.0, held="agent"),
        waiting("short", 8, limit_s=60.0, held="agent"),
        waiting("$(touch x)", 1, limit_s=30.0, held="other"),
    )
    with remote_service(tmp_path / "s") as settings:
        code, found = post(settings.socket, "/v1/decide", seen.json_text)
        again = post(settings.socket, "/v1/decide", replace(seen, now_s=NOW_S + 1).json_text)[1]
    assert code == 200
    DecisionOut.model_validate_json(json.dumps(found))
    assert [one["job"] for one in found["order"]] == ["short", "long"]
    assert [(one["job"], one["nodes"]) for one in found["actions"]] == [
        ("short", [{"node": "n2", "gpus": 8}])
    ]
    assert {one["job"]: one["why"] for one in found["left"]} == {"$(touch x)": "held"}
    assert found["state_hash"] == seen.hash
    assert again["actions"] == []  # its release counts as running until it is seen, and nothing else fits
    with Journal.open(settings.journal, readonly=True) as journal:
        assert journal.state(found["round"]).hash == seen.hash
        assert replay(journal).agrees


def test_in_shadow_mode_nothing_is_to_be_done(tmp_path: Path) -> None:
    with remote_service(tmp_path / "s", mode="shadow") as settings:
        found = post(settings.socket, "/v1/decide", state(waiting("7")).json_text)[1]
    assert [one["job"] for one in found["starts"]] == ["7"]
    assert found["actions"] == []


def test_a_job_gets_a_host_among_the_candidates_or_none(service: ServeSettings) -> None:
    seen = state(running("1", Share("n1", 6)), nodes=(node("n1"), node("n2"), node("n3")))
    job = json.loads(state(waiting("new", 4)).json_text)["jobs"][0]

    def ask_for(*candidates: str) -> dict[str, object]:
        body = {"job": job, "candidates": candidates, "state": json.loads(seen.json_text)}
        code, found = post(service.socket, "/v1/select-host", json.dumps(body))
        assert code == 200, found
        HostAnswer.model_validate_json(json.dumps(found))
        return found

    assert ask_for("n3")["host"] == "n3"
    assert ask_for("n1", "n2")["host"] == "n2"  # n1 has too little left
    assert ask_for("n2")["host"] == "n2"  # whoever asks again did not start it
    none = ask_for("n1")
    assert none["host"] is None
    assert none["why"]
    code, found = post(service.socket, "/v1/select-host", '{"job": "nobody"}')
    assert (code, found["error"]) == (404, "there is no job 'nobody' that waits")


@pytest.mark.parametrize(
    ("body", "code", "says"),
    [
        (b"{", 400, "Invalid JSON"),
        (b"\xff\xfe", 400, "Invalid JSON"),
        (b'{"source": "x", "now_s": 1, "jobs": [{"id": "1"}], "nodes": []}', 422, "jobs.0.phase"),
        (b'{"source": "x", "now_s": 1e400, "nodes": [{"name": "n"}]}', 422, "now_s"),
        (b'{"source": "x", "now_s": 1, "nodes": [{"name": "a,b"}]}', 422, "node 'a,b'"),
        (b'{"source": "x", "now_s": 1, "nodes": [{"name": "n"}, {"name": "n"}]}', 422, "listed twice"),
        (b'{"source": "x", "now_s": 1, "nodes": [{"name": "n"}], "extra": 1}', 422, "extra"),
        (b'{"source": "x", "now_s": 1, "nodes": [{"name": "n"}], '
         b'"partitions": [{"name": "p", "nodes": ["m"]}]}', 422, "which is not listed"),
    ],
)  # fmt: skip
def test_what_is_no_state_is_refused_with_the_place(
    service: ServeSettings, body: bytes, code: int, says: str
) -> None:
    found = post(service.socket, "/v1/decide", body)
    assert found[0] == code
    assert says in found[1]["error"]


def test_bodies_are_bounded_typed_and_of_known_length(
    service: ServeSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    def code(**headers: str) -> int:
        connection = http.client.HTTPConnection(str(service.listen), timeout=10.0)
        connection.putrequest("POST", "/v1/decide")
        for name, value in headers.items():
            connection.putheader(name.replace("_", "-"), value)
        connection.putheader("Authorization", f"Bearer {TOKEN}")
        connection.endheaders()
        answer = connection.getresponse()
        answer.read()
        connection.close()
        return answer.status

    kind = {"Content_Type": "application/json"}
    assert code(Content_Length="99999999", **kind) == 413
    assert code(Content_Length="-1", **kind) == 411
    assert code(Transfer_Encoding="chunked", **kind) == 411
    assert code(Content_Length="2", Content_Type="text/plain") == 415
    monkeypatch.setattr(serving, "READ_S", 0.3)
    began = time.monotonic()
    assert code(Content_Length="1000", **kind) == 408  # a client that never sends its body
    assert time.monotonic() - began < 5.0


def test_a_token_is_needed_on_tcp_and_the_socket_is_for_its_owner_alone(service: ServeSettings) -> None:
    assert stat.S_IMODE(service.socket.stat().st_mode) == 0o600
    for path, headers, code in [
        ("/v1/health", {}, 401),
        ("/v1/health", {"Authorization": "Bearer wrong"}, 401),
        ("/token/wrong/v1/health", {}, 401),
        ("/v1/health", {"Authorization": f"Bearer {TOKEN}"}, 200),
        (f"/token/{TOKEN}/v1/health", {}, 200),  # for callers that cannot send headers
        ("/v1/decide", {"Authorization": f"Bearer {TOKEN}"}, 405),
    ]:
        connection = http.client.HTTPConnection(str(service.listen), timeout=10.0)
        connection.request("GET", path, headers=headers)
        answer = connection.getresponse()
        answer.read()
        connection.close()
        assert answer.status == code, path


def test_two_hundred_at_once_are_all_answered_and_rounds_have_no_gaps(service: ServeSettings) -> None:
    found: list[tuple[int, int]] = []

    def ask_once(number: int) -> None:
        code, answer = post(service.socket, "/v1/decide", state(waiting(str(number))).json_text)
        found.append((code, answer.get("round", 0)))

    threads = [threading.Thread(target=ask_once, args=(number,)) for number in range(200)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60.0)
    assert [code for code, _ in found] == [200] * 200
    rounds = sorted(number for _, number in found)
    assert rounds == list(range(rounds[0], rounds[0] + 200))


def test_what_cannot_be_recorded_is_not_done(tmp_path: Path) -> None:
    with remote_service(tmp_path / "s") as settings:
        assert post(settings.socket, "/v1/decide", state(waiting("7")).json_text)[0] == 200
        with sqlite3.connect(settings.journal) as journal:
            journal.execute("DROP TABLE rounds")
        journal.close()
        code, found = post(settings.socket, "/v1/decide", state(waiting("8", held="agent")).json_text)
    assert code == 503
    assert "actions" not in found


def test_the_committed_description_is_the_one_that_is_served(service: ServeSettings) -> None:
    committed = (ROOT / "docs" / "guide" / "openapi.json").read_text(encoding="utf-8")
    assert committed == openapi_text(), "run make docs"
    assert ask(service.socket, "/v1/openapi.json") == json.loads(committed)


def test_requests_drawn_from_the_description_get_answers_that_keep_to_it(service: ServeSettings) -> None:
    assert draw_requests(service, 10) > 20


@pytest.mark.slow
def test_ten_thousand_requests_drawn_from_the_description(service: ServeSettings) -> None:
    assert draw_requests(service, 3_500) >= 10_000


def draw_requests(service: ServeSettings, count: int) -> int:
    schema = schemathesis.openapi.from_dict(openapi())
    schema.config.update(base_url=f"http://{service.listen}")
    asked = 0
    for found in schema.get_all_operations():
        operation = found.ok()

        @seed(7)
        @examples(
            max_examples=count, deadline=None, suppress_health_check=list(HealthCheck), database=None,
            phases=[Phase.generate],
        )  # fmt: skip
        @given(case=operation.as_strategy())
        def run(case: schemathesis.Case) -> None:
            nonlocal asked
            asked += 1
            answer = case.call(headers={"Authorization": f"Bearer {TOKEN}"})
            case.validate_response(answer, checks=CHECKS)

        run()
    return asked


@pytest.mark.parametrize(
    "client", [[sys.executable, "examples/ask_over_http.py"], ["examples/ask_over_http.sh"]]
)
def test_the_example_clients_start_the_shorter_job(tmp_path: Path, client: list[str]) -> None:
    if client[0].endswith(".sh") and shutil.which("curl") is None:
        pytest.skip("there is no curl")
    with remote_service(tmp_path / "s") as settings:
        done = subprocess.run(
            [*client, str(settings.socket)], cwd=ROOT, capture_output=True, text=True, timeout=30, check=True
        )
    found = done.stdout if client[0].endswith(".sh") else done.stdout.replace("'", '"')
    assert '"job": "short", "nodes": [{"node": "gn1", "gpus": 8}]' in found


def test_a_clock_that_jumps_far_back_breaks_nothing(service: ServeSettings) -> None:
    for now_s in (2.2e9, -5e7, 1.8e9):
        seen = replace(state(running("1", Share("n1", 8)), waiting("2", held="agent")), now_s=now_s)
        assert post(service.socket, "/v1/decide", seen.json_text)[0] == 200
