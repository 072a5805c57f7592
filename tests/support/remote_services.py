"""A service that answers over HTTP, in a thread."""

import contextlib
import io
import json
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from gpuyard.serve.process.client import _UnixConnection
from gpuyard.serve.process.log import Log
from gpuyard.serve.remote import RemoteService
from gpuyard.serve.settings import ServeSettings


@contextlib.contextmanager
def remote_service(directory: Path, **more: Any) -> Iterator[ServeSettings]:
    """Runs until the block ends; its socket is there within it."""
    known: dict[str, Any] = {"state_dir": directory, "deadline_ms": 60_000.0, "mode": "active"}
    settings = ServeSettings(**(known | {"control": "start", "policy": "sjf+easy"} | more))
    stream = io.StringIO()
    service = RemoteService(settings, Log(stream))
    thread = threading.Thread(target=service.run)
    thread.start()
    try:
        end = time.monotonic() + 30.0
        while "serving" not in stream.getvalue():
            assert thread.is_alive(), stream.getvalue()
            assert time.monotonic() < end, stream.getvalue()
            time.sleep(0.02)
        yield settings
    finally:
        service.stop()
        thread.join(30.0)
    assert not thread.is_alive()


def post(socket_path: Path, path: str, text: str | bytes, **headers: str) -> tuple[int, dict[str, Any]]:
    """The code and the document of an answer."""
    connection = _UnixConnection(socket_path, 60.0)
    try:
        connection.request("POST", path, text, {"Content-Type": "application/json", **headers})
        answer = connection.getresponse()
        return answer.status, json.loads(answer.read())
    finally:
        connection.close()
