"""slurmrestd over a unix socket or TCP, with the standard library only.

22.05 (v0.0.38) lists jobs and nodes, but refuses to prescribe nodes ("Disabled key") and answers 200 to
requests that failed; later versions pin and release, and answer with an error's code.
"""

import getpass
import http.client
import json
import socket
import time
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from gpuyard.serve.adapter import AdapterError
from gpuyard.serve.commands import parsed_object
from gpuyard.serve.slurm.commands import write_code

VERSIONS = tuple(f"v0.0.{number}" for number in range(46, 36, -1))
"""Versions of the interface that are tried, the newest first."""
FIRST_THAT_PINS = 40
"""Of interfaces v0.0.N, the first that is written to; v0.0.38 was seen to refuse nodes, 26.05 to accept."""

PAUSE_S = 60.0
"""How long slurmrestd is left alone after it failed."""

_MOST_BYTES = 2_000_000_000


class _UnixConnection(http.client.HTTPConnection):
    """HTTP over a unix socket."""

    def __init__(self, path: str, timeout_s: float) -> None:
        super().__init__("localhost", timeout=timeout_s)
        self._path = path

    def connect(self) -> None:
        """Open the socket."""
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self._path)


class Rest:
    """A slurmrestd.

    Args:
        address: ``unix:/path/to/socket`` or ``http://HOST:PORT``.
        token_file: File whose first line is the JWT; None: the socket's owner is trusted.
        user: Goes with the JWT; None: who runs this process.
        timeout_s: Of a request, s.

    Raises:
        AdapterError: for another address.
    """

    def __init__(
        self, address: str, token_file: Path | None = None, user: str | None = None, timeout_s: float = 10.0
    ) -> None:
        self._address, self._token_file, self._user = address, token_file, user
        self._timeout_s = timeout_s
        self._version = ""
        parts = urlsplit(address)
        if not address.startswith("unix:") and (parts.scheme != "http" or not parts.hostname):
            raise AdapterError(
                f"{address!r} is no address of slurmrestd; expected unix:/path or http://HOST:PORT", "missing"
            )

    @property
    def pins(self) -> bool:
        """Whether this version takes the nodes that a job shall have."""
        return int((self._version or "v0.0.0").rpartition(".")[2]) >= FIRST_THAT_PINS

    def get(self, what: str) -> dict[str, Any]:
        """A list such as ``jobs`` or ``nodes``.

        Raises:
            AdapterError: if there is no answer, or an error in it.
        """
        return self._asked("GET", f"/slurm/{self._find_version()}/{what}")

    def update(self, job: str, changes: dict[str, Any]) -> None:
        """Change a job.

        Raises:
            AdapterError: if there is no answer, or Slurm refuses.
        """
        self._asked("POST", f"/slurm/{self._find_version()}/job/{job}", changes)

    def _find_version(self) -> str:
        """The newest interface that answers; known after the first call."""
        if self._version:
            return self._version
        status = 0
        for version in VERSIONS:
            status, _ = self._exchange("GET", f"/slurm/{version}/ping", None)
            if status == 200:
                self._version = version
                return version
            if status in (401, 403):
                raise AdapterError(f"slurmrestd refuses the token (HTTP {status})", "refused")
        raise AdapterError(
            f"slurmrestd answers HTTP {status} to every version that is known here; is the token valid?",
            "refused",
        )

    def _asked(self, method: str, path: str, body: dict[str, Any] | None = None) -> dict[str, Any]:
        try:
            status, raw = self._exchange(method, path, body)
        except AdapterError:
            self._version = ""  # another version may come back
            raise
        answer = parsed_object(raw, f"slurmrestd (HTTP {status})")
        problem = _problem(answer)
        if problem or status != 200:
            raise AdapterError(f"slurmrestd, HTTP {status}: {problem or 'no words'}"[:300], "refused")
        return answer

    def _exchange(self, method: str, path: str, body: dict[str, Any] | None) -> tuple[int, bytes]:
        connection = self._connection()
        headers = {"Accept": "application/json", **self._credentials()}
        payload = None
        if body is not None:
            payload = json.dumps(body)
            headers["Content-Type"] = "application/json"
        try:
            connection.request(method, path, body=payload, headers=headers)
            response = connection.getresponse()
            return response.status, response.read(_MOST_BYTES)
        except TimeoutError:
            raise AdapterError(f"slurmrestd: no answer within {self._timeout_s:g} s", "timeout") from None
        except (OSError, ValueError, http.client.HTTPException) as error:
            # Only its kind: the words of some have the headers, and with them the token.
            raise AdapterError(f"slurmrestd cannot be reached: {type(error).__name__}", "exit") from None
        finally:
            connection.close()

    def _connection(self) -> http.client.HTTPConnection:
        if self._address.startswith("unix:"):
            return _UnixConnection(self._address.removeprefix("unix:"), self._timeout_s)
        parts = urlsplit(self._address)
        return http.client.HTTPConnection(parts.hostname or "", parts.port or 6820, timeout=self._timeout_s)

    def _credentials(self) -> dict[str, str]:
        """Headers with the token, which is read anew: tokens are replaced before they expire."""
        if self._token_file is None:
            return {}
        try:
            lines = self._token_file.read_text().splitlines()
        except (OSError, ValueError):
            raise AdapterError(f"the token file {self._token_file} cannot be read", "missing") from None
        if not lines or not lines[0].strip():
            raise AdapterError(f"the token file {self._token_file} is empty", "missing")
        token = lines[0].strip().removeprefix("SLURM_JWT=")
        return {"X-SLURM-USER-NAME": self._user or getpass.getuser(), "X-SLURM-USER-TOKEN": token}


