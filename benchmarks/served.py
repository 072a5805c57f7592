"""A dashboard as a process of its own, for benchmarks that ask it over the loopback device."""

import http.client
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

GPUYARD = (sys.executable, "-c", "import sys; from gpuyard.cli import main; sys.exit(main())")


@contextmanager
def served(folder: Path) -> Iterator[tuple[subprocess.Popen[str], str, str]]:
    """A dashboard over a folder: its process, its address and its token."""
    command = [*GPUYARD, "dashboard", str(folder), "--no-open", "--json"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        text = ""
        while not text.endswith("}\n"):
            text += process.stdout.readline()
        url = urlsplit(json.loads(text)["url"])
        yield process, url.netloc, url.query.removeprefix("token=")
    finally:
        process.send_signal(signal.SIGINT)
        process.wait()


def asked(address: str, token: str, path: str) -> http.client.HTTPResponse:
    """The beginning of an answer; asked again until somebody listens."""
    while True:
        connection = http.client.HTTPConnection(address, timeout=30)
        try:
            connection.request("GET", path, headers={"Authorization": f"Bearer {token}"})
            answer = connection.getresponse()
            assert answer.status == 200, answer.status
            return answer
        except ConnectionRefusedError:
            time.sleep(0.005)


def processor_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def memory_mib(pid: int) -> float:
    status = Path(f"/proc/{pid}/status").read_text()
    return int(next(line.split()[1] for line in status.splitlines() if line.startswith("VmRSS:"))) / 1024
