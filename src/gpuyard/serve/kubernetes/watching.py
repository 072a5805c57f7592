"""Copies of what the API server has, kept up by watches."""

import random
import threading
import time
from collections.abc import Callable
from typing import Any, Generic, TypeVar

from gpuyard.serve.adapter import AdapterError
from gpuyard.serve.kubernetes.api import Api, Object

Read = TypeVar("Read")
_LONGEST_PAUSE_S = 10.0


class Watched(Generic[Read]):
    """All objects of a kind. A thread lists them, then follows what happens to them.

    Args:
        api: The API server.
        path: Of the kind, such as ``/api/v1/pods``.
        read: Makes of an object what is kept.
        seconds: How long one watch lasts: after that much silence the copy counts as checked again.
    """

    def __init__(self, api: Api, path: str, read: Callable[[Object], Read], seconds: int = 20) -> None:
        self._api, self._path, self._read, self._seconds = api, path, read, seconds
        self._objects: dict[str, Read] = {}
        self._version: str | None = None
        self._heard_at: float | None = None
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True, name=f"watch {path}")
        self.error, self.code = "", "timeout"
        """What is wrong at present."""
        self.lists = 0
        """How often all objects were listed."""

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def stop(self) -> None:
        """End at the next event."""
        self._stop.set()

    def join(self) -> None:
        """Wait for that end."""
        if self._thread.is_alive():
            self._thread.join(5.0)

    def all(self, max_age_s: float) -> list[Read]:
        """The objects now.

        Raises:
            AdapterError: if nothing was heard from the API server for longer than that.
        """
        if self._heard_at is None:
            raise AdapterError(f"{self._path} has not been listed yet: {self.error or 'wait'}", self.code)
        silent_s = time.monotonic() - self._heard_at
        if silent_s > max_age_s:
            raise AdapterError(f"{self._path}: nothing heard for {silent_s:.0f} s: {self.error}", self.code)
        return list(self._objects.values())

    def wait(self, seconds: float) -> None:
        """Wait for the first list, so long at most."""
        until = time.monotonic() + seconds
        while self._heard_at is None and time.monotonic() < until and not self._stop.is_set():
            time.sleep(0.02)

    def _run(self) -> None:
        failures = 0
        while not self._stop.is_set():
            try:
                self._follow()
                failures, self.error, self.code = 0, "", "timeout"
            except AdapterError as error:
                self.error, self.code = str(error), error.code
                if error.code == "gone":
                    self._version = None
                    continue
                failures += 1
            except Exception as error:  # an object that cannot be read must not end the watch for good
                self.error, self.code = f"{type(error).__name__}: {error}", "parse"
                self._version = None
                failures += 1
            if failures:
                pause_s = min(_LONGEST_PAUSE_S, 0.1 * 2.0 ** min(failures, 10))
                self._stop.wait(pause_s * random.uniform(0.5, 1.0))

    def _follow(self) -> None:
        if self._version is None:
            found, version = self._api.everything(self._path)
            self._objects = {_uid(one): self._read(one) for one in found}
            self._heard(version)
            self.lists += 1
        version = self._version or "0"
        for event in self._api.watch(self._path, version, self._seconds):
            self._take(event["type"], event["object"])
            if self._stop.is_set():
                return
        self._heard_at = time.monotonic()

    def _take(self, kind: str, changed: Object) -> None:
        if kind == "DELETED":
            self._objects.pop(_uid(changed), None)
        elif kind in ("ADDED", "MODIFIED"):
            self._objects[_uid(changed)] = self._read(changed)
        self._heard(str(changed["metadata"]["resourceVersion"]))

    def _heard(self, version: str) -> None:
        self._version, self._heard_at = version, time.monotonic()


def _uid(found: Any) -> str:
    meta = found["metadata"]
    return str(meta.get("uid") or f"{meta.get('namespace', '')}/{meta['name']}")
