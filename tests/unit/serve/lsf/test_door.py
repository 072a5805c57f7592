"""The socket for LSF's scheduler plugin: questions, nonsense, and an agent behind it."""

import os
import socket
import stat
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from fault.lsf_double import LsfDouble
from gpuyard.errors import InputError
from gpuyard.serve.lsf.adapter import LsfAdapter
from gpuyard.serve.lsf.commands import Commands
from gpuyard.serve.lsf.door import Door, understood
from gpuyard.serve.process.log import Log
from gpuyard.serve.process.service import Service
from gpuyard.serve.settings import ServeSettings

QUESTION = "gpuyard 1\nkey abc\nhost gpu1.site\nhost gpu2.site\nend\n"


@pytest.fixture
def place() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="door-") as made:
        yield Path(made)


def asked(path: Path, question: str) -> bytes:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as client:
        client.settimeout(5.0)
        client.connect(str(path))
        client.sendall(question.encode())
        return client.recv(1 << 16)


def test_a_question_is_answered_in_lines(place: Path) -> None:
    with Door(place / "s", lambda key, hosts: hosts[1:]):
        assert asked(place / "s", QUESTION) == b"keep gpu2.site\nend\n"
        assert stat.S_IMODE((place / "s").stat().st_mode) == 0o600
    assert not (place / "s").exists()


def test_whoever_chooses_may_fail_but_the_door_stays_open(place: Path) -> None:
    def choose(key: str, hosts: object) -> tuple[str, ...]:
        raise RuntimeError("no idea")

    with Door(place / "s", choose):
        assert asked(place / "s", QUESTION) == b"end\n"
        assert asked(place / "s", QUESTION) == b"end\n"


@pytest.mark.parametrize(
    "question",
    [
        "gpuyard 2\nkey abc\nhost a\nend\n",
        "gpuyard 1\nkey \nhost a\nend\n",
        "gpuyard 1\nkey a b\nhost a\nend\n",
        "gpuyard 1\nkey abc\nend\n",
        "gpuyard 1\nkey abc\nhost \nend\n",
        "gpuyard 1\nkey abc\nnode a\nend\n",
        "gpuyard 1\nkey abc\nhost a b\nend\n",
        "GET /v1/status HTTP/1.1\n\nhost a\nend\n",
        f"gpuyard 1\nkey {'k' * 65}\nhost a\nend\n",
    ],
)
def test_nonsense_is_answered_by_nothing_and_the_next_question_by_hosts(place: Path, question: str) -> None:
    with pytest.raises(ValueError, match=r"no|key"):
        understood(question)
    with Door(place / "s", lambda key, hosts: hosts[:1]):
        assert asked(place / "s", question) == b""
        assert asked(place / "s", QUESTION) == b"keep gpu1.site\nend\n"


def test_half_a_question_keeps_nobody_waiting_for_long(place: Path) -> None:
    with (
        Door(place / "s", lambda key, hosts: hosts[:1]),
        socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as slow,
    ):
        slow.connect(str(place / "s"))
        slow.sendall(b"gpuyard 1\n")
        assert asked(place / "s", QUESTION) == b"keep gpu1.site\nend\n"


def test_a_path_that_is_too_long_is_told(place: Path) -> None:
    with pytest.raises(InputError, match="short path"), Door(place / ("x" * 150), lambda key, hosts: ()):
        pass


def test_an_agent_answers_for_jobs_by_their_keys(place: Path) -> None:
    lsf = LsfDouble(place / "bin")
    for key, gpus in (("one", 4), ("two", 4)):
        lsf.submit(gpus=gpus, description=f"mine; gpuyard-key:{key}", hosts="")
    path = f"{lsf.place}:{os.environ.get('PATH', '/usr/bin:/bin')}"
    settings = ServeSettings(mode="active", state_dir=place / "state", interval_s=0.2, deadline_ms=20_000)
    said = (place / "log").open("w")
    service = Service(settings, lambda one: LsfAdapter(one, Commands(20.0, {"PATH": path})), Log(said))
    thread = threading.Thread(target=service.run)
    thread.start()
    try:
        answers: dict[str, bytes] = {}
        hosts = "".join(f"host {name}\n" for name in lsf.host_names())
        for _ in range(300):
            if not (settings.state_dir / "heartbeat").exists():
                threading.Event().wait(0.1)
                continue
            for key in ("one", "two", "three"):
                answers[key] = asked(settings.state_dir / "lsf.socket", f"gpuyard 1\nkey {key}\n{hosts}end\n")
            break
        assert answers["three"] == b"end\n"
        kept = {answers[key].decode().splitlines()[0] for key in ("one", "two")}
        assert len(kept) == 2, answers
        assert all(line.startswith("keep gpu") for line in kept), answers
    finally:
        service.stop()
        thread.join(60)
        said.close()
    assert not (settings.state_dir / "lsf.socket").exists()
