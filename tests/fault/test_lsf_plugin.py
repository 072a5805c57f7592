"""LSF's scheduler plugin, called as LSF would call it, beside sockets that answer, lie and hang."""

import contextlib
import json
import shutil
import socket
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from gpuyard.serve.lsf.door import Door
from support.paths import ROOT

SOURCES = ROOT / "integrations" / "lsf"
FLAGS = ("-std=c11", "-O2", "-g", "-Wall", "-Wextra", "-Wpedantic", "-Werror")
COMPILER = shutil.which("cc") or shutil.which("gcc")
VALGRIND = shutil.which("valgrind")
pytestmark = [
    pytest.mark.skipif(COMPILER is None, reason="no C compiler: the plugin cannot be compiled"),
    pytest.mark.xdist_group("lsf-plugin"),
]


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The plugin by its make target, and the harness."""
    place = tmp_path_factory.mktemp("plugin")
    make = ["make", "lsf-plugin", f"PLUGIN={place}/schmod_gpuyard.so", f"LSF_FLAGS={' '.join(FLAGS)} -fPIC"]
    done = subprocess.run(make, cwd=ROOT, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, ""), done.stderr
    source = SOURCES / "harness" / "harness.c"
    command = [str(COMPILER), *FLAGS, f"-I{SOURCES / 'stub'}", str(source), "-o", str(place / "harness")]
    subprocess.run([*command, "-rdynamic", "-ldl"], check=True)
    return place


@pytest.fixture
def path() -> Iterator[Path]:
    """Of a socket: short."""
    place = Path(tempfile.mkdtemp(prefix="plugin-"))
    yield place / "s"
    shutil.rmtree(place)


def call(
    built: Path, path: Path, calls: int = 1, hosts: int = 20, message: str = "GPUYARD[abc]", *before: str
) -> Any:
    done = subprocess.run(
        [*before, built / "harness", built / "schmod_gpuyard.so", str(calls), str(hosts), message],
        env={"GPUYARD_SOCKET": str(path), "PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@contextlib.contextmanager
def answering(path: Path, act: Callable[[socket.socket], None]) -> Iterator[list[bytes]]:
    """A socket at which every connection is treated like this; what was asked."""
    asked: list[bytes] = []
    kept: list[socket.socket] = []
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as server:
        server.bind(str(path))
        server.listen(16)

        def serve() -> None:
            with contextlib.suppress(OSError):
                while True:
                    connection, _ = server.accept()
                    kept.append(connection)
                    asked.append(connection.recv(1 << 20))
                    act(connection)

        threading.Thread(target=serve, daemon=True).start()
        yield asked
        server.shutdown(socket.SHUT_RDWR)
    for connection in kept:
        connection.close()


def saying(answer: bytes) -> Callable[[socket.socket], None]:
    def act(connection: socket.socket) -> None:
        with contextlib.suppress(OSError):
            connection.sendall(answer)

    return act


def test_the_chosen_hosts_are_left_and_all_others_removed_with_a_reason(built: Path, path: Path) -> None:
    seen: list[tuple[str, int]] = []

    def choose(key: str, hosts: Sequence[str]) -> Sequence[str]:
        seen.append((key, len(hosts)))
        return ("gpu3.site", "gpu11.site")

    with Door(path, choose):
        found = call(built, path, calls=3)
    assert found["left"] == ["gpu3.site", "gpu11.site"]
    assert (found["least"], found["most"], found["reasons"]) == (2, 2, 3 * 18)
    assert seen == [("abc", 20)] * 3


@pytest.mark.parametrize(
    "message",
    [
        "",
        "GPUYARD",
        "GPUYARD[]",
        "GPUYARD[a b]",
        "XGPUYARD[a]",
        f"GPUYARD[{'k' * 65}]",
        "OTHER[GPUYARD[a]",
    ],
)
def test_jobs_without_a_key_are_none_of_the_plugins(built: Path, path: Path, message: str) -> None:
    with Door(path, lambda key, hosts: hosts[:1]):
        assert call(built, path, message=message)["most"] == 20


def test_a_request_may_stand_among_those_of_others(built: Path, path: Path) -> None:
    with Door(path, lambda key, hosts: (f"{key}.site",)):
        assert call(built, path, message="OTHER[1]; GPUYARD[gpu7];MORE[]")["left"] == ["gpu7.site"]


@pytest.mark.parametrize(
    "answer",
    [
        b"end\n",
        b"keep gpu99.site\nend\n",
        b"keep gpu1.site\nkeep gpu99.site\nend\n",
        b"keep gpu1.site\n",
        b"keep \nend\n",
        b"kee",
        b"",
        b"keep gpu1.site",
        b"HTTP/1.1 200 OK\r\n\r\n{}",
        b"hello\nend\n",
        b"keep gpu1\0.site\nend\n",
        b"keep " + b"x" * 300 + b"\nend\n",
        b"keep gpu1.site\n" * 10_000,
    ],
)
def test_lsfs_own_choice_stands_where_the_answer_is_none(built: Path, path: Path, answer: bytes) -> None:
    def act(connection: socket.socket) -> None:
        saying(answer)(connection)
        connection.close()

    with answering(path, act) as asked:
        found = call(built, path)
    assert (found["most"], len(found["left"]), found["reasons"]) == (20, 20, 0)
    assert asked[0].startswith(b"gpuyard 1\nkey abc\nhost gpu1.site\n")


def test_without_an_agent_lsfs_own_choice_stands_at_once(built: Path, path: Path) -> None:
    assert call(built, path, calls=100)["least"] == 20
    assert call(built, Path("/" + "x" * 200))["least"] == 20


def drip(connection: socket.socket) -> None:
    """One byte at a time: each is in time, the whole is not."""
    with contextlib.suppress(OSError):
        for _ in range(200):
            connection.sendall(b"k")
            time.sleep(0.01)


@pytest.mark.parametrize("act", [lambda connection: None, drip], ids=["hangs", "drips"])
def test_silence_costs_one_limit_and_then_nobody_is_asked_for_a_while(
    built: Path, path: Path, act: Callable[[socket.socket], None]
) -> None:
    began = time.monotonic()
    with answering(path, act) as asked:
        found = call(built, path, calls=500)
    assert (found["least"], found["most"]) == (20, 20)
    assert len(asked) == 1, "after a silence it asked again"
    assert found["max_us"] >= 45_000, "it did not wait for the answer at all"
    assert found["p50_us"] < 45_000
    assert time.monotonic() - began < 20  # 500 limits would be 25 s


def test_a_socket_that_nobody_accepts_on_is_silence(built: Path, path: Path) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as server:
        server.bind(str(path))
        server.listen(0)
        waiting = []
        for _ in range(4):  # fill the queue of connections
            one = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            one.setblocking(False)
            with contextlib.suppress(BlockingIOError):
                one.connect(str(path))
            waiting.append(one)
        assert call(built, path, calls=3)["least"] == 20
        for one in waiting:
            one.close()


@pytest.mark.skipif(VALGRIND is None, reason="no valgrind: leaks of the plugin are not looked for")
def test_valgrind_finds_neither_errors_nor_leaks(built: Path, path: Path) -> None:
    strict = (str(VALGRIND), "-q", "--error-exitcode=9", "--leak-check=full", "--show-leak-kinds=all")
    strict = (*strict, "--errors-for-leak-kinds=all")
    with Door(path, lambda key, hosts: hosts[3:5]):
        assert call(built, path, 50, 20, "GPUYARD[abc]", *strict)["most"] == 2
    with answering(path, saying(b"keep gpu1.site\nkeep")):
        assert call(built, path, 3, 20, "GPUYARD[abc]", *strict)["most"] == 20
