"""The server itself: where it listens, what it prints, how it ends; in a process of its own."""

import json
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import pytest

from gpuyard.cli import main
from gpuyard.dashboard.library import Library
from gpuyard.dashboard.server import Dashboard, Place
from gpuyard.errors import InputError
from support.sample_runs import write_run

COMMAND = [sys.executable, "-c", "import sys; from gpuyard.cli import main; sys.exit(main())", "dashboard"]


@pytest.mark.parametrize(
    ("text", "host", "port"),
    [
        ("127.0.0.1", "127.0.0.1", 0),
        (":9000", "127.0.0.1", 9000),
        ("[::1]:80", "::1", 80),
        ("a.b:1", "a.b", 1),
    ],
)
def test_places(text: str, host: str, port: int) -> None:
    assert Place.parse(text) == Place(host, port)


@pytest.mark.parametrize("text", ["", "a:b", "a:99999", "a/b", "x@y", "http://a", "[::1"])
def test_no_places(text: str) -> None:
    with pytest.raises(InputError):
        Place.parse(text)


@pytest.mark.parametrize("host", ["0.0.0.0", "10.1.2.3", "::", "gpu.example"])
def test_other_machines_need_a_token_of_their_own(tmp_path: Path, host: str) -> None:
    with pytest.raises(InputError, match="token_file"):
        Dashboard(Library([tmp_path]), Place(host))


@pytest.mark.parametrize(
    ("text", "mode"), [("", 0o600), ("short", 0o600), ("with blanks in the token", 0o600), ("x" * 40, 0o644)]
)
def test_weak_tokens_are_refused(tmp_path: Path, text: str, mode: int) -> None:
    file = tmp_path / "token"
    file.write_text(text)
    file.chmod(mode)
    with pytest.raises(InputError, match="token_file"):
        Dashboard(Library([tmp_path]), Place("0.0.0.0"), file)


def test_a_missing_extra_is_one_clear_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("gpuyard.cli.browser.dashboard.find_spec", lambda name: None)
    assert main(["dashboard", str(tmp_path), "--no-open"]) == 2
    assert capsys.readouterr().err == (
        "error: the dashboard needs starlette and uvicorn: pip install 'gpuyard[dashboard]'\n"
    )


def test_the_browser_is_led_in_without_the_token_on_its_command_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    opened: list[tuple[str, str, int]] = []

    def note(address: str) -> None:
        file = Path(address.removeprefix("file://"))
        opened.append((address, file.read_text(), file.stat().st_mode & 0o777))

    monkeypatch.setattr("webbrowser.open", note)
    monkeypatch.setattr(Dashboard, "serve_until_stopped", lambda server: server.close())
    assert main(["dashboard", str(tmp_path), "--json"]) == 0
    url = json.loads(capsys.readouterr().out)["url"]
    ((address, text, mode),) = opened
    assert url.partition("token=")[2] not in address
    assert f"url={url}" in text
    assert mode == 0o600
    assert not Path(address.removeprefix("file://")).exists()


def started(*arguments: str) -> tuple[subprocess.Popen[str], str]:
    process = subprocess.Popen(
        [*COMMAND, "--no-open", "--json", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    text = ""
    while not text.endswith("}\n"):
        line = process.stdout.readline()
        assert line, process.communicate()[1]
        text += line
    return process, json.loads(text)["url"]


def opened(url: str, headers: dict[str, str]) -> Any:
    until = time.monotonic() + 10
    while True:
        try:
            return urllib.request.urlopen(urllib.request.Request(url, headers=headers), timeout=10)
        except urllib.error.URLError as error:
            if isinstance(error, urllib.error.HTTPError) or time.monotonic() > until:
                raise
            time.sleep(0.02)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_it_serves_streams_and_ends_with_them_at_once(tmp_path: Path, number: int) -> None:
    write_run(tmp_path / "run", updates=10)
    process, url = started(str(tmp_path))
    try:
        base, _, token = url.partition("/?token=")
        assert base.startswith("http://127.0.0.1:")
        bearer = {"Authorization": f"Bearer {token}"}
        assert b"Training" in opened(f"{base}/policies", bearer).read()
        with pytest.raises(urllib.error.HTTPError, match="401"):
            opened(f"{base}/", {})
        stream = opened(f"{base}/api/home", bearer)
        assert stream.headers["content-type"].startswith("text/event-stream")
        while not stream.readline().startswith(b"event: home"):
            pass
        began = time.monotonic()
        process.send_signal(number)
        _, errors = process.communicate(timeout=10)
        assert time.monotonic() - began < 5
        assert process.returncode == (0 if number == signal.SIGINT else -signal.SIGTERM)
        assert "Traceback" not in errors
        assert token not in errors
        stream.close()
    finally:
        process.kill()
        process.wait()
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        process.stderr.close()


def test_two_dashboards_have_ports_of_their_own(tmp_path: Path) -> None:
    one, other = (Dashboard(Library([tmp_path]), Place()) for _ in range(2))
    try:
        assert one.url.partition("/?")[0] != other.url.partition("/?")[0]
        assert one.token != other.token
    finally:
        for server in (one, other):
            server.close()
