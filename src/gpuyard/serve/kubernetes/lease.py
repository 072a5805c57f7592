"""Who leads, and whether it lives: a Lease of the API server, which agents and the watchdog read."""

import os
import socket
import threading
import time
import uuid
from collections.abc import Callable
from typing import Any

from gpuyard.serve.adapter import AdapterError
from gpuyard.serve.kubernetes.api import Api, Object
from gpuyard.serve.kubernetes.quantities import moment, stamp

HALT = "gpuyard/halt"
"""Annotation of the Lease that stops the agent; its value says why."""


def lease_path(namespace: str, name: str = "") -> str:
    """Of a Lease in the API, or of all in a namespace."""
    return f"/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases" + (f"/{name}" if name else "")


def identity() -> str:
    """Who we are: no two processes are alike."""
    return f"{socket.gethostname()}-{os.getpid()}-{uuid.uuid4().hex[:8]}"


class Lease:
    """The right to act, for ``seconds`` after it was last renewed.

    Whether another holder is gone is judged by our own clock: its Lease has not changed for that long.

    Args:
        api: The API server.
        namespace: Of the Lease.
        name: Of the Lease.
        seconds: How long it lasts.
        holder: Who we are.
        clock: Seconds that never jump.
    """

    def __init__(
        self, api: Api, namespace: str, name: str, seconds: int, holder: str = "",
        clock: Callable[[], float] = time.monotonic,
    ) -> None:  # fmt: skip
        self._api, self._namespace, self._name = api, namespace, name
        self._seconds, self._clock = seconds, clock
        self.holder = holder or identity()
        self._seen: tuple[Any, float] = (None, clock())
        self._until = -1.0
        self.halted = False
        """Whether its annotation asks the agent to keep its hands off."""
        self.error = ""

    @property
    def held(self) -> bool:
        """Whether we may act now."""
        return self._clock() < self._until

    def renew(self) -> bool:
        """Take it or keep it; whether it is ours now.

        Raises:
            AdapterError: if the API server does not answer.
        """
        asked = self._clock()
        try:
            found: Object | None = self._api.get(lease_path(self._namespace, self._name))
        except AdapterError as error:
            if error.code != "missing":
                raise
            found = None
        try:
            if found is None:
                self._api.create(lease_path(self._namespace), self._written(None))
            elif self._may_take(found):
                self._api.replace(lease_path(self._namespace, self._name), self._written(found))
            else:
                self._until = -1.0
                return False
        except AdapterError as error:
            if error.code != "conflict":
                raise
            return False  # somebody else was faster; the next time tells who
        self._until = asked + self._seconds
        return True

    def release(self) -> None:
        """Let the next one take it at once.

        Raises:
            AdapterError: if the API server does not answer.
        """
        self._until = -1.0
        found = self._api.get(lease_path(self._namespace, self._name))
        if found["spec"].get("holderIdentity") == self.holder:
            found["spec"] |= {"holderIdentity": "", "renewTime": None}
            self._api.replace(lease_path(self._namespace, self._name), found)

    def _may_take(self, found: Object) -> bool:
        self.halted = HALT in (found["metadata"].get("annotations") or {})
        spec = found.get("spec") or {}
        holder = spec.get("holderIdentity")
        if holder in (self.holder, "", None):
            return True
        sign = (holder, spec.get("renewTime"))
        if sign != self._seen[0]:
            self._seen = (sign, self._clock())
        lasts_s = float(spec.get("leaseDurationSeconds") or self._seconds)
        return self._clock() - self._seen[1] > lasts_s

    def _written(self, found: Object | None) -> Object:
        now = stamp(time.time())
        if found is None:
            meta: Object = {"name": self._name, "namespace": self._namespace}
            found = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": meta, "spec": {}}
        spec = found.setdefault("spec", {})
        if spec.get("holderIdentity") != self.holder:
            spec |= {"acquireTime": now, "leaseTransitions": int(spec.get("leaseTransitions") or 0) + 1}
        spec |= {"holderIdentity": self.holder, "renewTime": now, "leaseDurationSeconds": self._seconds}
        return found


class LeaseKeeper:
    """Renews a Lease in a thread as long as the agent shows life.

    Args:
        lease: What is kept.
        every_s: Time from one renewal to the next.
        alive: Whether the agent does well: without that the Lease runs out, and the watchdog acts.
        lost: Called once when it is ours no more.
    """

    def __init__(
        self, lease: Lease, every_s: float, alive: Callable[[], bool], lost: Callable[[], None]
    ) -> None:
        self._lease, self._every_s, self._alive, self._lost = lease, every_s, alive, lost
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True, name="lease")

    def wait_for_it(self, go_on: Callable[[], bool]) -> bool:
        """Wait until it is ours; whether it is, when nobody wants to wait any more."""
        while go_on():
            try:
                if self._lease.renew():
                    self._thread.start()
                    return True
                self._lease.error = ""
            except AdapterError as error:
                self._lease.error = str(error)
            self._stop.wait(self._every_s)
        return False

    def close(self) -> None:
        """Renew no more, and let the next one take it."""
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join(5.0)
        try:
            self._lease.release()
        except AdapterError as error:  # it runs out by itself
            self._lease.error = str(error)

    def _run(self) -> None:
        while not self._stop.wait(self._every_s):
            try:
                if self._alive():
                    self._lease.renew()
            except AdapterError as error:
                self._lease.error = str(error)
            if not self._lease.held:
                self._lost()
                return


class LeaseSigns:
    """What the Lease says of the agent's life, for the watchdog.

    Args:
        api: The API server.
        namespace: Of the Lease.
        name: Of the Lease.
    """

    def __init__(self, api: Api, namespace: str, name: str) -> None:
        self._api, self._path = api, lease_path(namespace, name)

    @property
    def halted(self) -> bool:
        """Whether somebody asked the agent to keep its hands off."""
        found = self._found()
        return found is not None and HALT in (found["metadata"].get("annotations") or {})

    def silence_s(self, now_s: float | None = None) -> float | None:
        """How long ago the Lease was renewed; None if it is not there, was given up, or is of the future.

        Raises:
            AdapterError: if the API server does not answer.
        """
        found = self._found()
        renewed_s = None if found is None else moment((found.get("spec") or {}).get("renewTime"))
        if renewed_s is None:
            return None
        silence_s = (time.time() if now_s is None else now_s) - renewed_s
        return silence_s if silence_s > -60.0 else None

    def _found(self) -> Object | None:
        try:
            return self._api.get(self._path)
        except AdapterError as error:
            if error.code == "missing":
                return None
            raise