class RestFirst:
    """slurmrestd where there is one and it works; who asks goes on with commands where it does not.

    Args:
        rest: None: there is none.
    """

    def __init__(self, rest: Rest | None) -> None:
        self._rest = rest
        self._pause_ends_s = 0.0
        self._takes_changes = True
        self._note = ""

    @property
    def notes(self) -> tuple[str, ...]:
        """That commands are used instead, and why; empty while it works."""
        return (self._note,) if self._note else ()

    def get(self, what: str) -> dict[str, Any] | None:
        """A list such as ``jobs``; None: ask somebody else."""
        if self._rest is None or time.monotonic() < self._pause_ends_s:
            return None
        try:
            answer = self._rest.get(what)
            if not isinstance(answer.get(what), list):
                raise AdapterError(f"slurmrestd answered without {what}", "parse")
        except AdapterError as error:
            self._pause(error)
            return None
        self._note = ""
        return answer

    def update(self, job: str, changes: dict[str, Any]) -> bool:
        """Whether it changed a job; tasks of arrays and versions that refuse are left to others.

        Raises:
            AdapterError: if the job is gone.
        """
        if self._rest is None or not self._takes_changes or not self._rest.pins or "_" in job:
            return False
        if time.monotonic() < self._pause_ends_s:
            return False
        try:
            self._rest.update(job, changes)
        except AdapterError as error:
            if write_code(error) == "missing":
                raise
            said = str(error).lower()
            if "disabled key" in said or "unknown key" in said:
                self._takes_changes = False
            elif error.code != "refused":
                self._pause(error)
            return False
        return True

    def _pause(self, error: AdapterError) -> None:
        self._pause_ends_s = time.monotonic() + PAUSE_S
        self._note = f"commands are used instead of slurmrestd: {error}"


def _problem(answer: dict[str, Any]) -> str:
    """The errors that an answer lists; results of single tasks are among them in newer versions."""
    said = []
    for row in answer.get("errors") or []:
        if isinstance(row, dict):
            said += [str(row[name]) for name in ("description", "error") if row.get(name)] or ["error"]
    for row in answer.get("results") or []:
        if isinstance(row, dict) and row.get("error_code"):
            said.append(str(row.get("error") or row.get("why") or "error"))
    return "; ".join(said)
